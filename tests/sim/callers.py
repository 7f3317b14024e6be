"""The one who asks, without a socket: takes the answer, or leaves at the worst moment."""

import asyncio
from dataclasses import dataclass
from enum import Enum, auto

from cachegate.guard.machine import Ending
from cachegate.road import CallerLeft, CallerStalled
from sim.truth import Ask

STALL_S = 30.0
"""A caller who reads nothing is given up after this long."""
OK = 200
ERRORS = (b"event: error", b"event: response.failed")
ENDS = (b"event: message_stop", b"event: response.completed", *ERRORS)
"""How the last piece of a stream begins."""
STALLING = frozenset({200, 429, 500, 503, 529})
"""Statuses of answers that a caller may stall on. A stop is too small to fill any buffer."""
LATE = Ending.CANCELLED
"""Whose doing it is that a request is cut off right behind its terminal event."""


class Exit(Enum):
    """How a caller leaves."""

    STAYS = auto()
    CANCELS = auto()
    """The server notices the closed connection and cancels the request, after `after_s`."""
    UNNOTICED = auto()
    """The connection is dead at piece `piece`; only writing to it shows that."""
    AT_THE_END = auto()
    """Right behind the terminal event, while the request is still being wound up."""
    STALLS = auto()
    """Reads nothing from piece `piece` on."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """When and how a caller leaves."""

    exit: Exit = Exit.STAYS
    after_s: float = 0.0
    piece: int = 0


STAYS = Leaving()


class SimCaller:
    """Implements `road.Caller`."""

    def __init__(self, ask: Ask, leaving: Leaving) -> None:
        self.request_id = f"req_{ask.number}"
        self.tenant = ask.budget.tenant
        self.path = "/v1/sim"
        self.task: asyncio.Task[None] | None = None
        self.status = 0
        self.answered = ""
        """`ended` as complete, or `cut`."""
        self.last = b""
        """The last piece of the answer."""
        self._gone = False
        self._presence = ask.presence
        self._leaving = leaving
        self._pieces = 0

    async def begin(self, status: int, headers: tuple[tuple[str, str], ...]) -> None:
        del headers
        self.status = status
        await self._take()

    async def send(self, data: bytes) -> None:
        if data:
            self.last = data
            await self._take()
            whole = self.status == OK and data.startswith(b"{")
            if self._leaving.exit is Exit.AT_THE_END and (whole or data.startswith(ENDS)):
                self.depart(LATE)

    async def end(self) -> None:
        await asyncio.sleep(0)
        self.answered = "ended"

    def abort(self) -> None:
        self.answered = "cut"

    def cancelled_by(self) -> Ending:
        return Ending(self._presence.departure)

    def depart(self, reason: Ending) -> None:
        """Leave, or be cut off by the gateway's shutdown, in a way that the server notices at once."""
        if self.task is not None and not self.task.done() and not self._gone:
            self._presence.departure = self._presence.departure or reason.value
            self._gone = True
            self.task.cancel()

    async def _take(self) -> None:
        """Take one piece: the head is the first."""
        self._pieces += 1
        await asyncio.sleep(0)
        leaving = self._leaving
        if leaving.exit is Exit.UNNOTICED and self._pieces > leaving.piece:
            self._presence.departure = self._presence.departure or Ending.CANCELLED.value
            raise CallerLeft
        if leaving.exit is Exit.STALLS and self._pieces > leaving.piece and self.status in STALLING:
            await asyncio.sleep(STALL_S)
            self._presence.departure = self._presence.departure or Ending.TIMEOUT.value
            raise CallerStalled
