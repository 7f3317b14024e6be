"""The control socket, over real WebSockets, with a provider behind it."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cachegate.control.history import History
from cachegate.errors import ConfigError
from cachegate.server import control
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import Stop
from cachegate.wire.overflows import is_overflow
from control.answers import answer, call, streamed, text, thought, written
from control_client import ControlClient, RpcFailed, connected, text_of, uninitialized
from provider_streams import WARM
from running_gateway import RunningGateway, config_for, running_gateway
from scripted_upstream import HeldScript, Script, ScriptedUpstream, Step, chunk, stream, stream_head, whole

RESPONSES, MESSAGES = Protocol.RESPONSES, Protocol.MESSAGES
LARGE = "x" * 300_000
LOOK_UP = {"name": "look_up", "description": "Looks something up.", "inputSchema": {"type": "object"}}


@pytest.fixture
async def one(gateway: RunningGateway) -> AsyncIterator[ControlClient]:
    async with connected(gateway.client, gateway.url) as client:
        yield client


@pytest.fixture(params=[RESPONSES, MESSAGES])
def spoken(request: pytest.FixtureRequest) -> Protocol:
    chosen: Protocol = request.param
    return chosen


def answers(upstream: ScriptedUpstream, *scripts: HeldScript) -> None:
    """Give these answers one after the other; the last one for ever."""
    left = list(scripts)
    upstream.answer = lambda _: left.pop(0) if len(left) > 1 else left[0]


def sent(upstream: ScriptedUpstream, number: int = -1) -> Any:
    return json.loads(upstream.requests[number].body)


def conversation(upstream: ScriptedUpstream, number: int = -1) -> list[Any]:
    body = sent(upstream, number)
    found: list[Any] = body.get("input") or body["messages"]
    return found


def words_of(items: list[Any]) -> list[str]:
    """All texts of a conversation, in order."""
    return [
        part["text"]
        for item in items
        for part in (item["content"] if isinstance(item.get("content"), list) else [])
        if "text" in part
    ]


# --- a turn ---


async def test_a_turn_is_told_from_its_start_to_its_end(
    one: ControlClient, upstream: ScriptedUpstream, spoken: Protocol
) -> None:
    answers(upstream, streamed(spoken, thought("Hm.", "b3BhcXVl"), text("Hel", "lo", index=1), usage=WARM))
    thread_id = await one.thread("model-x", protocol=spoken.value, instructions="Be kind.")
    turn = await one.turn(thread_id, "hi")
    assert [event["method"] for event in one.events] == [
        "thread/started", "turn/started", "item/started", "item/completed",
        "item/started", "item/reasoning/textDelta", "item/completed",
        "item/started", "item/agentMessage/delta", "item/agentMessage/delta", "item/completed",
        "thread/tokenUsage/updated", "turn/completed",
    ]  # fmt: skip
    assert (turn["status"], turn["error"]) == ("completed", None)
    assert [item["type"] for item in turn["items"]] == ["userMessage", "reasoning", "agentMessage"]
    assert text_of(turn) == "Hello"
    assert [event["delta"] for event in one.named("item/agentMessage/delta")] == ["Hel", "lo"]
    assert {event["params"]["threadId"] for event in one.events} == {thread_id}
    cursors = [event["params"]["cursor"] for event in one.events]
    assert len(set(cursors)) == len(cursors)
    last = {
        "inputTokens": 201_000, "cachedInputTokens": 200_000, "cacheWriteInputTokens": 1_000, "outputTokens": 7,
        "totalTokens": 201_007,
    }  # fmt: skip
    if spoken is RESPONSES:
        assert one.named("thread/tokenUsage/updated")[0]["tokenUsage"] == {"last": last, "total": last}
    shown = (await one.ask("thread/read", threadId=thread_id))["thread"]
    assert shown["turns"] == [turn]
    assert (shown["status"], shown["contextFull"], shown["cursor"]) == ("idle", False, cursors[-1])


async def test_the_next_request_begins_with_the_bytes_of_the_one_before(
    one: ControlClient, upstream: ScriptedUpstream, spoken: Protocol
) -> None:
    answers(upstream, streamed(spoken, thought("Hm.", "b3BhcXVl"), text("Hello", index=1)))
    thread_id = await one.thread("model-x", protocol=spoken.value, instructions="Be kind.", dynamicTools=[LOOK_UP])
    await one.turn(thread_id, "one")
    await one.turn(thread_id, "two")
    first, second = (_unmarked(conversation(upstream, number)) for number in (0, 1))
    assert second[: len(first)] == first
    assert len(second) > len(first) + 1
    assert "b3BhcXVl" in upstream.requests[1].body.decode(), "opaque thoughts go back to who made them"
    assert {key: value for key, value in sent(upstream, 0).items() if key not in {"input", "messages"}} == {
        key: value for key, value in sent(upstream, 1).items() if key not in {"input", "messages"}
    }


def _unmarked(items: list[Any]) -> list[Any]:
    text = json.dumps(items).replace(', "cache_control": {"type": "ephemeral"}', "")
    found: list[Any] = json.loads(text)
    return found


async def test_a_second_turn_waits_for_nobody(one: ControlClient, upstream: ScriptedUpstream) -> None:
    answers(upstream, [stream_head(), Step.HANG])
    thread_id = await one.thread("model-x")
    turn_id = await one.say(thread_id, "one")
    for method, more in (("turn/start", {"input": [{"type": "text", "text": "two"}]}), ("thread/compact/start", {})):
        with pytest.raises(RpcFailed) as failed:
            await one.ask(method, threadId=thread_id, **more)
        assert (failed.value.code, failed.value.data) == (-32000, {"turnId": turn_id})


async def test_usage_that_is_unknown_once_is_unknown_in_the_sum(one: ControlClient) -> None:
    thread_id = await one.thread("synthetic/unreported")
    start = (await one.ask("thread/read", threadId=thread_id))["thread"]["tokenUsage"]
    assert set(start["last"].values()) == {None}
    assert set(start["total"].values()) == {0}
    await one.turn(thread_id, "hi", model="synthetic/unreported")
    await one.turn(thread_id, "hi", model="synthetic/cache")
    usage = one.named("thread/tokenUsage/updated")[-1]["tokenUsage"]
    assert usage["last"]["cachedInputTokens"] == 0
    assert usage["total"]["cachedInputTokens"] is None
    assert usage["total"]["inputTokens"] > usage["last"]["inputTokens"] > 0


# --- the guard (R3, R4, R22, R23) ---


async def test_the_third_cold_turn_is_stopped_and_a_retry_too_r3_r23(
    gateway: RunningGateway, one: ControlClient, upstream: ScriptedUpstream
) -> None:
    answers(upstream, streamed(RESPONSES, text("Hello")))
    thread_id = await one.thread("model-x")
    for said in (LARGE, "two"):
        assert (await one.turn(thread_id, said))["status"] == "completed"
    for _ in range(2):
        turn = await one.turn(thread_id, "three")
        assert turn["status"] == "failed"
        assert turn["error"]["cacheStop"] == {"reason": "measured", "count": 2, "waitSeconds": 300}
        assert (turn["error"]["codexErrorInfo"], turn["error"]["status"]) == ("other", 400)
        assert not is_overflow((), turn["error"]["message"])
        assert "compact" not in turn["error"]["message"]
    assert len(upstream.requests) == 2
    assert gateway.decisions[2:] == [("blocked", "measured", 2)] * 2
    assert (await one.ask("thread/read", threadId=thread_id))["thread"]["contextFull"] is False
    assert one.named("error")[0]["willRetry"] is False
    async with connected(gateway.client, gateway.url) as again:
        await again.ask("thread/resume", threadId=thread_id)
        assert (await again.turn(thread_id, "four"))["error"]["cacheStop"] is not None, (
            "a reconnect resets nothing (R22)"
        )


async def test_a_stopped_thread_may_compact_and_goes_on_smaller_r4(
    gateway: RunningGateway, one: ControlClient, upstream: ScriptedUpstream
) -> None:
    answers(upstream, streamed(RESPONSES, text("Hello")))
    thread_id = await one.thread("model-x", dynamicTools=[LOOK_UP], instructions="Be kind.")
    for said in (LARGE, "two", "three"):
        turn = await one.turn(thread_id, said)
    assert turn["error"]["cacheStop"] is not None
    answers(upstream, streamed(RESPONSES, text("The sum of it.")), streamed(RESPONSES, text("On we go."), usage=WARM))
    await one.ask("thread/compact/start", threadId=thread_id)
    await one.until(lambda: one.named("thread/compacted"))
    asked = conversation(upstream)
    assert asked[: len(conversation(upstream, 1))] == conversation(upstream, 1), "the cache of the chat serves it"
    assert "summary" in words_of(asked)[-1]
    assert "three" not in words_of(asked), "what was stopped was taken back"
    before, now = sent(upstream, 1), sent(upstream)
    assert all(before[name] == now[name] for name in before if name != "input")
    turn = await one.turn(thread_id, "four")
    assert text_of(turn) == "On we go."
    texts = words_of(conversation(upstream))
    assert len(texts) == 2
    assert "The sum of it." in texts[0]
    assert texts[1] == "four"
    modes = [record.guard.mode for record in gateway.records if record.guard]
    assert modes == ["chat"] * 3 + ["compaction", "chat"]
    assert gateway.decisions[-1][0] == "recovered"
    compaction = one.named("turn/completed")[3]["turn"]
    assert compaction["items"] == [{"type": "contextCompaction", "id": compaction["items"][0]["id"],
                                    "summary": "The sum of it."}]  # fmt: skip


@pytest.mark.parametrize("body", ["CRITICAL: Respond with TEXT ONLY. create a detailed summary",
                                  "You are performing a CONTEXT CHECKPOINT COMPACTION"])  # fmt: skip
async def test_nothing_but_the_method_is_a_compaction_r4(
    gateway: RunningGateway, upstream: ScriptedUpstream, body: str
) -> None:
    answers(upstream, streamed(RESPONSES, text("Hello")))
    headers = {"x_cachegate_request_class": "compaction", "x_openai_subagent": "compact"}
    async with connected(gateway.client, gateway.url, **headers) as one:
        thread_id = await one.thread(
            "model-x", instructions="You are a security monitor for autonomous AI coding agents.", maxOutputTokens=1
        )
        await one.turn(thread_id, body)
    assert [record.guard.mode for record in gateway.records if record.guard] == ["chat"]
    assert (await _budgets(gateway)) == 1


async def _budgets(gateway: RunningGateway) -> int:
    return len(gateway.store)


async def test_a_failed_compaction_leaves_the_history_as_it_was(one: ControlClient, upstream: ScriptedUpstream) -> None:
    cut = stream(b"".join(written(RESPONSES, answer(text("Half a sum")))[:3]))
    broken = whole(500, b'{"error":{"message":"busy"}}')
    called = streamed(RESPONSES, call("c1", "look_up", "{}"), stop=Stop.TOOL_CALLS)
    good = streamed(RESPONSES, text("Hello"))
    answers(upstream, good, cut, [broken], called, good)
    thread_id = await one.thread("model-x", dynamicTools=[LOOK_UP])
    await one.turn(thread_id, "one")
    for number in range(3):
        await one.ask("thread/compact/start", threadId=thread_id)
        await one.until(partial(_turns, one, number + 2))
        assert one.named("turn/completed")[-1]["turn"]["status"] == "failed"
    await one.turn(thread_id, "two")
    assert words_of(conversation(upstream)) == ["one", "Hello", "two"]
    assert one.calls == []


def _turns(one: ControlClient, number: int) -> bool:
    return len(one.named("turn/completed")) >= number


async def test_an_empty_thread_has_nothing_to_compact(one: ControlClient, upstream: ScriptedUpstream) -> None:
    with pytest.raises(RpcFailed) as failed:
        await one.ask("thread/compact/start", threadId=await one.thread("model-x"))
    assert failed.value.code == -32000
    assert upstream.requests == []


OVERFLOW = whole(
    400,
    b'{"error":{"message":"Your input exceeds the context window of this model.","code":"context_length_exceeded"}}',
)


async def test_only_a_real_overflow_sets_the_mark_and_an_answer_clears_it(
    one: ControlClient, upstream: ScriptedUpstream
) -> None:
    good = streamed(RESPONSES, text("Hello"))
    called = streamed(RESPONSES, call("c1", "look_up", "{}"), stop=Stop.TOOL_CALLS)
    answers(upstream, good, [whole(529, b'{"error":{"message":"busy"}}')], [OVERFLOW], called, good)
    thread_id = await one.thread("model-x")

    async def full() -> bool:
        marked: bool = (await one.ask("thread/read", threadId=thread_id))["thread"]["contextFull"]
        return marked

    await one.turn(thread_id, "one")
    turn = await one.turn(thread_id, "two")
    assert (turn["error"]["codexErrorInfo"], turn["error"]["status"], await full()) == ("other", 529, False)
    turn = await one.turn(thread_id, "two")
    assert (turn["error"]["codexErrorInfo"], await full()) == ("contextWindowExceeded", True)
    assert turn["error"]["cacheStop"] is None
    assert len(upstream.requests) == 3, "nothing compacts by itself"
    await one.ask("thread/compact/start", threadId=thread_id)
    await one.until(partial(_turns, one, 4))
    assert await full(), "a compaction that failed made no room"
    await one.ask("thread/compact/start", threadId=thread_id)
    await one.until(lambda: one.named("thread/compacted"))
    assert not await full()
    assert "two" not in words_of(conversation(upstream)), "what did not fit is no part of what is compacted"


async def test_a_request_that_failed_is_the_same_when_it_is_sent_again(
    one: ControlClient, upstream: ScriptedUpstream, spoken: Protocol
) -> None:
    good = streamed(spoken, text("Hello"))
    answers(upstream, good, [whole(500, b'{"error":{"message":"busy"}}')], good)
    thread_id = await one.thread("model-x", protocol=spoken.value)
    for said in ("one", "two", "two"):
        await one.turn(thread_id, said)
    assert upstream.requests[1].body == upstream.requests[2].body


# --- interrupt and steer ---


def hanging(*pieces: str) -> Script:
    return [stream_head(), chunk(b"".join(written(RESPONSES, answer(text(*pieces)))[: 2 + len(pieces)])), Step.HANG]


async def test_an_interrupt_stops_the_upstream_and_is_the_callers_cancellation_r14(
    gateway: RunningGateway, one: ControlClient, upstream: ScriptedUpstream
) -> None:
    answers(upstream, hanging("Half an ans"), streamed(RESPONSES, text("Whole.")))
    thread_id = await one.thread("model-x")
    turn_id = await one.say(thread_id, LARGE)
    await one.until(lambda: one.named("item/agentMessage/delta"))
    assert await one.ask("turn/interrupt", threadId=thread_id, turnId=turn_id) == {}
    await asyncio.wait_for(upstream.requests[0].closed.wait(), 5)
    turn = await one.completed(turn_id)
    assert (turn["status"], turn["error"], text_of(turn)) == ("interrupted", None, "Half an ans")
    assert [record.ending for record in gateway.records] == ["cancelled"]
    assert gateway.decisions == [("excused", "cancelled", 0)]
    with pytest.raises(RpcFailed) as failed:
        await one.ask("turn/interrupt", threadId=thread_id, turnId=turn_id)
    assert failed.value.code == -32000
    await one.turn(thread_id, "go on")
    assert words_of(conversation(upstream)) == [LARGE, "Half an ans", "go on"]


async def test_an_interrupt_before_the_first_word_keeps_the_users_message(
    gateway: RunningGateway, one: ControlClient, upstream: ScriptedUpstream
) -> None:
    answers(upstream, [Step.HANG], streamed(RESPONSES, text("Whole.")))
    thread_id = await one.thread("model-x")
    turn_id = await one.say(thread_id, "one")
    await upstream.count(1)
    await one.ask("turn/interrupt", threadId=thread_id, turnId=turn_id)
    assert (await one.completed(turn_id))["status"] == "interrupted"
    await one.turn(thread_id, "two")
    assert words_of(conversation(upstream)) == ["one", "two"]
    assert [record.ending for record in gateway.records] == ["cancelled", "completed"]


async def test_steering_goes_on_with_what_was_said_and_the_new_words(
    gateway: RunningGateway, one: ControlClient, upstream: ScriptedUpstream
) -> None:
    answers(upstream, hanging("Half an ans"), streamed(RESPONSES, text("Otherwise.")))
    thread_id = await one.thread("model-x")
    turn_id = await one.say(thread_id, "one")
    await one.until(lambda: one.named("item/agentMessage/delta"))
    steer = {"threadId": thread_id, "input": [{"type": "text", "text": "No, two!"}]}
    with pytest.raises(RpcFailed) as failed:
        await one.ask("turn/steer", expectedTurnId="turn_other", **steer)
    assert (failed.value.code, failed.value.data) == (-32000, {"turnId": turn_id})
    assert await one.ask("turn/steer", expectedTurnId=turn_id, **steer) == {"turnId": turn_id}
    turn = await one.completed(turn_id)
    await asyncio.wait_for(upstream.requests[0].closed.wait(), 5)
    assert turn["status"] == "completed"
    assert [item["type"] for item in turn["items"]] == ["userMessage", "agentMessage"] * 2
    assert words_of(conversation(upstream)) == ["one", "Half an ans", "No, two!"]
    assert [record.ending for record in gateway.records] == ["cancelled", "completed"]
    assert len(one.named("turn/started")) == len(one.named("turn/completed")) == 1


BUSY = whole(500, b'{"error":{"message":"busy"}}')


async def test_what_was_answered_stays_when_the_steered_request_fails(
    one: ControlClient, upstream: ScriptedUpstream
) -> None:
    answers(upstream, hanging("Half an ans"), [BUSY], streamed(RESPONSES, text("Fine."), usage=WARM))
    thread_id = await one.thread("model-x")
    turn_id = await one.say(thread_id, "one")
    await one.until(lambda: one.named("item/agentMessage/delta"))
    more = [{"type": "text", "text": "two"}]
    await one.ask("turn/steer", threadId=thread_id, expectedTurnId=turn_id, input=more)
    assert (await one.completed(turn_id))["status"] == "failed"
    await one.turn(thread_id, "three")
    assert words_of(conversation(upstream)) == ["one", "Half an ans", "three"]


async def test_completed_rounds_of_tools_stay_when_a_later_request_fails(
    one: ControlClient, upstream: ScriptedUpstream
) -> None:
    called = streamed(RESPONSES, call("c1", "look_up", "{}"), stop=Stop.TOOL_CALLS, usage=WARM)
    answers(upstream, called, [BUSY], streamed(RESPONSES, text("Fine."), usage=WARM))
    thread_id = await one.thread("model-x", dynamicTools=[LOOK_UP])
    turn_id = await one.say(thread_id, "one")
    await one.until(lambda: one.calls)
    content = [{"type": "inputText", "text": "forty-two"}]
    await one.send({"id": one.calls[0]["id"], "result": {"contentItems": content, "success": True}})
    assert (await one.completed(turn_id))["status"] == "failed"
    await one.turn(thread_id, "two")
    kinds = [item["type"] for item in conversation(upstream)]
    assert kinds == ["message", "function_call", "function_call_output", "message"]
    assert conversation(upstream)[2]["output"] == "forty-two"


# --- tools ---


async def test_a_tool_is_run_by_the_client_and_its_answer_goes_back(
    one: ControlClient, upstream: ScriptedUpstream, spoken: Protocol
) -> None:
    twice = (call("c1", "look_up", '{"a": 1}'), call("c2", "look_up", '{"a":2}', index=1))
    answers(upstream, streamed(spoken, *twice, stop=Stop.TOOL_CALLS), streamed(spoken, text("Found.")))
    thread_id = await one.thread("model-x", protocol=spoken.value, dynamicTools=[LOOK_UP])
    turn_id = await one.say(thread_id, "look")
    await one.until(lambda: len(one.calls) == 2)
    first, second = one.calls
    assert first["method"] == "item/tool/call"
    assert first["params"] == {
        "threadId": thread_id, "turnId": turn_id, "callId": "c1", "tool": "look_up", "arguments": {"a": 1},
    }  # fmt: skip
    content = [{"type": "inputText", "text": "forty-two"}]
    await one.send({"id": second["id"], "error": {"code": 1, "message": "no"}})
    await one.send({"id": first["id"], "result": {"contentItems": content, "success": True}})
    turn = await one.completed(turn_id)
    assert (turn["status"], text_of(turn)) == ("completed", "Found.")
    uses = [item for item in turn["items"] if item["type"] == "dynamicToolCall"]
    assert [(use["status"], use["success"]) for use in uses] == [("completed", True), ("failed", False)]
    assert (uses[0]["contentItems"], uses[0]["arguments"]) == (content, {"a": 1})
    body = upstream.requests[1].body.decode()
    assert body.index("c1") < body.index("forty-two") < body.index("could not run")


async def test_a_tool_is_asked_again_of_who_comes_back(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    called = streamed(RESPONSES, call("c1", "look_up", "{}"), stop=Stop.TOOL_CALLS)
    answers(upstream, called, streamed(RESPONSES, text("Found.")))
    async with connected(gateway.client, gateway.url) as first:
        thread_id = await first.thread("model-x", dynamicTools=[LOOK_UP])
        turn_id = await first.say(thread_id, "look")
        await first.until(lambda: first.calls)
        cursor = first.events[-1]["params"]["cursor"]
    async with connected(gateway.client, gateway.url) as watcher, connected(gateway.client, gateway.url) as second:
        await watcher.ask("thread/resume", threadId=thread_id)
        told = await second.ask("thread/resume", threadId=thread_id, cursor=cursor, dynamicTools=[LOOK_UP])
        assert (told["missed"], told["thread"]["status"]) == ("none", "active")
        await second.until(lambda: second.calls)
        answered = {"id": second.calls[0]["id"], "result": {"contentItems": [], "success": True}}
        await watcher.send({**answered, "result": {"contentItems": [], "success": False}})
        await watcher.ask("thread/list")
        await second.send(answered)
        turn = await second.completed(turn_id)
        assert watcher.calls == []
    assert turn["items"][1]["success"] is True, "only who was asked may answer"
    assert text_of(turn) == "Found."


async def test_an_interrupt_takes_a_call_back(one: ControlClient, upstream: ScriptedUpstream) -> None:
    called = streamed(RESPONSES, call("c1", "look_up", "{}"), stop=Stop.TOOL_CALLS)
    answers(upstream, called, streamed(RESPONSES, text("Fine.")))
    thread_id = await one.thread("model-x", dynamicTools=[LOOK_UP])
    turn_id = await one.say(thread_id, "look")
    await one.until(lambda: one.calls)
    await one.ask("turn/interrupt", threadId=thread_id, turnId=turn_id)
    turn = await one.completed(turn_id)
    assert (turn["status"], turn["items"][-1]["status"]) == ("interrupted", "failed")
    assert [event["requestId"] for event in one.named("serverRequest/resolved")] == [one.calls[0]["id"]]
    await one.send({"id": one.calls[0]["id"], "result": {"contentItems": [], "success": True}})
    assert text_of(await one.turn(thread_id, "never mind")) == "Fine."
    results = [item for item in conversation(upstream) if item["type"] == "function_call_output"]
    assert ["interrupted" in result["output"] for result in results] == [True]


async def test_steering_while_a_tool_runs_waits_for_its_answer(one: ControlClient, upstream: ScriptedUpstream) -> None:
    called = streamed(RESPONSES, call("c1", "look_up", "{}"), stop=Stop.TOOL_CALLS)
    answers(upstream, called, streamed(RESPONSES, text("Fine.")))
    thread_id = await one.thread("model-x", dynamicTools=[LOOK_UP])
    turn_id = await one.say(thread_id, "look")
    await one.until(lambda: one.calls)
    more = [{"type": "text", "text": "and there"}]
    await one.ask("turn/steer", threadId=thread_id, expectedTurnId=turn_id, input=more)
    await one.send({"id": one.calls[0]["id"], "result": {"contentItems": [], "success": True}})
    await one.completed(turn_id)
    assert [item["type"] for item in conversation(upstream)] == [
        "message", "function_call", "function_call_output", "message",
    ]  # fmt: skip


async def test_tools_that_nobody_answers_and_endless_rounds_come_to_an_end(upstream: ScriptedUpstream) -> None:
    called = streamed(RESPONSES, call("c1", "look_up", "{}"), stop=Stop.TOOL_CALLS, usage=WARM)
    answers(upstream, called)
    config = config_for(upstream.url, control={"toolSeconds": 0.01, "toolRoundsMax": 3})
    async with running_gateway(config) as gateway, connected(gateway.client, gateway.url) as one:
        turn = await one.turn(await one.thread("model-x", dynamicTools=[LOOK_UP]), "look")
    assert turn["status"] == "failed"
    assert "3 rounds" in turn["error"]["message"]
    assert len(upstream.requests) == 3
    assert "no answer in time" in upstream.requests[1].body.decode()
    assert len(one.named("serverRequest/resolved")) == 3


async def test_a_tool_that_the_thread_does_not_have_is_not_asked_for(
    one: ControlClient, upstream: ScriptedUpstream
) -> None:
    called = streamed(RESPONSES, call("c1", "other", "{}"), stop=Stop.TOOL_CALLS)
    answers(upstream, called, streamed(RESPONSES, text("Oh.")))
    turn = await one.turn(await one.thread("model-x", dynamicTools=[LOOK_UP]), "look")
    assert (text_of(turn), one.calls) == ("Oh.", [])
    assert "no such tool" in upstream.requests[1].body.decode()


# --- events: none lost, none twice ---

SAID = answer(text("a", "b", "c"))
EVENTS = 11
"""From thread/started to turn/completed of a turn that says three pieces."""
BEFORE_ANY_WORD = 4
"""Of these, before the provider is asked. Behind them come an event or two with every piece of its answer."""


@pytest.mark.parametrize("seen", range(EVENTS + 1))
async def test_a_client_that_comes_back_anywhere_is_told_the_same_as_one_that_stayed(
    gateway: RunningGateway, upstream: ScriptedUpstream, seen: int
) -> None:
    pieces = written(RESPONSES, SAID)
    gates = [asyncio.Event() for _ in pieces]
    steps = [step for gate, piece in zip(gates, pieces, strict=True) for step in (gate, chunk(piece))]
    upstream.answer = lambda _: [stream_head(), *steps, chunk(b"")]
    async with connected(gateway.client, gateway.url) as stayed:
        thread_id = await stayed.thread("model-x")
        start = (await stayed.until(lambda: stayed.named("thread/started")))[0]["cursor"]
        async with connected(gateway.client, gateway.url) as left:
            await left.ask("thread/resume", threadId=thread_id, cursor=start)
            turn_id = await stayed.say(thread_id, "hi")
            for gate in gates[: seen - 2] if seen > BEFORE_ANY_WORD else ():
                gate.set()
            await left.until(lambda: len(left.events) >= seen - 1)
            heard = [stayed.events[0], *left.events][:seen]
        async with connected(gateway.client, gateway.url) as back:
            cursor = heard[-1]["params"]["cursor"] if heard else f"{start.rpartition('.')[0]}.0"
            told = await back.ask("thread/resume", threadId=thread_id, cursor=cursor)
            for gate in gates:
                gate.set()
            await stayed.completed(turn_id)
            await back.until(lambda: seen == EVENTS or back.named("turn/completed"))
    assert len(stayed.events) == EVENTS
    assert heard + back.events == stayed.events
    assert told["missed"] in {"none", "replayed"}


async def test_a_place_that_the_log_lost_is_told_as_lost(gateway: RunningGateway, one: ControlClient) -> None:
    thread_id = await one.thread()
    turn = await one.turn(thread_id, "hi")
    newest = one.events[-1]["params"]["cursor"]
    name = newest.rpartition(".")[0]
    async with connected(gateway.client, gateway.url) as other:
        for cursor in (f"{name}.9999", "log_other.1", "nonsense", f"{name}.-1", f"{name}.²"):
            told = await other.ask("thread/resume", threadId=thread_id, cursor=cursor)
            assert (told["missed"], told["cursor"], told["thread"]["turns"]) == ("lost", newest, [turn])
        assert other.events == []


async def test_a_snapshot_in_the_midst_of_a_turn_holds_what_was_said(
    gateway: RunningGateway, one: ControlClient, upstream: ScriptedUpstream
) -> None:
    answers(upstream, hanging("Half", " an ans"))
    thread_id = await one.thread("model-x")
    await one.say(thread_id, "hi")
    await one.until(lambda: len(one.named("item/agentMessage/delta")) == 2)
    async with connected(gateway.client, gateway.url) as other:
        told = await other.ask("thread/resume", threadId=thread_id)
    assert told["thread"]["status"] == "active"
    assert text_of(told["thread"]["turns"][-1]) == "Half an ans"
    assert told["cursor"] == one.events[-1]["params"]["cursor"]


async def test_whoever_unsubscribes_hears_nothing_more(gateway: RunningGateway, one: ControlClient) -> None:
    thread_id = await one.thread()
    async with connected(gateway.client, gateway.url) as other:
        await other.ask("thread/resume", threadId=thread_id)
        await other.ask("thread/unsubscribe", threadId=thread_id)
        await one.turn(thread_id, "hi")
        await other.ask("thread/list")
        assert other.events == []


async def test_a_client_that_reads_too_slowly_is_let_go_and_comes_back(
    monkeypatch: pytest.MonkeyPatch, upstream: ScriptedUpstream
) -> None:
    """What it was not told yet is in the log; the turn waited for nobody."""
    monkeypatch.setattr(control, "QUEUE_FRAMES_MAX", 4)
    pieces = [f"{number} " for number in range(64)]
    answers(upstream, streamed(RESPONSES, text(*pieces)))
    async with running_gateway(config_for(upstream.url)) as gateway:
        async with connected(gateway.client, gateway.url) as slow:
            thread_id = await slow.thread("model-x")
            await slow.say(thread_id, "hi")
            await asyncio.wait_for(slow.closed.wait(), 10)
            assert slow.socket.close_code == control.TOO_SLOW
        monkeypatch.undo()
        async with connected(gateway.client, gateway.url) as back:
            cursor = slow.events[-1]["params"]["cursor"]
            await back.ask("thread/resume", threadId=thread_id, cursor=cursor)
            await back.until(lambda: back.named("turn/completed"))
    heard = slow.named("item/agentMessage/delta") + back.named("item/agentMessage/delta")
    assert [event["delta"] for event in heard] == pieces


# --- who may see what ---


async def test_another_tenants_thread_looks_like_none(upstream: ScriptedUpstream) -> None:
    clients = [{"name": name, "key": name * 16} for name in ("a", "b")]
    async with (
        running_gateway(config_for(upstream.url, clients=clients)) as gateway,
        connected(gateway.client, gateway.url, x_cachegate_key="a" * 16) as a,
        connected(gateway.client, gateway.url, authorization="Bearer " + "b" * 16) as b,
    ):
        thread_id = await a.thread()
        turn_id = await a.say(thread_id, "hi")
        words = set()
        said = [{"type": "text", "text": "hi"}]
        for found in (thread_id, "thread_none"):
            for method, more in (
                ("thread/read", {}), ("thread/resume", {}), ("thread/delete", {}), ("thread/unsubscribe", {}),
                ("thread/compact/start", {}), ("turn/start", {"input": said}), ("turn/interrupt", {"turnId": turn_id}),
                ("turn/steer", {"input": said, "expectedTurnId": turn_id}),
            ):  # fmt: skip
                with pytest.raises(RpcFailed) as failed:
                    await b.ask(method, threadId=found, **more)
                words.add((failed.value.code, failed.value.message, failed.value.data))
        assert len(words) == 1
        assert words.pop()[0] == -32001
        assert (await b.ask("thread/list"))["data"] == []
        assert [thread["id"] for thread in (await a.ask("thread/list"))["data"]] == [thread_id]
        await a.completed(turn_id)
        assert b.events == []


async def test_lists_have_pages_newest_first(one: ControlClient) -> None:
    ids = [await one.thread(name=str(number)) for number in range(5)]
    found, cursor = list[str](), None
    for expected in (2, 2, 1):
        page = await one.ask("thread/list", limit=2, cursor=cursor)
        assert len(page["data"]) == expected
        assert all("turns" not in thread for thread in page["data"])
        found += [thread["id"] for thread in page["data"]]
        cursor = page["nextCursor"]
    assert cursor is None
    assert sorted(found) == sorted(ids)
    with pytest.raises(RpcFailed, match="cursor"):
        await one.ask("thread/list", cursor="nonsense")


async def test_a_deleted_thread_is_gone_and_what_ran_for_it_ended(
    gateway: RunningGateway, one: ControlClient, upstream: ScriptedUpstream
) -> None:
    answers(upstream, hanging("Half"))
    thread_id = await one.thread("model-x")
    await one.say(thread_id, "hi")
    await one.until(lambda: one.named("item/agentMessage/delta"))
    assert await one.ask("thread/delete", threadId=thread_id) == {}
    await asyncio.wait_for(upstream.requests[0].closed.wait(), 5)
    await one.until(lambda: one.named("thread/deleted"))
    assert [event["method"] for event in one.events[-2:]] == ["turn/completed", "thread/deleted"]
    with pytest.raises(RpcFailed) as failed:
        await one.ask("thread/read", threadId=thread_id)
    assert failed.value.code == -32001
    assert gateway.app.lifecycle.running == set()


async def test_idle_threads_that_nobody_listens_to_make_room(upstream: ScriptedUpstream) -> None:
    config = config_for(upstream.url, control={"threadsMax": 2})
    async with running_gateway(config) as gateway, connected(gateway.client, gateway.url) as one:
        first, second = await one.thread(), await one.thread()
        with pytest.raises(RpcFailed) as failed:
            await one.thread()
        assert failed.value.code == -32003
        await one.ask("thread/unsubscribe", threadId=first)
        await one.thread()
        with pytest.raises(RpcFailed):
            await one.ask("thread/read", threadId=first)
        assert (await one.ask("thread/read", threadId=second))["thread"]["id"] == second


# --- credentials ---


async def test_credentials_reach_the_provider_and_the_gateways_key_never(upstream: ScriptedUpstream) -> None:
    answers(upstream, streamed(MESSAGES, text("Hello")))
    clients = [{"name": "a", "key": "k" * 16}]
    headers = {
        "x_cachegate_key": "k" * 16, "x_api_key": "mine", "anthropic_beta": "b1", "authorization": "Bearer " + "k" * 16,
        "x_other": "private", "cookie": "private=1",
    }  # fmt: skip
    async with running_gateway(config_for(upstream.url, clients=clients)) as gateway:
        async with connected(gateway.client, gateway.url, **headers) as one:
            await one.turn(await one.thread("model-x", protocol="messages"), "hi")
            shown = json.dumps(await one.ask("thread/list")) + json.dumps(one.events)
        recorded = upstream.requests[0]
        assert (recorded.header("x-api-key"), recorded.header("anthropic-beta")) == ("mine", "b1")
        assert recorded.header("anthropic-version") == "2023-06-01"
        everything = str(recorded.headers)
        assert "k" * 16 not in everything
        assert "private" not in everything
        assert "x-cachegate" not in everything.lower()
        assert "mine" not in shown + repr(gateway.records)
    assert recorded.target == "/v1/messages"


async def test_a_configured_key_replaces_the_clients(upstream: ScriptedUpstream) -> None:
    answers(upstream, streamed(RESPONSES, text("Hello")))
    providers = {"openai": {"kind": "openai", "baseUrl": f"{upstream.url}/v1", "apiKey": "theirs"}}
    async with (
        running_gateway(config_for(upstream.url, providers=providers)) as gateway,
        connected(gateway.client, gateway.url, authorization="Bearer mine") as one,
    ):
        await one.turn(await one.thread("model-x"), "hi")
    assert upstream.requests[0].header("authorization") == "Bearer theirs"


# --- at the door ---


async def status_of(gateway: RunningGateway, **headers: str) -> int:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        async with gateway.client.ws_connect(f"{gateway.url}/control", headers=named):
            return 101
    except aiohttp.WSServerHandshakeError as refused:
        return refused.status


async def test_the_door_is_kept_before_the_upgrade(upstream: ScriptedUpstream) -> None:
    async with running_gateway(config_for(upstream.url, control={"connectionsMax": 1})) as gateway:
        assert await status_of(gateway, host="evil.example") == 403
        assert await status_of(gateway, origin="https://evil.example") == 403
        assert await status_of(gateway, sec_websocket_protocol="v1") == 400
        for method, more in (("get", {}), ("post", {"upgrade": "websocket"}), ("get", {"upgrade": "h2c"})):
            async with gateway.client.request(method, f"{gateway.url}/control", headers=more) as response:
                assert (response.status, response.headers["upgrade"]) == (426, "websocket")
        async with gateway.client.get(
            f"{gateway.url}/control", headers={"connection": "Upgrade", "upgrade": "websocket"}
        ) as response:
            assert response.status == 400
        assert await status_of(gateway) == 101
        async with connected(gateway.client, gateway.url):
            assert await status_of(gateway) == 503
        gateway.app.lifecycle.stopping = True
        assert await status_of(gateway) == 503
    async with running_gateway(config_for(upstream.url, control={"enabled": False})) as gateway:
        assert await status_of(gateway) == 404
    clients = [{"name": "a", "key": "k" * 16}]
    async with running_gateway(config_for(upstream.url, clients=clients)) as gateway:
        assert await status_of(gateway) == 401
        assert await status_of(gateway, x_api_key="k" * 16) == 101


@pytest.mark.parametrize(
    "frame",
    [
        {"type": "response.create", "id": 7, "model": "model-x", "input": "hi"},
        {"type": "response.create", "id": 7, "method": "turn/start"},
        {"type": "session.update", "id": 7},
    ],
)
async def test_inference_frames_are_refused_and_the_socket_stays_r3(
    gateway: RunningGateway, one: ControlClient, upstream: ScriptedUpstream, frame: dict[str, Any]
) -> None:
    await one.send(frame)
    error = (await one.until(lambda: one.answers.get(7)))[0]["error"]
    assert error["code"] == -32600
    assert "turn/start" in error["message"]
    await one.ask("thread/list")
    assert (upstream.connections, gateway.records) == (0, [])


async def test_frames_that_are_none_of_ours(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    async with uninitialized(gateway.client, gateway.url) as early:
        with pytest.raises(RpcFailed) as failed:
            await early.ask("thread/list")
        assert failed.value.code == -32002
        info = {"clientInfo": {"name": "x", "version": "1"}}
        told = await early.ask("initialize", **info)
        assert told["serverInfo"]["name"] == "cachegate"
        assert told["limits"]["messageBytesMax"] == 16_777_216
        with pytest.raises(RpcFailed) as failed:
            await early.ask("initialize", **info)
        assert failed.value.code == -32002
        await early.send({"method": "initialized"})
        with pytest.raises(RpcFailed, match="turn/start"):
            await early.ask("thread/begin")
        await early.socket.send_bytes(b"{}")
        await asyncio.wait_for(early.closed.wait(), 5)
        assert early.socket.close_code == 1003
    config = config_for(upstream.url, control={"messageBytesMax": 1_024})
    async with running_gateway(config) as small, connected(small.client, small.url) as one:
        await one.send("x" * 2_000)
        await asyncio.wait_for(one.closed.wait(), 5)
        assert one.socket.close_code == 1009


# --- the end of the gateway ---


async def test_draining_waits_for_turns_and_takes_no_new_ones(upstream: ScriptedUpstream) -> None:
    """R14: what the gateway ends itself is no cancellation of the caller's."""
    answers(upstream, hanging("Half"))
    async with running_gateway(config_for(upstream.url)) as gateway, connected(gateway.client, gateway.url) as one:
        thread_id = await one.thread("model-x")
        turn_id = await one.say(thread_id, LARGE)
        await one.until(lambda: one.named("item/agentMessage/delta"))
        hurry = asyncio.Event()
        draining = asyncio.create_task(gateway.app.drain(60, hurry))
        assert not (await asyncio.wait({draining}, timeout=0.1))[0], "it must wait for the running turn"
        for asking in (one.thread(), one.say(thread_id, "more")):
            with pytest.raises(RpcFailed) as failed:
                await asking
            assert failed.value.code == -32003
        hurry.set()
        await draining
        closing = asyncio.create_task(gateway.app.close())
        turn = await one.completed(turn_id)
        await asyncio.wait_for(one.closed.wait(), 5)
        assert one.socket.close_code == 1001
        await closing
    assert (turn["status"], text_of(turn)) == ("interrupted", "Half")
    assert [record.ending for record in gateway.records] == ["shutdown"]
    assert gateway.decisions == [("allowed", "unreported", 1)]


async def test_a_client_that_leaves_cancels_nothing(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    gate = asyncio.Event()
    pieces = written(RESPONSES, SAID)
    answers(upstream, [stream_head(), chunk(pieces[0]), gate, chunk(b"".join(pieces[1:])), chunk(b"")])
    async with connected(gateway.client, gateway.url) as left:
        thread_id = await left.thread("model-x")
        turn_id = await left.say(thread_id, "hi")
        await upstream.count(1)
    async with connected(gateway.client, gateway.url) as back:
        told = await back.ask("thread/resume", threadId=thread_id)
        assert told["thread"]["status"] == "active"
        gate.set()
        assert text_of(await back.completed(turn_id)) == "abc"
    assert [record.ending for record in gateway.records] == ["completed"]


async def test_threads_survive_a_restart_where_that_is_wanted(
    upstream: ScriptedUpstream, tmp_path: Path, spoken: Protocol
) -> None:
    twice = (thought("Hm.", "b3BhcXVl"), call("c1", "look_up", '{"a": 1}', index=1))
    good = streamed(spoken, text("Found."), usage=WARM)
    answers(upstream, streamed(spoken, *twice, stop=Stop.TOOL_CALLS, usage=WARM), good, [Step.HANG], good)
    path = tmp_path / "kept" / "threads.sqlite"
    config = config_for(upstream.url, control={"history": str(path)})
    async with running_gateway(config) as gateway, connected(gateway.client, gateway.url) as one:
        thread_id = await one.thread("model-x", protocol=spoken.value, dynamicTools=[LOOK_UP], name="mine")
        turn_id = await one.say(thread_id, "one")
        await one.until(lambda: one.calls)
        content = [{"type": "inputText", "text": "1"}, {"type": "inputImage", "imageUrl": "https://x.test/a.png"}]
        await one.send({"id": one.calls[0]["id"], "result": {"contentItems": content, "success": True}})
        await one.completed(turn_id)
        await one.say(thread_id, "two")
        await upstream.count(3)
        await one.ask("thread/list")
        reader = History(path)
        kept = await reader.load("", thread_id)
        await reader.close()
        assert kept is not None
        assert json.loads(kept.turns[-1])["status"] == "interrupted", "as if the process ended just now"
    assert path.stat().st_mode & 0o777 == 0o600
    async with running_gateway(config) as gateway, connected(gateway.client, gateway.url) as one:
        listed = (await one.ask("thread/list"))["data"]
        assert [(each["id"], each["name"], each["status"]) for each in listed] == [(thread_id, "mine", "idle")]
        cursor = "log_before.3"
        told = await one.ask("thread/resume", threadId=thread_id, cursor=cursor, dynamicTools=[LOOK_UP])
        assert told["missed"] == "lost"
        assert [turn["status"] for turn in told["thread"]["turns"]] == ["completed", "interrupted"]
        await one.turn(thread_id, "three")
        before, after = _unmarked(conversation(upstream, 2)), _unmarked(conversation(upstream, 3))
        assert after[: len(before) - 1] == before[:-1]
        assert words_of(after)[-2:] == ["two", "three"]
        await one.ask("thread/delete", threadId=thread_id)
    async with running_gateway(config) as gateway, connected(gateway.client, gateway.url) as one:
        assert (await one.ask("thread/list"))["data"] == []


async def test_a_file_that_holds_no_threads_is_a_clear_error(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear database, " * 100)
    for wrong in (path, tmp_path):
        with pytest.raises(ConfigError, match=r"control\.history: .* cannot be opened"):
            async with running_gateway(config_for(upstream.url, control={"history": str(wrong)})):
                pass
    assert path.read_text("utf-8").startswith("Dear database")


async def test_nothing_of_a_turn_is_logged(
    one: ControlClient, gateway: RunningGateway, upstream: ScriptedUpstream, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    answers(upstream, streamed(RESPONSES, text("confidential")))
    thread_id = await one.thread("model-x", instructions="confidential", name="confidential")
    await one.turn(thread_id, "confidential")
    assert len(gateway.records) == 1
    assert "confidential" not in caplog.text + repr(gateway.records)


async def test_beside_other_workers_no_chats_are_hosted_r3(upstream: ScriptedUpstream) -> None:
    async with running_gateway(config_for(upstream.url), workers=2) as gateway:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await gateway.client.ws_connect(f"{gateway.url}/control")
    assert refused.value.status == 503


async def test_a_retiring_gateway_lets_clients_go_whose_threads_are_kept(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    held = asyncio.Event()
    answers(upstream, [stream_head(), held, chunk(b"".join(written(RESPONSES, answer(text("late"))))), chunk(b"")])
    kept = config_for(upstream.url, control={"history": str(tmp_path / "threads.db")})
    async with running_gateway(kept) as gateway, connected(gateway.client, gateway.url) as client:
        thread = (await client.ask("thread/start", model="openai/m"))["thread"]
        await client.ask("turn/start", threadId=thread["id"], input=[{"type": "text", "text": "hi"}])
        await upstream.count(1)
        retiring = asyncio.create_task(gateway.app.retire(20.0, asyncio.Event()))
        assert await client.ask("thread/read", threadId=thread["id"]), "a turn runs, so it stays"
        held.set()
        await asyncio.wait_for(client.closed.wait(), 20)
        assert client.socket.close_code == 1001
        assert "turn/completed" in [event["method"] for event in client.events]
        await asyncio.wait_for(retiring, 20)
    async with running_gateway(kept) as gateway, connected(gateway.client, gateway.url) as client:
        assert (await client.ask("thread/resume", threadId=thread["id"]))["thread"]["turns"][0]["status"] == "completed"
