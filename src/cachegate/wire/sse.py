"""Server-sent events as bytes: cut a stream into whole events without changing a byte of it.

A relay that forwards only whole events can put a frame of its own between any two pieces it sends, and a stream
that breaks inside an event can still be ended properly. The bytes that come out, joined, are the bytes that went in.
"""

import re
from typing import NamedTuple

EVENT_BYTES_MAX = 33_554_432
"""32 MiB: a terminal event repeats the whole answer, images included; more than this is no event."""

_BOM = b"\xef\xbb\xbf"
_BLANK_LINE = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r(?!\n))")
_USUAL = re.compile(rb"event: ([^\r\n]*)\ndata: ([^\r\n]*)")
"""What nearly every event looks like."""
_LINE_END = re.compile(rb"\r\n|\n|\r")


class EventTooLong(Exception):  # noqa: N818 -- it reads as what it is
    """One event grew beyond `EVENT_BYTES_MAX` without an end in sight."""


ERROR = b"error"
"""Name of the event that a failure comes in."""


class SseEvent(NamedTuple):
    """One event; of a comment or a block without data, `data` is empty. A tuple, because there are so many."""

    name: bytes
    data: bytes


class SseReader:
    """Cuts a byte stream at the ends of its events. Any split of the same bytes gives the same events."""

    __slots__ = ("_started", "_tail")

    def __init__(self) -> None:
        self._tail = b""
        self._started = False

    def feed(self, data: bytes) -> tuple[bytes, list[SseEvent]]:
        """Return the whole events that `data` completes, as bytes to forward and as events to read.

        Raises EventTooLong when an unfinished event passes the limit.
        """
        pending = self._tail + data if self._tail else data
        cut = _last_cut(pending, max(0, len(self._tail) - 3))
        whole, self._tail = pending[:cut], pending[cut:]
        if len(self._tail) > EVENT_BYTES_MAX:
            raise EventTooLong(f"an event of more than {EVENT_BYTES_MAX} bytes has no end")
        return whole, self._events(whole) if whole else []

    def rest(self) -> bytes:
        """Return the bytes after the last whole event, and forget them."""
        rest, self._tail = self._tail, b""
        return rest

    def _events(self, whole: bytes) -> list[SseEvent]:
        if not self._started:
            self._started = True
            whole = whole.removeprefix(_BOM)
        blocks = whole.split(b"\n\n") if b"\r" not in whole else _BLANK_LINE.split(whole)
        events: list[SseEvent] = []
        for block in blocks:
            match = _USUAL.fullmatch(block)
            event = SseEvent(match[1], match[2]) if match is not None else _event(block)
            if event.data:
                events.append(event)
        return events


def frame(name: str, data: bytes) -> bytes:
    """Return one event as bytes. `data` must hold no line end: compact JSON never does."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)


def _last_cut(pending: bytes, seen: int) -> int:
    """Return where the last whole event ends; everything before `seen` is known to hold no end."""
    if b"\r" not in pending:
        at = pending.rfind(b"\n\n", seen)
        return at + 2 if at >= 0 else 0
    cut = 0
    for match in _BLANK_LINE.finditer(pending, seen):
        cut = match.end()
    return cut


def _event(block: bytes) -> SseEvent:
    name, data, error = b"", [], b""
    lines = block.split(b"\n") if b"\r" not in block else _LINE_END.split(block)
    for line in lines:
        field, _, value = line.partition(b":")
        if field == b"data":
            data.append(value.removeprefix(b" "))
        elif field == b"event":
            name = value.removeprefix(b" ")
        elif field == ERROR:
            error = value.removeprefix(b" ")
    # llama.cpp, until late in 2025, told a failure in a field `error` that the standard does not have.
    return SseEvent(ERROR, error) if error else SseEvent(name, b"\n".join(data))
