"""Entries in this process: forgotten at its end (R20)."""

from collections import OrderedDict
from collections.abc import KeysView
from dataclasses import replace

from cachegate.guard.budget import Entry
from cachegate.stores.base import Answer, Change, Condition, Lease


class MemoryStore:
    """At most `entries_max` entries, least recently used first to go, never one with a request in flight."""

    def __init__(self, entries_max: int) -> None:
        self._entries: OrderedDict[str, Entry] = OrderedDict()
        self._entries_max = entries_max

    async def open(self) -> None:
        """Nothing to begin."""

    async def apply(self, key: str, change: Change[Answer], lease: Lease | None = None) -> Answer:
        """See `Store.apply`. Nothing is awaited between the read and the write, so it is atomic.

        Leases end with the process, as the entries do: the number in the entry is enough.
        """
        before = self._entries.get(key, Entry())
        entry, answer = change(before)
        if lease is None:
            entry = replace(entry, in_flight=before.in_flight)
        self.keep(key, entry)
        return answer

    async def note(self, key: str, lease: Lease) -> None:
        """Nothing to keep: see `apply`."""

    async def close(self) -> None:
        """Nothing to release."""

    def condition(self) -> Condition:
        """Memory does not fail."""
        return Condition("memory")

    def kept(self, key: str) -> Entry | None:
        """Return the entry under a key, if there is one."""
        return self._entries.get(key)

    def keep(self, key: str, entry: Entry) -> None:
        """Put an entry under a key, whatever was there."""
        self._entries[key] = entry
        self._entries.move_to_end(key)
        if len(self._entries) > self._entries_max:
            self._evict()

    def keys(self) -> KeysView[str]:
        """Return the keys of all entries."""
        return self._entries.keys()

    @property
    def in_flight(self) -> int:
        """Requests in flight over all entries; 0 when the gateway is at rest."""
        return sum(entry.in_flight for entry in self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def _evict(self) -> None:
        idle = next((key for key, entry in self._entries.items() if entry.in_flight == 0), None)
        if idle is not None:
            del self._entries[idle]
