"""Copilot's runtime in memory: sessions that answer by a script, in events of the shape that the real one tells."""

import asyncio
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cachegate.providers.copilot.native import EXITED, Listener, Opening, Permit
from cachegate.wire.copilot.history import Returned, Said
from cachegate.wire.copilot.seed import attached
from cachegate.wire.hub import Json

Told = tuple[str, dict[str, Any]]
"""An event's type and its data."""

KEPT = frozenset(
    {
        "session.start", "user.message", "system.message", "assistant.turn_start", "assistant.message",
        "tool.execution_start", "external_tool.requested", "external_tool.completed", "tool.execution_complete",
        "assistant.turn_end", "abort",
    }
)  # fmt: skip
"""Events that stay in a session's own history; the runtime marks all others as ephemeral."""

USAGE: Mapping[str, object] = {
    "model": "model-x", "apiCallId": "msg_1", "apiEndpoint": "/v1/messages", "cacheDetailsReported": True,
    "cacheReadTokens": 501, "cacheWriteTokens": 20, "contentFilterTriggered": False, "inputTokens": 531,
    "interactionType": "conversation-agent", "outputTokens": 9, "transport": "http",
}  # fmt: skip


def event(kind: str, data: Mapping[str, object] | None = None, event_id: str = "e1", agent: str = "") -> dict[str, Any]:
    told = {"data": dict(data or {}), "id": event_id, "timestamp": "2026-11-30T01:56:33.461000+00:00", "type": kind}
    return {**told, **({} if kind in KEPT else {"ephemeral": True}), **({"agentId": agent} if agent else {})}


def text_delta(piece: str) -> Told:
    return "assistant.message_delta", {"deltaContent": piece, "messageId": "b8e4-4e99"}


def thought_delta(piece: str) -> Told:
    return "assistant.reasoning_delta", {"deltaContent": piece, "reasoningId": "2061-1b1a"}


def call_delta(call_id: str, name: str, piece: str) -> Told:
    return "assistant.tool_call_delta", {"inputDelta": piece, "toolCallId": call_id, "toolName": name}


def usage(finish: str = "stop", **more: object) -> Told:
    return "assistant.usage", {**USAGE, "finishReason": finish, **more}


@dataclass(frozen=True, slots=True)
class Asked:
    """A call that the model makes."""

    call_id: str
    name: str = "Read"
    arguments: Mapping[str, object] = field(default_factory=lambda: {"path": "/a"})


def whole(text: str = "", calls: Iterable[Asked] = ()) -> Told:
    requests = [
        {"name": call.name, "toolCallId": call.call_id, "arguments": dict(call.arguments), "type": "function"}
        for call in calls
    ]
    return "assistant.message", {
        "content": text,
        "messageId": "b8e4-4e99",
        "model": "model-x",
        "toolRequests": requests,
    }


def answers(text: str = "Hello world", *calls: Asked, thoughts: str = "", **counts: object) -> tuple[Told, ...]:
    """One model call that goes well."""
    told: list[Told] = [("assistant.turn_start", {"turnId": "0"}), ("model.call_start", {"turnId": "0"})]
    told += [thought_delta(thoughts)] if thoughts else []
    told += [text_delta(piece) for piece in _pieces(text)]
    told += [call_delta(each.call_id, each.name, piece) for each in calls for piece in _pieces(_written(each))]
    told += [usage("tool_calls" if calls else "stop", **counts), whole(text, calls)]
    for each in calls:
        named = {"toolCallId": each.call_id, "toolName": each.name, "arguments": dict(each.arguments)}
        told += [("tool.execution_start", named), ("external_tool.requested", named)]
    return (*told, *(() if calls else REST))


REST: tuple[Told, ...] = (("assistant.turn_end", {}), ("assistant.idle", {}), ("session.idle", {"mode": "interactive"}))
"""A session comes to rest."""


def _pieces(text: str) -> list[str]:
    half = len(text) // 2
    return [piece for piece in (text[:half], text[half:]) if piece]


def _written(call: Asked) -> str:
    return json.dumps(call.arguments)


def failure(message: str, status: int | None = None, **more: object) -> Told:
    told = {"source": "top_level", "errorMessage": message, "failureKind": "api", "transport": "http", **more}
    return "model.call_failure", told if status is None else {**told, "statusCode": status}


class ScriptedSession:
    """See `native.NativeSession`."""

    def __init__(self, runtime: "ScriptedRuntime", opening: Opening, listener: Listener) -> None:
        self.runtime = runtime
        self.opening = opening
        self.listener = listener
        self.lines = [line for line in opening.events.split(b"\n") if line]
        self.said: list[tuple[tuple[Said, ...], Json | None, bool]] = []
        self.given: list[Returned] = []
        self.runs = True
        self.ended = asyncio.Event()
        self._permit: Permit | None = None
        self._waiting: set[str] = set()
        self._steering: tuple[Said, ...] = ()
        self._numbers = itertools.count()
        if not self.lines:
            self.tell("session.start", {"sessionId": opening.session_id})

    def tell(self, kind: str, data: Mapping[str, object] | None = None) -> None:
        """Let an event happen."""
        told = event(kind, data, f"{self.opening.session_id}:{next(self._numbers)}")
        if kind in KEPT:
            self.lines.append(json.dumps(told).encode())
        self.listener(told)

    def play(self, reply: Iterable[Told]) -> None:
        """Let the events of a script happen."""
        for kind, data in reply:
            if kind == "assistant.message":
                self._waiting |= {request["toolCallId"] for request in data["toolRequests"]}
            self.tell(kind, data)

    def exit(self) -> None:
        """Let the runtime be gone."""
        self.runs = False
        self.listener(EXITED)

    def allow(self, permit: Permit) -> None:
        self.runtime.log.append("allow")
        self._permit = permit

    async def alive(self) -> bool:
        return self.runs

    def give(self, returned: Returned) -> None:
        self.runtime.log.append(f"give {returned.call_id}")
        self.given.append(returned)
        self._waiting.discard(returned.call_id)
        told = {"success": not returned.is_error, "toolCallId": returned.call_id, "result": {"content": returned.text}}
        self.tell("tool.execution_complete", told)
        if not self._waiting:
            said, self._steering = self._steering, ()
            self._hear(said, "steering")
            self._answer()

    async def say(self, said: tuple[Said, ...], schema: Json | None, *, steering: bool) -> None:
        self.runtime.log.append(f"{'steer' if steering else 'say'} {'|'.join(each.text for each in said)}")
        self.said.append((said, schema, steering))
        if self.runtime.refuses is not None:
            raise self.runtime.refuses
        if steering:
            self._steering = said
            return
        self._hear(said, "idle")
        self._answer()

    async def set_effort(self, effort: str) -> None:
        self.runtime.log.append(f"effort {effort}")

    async def abort(self) -> None:
        self.runtime.log.append("abort")
        self._permit = None
        self._waiting.clear()
        self.play((("abort", {"reason": "user_initiated"}), *REST))

    async def close(self) -> tuple[bytes, ...]:
        self.runtime.log.append("close")
        self.runs = False
        self.ended.set()
        return tuple(self.lines)

    def _hear(self, said: tuple[Said, ...], delivery: str) -> None:
        for each in said:
            told = {"content": each.text, "delivery": delivery, "attachments": attached(each.attachments)}
            self.tell("user.message", told)

    def _answer(self) -> None:
        permit, self._permit = self._permit, None
        assert permit is not None, "a model call that nobody permitted"
        reply = next(self.runtime.replies)
        permit.on_sent()
        if self.runtime.retry_after:
            permit.on_retry_after(self.runtime.retry_after)
        self.play(reply)


class ScriptedRuntime:
    """See `native.Runtime`. Answers with `replies` in their order, whichever session is asked; then always the same."""

    def __init__(self, *replies: tuple[Told, ...]) -> None:
        self.replies: Iterator[tuple[Told, ...]] = itertools.chain(replies, itertools.repeat(answers()))
        self.sessions: list[ScriptedSession] = []
        self.log: list[str] = []
        """What was asked of it and its sessions."""
        self.retry_after = ""
        self.refuses: Exception | None = None
        """What beginning a session or saying something raises."""
        self.closed = False

    @property
    def last(self) -> ScriptedSession:
        return self.sessions[-1]

    async def open(self, opening: Opening, listener: Listener) -> ScriptedSession:
        if self.refuses is not None:
            raise self.refuses
        self.log.append("resume" if opening.events else "open")
        self.sessions.append(ScriptedSession(self, opening, listener))
        return self.last

    async def close(self) -> None:
        self.closed = True
