"""What a client is told while its answer makes it wait: a frame that says nothing, in its own protocol."""

from cachegate.wire.facts import Protocol
from cachegate.wire.protocols import DIALECTS
from cachegate.wire.sse import SseReader


class Silence:
    """The frame for one answer that we write. What it looks like depends on whether the answer began."""

    __slots__ = ("_began", "_reader")

    def __init__(self, protocol: Protocol) -> None:
        self._reader = DIALECTS[protocol].reader()
        self._began = False

    def told(self, data: bytes) -> None:
        """Take note of whole events that the client was told."""
        if data and not self._began:
            self._began = True
            for event in SseReader().feed(data)[1]:
                self._reader.read(event)

    @property
    def frame(self) -> bytes:
        """The frame to send now."""
        return self._reader.keepalive
