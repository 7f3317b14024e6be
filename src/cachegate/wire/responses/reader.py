"""What an upstream's Responses answer says about usage, refusals and its end."""

from cachegate.errors import ErrorKind
from cachegate.wire.body import decode
from cachegate.wire.responses.errors import CODES, COMMENT, KEEPALIVE, terminal_error
from cachegate.wire.seen import Failed, Finished, Refusal, Seen, word
from cachegate.wire.sse import SseEvent
from cachegate.wire.usage_readings import Fields, fields, known, openai

REFUSAL_CODES = frozenset(
    {"invalid_prompt", "cyber_policy", "bio_policy", "misalignment_policy_violation", "content_policy_violation",
     "content_filter"}
)  # fmt: skip
"""Error codes with which the provider refuses what it was asked, rather than how."""

_READ = frozenset(
    {b"response.created", b"response.refusal.delta", b"response.refusal.done", b"response.completed",
     b"response.incomplete", b"response.failed", b"error", b""}
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

    __slots__ = ("_response", "_sequence", "_usage", "finished", "terminal")

    def __init__(self) -> None:
        self._usage: Fields = {}
        self._response = dict(_UNSEEN)
        self._sequence = -1
        self.finished = False
        """The protocol's own end of a successful answer was seen."""
        self.terminal = False
        """Nothing more has to be said on this stream, successful or not."""

    @property
    def keepalive(self) -> bytes:
        """A frame that says nothing.

        Before the first event only a comment will do: openai's accumulator wants `response.created` first. Behind it
        only an event will do: Codex's idle timer does not count comments.
        """
        return KEEPALIVE if self._sequence >= 0 else COMMENT

    def read(self, event: SseEvent) -> tuple[Seen, ...]:
        """Return what one event of the stream says."""
        self._sequence += 1
        if event.name not in _READ:
            return ()
        data = fields(decode(event.data))
        kind = data.get("type")
        response = fields(data.get("response"))
        match kind:
            case "response.created":
                self._response.update({name: response[name] for name in _KEPT if name in response})
                return ()
            case "response.refusal.delta" | "response.refusal.done":
                return (Refusal(),)
            case "response.completed" | "response.incomplete":
                self.finished = self.terminal = True
                return (*self._measured(response.get("usage")), *_refusal(response), Finished())
            case "response.failed" | "error":
                self.terminal = True
                return (*self._measured(response.get("usage")), *_failure(data, response))
        return ()

    def read_body(self, status: int, body: bytes) -> tuple[Seen, ...]:
        """Return what a whole, unstreamed answer says."""
        value = decode(body)
        data = fields(value)
        if status >= _FIRST_ERROR_STATUS:
            return _failure(data, {})
        if not isinstance(value, dict):
            return (Failed("not_json"),)
        self.terminal = True
        if data.get("status") == "failed" or isinstance(data.get("error"), dict):
            return (*self._measured(data.get("usage")), *_failure({}, data))
        self.finished = True
        return (*self._measured(data.get("usage")), *_refusal(data), Finished())

    def terminal_error(self, kind: ErrorKind, message: str) -> bytes:
        """Return the events that end this stream as failed."""
        self.terminal = True
        error_type, code = CODES[kind]
        return terminal_error(code or error_type, message, self._response, self._sequence + 1)

    def _measured(self, usage: object) -> tuple[Seen, ...]:
        if not isinstance(usage, dict):
            return ()
        self._usage = known(usage, self._usage)
        return (openai(self._usage),)


def _refusal(response: Fields) -> tuple[Seen, ...]:
    """Find a refusal in a finished response: a content part, or a filter that cut it short."""
    filtered = fields(response.get("incomplete_details")).get("reason") == "content_filter"
    return (Refusal(),) if filtered or any(_refusing(item) for item in _list(response.get("output"))) else ()


def _refusing(item: object) -> bool:
    return any(fields(part).get("type") == "refusal" for part in _list(fields(item).get("content")))


def _failure(data: Fields, response: Fields) -> tuple[Seen, ...]:
    """Read an error, flat in its event, nested in it, or inside the response object."""
    error = fields(response.get("error")) or fields(data.get("error")) or data
    failed = Failed(word(error.get("code")))
    return (Refusal(), failed) if failed.code in REFUSAL_CODES else (failed,)


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
