"""A turn's own bookkeeping: one start, one end, whatever happens in between."""

import asyncio
from typing import Any

import pytest

from cachegate.control import turn
from cachegate.control.said import Said
from control.hosting import Hosting, Visitor, hosting

SAID = [{"type": "text", "text": "hi"}]


async def begun(stage: Hosting, model: str) -> tuple[Visitor, str, str]:
    visitor = await stage.visitor()
    thread_id = (await visitor.ask("thread/start", model=f"synthetic/{model}"))["result"]["thread"]["id"]
    turn_id = (await visitor.ask("turn/start", threadId=thread_id, input=SAID))["result"]["turn"]["id"]
    return visitor, thread_id, turn_id


@pytest.mark.parametrize(
    ("model", "status"),
    [("cache", "completed"), ("refusal", "completed"), ("error", "failed"), ("cut", "failed"), ("503", "failed")],
)
async def test_a_turn_starts_once_and_ends_once(model: str, status: str) -> None:
    async with hosting() as stage:
        visitor, _, _ = await begun(stage, model)
        await stage.life.settled()
        assert [visitor.methods.count(method) for method in ("turn/started", "turn/completed")] == [1, 1]
        assert visitor.methods[-1] == "turn/completed"
        assert visitor.frames[-1]["params"]["turn"]["status"] == status
        assert ("error" in visitor.methods) == (status == "failed")
        assert len(stage.records) == 1


async def test_an_answer_that_broke_keeps_what_it_said() -> None:
    async with hosting() as stage:
        visitor, thread_id, _ = await begun(stage, "cut")
        await stage.life.settled()
        found = await stage.host.find("t", thread_id)
        assert len(found.thread.history) == 2
        assert visitor.frames[-1]["params"]["turn"]["error"]["status"] >= 500


async def test_interrupting_twice_ends_a_turn_once() -> None:
    async with hosting() as stage:
        visitor, thread_id, turn_id = await begun(stage, "hang")
        await visitor.until("item/agentMessage/delta")
        await visitor.ask("turn/interrupt", threadId=thread_id, turnId=turn_id)
        await visitor.ask("turn/interrupt", threadId=thread_id, turnId=turn_id)
        await stage.life.settled()
        assert visitor.methods.count("turn/completed") == 1
        assert [record.ending for record in stage.records] == ["cancelled"]


async def test_more_input_than_anybody_types_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn, "STEERS_MAX", 2)
    async with hosting() as stage:
        visitor, thread_id, turn_id = await begun(stage, "hang")
        steer: dict[str, Any] = {"threadId": thread_id, "expectedTurnId": turn_id, "input": SAID}
        codes = [(await visitor.ask("turn/steer", **steer)).get("error", {}).get("code") for _ in range(4)]
        assert -32003 in codes
        assert codes[0] is None


async def test_a_fault_of_ours_ends_the_turn_as_failed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Said, "items", lambda _: 1 // 0)
    async with hosting() as stage:
        visitor, _, _ = await begun(stage, "cache")
        await stage.life.settled()
        await asyncio.sleep(0)
        ended = visitor.frames[-1]["params"]["turn"]
        assert (ended["status"], ended["error"]["status"]) == ("failed", 500)
        assert "a turn failed inside the gateway" in caplog.text


async def test_a_turn_that_is_steered_never_loses_what_the_user_said() -> None:
    async with hosting() as stage:
        visitor, thread_id, turn_id = await begun(stage, "hang")
        await visitor.until("item/agentMessage/delta")
        more = [{"type": "text", "text": "more"}]
        await visitor.ask("turn/steer", threadId=thread_id, expectedTurnId=turn_id, input=more)
        await visitor.ask("turn/interrupt", threadId=thread_id, turnId=turn_id)
        await stage.life.settled()
        shown = (await visitor.ask("thread/read", threadId=thread_id))["result"]["thread"]["turns"][0]
        assert shown["status"] == "interrupted"
        assert [item["type"] for item in shown["items"]][:2] == ["userMessage", "agentMessage"]
