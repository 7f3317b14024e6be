"""The inbound protocols, a row each. An inbound protocol is one folder beside this file and one row here."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol as Interface

from cachegate.errors import ErrorKind
from cachegate.wire.answer import Writer
from cachegate.wire.chat.reader import ChatReader
from cachegate.wire.chat.writer import ChatWriter
from cachegate.wire.facts import Operation, Protocol
from cachegate.wire.messages import errors as messages_errors
from cachegate.wire.messages.reader import MessagesReader
from cachegate.wire.messages.writer import MessagesWriter
from cachegate.wire.responses import errors as responses_errors
from cachegate.wire.responses.reader import ResponsesReader
from cachegate.wire.responses.writer import ResponsesWriter
from cachegate.wire.seen import Seen
from cachegate.wire.sse import SseEvent


class Reader(Interface):
    """Reads one upstream answer; a fresh one per request."""

    finished: bool
    terminal: bool

    @property
    def keepalive(self) -> bytes:
        """A frame that says nothing, to put between two events."""

    def read(self, event: SseEvent) -> tuple[Seen, ...]:
        """Return what one event says."""

    def read_body(self, status: int, body: bytes) -> tuple[Seen, ...]:
        """Return what a whole answer says."""

    def terminal_error(self, kind: ErrorKind, message: str) -> bytes:
        """Return what ends the stream as failed."""


class ReaderKind(Interface):
    """Makes a reader."""

    def __call__(self, readings: str = ..., *, zero_is_unknown: bool = False) -> Reader:
        """Return a reader for one answer of a provider; by default, of the one whose own protocol it is.

        `readings` names the provider in the table of `usage_readings`.
        """


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one protocol is spoken."""

    protocol: Protocol
    reader: ReaderKind
    error_body: Callable[[ErrorKind, str, str], bytes]
    """(kind, message, request id) to the body of an error answer."""
    stop_body: Callable[[str, str], bytes]
    """(words, request id) to the body of a stop."""
    writer: Writer
    """Writes the gateway's own answers."""


DIALECTS = {
    Protocol.MESSAGES: Dialect(
        Protocol.MESSAGES, MessagesReader, messages_errors.error_body, messages_errors.stop_body, MessagesWriter()
    ),
    Protocol.RESPONSES: Dialect(
        Protocol.RESPONSES, ResponsesReader, responses_errors.error_body, responses_errors.stop_body, ResponsesWriter()
    ),
    Protocol.CHAT: Dialect(
        Protocol.CHAT, ChatReader, responses_errors.error_body, responses_errors.stop_body, ChatWriter()
    ),
}

PATHS = {
    "/v1/messages": (Protocol.MESSAGES, Operation.GENERATE),
    "/v1/messages/count_tokens": (Protocol.MESSAGES, Operation.COUNT_TOKENS),
    "/v1/chat/completions": (Protocol.CHAT, Operation.GENERATE),
    "/v1/responses": (Protocol.RESPONSES, Operation.GENERATE),
    "/v1/responses/compact": (Protocol.RESPONSES, Operation.COMPACT),
}
"""Every path that reaches a provider, and what it asks for."""
