"""Two memories of a budget: what either counted stays, the rest is as the newer one says."""

from dataclasses import replace

from cachegate.guard.budget import Entry
from cachegate.guard.reunion import reunited

IDLE_MS = 300_000
STOPPED = Entry(count=2, failed_bytes=800_000, unreported=True, active_ms=1_000, settled_ms=900, in_flight=3)
NEWER = Entry(count=1, failed_bytes=5, prefix=70_000, active_ms=2_000, settled_ms=2_000, in_flight=1)


def test_a_stop_is_never_forgotten() -> None:
    for kept, other in ((STOPPED, NEWER), (NEWER, STOPPED)):
        both = reunited(kept, other, 2_000, IDLE_MS)
        assert both == replace(NEWER, count=2, failed_bytes=800_000, unreported=True, in_flight=kept.in_flight)


def test_a_memory_that_went_idle_says_nothing_r12() -> None:
    idle = replace(STOPPED, in_flight=0)
    assert reunited(NEWER, idle, idle.active_ms + IDLE_MS, IDLE_MS) == NEWER


def test_nothing_known_gives_way_also_on_a_clock_that_began_later() -> None:
    early = replace(STOPPED, active_ms=-5_000, settled_ms=-5_000)
    assert reunited(Entry(), early, 10, IDLE_MS) == replace(early, in_flight=0)
    assert reunited(early, Entry(), 10, IDLE_MS) == early
