"""Server-sent events from bytes, however they are cut."""

import re

from cachegate.sdk.errors import BrokenAnswer

EVENT_BYTES_MAX = 33_554_432
"""32 MiB: the last event repeats the whole answer; what is larger has no end."""
_BLANK_LINE = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r(?!\n))")
_LINE_END = re.compile(rb"\r\n|\n|\r")
_CUT_BYTES = 3
"""How much of a blank line may stand before the newest byte."""


class SseReader:
    """Reads one stream; any split of the same bytes gives the same events."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Return the data of the events that these bytes complete. Raises BrokenAnswer for an endless one."""
        seen = max(0, len(self._pending) - _CUT_BYTES)
        self._pending += data
        found: list[bytes] = []
        start = 0
        for end in _BLANK_LINE.finditer(self._pending, seen):
            found.append(_data(bytes(self._pending[start : end.start()])))
            start = end.end()
        del self._pending[:start]
        if len(self._pending) > EVENT_BYTES_MAX:
            raise BrokenAnswer(f"An event of the answer has more than {EVENT_BYTES_MAX} bytes.")
        return [data for data in found if data]


def _data(event: bytes) -> bytes:
    """Return the joined `data` of an event; empty for a comment."""
    lines = (line.partition(b":") for line in _LINE_END.split(event))
    return b"\n".join(value.removeprefix(b" ") for name, _, value in lines if name == b"data")
