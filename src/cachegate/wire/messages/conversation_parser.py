"""Reads `system` and `messages`: every block becomes an item of the hub, in its place."""

from collections.abc import Iterator
from dataclasses import replace

from cachegate.errors import BadInput
from cachegate.wire.envelopes import open_envelope
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import (
    Compacted,
    Document,
    Image,
    Item,
    Message,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolRef,
    ToolResult,
)
from cachegate.wire.messages.content_parser import FAILED, block_parts, content_parts, is_marked
from cachegate.wire.messages.request_json import JsonNode

BILLING_LINE = "x-anthropic-billing-header"
"""Begins a block that Claude Code puts in front of its instructions. It is for Anthropic's accounts and not for the
model, and held a nonce in some versions: in front of another provider's prompt it would cost the cache each time."""

ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM}

_TOOL_CHANGES = {"tool_addition": "available", "tool_removal": "not available"}
"""Blocks of a system message that change the tools from there on, and what the model is told instead."""


def parse_instructions(body: JsonNode) -> tuple[Text, ...]:
    """Return the top-level instructions, without the billing line. Raises BadInput for anything but text."""
    parts = content_parts(body, "system")
    if not all(isinstance(part, Text) for part in parts):
        raise body.wrong("system", "text only")
    texts = (_unbilled(part) for part in parts if isinstance(part, Text))
    return tuple(part for part in texts if part.text)


def _unbilled(part: Text) -> Text:
    return replace(part, text=part.text.partition("\n")[2]) if part.text.startswith(BILLING_LINE) else part


def parse_items(body: JsonNode) -> tuple[Item, ...]:
    """Return the conversation. Raises BadInput, naming the block, for what cannot be carried."""
    items = tuple(item for message in body.nodes("messages") for item in _message_items(message))
    # The request's own mark stands for one on its last block.
    return (*items[:-1], marked(items[-1])) if items and is_marked(body) else items


def tool_definitions(body: JsonNode) -> Iterator[JsonNode]:
    """Yield the tools that are defined inside the conversation."""
    for message in body.nodes("messages"):
        if message.raw("content")[:1] != b"[" or message.text("role") != "system":
            continue
        for block in message.nodes("content"):
            tool = block.node("tool") if block.text("type") == "tool_addition" else None
            definition = tool.node("definition") if tool is not None else None
            if definition is not None:
                yield definition


def marked(item: Item) -> Item:
    """Return the item with the mark that asks to cache the prompt up to its end; a thought cannot have one."""
    match item:
        case Message() | ToolResult() if item.parts:
            return replace(item, parts=(*item.parts[:-1], replace(item.parts[-1], marked=True)))
        case ToolResult():
            # An empty result has no part to hold the mark, and the mark of an agent's tail must not get lost.
            return replace(item, parts=(Text("", marked=True),))
        case ToolCall():
            return replace(item, marked=True)
        case _:
            return item


def _message_items(message: JsonNode) -> Iterator[Item]:
    role = ROLES.get(message.text("role") or "")
    if role is None:
        raise message.wrong("role", "`user`, `assistant` or `system`")
    parts: list[Part] = []
    for found in _found(message):
        if isinstance(found, Text | Image | Document):
            parts.append(found)
            continue
        if parts:
            yield Message(role, tuple(parts))
            parts = []
        yield found
    if parts:
        yield Message(role, tuple(parts))


def _found(message: JsonNode) -> Iterator[Part | Item]:
    """Yield what a message holds: parts of what is said, and items of their own."""
    if message.raw("content")[:1] == b'"':
        yield Text(message.needed_text("content"))
        return
    for block in message.nodes("content"):
        match kind := block.needed_text("type"):
            case "tool_use":
                yield _call(block)
            case "tool_result":
                yield _result(block)
            case "thinking" | "redacted_thinking":
                yield _reasoning(block, redacted=kind == "redacted_thinking")
            case "compaction":
                summary = block.text("content")
                if summary is not None:
                    yield Compacted(text=summary)
            case "tool_addition" | "tool_removal":
                yield Text(_tool_change(block, _TOOL_CHANGES[kind]), marked=is_marked(block))
            case _:
                yield from block_parts(block)


def _call(block: JsonNode) -> ToolCall:
    given = block.raw("input")
    if given and given[:1] != b"{":
        raise block.wrong("input", "an object")
    return ToolCall(
        call_id=block.needed_text("id"),
        tool=ToolRef(block.needed_text("name")),
        arguments=given.decode() or "{}",
        marked=is_marked(block),
    )


def _result(block: JsonNode) -> Item:
    parts = content_parts(block)
    failed = bool(parts) and isinstance(parts[0], Text) and parts[0].text == FAILED
    result = ToolResult(
        call_id=block.needed_text("tool_use_id"),
        parts=parts[1:] if failed else parts,
        is_error=failed or block.flag("is_error") is True,
    )
    return marked(result) if is_marked(block) else result


def _reasoning(block: JsonNode, *, redacted: bool) -> Reasoning:
    """Read a thought: the provider's own, or one of another provider in an envelope of ours."""
    text = "" if redacted else block.text("thinking") or ""
    opaque = block.text("data" if redacted else "signature") or None
    envelope = None if opaque is None else open_envelope(opaque)
    if envelope is None:
        return Reasoning(text, opaque, Protocol.MESSAGES, redacted=redacted)
    return Reasoning(
        text=envelope.text or text,
        opaque=envelope.opaque or None,
        origin=envelope.origin,
        item_id=envelope.item_id or None,
        redacted=envelope.redacted,
        binding=envelope.binding,
    )


def _tool_change(block: JsonNode, state: str) -> str:
    tool = block.node("tool")
    definition = tool.node("definition") if tool is not None else None
    name = (definition or tool or block).text("name")
    if name is None:
        raise BadInput(f"{block.at('tool')}: it names no tool. Only changes of single tools can be translated.")
    return f"From here on the tool `{name}` is {state}."
