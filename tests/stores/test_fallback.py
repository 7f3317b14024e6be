"""A shared store that fails, and a guard that goes on; the store here fails when it is told to."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace

import pytest

from cachegate.guard.budget import Entry
from cachegate.guard.machine import Result
from cachegate.guard.policy import Policy
from cachegate.stores.base import Answer, Change, Condition, Lease, StoreBeganAnew, StoreFailed
from cachegate.stores.fallback import FallbackStore, Pauses
from cachegate.stores.memory import MemoryStore
from contract.store_subjects import WARM, Clock, lease

LIMIT = 4
POLICY = Policy(entries_max=LIMIT)


class Moody:
    """A shared store in memory that fails while `mood` says how, and remembers what it was asked."""

    kind = "moody"
    tend_s = 0.0

    def __init__(self) -> None:
        self.entries = MemoryStore(LIMIT)
        self.mood: StoreFailed | None = None
        self.removed = False
        """Whether what it holds is gone when it is asked next."""
        self.asked: list[str] = []
        self.leases: dict[str, str] = {}
        self.fates: dict[str, Result] = {}
        self.tended = asyncio.Event()
        self.closed = False

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if self.mood is not None:
            raise self.mood
        if self.removed:
            self.removed, self.entries = False, MemoryStore(LIMIT)
            raise StoreBeganAnew("somebody removed it")

    async def apply(self, key: str, change: Change[Answer], lease: Lease | None = None) -> Answer:
        self._ask("apply")
        return await self.entries.apply(key, change, lease)

    async def note(self, key: str, lease: Lease) -> None:
        self._ask(f"note {key} {lease.fate.usage.cached_read}")

    async def resume(self, leases: Mapping[str, tuple[str, Lease]]) -> None:
        self._ask("resume")
        self.leases = {identity: key for identity, (key, _) in leases.items()}
        self.fates = {identity: lease.fate for identity, (_, lease) in leases.items()}
        for key in list(self.entries.keys()):
            entry = self.entries.kept(key) or Entry()
            self.entries.keep(key, replace(entry, in_flight=list(self.leases.values()).count(key)))

    async def tend(self) -> None:
        self.tended.set()
        self._ask("tend")

    async def close(self) -> None:
        self.closed = True


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def moody() -> Moody:
    return Moody()


@pytest.fixture
def store(moody: Moody, clock: Clock) -> FallbackStore:
    return FallbackStore(moody, POLICY, clock, Pauses(failures_max=1, pause_ms=1_000, pause_ms_max=4_000))


def counted_at(clock: Clock) -> Change[int]:
    return lambda entry: (replace(entry, count=entry.count + 1, active_ms=clock.ms), entry.count)


def opened(entry: Entry) -> tuple[Entry, int]:
    return replace(entry, in_flight=entry.in_flight + 1), entry.in_flight


def closed(entry: Entry) -> tuple[Entry, int]:
    return replace(entry, in_flight=entry.in_flight - 1), entry.in_flight


async def seen(store: FallbackStore, key: str) -> Entry:
    return await store.apply(key, lambda entry: (entry, entry))


async def test_a_store_that_answers_is_asked_and_believed(store: FallbackStore, moody: Moody, clock: Clock) -> None:
    assert [await store.apply("a", counted_at(clock)) for _ in range(2)] == [0, 1]
    moody.entries.keep("a", Entry(count=7, active_ms=clock.ms))
    assert (await seen(store, "a")).count == 7, "another worker was here"
    assert store.condition() == Condition("moody", degraded=False, failures=0)


async def test_a_store_that_fails_fails_nobody_and_the_guard_goes_on(
    store: FallbackStore, moody: Moody, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    await store.apply("a", counted_at(clock))
    moody.mood = StoreFailed("disk full")
    with caplog.at_level(logging.WARNING, "cachegate"):
        assert [await store.apply("a", counted_at(clock)) for _ in range(3)] == [1, 2, 3]
    assert store.condition() == Condition("moody", degraded=True, failures=1)
    assert [record.message for record in caplog.records] == [
        "The guard's state cannot be shared, and goes on in this process alone: disk full."
    ]


async def test_what_happened_meanwhile_goes_back_when_it_answers_again(
    store: FallbackStore, moody: Moody, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    await store.apply("a", counted_at(clock))
    moody.mood = StoreFailed("disk full")
    clock.ms += 10
    await store.apply("a", counted_at(clock))
    moody.mood = None
    assert (await seen(store, "a")).count == 2
    assert moody.entries.kept("a") == Entry(count=1, active_ms=clock.ms - 10), "left alone for a while"
    clock.ms += 1_000
    caplog.clear()
    with caplog.at_level(logging.WARNING, "cachegate"):
        assert await store.apply("a", counted_at(clock)) == 2
    assert moody.entries.kept("a") == Entry(count=3, active_ms=clock.ms)
    assert [record.message for record in caplog.records] == ["The guard's state is shared again."]
    assert store.condition() == Condition("moody", degraded=False, failures=1)
    moody.entries.keep("a", Entry(count=9, active_ms=clock.ms))
    assert (await seen(store, "a")).count == 9, "from then on others are believed again"


async def test_what_others_did_since_is_newer_than_what_happened_here(
    store: FallbackStore, moody: Moody, clock: Clock
) -> None:
    moody.mood = StoreFailed("gone")
    await store.apply("a", counted_at(clock))
    moody.mood = None
    moody.entries.keep("a", Entry(count=5, active_ms=clock.ms + 1))
    clock.ms += 1_000
    assert await store.apply("a", counted_at(clock)) == 5


async def test_a_store_that_fails_again_and_again_is_asked_less_and_less(
    store: FallbackStore, moody: Moody, clock: Clock
) -> None:
    moody.mood = StoreFailed("gone")
    pauses: list[int] = []
    for _ in range(5):
        await seen(store, "a")
        asked, waited = len(moody.asked), 0
        while len(moody.asked) == asked:
            clock.ms += 100
            waited += 100
            await seen(store, "a")
        pauses.append(waited)
    assert pauses == [1_000, 2_000, 4_000, 4_000, 4_000]


async def test_some_stores_are_left_alone_only_after_several_failures(moody: Moody, clock: Clock) -> None:
    store = FallbackStore(moody, POLICY, clock, Pauses(failures_max=3))
    moody.mood = StoreFailed("slow")
    for _ in range(5):
        await seen(store, "a")
    assert len(moody.asked) == 3
    assert store.condition().failures == 3


async def test_leases_that_opened_or_closed_meanwhile_are_put_right(
    store: FallbackStore, moody: Moody, clock: Clock
) -> None:
    before, meanwhile = lease("before"), lease("meanwhile")
    await store.apply("a", opened, before)
    await store.apply("b", opened, lease("stays"))
    moody.mood = StoreFailed("gone")
    assert await store.apply("a", closed, before) == 1
    assert await store.apply("a", opened, meanwhile) == 0
    await store.note("a", lease("meanwhile", WARM))
    assert store.in_flight == 2
    moody.mood = None
    clock.ms += 1_000
    assert (await seen(store, "a")).in_flight == 1
    assert moody.leases == {"stays": "b", "meanwhile": "a"}
    assert moody.fates["meanwhile"].usage == WARM, "as noted last"
    assert await store.apply("a", closed, meanwhile) == 1
    assert await store.apply("b", closed, lease("stays")) == 1
    assert store.in_flight == 0


async def test_a_store_that_began_anew_gets_what_is_known_here_at_once(
    store: FallbackStore, moody: Moody, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    await store.apply("a", counted_at(clock))
    await store.apply("a", opened, lease("running"))
    moody.removed = True
    with caplog.at_level(logging.WARNING, "cachegate"):
        assert await store.apply("a", counted_at(clock)) == 1, "no pause"
    assert moody.leases == {"running": "a"}
    assert store.condition() == Condition("moody", degraded=False, failures=1)
    assert moody.entries.kept("a") == Entry(count=2, active_ms=clock.ms, in_flight=0)
    assert [record.message for record in caplog.records] == [
        "The guard's state begins anew, with what this process remembers: somebody removed it."
    ]


async def test_a_store_that_begins_anew_all_the_time_is_a_failing_one(
    store: FallbackStore, moody: Moody, clock: Clock
) -> None:
    moody.mood = StoreBeganAnew("again")
    assert [await store.apply("a", counted_at(clock)) for _ in range(2)] == [0, 1]
    assert store.condition().degraded


async def test_a_change_that_raises_is_no_failure_of_the_store(store: FallbackStore) -> None:
    def broken(entry: Entry) -> tuple[Entry, None]:
        raise ValueError(entry)

    with pytest.raises(ValueError, match="count=0"):
        await store.apply("a", broken)
    assert store.condition().failures == 0


async def test_what_is_kept_here_has_a_limit(store: FallbackStore, moody: Moody, clock: Clock) -> None:
    moody.mood = StoreFailed("gone")
    for number in range(5 * LIMIT):
        await store.apply(f"key{number}", counted_at(clock))
    assert len(store._own) == LIMIT
    assert len(store._ahead) <= LIMIT + 1


async def test_it_is_tended_from_its_opening_to_its_end(store: FallbackStore, moody: Moody) -> None:
    await store.open()
    assert moody.asked == ["tend"], "at once"
    await store.open()
    for _ in range(3):
        moody.tended.clear()
        await asyncio.wait_for(moody.tended.wait(), 60)
    await store.close()
    assert moody.closed
    asked = len(moody.asked)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(moody.asked) == asked


async def test_tending_notices_that_the_store_answers_again_without_any_request(
    store: FallbackStore, moody: Moody, clock: Clock
) -> None:
    moody.mood = StoreFailed("gone")
    await store.open()
    assert store.condition().degraded
    moody.mood = None
    clock.ms += 1_000
    moody.tended.clear()
    await asyncio.wait_for(moody.tended.wait(), 60)
    assert not store.condition().degraded
    await store.close()


async def test_a_note_reaches_the_store(store: FallbackStore, moody: Moody) -> None:
    await store.apply("a", opened, lease("one"))
    await store.note("a", lease("one", WARM))
    assert moody.asked == ["apply", "note a 199000"]
