"""The parts of an answer on their way to a client of the Messages API: what a stream and a whole answer are made of."""

from dataclasses import replace
from typing import assert_never

from blake3 import blake3

from cachegate.wire.custom_tools import wrap
from cachegate.wire.envelopes import Envelope, seal
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import Delta, Json, PartEnded, PartKind, PartStarted, Request, Target, ToolCall, ToolRef
from cachegate.wire.messages.content_renderer import tool_input
from cachegate.wire.plain_thoughts import is_plain
from cachegate.wire.tool_names import MESSAGES_CHARS_MAX, ToolNames

PartEvent = PartStarted | Delta | PartEnded

_DELTAS = {
    PartKind.TEXT: ("text_delta", "text"),
    PartKind.REFUSAL: ("text_delta", "text"),
    PartKind.THINKING: ("thinking_delta", "thinking"),
    PartKind.TOOL_CALL: ("input_json_delta", "partial_json"),
}
"""Type of a part's deltas, and the field that holds its text."""

_CALL_PREFIX, _DIGEST_CHARS = "toolu_", 24


class AnswerPart:
    """One part, as far as it was said, and how much of it was written."""

    __slots__ = ("_call", "_written", "begun", "citations", "ended", "item_id", "kind", "opaque", "pieces", "redacted")

    def __init__(self, started: PartStarted, call: ToolCall) -> None:
        self._call = call
        """With the id and name that the client gets."""
        self._written = 0
        self.begun = False
        """Its block was begun."""
        self.citations: tuple[Json, ...] = ()
        self.ended = False
        self.item_id = started.item_id
        self.kind = started.kind
        self.opaque: str | None = None
        """Of a thought: the value that the client hands back."""
        self.pieces: list[str] = []
        self.redacted = False

    @property
    def text(self) -> str:
        """All that was said."""
        return "".join(self.pieces)

    @property
    def is_held_back(self) -> bool:
        """Whether nothing can be written yet: a thought may turn out to be redacted, or to be none."""
        return self.kind is PartKind.THINKING and not self.ended and not any(self.pieces)

    @property
    def is_empty(self) -> bool:
        """Whether it is a thought without words, and without anything to hand back."""
        return self.kind is PartKind.THINKING and self.ended and self.opaque is None and not any(self.pieces)

    def beginning(self) -> Json:
        """Return the block as a stream begins it."""
        match self.kind:
            case PartKind.TEXT | PartKind.REFUSAL:
                return {"type": "text", "text": ""}
            case PartKind.THINKING:
                return self._redacted() if self.redacted else {"type": "thinking", "thinking": "", "signature": ""}
            case PartKind.TOOL_CALL:
                return {**self._named(), "input": {}}
            case _:
                assert_never(self.kind)

    def new_deltas(self) -> list[Json]:
        """Return what was said since the last time; the input of a custom tool when it is complete."""
        kind, name = _DELTAS[self.kind]
        if self._call.tool.custom:
            return [{"type": kind, name: wrap(self.text)}] if self.ended else []
        pieces, self._written = self.pieces[self._written :], len(self.pieces)
        return [] if self.redacted else [{"type": kind, name: piece} for piece in pieces]

    def last_deltas(self) -> list[Json]:
        """Return what only the end of the part told."""
        if self.kind is PartKind.THINKING:
            signed = self.opaque is not None and not self.redacted
            return [{"type": "signature_delta", "signature": self.opaque}] if signed else []
        return [{"type": "citations_delta", "citation": citation} for citation in self.citations]

    def whole(self) -> Json:
        """Return the complete block."""
        match self.kind:
            case PartKind.TEXT | PartKind.REFUSAL:
                return {"type": "text", "text": self.text, **({"citations": self.citations} if self.citations else {})}
            case PartKind.THINKING:
                said = {"type": "thinking", "thinking": self.text, "signature": self.opaque or ""}
                return self._redacted() if self.redacted else said
            case PartKind.TOOL_CALL:
                call = ToolCall(self._call.call_id, self._call.tool, self.text)
                return {**self._named(), "input": tool_input(call)}
            case _:
                assert_never(self.kind)

    def _named(self) -> Json:
        return {"type": "tool_use", "id": self._call.call_id, "name": self._call.tool.name}

    def _redacted(self) -> Json:
        return {"type": "redacted_thinking", "data": self.opaque or ""}


class AnswerParts:
    """The parts of one answer, in the order in which they began."""

    __slots__ = ("_answer_id", "_names", "_target", "called", "refused", "under_way")

    def __init__(self, request: Request, target: Target) -> None:
        self._answer_id = ""
        self._names = ToolNames(request, MESSAGES_CHARS_MAX)
        self._target = target
        self.called = False
        self.refused = False
        self.under_way: dict[int, AnswerPart] = {}
        """Those that are not forgotten yet, by their number."""

    def name(self, answer_id: str) -> None:
        """Set the answer's id, of which those of calls are made that have none."""
        self._answer_id = answer_id

    def take(self, event: PartEvent) -> None:
        """Take in what is said of a part. What is said of no part is passed over."""
        match event:
            case PartStarted():
                self.called = self.called or event.kind is PartKind.TOOL_CALL
                self.refused = self.refused or event.kind is PartKind.REFUSAL
                self.under_way[event.index] = AnswerPart(event, self._call(event))
            case Delta():
                part = self.under_way.get(event.index)
                if part is not None and not part.ended:
                    part.pieces.append(event.text)
            case PartEnded():
                part = self.under_way.get(event.index)
                if part is not None and not part.ended:
                    self._end(part, event)
            case _:
                assert_never(event)

    def end(self) -> None:
        """End what is under way: the answer is over."""
        for index, part in self.under_way.items():
            if not part.ended:
                self._end(part, PartEnded(index))

    @property
    def _foreign(self) -> Protocol | None:
        """The protocol of the upstream, where it is another one."""
        origin = self._target.origin
        return None if origin is Protocol.MESSAGES else origin

    def _call(self, started: PartStarted) -> ToolCall:
        call = started.call or ToolCall("", ToolRef(""), "")
        digest = blake3(f"{self._answer_id}:{started.index}".encode("utf-8", "replace")).hexdigest()
        return replace(
            call,
            call_id=call.call_id or f"{_CALL_PREFIX}{digest[:_DIGEST_CHARS]}",
            tool=replace(call.tool, name=self._names.wire(call.tool)),
        )

    def _end(self, part: AnswerPart, ended: PartEnded) -> None:
        part.ended = True
        thought = part.kind is PartKind.THINKING
        part.redacted = ended.redacted and thought
        plain = thought and is_plain(part.text, ended, self._target)
        if self._foreign is None and not plain:
            part.opaque, part.citations = ended.opaque, ended.annotations
        elif thought and (part.text or ended.opaque is not None):
            # Sealed without a value too: so everybody can tell that it is no signature of Anthropic's.
            envelope = Envelope(
                origin=self._foreign or Protocol.MESSAGES,
                binding=self._target.binding,
                text="" if ended.opaque is None else part.text,
                opaque=ended.opaque or "",
                item_id=part.item_id or "",
                redacted=ended.redacted,
            )
            part.opaque = seal(envelope)
