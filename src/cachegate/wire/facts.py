"""What the gateway knows of a request before anybody answers it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from cachegate.guard.fingerprint import Fingerprint


class Protocol(StrEnum):
    """A protocol; `wire/protocols.py` has a row for each that is served."""

    MESSAGES = "messages"
    RESPONSES = "responses"
    CHAT = "chat"


class Operation(StrEnum):
    """What a path asks for."""

    GENERATE = "generate"
    COMPACT = "compact"
    COUNT_TOKENS = "count_tokens"

    @property
    def guarded(self) -> bool:
        """Whether it makes the provider process the input as a model call (R3)."""
        return self is not Operation.COUNT_TOKENS


class RequestClass(StrEnum):
    """Which budget of the caller a request belongs to (R4)."""

    CHAT = "chat"
    COMPACTION = "compaction"
    AUXILIARY = "auxiliary"


@dataclass(frozen=True, slots=True)
class Facts:
    """What was read from a request."""

    model: str
    stream: bool
    caller: str | None
    """Stable thread or session id, prefixed by the kind of client that sent it; None is anonymous (R2)."""
    request_class: RequestClass
    conversation_bytes: int
    """Bytes of `messages` or `input`: what recovery is measured by (R10)."""
    input_bytes: int
    """Bytes of everything the model has to read: conversation, tools and instructions."""
    model_span: tuple[int, int]
    """Where the JSON string of the model stands in the body, to put another name there."""
    fingerprint: Fingerprint
    """Keyed digests of the request's parts (R15)."""


@dataclass(slots=True)
class Content:
    """The bytes of a request, let go once a provider has begun to answer: a stream may stay open for an hour."""

    body: bytes = field(repr=False)
    """The decoded JSON text."""
    wire_body: bytes = field(repr=False)
    """The body as received, still compressed where the client compressed it."""

    def release(self) -> None:
        """Let the bytes go."""
        self.body = self.wire_body = b""


@dataclass(frozen=True, slots=True)
class InferenceRequest:
    """One request as it came in. The body is kept as bytes; it goes up as it came down."""

    protocol: Protocol
    operation: Operation
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    query: str
    """Raw query string, without the question mark."""
    content: Content
    facts: Facts

    @property
    def body(self) -> bytes:
        """The decoded JSON text."""
        return self.content.body

    @property
    def wire_body(self) -> bytes:
        """The body as received."""
        return self.content.wire_body


@dataclass(frozen=True, slots=True)
class Sender:
    """The headers of a request with lower-case names; the last of a repeated header wins."""

    headers: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, headers: tuple[tuple[str, str], ...]) -> "Sender":
        """Index the headers of a request."""
        return cls({name.lower(): value for name, value in headers})

    def header(self, name: str) -> str:
        """Return a header's value, "" when absent."""
        return self.headers.get(name, "")
