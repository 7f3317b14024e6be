"""The store in this process; its contract is in tests/contract."""

from dataclasses import replace

from cachegate.guard.budget import Entry
from cachegate.guard.machine import Ending, Result
from cachegate.guard.usage import Usage
from cachegate.stores.base import Condition, Lease
from cachegate.stores.memory import MemoryStore

LEASE = Lease("any", Result(Usage(), Ending.SHUTDOWN, 0, 0))


async def test_it_never_holds_more_than_its_limit_but_for_what_runs() -> None:
    store = MemoryStore(entries_max=3)
    for number in range(10):
        await store.apply(f"idle{number}", lambda entry: (entry, None))
        assert len(store) <= 3
    for number in range(5):
        await store.apply(f"busy{number}", lambda entry: (replace(entry, in_flight=1), None), LEASE)
    assert (len(store), store.in_flight) == (5, 5)


async def test_use_keeps_an_entry_young() -> None:
    store = MemoryStore(entries_max=2)
    for key in ("a", "b", "a", "c"):
        await store.apply(key, lambda entry: (replace(entry, count=entry.count + 1), None))
    assert await store.apply("a", lambda entry: (entry, entry.count)) == 2
    assert await store.apply("b", lambda entry: (entry, entry.count)) == 0


async def test_what_is_put_back_is_found_again_and_as_young_as_any() -> None:
    store = MemoryStore(entries_max=2)
    for key in ("a", "b"):
        store.keep(key, Entry(count=1))
    store.keep("a", Entry(count=7))
    store.keep("c", Entry())
    assert (store.kept("a"), store.kept("b"), store.kept("c")) == (Entry(count=7), None, Entry())
    assert list(store.keys()) == ["a", "c"]


def test_memory_never_fails() -> None:
    assert MemoryStore(1).condition() == Condition("memory", degraded=False, failures=0)
