"""A thread as one JSON object, for those who want to keep threads on disk, and back. Pure.

The history is kept as its items are in the hub, so that it is rendered to the same bytes afterwards, and the provider's
cache is found again.
"""

from dataclasses import fields

import msgspec

from cachegate.control.thread import Settings, Thread, TokenUsage
from cachegate.wire.body import encode
from cachegate.wire.hub import Image, Item, Message, Part, Reasoning, Role, Text, ToolCall, ToolResult

FORMAT = 1
"""Of the object; another one is not read."""

_ITEMS: dict[str, type[Message | ToolCall | ToolResult | Reasoning]] = {
    "message": Message, "call": ToolCall, "result": ToolResult, "thought": Reasoning,
}  # fmt: skip
_PARTS: dict[str, type[Text | Image]] = {"text": Text, "image": Image}
"""What a hosted thread's history is made of."""
_OWN = {"history", "turns", "settings", "usage"}


def stored(thread: Thread) -> bytes:
    """Return the thread as JSON."""
    plain = {each.name: getattr(thread, each.name) for each in fields(thread) if each.name not in _OWN}
    return encode(
        {
            "format": FORMAT,
            **plain,
            "settings": thread.settings,
            "usage": thread.usage,
            "history": [_item(item) for item in thread.history],
            "turns": [msgspec.Raw(turn) for turn in thread.turns],
        }
    )


class _Stored(msgspec.Struct):
    format: int
    id: str
    tenant: str
    created_s: int
    updated_s: int
    name: str | None
    context_full: bool
    settings: Settings
    usage: TokenUsage
    history: list[dict[str, object]]
    turns: list[msgspec.Raw]


class _Said(msgspec.Struct):
    role: Role
    parts: list[dict[str, object]]
    phase: str | None


class _Answered(msgspec.Struct):
    call_id: str
    parts: list[dict[str, object]]
    is_error: bool
    custom: bool


def restored(data: bytes) -> Thread | None:
    """Return the thread; None for what is none, or of another format."""
    try:
        kept = msgspec.json.decode(data, type=_Stored)
        if kept.format != FORMAT:
            return None
        history = tuple(_read_item(item) for item in kept.history)
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError):
        return None
    return Thread(
        id=kept.id,
        tenant=kept.tenant,
        settings=kept.settings,
        created_s=kept.created_s,
        updated_s=kept.updated_s,
        name=kept.name,
        history=history,
        turns=tuple(bytes(turn) for turn in kept.turns),
        usage=kept.usage,
        context_full=kept.context_full,
    )


def _item(item: Item) -> dict[str, object]:
    kind = next(name for name, known in _ITEMS.items() if isinstance(item, known))
    told: dict[str, object] = {"kind": kind, **{each.name: getattr(item, each.name) for each in fields(item)}}
    if isinstance(item, Message | ToolResult):
        told["parts"] = [_part(part) for part in item.parts]
    return told


def _part(part: Part) -> dict[str, object]:
    kind = next(name for name, known in _PARTS.items() if isinstance(part, known))
    return {"kind": kind, **{each.name: getattr(part, each.name) for each in fields(part)}}


def _read_item(told: dict[str, object]) -> Item:
    match told.pop("kind"):
        case "message":
            said = msgspec.convert(told, _Said)
            return Message(said.role, tuple(map(_read_part, said.parts)), said.phase)
        case "result":
            answered = msgspec.convert(told, _Answered)
            parts = tuple(map(_read_part, answered.parts))
            return ToolResult(answered.call_id, parts, answered.is_error, answered.custom)
        case "call":
            return msgspec.convert(told, ToolCall)
        case "thought":
            return msgspec.convert(told, Reasoning)
        case kind:
            raise ValueError(kind)


def _read_part(told: dict[str, object]) -> Part:
    return msgspec.convert(told, _PARTS[str(told.pop("kind"))])
