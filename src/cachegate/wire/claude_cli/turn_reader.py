"""Reads the frames of a live process while it answers one request, which is one model call and no more.

Inside `stream_event` frames are Anthropic's own events, read like those of an upstream. The CLI adds ends of its own:
a stream that failed is closed with a `stop_reason` of null, and an error comes as an answer that it wrote itself. Where
a model stops at a limit or says nothing, the CLI would call it again: such an end is told at once, and `must_die` says
that the process has to be ended.
"""

from dataclasses import dataclass

from cachegate.errors import ErrorKind
from cachegate.wire import refusals
from cachegate.wire.body import decode, encode
from cachegate.wire.claude_cli.prompt import Turn
from cachegate.wire.codecs import CODECS
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import Broken, Ended, Event, Request, Target
from cachegate.wire.messages.provider_errors import read_error
from cachegate.wire.native_events import Calls, ClaudeCliReader
from cachegate.wire.seen import Failed, Finished, Seen
from cachegate.wire.sessions import Reason
from cachegate.wire.sse import SseEvent
from cachegate.wire.translation import broken
from cachegate.wire.usage_readings import Fields, Format, count, fields, items, reading_of

_LIMITS = frozenset({"max_tokens", "model_context_window_exceeded"})
"""Ends after which the CLI lets the model go on in a second call."""
CUT = "The provider broke off its answer. The request was not repeated; please send it again."


@dataclass(frozen=True, slots=True)
class Heard:
    """What one frame says."""

    events: tuple[Event, ...] = ()
    """For the caller."""
    seen: tuple[Seen, ...] = ()
    """For the guard."""


class TurnReader:
    """Reads one answer; `over` once it has ended or failed."""

    __slots__ = ("_answer", "_began", "_blocks", "_held", "_observer", "must_die", "over", "why")

    def __init__(self, request: Request, target: Target) -> None:
        self._answer = CODECS[Protocol.MESSAGES].stream_reader(request, target)
        self._observer = ClaudeCliReader(reading_of("anthropic", Format.MESSAGES), Calls())
        self._blocks: dict[int, dict[str, object]] = {}
        self._began = False
        self._held: Fields = {}
        """The end of the answer, until it is sure to be one."""
        self.over = False
        self.why = ""
        """Why the session cannot be gone on with after this answer; "" while nothing is known."""
        self.must_die = False
        """The process must be ended before it calls the model again."""

    def read(self, frame: Fields) -> Heard:
        """Return what a frame says; those of sub-agents and all behind the end say nothing."""
        if self.over and _begins_call(frame):
            self.must_die, self.why = True, Reason.HIDDEN_INFERENCE
        if self.over or frame.get("parent_tool_use_id"):
            return Heard()
        seen = tuple(item for item in self._observer.read(frame) if not isinstance(item, Finished | Failed))
        match frame.get("type"):
            case "stream_event":
                return self._event(fields(frame.get("event")), seen)
            case "assistant" if frame.get("is_api_error_message") is True and not self._refused(frame):
                return self._failed(_error(frame), seen)
            case "result":
                return self._failed(_result(frame), seen)
            case "process.exited":
                words = "The live session ended in the midst of the answer. Please send the request again."
                return self._failed(broken(ErrorKind.UPSTREAM, words), seen, Reason.PROCESS_EXITED)
        return Heard((), seen)

    def refused(self, status: int, body: bytes) -> Heard:
        """Return what the provider's own error says; whatever the program makes of it is not heard any more."""
        if self.over:
            return Heard()
        return self._failed(read_error(status, body), ())

    def turn(self) -> Turn:
        """Return the answer as the turn that the caller will send back."""
        blocks = [dict(self._blocks[index]) for index in sorted(self._blocks)]
        for block in blocks:
            if isinstance(arguments := block.get("input"), str):
                block["input"] = decode(arguments.encode("utf-8", "replace")) or {}
        return Turn("assistant", tuple(blocks))

    def _event(self, event: Fields, seen: tuple[Seen, ...]) -> Heard:
        kind = event.get("type")
        if kind == "message_start":
            if self._began:
                self.must_die = True
                words = "The live session called the model a second time for one request, and was ended."
                return self._failed(broken(ErrorKind.UPSTREAM, words), seen, Reason.HIDDEN_INFERENCE)
            self._began = True
        if kind == "message_delta":
            return self._end_begins(event, seen)
        if kind == "message_stop" and not self._held:
            # The CLI's own end of a stream that failed. Where the model had said something, it would ask it to go on.
            self.must_die = True
            return self._failed(broken(ErrorKind.UPSTREAM, CUT), seen)
        self._note(event)
        told = self._told(event)
        match told:
            case (*_, Ended()):
                return Heard(told, (*seen, Finished()))
            case (*_, Broken() as failure):
                return self._failed(failure, seen)
        return Heard(told, seen)

    def _end_begins(self, event: Fields, seen: tuple[Seen, ...]) -> Heard:
        reason = fields(event.get("delta")).get("stop_reason")
        if reason is None:
            return Heard((), seen)
        self._held = event
        told = self._told(event)
        if refusals.ended_by_refusal(reason):
            self.why = Reason.REFUSAL
        if reason not in _LIMITS and self._says_something:
            return Heard(told, seen)
        # Not a moment is to be lost: with the end of the message the CLI begins the next call.
        self.must_die, self.why = True, self.why or Reason.HIDDEN_CONTINUATION
        told = (*told, *self._told({"type": "message_stop"}))
        return Heard(told, (*seen, Finished()))

    @property
    def _says_something(self) -> bool:
        """Whether the CLI takes the answer for one: thoughts and blanks are none."""
        blocks = self._blocks.values()
        return any(block.get("type") == "tool_use" or str(block.get("text") or "").strip() for block in blocks)

    def _told(self, event: Fields) -> tuple[Event, ...]:
        told = self._answer.read(SseEvent(str(event.get("type")).encode(), encode(event)))
        self.over = self.over or any(isinstance(item, Ended | Broken) for item in told)
        return told

    def _note(self, event: Fields) -> None:
        """Keep the answer's blocks: the caller will send them back."""
        index = count(event.get("index"))
        if index is None:
            return
        match event.get("type"):
            case "content_block_start":
                self._blocks[index] = dict(fields(event.get("content_block")))
            case "content_block_delta" if index in self._blocks:
                _grow(self._blocks[index], fields(event.get("delta")))

    def _failed(self, failure: Broken, seen: tuple[Seen, ...], why: str = Reason.PROVIDER_ERROR) -> Heard:
        self.over, self.why = True, why
        return Heard((failure,), (*seen, Failed(failure.code)))

    def _refused(self, frame: Fields) -> bool:
        """Whether the model refused, which the CLI tells as an error and, behind it, as the end that it is."""
        return refusals.ended_by_refusal(fields(frame.get("message")).get("stop_reason"))


def _begins_call(frame: Fields) -> bool:
    return not frame.get("parent_tool_use_id") and fields(frame.get("event")).get("type") == "message_start"


_GROWING = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}


def _grow(block: dict[str, object], delta: Fields) -> None:
    kind = delta.get("type")
    if kind == "signature_delta":
        block["signature"] = delta.get("signature")
    elif isinstance(kind, str) and kind in _GROWING:
        name = _GROWING[kind]
        into = "input" if name == "partial_json" else name
        said = block.get(into)
        block[into] = f"{said if isinstance(said, str) else ''}{delta.get(name) or ''}"


def _error(frame: Fields) -> Broken:
    """Read an error that the CLI tells as an answer of its own."""
    texts = [str(fields(part).get("text") or "") for part in items(fields(frame.get("message")).get("content"))]
    text = " ".join(texts) or "The provider failed."
    kind = frame.get("api_error_type") or frame.get("error") or "api_error"
    status = count(frame.get("api_error_status"))
    return read_error(status or _BAD_GATEWAY, encode({"type": "error", "error": {"type": kind, "message": text}}))


def _result(frame: Fields) -> Broken:
    """Read the end of a turn that came before any answer."""
    reason = str(frame.get("terminal_reason") or frame.get("subtype") or "result")
    text = str(frame.get("result") or f"The live session ended the turn without an answer ({reason}).")
    return _error({**frame, "error": reason, "message": {"content": [{"type": "text", "text": text}]}})


_BAD_GATEWAY = 502
