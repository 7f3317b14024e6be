"""A shared store that may fail, and a guard that goes on: no request ever fails because of the state.

Every entry that passes is also kept in this process. When the shared store fails, requests are guarded with what is
known here; when it answers again, what happened meanwhile goes back into it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

from cachegate.guard.budget import Entry
from cachegate.guard.policy import Policy
from cachegate.guard.reunion import reunited
from cachegate.stores.base import (
    Answer,
    Change,
    Condition,
    Lease,
    SharedStore,
    StateDown,
    StoreBeganAnew,
    StoreFailed,
)
from cachegate.stores.memory import MemoryStore

LOGGER = logging.getLogger("cachegate")
_Got = TypeVar("_Got")


@dataclass(frozen=True, slots=True)
class Pauses:
    """How a store that fails is asked again."""

    failures_max: int = 1
    """Failures in a row after which it is left alone for a while: one, where asking it can take long."""
    pause_ms: int = 1_000
    """The first pause; each further failure doubles it."""
    pause_ms_max: int = 30_000


class Down(StrEnum):
    """What becomes of requests while the shared store fails."""

    LOCAL = "local"
    """They are guarded with what this process knows."""
    BLOCK = "block"
    """Large ones are refused, which costs nobody anything but time; the others are guarded as in `LOCAL`."""
    ALLOW = "allow"
    """They run, and are not guarded."""


class FallbackStore:
    """A `Store` of a `SharedStore`."""

    def __init__(
        self,
        shared: SharedStore,
        policy: Policy,
        now_ms: Callable[[], int],
        pauses: Pauses | None = None,
        down: Down = Down.LOCAL,
    ) -> None:
        self._shared = shared
        self._own = MemoryStore(policy.entries_max)
        """Every entry as this process saw it last; `in_flight` counts only our own requests."""
        self._policy = policy
        self._down = down
        self._now_ms = now_ms
        self._pauses = pauses or Pauses()
        self._open: dict[str, tuple[str, Lease]] = {}
        """Leases of this process in flight, by id, with their keys."""
        self._ahead: set[str] = set()
        """Keys under which this process may know more than the shared store."""
        self._differing = False
        """The leases that the shared store holds for us may not be those that are open."""
        self._failed_in_a_row = 0
        self._failures = 0
        self._again_ms = 0
        """When a failing store is asked again."""
        self._tending: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Tend the shared store now, and from now on."""
        await self._tend()
        if self._tending is None:
            self._tending = asyncio.create_task(self._keep_tending())

    async def apply(self, key: str, change: Change[Answer], lease: Lease | None = None) -> Answer:
        """See `Store.apply`."""

        def watched(entry: Entry) -> tuple[Entry, tuple[Entry, Entry, Answer]]:
            before = self._newest(key, entry)
            after, answer = change(before)
            return after, (before, after, answer)

        try:
            before, after, answer = await self._ask(lambda: self._shared.apply(key, watched, lease))
        except StoreFailed:
            before, after, answer = await self._alone(key, watched, lease)
        else:
            self._keep(key, before, after, lease)
            self._ahead.discard(key)
        self._account(key, lease, after.in_flight - before.in_flight)
        return answer

    async def _alone(self, key: str, change: Change[Answer], lease: Lease | None) -> Answer:
        """Do without the shared store. Raises StateDown for a large request that is not to begin without it."""
        opened = lease is not None and lease.id in self._open
        if self._down is Down.ALLOW:
            return change(Entry(in_flight=1 if opened else 0))[1]
        large = lease is not None and lease.fate.input_bytes >= self._policy.large_bytes
        if self._down is Down.BLOCK and large and not opened:
            raise StateDown("The state of the cache guard cannot be reached, and the configuration says `block`.")
        answer = await self._own.apply(key, change, lease)
        self._mark_ahead(key)
        return answer

    async def note(self, key: str, lease: Lease) -> None:
        """See `Store.note`."""
        if lease.id in self._open:
            self._open[lease.id] = (key, lease)
        with contextlib.suppress(StoreFailed):
            await self._ask(lambda: self._shared.note(key, lease))

    async def close(self) -> None:
        """Stop tending, and close the shared store."""
        if self._tending is not None:
            self._tending.cancel()
            await asyncio.wait({self._tending})
            self._tending = None
        await self._shared.close()

    def condition(self) -> Condition:
        """Say whether the shared store answers."""
        return Condition(self._shared.kind, degraded=self._failed_in_a_row > 0, failures=self._failures)

    @property
    def in_flight(self) -> int:
        """Requests of this process in flight."""
        return len(self._open)

    async def _ask(self, work: Callable[[], Awaitable[_Got]]) -> _Got:
        """Ask the shared store. Raises StoreFailed, also without asking while it is left alone."""
        if self._failed_in_a_row >= self._pauses.failures_max:
            if self._now_ms() < self._again_ms:
                raise StoreFailed("left alone for a while")
            self._again_ms = self._now_ms() + self._pauses.pause_ms  # this one looks; the others need not wait for it
        try:
            try:
                got = await self._asked(work)
            except StoreBeganAnew as anew:
                self._lost(anew)
                got = await self._asked(work)
        except StoreFailed as failure:
            self._failed(failure)
            raise
        self._answered()
        return got

    async def _asked(self, work: Callable[[], Awaitable[_Got]]) -> _Got:
        if self._differing:
            await self._shared.resume(dict(self._open))
            self._differing = False
        return await work()

    def _lost(self, anew: StoreBeganAnew) -> None:
        """Note that all that others know is gone: what this process knows is the newest there is."""
        LOGGER.warning("The guard's state begins anew, with what this process remembers: %s.", anew)
        self._failures += 1
        self._differing = True
        self._ahead.update(self._own.keys())

    def _failed(self, failure: StoreFailed) -> None:
        """Count a failure, say so once, and set the pause."""
        if self._failed_in_a_row == 0:
            LOGGER.warning("The guard's state cannot be shared, and goes on in this process alone: %s.", failure)
        self._failures += 1
        self._failed_in_a_row += 1
        self._differing = True
        doublings = min(max(0, self._failed_in_a_row - self._pauses.failures_max), 16)
        pause_ms = min(self._pauses.pause_ms << doublings, self._pauses.pause_ms_max)
        self._again_ms = self._now_ms() + pause_ms

    def _answered(self) -> None:
        if self._failed_in_a_row:
            LOGGER.warning("The guard's state is shared again.")
        self._failed_in_a_row = 0

    def _newest(self, key: str, entry: Entry) -> Entry:
        """Return what is known of a budget: what happened here while the store failed is newer than what it has."""
        own = self._own.kept(key) if key in self._ahead else None
        return entry if own is None else reunited(entry, own, self._now_ms(), self._policy.idle_ms)

    def _keep(self, key: str, before: Entry, after: Entry, lease: Lease | None) -> None:
        kept = self._own.kept(key)
        running = 0 if kept is None else kept.in_flight
        ours = 0 if lease is None else after.in_flight - before.in_flight
        running = max(0, running + ours)
        self._own.keep(key, after if after.in_flight == running else replace(after, in_flight=running))

    def _account(self, key: str, lease: Lease | None, more: int) -> None:
        """Keep the list of open leases."""
        if lease is None:
            return
        if more > 0:
            self._open[lease.id] = (key, lease)
        elif more < 0:
            self._open.pop(lease.id, None)

    def _mark_ahead(self, key: str) -> None:
        self._ahead.add(key)
        if len(self._ahead) > self._policy.entries_max:
            self._ahead.intersection_update(self._own.keys())

    async def _keep_tending(self) -> None:
        while True:
            await asyncio.sleep(self._shared.tend_s)
            await self._tend()

    async def _tend(self) -> None:
        with contextlib.suppress(StoreFailed):
            await self._ask(self._shared.tend)
