"""The answer to a request for a compaction, where another provider wrote the summary: one opaque item, or an object.

Codex takes the item as it is and sends it back later; whatever else the model says or thinks is left out.
"""

from cachegate.errors import UpstreamError
from cachegate.wire.body import encode
from cachegate.wire.compaction import seal_summary
from cachegate.wire.hub import (
    Broken,
    Counted,
    Delta,
    Ended,
    Event,
    Message,
    PartKind,
    PartStarted,
    Purpose,
    Request,
    Role,
    Started,
    Stop,
    Target,
)
from cachegate.wire.responses.answer_objects import Identity, Object, compaction_item, response_object, usage_object
from cachegate.wire.responses.errors import STOP_CODE, terminal_error
from cachegate.wire.responses.item_renderer import ItemRenderer
from cachegate.wire.responses.provider_errors import stream_code
from cachegate.wire.responses.tool_renderer import ToolRenderer
from cachegate.wire.sse import frame

NO_SUMMARY = "The model wrote no summary of the conversation. Please compact again, or go on without."
REFUSED = "The model refused to summarise the conversation. Please go on without a compaction, or start a new one."

_REFUSING = frozenset({Stop.REFUSAL, Stop.CONTENT_FILTER})


class CompactionWriter:
    """Writes one compaction."""

    __slots__ = ("_counted", "_identity", "_pieces", "_request", "_sequence", "_target", "_texts")

    def __init__(self, request: Request, target: Target) -> None:
        self._request = request
        self._target = target
        self._identity = Identity("unknown", request.model, 0)
        self._texts: set[int] = set()
        self._pieces: list[str] = []
        self._counted: Counted | None = None
        self._sequence = 0

    def write(self, event: Event) -> bytes:
        """Return the events that say it: the beginning at once, and the item when the summary is complete."""
        match event:
            case Started():
                self._identity = Identity.of(event, self._request)
                begun = self._response("in_progress", [])
                return self._frame("response.created", {"response": begun}) + self._frame(
                    "response.in_progress", {"response": begun}
                )
            case Ended():
                return self._end(event)
            case Broken():
                return self._failed(stream_code(event), event.message)
            case _:
                self.take(event)
                return b""

    def take(self, event: Event) -> None:
        """Take in what belongs to the summary, and what is known of the usage."""
        match event:
            case PartStarted(kind=PartKind.TEXT):
                self._texts.add(event.index)
                if self._pieces:
                    self._pieces.append("\n\n")
            case Delta() if event.index in self._texts:
                self._pieces.append(event.text)
            case Counted():
                self._counted = event
            case Started():
                self._identity = Identity.of(event, self._request)
            case _:
                pass

    def whole(self, stop: Stop) -> bytes:
        """Return the body. Raises UpstreamError where there is no summary."""
        if stop in _REFUSING or not self._summary:
            raise UpstreamError(REFUSED if stop in _REFUSING else NO_SUMMARY)
        if self._request.purpose is not Purpose.COMPACTION_OBJECT:
            return encode({**self._response("completed", [self._item()]), "usage": usage_object(self._counted)})
        compacted = {
            "id": self._identity.response_id,
            "object": "response.compaction",
            "created_at": self._identity.created_s,
            "output": [*self._kept(), self._item()],
            "usage": usage_object(self._counted),
        }
        return encode(compacted)

    def _end(self, ended: Ended) -> bytes:
        if ended.stop in _REFUSING:
            return self._failed(STOP_CODE, REFUSED)
        if not self._summary:
            return self._failed("server_error", NO_SUMMARY)
        item = self._item()
        completed = {**self._response("completed", [item]), "usage": usage_object(self._counted)}
        return (
            self._frame("response.output_item.added", {"output_index": 0, "item": item})
            + self._frame("response.output_item.done", {"output_index": 0, "item": item})
            + self._frame("response.completed", {"response": completed})
        )

    def _kept(self) -> list[Object]:
        """Return what the user said: the protocol's compaction leaves it as it was."""
        renderer = ItemRenderer(self._target, ToolRenderer(self._request, self._target))
        said = [item for item in self._request.items if isinstance(item, Message) and item.role is Role.USER]
        return [
            {"id": self._identity.item_id("msg", index), "status": "completed", **rendered}
            for index, item in enumerate(said)
            for rendered in renderer.items(item)
        ]

    @property
    def _summary(self) -> str:
        return "".join(self._pieces).strip()

    def _item(self) -> Object:
        return compaction_item(self._identity.item_id("cmp", 0), seal_summary(self._summary))

    def _response(self, status: str, output: list[Object]) -> Object:
        return response_object(self._identity, self._request, status, output)

    def _failed(self, code: str, message: str) -> bytes:
        return terminal_error(code, message, self._response("failed", []), self._sequence)

    def _frame(self, name: str, fields: Object) -> bytes:
        written = frame(name, encode({"type": name, "sequence_number": self._sequence, **fields}))
        self._sequence += 1
        return written


def write_compaction(request: Request, target: Target, events: tuple[Event, ...]) -> bytes:
    """Return the body of a complete compaction. Raises UpstreamError where there is no summary."""
    writer, stop = CompactionWriter(request, target), Stop.END
    for event in events:
        writer.take(event)
        stop = event.stop if isinstance(event, Ended) else stop
    return writer.whole(stop)
