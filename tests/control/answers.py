"""Answers of a provider to a hosted thread, said in the hub and written in the thread's protocol."""

from cachegate.guard.usage import Usage
from cachegate.wire.codecs import CODECS
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
    Target,
    ToolCall,
    ToolRef,
)
from provider_streams import COLD
from scripted_upstream import Script, stream

_REQUEST, _TARGET = Request("model-x", stream=True), Target("model-x", "")


def text(*pieces: str, index: int = 0) -> list[Event]:
    """Something said."""
    return [PartStarted(index, PartKind.TEXT), *(Delta(index, piece) for piece in pieces), PartEnded(index)]


def thought(words: str, opaque: str, index: int = 0) -> list[Event]:
    """Something thought."""
    return [PartStarted(index, PartKind.THINKING), Delta(index, words), PartEnded(index, opaque=opaque)]


def call(call_id: str, name: str, arguments: str, index: int = 0) -> list[Event]:
    """A tool called."""
    started = PartStarted(index, PartKind.TOOL_CALL, ToolCall(call_id, ToolRef(name), ""))
    return [started, Delta(index, arguments), PartEnded(index)]


def answer(*parts: list[Event], stop: Stop = Stop.END, usage: Usage = COLD) -> list[Event]:
    """A whole answer."""
    said = [event for part in parts for event in part]
    return [Started("a1", "model-x", 1_700_000_000, usage), *said, Counted(usage, 7), Ended(stop)]


def written(protocol: Protocol, events: list[Event]) -> list[bytes]:
    """The answer as the protocol's bytes, event by event; what says nothing is left out."""
    writer = CODECS[protocol].stream_writer(_REQUEST, _TARGET)
    return [data for event in events if (data := writer.write(event))]


def streamed(protocol: Protocol, *parts: list[Event], stop: Stop = Stop.END, usage: Usage = COLD) -> Script:
    """The answer as a provider's whole stream."""
    return stream(b"".join(written(protocol, answer(*parts, stop=stop, usage=usage))))
