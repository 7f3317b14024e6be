"""The last events of a thread, each with a place, so that a client that comes back is told what it missed once. Pure.

A cursor names a place of one log. The log of a thread that was read from disk again is another log, with another name:
a cursor of the old one is not understood by it, rather than misunderstood.
"""

from collections import deque

ENTRIES_MAX = 8_192
"""Events kept; an answer of a thousand lines has some thousand pieces."""
BYTES_MAX = 8_388_608
"""Bytes of events kept, for each thread."""


class EventLog:
    """Changed by its thread only."""

    __slots__ = ("_bytes", "_frames", "_name", "_newest")

    def __init__(self, name: str) -> None:
        self._name = name
        self._frames: deque[bytes] = deque()
        self._bytes = 0
        self._newest = 0

    @property
    def cursor(self) -> str:
        """The place of the newest event."""
        return self._cursor(self._newest)

    @property
    def next_cursor(self) -> str:
        """The place that the next event will have."""
        return self._cursor(self._newest + 1)

    def append(self, frame: bytes) -> None:
        """Add an event that was written with `next_cursor`; the oldest ones go where it grows too long."""
        self._frames.append(frame)
        self._bytes += len(frame)
        self._newest += 1
        while len(self._frames) > ENTRIES_MAX or (self._bytes > BYTES_MAX and len(self._frames) > 1):
            self._bytes -= len(self._frames.popleft())

    def after(self, cursor: str) -> list[bytes] | None:
        """Return the events after a place; None when they are not all here, or the place is of another log."""
        name, _, number = cursor.rpartition(".")
        if name != self._name or not (number.isascii() and number.isdigit()):
            return None
        seen, oldest = int(number), self._newest - len(self._frames)
        if not oldest <= seen <= self._newest:
            return None
        return [frame for at, frame in enumerate(self._frames, oldest + 1) if at > seen]

    def _cursor(self, number: int) -> str:
        return f"{self._name}.{number}"
