"""The live conversations of a provider: one for each caller's thread, as many as are allowed, each while it is used."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Generic, TypeVar
from typing import Protocol as Interface

from cachegate.errors import Unavailable
from cachegate.providers.base import Call
from cachegate.wire.facts import RequestClass
from cachegate.wire.seen import Reseed, Seen
from cachegate.wire.sessions import Reason

PATIENCE_S = 0.5
"""A caller who breaks off sends the next request within 20 ms, before the session of the old one is at rest."""
ASLEEP_S = 3_600.0
"""How long a conversation that had to leave can be gone on with as it was: as long as any provider's cache lives."""
ASLEEP_MAX = 64
"""Conversations asleep at once; the longest asleep is forgotten first."""
_ENDED_MAX = 4_096
"""Ends of conversations that are remembered; the oldest is forgotten first."""

_SWEEPS_PER_LIFE = 4

Key = tuple[str, str]
"""Thread, as its own tenant named it, and model: requests that continue each other."""


def key_of(call: Call) -> Key | None:
    """Return under which key a request's conversation lives.

    None for a request of no thread, and for one beside the chat, which nothing continues: it ends with its answer.
    Thread names are the clients' own: two tenants that choose the same one never meet in one conversation.
    """
    facts = call.request.facts
    in_chat = facts.caller is not None and facts.request_class is RequestClass.CHAT
    return (f"{call.tenant}\n{facts.caller}", call.model) if in_chat else None


def window_of(call: Call) -> bytes:
    """Return a mark of the compaction window that the client names, in its own way; empty where it names none."""
    said = call.request.facts.fingerprint
    return said.window + (b"compacted" if said.compacted else b"")


class Lively(Interface):
    """A conversation that can be kept."""

    @property
    def waits(self) -> bool:
        """Whether calls of the model wait for their results."""

    async def settle(self) -> None:
        """End its request, however that ended."""

    async def sleep(self) -> bool:
        """End what costs, and keep what it takes to go on without a loss; False when there is nothing to keep."""

    async def close(self) -> None:
        """End it, and let everything go that it holds."""


L = TypeVar("L", bound=Lively)


class Slot(Generic[L]):
    """A conversation's place in the pool."""

    __slots__ = ("busy", "conversation", "free", "key", "missing", "used_s")

    def __init__(self, conversation: L, key: Key | None, used_s: float) -> None:
        self.conversation = conversation
        self.key = key
        """None for a request of no thread, and for one beside a running one of its thread: it ends with its answer."""
        self.used_s = used_s
        self.missing = ""
        """Why the thread's conversation before this one ended, where it was the pool that ended it."""
        self.busy = True
        self.free = asyncio.Event()
        """Set whenever a request has given it back."""

    def told(self, reseed: Reseed | None) -> tuple[Seen, ...]:
        """Return what the guard is told of a session that was rebuilt, with the reason that only the pool knows."""
        if reseed is None:
            return ()
        return (Reseed(self.missing or reseed.reason),)


class Pool(Generic[L]):
    """See the module's first lines. `now_s` is a steady clock."""

    def __init__(self, begin: Callable[[], L], sessions_max: int, idle_s: float, now_s: Callable[[], float]) -> None:
        self._begin = begin
        self._sessions_max = sessions_max
        self._idle_s = idle_s
        self._now_s = now_s
        self._slots: list[Slot[L]] = []
        self._ended: dict[Key, str] = {}
        self._asleep: dict[Key, tuple[L, float]] = {}
        """Conversations that had to leave, and since when; the longest asleep first."""
        self._endings: set[asyncio.Future[None]] = set()
        self._sweeper: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._slots)

    def has(self, key: Key) -> bool:
        """Whether the thread has a live conversation."""
        return self._of(key) is not None

    async def claim(self, key: Key | None) -> Slot[L]:
        """Return the conversation of a thread for one request. Raises Unavailable when all places are in use."""
        if self._sweeper is None:
            self._sweeper = asyncio.ensure_future(self._sweep_on())
        slot = self._of(key)
        if slot is not None and slot.busy:
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE_S):
                    await slot.free.wait()
            slot = self._of(key)
        if slot is not None and not slot.busy:
            slot.busy = True
            slot.free.clear()
            return slot
        crowded = len(self._slots) >= self._sessions_max
        leaving = self._longest_unused() if crowded else None
        if crowded and leaving is None:
            raise Unavailable(
                f"All {self._sessions_max} live sessions of this provider are answering. Please try again in a moment, "
                "or raise maxSessions."
            )
        fresh = self._fresh(None if slot is not None else key)
        fresh.missing = "" if fresh.key is None else self._ended.pop(fresh.key, "")
        self._slots.append(fresh)  # before any wait: another request must not take the same place
        if leaving is not None:
            try:
                await self._end(leaving, Reason.CAPACITY)
            except asyncio.CancelledError:
                self._slots.remove(fresh)  # nobody will release it
                raise
        return fresh

    async def release(self, slot: Slot[L], *, used: bool = True) -> None:
        """Give a conversation back after its request; `used` says whether it was asked to answer it."""
        if used:
            await slot.conversation.settle()
            slot.used_s = self._now_s()
            slot.missing = ""
        slot.busy = False
        slot.free.set()
        if slot.key is None:
            await self._end(slot)

    async def sweep(self) -> None:
        """End the conversations that nobody has used for too long."""
        oldest_s = self._now_s() - self._idle_s
        for slot in tuple(self._slots):
            if not slot.busy and slot.used_s <= oldest_s:  # also now that others have been ended
                await self._end(slot, Reason.IDLE_EXPIRED)
        forgotten_s = self._now_s() - ASLEEP_S
        for key, (_, since_s) in tuple(self._asleep.items()):
            if since_s <= forgotten_s:
                await self._forget(key)

    async def close(self) -> None:
        """End all, and wait until they have ended."""
        sweeper, self._sweeper = self._sweeper, None
        if sweeper is not None:
            sweeper.cancel()
            with suppress(asyncio.CancelledError):
                await sweeper
        asleep = (self._forget(key) for key in tuple(self._asleep))
        await asyncio.gather(*(self._end(slot) for slot in tuple(self._slots)), *asleep, *self._endings)

    async def _sweep_on(self) -> None:
        while True:
            await asyncio.sleep(self._idle_s / _SWEEPS_PER_LIFE)
            await self.sweep()

    def _of(self, key: Key | None) -> Slot[L] | None:
        return next((slot for slot in self._slots if slot.key == key is not None), None)

    def _longest_unused(self) -> Slot[L] | None:
        """Return who has to leave: rather one whose calls do not wait for results."""
        free = [slot for slot in self._slots if not slot.busy]
        return min(free, key=lambda slot: (slot.conversation.waits, slot.used_s), default=None)

    async def _end(self, slot: Slot[L], why: str = "") -> None:
        if slot not in self._slots:
            return
        self._slots.remove(slot)
        if slot.key is not None and why:
            self._ended[slot.key] = why
            while len(self._ended) > _ENDED_MAX:
                del self._ended[next(iter(self._ended))]
        key = slot.key if why else None
        await self._to_its_end(slot.conversation.close() if key is None else self._put_to_sleep(key, slot.conversation))

    def _fresh(self, key: Key | None) -> Slot[L]:
        """Return a place for a thread, with its conversation where that is asleep."""
        asleep = None if key is None else self._asleep.pop(key, None)
        return Slot(self._begin() if asleep is None else asleep[0], key, self._now_s())

    async def _put_to_sleep(self, key: Key, conversation: L) -> None:
        if not await conversation.sleep():
            return
        self._asleep[key] = (conversation, self._now_s())
        while len(self._asleep) > ASLEEP_MAX:
            await self._forget(next(iter(self._asleep)))

    async def _forget(self, key: Key) -> None:
        conversation, _ = self._asleep.pop(key)
        await self._to_its_end(conversation.close())

    async def _to_its_end(self, ending: Coroutine[None, None, None]) -> None:
        """Run an end; who waits for it may leave, it ends all the same."""
        task = asyncio.ensure_future(ending)
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)
        await asyncio.shield(task)
