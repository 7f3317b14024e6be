"""Who is asked to run a tool, who is asked again, and what the model is told where nobody answers."""

import asyncio

import pytest

from cachegate.control import tool_calls
from cachegate.control.params import InputText, ToolAnswer
from cachegate.control.rpc import Response
from cachegate.control.tool_calls import FAILED, MALFORMED, TIMED_OUT, TOO_MANY, ToolDesk
from cachegate.wire.hub import ToolCall, ToolRef
from control.listening import Ear

CALL = ToolCall("c1", ToolRef("look_up"), '{"a":1}')
GOOD = {"contentItems": [{"type": "inputText", "text": "b"}], "success": True}
ANSWER = ToolAnswer([InputText("b")], success=True)


@pytest.fixture
def desk() -> ToolDesk:
    return ToolDesk("thread_1", 60, lambda word: f"{word}_1")


async def asking(desk: ToolDesk, resolved: list[str] | None = None) -> "asyncio.Task[ToolAnswer]":
    task = asyncio.ensure_future(desk.run("turn_1", CALL, ([] if resolved is None else resolved).append))
    await asyncio.sleep(0)
    return task


def words(answer: ToolAnswer) -> str:
    assert answer.success is False
    (item,) = answer.content_items
    assert isinstance(item, InputText)
    return item.text


async def test_the_one_who_registered_last_is_asked(desk: ToolDesk) -> None:
    first, second = Ear(), Ear()
    desk.register(first)
    desk.register(second)
    task = await asking(desk)
    assert first.frames == []
    params = {"threadId": "thread_1", "turnId": "turn_1", "callId": "c1", "tool": "look_up", "arguments": {"a": 1}}
    assert second.frames == [{"jsonrpc": "2.0", "id": "tool_1", "method": "item/tool/call", "params": params}]
    desk.answer(first, Response("tool_1", GOOD))
    desk.answer(second, Response("tool_2", GOOD))
    assert not task.done()
    desk.answer(second, Response("tool_1", GOOD))
    desk.answer(second, Response("tool_1", None))
    assert await task == ANSWER


async def test_who_comes_next_is_asked_again_and_who_is_there_is_not(desk: ToolDesk) -> None:
    first, second, third = Ear(), Ear(), Ear()
    desk.register(first)
    task = await asking(desk)
    desk.register(second)
    assert second.frames == [], "the first one is still at it"
    desk.leave(first)
    desk.leave(second)
    desk.answer(first, Response("tool_1", GOOD))
    assert not task.done()
    desk.register(third)
    assert third.frames == first.frames
    desk.answer(third, Response("tool_1", GOOD))
    assert await task == ANSWER


async def test_a_call_waits_for_somebody_to_run_it(desk: ToolDesk) -> None:
    task = await asking(desk)
    ear = Ear()
    desk.register(ear)
    desk.answer(ear, Response("tool_1", GOOD))
    assert await task == ANSWER


@pytest.mark.parametrize(("result", "told"), [(None, FAILED), ({"success": True}, MALFORMED), (7, MALFORMED)])
async def test_an_answer_that_is_none_is_told_to_the_model(desk: ToolDesk, result: object, told: str) -> None:
    ear, resolved = Ear(), list[str]()
    desk.register(ear)
    task = await asking(desk, resolved)
    desk.answer(ear, Response("tool_1", result))
    assert words(await task).startswith(told)
    assert resolved == []


async def test_time_runs_out() -> None:
    resolved: list[str] = []
    desk = ToolDesk("thread_1", 0.001, lambda word: f"{word}_1")
    desk.register(Ear())
    assert words(await desk.run("turn_1", CALL, resolved.append)) == TIMED_OUT
    assert resolved == ["tool_1"]
    assert desk._pending == {}


async def test_an_interrupt_takes_the_call_back(desk: ToolDesk) -> None:
    resolved: list[str] = []
    task = await asking(desk, resolved)
    task.cancel()
    await asyncio.wait({task})
    assert (task.cancelled(), resolved, desk._pending) == (True, ["tool_1"], {})


async def test_too_many_at_once_are_not_asked_for(desk: ToolDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_calls, "PENDING_MAX", 1)
    task = await asking(desk)
    assert words(await desk.run("turn_1", CALL, list[str]().append)) == TOO_MANY
    task.cancel()
    await asyncio.wait({task})
