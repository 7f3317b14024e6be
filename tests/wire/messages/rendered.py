"""Requests rendered for a Messages upstream, short enough to be read in a test."""

import json
from typing import Any

from cachegate.wire.facts import Protocol
from cachegate.wire.hub import Item, Message, Request, Role, Target, Text, Tool, ToolCall, ToolRef, ToolResult
from cachegate.wire.messages.codec import CODEC
from cachegate.wire.quirks import Quirk

HERE = "account-one"
READ, SHELL = ToolRef("Read"), ToolRef("shell")
TOOLS = tuple(Tool(ref, "Runs.", {"type": "object", "properties": {}}) for ref in (READ, SHELL))


def target(*quirks: Quirk, binding: str = HERE) -> Target:
    return Target("claude", binding, "key", frozenset(quirks), Protocol.MESSAGES)


def rendered(*items: Item, quirks: tuple[Quirk, ...] = (), **more: Any) -> Any:
    return json.loads(CODEC.render_request(Request("asked", stream=True, items=items, **more), target(*quirks)))


def turns(*items: Item, quirks: tuple[Quirk, ...] = (), **more: Any) -> list[tuple[str, list[Any]]]:
    """Return role and content of each message, without marks."""
    body = rendered(*items, quirks=(*quirks, Quirk.NO_CACHE_MARKS), **more)
    return [(message["role"], message["content"]) for message in body["messages"]]


def user(*texts: str) -> Message:
    return Message(Role.USER, tuple(Text(text) for text in texts))


def said(*texts: str, role: Role = Role.ASSISTANT) -> Message:
    return Message(role, tuple(Text(text) for text in texts))


def call(call_id: str = "c1", arguments: str = "{}", tool: ToolRef = READ) -> ToolCall:
    return ToolCall(call_id, tool, arguments)


def result(call_id: str = "c1", *texts: str, is_error: bool = False) -> ToolResult:
    return ToolResult(call_id, tuple(Text(text) for text in texts), is_error)


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}
