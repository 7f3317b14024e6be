"""The seam of a protocol to the hub; `tests/contract/test_codecs.py` holds every codec against it."""

from dataclasses import dataclass
from typing import Protocol as Interface

from cachegate.wire.facts import Operation
from cachegate.wire.hub import Broken, Event, Request, Target
from cachegate.wire.sse import SseEvent


class StreamReader(Interface):
    """Reads one streamed answer of an upstream; a fresh one per answer."""

    def read(self, event: SseEvent) -> tuple[Event, ...]:
        """Return what one event says."""

    def end(self) -> tuple[Event, ...]:
        """Return what is still to be said when the stream is over.

        Nothing, unless the protocol's end comes without an event of its own. Never `Ended` for a stream that was cut.
        """


class StreamWriter(Interface):
    """Writes one streamed answer for a client; a fresh one per answer."""

    def write(self, event: Event) -> bytes:
        """Return the bytes of whole events; empty where the protocol has nothing to say, or not yet."""


class Codec(Interface):
    """One protocol, both ways. Everything here is pure, and raises BadInput naming the field it cannot carry."""

    def parse_request(self, body: bytes, operation: Operation = Operation.GENERATE) -> Request:
        """Read a client's request."""

    def render_request(self, request: Request, target: Target) -> bytes:
        """Write a request for an upstream: deterministic and prefix-stable."""

    def stream_reader(self, request: Request, target: Target) -> StreamReader:
        """Return a reader for the answer to `render_request(request, target)`."""

    def stream_writer(self, request: Request, target: Target) -> StreamWriter:
        """Return a writer for the answer to the client's `request`."""

    def read_body(self, request: Request, target: Target, body: bytes) -> tuple[Event, ...]:
        """Read an unstreamed answer."""

    def write_body(self, request: Request, target: Target, events: tuple[Event, ...]) -> bytes:
        """Write an unstreamed answer from a complete sequence of events without `Broken`."""

    def read_error(self, status: int, body: bytes) -> Broken:
        """Read an error answer; an overflow of the context is told as such whatever words it came in."""

    def write_error(self, broken: Broken, request_id: str) -> "ErrorAnswer":
        """Write an error answer.

        It keeps the provider's status (529 stays 529 where the protocol knows it) and message, and has the protocol's
        own code for an overflow.
        """


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """An error answer to a client."""

    status: int
    body: bytes
