"""What an upstream's Messages answer says about usage, refusals and its end."""

from cachegate.errors import ErrorKind
from cachegate.wire.body import decode
from cachegate.wire.messages.errors import KEEPALIVE, terminal_error
from cachegate.wire.seen import Failed, Finished, Refusal, Seen, word
from cachegate.wire.sse import SseEvent
from cachegate.wire.usage_readings import UNKNOWN, Fields, anthropic, fields, known

_READ = frozenset({b"message_start", b"message_delta", b"message_stop", b"error", b""})
_POLICY_WORDS = "content filtering policy"
"""Anthropic's words in the error that is a refusal and no mistake of the request, as a 400 or in a stream."""
_FIRST_ERROR_STATUS = 300
"""A redirect is no answer either: none is followed."""


class MessagesReader:
    """Reads one answer. Counts are cumulative: the last known value of each field holds."""

    __slots__ = ("_usage", "finished", "terminal")

    keepalive = KEEPALIVE

    def __init__(self) -> None:
        self._usage: Fields = {}
        self.finished = False
        """The protocol's own end of a successful answer was seen."""
        self.terminal = False
        """Nothing more has to be said on this stream, successful or not."""

    def read(self, event: SseEvent) -> tuple[Seen, ...]:
        """Return what one event of the stream says."""
        if event.name not in _READ:
            return ()
        data = fields(decode(event.data))
        match data.get("type"):
            case "message_start":
                return self._measured(fields(data.get("message")).get("usage"))
            case "message_delta":
                return (*self._measured(data.get("usage")), *_refusal(fields(data.get("delta"))))
            case "message_stop":
                self.finished = self.terminal = True
                return (Finished(),)
            case "error":
                self.terminal = True
                return _failure(data)
        return ()

    def read_body(self, status: int, body: bytes) -> tuple[Seen, ...]:
        """Return what a whole, unstreamed answer says."""
        value = decode(body)
        data = fields(value)
        if status >= _FIRST_ERROR_STATUS:
            return _failure(data)
        if not isinstance(value, dict):
            return (Failed("not_json"),)
        if data.get("type") == "error":
            self.terminal = True
            return _failure(data)
        self.finished = self.terminal = True
        return (*self._measured(data.get("usage")), *_refusal(data), Finished())

    def terminal_error(self, kind: ErrorKind, message: str) -> bytes:
        """Return the event that ends this stream as failed."""
        self.terminal = True
        return terminal_error(kind, message)

    def _measured(self, usage: object) -> tuple[Seen, ...]:
        if not isinstance(usage, dict):
            return ()
        if anthropic(usage) != UNKNOWN:
            # The zeros of a placeholder must not pass for measured ones once a later report fills in the total.
            self._usage = known(usage, self._usage)
        return (anthropic(self._usage),)


def _refusal(message: Fields) -> tuple[Seen, ...]:
    return (Refusal(),) if message.get("stop_reason") == "refusal" else ()


def _failure(data: Fields) -> tuple[Seen, ...]:
    error = fields(data.get("error"))
    failed = Failed(word(error.get("type")))
    return (Refusal(), failed) if _POLICY_WORDS in str(error.get("message")).lower() else (failed,)
