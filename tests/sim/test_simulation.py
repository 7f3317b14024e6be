"""A thousand clients against providers with working, broken, flapping and silent caches, in virtual time.

Everything follows from a seed, so a failure can be played again alone; what must hold stands in `audit.py`.
"""

from collections import Counter
from functools import cache

import pytest

from cachegate.guard.machine import Ending
from sim import callers
from sim.audit import WatchedStore
from sim.broken_machines import MISTAKES, Mistake
from sim.world import CLIENTS, SEEDS, play

played = cache(play)
"""Every world once, for all tests of one process."""

OFTEN = (
    "reuse", "miss", "unreported", "neutral", "not_sent", "cancelled", "rebuild_after_cancel", "client_change",
    "rebuild_after_refusal", "allowed", "stopped", "blocked", "recovered", "observed", "excused", "completed",
    "refused", "failed", "timeout", "shutdown", "silence", "overlapping", "evicted", "spared", "unguarded",
    "asked elsewhere",
)  # fmt: skip
"""What no few worlds may do without, or they prove nothing."""
FEW = 12


def first_broken(seeds: int) -> str:
    """Return what the first world of a few finds wrong; empty when none does."""
    return next((broken for number in range(seeds) if (broken := play(number).broken)), "")


def test_nothing_happens_that_must_not(seed: int) -> None:
    broken = played(seed).broken
    assert not broken, f"seed {seed}; play it alone with: pytest tests/sim --sim-seed {seed}\n{broken}"


def test_a_thousand_clients_are_simulated_by_default() -> None:
    assert SEEDS * CLIENTS >= 1_000


def test_the_worlds_see_everything_that_they_should() -> None:
    seen: Counter[str] = sum((played(number).seen for number in range(FEW)), Counter())
    assert {what: seen[what] for what in OFTEN if seen[what] < FEW} == {}
    assert seen["cold in a row: 8"], "long runs of cold requests are what the bounds of C1 are about"


def test_a_seed_tells_the_same_story_every_time() -> None:
    assert play(3).story == played(3).story
    assert play(3).story != played(4).story


@pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake.title for mistake in MISTAKES])
def test_a_gateway_with_a_mistake_is_found_out(mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mistake.owner, mistake.name, mistake.instead)
    assert first_broken(SEEDS)


def test_a_store_may_take_its_time_behind_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WatchedStore, "late_s", 0.04)
    assert first_broken(FEW) == ""


def test_a_caller_may_stall_on_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "STALLING", callers.STALLING | {400})
    assert first_broken(FEW) == ""


def test_the_gateway_may_shut_down_right_behind_the_end_of_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "LATE", Ending.SHUTDOWN)
    assert first_broken(FEW) == ""
