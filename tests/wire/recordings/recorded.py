"""Requests as real clients send them, shortened, each with the identity and the class it must be given.

Taken from recordings of Codex 0.171, Claude Code 2.1, opencode 1.18, Copilot CLI 1.0, Grok Build 1.0 and Cline 3.0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cachegate.wire.facts import Operation, Protocol, RequestClass

CHAT, COMPACTION, AUXILIARY = RequestClass.CHAT, RequestClass.COMPACTION, RequestClass.AUXILIARY
MESSAGES, RESPONSES = Protocol.MESSAGES, Protocol.RESPONSES
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request and what must be read from it."""

    name: str
    protocol: Protocol
    headers: Mapping[str, str]
    body: Json
    caller: str | None
    request_class: RequestClass = CHAT
    operation: Operation = field(default=Operation.GENERATE, kw_only=True)


SHELL: Json = {"type": "function", "name": "shell", "parameters": {"type": "object"}, "strict": False}
READ: Json = {"name": "Read", "description": "Reads a file", "input_schema": {"type": "object"}}


def said(text: str, role: str = "user") -> Json:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}
