"""What the gateway would record of an answer that somebody kept: `cachegate read-usage` shows it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from cachegate.errors import BadInput
from cachegate.guard.usage import Usage
from cachegate.wire import overflows
from cachegate.wire.body import decode
from cachegate.wire.chat.reader import ChatReader
from cachegate.wire.messages.reader import MessagesReader
from cachegate.wire.native_events import EVENT_READERS, Calls
from cachegate.wire.responses.reader import ResponsesReader
from cachegate.wire.seen import Failed, Finished, Refusal, Seen
from cachegate.wire.sse import SseEvent, SseReader
from cachegate.wire.usage_readings import READINGS, UNKNOWN, Fields, Format, Reading, fields, reading_of

_READERS: Mapping[Format, type[MessagesReader | ResponsesReader | ChatReader]] = {
    Format.MESSAGES: MessagesReader,
    Format.RESPONSES: ResponsesReader,
    Format.CHAT: ChatReader,
}
PROVIDERS = tuple(sorted(READINGS))
"""Names that a question may give."""
PROTOCOLS = tuple(shape.value for shape in _READERS)
"""Protocols that several providers speak."""
_FIRST_ERROR_STATUS = 300
_NAMES = ("input total", "cached read", "cache write", "uncached")


@dataclass(frozen=True, slots=True)
class Question:
    """A payload, and where it comes from."""

    provider: str
    protocol: str | None = None
    """None where the provider speaks only one."""
    streamed: bool = False
    """It is a stream of server-sent events."""
    status: int = 200
    """The HTTP status it came with."""
    zero_is_unknown: bool = False
    """As `zeroIsUnknown` in the configuration."""


class Outcome(StrEnum):
    """How an answer ended."""

    FINISHED = "finished"
    REFUSED = "refused"
    FAILED = "failed"
    OVERFLOW = "context overflow"
    CUT = "cut off"


@dataclass(frozen=True, slots=True)
class Report:
    """What was read from a payload."""

    calls: tuple[Usage, ...]
    """The model calls of the main conversation, in order; the last one is what counts."""
    outcome: Outcome
    code: str = ""
    """Of a failure."""
    inconsistent: bool = False
    subagent_calls: tuple[Usage, ...] = ()
    side_calls: tuple[tuple[str, Usage], ...] = ()

    @property
    def usage(self) -> Usage:
        """The last call's usage."""
        return self.calls[-1] if self.calls else UNKNOWN

    def as_json(self) -> dict[str, object]:
        """Return the report for programs; null is "not reported"."""
        return {
            **numbers(self.usage),
            "inconsistent": self.inconsistent,
            "outcome": self.outcome.value,
            "code": self.code or None,
            "calls": [numbers(usage) for usage in self.calls],
            "subagentCalls": [numbers(usage) for usage in self.subagent_calls],
            "sideCalls": [{"type": name, **numbers(usage)} for name, usage in self.side_calls],
        }

    def lines(self) -> list[str]:
        """Return the report for people."""
        rows = [(name, _shown(value)) for name, value in zip(_NAMES, numbers(self.usage).values(), strict=True)]
        rows.append(("outcome", f"{self.outcome} {self.code}".rstrip()))
        if self.inconsistent:
            rows.append(("inconsistent", "a part was reported that is larger than the whole, so the parts are unknown"))
        if len(self.calls) > 1:
            rows += [(f"call {number}", _line(call)) for number, call in enumerate(self.calls, 1)]
        rows += [("sub-agent", _line(call)) for call in self.subagent_calls]
        rows += [(f"beside: {name}", _line(call)) for name, call in self.side_calls]
        width = max(len(name) for name, _ in rows)
        return [f"{name:<{width}}  {value}" for name, value in rows]


def report(question: Question, payload: bytes) -> Report:
    """Read a payload as the gateway would. Raises BadInput with a sentence for a person."""
    shape = _format(question.provider, question.protocol)
    if not payload.strip():
        raise BadInput("There is no payload. Give the provider's answer on standard input, such as `< answer.json`.")
    if shape in EVENT_READERS:
        reader = EVENT_READERS[shape](_reading(question, shape), calls := Calls())
        seen = tuple(item for event in _native(question, payload) for item in reader.read(event))
        return Report(calls.main, *_outcome(seen), calls.inconsistent, calls.of_agents)
    return _of_protocol(question, shape, payload)


def _of_protocol(question: Question, shape: Format, payload: bytes) -> Report:
    reader = _READERS[shape](question.provider, zero_is_unknown=question.zero_is_unknown)
    if question.streamed:
        seen = tuple(item for event in _sse(payload) for item in reader.read(event))
    else:
        if question.status < _FIRST_ERROR_STATUS:
            _json(payload)
        seen = reader.read_body(question.status, payload)
    calls = (reader.measurement.usage,) if any(isinstance(item, Usage) for item in seen) else ()
    beside = reader.side_calls if isinstance(reader, MessagesReader) else ()
    return Report(calls, *_outcome(seen), reader.measurement.inconsistent, (), beside)


def _reading(question: Question, shape: Format) -> Reading:
    return reading_of(question.provider, shape, zero_is_unknown=question.zero_is_unknown)


def _format(provider: str, protocol: str | None) -> Format:
    """Return the format to read. Raises BadInput, naming what there is."""
    if provider not in READINGS:
        raise BadInput(f"There is no provider {provider!r}. Known are: {', '.join(PROVIDERS)}.")
    shapes = {shape.value: shape for shape in READINGS[provider]}
    if protocol is None and len(shapes) == 1:
        return next(iter(shapes.values()))
    if protocol is None:
        raise BadInput(f"{provider} answers in several protocols. Add --protocol with one of: {', '.join(shapes)}.")
    if protocol not in shapes:
        raise BadInput(f"For {provider} there is no protocol {protocol!r}. There is: {', '.join(shapes)}.")
    return shapes[protocol]


def _native(question: Question, payload: bytes) -> list[Fields]:
    """Return events of a format of its own: server-sent ones, one JSON value, an array of them, or a line each."""
    if question.streamed:
        return [fields(decode(event.data)) for event in _sse(payload)]
    value = decode(payload)
    if value is not None:
        return [fields(item) for item in (value if isinstance(value, list) else [value])]
    lines = [line for line in payload.splitlines() if line.strip()]
    return [fields(_json(line)) for line in lines]


def _json(text: bytes) -> object:
    value = decode(text)
    if value is None:
        hint = " It looks like a stream: add --sse." if text.lstrip().startswith((b"event:", b"data:", b":")) else ""
        raise BadInput(f"This is no JSON: {text.strip()[:60].decode('utf-8', 'replace')!r}.{hint}")
    return value


def _sse(payload: bytes) -> list[SseEvent]:
    """Return the events of a stream, the last one also without the blank line that copying loses."""
    _, events = SseReader().feed(payload + b"\n\n")
    if not events:
        raise BadInput("There is no event with data in this stream. Leave out --sse for an answer in one JSON object.")
    return events


def _outcome(seen: Sequence[Seen]) -> tuple[Outcome, str]:
    """Name the end as a record would: what the provider said of the request, before how the connection ended."""
    failed = [item.code for item in seen if isinstance(item, Failed)]
    if Refusal() in seen:
        return Outcome.REFUSED, failed[-1] if failed else ""
    if overflows.CODE in failed:
        return Outcome.OVERFLOW, ""
    if Finished() in seen:
        return Outcome.FINISHED, ""
    return (Outcome.FAILED, failed[-1]) if failed else (Outcome.CUT, "")


def numbers(usage: Usage) -> dict[str, int | None]:
    """Return the counts for programs; null is "not reported"."""
    return {
        "inputTokens": usage.input_total,
        "cachedTokens": usage.cached_read,
        "cacheWriteTokens": usage.cache_write,
        "uncachedTokens": usage.uncached,
    }


def _shown(value: int | None) -> str:
    return "not reported" if value is None else f"{value:,}"


def _line(usage: Usage) -> str:
    return ", ".join(f"{name} {_shown(value)}" for name, value in zip(_NAMES, numbers(usage).values(), strict=True))
