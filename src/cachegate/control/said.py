"""An answer under way: from events of the hub to what the model is handed back, and to what a client is shown. Pure."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from cachegate.control.thread import AgentMessage, ShownItem, Thought, Tokens
from cachegate.guard.usage import Usage
from cachegate.wire.body import decode
from cachegate.wire.envelopes import open_envelope
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import (
    Broken,
    Counted,
    Delta,
    Ended,
    Event,
    Item,
    Message,
    PartEnded,
    PartKind,
    PartStarted,
    Reasoning,
    Role,
    Started,
    Text,
    ToolCall,
)

NO_ARGUMENTS = "{}"
"""What a model that calls without arguments means; providers refuse an empty text when it is handed back."""


@dataclass(frozen=True, slots=True)
class Began:
    """An item is there."""

    item: ShownItem


@dataclass(frozen=True, slots=True)
class Grew:
    """More of an item."""

    item_id: str
    thinks: bool
    """It is a thought, and no part of the answer."""
    delta: str


@dataclass(frozen=True, slots=True)
class Done:
    """An item is complete, or will get no further."""

    item: ShownItem


Told = Began | Grew | Done


class _Part:
    __slots__ = ("call", "ended", "item_id", "kind", "phase", "pieces", "shown_id")

    def __init__(self, started: PartStarted, shown_id: str) -> None:
        self.kind = started.kind
        self.call = started.call
        self.item_id = started.item_id
        self.phase = started.phase
        self.shown_id = shown_id
        self.pieces: list[str] = []
        self.ended: PartEnded | None = None

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def shown(self, text: str | None = None) -> AgentMessage | Thought:
        kind = Thought if self.kind is PartKind.THINKING else AgentMessage
        return kind(self.shown_id, self.text if text is None else text)


class Said:
    """One answer so far. `new_id` names the items that a client is shown."""

    def __init__(self, protocol: Protocol, new_id: Callable[[], str]) -> None:
        self.end: Ended | Broken | None = None
        """None for an answer that was cut."""
        self._protocol = protocol
        self._new_id = new_id
        self._parts: dict[int, _Part] = {}
        self._usage = Usage()
        self._output: int | None = None

    def hear(self, event: Event) -> Iterator[Told]:
        """Yield what a client is told of one event."""
        match event:
            case Started():
                self._usage = self._usage.updated(event.usage or Usage())
            case Counted():
                self._usage = self._usage.updated(event.usage)
                self._output = self._output if event.output_tokens is None else event.output_tokens
            case PartStarted():
                self._parts.setdefault(event.index, _Part(event, self._new_id()))
            case Delta():
                yield from self._more(self._parts.get(event.index), event.text)
            case PartEnded():
                yield from self._ended(self._parts.get(event.index), event)
            case Ended() | Broken():
                self.end = self.end or event

    def under_way(self) -> Iterator[ShownItem]:
        """Yield the items that are not complete yet, as they are now."""
        for part in self._parts.values():
            if part.ended is None and part.pieces and part.kind is not PartKind.TOOL_CALL:
                yield part.shown()

    def cut(self) -> Iterator[Told]:
        """Yield the end of what is under way: nothing more of it will come."""
        yield from [Done(item) for item in self.under_way()]

    def tokens(self, measured: Usage) -> Tokens:
        """Return what the request used: as the guard measured it, and what the answer itself says beyond that."""
        return Tokens.of(self._usage.updated(measured), self._output)

    def items(self) -> tuple[Item, ...]:
        """Return what the model is handed back: of a complete answer everything, of another one the text said so far.

        Half a call cannot be answered, and half a thought is refused by who made it.
        """
        whole = isinstance(self.end, Ended)
        found = (self._item(part) for part in self._parts.values() if whole or part.kind in _WORDS)
        return tuple(item for item in found if item is not None)

    def _more(self, part: _Part | None, text: str) -> Iterator[Told]:
        if part is None or part.ended is not None or not text:
            return
        shows, first = part.kind is not PartKind.TOOL_CALL, not part.pieces
        part.pieces.append(text)
        if shows and first:
            yield Began(part.shown(""))
        if shows:
            yield Grew(part.shown_id, part.kind is PartKind.THINKING, text)

    def _ended(self, part: _Part | None, ended: PartEnded) -> Iterator[Told]:
        if part is None or part.ended is not None:
            return
        part.ended = ended
        if part.pieces and part.kind is not PartKind.TOOL_CALL:
            yield Done(part.shown())

    def _item(self, part: _Part) -> Item | None:
        ended = part.ended or PartEnded(0)
        match part.kind:
            case PartKind.TEXT | PartKind.REFUSAL:
                refused = part.kind is PartKind.REFUSAL
                said = Text(part.text, refused, () if refused else ended.annotations)
                return Message(Role.ASSISTANT, (said,), part.phase) if part.text.strip() else None
            case PartKind.TOOL_CALL:
                call = part.call
                return None if call is None else ToolCall(call.call_id, call.tool, part.text or NO_ARGUMENTS)
            case PartKind.THINKING:
                return self._thought(part, ended)

    def _thought(self, part: _Part, ended: PartEnded) -> Reasoning:
        """Return a thought. One in an envelope belongs to another protocol, and so does everything but the envelope."""
        envelope = None if ended.opaque is None else open_envelope(ended.opaque)
        if envelope is not None:
            return Reasoning(envelope.text, ended.opaque, self._protocol, redacted=ended.redacted)
        return Reasoning(part.text, ended.opaque, self._protocol, part.item_id, ended.redacted)


_WORDS = frozenset({PartKind.TEXT, PartKind.REFUSAL})


def arguments_of(call: ToolCall) -> object:
    """Return a call's arguments: an object, or the text where the model wrote none."""
    value = decode(call.arguments.encode("utf-8", "replace"))
    return value if isinstance(value, dict) else call.arguments


@dataclass(frozen=True, slots=True)
class Heard:
    """How one inference went."""

    items: tuple[Item, ...] = field(repr=False)
    end: Ended | Broken | None
    tokens: Tokens | None
    """None where the provider processed nothing."""

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tools that the model called."""
        return tuple(item for item in self.items if isinstance(item, ToolCall))
