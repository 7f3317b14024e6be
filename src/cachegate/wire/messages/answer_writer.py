"""Writes an answer in the Messages API's words from the hub's events, streamed or whole."""

from typing import assert_never

from blake3 import blake3

from cachegate.guard.usage import Usage
from cachegate.wire.body import encode
from cachegate.wire.hub import (
    Broken,
    Counted,
    Delta,
    Ended,
    Event,
    Json,
    PartEnded,
    PartStarted,
    Request,
    Started,
    Stop,
    Target,
)
from cachegate.wire.messages.answer_parts import AnswerPart, AnswerParts
from cachegate.wire.messages.provider_errors import error_event
from cachegate.wire.sse import frame

STOP_REASONS = {
    Stop.END: "end_turn",
    Stop.TOOL_CALLS: "tool_use",
    Stop.MAX_TOKENS: "max_tokens",
    Stop.STOP_SEQUENCE: "stop_sequence",
    Stop.REFUSAL: "refusal",
    Stop.CONTENT_FILTER: "refusal",
    Stop.PAUSE: "pause_turn",
    Stop.CONTEXT_FULL: "model_context_window_exceeded",
}

_ID_PREFIX, _DIGEST_CHARS = "msg_", 24


class AnswerWriter:
    """Writes one answer; see `codec.StreamWriter`.

    Blocks of Messages never overlap. Where the parts of parallel calls do, the later one waits for the one before it.
    """

    __slots__ = ("_blocks", "_counts", "_over", "_parts", "_request")

    def __init__(self, request: Request, target: Target) -> None:
        self._request = request
        self._parts = AnswerParts(request, target)
        self._counts = Counted(Usage())
        self._over = False
        self._blocks = 0
        """How many were begun."""

    def write(self, event: Event) -> bytes:
        """See `codec.StreamWriter.write`."""
        return b"".join(self.frames(event))

    def frames(self, event: Event) -> list[bytes]:
        """Return the events, each for itself. Nothing follows an end."""
        if self._over:
            return []
        self._over = isinstance(event, Ended | Broken)
        match event:
            case Started():
                return [self._begin(event)]
            case Counted():
                self._counts = _updated(self._counts, event)
                return []
            case PartStarted() | Delta() | PartEnded():
                self._parts.take(event)
                return self._advance()
            case Ended():
                self._parts.end()
                usage = _usage(self._counts)
                # The SDK's type of this event requires `output_tokens`; unknown, it stays at what the beginning said.
                usage = {**usage, "output_tokens": usage.get("output_tokens", 0)}
                delta = _stop(event, self._parts)
                return [*self._advance(), _event("message_delta", delta=delta, usage=usage), _event("message_stop")]
            case Broken():
                return [error_event(event)]
            case _:
                assert_never(event)

    def _begin(self, started: Started) -> bytes:
        message = _message(started, self._request)
        self._parts.name(started.answer_id)
        if started.usage is not None:
            self._counts = _updated(self._counts, Counted(started.usage))
        # The SDK's type of this event requires both counts. A zero input is what Anthropic's clients know as "later".
        counts = _input_counts(self._counts.usage)
        usage = {**(counts if "input_tokens" in counts else {"input_tokens": 0}), "output_tokens": 0}
        unfinished: Json = {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        return _event("message_start", message={**message, **unfinished})

    def _advance(self) -> list[bytes]:
        """Return what can be written of the first part, and of those behind it that it held up."""
        frames: list[bytes] = []
        for index, part in list(self._parts.under_way.items()):
            frames += self._frames_of(part)
            if not part.ended:
                break
            del self._parts.under_way[index]
        return frames

    def _frames_of(self, part: AnswerPart) -> list[bytes]:
        if part.is_held_back or part.is_empty:
            return []
        frames: list[bytes] = []
        if not part.begun:
            part.begun = True
            frames.append(_event("content_block_start", index=self._blocks, content_block=part.beginning()))
            self._blocks += 1
        number = self._blocks - 1
        deltas = [*part.new_deltas(), *(part.last_deltas() if part.ended else [])]
        frames += [_event("content_block_delta", index=number, delta=delta) for delta in deltas]
        return [*frames, _event("content_block_stop", index=number)] if part.ended else frames


def write_body(request: Request, target: Target, events: tuple[Event, ...]) -> bytes:
    """Write an unstreamed answer from all of its events."""
    parts, counts = AnswerParts(request, target), Counted(Usage())
    message, stop = _message(Started("", ""), request), _stop(Ended(Stop.END), parts)
    for event in events:
        match event:
            case Started():
                message = _message(event, request)
                parts.name(event.answer_id)
                counts = counts if event.usage is None else _updated(counts, Counted(event.usage))
            case Counted():
                counts = _updated(counts, event)
            case PartStarted() | Delta() | PartEnded():
                parts.take(event)
            case Ended():
                stop = _stop(event, parts)
            case Broken():
                return error_event(event)
            case _:
                assert_never(event)
    parts.end()
    content = [part.whole() for part in parts.under_way.values() if not part.is_empty]
    return encode({**message, "content": content, **stop, "usage": _usage(counts)})


def _event(name: str, **fields: object) -> bytes:
    return frame(name, encode({"type": name, **fields}))


def _message(started: Started, request: Request) -> Json:
    """Return what is known from the beginning. An answer without an id gets the same one whenever it is written."""
    given = started.answer_id or blake3(request.model.encode("utf-8", "replace")).hexdigest()[:_DIGEST_CHARS]
    return {
        "id": given if given.startswith(_ID_PREFIX) else f"{_ID_PREFIX}{given}",
        "type": "message",
        "role": "assistant",
        "model": started.model or request.model,
    }


def _stop(ended: Ended, parts: AnswerParts) -> Json:
    """Return why the answer ended. Some servers call every end a plain one, whatever they said before."""
    reason = STOP_REASONS[ended.stop]
    if ended.stop is Stop.END:
        reason = STOP_REASONS[Stop.TOOL_CALLS] if parts.called else reason
        reason = STOP_REASONS[Stop.REFUSAL] if parts.refused else reason
    return {"stop_reason": reason, "stop_sequence": ended.stop_sequence if ended.stop is Stop.STOP_SEQUENCE else None}


def _updated(counts: Counted, newer: Counted) -> Counted:
    """Return the newer counts; what they do not know stays as it was known."""
    output, reasoning = newer.output_tokens, newer.reasoning_tokens
    return Counted(
        counts.usage.updated(newer.usage),
        counts.output_tokens if output is None else output,
        counts.reasoning_tokens if reasoning is None else reasoning,
    )


def _usage(counts: Counted) -> dict[str, object]:
    """Return what is known, and nothing else: a client must not take the unknown for 0."""
    output, reasoning = counts.output_tokens, counts.reasoning_tokens
    return {
        **_input_counts(counts.usage),
        **({} if output is None else {"output_tokens": output}),
        **({} if reasoning is None else {"output_tokens_details": {"thinking_tokens": reasoning}}),
    }


def _input_counts(usage: Usage) -> dict[str, int]:
    """Return the input counts: Anthropic counts read and written tokens beside the fresh ones."""
    read, write = usage.cached_read, usage.cache_write
    if usage.input_total is not None and (read or 0) + (write or 0) > usage.input_total:
        # Not parts of one whole, so at least the written ones are counted in another way than Anthropic does.
        write = None
        read = None if (read or 0) > usage.input_total else read
    counts = {"cache_read_input_tokens": read, "cache_creation_input_tokens": write}
    known = {name: value for name, value in counts.items() if value is not None}
    fresh = {} if usage.input_total is None else {"input_tokens": usage.input_total - sum(known.values())}
    return {**fresh, **known}
