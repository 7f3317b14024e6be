"""The Responses protocol, both ways: see `wire/codec.py`."""

from cachegate.wire.codec import ErrorAnswer, StreamReader, StreamWriter
from cachegate.wire.facts import Operation
from cachegate.wire.hub import Broken, Event, Purpose, Request, Target
from cachegate.wire.responses.answer_reader import AnswerReader
from cachegate.wire.responses.answer_writer import AnswerWriter, write_body
from cachegate.wire.responses.compaction_writer import CompactionWriter, write_compaction
from cachegate.wire.responses.provider_errors import read_error, write_error
from cachegate.wire.responses.request_parser import parse_request
from cachegate.wire.responses.request_renderer import render_request


class ResponsesCodec:
    """OpenAI's protocol, spoken by Codex, opencode, Copilot, Grok and Cline, and by many providers."""

    def parse_request(self, body: bytes, operation: Operation = Operation.GENERATE) -> Request:
        """Read a client's request."""
        return parse_request(body, operation)

    def render_request(self, request: Request, target: Target) -> bytes:
        """Write a request for an upstream."""
        return render_request(request, target)

    def stream_reader(self, request: Request, target: Target) -> StreamReader:
        """Return a reader for a streamed answer."""
        return AnswerReader(request, target)

    def stream_writer(self, request: Request, target: Target) -> StreamWriter:
        """Return a writer for a streamed answer."""
        writer = AnswerWriter if request.purpose is Purpose.ANSWER else CompactionWriter
        return writer(request, target)

    def read_body(self, request: Request, target: Target, body: bytes) -> tuple[Event, ...]:
        """Read an unstreamed answer."""
        return AnswerReader(request, target).read_body(body)

    def write_body(self, request: Request, target: Target, events: tuple[Event, ...]) -> bytes:
        """Write an unstreamed answer."""
        write = write_body if request.purpose is Purpose.ANSWER else write_compaction
        return write(request, target, events)

    def read_error(self, status: int, body: bytes) -> Broken:
        """Read an error answer."""
        return read_error(status, body)

    def write_error(self, broken: Broken, request_id: str) -> ErrorAnswer:
        """Write an error answer."""
        return write_error(broken, request_id)


CODEC = ResponsesCodec()
