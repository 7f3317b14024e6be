"""Reads the events of a session while it answers one request, which is one model call and no more.

The runtime goes on by itself where a client of a model would stop: it repeats what failed, compacts what is too long,
and lets the model continue at its output limit. A request of a caller pays for one model call, so the answer is over
with the first; the provider then interrupts the session.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from cachegate.errors import HTTP_STATUS, ErrorKind
from cachegate.wire import overflows, refusals
from cachegate.wire.body import decode, encode
from cachegate.wire.chat.errors import read_error
from cachegate.wire.custom_tools import unwrap, wrap
from cachegate.wire.hub import (
    Broken,
    Counted,
    Delta,
    Ended,
    Event,
    PartEnded,
    PartKind,
    PartStarted,
    Started,
    Stop,
    ToolCall,
    ToolRef,
)
from cachegate.wire.native_events import Calls, CopilotSdkReader
from cachegate.wire.seen import Failed, Finished, Refusal, Seen
from cachegate.wire.sessions import Reason
from cachegate.wire.tool_names import ToolNames
from cachegate.wire.usage_readings import Fields, Format, count, fields, items, reading_of

_STATUSES = {"authentication": 401, "authorization": 403, "quota": 429, "rate_limit": 429}
"""Status of a `session.error.errorType` that came without one."""

_REASONS = {Stop.REFUSAL: Reason.REFUSAL, Stop.MAX_TOKENS: Reason.OUTPUT_LIMIT}

_IDS = ("messageId", "reasoningId", "toolCallId", "apiCallId")
"""What the first event of an answer may be called by; any of them names the answer."""

_FAILURES = frozenset({"model.call_failure", "session.error"})
_EARLY = frozenset({"session.idle", "abort"})

TOO_LONG = "The conversation exceeds the model's context window, and Copilot's runtime wanted to compact it by itself."
"""A runtime that begins to compact has found the context full. Whether to compact is the caller's decision."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What one event says."""

    events: tuple[Event, ...] = ()
    """For the caller."""
    seen: tuple[Seen, ...] = ()
    """For the guard."""
    said: str | None = None
    """Id of the event by which the runtime took in something that the user said."""
    returned: tuple[str, str] | None = None
    """A call that got its result, and the id of the event that says so."""
    answered: str | None = None
    """Id of the event that holds the whole answer."""


class _Part:
    """An output part in the making."""

    __slots__ = ("call", "ended", "index", "kind", "text")

    def __init__(self, index: int, kind: PartKind, call: ToolCall | None = None) -> None:
        self.index = index
        self.kind = kind
        self.call = call
        self.text = ""
        """Arguments of a call so far."""
        self.ended = False

    @property
    def wrapped(self) -> bool:
        return self.call is not None and self.call.tool.custom


class TurnReader:
    """Reads one answer; `over` once it has ended or failed."""

    __slots__ = (
        "_calls",
        "_model",
        "_names",
        "_numbers",
        "_observer",
        "_open",
        "_started",
        "_stop",
        "calls",
        "over",
        "text",
        "why",
    )

    def __init__(self, names: ToolNames, model: str) -> None:
        self._names = names
        self._model = model
        self._observer = CopilotSdkReader(reading_of("copilot-sdk", Format.COPILOT_SDK), Calls())
        self._numbers = itertools.count()
        self._open: _Part | None = None
        """The part of text or thoughts that grows."""
        self._calls: dict[str, _Part] = {}
        self._started = False
        self._stop = Stop.END
        """As far as the reason of its end says; any unknown word is taken for a usual end."""
        self.over = False
        self.why = ""
        """Why the session cannot be gone on with after this answer; "" while nothing is known."""
        self.text = ""
        """Of the whole answer."""
        self.calls: tuple[tuple[str, str, str], ...] = ()
        """Of the whole answer: id, name and arguments of each call."""

    def read(self, event: Fields) -> Heard:
        """Return what an event says; those of sub-agents and all behind the end say nothing."""
        kind, data = event.get("type"), fields(event.get("data"))
        if self.over or event.get("agentId") or not isinstance(kind, str):
            return Heard()
        if kind in _FAILURES:
            return self._failed(_broken(data))
        if kind in _EARLY:
            return self._failed(_early("ended the turn without an answer"))
        if kind == "session.compaction_start":
            return self._failed(Broken(ErrorKind.INVALID, 400, overflows.CODE, TOO_LONG))
        return self._taken(event, kind, data)

    def _taken(self, event: Fields, kind: str, data: Fields) -> Heard:
        """Return what an event of an answer that goes well says."""
        event_id = str(event.get("id"))
        match kind:
            case "user.message":
                return Heard(said=event_id)
            case "tool.execution_complete":
                return Heard(returned=(str(data.get("toolCallId")), event_id))
            case "assistant.usage":
                seen = tuple(item for item in self._observer.read(event) if not isinstance(item, Finished | Failed))
                events = tuple(self._counted(data, seen))
                return Heard(events, (*seen, Finished()) if self.over else seen)
            case "assistant.message":
                return Heard(tuple(self._whole(data)), (Finished(),), answered=event_id)
        return Heard(tuple(self._piece(kind, data)))

    def _piece(self, kind: str, data: Fields) -> Iterator[Event]:
        match kind:
            case "assistant.message_delta":
                yield from self._grow(PartKind.TEXT, data)
            case "assistant.reasoning_delta":
                yield from self._grow(PartKind.THINKING, data)
            case "assistant.tool_call_delta":
                yield from self._call_grows(data)

    def exited(self) -> Heard:
        """Return what is said when the runtime is gone; nothing when the answer was over before."""
        if self.over:
            return Heard()
        return self._failed(_early("ended in the midst of the answer"), Reason.PROCESS_EXITED)

    def _failed(self, broken: Broken, why: str = Reason.PROVIDER_ERROR) -> Heard:
        self.over, self.why = True, why
        refused = refusals.is_refusing_error((broken.code,), broken.message)
        return Heard((broken,), (*((Refusal(),) if refused else ()), Failed(broken.code)))

    def _start(self, data: Fields) -> Iterator[Event]:
        if not self._started:
            self._started = True
            answer_id = next((str(data[name]) for name in _IDS if data.get(name)), "")
            yield Started(answer_id.replace("-", ""), str(data.get("model") or self._model))

    def _grow(self, kind: PartKind, data: Fields) -> Iterator[Event]:
        text = data.get("deltaContent")
        if not isinstance(text, str) or not text:
            return
        yield from self._start(data)
        if self._open is None or self._open.kind is not kind:
            yield from self._close()
            self._open = _Part(next(self._numbers), kind)
            yield PartStarted(self._open.index, kind)
        if kind is PartKind.TEXT:
            self.text += text
        yield Delta(self._open.index, text)

    def _close(self) -> Iterator[Event]:
        if self._open is not None:
            yield PartEnded(self._open.index)
            self._open = None

    def _call_grows(self, data: Fields) -> Iterator[Event]:
        call_id, piece = str(data.get("toolCallId")), data.get("inputDelta")
        if not isinstance(piece, str):
            return
        yield from self._start(data)
        part = self._calls.get(call_id)
        if part is None:
            part = self._new_call(call_id, str(data.get("toolName")))
            yield from self._close()
            yield PartStarted(part.index, PartKind.TOOL_CALL, part.call)
        part.text += piece
        if not part.wrapped:
            yield Delta(part.index, piece)

    def _new_call(self, call_id: str, name: str) -> _Part:
        ref: ToolRef = self._names.ref(name)
        part = _Part(next(self._numbers), PartKind.TOOL_CALL, ToolCall(call_id, ref, ""))
        self._calls[call_id] = part
        return part

    def _counted(self, data: Fields, seen: tuple[Seen, ...]) -> Iterator[Event]:
        if Refusal() in seen:
            self._stop = Stop.REFUSAL
        elif data.get("finishReason") == "length":
            self._stop = Stop.MAX_TOKENS
        usage = self._observer.calls.main
        if usage:
            yield from self._start(data)
            yield Counted(usage[-1], count(data.get("outputTokens")), count(data.get("reasoningTokens")))
        if self._stop is Stop.MAX_TOKENS:
            # The runtime says no more of this answer: it lets the model go on in a second call.
            yield from self._close()
            yield from self._end({})

    def _whole(self, data: Fields) -> Iterator[Event]:
        """End the answer; what was not told piece by piece is told now."""
        yield from self._start(data)
        if not self.text:
            yield from self._grow(PartKind.TEXT, {"deltaContent": data.get("content")})
        yield from self._close()
        yield from self._end(data)

    def _end(self, data: Fields) -> Iterator[Event]:
        requests = [fields(request) for request in items(data.get("toolRequests"))]
        for request in requests:
            yield from self._end_call(request)
        for part in self._calls.values():  # begun, and cut off
            if not part.ended:
                yield PartEnded(part.index)
        self.over = True
        self.why = _REASONS.get(self._stop, "")
        yield Ended(Stop.TOOL_CALLS if requests else self._stop)

    def _end_call(self, request: Fields) -> Iterator[Event]:
        call_id, name = str(request.get("toolCallId")), str(request.get("name"))
        part = self._calls.get(call_id)
        if part is None:
            part = self._new_call(call_id, name)
            yield PartStarted(part.index, PartKind.TOOL_CALL, part.call)
        if not part.text:
            part.text = encode(request.get("arguments") or {}).decode()
            if not part.wrapped:
                yield Delta(part.index, part.text)
        if part.wrapped:
            text = unwrap(part.text)
            part.text = wrap(text)  # as the caller hands it back, whatever the model wrote around it
            yield Delta(part.index, text)
        part.ended = True
        yield PartEnded(part.index)
        self.calls = (*self.calls, (call_id, name, part.text))


def _broken(data: Fields) -> Broken:
    """Return a failure as it is told: `model.call_failure` has the provider's own error, `session.error` its kind."""
    kind = data.get("errorType")
    inner = decode(str(data.get("errorMessage") or "").encode("utf-8", "replace"))
    plain = inner if isinstance(inner, str) else data.get("errorMessage")
    told = {"type": kind, "code": data.get("errorCode"), "message": data.get("message") or plain}
    own = fields(fields(inner).get("error")) or fields(inner)
    error = {name: value for known in (told, own) for name, value in known.items() if value is not None}
    status = count(data.get("statusCode")) or _STATUSES.get(str(kind), 0)
    return read_error(status, encode({"error": error}))


def _early(what: str) -> Broken:
    words = f"Copilot's runtime {what}. The request was not repeated; please send it again."
    return Broken(ErrorKind.UPSTREAM, HTTP_STATUS[ErrorKind.UPSTREAM], "runtime", words)
