"""What an upstream's Responses answer says about usage, refusals and its end."""

from cachegate.errors import ErrorKind
from cachegate.wire import refusals
from cachegate.wire.body import decode
from cachegate.wire.explanations import openai_explanation
from cachegate.wire.failures import breaks_off, ended, failure
from cachegate.wire.responses.errors import CODES, COMMENT, KEEPALIVE, terminal_error
from cachegate.wire.seen import Failed, Finished, Refusal, Seen
from cachegate.wire.sse import SseEvent
from cachegate.wire.usage_readings import Fields, Format, Measurement, fields, items, reading_of

_PART_EVENTS = frozenset({"response.content_part.added", "response.content_part.done"})
_READ = frozenset(
    {b"response.created", b"response.output_item.done", b"response.completed", b"response.incomplete",
     b"response.failed", b"error", b"", *(name.encode() for name in (*refusals.EVENTS, *_PART_EVENTS))}
)  # fmt: skip
_FIRST_ERROR_STATUS = 300
"""A redirect is no answer either: none is followed."""
_KEPT = ("id", "created_at", "model", "output", "metadata", "parallel_tool_calls", "tool_choice", "tools")
"""Fields of the response object that a strict client needs again in a terminal event."""
_UNSEEN: dict[str, object] = {
    "id": "resp_unknown", "created_at": 0, "model": "", "output": [], "metadata": {},
    "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
}  # fmt: skip
"""What stands there when the upstream broke off before its first event."""


class ResponsesReader:
    """Reads one answer. Usage comes once, in the terminal event."""

    __slots__ = ("_response", "_sequence", "finished", "measurement", "terminal")

    def __init__(self, readings: str = "openai", *, zero_is_unknown: bool = False) -> None:
        self.measurement = Measurement(reading_of(readings, Format.RESPONSES, zero_is_unknown=zero_is_unknown))
        self._response = dict(_UNSEEN)
        self._sequence = -1
        self.finished = False
        """The protocol's own end of a successful answer was seen."""
        self.terminal = False
        """Nothing more has to be said on this stream, successful or not."""

    @property
    def keepalive(self) -> bytes:
        """A frame that says nothing.

        Before the first event only a comment will do: openai's accumulator wants `response.created` first.
        Behind it only an event will do: Codex's idle timer does not count comments.
        """
        return KEEPALIVE if self._sequence >= 0 else COMMENT

    def read(self, event: SseEvent) -> tuple[Seen, ...]:
        """Return what one event of the stream says."""
        self._sequence += 1
        if event.name not in _READ:
            return ()
        data = fields(decode(event.data))
        response = fields(data.get("response"))
        if breaks_off(event.name, data):
            self.terminal = True
            return failure(data)
        match data.get("type"):
            case "response.created":
                self._response.update({name: response[name] for name in _KEPT if name in response})
            case "response.completed" | "response.incomplete":
                self.finished = self.terminal = True
                return (
                    *self._measured(response.get("usage")),
                    *openai_explanation(response),
                    *_end(response),
                    Finished(),
                )
            case "response.failed":
                self.terminal = True
                return (*self._measured(response.get("usage")), *failure(data))
            case kind if _is_refusal(kind, data):
                return (Refusal(),)
        return ()

    def read_body(self, status: int, body: bytes) -> tuple[Seen, ...]:
        """Return what a whole, unstreamed answer says."""
        value = decode(body)
        data = fields(value)
        if status >= _FIRST_ERROR_STATUS:
            return failure(value, status)
        if not isinstance(value, dict):
            return (Failed("not_json"),)
        self.terminal = True
        if data.get("status") == "failed" or isinstance(data.get("error"), dict):
            return (*self._measured(data.get("usage")), *failure(data))
        self.finished = True
        return (*self._measured(data.get("usage")), *openai_explanation(data), *_end(data), Finished())

    def terminal_error(self, kind: ErrorKind, message: str) -> bytes:
        """Return the events that end this stream as failed."""
        self.terminal = True
        error_type, code = CODES[kind]
        return terminal_error(code or error_type, message, self._response, self._sequence + 1)

    def _measured(self, usage: object) -> tuple[Seen, ...]:
        return (self.measurement.add(usage),) if isinstance(usage, dict) else ()


def _is_refusal(kind: object, data: Fields) -> bool:
    """Whether an event in the middle of the stream tells of a refusal: the terminal one may be empty, or never come."""
    if not isinstance(kind, str):
        return False
    if kind == "response.output_item.done":
        return _refusing(data.get("item"))
    if kind in _PART_EVENTS:
        return refusals.is_refusing_part(fields(data.get("part")).get("type"))
    return kind in refusals.EVENTS


def _end(response: Fields) -> tuple[Seen, ...]:
    """Read how a finished response ended: a refusing part, or a filter or a full context that cut it short."""
    if any(_refusing(item) for item in items(response.get("output"))):
        return (Refusal(),)
    return ended(fields(response.get("incomplete_details")).get("reason"))


def _refusing(item: object) -> bool:
    return any(refusals.is_refusing_part(fields(part).get("type")) for part in items(fields(item).get("content")))
