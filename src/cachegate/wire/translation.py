"""One request on its way through a translation: up in the upstream's protocol, down in the client's."""

from dataclasses import dataclass

from cachegate.errors import HTTP_STATUS, ErrorKind
from cachegate.wire.codec import Codec, ErrorAnswer, StreamReader, StreamWriter
from cachegate.wire.facts import InferenceRequest
from cachegate.wire.hub import Broken, Ended, Event, Request, Target
from cachegate.wire.sse import SseEvent


@dataclass(frozen=True, slots=True)
class Translation:
    """The two codecs of a request, and the request between them."""

    client: Codec
    upstream: Codec
    request: Request
    target: Target

    @classmethod
    def of(cls, received: InferenceRequest, client: Codec, upstream: Codec, target: Target) -> "Translation":
        """Parse a client's request. Raises BadInput, naming the field that cannot be carried."""
        return cls(client, upstream, client.parse_request(received.body, received.operation), target)

    def body(self) -> bytes:
        """Return the request in the upstream's protocol. Raises BadInput as `of` does."""
        return self.upstream.render_request(self.request, self.target)

    def stream(self) -> "StreamTranslation":
        """Begin the translation of a streamed answer."""
        return StreamTranslation(
            self.upstream.stream_reader(self.request, self.target), self.client.stream_writer(self.request, self.target)
        )

    def answer(self, body: bytes) -> tuple[bytes, Broken | None]:
        """Translate an unstreamed answer; a failure inside it comes back as such, with nothing written."""
        events = self.upstream.read_body(self.request, self.target, body)
        failed = next((event for event in events if isinstance(event, Broken)), None)
        if failed is not None:
            return b"", failed
        if not any(isinstance(event, Ended) for event in events):
            return b"", broken(ErrorKind.UPSTREAM, "The provider's answer has no end. Please send the request again.")
        return self.client.write_body(self.request, self.target, events), None

    def error(self, status: int, body: bytes, request_id: str) -> ErrorAnswer:
        """Translate an error answer."""
        return self.client.write_error(self.upstream.read_error(status, body), request_id)


class StreamTranslation:
    """A streamed answer under way: whole events in, whole events out."""

    __slots__ = ("_reader", "_writer", "over")

    def __init__(self, reader: StreamReader, writer: StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.over = False
        """The answer has ended or failed: nothing more may be said."""

    def feed(self, events: list[SseEvent]) -> bytes:
        """Return what the client is told by these events."""
        return b"".join(self._written(self._reader.read(event)) for event in events)

    def end(self) -> bytes:
        """Return what the client is told when the upstream's stream is over."""
        return self._written(self._reader.end())

    def fail(self, kind: ErrorKind, message: str) -> bytes:
        """Return what ends the client's stream as failed."""
        return self._written((broken(kind, message),))

    def _written(self, events: tuple[Event, ...]) -> bytes:
        parts: list[bytes] = []
        for event in events:
            if self.over:
                break
            parts.append(self._writer.write(event))
            self.over = isinstance(event, Ended | Broken)
        return b"".join(parts)


def broken(kind: ErrorKind, message: str) -> Broken:
    """Return a failure of the gateway's own finding."""
    return Broken(kind, HTTP_STATUS[kind], kind.value, message)
