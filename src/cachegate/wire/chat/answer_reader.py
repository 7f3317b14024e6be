"""Reads a Chat upstream's answer into events, streamed or whole.

Servers differ in everything that the protocol leaves open: a stream ends with `[DONE]` or just so; usage comes in every
chunk, in the last one, in a choice or behind it; thoughts have two names and a list of details.
"""

import itertools
from collections.abc import Iterator

from blake3 import blake3

from cachegate.errors import ErrorKind
from cachegate.wire.body import decode, encode
from cachegate.wire.chat import thoughts
from cachegate.wire.chat.call_reader import CallReader
from cachegate.wire.chat.errors import BREAKS, read_broken
from cachegate.wire.failures import told
from cachegate.wire.hub import (
    Broken,
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
)
from cachegate.wire.sse import ERROR, SseEvent
from cachegate.wire.tool_names import OPENAI_CHARS_MAX, ToolNames
from cachegate.wire.usage_readings import READINGS, Fields, Format, Measurement, count, fields, items, reading_of

STOPS = {
    "stop": Stop.END,
    "end_turn": Stop.END,
    "eos": Stop.END,
    "eos_token": Stop.END,
    "tool_calls": Stop.TOOL_CALLS,
    "function_call": Stop.TOOL_CALLS,
    "tool_use": Stop.TOOL_CALLS,
    "length": Stop.MAX_TOKENS,
    "max_tokens": Stop.MAX_TOKENS,
    "model_length": Stop.MAX_TOKENS,  # Mistral
    "stop_sequence": Stop.STOP_SEQUENCE,
    "refusal": Stop.REFUSAL,
    "content_filter": Stop.CONTENT_FILTER,
    "sensitive": Stop.CONTENT_FILTER,  # Z.ai
    "SAFETY": Stop.CONTENT_FILTER,
    "PROHIBITED_CONTENT": Stop.CONTENT_FILTER,
    "model_context_window_exceeded": Stop.CONTEXT_FULL,
}
"""Reasons to finish; any other word is taken for a usual end."""
_USUAL = "openai-compatible"
_DONE = b"[DONE]"
_DIGEST_CHARS = 24


class ChatStreamReader:
    """See `codec.StreamReader`."""

    __slots__ = (
        "_annotations", "_answer_id", "_calls", "_counted", "_details", "_kind", "_measurement", "_numbers", "_over",
        "_part", "_reason",
        "_refused", "_request", "_said", "_started", "_stop_sequence", "_target", "_thoughts_in",
    )  # fmt: skip

    def __init__(self, request: Request, target: Target) -> None:
        self._request = request
        self._target = target
        spoken = Format.CHAT in READINGS.get(target.readings or "", {})
        readings = target.readings if spoken and target.readings else _USUAL
        self._measurement = Measurement(reading_of(readings, Format.CHAT, zero_is_unknown=target.zero_is_unknown))
        self._counted: Counted | None = None
        self._numbers = itertools.count()
        self._calls = CallReader(ToolNames(request, OPENAI_CHARS_MAX), self._numbers)
        self._answer_id = ""
        self._started = self._over = self._refused = False
        self._reason: str | None = None
        self._stop_sequence: str | None = None
        self._kind: PartKind | None = None
        """Of the open part; calls are open beside it."""
        self._part = 0
        self._said = False
        """The open part has text."""
        self._thoughts_in = thoughts.PLAIN[0]
        self._details: list[object] = []
        self._annotations: list[Json] = []

    def read(self, event: SseEvent) -> tuple[Event, ...]:
        """Return what one event of the stream says."""
        if self._over:
            return ()
        if event.data.strip() == _DONE:
            return tuple(self._done())
        if event.name == ERROR:
            return tuple(self._broken(told(event.data)))
        data = decode(event.data)
        if _is_error(data):
            return tuple(self._broken(data))
        return tuple(self._chunk(data)) if isinstance(data, dict) else ()

    def end(self) -> tuple[Event, ...]:
        """Return what is still to be said: many servers leave `[DONE]` out. Without a reason the stream was cut."""
        return () if self._over or self._reason is None else tuple(self._done())

    def read_whole(self, body: bytes) -> tuple[Event, ...]:
        """Return what an unstreamed answer says."""
        data = decode(body)
        if _is_error(data):
            return tuple(self._broken(data))
        if not isinstance(data, dict) or not items(data.get("choices")):
            return (_no_answer("The provider's answer is no chat completion."),)
        events = tuple(self._chunk(data))
        return events if self._over else (*events, *self._done())

    def _chunk(self, chunk: Fields) -> Iterator[Event]:
        choices = [fields(choice) for choice in items(chunk.get("choices"))]
        choice = next((choice for choice in choices if not choice.get("index")), None)
        if choice is not None:
            yield from self._start(chunk)
        yield from self._count(chunk, choices)
        if choice is None:
            return
        yield from self._delta(choice)
        reason = choice.get("finish_reason")
        if not isinstance(reason, str) or not reason:
            return
        if reason in BREAKS:
            error = choice.get("error") or {"code": reason, "message": f"The provider broke off: {reason}."}
            yield from self._broken({"error": error})
            return
        self._reason = reason
        matched = choice.get("stop_reason") or choice.get("matched_stop")  # vLLM, SGLang
        if isinstance(matched, str) and matched in self._request.sampling.stop:
            self._stop_sequence = matched
        yield from self._close()
        yield from self._calls.end()

    def _start(self, chunk: Fields) -> Iterator[Event]:
        if self._started:
            return
        self._started = True
        answer_id, model = chunk.get("id"), chunk.get("model")
        digest = blake3(encode(chunk)).hexdigest()[:_DIGEST_CHARS]
        self._answer_id = answer_id if isinstance(answer_id, str) and answer_id else digest
        model = model if isinstance(model, str) and model else self._target.model
        yield Started(self._answer_id, model, count(chunk.get("created")))

    def _count(self, chunk: Fields, choices: list[Fields]) -> Iterator[Event]:
        """Read usage wherever it stands: Moonshot puts it into the choice, llama.cpp has timings beside it."""
        places = (*(choice.get("usage") for choice in choices), chunk.get("usage"))
        reports = [place for place in places if isinstance(place, dict)]
        timings = chunk.get("timings")
        if isinstance(timings, dict):
            reports = [{**report, "timings": timings} for report in reports or [{}]]
        for report in reports:
            self._measurement.add(report)
            before = self._counted or Counted(self._measurement.usage)
            filled = report.get("prompt_tokens") != 0  # else all of it is a placeholder
            output = count(report.get("completion_tokens")) if filled else None
            reasoning = count(fields(report.get("completion_tokens_details")).get("reasoning_tokens"))
            counted = Counted(
                self._measurement.usage,
                before.output_tokens if output is None else output,
                before.reasoning_tokens if reasoning is None or not filled else reasoning,
            )
            if counted != self._counted:
                self._counted = counted
                yield counted

    def _delta(self, choice: Fields) -> Iterator[Event]:
        message = fields(choice.get("message"))
        delta = fields(choice.get("delta")) or message
        yield from self._thoughts(delta)
        content = delta.get("content")
        for kind, text in [(PartKind.TEXT, content)] if isinstance(content, str) else _mistral_parts(content):
            yield from self._say(kind, text)
        refusal = delta.get("refusal")
        if isinstance(refusal, str) and refusal:
            self._refused = True
            yield from self._say(PartKind.REFUSAL, refusal)
        self._annotations += [note for note in items(delta.get("annotations")) if isinstance(note, dict)]
        calls = items(delta.get("tool_calls"))
        if delta is message:
            calls = [{**fields(call), "index": index} for index, call in enumerate(calls)]
        if isinstance(delta.get("function_call"), dict):
            calls = [{"index": 0, "function": delta["function_call"]}]
        if calls:
            yield from self._close()
            yield from self._calls.read(calls, self._answer_id)

    def _thoughts(self, delta: Fields) -> Iterator[Event]:
        name, text = thoughts.plain_text(delta)
        details = items(delta.get(thoughts.DETAILS))
        text = text or thoughts.text_of_details(details)
        if not text and not details:
            return
        yield from self._open(PartKind.THINKING)
        self._details = thoughts.joined(self._details, details)
        self._thoughts_in = name or self._thoughts_in
        yield from self._say(PartKind.THINKING, text)

    def _say(self, kind: PartKind, text: str) -> Iterator[Event]:
        if text:
            yield from self._open(kind)
            self._said = True
            yield Delta(self._part, text)

    def _open(self, kind: PartKind) -> Iterator[Event]:
        if self._kind is kind:
            return
        yield from self._close()
        yield from self._calls.end_complete()
        self._kind, self._part, self._said = kind, next(self._numbers), False
        yield PartStarted(self._part, kind)

    def _close(self) -> Iterator[Event]:
        kind, self._kind = self._kind, None
        if kind is PartKind.THINKING:
            opaque = thoughts.opaque_of_details(self._details) if self._details else self._thoughts_in
            self._details = []
            yield PartEnded(self._part, opaque, redacted=not self._said)
        elif kind is not None:
            annotations, self._annotations = tuple(self._annotations), []
            yield PartEnded(self._part, annotations=annotations)

    def _done(self) -> Iterator[Event]:
        self._over = True
        if not self._started:
            yield _no_answer("The provider ended the stream without an answer.")
            return
        yield from self._close()
        yield from self._calls.end()
        yield Ended(self._stop(), self._stop_sequence)

    def _stop(self) -> Stop:
        """Return why the model stopped: calls are known by themselves, for some servers say `stop` after them."""
        stop = STOPS.get(self._reason or "", Stop.END)
        if self._stop_sequence is not None:
            return Stop.STOP_SEQUENCE
        if stop not in {Stop.END, Stop.TOOL_CALLS}:
            return stop
        if self._calls.made:
            return Stop.TOOL_CALLS
        return Stop.REFUSAL if self._refused else Stop.END

    def _broken(self, data: object) -> Iterator[Event]:
        """End the answer as failed; what it had cost until then is told first."""
        self._over = True
        choices = [fields(choice) for choice in items(fields(data).get("choices"))]
        if self._started:
            yield from self._count(fields(data), choices)
        yield read_broken(data)


def _no_answer(message: str) -> Broken:
    return Broken(ErrorKind.UPSTREAM, 502, "no_answer", message)


def _is_error(data: object) -> bool:
    """Whether a chunk is an error: `error` as an object or a text, or the whole thing, as vLLM writes it."""
    return bool(fields(data).get("error")) or fields(data).get("object") == "error"


def _mistral_parts(content: object) -> Iterator[tuple[PartKind, str]]:
    """Yield the parts of a content that is a list, which Mistral's reasoning models send."""
    for part in map(fields, items(content)):
        text = part.get("text")
        if part.get("type") == "thinking":
            pieces = (fields(piece).get("text") for piece in items(part.get("thinking")))
            yield PartKind.THINKING, "".join(piece for piece in pieces if isinstance(piece, str))
        elif isinstance(text, str):
            yield PartKind.TEXT, text
