"""The contract of a store, held by every store."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from cachegate.guard.budget import Entry
from cachegate.stores.base import Store
from cachegate.stores.memory import MemoryStore


@pytest.fixture(params=["memory"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    made = {"memory": lambda: MemoryStore(entries_max=8)}[request.param]()
    yield made
    await made.close()


def counted(entry: Entry) -> tuple[Entry, int]:
    return replace(entry, count=entry.count + 1), entry.count


async def test_a_key_never_seen_has_a_fresh_entry(store: Store) -> None:
    assert await store.apply("a", lambda entry: (entry, entry)) == Entry()


async def test_a_change_is_kept_per_key_and_its_answer_returned(store: Store) -> None:
    assert [await store.apply("a", counted) for _ in range(3)] == [0, 1, 2]
    assert await store.apply("b", counted) == 0


async def test_concurrent_changes_of_one_key_lose_nothing(store: Store) -> None:
    answers = await asyncio.gather(*(store.apply("a", counted) for _ in range(50)))
    assert sorted(answers) == list(range(50))


async def test_a_change_that_raises_changes_nothing(store: Store) -> None:
    await store.apply("a", counted)

    def broken(entry: Entry) -> tuple[Entry, None]:
        raise ValueError(entry)

    with pytest.raises(ValueError, match="count=1"):
        await store.apply("a", broken)
    assert await store.apply("a", counted) == 1


async def test_the_least_recently_active_goes_first_and_none_in_flight_r20(store: Store) -> None:
    await store.apply("running", lambda entry: (replace(entry, in_flight=1, count=1), None))
    for number in range(20):
        await store.apply(f"key{number}", counted)
    assert await store.apply("running", counted) == 1, "an entry in flight is never evicted"
    assert await store.apply("key19", counted) == 1
    assert await store.apply("key0", counted) == 0, "forgotten"
