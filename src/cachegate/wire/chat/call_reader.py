"""Finds the tool calls in the chunks of a Chat answer.

A chunk names the call it belongs to by an index, as OpenAI does; by an id; or not at all. Some servers number every
call 0, some repeat id and name in every piece, some send a call at once and some in turns with another.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import cast

from blake3 import blake3

from cachegate.wire.body import decode, encode
from cachegate.wire.chat import thoughts
from cachegate.wire.custom_tools import unwrap
from cachegate.wire.hub import Delta, Event, PartEnded, PartKind, PartStarted, ToolCall
from cachegate.wire.tool_names import ToolNames
from cachegate.wire.usage_readings import Fields, fields

_DIGEST_CHARS = 24


@dataclass(slots=True, eq=False, frozen=True)
class _Pieces:
    """What came of a call's arguments."""

    texts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def complete(self) -> bool:
        """Whether nothing can follow any more."""
        text = self.text.rstrip()
        return text.endswith("}") and isinstance(decode(text.encode("utf-8", "replace")), dict)


class _Call:
    __slots__ = ("call_id", "ended", "invented", "name", "native", "part", "pieces", "wrapped")

    def __init__(self) -> None:
        self.call_id = ""
        self.invented = False
        """The id is ours."""
        self.name = ""
        self.native = False
        """It came as a freeform call, and is not wrapped into JSON."""
        self.part: int | None = None
        """Number of its output part, once it has begun."""
        self.wrapped = False
        self.ended = False
        self.pieces = _Pieces()


class CallReader:
    """The calls of one answer."""

    __slots__ = ("_answer_id", "_by_index", "_calls", "_names", "_numbers")

    def __init__(self, names: ToolNames, numbers: Iterator[int]) -> None:
        self._names = names
        self._numbers = numbers
        """Numbers of output parts, shared with the rest of the answer."""
        self._answer_id = ""
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}

    @property
    def made(self) -> bool:
        """Whether the model called any tool."""
        return any(call.part is not None for call in self._calls)

    def read(self, entries: list[object], answer_id: str) -> Iterator[Event]:
        """Yield what pieces of calls say; `answer_id` goes into the ids of calls that have none."""
        self._answer_id = answer_id
        for entry in map(fields, entries):
            yield from self._entry(entry)

    def end_complete(self, but: object = None) -> Iterator[Event]:
        """End the calls to which nothing can be added, so that what comes next need not overlap with them."""
        for call in self._calls:
            if call is not but and not call.ended and call.part is not None and call.pieces.complete:
                yield from self._end(call)

    def end(self) -> Iterator[Event]:
        """End all calls. One that never got a name cannot be made, and is left out."""
        for call in self._calls:
            if not call.ended and call.part is not None:
                yield from self._end(call)

    def _entry(self, entry: Fields) -> Iterator[Event]:
        custom = fields(entry.get("custom"))
        function = custom or fields(entry.get("function"))
        name, call_id = _word(function.get("name")), _word(entry.get("id"))
        piece = _piece(function.get("input" if custom else "arguments"))
        call = self._find(entry.get("index"), call_id, name, piece)
        if call is None or call.ended:
            return
        call.native = call.native or bool(custom)
        call.name = call.name or name
        call.call_id = call.call_id or call_id
        begins = call.part is None and bool(call.name)
        if begins:
            yield from self.end_complete(but=call)
            self._identify(call)
        yield from self._extra(call, entry.get(thoughts.EXTRA))
        if begins:
            yield self._begin(call)
        if piece:
            call.pieces.texts.append(piece)
        if call.part is None or call.wrapped:
            return
        text = call.pieces.text if begins else piece
        if text:
            yield Delta(call.part, text)

    def _find(self, index: object, call_id: str, name: str, piece: str) -> _Call | None:
        if type(index) is int:
            call = self._by_index.get(index)
            if call is None or (name and self._is_another(call, call_id, piece)):
                self._by_index[index] = self._new()
            return self._by_index[index]
        known = next((call for call in self._calls if call_id and call.call_id == call_id), None)
        if known is not None:
            return known
        last = self._calls[-1] if self._calls else None
        if name and (last is None or call_id or last.name != name or self._is_another(last, call_id, piece)):
            return self._new()
        return last

    @staticmethod
    def _is_another(call: _Call, call_id: str, piece: str) -> bool:
        """Whether a named piece of the same number is of another call: its id differs, or nothing can follow here."""
        if call_id and call.call_id and not call.invented:
            return call_id != call.call_id
        return bool(piece) and call.pieces.complete

    def _new(self) -> _Call:
        self._calls.append(_Call())
        return self._calls[-1]

    def _identify(self, call: _Call) -> None:
        """See that the call has an id of its own: results are matched by it."""
        used = {other.call_id for other in self._calls if other is not call}
        if not call.call_id or call.call_id in used:
            place, call.invented = self._calls.index(call), True
            call.call_id = f"call_{blake3(f'{self._answer_id}:{place}'.encode()).hexdigest()[:_DIGEST_CHARS]}"

    def _extra(self, call: _Call, extra: object) -> Iterator[Event]:
        """Yield what must come back with the call, as a thought without text."""
        if extra is None or not call.call_id:
            return
        number = next(self._numbers)
        yield PartStarted(number, PartKind.THINKING)
        yield PartEnded(number, thoughts.opaque_of_call(call.call_id, extra), redacted=True)

    def _begin(self, call: _Call) -> Event:
        ref = self._names.ref(call.name)
        ref = replace(ref, custom=True) if call.native else ref
        call.wrapped = ref.custom and not call.native
        call.part = next(self._numbers)
        return PartStarted(call.part, PartKind.TOOL_CALL, ToolCall(call.call_id, ref, ""))

    @staticmethod
    def _end(call: _Call) -> Iterator[Event]:
        part, text = cast("int", call.part), call.pieces.text
        call.ended = True
        if call.wrapped:
            text = unwrap(text)
            if text:
                yield Delta(part, text)
        elif not text and not call.native:
            yield Delta(part, "{}")  # what no arguments are in JSON
        yield PartEnded(part)


def _word(value: object) -> str:
    return value if isinstance(value, str) else ""


def _piece(arguments: object) -> str:
    """Return arguments as text; some servers decode what the model wrote."""
    if isinstance(arguments, dict | list):
        return encode(arguments).decode()
    return _word(arguments)
