"""An answer in the Responses protocol, streamed or whole, from events of the internal model.

Every part becomes an item of its own, numbered in the order in which parts begin; parallel calls are written side by
side. Codex reads the finished items, the SDK's accumulator the deltas, Grok every field: all of them are served.
"""

from collections.abc import Mapping
from typing import assert_never

from cachegate.wire import overflows
from cachegate.wire.body import encode
from cachegate.wire.hub import (
    Broken,
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
)
from cachegate.wire.responses.answer_objects import Identity, Object, response_object, usage_object
from cachegate.wire.responses.answer_parts import PARTS, Frames, Part, Place
from cachegate.wire.responses.errors import terminal_error
from cachegate.wire.responses.provider_errors import stream_code
from cachegate.wire.sse import frame

STATUS_OF_STOP: Mapping[Stop, str] = {
    Stop.END: "completed",
    Stop.TOOL_CALLS: "completed",
    Stop.STOP_SEQUENCE: "completed",
    Stop.REFUSAL: "completed",
    Stop.MAX_TOKENS: "incomplete",
    Stop.CONTENT_FILTER: "incomplete",
    Stop.CONTEXT_FULL: "incomplete",
    Stop.PAUSE: "completed",
}
REASON_OF_STOP: Mapping[Stop, str] = {
    Stop.MAX_TOKENS: "max_output_tokens",
    Stop.CONTENT_FILTER: "content_filter",
    Stop.CONTEXT_FULL: "max_output_tokens",
}
"""Why an answer is incomplete. A pause is no reason: Codex would ask for the whole answer again."""

REFUSED = "The model refused to answer."
"""What a refusal without words says; the protocol knows a refusal by its text only."""
OVERFLOW = "The answer filled the context window of this model."


class AnswerWriter:
    """Writes one answer."""

    __slots__ = ("_counted", "_identity", "_parts", "_refused", "_request", "_sequence", "_target")

    def __init__(self, request: Request, target: Target) -> None:
        self._request = request
        self._target = target
        self._identity = Identity("unknown", request.model, 0)
        self._parts: dict[int, Part] = {}
        self._counted: Counted | None = None
        self._refused = False
        self._sequence = 0

    def write(self, event: Event) -> bytes:
        """Return the events that say it, as bytes."""
        return b"".join(self.frames(event))

    def frames(self, event: Event) -> list[bytes]:
        """Return the events that say it, each as bytes of its own."""
        match event:
            case Started():
                return self._start(event)
            case PartStarted():
                return self._numbered(self._begin(event))
            case Delta() | PartEnded():
                return self._numbered(self._go_on(event))
            case Counted():
                self._counted = event
                return []
            case Ended():
                return self._end(event)
            case Broken():
                return [self.failed(stream_code(event), event.message)]
            case _:
                assert_never(event)

    def whole(self, stop: Stop) -> Object:
        """Return the finished response."""
        status = STATUS_OF_STOP[stop]
        response = response_object(self._identity, self._request, status, self._output())
        reason = {"reason": REASON_OF_STOP.get(stop)} if status == "incomplete" else None
        return {**response, "incomplete_details": reason, "usage": usage_object(self._counted)}

    def failed(self, code: str, message: str) -> bytes:
        """Return the events that end the answer as failed."""
        response = response_object(self._identity, self._request, "failed", self._output())
        return terminal_error(code, message, response, self._sequence)

    def _start(self, started: Started) -> list[bytes]:
        self._identity = Identity.of(started, self._request)
        begun = response_object(self._identity, self._request, "in_progress", [])
        return self._numbered(
            [("response.created", {"response": begun}), ("response.in_progress", {"response": begun})]
        )

    def _begin(self, started: PartStarted) -> Frames:
        part = PARTS[started.kind](Place(self._identity, self._target, len(self._parts)), started)
        self._parts[started.index] = part
        self._refused = self._refused or started.kind is PartKind.REFUSAL
        return part.begin()

    def _go_on(self, event: Delta | PartEnded) -> Frames:
        part = self._parts.get(event.index)
        if part is None:
            return []
        return part.delta(event.text) if isinstance(event, Delta) else part.end(event)

    def _end(self, ended: Ended) -> list[bytes]:
        frames: list[bytes] = []
        if ended.stop is Stop.REFUSAL and not self._refused:
            frames = self._refusal()
        if ended.stop is Stop.CONTEXT_FULL:
            # Only an error with this code makes clients compact; an incomplete answer would be asked for again.
            return [*frames, self.failed(overflows.CODE, OVERFLOW)]
        response = self.whole(ended.stop)
        return [*frames, *self._numbered([(f"response.{response['status']}", {"response": response})])]

    def _refusal(self) -> list[bytes]:
        index = max(self._parts, default=-1) + 1
        said = (PartStarted(index, PartKind.REFUSAL), Delta(index, REFUSED), PartEnded(index))
        return [written for event in said for written in self.frames(event)]

    def _output(self) -> list[Object]:
        return [part.item for part in self._parts.values() if part.item is not None]

    def _numbered(self, frames: Frames) -> list[bytes]:
        numbered = [
            frame(name, encode({"type": name, "sequence_number": self._sequence + at, **fields}))
            for at, (name, fields) in enumerate(frames)
        ]
        self._sequence += len(numbered)
        return numbered


def write_body(request: Request, target: Target, events: tuple[Event, ...]) -> bytes:
    """Return the response object of a complete answer."""
    writer, stop = AnswerWriter(request, target), Stop.END
    for event in events:
        writer.frames(event)
        stop = event.stop if isinstance(event, Ended) else stop
    return encode(writer.whole(stop))
