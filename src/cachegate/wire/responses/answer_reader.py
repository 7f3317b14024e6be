"""An upstream's Responses answer, streamed or whole, as events of the internal model.

Servers that imitate the protocol leave out what their makers did not need: deltas, the beginning of an item, numbers.
So every event says what it can, and a finished item supplies whatever of it was not heard before.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from cachegate.wire import overflows
from cachegate.wire.body import decode, encode
from cachegate.wire.custom_tools import unwrap
from cachegate.wire.failures import breaks_off
from cachegate.wire.hub import (
    Counted,
    Delta,
    Ended,
    Event,
    Json,
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
from cachegate.wire.responses.provider_errors import broken_in_stream
from cachegate.wire.responses.tool_parser import CLIENT_SEARCH
from cachegate.wire.sse import SseEvent
from cachegate.wire.tool_names import OPENAI_CHARS_MAX, ToolNames
from cachegate.wire.usage_readings import Fields, Format, count, fields, items, reading_of

STOPS: Mapping[object, Stop] = {
    "max_output_tokens": Stop.MAX_TOKENS,
    "content_filter": Stop.CONTENT_FILTER,
}
"""Why an answer is incomplete; for any other reason, or none, the provider may be asked to go on."""

_TEXT_DELTAS: Mapping[object, PartKind] = {
    "response.output_text.delta": PartKind.TEXT,
    "response.refusal.delta": PartKind.REFUSAL,
}
_THOUGHT_DELTAS: Mapping[object, str] = {
    "response.reasoning_summary_text.delta": "summary_index",
    "response.reasoning_text.delta": "content_index",
}
_INPUT_DELTAS = frozenset({"response.function_call_arguments.delta", "response.custom_tool_call_input.delta"})
_CALLS: Mapping[object, str] = {"function_call": "arguments", "custom_tool_call": "input"}
"""Items that call a tool, and where their input stands."""
_SEARCH_CALL = "tool_search_call"
_READINGS = "openai"
_TIME_MAX = 2**53
_BETWEEN_THOUGHTS = "\n\n"

_Key = tuple[PartKind, int, int]
"""Kind of the part, index of the item, index in the item."""


class _Part:
    """A part that has begun; it grows until it ends."""

    __slots__ = ("ended", "index", "pieces", "section", "wrapped")

    def __init__(self, index: int, *, wrapped: bool = False) -> None:
        self.index = index
        self.wrapped = wrapped
        """A freeform input in a function's arguments: nothing can be told of it before its end."""
        self.pieces: list[str] = []
        self.section = 0
        """Which summary of several is being written."""
        self.ended = False

    def say(self, text: str) -> Iterator[Event]:
        """Add a piece, as long as it lasts."""
        if self.ended:
            return
        self.pieces.append(text)
        if not self.wrapped:
            yield Delta(self.index, text)

    def think(self, text: str, section: int) -> Iterator[Event]:
        """Add to the thoughts; several summaries are one text, with space between."""
        between = _BETWEEN_THOUGHTS if section != self.section and self.pieces else ""
        self.section = section
        yield from self.say(between + text)

    def complete(self, text: object) -> Iterator[Event]:
        """Add what of the whole text was not heard before."""
        heard = "".join(self.pieces)
        if isinstance(text, str) and len(text) > len(heard) and text.startswith(heard):
            yield from self.say(text[len(heard) :])

    def end(self, opaque: str | None = None, annotations: tuple[Json, ...] = ()) -> Iterator[Event]:
        """End it, once."""
        if self.ended:
            return
        self.ended = True
        if self.wrapped:
            yield Delta(self.index, unwrap("".join(self.pieces)))
        yield PartEnded(self.index, opaque=opaque, annotations=annotations)


class AnswerReader:
    """Reads one answer."""

    __slots__ = ("_names", "_over", "_parts", "_phases", "_reading", "_started", "_target", "_unnumbered")

    def __init__(self, request: Request, target: Target) -> None:
        self._target = target
        self._names = ToolNames(request, OPENAI_CHARS_MAX)
        self._reading = reading_of(
            target.readings or _READINGS, Format.RESPONSES, zero_is_unknown=target.zero_is_unknown
        )
        self._parts: dict[_Key, _Part] = {}
        self._phases: dict[int, str | None] = {}
        """What each message's label is, as far as it was told."""
        self._unnumbered: dict[object, int] = {}
        self._started = False
        self._over = False

    def read(self, event: SseEvent) -> tuple[Event, ...]:
        """Return what one event says; nothing after the end."""
        data = fields(decode(event.data))
        if breaks_off(event.name, data) and not self._over:
            self._over = True
            return (broken_in_stream(data),)
        # A frame under another name is somebody else's, whatever it holds.
        foreign = event.name and event.name != str(data.get("type")).encode()
        return () if self._over or foreign else tuple(self._read(data))

    def read_body(self, body: bytes) -> tuple[Event, ...]:
        """Return what a whole answer says."""
        response = fields(decode(body))
        if response.get("status") == "failed" or isinstance(response.get("error"), dict) or not response:
            return (*self._counted(response), broken_in_stream(response))
        return tuple(self._end(response, incomplete=response.get("status") == "incomplete"))

    def end(self) -> tuple[Event, ...]:
        """Return nothing: a stream without its last event was cut."""
        return ()

    def _read(self, data: Fields) -> Iterator[Event]:
        response, item = fields(data.get("response")), fields(data.get("item"))
        match data.get("type"):
            case "response.created":
                yield from self._start(response)
            case "response.output_item.added" if _text(item.get("type")) in _CALLS:
                yield from self._call(self._at(data, item), item)
            case "response.output_item.added":
                number = count(data.get("output_index"))
                self._phases |= {} if number is None else {number: _text(item.get("phase"))}
            case "response.output_item.done":
                yield from self._item_done(self._at(data, item), item)
            case "response.completed" | "response.incomplete":
                yield from self._end(response, incomplete=data.get("type") == "response.incomplete")
            case "response.failed":
                self._over = True
                yield from self._counted(response)
                yield broken_in_stream(data)
            case _ if isinstance(data.get("delta"), str):
                yield from self._delta(data, str(data["delta"]))

    def _at(self, data: Fields, item: Fields) -> int:
        """Return the item's number; where servers give none, its id has one."""
        number = count(data.get("output_index"))
        if number is not None:
            return number
        item_id = data.get("item_id") or item.get("id")
        return self._unnumbered.setdefault(item_id if isinstance(item_id, str) else None, len(self._unnumbered))

    def _start(self, response: Fields) -> Iterator[Event]:
        if self._started:
            return
        self._started = True
        answer_id, model, created = (response.get(name) for name in ("id", "model", "created_at"))
        yield Started(
            answer_id if isinstance(answer_id, str) and answer_id else "unknown",
            model if isinstance(model, str) and model else self._target.model,
            int(created) if isinstance(created, int | float) and 0 < created < _TIME_MAX else None,
        )

    def _delta(self, data: Fields, text: str) -> Iterator[Event]:
        kind, at = _text(data.get("type")), self._at(data, {})
        if kind in _TEXT_DELTAS:
            key = (_TEXT_DELTAS[kind], at, count(data.get("content_index")) or 0)
            yield from self._begin(key, data.get("item_id"))
            yield from self._parts[key].say(text)
        elif kind in _THOUGHT_DELTAS:
            key = (PartKind.THINKING, at, 0)
            yield from self._begin(key, data.get("item_id"))
            yield from self._parts[key].think(text, count(data.get(_THOUGHT_DELTAS[kind])) or 0)
        elif kind in _INPUT_DELTAS and (PartKind.TOOL_CALL, at, 0) in self._parts:
            yield from self._parts[PartKind.TOOL_CALL, at, 0].say(text)

    def _item_done(self, at: int, item: Fields) -> Iterator[Event]:
        kind = _text(item.get("type"))
        if kind == "message":
            for index, part in enumerate(items(item.get("content"))):
                yield from self._content_done((at, index), item, fields(part))
        elif kind == "reasoning":
            yield from self._reasoning_done(at, item)
        elif kind == _SEARCH_CALL and item.get("execution") == "client":
            yield from self._search(at, item)
        elif kind in _CALLS:
            yield from self._call(at, item)
            called = self._parts.get((PartKind.TOOL_CALL, at, 0))
            if called is not None:
                yield from called.complete(item.get(_CALLS[kind]))
                yield from called.end()

    def _content_done(self, at: tuple[int, int], item: Fields, part: Fields) -> Iterator[Event]:
        refused = part.get("type") == "refusal"
        text = part.get("refusal" if refused else "text")
        if not isinstance(text, str):
            return
        key = (PartKind.REFUSAL if refused else PartKind.TEXT, *at)
        self._phases.setdefault(at[0], _text(item.get("phase")))
        yield from self._begin(key, item.get("id"))
        yield from self._parts[key].complete(text)
        notes = tuple(note for note in items(part.get("annotations")) if isinstance(note, dict))
        yield from self._parts[key].end(annotations=notes)

    def _reasoning_done(self, at: int, item: Fields) -> Iterator[Event]:
        """Read finished thoughts. Those that show nothing and hold nothing are none."""
        parts = [fields(part).get("text") for name in ("summary", "content") for part in items(item.get(name))]
        text = _BETWEEN_THOUGHTS.join(part for part in parts if isinstance(part, str) and part)
        opaque = item.get("encrypted_content")
        key = (PartKind.THINKING, at, 0)
        if not text and not opaque and key not in self._parts:
            return
        yield from self._begin(key, item.get("id"))
        yield from self._parts[key].complete(text)
        yield from self._parts[key].end(opaque if isinstance(opaque, str) and opaque else None)

    def _begin(self, key: _Key, item_id: object) -> Iterator[Event]:
        if key in self._parts:
            return
        yield from self._start({})
        self._parts[key] = _Part(len(self._parts))
        phase = self._phases.get(key[1]) if key[0] is not PartKind.THINKING else None
        yield PartStarted(self._parts[key].index, key[0], item_id=_text(item_id), phase=phase)

    def _call(self, at: int, item: Fields) -> Iterator[Event]:
        """Begin a call, unless it has begun."""
        key = (PartKind.TOOL_CALL, at, 0)
        call_id, name = _text(item.get("call_id")) or _text(item.get("id")), _text(item.get("name"))
        if key in self._parts or call_id is None or name is None:
            return
        yield from self._start({})
        namespace, native = _text(item.get("namespace")), item.get("type") == "custom_tool_call"
        named = ToolRef(name, namespace) if namespace else self._names.ref(name)
        ref = replace(named, custom=True) if native else named
        self._parts[key] = _Part(len(self._parts), wrapped=ref.custom and not native)
        call = ToolCall(call_id, ref, "")
        yield PartStarted(self._parts[key].index, PartKind.TOOL_CALL, call, _text(item.get("id")))

    def _search(self, at: int, item: Fields) -> Iterator[Event]:
        """Read a call of the client's own search. It comes whole, and its arguments are no text."""
        key, call_id = (PartKind.TOOL_CALL, at, 0), _text(item.get("call_id"))
        if key in self._parts or call_id is None:
            return
        yield from self._start({})
        part = self._parts[key] = _Part(len(self._parts))
        yield PartStarted(part.index, PartKind.TOOL_CALL, ToolCall(call_id, CLIENT_SEARCH, ""), _text(item.get("id")))
        arguments = item.get("arguments")
        yield from part.say(arguments if isinstance(arguments, str) else encode(arguments).decode())
        yield from part.end()

    def _end(self, response: Fields, *, incomplete: bool) -> Iterator[Event]:
        """End the answer. What nobody told before stands in its items, whose numbers need not be those of a stream."""
        self._over = True
        yield from self._start(response)
        if not self._parts:
            for at, item in enumerate(items(response.get("output"))):
                yield from self._item_done(at, fields(item))
        for part in self._parts.values():
            yield from part.end()
        yield from self._counted(response)
        yield Ended(_cut_short(response) if incomplete else self._stop())

    def _counted(self, response: Fields) -> Iterator[Event]:
        usage = response.get("usage")
        if not isinstance(usage, dict):
            return
        details = fields(usage.get("output_tokens_details"))
        yield Counted(
            self._reading.usage(usage), count(usage.get("output_tokens")), count(details.get("reasoning_tokens"))
        )

    def _stop(self) -> Stop:
        kinds = {kind for kind, _, _ in self._parts}
        if PartKind.TOOL_CALL in kinds:
            return Stop.TOOL_CALLS
        return Stop.REFUSAL if PartKind.REFUSAL in kinds else Stop.END


def _cut_short(response: Fields) -> Stop:
    reason = _text(fields(response.get("incomplete_details")).get("reason"))
    return Stop.CONTEXT_FULL if overflows.ended_by_overflow(reason) else STOPS.get(reason, Stop.PAUSE)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
