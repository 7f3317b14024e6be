"""Answers drawn by hypothesis: events in every order that `hub.Event` allows."""

from collections.abc import Iterator

from hypothesis import strategies as st

from cachegate.guard.usage import Usage
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import (
    Counted,
    Delta,
    Ended,
    Event,
    PartEnded,
    PartKind,
    PartStarted,
    Request,
    Started,
    Stop,
    Tool,
    ToolCall,
    ToolRef,
)
from contract.codec_strategies import opaques, texts
from contract.codec_strategies import said as nonblank

_SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
_REFS = (
    ToolRef("shell"),
    ToolRef("spawn", "multi_agent_v1"),
    ToolRef("apply_patch", custom=True),
    ToolRef("x" * 70),
    ToolRef("b__c", "a"),
    ToolRef("c", "a__b"),
    ToolRef("größe.klein"),
)
ASKED_WITH_TOOLS = Request(
    "model-here",
    stream=True,
    tools=tuple(Tool(ref, "Runs.", None if ref.custom else _SCHEMA) for ref in _REFS),
)
cuts = st.integers(1, 3)


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    """Draw counts that fit together: what was read and written is a part of the whole."""
    read, write, fresh = (draw(st.integers(0, 10**6)) for _ in range(3))
    known = draw(st.tuples(st.booleans(), st.booleans(), st.booleans()))
    counts = [
        count if told else None for count, told in zip((max(1, read + write + fresh), read, write), known, strict=True)
    ]
    return Usage(*counts)


@st.composite
def _part(draw: st.DrawFn, index: int, client: Protocol, upstream: Protocol) -> list[Event]:
    kinds = [kind for kind in PartKind if kind is not PartKind.REFUSAL or upstream is not Protocol.MESSAGES]
    kind = draw(st.sampled_from(kinds))
    if kind is PartKind.TOOL_CALL:
        return draw(_called(index, client))
    if kind is PartKind.REFUSAL:
        return [PartStarted(index, kind), Delta(index, draw(nonblank)), PartEnded(index)]
    if kind is not PartKind.THINKING or upstream is Protocol.CHAT:
        return [PartStarted(index, kind), *_said(index, draw(_pieces)), PartEnded(index)]
    opaque = draw(opaques | st.none())
    redacted = opaque is not None and upstream is Protocol.MESSAGES and draw(st.booleans())
    said = [] if redacted else _said(index, draw(_pieces))
    return [PartStarted(index, kind), *said, PartEnded(index, opaque, redacted)]


_pieces = st.lists(texts, min_size=1, max_size=3)


def _said(index: int, pieces: list[str]) -> list[Event]:
    return [Delta(index, piece) for piece in pieces if piece]


@st.composite
def _called(draw: st.DrawFn, index: int, client: Protocol) -> list[Event]:
    """Draw a call of a tool that such a client can have: namespaces and freeform tools are Codex's."""
    simple = [ref for ref in _REFS if not ref.custom and ref.namespace is None]
    ref = draw(st.sampled_from(_REFS if client is Protocol.RESPONSES else simple))
    whole = draw(nonblank) if ref.custom else draw(st.sampled_from(('{"path": "é"}', "{}")))
    said = _said(index, [whole[:3], whole[3:]])
    return [PartStarted(index, PartKind.TOOL_CALL, ToolCall(f"call_{index}", ref, "")), *said, PartEnded(index)]


@st.composite
def answers(draw: st.DrawFn, client: Protocol, upstream: Protocol) -> tuple[Event, ...]:
    """Draw a complete answer that such an upstream may give such a client. Calls at its end may come by turns."""
    parts = [draw(_part(index, client, upstream)) for index in range(draw(st.integers(0, 4)))]
    has_calls = any(isinstance(event, PartStarted) and event.call for part in parts for event in part)
    stops = [stop for stop in Stop if stop is not Stop.TOOL_CALLS]
    stop = Stop.TOOL_CALLS if has_calls else draw(st.sampled_from(stops))
    counted = Counted(draw(usages()), draw(st.integers(0, 10**6)))
    early = Usage(None, counted.usage.cached_read) if draw(st.booleans()) else None
    sequence = "END" if stop is Stop.STOP_SEQUENCE else None
    told = _by_turns(parts) if draw(st.booleans()) else [event for part in parts for event in part]
    started = Started("a1b2c3", "model-there", draw(st.none() | st.just(1_795_906_800)), early)
    return (started, *told, counted, Ended(stop, sequence))


def _by_turns(parts: list[list[Event]]) -> list[Event]:
    """Mix the last calls: all begin, then each says a piece in turn."""
    first = len(parts)
    while first and isinstance(begun := parts[first - 1][0], PartStarted) and begun.call:
        first -= 1
    mixed = [event for part in parts[:first] for event in part]
    for turn in range(max((len(part) for part in parts[first:]), default=0)):
        mixed += [part[turn] for part in parts[first:] if turn < len(part)]
    return mixed


def in_pieces(event: Event, size: int) -> Iterator[Event]:
    """Cut a delta into small ones."""
    if not isinstance(event, Delta):
        yield event
        return
    for at in range(0, len(event.text), size):
        yield Delta(event.index, event.text[at : at + size])
