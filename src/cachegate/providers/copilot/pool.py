"""The live conversations: one for each caller's thread, as many as are allowed, each for as long as it is used."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from cachegate.errors import Unavailable
from cachegate.providers.copilot.conversation import Conversation

PATIENCE_S = 0.5
"""A caller who breaks off sends the next request within 20 ms, before the session of the old one is at rest."""

Key = tuple[str, str, str]
"""Thread, class of request, model: requests that continue each other."""


class Slot:
    """A conversation's place in the pool."""

    __slots__ = ("busy", "conversation", "free", "key", "used_s")

    def __init__(self, conversation: Conversation, key: Key | None, used_s: float) -> None:
        self.conversation = conversation
        self.key = key
        """None for a request of no thread, and for one beside a running one of its thread: it ends with its answer."""
        self.used_s = used_s
        self.busy = True
        self.free = asyncio.Event()
        """Set whenever a request has given it back."""


class Pool:
    """See the module's first lines. `now_s` is a steady clock."""

    def __init__(
        self, begin: Callable[[], Conversation], sessions_max: int, idle_s: float, now_s: Callable[[], float]
    ) -> None:
        self._begin = begin
        self._sessions_max = sessions_max
        self._idle_s = idle_s
        self._now_s = now_s
        self._slots: list[Slot] = []

    def __len__(self) -> int:
        return len(self._slots)

    async def claim(self, key: Key | None) -> Slot:
        """Return the conversation of a thread for one request. Raises Unavailable when all places are in use."""
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
        fresh = Slot(self._begin(), None if slot is not None else key, self._now_s())
        crowded = len(self._slots) >= self._sessions_max
        leaving = self._longest_unused() if crowded else None
        if crowded and leaving is None:
            raise Unavailable(
                f"All {self._sessions_max} sessions of Copilot's runtime are answering. Please try again in a moment, "
                "or raise maxSessions."
            )
        self._slots.append(fresh)  # before any wait: another request must not take the same place
        if leaving is not None:
            try:
                await self._end(leaving)
            except asyncio.CancelledError:
                self._slots.remove(fresh)  # nobody will release it
                raise
        return fresh

    async def release(self, slot: Slot) -> None:
        """Give a conversation back after its request."""
        slot.busy = False
        slot.used_s = self._now_s()
        slot.free.set()
        if slot.key is None:
            await self._end(slot)

    async def sweep(self) -> None:
        """End the conversations that nobody has used for too long."""
        oldest_s = self._now_s() - self._idle_s
        for slot in [slot for slot in self._slots if not slot.busy and slot.used_s <= oldest_s]:
            await self._end(slot)

    async def close(self) -> None:
        """End all."""
        await asyncio.gather(*(self._end(slot) for slot in tuple(self._slots)))

    def _of(self, key: Key | None) -> Slot | None:
        return next((slot for slot in self._slots if slot.key == key is not None), None)

    def _longest_unused(self) -> Slot | None:
        """Return who has to leave: rather one whose calls do not wait for results."""
        free = [slot for slot in self._slots if not slot.busy]
        return min(free, key=lambda slot: (slot.conversation.waits, slot.used_s), default=None)

    async def _end(self, slot: Slot) -> None:
        if slot in self._slots:
            self._slots.remove(slot)
            await slot.conversation.close()
