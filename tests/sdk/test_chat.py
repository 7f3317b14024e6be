"""A chat over HTTP through a real gateway: what is sent, what stays in the history, and what each ending is."""

import asyncio
import json
import threading
from collections.abc import Callable
from contextlib import aclosing

import pytest

from cachegate.guard.machine import Ending
from cachegate.sdk import (
    AsyncClient,
    BrokenAnswer,
    Busy,
    CacheStop,
    Closed,
    Completed,
    ContextFull,
    Event,
    Image,
    Interrupted,
    ProviderError,
    Text,
    TextDelta,
    ThoughtDelta,
    Tokens,
    Tool,
    ToolAnswered,
    ToolCalled,
    ToolRoundsExceeded,
    Usage,
    UsageUpdated,
)
from cachegate.sdk import tools as tool_rules
from cachegate.sdk.chat import AsyncChat
from running_gateway import RunningGateway, config_for, running_gateway
from scripted_upstream import Script, ScriptedUpstream, Step, chunk, stream, stream_head, whole
from sdk.replies import (
    MODEL,
    USAGE,
    answering,
    begun,
    called,
    conversation,
    event,
    hanging,
    response,
    said,
    streamed,
    thought,
    until,
)

TOOK = Tokens(100, 40, 60, 7, 107)
LARGE = "All work and no cache makes a long night. " * 9_000


def add(a: int, b: int) -> int:
    return a + b


ADD = Tool("add", "Add two numbers.", {"type": "object", "properties": {"a": {}, "b": {}}}, add)


async def everything(chat: AsyncChat, text: str) -> list[Event]:
    return [told async for told in chat.stream(text)]


async def reacting(chat: AsyncChat, text: str, to: Event, by: Callable[[], object]) -> None:
    """Do something as soon as an event comes, and go on listening."""
    async for told in chat.stream(text):
        if told == to:
            by()


async def test_an_answer_comes_whole(client: AsyncClient, upstream: ScriptedUpstream) -> None:
    upstream.answer = answering([thought("hm"), said("Hello.")])
    chat = client.chat(MODEL, instructions="Be kind.", effort="low", max_output_tokens=50, id="chat-1")
    answer = await chat.send("hi")
    assert (answer.text, answer.incomplete, answer.refused, answer.tokens) == ("Hello.", None, False, TOOK)
    (request,) = upstream.requests
    assert json.loads(request.body) == {
        "model": "gpt-x",
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "chat-1",
        "instructions": "Be kind.",
        "reasoning": {"effort": "low"},
        "max_output_tokens": 50,
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
        "stream": False,
    }


async def test_an_answer_comes_as_it_is_written(client: AsyncClient, upstream: ScriptedUpstream) -> None:
    upstream.answer = answering([thought("hm"), said("Hello.")])
    events = await everything(client.chat(MODEL), "hi")
    assert events[:3] == [ThoughtDelta("hm"), TextDelta("He"), TextDelta("llo.")]
    assert isinstance(events[3], UsageUpdated)
    assert isinstance(events[4], Completed)
    assert events[4].answer.text == "Hello."


async def test_each_request_begins_with_the_bytes_of_the_one_before(
    client: AsyncClient, upstream: ScriptedUpstream
) -> None:
    rounds = (
        [thought("two numbers"), called("add", '{"a": 1, "b": 2}')],
        [said("3, 👍🏽 of course")],
        [said("ok")],
    )
    upstream.answer = answering(*rounds)
    chat = client.chat(MODEL, tools=[ADD])
    await chat.send("1 + 2? 🙂")
    await everything(chat, "thanks")
    first, second, third = map(conversation, upstream.requests)
    assert second.startswith(first + b",")
    assert third.startswith(second + b",")
    sent = json.loads(upstream.requests[2].body)["input"]
    assert sent[1:3] == rounds[0], "items go back exactly as they came"
    assert sent[3] == {"type": "function_call_output", "call_id": "call_1", "output": "3"}
    heads = {request.body.partition(b'"input":[')[0] for request in upstream.requests}
    assert len(heads) == 1, "what stands before the conversation never changes"


async def test_the_gateway_knows_the_chat_by_its_id_and_keys_stay_where_they_belong(
    upstream: ScriptedUpstream,
) -> None:
    upstream.answer = answering([said("ok")])
    clients = [{"name": "me", "key": "k" * 32}]
    async with (
        running_gateway(config_for(upstream.url, clients=clients)) as gateway,
        AsyncClient(gateway.url, key="k" * 32, api_key="sk-mine", headers={"OpenAI-Project": "p"}) as client,
    ):
        await client.chat(MODEL).send("hi")
        assert gateway.records[0].guard is not None
    (request,) = upstream.requests
    assert request.header("authorization") == "Bearer sk-mine"
    assert request.header("openai-project") == "p"
    assert request.header("x-cachegate-key") is None


async def test_images_and_texts_go_in_one_message(client: AsyncClient, upstream: ScriptedUpstream) -> None:
    upstream.answer = answering([said("a cat")])
    await client.chat(MODEL).send([Text("What is this?"), Image("data:image/png;base64,AA=="), "Be brief."])
    content = json.loads(upstream.requests[0].body)["input"][0]["content"]
    assert [part["type"] for part in content] == ["input_text", "input_image", "input_text"]


async def test_tools_run_and_the_turn_goes_on(client: AsyncClient, upstream: ScriptedUpstream) -> None:
    calls = [called("add", '{"a":1,"b":2}'), called("nope", "{}", 2), called("add", "[1]", 3), called("add", "", 4)]
    upstream.answer = answering(calls, [said("3")])
    events = await everything(client.chat(MODEL, tools=[ADD]), "go")
    called_events = [told for told in events if isinstance(told, ToolCalled)]
    assert [told.arguments for told in called_events] == [{"a": 1, "b": 2}, {}, "[1]", {}]
    outputs = [(told.output, told.success) for told in events if isinstance(told, ToolAnswered)]
    assert outputs[0] == ("3", True)
    assert [success for _, success in outputs[1:]] == [False, False, False]
    assert "no tool 'nope'" in outputs[1][0]
    assert isinstance(events[-1], Completed)
    assert events[-1].answer.tokens == TOOK + TOOK


async def test_a_failed_send_can_be_repeated_unchanged(client: AsyncClient, upstream: ScriptedUpstream) -> None:
    chat = client.chat(MODEL)
    upstream.answer = lambda _: [whole(429, b'{"error":{"message":"slow down","code":"rate_limit_exceeded"}}')]
    for _ in range(2):
        with pytest.raises(ProviderError, match="slow down") as failed:
            await chat.send("hi")
        assert (failed.value.status, failed.value.code) == (429, "rate_limit_exceeded")
    first, second = upstream.requests
    assert first.body == second.body
    assert chat.history == ()
    assert chat.usage == Usage(), "a request that was refused took nothing"


async def test_completed_tool_rounds_outlive_a_failure(client: AsyncClient, upstream: ScriptedUpstream) -> None:
    again = answering([called("add", '{"a":1,"b":2}')], [said("3")])
    upstream.answer = lambda recorded: [whole(503, b"")] if len(upstream.requests) == 2 else again(recorded)
    chat = client.chat(MODEL, tools=[ADD])
    with pytest.raises(ProviderError):
        await chat.send("go")
    assert [item["type"] for item in chat.history] == ["message", "function_call", "function_call_output"]
    assert (await chat.send(())).text == "3"
    assert upstream.requests[1].body == upstream.requests[2].body


BROKEN: dict[str, tuple[Script, str]] = {
    "cut after text": (stream(begun(said("Half of it"))), "ended before it was complete"),
    "cut inside an event": (stream(streamed(said("Hello"))[:-30]), "ended before it was complete"),
    "no event at all": (stream(b": nothing\n\n"), "ended before it was complete"),
    "connection closed": ([stream_head(), chunk(begun(said("Half"))), Step.CLOSE], ""),
    "failed": (stream(begun(said("Half")) + event("response.failed", response={"error": {"message": "no"}})), "no"),
    "error": (stream(begun(said("Half")) + event("error", message="no", code="server_error")), "no"),
    "no JSON": (stream(b"event: response.output_text.delta\ndata: {nope\n\n"), ""),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_half_an_answer_is_a_failure(client: AsyncClient, upstream: ScriptedUpstream, name: str) -> None:
    script, words = BROKEN[name]
    upstream.answer = lambda _: script
    chat = client.chat(MODEL)
    # The gateway ends a broken stream with an error of its own, so most arrive here as that.
    with pytest.raises((BrokenAnswer, ProviderError)) as failed:
        await everything(chat, "hi")
    assert failed.value.words
    assert words in failed.value.words or "provider" in failed.value.words
    assert chat.history == ()
    assert chat.usage.total == Tokens(), "what it took is unknown, and so is every sum with it"
    upstream.answer = answering([said("whole")])
    await everything(chat, "hi")
    assert upstream.requests[0].body == upstream.requests[1].body


async def test_an_incomplete_answer_is_an_answer_with_a_reason(client: AsyncClient, upstream: ScriptedUpstream) -> None:
    cut = streamed(
        thought("so"), said("Half a"), called("add", '{"a'), status="incomplete",
        incomplete_details={"reason": "max_output_tokens"},
    )  # fmt: skip
    upstream.answer = lambda _: stream(cut)
    chat = client.chat(MODEL, tools=[ADD])
    answer = await chat.send("hi")
    assert (answer.text, answer.incomplete) == ("Half a", "max_output_tokens")
    assert len(upstream.requests) == 1, "half a call is not run"
    assert [item["type"] for item in chat.history] == ["message", "reasoning", "message"]


async def test_a_stop_is_told_by_its_own_error_and_nothing_is_retried_r23(
    gateway: RunningGateway, client: AsyncClient
) -> None:
    chat = client.chat("synthetic/cold")
    for _ in range(2):
        await chat.send(LARGE)
    before = chat.history
    with pytest.raises(CacheStop) as stopped:
        await chat.send("and now?")
    assert (stopped.value.reason, stopped.value.count, stopped.value.wait_s) == ("measured", 2, 300.0)
    assert "wait 5 minutes" in stopped.value.words
    assert not chat.context_full
    assert chat.history == before
    assert [outcome for outcome, _, _ in gateway.decisions] == ["allowed", "allowed", "blocked"]


async def test_a_stopped_chat_is_compacted_and_goes_on_r4_r10(gateway: RunningGateway, client: AsyncClient) -> None:
    chat = client.chat("synthetic/cold")
    for _ in range(2):
        await everything(chat, LARGE)
    with pytest.raises(CacheStop):
        await everything(chat, "and now?")
    compacted = await chat.compact()
    assert compacted.summary == "This is a synthetic summary."
    assert len(chat.history) == 1
    await everything(chat, "and now?")
    guards = [(record.guard.mode, record.guard.outcome) for record in gateway.records if record.guard]
    assert guards[2:] == [("chat", "blocked"), ("compaction", "allowed"), ("chat", "recovered")]


FULL = b'{"error":{"message":"too much","type":"invalid_request_error","code":"context_length_exceeded"}}'
OTHER_WORDS = b'{"error":{"message":"context window exceeds limit (2013)","type":"bad_request_error"}}'
FULLS: dict[str, Script] = {
    "status with code": [whole(400, FULL)],
    "status in other words": [whole(400, OTHER_WORDS)],
    "failed": stream(
        begun() + event("response.failed", response={"error": {"message": "x", "code": "context_length_exceeded"}})
    ),
    "error": stream(begun() + event("error", message="too much", code="context_length_exceeded")),
}


@pytest.mark.parametrize("name", FULLS)
async def test_a_full_context_is_told_marked_and_cleared(
    client: AsyncClient, upstream: ScriptedUpstream, name: str
) -> None:
    upstream.answer = answering([said("ok")])
    chat = client.chat(MODEL)
    await chat.send("hi")
    for clear in (lambda: chat.send("again"), chat.compact):
        upstream.answer = lambda _: FULLS[name]
        before = chat.history
        with pytest.raises(ContextFull):
            await everything(chat, "more")
        assert chat.context_full
        assert chat.history == before
        upstream.answer = answering([said("fine")])
        await clear()
        assert not chat.context_full


async def test_a_compaction_is_the_same_prefix_with_one_message_more(
    client: AsyncClient, upstream: ScriptedUpstream
) -> None:
    upstream.answer = answering([said("ok")], [said("We said hi.")], [said("yes")])
    chat = client.chat(MODEL, tools=[ADD], id="c1")
    await everything(chat, "hi")
    compacted = await chat.compact("Sum it up.")
    assert (compacted.summary, compacted.tokens) == ("We said hi.", TOOK)
    first, second = upstream.requests
    assert conversation(second).startswith(conversation(first) + b",")
    assert len(json.loads(second.body)["input"]) == 3
    assert second.body.partition(b'"input":[')[0] == first.body.partition(b'"input":[')[0]
    (left,) = chat.history
    assert left["role"] == "user"
    assert "We said hi." in str(left["content"])
    await chat.send("go on")
    assert len(json.loads(upstream.requests[2].body)["input"]) == 2


NO_SUMMARY: dict[str, Script] = {
    "refused": stream(streamed({**said(""), "content": [{"type": "refusal", "refusal": "No.", "text": ""}]})),
    "incomplete": stream(
        streamed(said("Half"), status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    ),
    "only a call": stream(streamed(called("add", "{}"))),
    "empty": stream(streamed(said("  "))),
    "an error": [whole(500, b"{}")],
    "cut": stream(begun(said("Half"))),
}


@pytest.mark.parametrize("name", NO_SUMMARY)
async def test_a_failed_compaction_leaves_everything_as_it_was(
    client: AsyncClient, upstream: ScriptedUpstream, name: str
) -> None:
    upstream.answer = answering([said("ok")])
    chat = client.chat(MODEL, tools=[ADD])
    await chat.send("hi")
    before = chat.history
    upstream.answer = lambda _: NO_SUMMARY[name]
    with pytest.raises((ProviderError, BrokenAnswer)):
        await chat.compact()
    assert chat.history == before


async def test_nothing_is_compacted_before_it_has_begun(client: AsyncClient, upstream: ScriptedUpstream) -> None:
    with pytest.raises(ValueError, match="has not begun"):
        await client.chat(MODEL).compact()
    with pytest.raises(ValueError, match="has not begun"):
        await client.chat(MODEL).send(())
    assert upstream.requests == []


@pytest.mark.parametrize("from_a_thread", [False, True])
async def test_an_interruption_closes_the_connection_and_keeps_what_was_said_r14(
    gateway: RunningGateway, client: AsyncClient, upstream: ScriptedUpstream, *, from_a_thread: bool
) -> None:
    upstream.answer = hanging(thought("hm"), said("Once upon"))
    chat = client.chat(MODEL)
    by = threading.Thread(target=chat.interrupt).start if from_a_thread else chat.interrupt
    with pytest.raises(Interrupted) as interrupted:
        await reacting(chat, "a story", TextDelta("ce upon"), by)
    assert interrupted.value.text == "Once upon"
    await asyncio.wait_for(upstream.requests[0].closed.wait(), 10)
    await until(lambda: len(gateway.records) == 1)
    assert gateway.records[0].ending == Ending.CANCELLED
    assert [item["role"] for item in chat.history] == ["user", "assistant"]
    assert chat.history[1]["content"] == [{"type": "output_text", "text": "Once upon"}]
    assert chat.usage.total == Tokens()
    upstream.answer = answering([said("a time")])
    await chat.send("go on")
    assert conversation(upstream.requests[1]).startswith(conversation(upstream.requests[0]) + b",")


async def test_an_interruption_does_not_wait_for_a_listener_that_is_busy(
    client: AsyncClient, upstream: ScriptedUpstream
) -> None:
    upstream.answer = hanging(said("Once upon"))
    chat = client.chat(MODEL)
    async with aclosing(chat.stream("a story")) as events:
        await anext(events)
        assert chat.interrupt()
        await asyncio.wait_for(upstream.requests[0].closed.wait(), 10)


async def test_an_interruption_ends_a_send_that_waits(client: AsyncClient, upstream: ScriptedUpstream) -> None:
    upstream.answer = lambda _: [Step.HANG]
    chat = client.chat(MODEL)
    sending = asyncio.create_task(chat.send("hi"))
    await upstream.count(1)
    assert chat.interrupt()
    with pytest.raises(Interrupted):
        await sending
    await asyncio.wait_for(upstream.requests[0].closed.wait(), 10)
    assert [item["role"] for item in chat.history] == ["user"]
    assert not chat.interrupt(), "nothing runs any more"


async def test_an_interruption_ends_a_tool(client: AsyncClient, upstream: ScriptedUpstream) -> None:
    ended = asyncio.Event()

    async def forever() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    upstream.answer = answering([said("Let me see."), called("forever", "{}")])
    chat = client.chat(MODEL, tools=[Tool("forever", "Waits.", {"type": "object"}, forever)])
    with pytest.raises(Interrupted):
        await reacting(chat, "go", ToolCalled("call_1", "forever", {}), chat.interrupt)
    await asyncio.wait_for(ended.wait(), 10)
    assert [item["type"] for item in chat.history] == ["message", "message"], "a call without its answer is not kept"


async def test_a_caller_that_stops_listening_interrupts(client: AsyncClient, upstream: ScriptedUpstream) -> None:
    upstream.answer = hanging(said("Once upon"))
    chat = client.chat(MODEL)
    async with aclosing(chat.stream("a story")) as events:
        async for _ in events:
            break
    await asyncio.wait_for(upstream.requests[0].closed.wait(), 10)
    assert chat.history[1]["content"] == [{"type": "output_text", "text": "On"}], "what the caller heard"


async def test_a_cancelled_task_stays_cancelled(client: AsyncClient, upstream: ScriptedUpstream) -> None:
    upstream.answer = lambda _: [Step.HANG]
    chat = client.chat(MODEL)
    sending = asyncio.create_task(chat.send("hi"))
    await upstream.count(1)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert [item["role"] for item in chat.history] == ["user"]
    upstream.answer = answering([said("here")])
    assert (await chat.send(())).text == "here", "the chat can be used again"


async def test_an_interrupted_compaction_changes_nothing(client: AsyncClient, upstream: ScriptedUpstream) -> None:
    upstream.answer = answering([said("ok")])
    chat = client.chat(MODEL)
    await chat.send("hi")
    before = chat.history
    upstream.answer = hanging(said("Half a"))
    compacting = asyncio.create_task(chat.compact())
    await upstream.count(2)
    chat.interrupt()
    with pytest.raises(Interrupted):
        await compacting
    assert chat.history == before


async def test_one_chat_runs_one_turn_at_a_time(client: AsyncClient, upstream: ScriptedUpstream) -> None:
    upstream.answer = lambda _: [Step.HANG]
    chat = client.chat(MODEL)
    sending = asyncio.create_task(chat.send("hi"))
    await upstream.count(1)
    for again in (chat.send("me too"), chat.compact()):
        with pytest.raises(Busy):
            await again
    chat.interrupt()
    with pytest.raises(Interrupted):
        await sending
    assert len(upstream.requests) == 1


async def test_usage_is_summed_and_unknown_stays_unknown(client: AsyncClient, upstream: ScriptedUpstream) -> None:
    chat = client.chat(MODEL)
    upstream.answer = answering([said("one")], [said("two")])
    await chat.send("1")
    await everything(chat, "2")
    assert chat.usage == Usage(TOOK, TOOK + TOOK)
    silent = {name: value for name, value in USAGE.items() if name != "input_tokens_details"}
    upstream.answer = answering([said("three")], usage=silent)
    await chat.send("3")
    assert chat.usage == Usage(Tokens(100, None, None, 7, 107), Tokens(300, None, None, 21, 321))


async def test_tools_for_ever_are_ended(
    client: AsyncClient, upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool_rules, "ROUNDS_MAX", 3)
    upstream.answer = answering(*[[called("add", '{"a":1,"b":1}', number)] for number in range(9)])
    chat = client.chat(MODEL, tools=[ADD])
    with pytest.raises(ToolRoundsExceeded):
        await chat.send("go")
    assert len(upstream.requests) == 3
    assert len(chat.history) == 1 + 3 * 2


async def test_a_refusal_is_an_answer_that_says_so(client: AsyncClient) -> None:
    answer = await client.chat("synthetic/refusal").send("hi")
    assert (answer.refused, answer.text) == (True, "I can't help with that.")


async def test_a_closed_client_says_so(gateway: RunningGateway) -> None:
    client = AsyncClient(gateway.url)
    chat = client.chat("synthetic/cache")
    await client.close()
    with pytest.raises(Closed):
        await chat.send("hi")
    assert chat.history == ()


async def test_a_whole_answer_where_a_stream_was_asked_for_is_read(
    client: AsyncClient, upstream: ScriptedUpstream
) -> None:
    upstream.answer = lambda _: [whole(200, json.dumps(response([thought("hm"), said("Hi")])).encode())]
    events = await everything(client.chat(MODEL), "hi")
    assert events[:2] == [ThoughtDelta("hm"), TextDelta("Hi")]
