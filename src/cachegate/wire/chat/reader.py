"""What an upstream's Chat Completions answer says about usage, refusals and its end."""

from cachegate.errors import ErrorKind
from cachegate.wire.body import decode
from cachegate.wire.chat.errors import BREAKS, KEEPALIVE, terminal_error
from cachegate.wire.failures import ended, failure, told
from cachegate.wire.refusals import carries_refusal
from cachegate.wire.seen import Failed, Finished, Refusal, Seen, word
from cachegate.wire.sse import ERROR, SseEvent
from cachegate.wire.usage_readings import Fields, Format, Measurement, fields, items, reading_of

_DONE = b"[DONE]"
_FIRST_ERROR_STATUS = 300
"""A redirect is no answer either: none is followed."""


class ChatReader:
    """Reads one answer. Usage may come in every chunk, in the last choice, or after the answer has ended."""

    __slots__ = ("finished", "measurement", "terminal")

    keepalive = KEEPALIVE

    def __init__(self, readings: str = "openai", *, zero_is_unknown: bool = False) -> None:
        self.measurement = Measurement(reading_of(readings, Format.CHAT, zero_is_unknown=zero_is_unknown))
        self.finished = False
        """The model ended its answer; usage may still follow."""
        self.terminal = False
        """Nothing more has to be said on this stream, successful or not."""

    def read(self, event: SseEvent) -> tuple[Seen, ...]:
        """Return what one event of the stream says."""
        if event.data.strip() == _DONE:
            self.terminal = True
            return ()
        if event.name == ERROR:
            return self._read(told(event.data), failed=True)
        data = decode(event.data)
        return self._read(data, failed=_is_error(data)) if isinstance(data, dict) else ()

    def read_body(self, status: int, body: bytes) -> tuple[Seen, ...]:
        """Return what a whole, unstreamed answer says."""
        value = decode(body)
        if status >= _FIRST_ERROR_STATUS:
            return failure(value, status)
        if not isinstance(value, dict):
            return (Failed("not_json"),)
        seen = self._read(value, failed=_is_error(value))
        if self.terminal:
            return seen
        known = self.finished
        self.finished = self.terminal = True
        return seen if known else (*seen, Finished())

    def terminal_error(self, kind: ErrorKind, message: str) -> bytes:
        """Return the event that ends this stream as failed."""
        self.terminal = True
        return terminal_error(kind, message)

    def _read(self, data: object, *, failed: bool) -> tuple[Seen, ...]:
        chunk = fields(data)
        choices = [fields(choice) for choice in items(chunk.get("choices"))]
        seen = self._measured(chunk, choices)
        if any(carries_refusal(fields(choice.get(name))) for choice in choices for name in ("delta", "message")):
            seen = (*seen, Refusal())
        if failed:
            self.terminal = True
            return (*seen, *failure(data))
        for choice in choices:
            reason = choice.get("finish_reason")
            if not isinstance(reason, str) or not reason:
                continue
            if reason in BREAKS:
                self.terminal = True
                return (*seen, *(failure(choice) if reason == "error" else (Failed(word(reason)),)))
            self.finished = True
            seen = (*seen, *ended(reason), Finished())
        return seen

    def _measured(self, data: Fields, choices: list[Fields]) -> tuple[Seen, ...]:
        """Read usage wherever it stands: Moonshot puts it into the choice, llama.cpp has timings beside it."""
        places = (*(choice.get("usage") for choice in choices), data.get("usage"))
        reports = [place for place in places if isinstance(place, dict)]
        if not isinstance(data.get("timings"), dict):
            return tuple(self.measurement.add(report) for report in reports)
        return tuple(self.measurement.add({**report, "timings": data["timings"]}) for report in reports or [{}])


def _is_error(data: Fields) -> bool:
    """Whether a chunk is an error: `error` as an object or a text, or the whole thing, as vLLM writes it."""
    return bool(data.get("error")) or data.get("object") == "error"
