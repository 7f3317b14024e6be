"""What an older build left is taken over once (R21), told by two processes with one database before and after.

Each test is a sentence of the text that the rules come from, or the half of one.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from cachegate.guard.budget import Entry
from cachegate.guard.machine import Ask, Ending, admit, settle
from cachegate.guard.policy import Policy
from cachegate.stores.local import LocalStore
from contract.store_subjects import Clock, lease

POLICY = Policy()
DEADLINE_S = 60.0
WRITER = Path(__file__).with_name("legacy_writer.py")
TIMES = pytest.mark.parametrize("flags", [(), ("--times",)], ids=["without times", "with times of its own"])


class Legacy:
    """A worker of the old build, in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def do(self, command: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{command}\n".encode())
        assert await asyncio.wait_for(self.process.stdout.readline(), DEADLINE_S) == b"done\n"

    async def die(self) -> None:
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGKILL)
        await self.process.communicate()


@asynccontextmanager
async def legacy_worker(place: Path, *flags: str) -> AsyncIterator[Legacy]:
    started = await asyncio.create_subprocess_exec(
        sys.executable, str(WRITER), str(place), *flags,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=dict(os.environ),
    )  # fmt: skip
    worker = Legacy(started)
    try:
        yield worker
    finally:
        await worker.die()


@asynccontextmanager
async def new_build(place: Path, clock: Clock) -> AsyncIterator[LocalStore]:
    store = LocalStore(place, POLICY, clock)
    await store.tend()
    try:
        yield store
    finally:
        await store.close()


async def entry_of(store: LocalStore, key: str) -> Entry:
    return await store.apply(key, lambda entry: (entry, entry))


async def runs(store: LocalStore, key: str, clock: Clock) -> bool:
    """Let a cold request run from its admission to its end, if it may."""
    held = lease(f"{key}-{clock.ms}")
    decision = await store.apply(key, lambda entry: admit(entry, Ask(800_000), clock(), POLICY), held)
    if decision.runs:
        result = replace(held.fate, ending=Ending.COMPLETED)
        await store.apply(key, lambda entry: settle(entry, result, clock(), POLICY), held)
    return decision.runs


@pytest.fixture
def clock() -> Clock:
    return Clock()


@TIMES
async def test_inactive_inherited_histories_get_a_fresh_bounded_warm_up(
    tmp_path: Path, clock: Clock, flags: tuple[str, ...]
) -> None:
    async with legacy_worker(tmp_path, *flags) as old:
        await old.do("write stopped 2")
        await old.do("write half 1")
    async with new_build(tmp_path, clock) as new:
        assert [await runs(new, "stopped", clock) for _ in range(3)] == [True, True, False], "fresh, and bounded"
        assert [await runs(new, "half", clock) for _ in range(3)] == [True, True, False]


@TIMES
async def test_conversations_in_flight_retain_their_history(
    tmp_path: Path, clock: Clock, flags: tuple[str, ...]
) -> None:
    async with legacy_worker(tmp_path, *flags) as old:
        for command in ("write stopped 2", "begin stopped", "write half 1", "begin half", "write idle 2"):
            await old.do(command)
        async with new_build(tmp_path, clock) as new:
            assert (await entry_of(new, "stopped")).in_flight == 1
            assert (await entry_of(new, "stopped")).active_ms == clock.ms, "and not when the old clock said"
            assert not await runs(new, "stopped", clock)
            assert [await runs(new, "half", clock) for _ in range(2)] == [True, False]
            assert await runs(new, "idle", clock)
            clock.ms += 10 * POLICY.idle_ms
            assert not await runs(new, "stopped", clock), "not idle while it runs in the old worker"


async def test_what_a_dead_worker_had_in_flight_is_not_in_flight(tmp_path: Path, clock: Clock) -> None:
    async with legacy_worker(tmp_path) as old:
        await old.do("write a 2")
        await old.do("begin a")
        await old.die()
    async with new_build(tmp_path, clock) as new:
        assert (await entry_of(new, "a")).in_flight == 0
        assert await runs(new, "a", clock)


async def test_later_reloads_do_not_clear_a_stop_again(tmp_path: Path, clock: Clock) -> None:
    async with legacy_worker(tmp_path) as old:
        await old.do("write a 2")
    async with new_build(tmp_path, clock) as new:
        while await runs(new, "a", clock):
            clock.ms += 1
        for _ in range(3):
            async with new_build(tmp_path, clock) as reloaded:
                assert not await runs(reloaded, "a", clock)
    async with new_build(tmp_path, clock) as alone:
        assert not await runs(alone, "a", clock), "nor when no worker was left for a moment"


@TIMES
async def test_a_late_legacy_write_stays_conservative_until_real_idle_is_observed(
    tmp_path: Path, clock: Clock, flags: tuple[str, ...]
) -> None:
    async with legacy_worker(tmp_path, *flags) as old, new_build(tmp_path, clock) as new:
        await old.do("write a 2")
        clock.ms += 7 * POLICY.idle_ms  # nobody looked meanwhile, so no silence was observed
        first_seen_ms = clock.ms
        assert (await entry_of(new, "a")).count == 2
        clock.ms += POLICY.idle_ms - 1
        async with new_build(tmp_path, clock) as reloaded:
            seen = await entry_of(reloaded, "a")
            assert (seen.count, seen.active_ms) == (2, first_seen_ms), "another process sees the same stamp"
            assert not await runs(reloaded, "a", clock)
            assert not await runs(new, "a", clock)
        clock.ms += POLICY.idle_ms
        assert await runs(new, "a", clock), "real silence"


async def test_a_request_that_ends_in_the_old_worker_after_the_handoff_still_counts(
    tmp_path: Path, clock: Clock
) -> None:
    async with legacy_worker(tmp_path) as old:
        await old.do("write a 1")
        await old.do("begin a")
        async with new_build(tmp_path, clock) as new:
            assert (await entry_of(new, "a")).count == 1
            await old.do("end a 2")
            assert (await entry_of(new, "a")).in_flight == 0
            assert not await runs(new, "a", clock)


async def test_a_later_start_takes_nothing_over_again(tmp_path: Path, clock: Clock) -> None:
    async with legacy_worker(tmp_path) as old, new_build(tmp_path, clock):
        await old.do("write late 2")
        async with new_build(tmp_path, clock) as reloaded:
            assert not await runs(reloaded, "late", clock)


async def test_each_budget_is_taken_over_by_itself(tmp_path: Path, clock: Clock) -> None:
    """Provider, model and caller identity remain the scope."""
    async with legacy_worker(tmp_path) as old:
        await old.do("write one 2")
        await old.do("write other 2")
        await old.do("begin other")
        async with new_build(tmp_path, clock) as new:
            assert [await runs(new, key, clock) for key in ("one", "other", "third")] == [True, False, True]


async def test_what_has_times_that_can_be_trusted_is_never_taken_over(tmp_path: Path, clock: Clock) -> None:
    """Even where the mark was lost: only rows of an older build are."""
    async with new_build(tmp_path, clock) as new:
        while await runs(new, "a", clock):
            pass
        with new._database.transaction() as database:
            database.execute("DELETE FROM marks")
    async with legacy_worker(tmp_path) as old, new_build(tmp_path, clock) as reloaded:
        assert not await runs(reloaded, "a", clock)
        await old.do("write b 2")
        assert not await runs(reloaded, "b", clock), "the mark is there again"


async def test_a_database_of_our_own_is_taken_over_by_nobody(tmp_path: Path, clock: Clock) -> None:
    async with new_build(tmp_path, clock) as new:
        while await runs(new, "a", clock):
            pass
        async with legacy_worker(tmp_path) as old:
            await old.do("write b 1")
            async with new_build(tmp_path, clock) as reloaded:
                assert not await runs(reloaded, "a", clock)
                assert (await entry_of(reloaded, "b")).count == 1
