"""Does the benchmark of the stores measure what it says, and judge it as it says?"""

import asyncio
import dataclasses
import sys
from pathlib import Path

import pytest
from benchmarks.store import (
    FLOOR,
    LOCAL,
    MEMORY,
    SHARED,
    Round,
    Spread,
    figures,
    made,
    reached,
    spread,
    table,
)

from benchmarks import store as benchmark
from recording_store import RecordingStore


def test_a_spread_tells_the_middle_the_tail_and_the_worst() -> None:
    assert spread([1_000 * number for number in range(1, 102)]) == Spread(51.0, 100.0, 101.0)
    assert spread([7_000]) == Spread(7.0, 7.0, 7.0)


def rounds(local_us: float) -> list[Round]:
    def one(subject: str, middle_us: float, request_us: float) -> Round:
        return Round(subject, Spread(middle_us, 2 * middle_us, 900.0), Spread(request_us, 2 * request_us, 900.0))

    fast = [one(FLOOR, 10, 30), one(MEMORY, 12, 31), one(LOCAL, 50, local_us), one(SHARED, 60, 190)]
    slow = [one(FLOOR, 20, 60), one(MEMORY, 24, 62), one(LOCAL, 100, local_us), one(SHARED, 120, 380)]
    return [*fast, *slow]


def test_ratios_are_those_of_the_same_round() -> None:
    told = figures(rounds(190))
    assert [row["times_floor"] for row in told.values()] == [1.0, 1.2, 5.0, 6.0]
    assert told[LOCAL]["guard_us"] == 190
    assert "| local | 75 us | 150 us | 0.9 ms | 5.0 | 190 us | 380 us |" in table(told)


@pytest.mark.parametrize(("local_us", "good"), [(199, True), (200, True), (201, False)])
def test_the_bar_is_the_local_stores_share_of_a_request(local_us: float, good: bool) -> None:
    assert reached(figures(rounds(local_us))) is good


async def test_a_request_does_what_the_road_does() -> None:
    store = RecordingStore()
    await benchmark.request(store, 1)
    (story,) = store.stories.values()
    assert (story.opened, len(story.notes), story.closed, story.late) == (1, 2, 1, 0)


@pytest.mark.parametrize("subject", [FLOOR, MEMORY, LOCAL])
async def test_what_is_measured_remembers(tmp_path: Path, subject: str) -> None:
    store = made(subject, tmp_path)
    for number in (0, 0, benchmark.KEYS):
        await benchmark.request(store, number)
    entry = await store.apply("0" * 32, lambda entry: (entry, entry))
    assert (entry.prefix, entry.in_flight) == (200_000, 0)
    assert not store.condition().degraded
    await store.close()


async def test_the_second_process_shares_the_place_and_ends_with_the_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(Path(benchmark.__file__).parent.parent)
    monkeypatch.setenv("PYTHONPATH", ":".join([root, *sys.path]))
    store = made(LOCAL, tmp_path)
    seen: set[int] = set()
    with benchmark.rival(tmp_path):
        async with asyncio.timeout(60):
            while len(seen) < 3:
                entry = await store.apply("0" * 32, lambda entry: (entry, entry))
                seen.add(entry.active_ms)
                await asyncio.sleep(0)
    await store.close()


def test_the_whole_run_has_every_subject_in_every_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "KEYS", 8)
    monkeypatch.setattr(benchmark, "WARM_UP", 0)
    monkeypatch.setattr(benchmark, "SUBJECTS", (FLOOR, MEMORY, LOCAL))
    played = benchmark.played(2, 8)
    assert sorted(one.subject for one in played) == sorted([FLOOR, MEMORY, LOCAL] * 2)
    assert all(0 < one.change.middle_us <= one.change.p99_us <= one.change.most_us for one in played)
    assert dataclasses.is_dataclass(played[0])
