"""Hosted chats against a scripted control socket: what is asked for, what is told, and what a lost socket changes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import pytest

from cachegate.sdk import (
    AsyncClient,
    AsyncHostedChat,
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
    TextDelta,
    ThoughtDelta,
    Tokens,
    Tool,
    ToolAnswered,
    ToolCalled,
    Usage,
    UsageUpdated,
    hosted_chat,
)
from sdk.control_peer import ControlPeer, control_peer
from sdk.replies import until

TOOK = Tokens(100, 40, 60, 7, 107)
HELLO = [
    ThoughtDelta("hm"),
    TextDelta("Hel"),
    TextDelta("lo."),
    UsageUpdated(Usage(TOOK, TOOK)),
]


@pytest.fixture
async def peer() -> AsyncIterator[ControlPeer]:
    async with control_peer() as running:
        yield running


@pytest.fixture
async def client(peer: ControlPeer) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(peer.url, key="k" * 16, api_key="sk") as opened:
        yield opened


@pytest.fixture
async def chat(client: AsyncClient) -> AsyncHostedChat:
    return await client.hosted_chat("m")


async def everything(chat: AsyncHostedChat, text: str = "hi") -> list[Event]:
    return [told async for told in chat.stream(text)]


async def reacting(chat: AsyncHostedChat, to: Event, by: Callable[[], object]) -> None:
    """Do something as soon as an event comes, and go on listening."""
    async for told in chat.stream("hi"):
        if told == to:
            by()


def text_of(events: list[Event]) -> str:
    return "".join(told.text for told in events if isinstance(told, TextDelta))


async def test_a_turn_is_asked_for_and_told(peer: ControlPeer, client: AsyncClient) -> None:
    tool = Tool("t", "A tool.", {"type": "object"}, print)
    chat = await client.hosted_chat(
        "m", instructions="Be kind.", tools=[tool], effort="low", max_output_tokens=9, name="mine"
    )
    assert chat.usage == Usage()
    events = await everything(chat)
    assert events[:-1] == HELLO
    assert isinstance(events[-1], Completed)
    assert (events[-1].answer.text, events[-1].answer.tokens) == ("Hello.", TOOK)
    assert peer.methods() == ["initialize", "initialized", "thread/start", "turn/start"]
    assert peer.params("thread/start") == {
        "model": "m", "instructions": "Be kind.", "effort": "low", "maxOutputTokens": 9, "name": "mine",
        "dynamicTools": [{"name": "t", "description": "A tool.", "inputSchema": {"type": "object"}}],
    }  # fmt: skip
    assert peer.params("turn/start")["input"] == [{"type": "text", "text": "hi"}]
    assert (peer.headers[0]["x-cachegate-key"], peer.headers[0]["authorization"]) == ("k" * 16, "Bearer sk")
    assert chat.usage == Usage(TOOK, TOOK)
    assert [item["type"] for item in chat.history] == ["agentMessage"]
    assert chat.cursor == f"log.{len(peer.log)}"


async def test_an_input_has_texts_and_images_and_says_something(peer: ControlPeer, chat: AsyncHostedChat) -> None:
    assert (await chat.send(["look", Image("https://x/y.png")])).text == "Hello."
    assert peer.params("turn/start")["input"][1] == {"type": "image", "url": "https://x/y.png"}
    with pytest.raises(ValueError, match="says nothing"):
        await chat.send(())


async def test_tools_run_here(peer: ControlPeer, client: AsyncClient) -> None:
    chat = await client.hosted_chat("m", tools=[Tool("add", "Adds.", {}, lambda a, b: a + b)])
    answers: list[dict[str, Any]] = []

    async def script(turn_id: str) -> None:
        await peer.begin(turn_id)
        call = {"type": "dynamicToolCall", "id": "i1", "tool": "add", "arguments": {"a": 1, "b": 2}}
        await peer.emit("item/started", turnId=turn_id, item={**call, "contentItems": None, "success": None})
        asked = {"turnId": turn_id, "tool": "add"}
        answers.append(await peer.ask("tool_1", **asked, callId="c1", arguments={"a": 1, "b": 2}))
        await peer.item(turn_id, **call, **answers[0])
        answers.append(await peer.ask("tool_2", **asked, callId="c2", arguments="[1]"))
        await peer.complete()

    peer.script = script
    events = await everything(chat)
    assert events[:2] == [ToolCalled("i1", "add", {"a": 1, "b": 2}), ToolAnswered("i1", "add", "3", success=True)]
    assert answers[0] == {"contentItems": [{"type": "inputText", "text": "3"}], "success": True}
    assert answers[1]["success"] is False


@pytest.mark.parametrize("at", range(2, 8))
async def test_a_lost_socket_loses_and_repeats_nothing(peer: ControlPeer, chat: AsyncHostedChat, at: int) -> None:
    emit = peer.emit

    async def cutting(method: str, **params: Any) -> None:
        if len(peer.log) == at:
            await peer.cut()
        await emit(method, **params)

    peer.emit = cutting  # type: ignore[method-assign]
    events = await everything(chat)
    assert events[:-1] == HELLO
    assert isinstance(events[-1], Completed)
    assert peer.methods().count("turn/start") == 1


async def test_where_the_log_is_lost_the_snapshot_is_the_truth(peer: ControlPeer, chat: AsyncHostedChat) -> None:
    async def script(turn_id: str) -> None:
        await peer.begin(turn_id)
        await peer.delta(turn_id, "Hel")
        await until(lambda: chat.cursor == "log.2")
        peer.forgetful = True
        await peer.cut()
        await peer.item(turn_id, type="agentMessage", id="m1", text="Hello.")
        await peer.complete()

    peer.script = script
    events = await everything(chat)
    assert events[:2] == [TextDelta("Hel"), TextDelta("lo.")]
    assert isinstance(events[-1], Completed)
    assert events[-1].answer.text == "Hello."
    assert events[-1].answer.tokens == Tokens(), "what was missed is unknown"


async def test_a_turn_whose_beginning_was_not_confirmed_is_found_and_not_begun_again(
    peer: ControlPeer, chat: AsyncHostedChat
) -> None:
    peer.cut_after.add("turn/start")
    events = await everything(chat)
    assert text_of(events) == "Hello."
    assert peer.methods().count("turn/start") == 1
    assert peer.methods().count("initialize") == 2


@pytest.mark.parametrize("forgetful", [False, True])
async def test_a_turn_that_did_not_begin_is_not_begun_again(
    peer: ControlPeer, chat: AsyncHostedChat, *, forgetful: bool
) -> None:
    peer.forgetful = forgetful
    peer.cut_before.add("turn/start")
    with pytest.raises(BrokenAnswer, match="did not begin"):
        await chat.send("hi")
    assert peer.methods().count("turn/start") == 1
    assert (await chat.send("hi")).text == "Hello."


async def test_a_socket_lost_in_silence_is_opened_again_by_the_next_turn(
    peer: ControlPeer, chat: AsyncHostedChat
) -> None:
    await chat.send("hi")
    await peer.cut()
    await until(lambda: not chat._attached)
    assert (await chat.send("again")).text == "Hello."
    assert peer.params("thread/resume")["cursor"] == "log.7"


async def until_interrupted(peer: ControlPeer, turn_id: str) -> None:
    await peer.begin(turn_id)
    await peer.delta(turn_id, "Once")
    peer.turns[-1]["items"].append({"type": "agentMessage", "id": "m1", "text": "Once"})


@pytest.mark.parametrize("from_a_thread", [False, True])
async def test_an_interruption_ends_the_turn_in_the_gateway_r14(
    peer: ControlPeer, chat: AsyncHostedChat, *, from_a_thread: bool
) -> None:
    peer.script = lambda turn_id: until_interrupted(peer, turn_id)
    loop = asyncio.get_running_loop()
    by = (lambda: loop.run_in_executor(None, chat.interrupt)) if from_a_thread else chat.interrupt
    with pytest.raises(Interrupted) as interrupted:
        await reacting(chat, TextDelta("Once"), by)
    assert interrupted.value.text == "Once"
    assert peer.params("turn/interrupt") == {"threadId": "thread_1", "turnId": "turn_1"}
    assert not chat.interrupt()


async def test_an_interruption_that_nobody_confirms_ends_all_the_same(
    peer: ControlPeer, chat: AsyncHostedChat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosted_chat, "INTERRUPT_S", 0.01)
    peer.script = lambda turn_id: until_interrupted(peer, turn_id)
    peer.refusals["turn/interrupt"] = {"code": -32603, "message": "no"}
    with pytest.raises(Interrupted):
        await reacting(chat, TextDelta("Once"), chat.interrupt)


async def test_a_listener_that_leaves_ends_nothing(peer: ControlPeer, chat: AsyncHostedChat) -> None:
    released = asyncio.Event()

    async def script(turn_id: str) -> None:
        await peer.begin(turn_id)
        await peer.delta(turn_id, "Hel")
        await released.wait()
        await peer.delta(turn_id, "lo.")
        await peer.item(turn_id, type="agentMessage", id="m1", text="Hello.")
        await peer.complete()

    peer.script = script
    async with aclosing(chat.stream("hi")) as events:
        async for _ in events:
            break
    assert "turn/interrupt" not in peer.methods()
    assert chat.cursor == "log.2", "what was not handed out is not behind the cursor"
    released.set()
    assert text_of([told async for told in chat.follow()]) == "lo."
    with pytest.raises(ProviderError, match="No turn runs"):
        await anext(chat.follow())


async def test_a_turn_is_steered(peer: ControlPeer, chat: AsyncHostedChat) -> None:
    with pytest.raises(ProviderError, match="No turn runs"):
        await chat.steer("left")
    peer.script = lambda turn_id: until_interrupted(peer, turn_id)
    listening = asyncio.create_task(everything(chat))
    await until(lambda: chat._active is not None)
    await chat.steer("left")
    sent = peer.params("turn/steer")
    assert (sent["expectedTurnId"], sent["input"]) == ("turn_1", [{"type": "text", "text": "left"}])
    with pytest.raises(Busy):
        await chat.send("me too")
    chat.interrupt()
    with pytest.raises(Interrupted):
        await listening


FAILURE = {"message": "no", "codexErrorInfo": "other", "cacheStop": None, "status": 502}


def failing(peer: ControlPeer, **error: Any) -> None:
    async def script(turn_id: str) -> None:
        await peer.begin(turn_id)
        await peer.complete("failed", {**FAILURE, **error})

    peer.script = script


async def test_failures_are_what_they_are_over_http(peer: ControlPeer, chat: AsyncHostedChat) -> None:
    failing(peer)
    with pytest.raises(ProviderError) as failed:
        await chat.send("hi")
    assert (failed.value.words, failed.value.status) == ("no", 502)
    failing(peer, cacheStop={"reason": "measured", "count": 2, "waitSeconds": 300}, status=400)
    with pytest.raises(CacheStop) as stopped:
        await chat.send("hi")
    assert (stopped.value.reason, stopped.value.count, stopped.value.wait_s) == ("measured", 2, 300.0)
    assert not chat.context_full
    failing(peer, codexErrorInfo="contextWindowExceeded")
    with pytest.raises(ContextFull):
        await chat.send("hi")
    assert chat.context_full
    peer.script = peer.say_hello
    await chat.send("hi")
    assert not chat.context_full


async def test_a_compaction_is_a_turn_that_brings_a_summary(peer: ControlPeer, chat: AsyncHostedChat) -> None:
    async def script(turn_id: str) -> None:
        await peer.begin(turn_id)
        await peer.item(turn_id, type="contextCompaction", id="k1", summary="We said hi.")
        await peer.used(turn_id)
        await peer.emit("thread/compacted", turnId=turn_id)
        await peer.complete()

    peer.script = script
    compacted = await chat.compact()
    assert (compacted.summary, compacted.tokens) == ("We said hi.", TOOK)
    failing(peer)
    with pytest.raises(ProviderError):
        await chat.compact()


async def test_another_program_resumes_behind_its_cursor(peer: ControlPeer, chat: AsyncHostedChat) -> None:
    async with aclosing(chat.stream("hi")) as events:
        async for told in events:
            if told == TextDelta("Hel"):
                break
    await until(lambda: peer.turns[-1]["status"] == "completed")
    cursor = chat.cursor
    async with AsyncClient(peer.url) as other:
        resumed = await other.resume(chat.id, cursor=cursor)
        told_then = [told async for told in resumed.follow()]
        assert text_of(told_then) == "lo."
        assert isinstance(told_then[-1], Completed)
        with pytest.raises(ProviderError, match="No turn runs"):
            await anext(resumed.follow())
        assert (await resumed.send("again")).text == "Hello."
        assert resumed.usage == Usage(TOOK, TOOK)


async def test_a_running_turn_is_followed_without_a_cursor(peer: ControlPeer, chat: AsyncHostedChat) -> None:
    peer.script = lambda turn_id: until_interrupted(peer, turn_id)
    async with aclosing(chat.stream("hi")) as events:
        async for _ in events:
            break
    async with AsyncClient(peer.url) as other:
        resumed = await other.resume(chat.id)
        following = resumed.follow()
        assert await anext(following) == TextDelta("Once")
        assert resumed.interrupt()
        with pytest.raises(Interrupted):
            await anext(following)


async def test_a_tool_that_is_asked_for_again_runs_once(peer: ControlPeer, client: AsyncClient) -> None:
    runs: list[int] = []
    go_on = asyncio.Event()

    async def slow() -> str:
        runs.append(1)
        await go_on.wait()
        return "done"

    chat = await client.hosted_chat("m", tools=[Tool("slow", "Waits.", {}, slow)])
    answers: list[dict[str, Any]] = []

    async def script(turn_id: str) -> None:
        await peer.begin(turn_id)
        asked = {"turnId": turn_id, "tool": "slow", "callId": "c1", "arguments": {}}
        answering = asyncio.ensure_future(peer.ask("tool_1", **asked))
        await until(lambda: bool(runs))
        await peer.cut()
        await until(lambda: "thread/resume" in peer.methods())
        await peer.ask_again("tool_1", **asked)
        go_on.set()
        answers.append(await answering)
        await peer.complete()

    peer.script = script
    await everything(chat)
    assert runs == [1]
    assert answers[0]["contentItems"] == [{"type": "inputText", "text": "done"}]
    assert peer.params("thread/resume")["dynamicTools"][0]["name"] == "slow"


async def test_a_tool_whose_answer_nobody_needs_is_cancelled(peer: ControlPeer, client: AsyncClient) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def forever() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    chat = await client.hosted_chat("m", tools=[Tool("forever", "Waits.", {}, forever)])

    async def script(turn_id: str) -> None:
        await peer.begin(turn_id)
        await peer.ask_again("tool_1", turnId=turn_id, tool="forever", callId="c1", arguments={})
        await begun.wait()
        await peer.emit("serverRequest/resolved", requestId="tool_1")
        await ended.wait()
        await peer.complete("interrupted")

    peer.script = script
    with pytest.raises(Interrupted):
        await everything(chat)


async def test_too_much_unheard_gives_the_socket_up_and_loses_nothing(
    peer: ControlPeer, chat: AsyncHostedChat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosted_chat, "WAITING_MAX", 3)
    done = asyncio.Event()

    async def script(turn_id: str) -> None:
        await peer.say_hello(turn_id)
        done.set()

    peer.script = script
    events: list[Event] = []
    async for told in chat.stream("hi"):
        events.append(told)
        await asyncio.wait_for(done.wait(), 10)
        await until(lambda: not chat._control.open or chat._waiting.empty() or len(events) > 1)
    assert events[:-1] == HELLO


async def test_threads_are_listed_and_deleted(peer: ControlPeer, client: AsyncClient) -> None:
    threads = await client.threads()
    assert [thread.id for thread in threads] == ["thread_0", "thread_1", "thread_2"]
    assert (threads[0].model, threads[0].created_s, threads[0].usage) == ("m", 1, Usage())
    await client.delete("thread_1")
    assert peer.params("thread/delete") == {"threadId": "thread_1"}
    peer.refusals["thread/resume"] = {"code": -32001, "message": "There is no such thread."}
    with pytest.raises(ProviderError, match="no such thread"):
        await client.resume("thread_9")


async def test_a_closed_client_ends_what_listens(peer: ControlPeer, client: AsyncClient, chat: AsyncHostedChat) -> None:
    peer.script = lambda turn_id: until_interrupted(peer, turn_id)
    listening = asyncio.create_task(everything(chat))
    await until(lambda: chat._active is not None)
    await client.close()
    with pytest.raises(Closed):
        await listening
    with pytest.raises(Closed):
        await chat.send("hi")


async def test_a_message_that_the_gateway_would_not_take_is_not_sent(peer: ControlPeer, chat: AsyncHostedChat) -> None:
    with pytest.raises(ProviderError, match="takes 100000"):
        await chat.send("x" * 200_000)
    assert "turn/start" not in peer.methods()
