"""The parts of an answer as items of a Responses stream: how each begins, grows and ends, and what it is in the end."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol as Interface

from cachegate.wire.body import decode
from cachegate.wire.envelopes import Envelope, seal
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import PartEnded, PartKind, PartStarted, Target, ToolCall
from cachegate.wire.plain_thoughts import is_plain
from cachegate.wire.responses.answer_objects import (
    Identity,
    Object,
    message_item,
    reasoning_item,
    refusal_part,
    text_part,
)
from cachegate.wire.responses.item_renderer import native_citation
from cachegate.wire.responses.tool_parser import CLIENT_SEARCH

Frames = list[tuple[str, Object]]
"""Events without their numbers: name and fields."""

_NO_ARGUMENTS = "{}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where an item stands, and for whom it is written."""

    identity: Identity
    target: Target
    index: int

    def added(self, item: Object) -> tuple[str, Object]:
        """Return the event that begins an item."""
        return "response.output_item.added", {"output_index": self.index, "item": item}

    def done(self, item: Object) -> tuple[str, Object]:
        """Return the event that ends an item."""
        return "response.output_item.done", {"output_index": self.index, "item": item}


class Part(Interface):
    """An item under way."""

    item: Object | None
    """The finished item; None before its end."""

    def begin(self) -> Frames:
        """Return how it begins."""

    def delta(self, text: str) -> Frames:
        """Return how it goes on."""

    def end(self, ended: PartEnded) -> Frames:
        """Return how it ends."""


class Spoken:
    """A message of one text, or of one refusal."""

    __slots__ = ("_id", "_phase", "_pieces", "_place", "_refusal", "item")

    def __init__(self, place: Place, started: PartStarted) -> None:
        self.item: Object | None = None
        self._place = place
        self._phase = started.phase
        self._refusal = started.kind is PartKind.REFUSAL
        self._id = place.identity.item_id("msg", place.index)
        self._pieces: list[str] = []

    def begin(self) -> Frames:
        """See `Part`."""
        empty = message_item(self._id, [], status="in_progress", phase=self._phase)
        return [self._place.added(empty), ("response.content_part.added", {**self._where, "part": self._part("", ())})]

    def delta(self, text: str) -> Frames:
        """See `Part`."""
        self._pieces.append(text)
        return [(f"response.{self._kind}.delta", {**self._where, "delta": text, **self._more})]

    def end(self, ended: PartEnded) -> Frames:
        """See `Part`. Citations are told where they are in this protocol's form."""
        text = "".join(self._pieces)
        notes = () if self._refusal else tuple(note for note in ended.annotations if native_citation(note))
        part = self._part(text, notes)
        self.item = message_item(self._id, [part], phase=self._phase)
        cited: Frames = [
            ("response.output_text.annotation.added", {**self._where, "annotation_index": at, "annotation": note})
            for at, note in enumerate(notes)
        ]
        field = "refusal" if self._refusal else "text"
        return [
            *cited,
            (f"response.{self._kind}.done", {**self._where, field: text, **self._more}),
            ("response.content_part.done", {**self._where, "part": part}),
            self._place.done(self.item),
        ]

    @property
    def _kind(self) -> str:
        return "refusal" if self._refusal else "output_text"

    @property
    def _where(self) -> Object:
        return {"item_id": self._id, "output_index": self._place.index, "content_index": 0}

    @property
    def _more(self) -> Object:
        return {} if self._refusal else {"logprobs": []}

    def _part(self, text: str, notes: tuple[Mapping[str, object], ...]) -> Object:
        return refusal_part(text) if self._refusal else text_part(text, notes)


class Thought:
    """Thoughts: what may be read of them as a summary, and the opaque value, in an envelope where it is another's."""

    __slots__ = ("_id", "_item_id", "_pieces", "_place", "item")

    def __init__(self, place: Place, started: PartStarted) -> None:
        self.item: Object | None = None
        self._place = place
        self._item_id = started.item_id
        own = place.target.origin in {None, Protocol.RESPONSES} and started.item_id
        # Thoughts are encrypted together with their id.
        self._id = started.item_id if own and started.item_id else place.identity.item_id("rs", place.index)
        self._pieces: list[str] = []

    def begin(self) -> Frames:
        """See `Part`."""
        return [self._place.added(reasoning_item(self._id, "", None))]

    def delta(self, text: str) -> Frames:
        """See `Part`. The summary begins with its first piece: thoughts may have none."""
        first: Frames = []
        if not self._pieces:
            first = [("response.reasoning_summary_part.added", {**self._where, "part": _summary("")})]
        self._pieces.append(text)
        return [*first, ("response.reasoning_summary_text.delta", {**self._where, "delta": text})]

    def end(self, ended: PartEnded) -> Frames:
        """See `Part`."""
        text = "".join(self._pieces)
        self.item = reasoning_item(self._id, text, self._carried(text, ended))
        told: Frames = []
        if self._pieces:
            told = [
                ("response.reasoning_summary_text.done", {**self._where, "text": text}),
                ("response.reasoning_summary_part.done", {**self._where, "part": _summary(text)}),
            ]
        return [*told, self._place.done(self.item)]

    def _carried(self, text: str, ended: PartEnded) -> str | None:
        target = self._place.target
        origin, foreign = target.origin or Protocol.RESPONSES, target.origin not in {None, Protocol.RESPONSES}
        if not is_plain(text, ended, target) and (ended.opaque is None or not foreign):
            return ended.opaque
        envelope = Envelope(
            origin, target.binding, text, ended.opaque or "", item_id=self._item_id or "", redacted=ended.redacted
        )
        return seal(envelope)

    @property
    def _where(self) -> Object:
        return {"item_id": self._id, "output_index": self._place.index, "summary_index": 0}


@dataclass(frozen=True, slots=True)
class _CallForm:
    """How one kind of call is written."""

    item_type: str
    id_prefix: str
    field: str
    event: str


_FUNCTION = _CallForm("function_call", "fc", "arguments", "response.function_call_arguments")
_CUSTOM = _CallForm("custom_tool_call", "ctc", "input", "response.custom_tool_call_input")


class Called:
    """A call of a function or of a freeform tool."""

    __slots__ = ("_call", "_form", "_id", "_pieces", "_place", "item")

    def __init__(self, place: Place, call: ToolCall) -> None:
        self.item: Object | None = None
        self._place = place
        self._call = call
        self._form = _CUSTOM if call.tool.custom else _FUNCTION
        self._id = place.identity.item_id(self._form.id_prefix, place.index)
        self._pieces: list[str] = []

    def begin(self) -> Frames:
        """See `Part`."""
        return [self._place.added(self._item("", "in_progress"))]

    def delta(self, text: str) -> Frames:
        """See `Part`."""
        self._pieces.append(text)
        return [(f"{self._form.event}.delta", {**self._where, "delta": text})]

    def end(self, ended: PartEnded) -> Frames:
        """See `Part`. A function without arguments has an empty object of them: clients decode it."""
        del ended
        missing = not any(self._pieces) and not self._call.tool.custom
        added = self.delta(_NO_ARGUMENTS) if missing else []
        text = "".join(self._pieces)
        self.item = self._item(text, "completed")
        return [
            *added,
            (f"{self._form.event}.done", {**self._where, self._form.field: text}),
            self._place.done(self.item),
        ]

    def _item(self, text: str, status: str) -> Object:
        tool = self._call.tool
        return {
            "id": self._id,
            "type": self._form.item_type,
            "status": status,
            self._form.field: text,
            "call_id": self._call.call_id,
            "name": tool.name,
            **({"namespace": tool.namespace} if tool.namespace else {}),
        }

    @property
    def _where(self) -> Object:
        return {"item_id": self._id, "output_index": self._place.index}


class Searched:
    """A call of the search that the client runs itself: an item of its own kind, which is told whole."""

    __slots__ = ("_call_id", "_id", "_pieces", "_place", "item")

    def __init__(self, place: Place, call: ToolCall) -> None:
        self.item: Object | None = None
        self._place = place
        self._call_id = call.call_id
        self._id = place.identity.item_id("tsc", place.index)
        self._pieces: list[str] = []

    def begin(self) -> Frames:
        """See `Part`."""
        return [self._place.added(self._item({}, "in_progress"))]

    def delta(self, text: str) -> Frames:
        """See `Part`."""
        self._pieces.append(text)
        return []

    def end(self, ended: PartEnded) -> Frames:
        """See `Part`. Arguments that are no JSON go out as the text they are."""
        del ended
        text = "".join(self._pieces) or _NO_ARGUMENTS
        arguments = decode(text.encode("utf-8", "replace"))
        self.item = self._item(text if arguments is None else arguments, "completed")
        return [self._place.done(self.item)]

    def _item(self, arguments: object, status: str) -> Object:
        return {
            "id": self._id,
            "type": "tool_search_call",
            "status": status,
            "execution": "client",
            "call_id": self._call_id,
            "arguments": arguments,
        }


def _summary(text: str) -> Object:
    return {"type": "summary_text", "text": text}


def _called(place: Place, started: PartStarted) -> Part:
    call = started.call or ToolCall("", CLIENT_SEARCH, "")
    return Searched(place, call) if call.tool == CLIENT_SEARCH else Called(place, call)


PARTS: Mapping[PartKind, Callable[[Place, PartStarted], Part]] = {
    PartKind.TEXT: Spoken,
    PartKind.REFUSAL: Spoken,
    PartKind.THINKING: Thought,
    PartKind.TOOL_CALL: _called,
}
"""How each kind of part is written."""
