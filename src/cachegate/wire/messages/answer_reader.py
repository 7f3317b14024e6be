"""Reads an answer of the Messages API into the hub's events, streamed or whole."""

from collections.abc import Iterator

import msgspec

from cachegate.guard.usage import Usage
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
)
from cachegate.wire.messages.provider_errors import broken_by
from cachegate.wire.sse import SseEvent
from cachegate.wire.tool_names import MESSAGES_CHARS_MAX, ToolNames
from cachegate.wire.usage_readings import (
    READINGS,
    UNKNOWN,
    Fields,
    Format,
    Measurement,
    count,
    fields,
    items,
    reading_of,
)

STOPS = {
    "end_turn": Stop.END,
    "max_tokens": Stop.MAX_TOKENS,
    "model_context_window_exceeded": Stop.CONTEXT_FULL,
    "pause_turn": Stop.PAUSE,
    "refusal": Stop.REFUSAL,
    "stop_sequence": Stop.STOP_SEQUENCE,
    "tool_use": Stop.TOOL_CALLS,
}
"""Reasons to stop. One that is new is taken for the end, or for the wish to have the tools called that were called."""

KINDS = {
    "text": PartKind.TEXT,
    "thinking": PartKind.THINKING,
    "redacted_thinking": PartKind.THINKING,
    "tool_use": PartKind.TOOL_CALL,
}
"""Blocks that are a part of the answer. Others belong to tools of Anthropic's own servers, and are passed over."""

_TEXT_FIELDS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
"""Deltas that say more of their block, and the field that does."""


class _RawBlock(msgspec.Struct):
    input: msgspec.Raw = msgspec.Raw()


class _RawMessage(msgspec.Struct):
    content: list[_RawBlock]


_USUAL = "anthropic"
_RAW_INPUTS = msgspec.json.Decoder(_RawMessage)


class _OpenBlock:
    """A block that is not complete yet, as a part of the answer."""

    __slots__ = ("arguments", "citations", "fields", "is_custom", "part", "said", "signature")

    def __init__(self, part: int, block: Fields, *, is_custom: bool) -> None:
        self.part = part
        self.fields = block
        self.is_custom = is_custom
        """A call of a custom tool: its arguments are unwrapped when they are complete."""
        self.arguments = ""
        self.citations = [citation for citation in items(block.get("citations")) if isinstance(citation, dict)]
        self.said = False
        self.signature = _word(block.get("signature")) or _word(block.get("data"))

    def begin(self) -> Iterator[Event]:
        """Yield what a block says already where it begins: all of it in a whole answer, nothing in most streams."""
        text = _word(self.fields.get("text")) or _word(self.fields.get("thinking"))
        if text:
            yield Delta(self.part, text)

    def more(self, delta: Fields) -> Iterator[Event]:
        """Yield what a delta says."""
        kind = delta.get("type")
        name = _TEXT_FIELDS.get(kind) if isinstance(kind, str) else None
        text = "" if name is None else _word(delta.get(name))
        if text and self.is_custom:
            self.arguments += text
        elif text:
            yield Delta(self.part, text)
        self.said = self.said or bool(text)
        if kind == "signature_delta":
            self.signature = _word(delta.get("signature")) or self.signature
        elif kind == "citations_delta" and isinstance(citation := delta.get("citation"), dict):
            self.citations.append(citation)

    def end(self) -> Iterator[Event]:
        """Yield the rest, and that the block is complete."""
        given = self.fields.get("input")
        if isinstance(given, dict) and given and not self.said:
            whole = encode(given).decode()
            yield Delta(self.part, unwrap(whole) if self.is_custom else whole)
        elif self.is_custom and self.arguments:
            yield Delta(self.part, unwrap(self.arguments))
        yield PartEnded(
            self.part,
            opaque=self.signature or None,
            redacted=self.fields.get("type") == "redacted_thinking",
            annotations=tuple(self.citations),
        )


class AnswerReader:
    """Reads one answer; see `codec.StreamReader`."""

    __slots__ = ("_blocks", "_called", "_measurement", "_names", "_over", "_parts", "_stop", "_stop_sequence")

    def __init__(self, request: Request, target: Target) -> None:
        spoken = Format.MESSAGES in READINGS.get(target.readings or "", {})
        readings = target.readings if spoken and target.readings else _USUAL
        self._names = ToolNames(request, MESSAGES_CHARS_MAX)
        self._measurement = Measurement(reading_of(readings, Format.MESSAGES, zero_is_unknown=target.zero_is_unknown))
        self._blocks: dict[object, _OpenBlock] = {}
        self._parts = 0
        self._called = False
        self._stop = ""
        self._stop_sequence: str | None = None
        self._over = False

    def read(self, event: SseEvent) -> tuple[Event, ...]:
        """See `codec.StreamReader.read`."""
        data = fields(decode(event.data))
        if breaks_off(event.name, data) and not self._over:
            self._over = True
            return (broken_by(data),)
        # An event of a vendor's own may hold anything, also what looks like one of the protocol's.
        ours = event.name in {b"", _word(data.get("type")).encode("utf-8", "replace")}
        return tuple(self.events(data)) if ours else ()

    def end(self) -> tuple[Event, ...]:
        """Return nothing: the protocol has an event for its end, and without it the answer was cut."""
        return ()

    def events(self, data: Fields) -> Iterator[Event]:
        """Yield what one event says."""
        if self._over:
            return
        match data.get("type"):
            case "message_start":
                message = fields(data.get("message"))
                known = self._measured(message.get("usage"))
                yield Started(_word(message.get("id")), _word(message.get("model")), usage=known)
            case "content_block_start":
                yield from self._begin(_number(data), fields(data.get("content_block")))
            case "content_block_delta":
                block = self._blocks.get(_number(data))
                yield from () if block is None else block.more(fields(data.get("delta")))
            case "content_block_stop":
                block = self._blocks.pop(_number(data), None)
                yield from () if block is None else block.end()
            case "message_delta":
                yield from self._message_delta(data)
            case "message_stop":
                self._over = True
                yield from self._end()

    def _begin(self, number: int, block: Fields) -> Iterator[Event]:
        kind = KINDS.get(_word(block.get("type")))
        if kind is None or number in self._blocks:
            return
        call = None
        if kind is PartKind.TOOL_CALL:
            self._called = True
            call = ToolCall(_word(block.get("id")), self._names.ref(_word(block.get("name"))), "")
        opened = _OpenBlock(self._parts, block, is_custom=call is not None and call.tool.custom)
        self._blocks[number] = opened
        self._parts += 1
        yield PartStarted(opened.part, kind, call)
        yield from opened.begin()

    def _message_delta(self, data: Fields) -> Iterator[Event]:
        delta, usage = fields(data.get("delta")), fields(data.get("usage"))
        self._stop = _word(delta.get("stop_reason")) or self._stop
        self._stop_sequence = _word(delta.get("stop_sequence")) or self._stop_sequence
        yield from self._explained(fields(delta.get("stop_details")))
        if usage:
            self._measured(usage)
            details = fields(usage.get("output_tokens_details"))
            yield Counted(
                self._measurement.usage, count(usage.get("output_tokens")), count(details.get("thinking_tokens"))
            )

    def _explained(self, details: Fields) -> Iterator[Event]:
        """Yield the provider's explanation of a refusal, the only words there are where it refused before any."""
        explanation = _word(details.get("explanation"))
        if explanation:
            yield from self._end_blocks()
            yield PartStarted(self._parts, PartKind.REFUSAL)
            yield Delta(self._parts, explanation)
            yield PartEnded(self._parts)
            self._parts += 1

    def _end(self) -> Iterator[Event]:
        yield from self._end_blocks()
        stop = STOPS.get(self._stop, Stop.TOOL_CALLS if self._called else Stop.END)
        yield Ended(stop, self._stop_sequence)

    def _end_blocks(self) -> Iterator[Event]:
        for block in self._blocks.values():
            yield from block.end()
        self._blocks.clear()

    def _measured(self, usage: object) -> Usage | None:
        known = self._measurement.add(fields(usage))
        return None if known == UNKNOWN else known


def read_body(request: Request, target: Target, body: bytes) -> tuple[Event, ...]:
    """Read an unstreamed answer: as the stream in which each block comes whole."""
    message = fields(decode(body))
    if message.get("type") != "message":
        return (broken_by(message),)
    reader = AnswerReader(request, target)
    return tuple(event for data in _as_stream(message, _inputs(body)) for event in reader.events(data))


def _as_stream(message: Fields, inputs: list[str]) -> Iterator[Json]:
    # Usage comes at the end only: what a whole answer counts is not counted twice.
    yield {"type": "message_start", "message": {**message, "usage": None}}
    for number, block in enumerate(items(message.get("content"))):
        yield {"type": "content_block_start", "index": number, "content_block": block}
        if number < len(inputs) and inputs[number]:
            delta = {"type": "input_json_delta", "partial_json": inputs[number]}
            yield {"type": "content_block_delta", "index": number, "delta": delta}
        yield {"type": "content_block_stop", "index": number}
    yield {"type": "message_delta", "delta": message, "usage": message.get("usage")}
    yield {"type": "message_stop"}


def _inputs(body: bytes) -> list[str]:
    """Return what each block has as `input`, as it stands in the answer: the model's own spelling."""
    try:
        return [bytes(block.input).decode() for block in _RAW_INPUTS.decode(body).content]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []


def _number(data: Fields) -> int:
    return count(data.get("index")) or 0


def _word(value: object) -> str:
    return value if isinstance(value, str) else ""
