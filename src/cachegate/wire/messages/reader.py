"""What an upstream's Messages answer says about usage, refusals and its end."""

from cachegate.errors import ErrorKind
from cachegate.guard.usage import Usage
from cachegate.wire.body import decode
from cachegate.wire.explanations import anthropic_explanation
from cachegate.wire.failures import breaks_off, ended, failure
from cachegate.wire.messages.errors import KEEPALIVE, terminal_error
from cachegate.wire.refusals import ended_by_refusal
from cachegate.wire.seen import Failed, Finished, Seen
from cachegate.wire.sse import SseEvent
from cachegate.wire.usage_readings import Fields, Format, Measurement, fields, reading_of, side_calls

_READ = frozenset({b"message_start", b"message_delta", b"message_stop", b"error", b""})
_FIRST_ERROR_STATUS = 300
"""A redirect is no answer either: none is followed."""


class MessagesReader:
    """Reads one answer. Counts are cumulative: the last known value of each field holds."""

    __slots__ = ("_reading", "finished", "measurement", "side_calls", "terminal")

    keepalive = KEEPALIVE

    def __init__(self, readings: str = "anthropic", *, zero_is_unknown: bool = False) -> None:
        self._reading = reading_of(readings, Format.MESSAGES, zero_is_unknown=zero_is_unknown)
        self.measurement = Measurement(self._reading)
        self.side_calls: tuple[tuple[str, Usage], ...] = ()
        """The provider's own calls beside this one; they are no part of its usage."""
        self.finished = False
        """The protocol's own end of a successful answer was seen."""
        self.terminal = False
        """Nothing more has to be said on this stream, successful or not."""

    def read(self, event: SseEvent) -> tuple[Seen, ...]:
        """Return what one event of the stream says."""
        if event.name not in _READ:
            return ()
        data = fields(decode(event.data))
        if breaks_off(event.name, data):
            self.terminal = True
            return failure(data)
        match data.get("type"):
            case "message_start":
                message = fields(data.get("message"))
                return (*self._measured(message.get("usage")), *anthropic_explanation(message))
            case "message_delta":
                return (*self._measured(data.get("usage")), *_reason(fields(data.get("delta"))))
            case "message_stop":
                self.finished = self.terminal = True
                return (Finished(),)
        return ()

    def read_body(self, status: int, body: bytes) -> tuple[Seen, ...]:
        """Return what a whole, unstreamed answer says."""
        value = decode(body)
        data = fields(value)
        if status >= _FIRST_ERROR_STATUS:
            return failure(value, status)
        if not isinstance(value, dict):
            return (Failed("not_json"),)
        if breaks_off(b"", data):
            self.terminal = True
            return failure(data)
        self.finished = self.terminal = True
        return (*self._measured(data.get("usage")), *anthropic_explanation(data), *_reason(data), Finished())

    def terminal_error(self, kind: ErrorKind, message: str) -> bytes:
        """Return the event that ends this stream as failed."""
        self.terminal = True
        return terminal_error(kind, message)

    def _measured(self, usage: object) -> tuple[Seen, ...]:
        if not isinstance(usage, dict):
            return ()
        self.side_calls = side_calls(usage, self._reading) or self.side_calls
        return (self.measurement.add(usage),)


def _reason(message: Fields) -> tuple[Seen, ...]:
    """Read why the message ended; some send only the details of a refusal."""
    details = fields(message.get("stop_details")).get("type")
    return ended(details if ended_by_refusal(details) else message.get("stop_reason"))
