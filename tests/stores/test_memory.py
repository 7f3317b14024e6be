"""The store in this process; its contract is in tests/contract."""

from dataclasses import replace

from cachegate.stores.memory import MemoryStore


async def test_it_never_holds_more_than_its_limit_but_for_what_runs() -> None:
    store = MemoryStore(entries_max=3)
    for number in range(10):
        await store.apply(f"idle{number}", lambda entry: (entry, None))
        assert len(store) <= 3
    for number in range(5):
        await store.apply(f"busy{number}", lambda entry: (replace(entry, in_flight=1), None))
    assert (len(store), store.in_flight) == (5, 5)


async def test_use_keeps_an_entry_young() -> None:
    store = MemoryStore(entries_max=2)
    for key in ("a", "b", "a", "c"):
        await store.apply(key, lambda entry: (replace(entry, count=entry.count + 1), None))
    assert await store.apply("a", lambda entry: (entry, entry.count)) == 2
    assert await store.apply("b", lambda entry: (entry, entry.count)) == 0
