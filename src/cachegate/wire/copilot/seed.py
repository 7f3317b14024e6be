"""Writes a history as the events of a session, as the runtime itself keeps them: a line of JSON each.

What the old session has of it is taken over as it stands: only it knows the model's thoughts, and the moment at which
each thing was said, which the runtime puts in front of it and the provider's cache therefore holds. Ids are digests of
the event's place, so that the same history makes the same lines.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import assert_never

from blake3 import blake3

from cachegate.wire.body import decode, encode
from cachegate.wire.copilot.history import Answered, Attachment, Returned, Said, Step
from cachegate.wire.hub import Json
from cachegate.wire.usage_readings import fields

_AT = "2020-01-01T00:00:00.000Z"
"""When it was: any fixed moment, and in the past. The model is not told."""


@dataclass(frozen=True, slots=True)
class Journal:
    """What the old session wrote, and where its steps end."""

    lines: tuple[bytes, ...]
    ends: tuple[str, ...]
    """For each step the id of the event that completes it."""

    def until(self, kept: int) -> tuple[bytes, ...] | None:
        """Return the lines of the first `kept` steps; None where some are missing, as after a crash."""
        wanted = set(self.ends[:kept])
        last = -1
        for number, line in enumerate(self.lines):
            event_id = fields(decode(line)).get("id")
            if event_id in wanted:
                wanted.discard(str(event_id))
                last = number
        return None if wanted or len(self.ends) < kept else self.lines[: last + 1]


def seed(session_id: str, native: tuple[bytes, ...], past: Iterable[Step]) -> Journal:
    """Return the events of a new session: those of the old one in `native`, then `past` written as events.

    `ends` of it are those of `past` only.
    """
    lines = [_line("session.start", _start(session_id), session_id, 0, None), *native[1:]]
    parent = fields(decode(lines[-1])).get("id")
    ends: list[str] = []
    for number, (kind, data) in enumerate(_events(past), start=len(lines)):
        lines.append(_line(kind, data, session_id, number, parent))
        parent = _id(session_id, number, "event")
        if kind in _COMPLETING:
            ends.append(parent)
    return Journal(tuple(lines), tuple(ends))


def attached(attachments: Iterable[Attachment]) -> list[dict[str, str]]:
    """Return attachments in the runtime's form."""
    return [
        {
            "type": "blob",
            "data": each.data,
            "mimeType": each.media_type,
            **({"displayName": each.name} if each.name else {}),
        }
        for each in attachments
    ]


def _start(session_id: str) -> Json:
    return {
        "sessionId": session_id,
        "version": 1,
        "producer": "copilot-agent",
        "copilotVersion": "",
        "startTime": _AT,
        "context": {"cwd": "/"},
    }


def _events(past: Iterable[Step]) -> Iterator[tuple[str, Mapping[str, object]]]:
    for step in past:
        match step:
            case Said():
                said: dict[str, object] = {"content": step.text, "transformedContent": step.text}
                if step.attachments:
                    said["attachments"] = attached(step.attachments)
                    said["supportedNativeDocumentMimeTypes"] = list(_DOCUMENTS)
                yield "user.message", said
            case Answered():
                yield from _answer(step)
            case Returned():
                yield "tool.execution_complete", _returned(step)
            case _:
                assert_never(step)


def _answer(step: Answered) -> Iterator[tuple[str, Mapping[str, object]]]:
    requests = [
        {"toolCallId": call.call_id, "name": call.name, "arguments": _arguments(call.arguments), "type": "function"}
        for call in step.calls
    ]
    yield "assistant.message", {"content": step.text, "toolRequests": requests}
    for call in step.calls:
        named = {"toolCallId": call.call_id, "toolName": call.name}
        yield "tool.execution_start", {**named, "arguments": _arguments(call.arguments)}


def _arguments(text: str) -> object:
    value = decode(text.encode("utf-8", "replace"))
    return value if isinstance(value, dict) else {}


def _returned(step: Returned) -> Mapping[str, object]:
    if step.is_error:
        return {"toolCallId": step.call_id, "success": False, "error": {"message": step.text, "code": "failure"}}
    result: dict[str, object] = {"content": step.text}
    if step.attachments:
        result["binaryResultsForLlm"] = [
            {"type": each.kind, "data": each.data, "mimeType": each.media_type} for each in step.attachments
        ]
    return {"toolCallId": step.call_id, "success": True, "result": result}


def _line(kind: str, data: Mapping[str, object], session_id: str, number: int, parent: object) -> bytes:
    if kind in _WITH_MESSAGE_ID:
        data = {"messageId": _id(session_id, number, "message"), **data}
    event = {"type": kind, "data": data, "id": _id(session_id, number, "event"), "timestamp": _AT, "parentId": parent}
    return encode(event)


_DOCUMENTS = ("application/pdf",)
"""Documents that models read as they are; without this word the runtime leaves them out."""
_WITH_MESSAGE_ID = frozenset({"user.message", "assistant.message"})
_COMPLETING = _WITH_MESSAGE_ID | {"tool.execution_complete"}
"""Events that complete a step, one each."""


def _id(session_id: str, number: int, what: str) -> str:
    digits = blake3(f"{session_id}\n{number}\n{what}".encode()).hexdigest()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:32]))
