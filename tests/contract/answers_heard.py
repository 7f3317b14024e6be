"""An answer put together from its events, so that two ways of telling the same can be compared."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from cachegate.guard.usage import Usage
from cachegate.wire.custom_tools import wrap
from cachegate.wire.envelopes import open_envelope
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import (
    Broken,
    Counted,
    Delta,
    Ended,
    Event,
    PartEnded,
    PartKind,
    PartStarted,
    Started,
    Stop,
    ToolCall,
    ToolRef,
)


@dataclass(frozen=True, slots=True)
class Heard:
    """One output part."""

    kind: PartKind
    text: str = ""
    call: ToolCall | None = None
    opaque: str | None = None
    redacted: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """Everything an answer says."""

    parts: tuple[Heard, ...]
    stop: Stop | None
    stop_sequence: str | None
    broken: Broken | None
    usage: Usage
    output_tokens: int | None
    reasoning_tokens: int | None
    answer_id: str | None
    model: str | None


@dataclass(slots=True)
class _Listener:
    """Takes events one by one, and holds them against the order that `hub.Event` promises."""

    started: Started | None = None
    parts: dict[int, Heard] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)
    counted: Counted = field(default_factory=lambda: Counted(Usage()))
    last: Ended | Broken | None = None

    def hear(self, event: Event) -> None:
        assert self.last is None, f"{event} after {self.last}"
        if not isinstance(event, Broken):
            assert isinstance(event, Started) == (self.started is None), "an answer begins with one Started"
        match event:
            case Started():
                self.started = event
                self.counted = Counted(event.usage or Usage())
            case PartStarted():
                assert event.index == len(self.parts), "parts are numbered from 0 in their order"
                assert (event.call is None) == (event.kind is not PartKind.TOOL_CALL)
                assert event.call is None or event.call.arguments == ""
                self.parts[event.index] = Heard(event.kind, "", event.call)
                self.open.add(event.index)
            case Delta():
                assert event.index in self.open, "a delta belongs to an open part"
                part = self.parts[event.index]
                self.parts[event.index] = replace(part, text=part.text + event.text)
            case PartEnded():
                assert event.index in self.open, "a part ends once"
                self.open.remove(event.index)
                ended = replace(self.parts[event.index], opaque=event.opaque, redacted=event.redacted)
                self.parts[event.index] = ended
            case Counted():
                self.counted = event
            case Ended():
                assert not self.open, "a complete answer has complete parts"
                self.last = event
            case Broken():
                self.last = event


def listen(events: Iterable[Event]) -> Answer:
    """Put an answer together, complete or not."""
    listener = _Listener()
    for event in events:
        listener.hear(event)
    last, counted, started = listener.last, listener.counted, listener.started
    return Answer(
        tuple(listener.parts.values()),
        last.stop if isinstance(last, Ended) else None,
        last.stop_sequence if isinstance(last, Ended) else None,
        last if isinstance(last, Broken) else None,
        counted.usage,
        counted.output_tokens,
        counted.reasoning_tokens,
        started.answer_id if started else None,
        started.model if started else None,
    )


# --- what of an answer each protocol can say ---

_STOPS: Mapping[Protocol, Mapping[Stop, Stop]] = {
    Protocol.MESSAGES: {Stop.CONTENT_FILTER: Stop.REFUSAL},
    Protocol.RESPONSES: {Stop.STOP_SEQUENCE: Stop.END, Stop.PAUSE: Stop.END, Stop.CONTENT_FILTER: Stop.REFUSAL},
    Protocol.CHAT: {
        Stop.STOP_SEQUENCE: Stop.END,
        Stop.PAUSE: Stop.END,
        Stop.CONTEXT_FULL: Stop.MAX_TOKENS,
        Stop.CONTENT_FILTER: Stop.REFUSAL,
    },
}
"""What a stop is told as, where a protocol has no word of its own; refused and filtered away are told alike."""

_CHAT_ORDER = (PartKind.THINKING, PartKind.TEXT, PartKind.REFUSAL)


def as_told(client: Protocol, answer: Answer, origin: Protocol) -> Answer:
    """Return what remains of an answer of `origin` when a client's protocol has told it."""
    parts = tuple(_called(part) for part in answer.parts if part.text or part.opaque or part.call)
    stop = None if answer.stop is None else _STOPS[client].get(answer.stop, answer.stop)
    if stop is Stop.END and any(part.kind is PartKind.REFUSAL for part in parts):
        stop = Stop.REFUSAL
    if client is Protocol.MESSAGES:  # knows no refusal but the reason to stop
        parts = tuple(replace(part, kind=PartKind.TEXT) if part.kind is PartKind.REFUSAL else part for part in parts)
    if client is Protocol.CHAT:  # has one text, one refusal and one thought, and calls behind them
        calls = tuple(part for part in parts if part.call)
        parts = (*(told for kind in _CHAT_ORDER if (told := _joined(kind, parts)).text), *calls)
    if client is not Protocol.RESPONSES:
        parts = tuple(_flattened(part) for part in parts)
    return replace(
        answer,
        parts=tuple(_opened(part, client, origin) for part in parts),
        stop=stop,
        stop_sequence=answer.stop_sequence if client is Protocol.MESSAGES else None,
        usage=answer.usage if answer.usage.input_total is not None else Usage(),
        reasoning_tokens=None,
    )


def _called(part: Heard) -> Heard:
    """No arguments are those of an empty object: Anthropic streams nothing for it."""
    simple = part.call is not None and not part.call.tool.custom
    return replace(part, text=part.text or "{}") if simple else part


def _flattened(part: Heard) -> Heard:
    """Take a call for what a client without namespaces and freeform tools calls it."""
    if part.call is None:
        return part
    ref = part.call.tool
    name = f"{ref.namespace}__{ref.name}" if ref.namespace else ref.name
    return replace(part, call=replace(part.call, tool=ToolRef(name)), text=wrap(part.text) if ref.custom else part.text)


def _joined(kind: PartKind, parts: tuple[Heard, ...]) -> Heard:
    return Heard(kind, "".join(part.text for part in parts if part.kind is kind))


def _opened(part: Heard, client: Protocol, origin: Protocol) -> Heard:
    """Take a thought's value out of its envelope; Chat has no place for one."""
    if part.opaque is None or client is Protocol.CHAT:
        return replace(part, opaque=None, redacted=False)
    envelope = open_envelope(part.opaque)
    if envelope is None:
        return part
    assert envelope.origin is origin, "an envelope says whose value it holds"
    text, opaque = envelope.text or part.text, envelope.opaque or None
    return replace(part, text=text, opaque=opaque, redacted=envelope.redacted)
