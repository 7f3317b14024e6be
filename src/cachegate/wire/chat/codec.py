"""The Chat Completions protocol's side of the seam in `wire/codec.py`."""

from cachegate.wire.chat.answer_reader import ChatStreamReader
from cachegate.wire.chat.answer_writer import ChatStreamWriter, write_body
from cachegate.wire.chat.errors import read_error, write_error
from cachegate.wire.chat.request_parser import parse_request
from cachegate.wire.chat.request_renderer import render_request
from cachegate.wire.codec import Codec, ErrorAnswer
from cachegate.wire.facts import Operation
from cachegate.wire.hub import Broken, Event, Request, Target


class ChatCodec:
    """See `codec.Codec`."""

    def parse_request(self, body: bytes, operation: Operation = Operation.GENERATE) -> Request:
        """Read a client's request; the protocol has one operation only."""
        del operation
        return parse_request(body)

    def render_request(self, request: Request, target: Target) -> bytes:
        """Write a request for an upstream."""
        return render_request(request, target)

    def stream_reader(self, request: Request, target: Target) -> ChatStreamReader:
        """Return a reader for a streamed answer."""
        return ChatStreamReader(request, target)

    def stream_writer(self, request: Request, target: Target) -> ChatStreamWriter:
        """Return a writer for a streamed answer."""
        return ChatStreamWriter(request, target)

    def read_body(self, request: Request, target: Target, body: bytes) -> tuple[Event, ...]:
        """Read an unstreamed answer."""
        return ChatStreamReader(request, target).read_whole(body)

    def write_body(self, request: Request, target: Target, events: tuple[Event, ...]) -> bytes:
        """Write an unstreamed answer."""
        del request
        return write_body(target, events)

    def read_error(self, status: int, body: bytes) -> Broken:
        """Read an error answer."""
        return read_error(status, body)

    def write_error(self, broken: Broken, request_id: str) -> ErrorAnswer:
        """Write an error answer; the protocol has no place for the request id."""
        del request_id
        return write_error(broken)


CODEC: Codec = ChatCodec()
