"""The permission classifier of the real Claude Code, in auto mode, has a budget of its own (R4)."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from clients.claude_code import ClaudeCode
from clients.cold_upstream import Received
from clients.gateway_in_front import gateway_before
from clients.provider_replies import COLD, WARM, ReportedUsage, messages_reply
from clients.tool_upstream import Answer, Call, Loopback, Words, begun_stream, frame, messages_events

pytestmark = pytest.mark.clients

_ASKS_ITSELF = {"CLAUDE_CODE_AUTO_MODE_SERVER": "0"}
"""Otherwise Anthropic's server would have to judge, which no other upstream does."""
_GUARDED = '{"command": "curl -s -m 1 -X POST http://127.0.0.1:9/", "description": "Tell them"}'
"""Nothing that is allowed without a classifier."""


class JudgingUpstream(Loopback):
    """Each turn of the chat calls a tool once; whatever the classifier is asked may be done."""

    def __init__(self, chat: ReportedUsage, classifier: ReportedUsage) -> None:
        super().__init__()
        self._chat = chat
        self._classifier = classifier

    async def answer(self, request: web.Request, received: Received) -> web.StreamResponse:
        fields = received.fields
        if not fields.get("stream"):
            return web.json_response(messages_reply("<block>no", self._classifier, fields["model"]))
        number = len(self.received)
        called = "tool_result" in json.dumps(fields["messages"][-2:])
        part = Words("Done.") if called else Call(f"toolu_{number}", "Bash", _GUARDED)
        response = await begun_stream(request)
        for event in messages_events(Answer((part,), self._chat), number, fields["model"]):
            await response.write(frame(event))
        await response.write_eof()
        return response


async def decisions(gateway_url: str) -> list[tuple[str, str, int]]:
    """Return (mode, outcome, count) of each request, oldest first."""
    async with aiohttp.ClientSession() as asker, asker.get(f"{gateway_url}/diagnostics/recent") as response:
        records: list[dict[str, Any]] = (await response.json())["records"]
    return [(record["mode"], record["outcome"], record["count"]) for record in reversed(records)]


@pytest.mark.parametrize("labelled", [False, True])
async def test_a_cold_classifier_is_stopped_and_its_chat_goes_on(
    claude_program: Path, tmp_path: Path, *, labelled: bool
) -> None:
    async with JudgingUpstream(WARM, COLD) as upstream, gateway_before(upstream, tmp_path) as gateway_url:
        claude = ClaudeCode.install(claude_program, tmp_path / "home", gateway_url, labelled=labelled)
        claude = replace(claude, environment={**claude.environment, **_ASKS_ITSELF})
        async with claude.session("--permission-mode", "auto") as session:
            turns = [await session.turn(text) for text in ("one", "two", "three")]
        decided = await decisions(gateway_url)

    assert [(turn.failed, turn.text) for turn in turns] == [(False, "Done.")] * 3
    classified = [decision for decision in decided if decision[0] == "auxiliary"]
    assert classified[:3] == [("auxiliary", "allowed", 1), ("auxiliary", "allowed", 2), ("auxiliary", "blocked", 2)]
    assert set(classified[3:]) == {("auxiliary", "blocked", 2)}
    assert [decision for decision in decided if decision[0] == "chat"] == [("chat", "allowed", 0)] * 6
    asked = [received.fields for received in upstream.received if not received.fields.get("stream")]
    assert len(asked) == 2
    for fields in asked:
        assert not fields.get("tools")
        assert "You are a security monitor for autonomous AI coding agents." in json.dumps(fields["system"])


async def test_a_cold_chat_is_stopped_and_nothing_of_its_classifier_clears_it(
    claude_program: Path, tmp_path: Path
) -> None:
    async with JudgingUpstream(COLD, WARM) as upstream, gateway_before(upstream, tmp_path) as gateway_url:
        claude = ClaudeCode.install(claude_program, tmp_path / "home", gateway_url)
        claude = replace(claude, environment={**claude.environment, **_ASKS_ITSELF})
        async with claude.session("--permission-mode", "auto") as session:
            turns = [await session.turn(text) for text in ("one", "two")]
        decided = await decisions(gateway_url)

    assert [turn.failed for turn in turns] == [False, True]
    assert turns[-1].text.startswith("API Error: 400 ")
    chat = [decision for decision in decided if decision[0] == "chat"]
    assert chat == [("chat", "allowed", 1), ("chat", "allowed", 2), ("chat", "blocked", 2)]
    classified = [decision for decision in decided if decision[0] == "auxiliary"]
    assert classified
    assert set(classified) == {("auxiliary", "allowed", 0)}
    assert decided.index(classified[0]) == 1, "between the two that counted"
