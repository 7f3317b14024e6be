"""The Messages protocol as a codec: its parts, put together."""

from cachegate.wire.codec import Codec, ErrorAnswer, StreamReader, StreamWriter
from cachegate.wire.facts import Operation
from cachegate.wire.hub import Broken, Event, Request, Target
from cachegate.wire.messages.answer_reader import AnswerReader, read_body
from cachegate.wire.messages.answer_writer import AnswerWriter, write_body
from cachegate.wire.messages.provider_errors import read_error, write_error
from cachegate.wire.messages.request_parser import parse_request
from cachegate.wire.messages.request_renderer import render_request


class MessagesCodec:
    """See `codec.Codec`."""

    def parse_request(self, body: bytes, operation: Operation = Operation.GENERATE) -> Request:
        """Read a client's request."""
        return parse_request(body, operation)

    def render_request(self, request: Request, target: Target) -> bytes:
        """Write a request for an upstream."""
        return render_request(request, target)

    def stream_reader(self, request: Request, target: Target) -> StreamReader:
        """Return a reader of an upstream's stream."""
        return AnswerReader(request, target)

    def stream_writer(self, request: Request, target: Target) -> StreamWriter:
        """Return a writer of a client's stream."""
        return AnswerWriter(request, target)

    def read_body(self, request: Request, target: Target, body: bytes) -> tuple[Event, ...]:
        """Read an unstreamed answer."""
        return read_body(request, target, body)

    def write_body(self, request: Request, target: Target, events: tuple[Event, ...]) -> bytes:
        """Write an unstreamed answer."""
        return write_body(request, target, events)

    def read_error(self, status: int, body: bytes) -> Broken:
        """Read an error answer."""
        return read_error(status, body)

    def write_error(self, broken: Broken, request_id: str) -> ErrorAnswer:
        """Write an error answer."""
        return write_error(broken, request_id)


CODEC: Codec = MessagesCodec()
