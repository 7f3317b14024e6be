"""Hosted chats on the gateway itself: the same chat over the real control socket."""

import asyncio
from contextlib import aclosing

import pytest

from cachegate.sdk import (
    AsyncClient,
    AsyncHostedChat,
    Busy,
    CacheStop,
    Completed,
    Interrupted,
    ProviderError,
    TextDelta,
    Tool,
    ToolAnswered,
    ToolCalled,
)
from running_gateway import RunningGateway
from scripted_upstream import ScriptedUpstream
from sdk.replies import MODEL, answering, called, hanging, said, until

LARGE = "All work and no cache makes a long night. " * 9_000


async def lose_socket(chat: AsyncHostedChat) -> None:
    """Cut the connection below the socket."""
    socket = chat._control._socket
    assert socket is not None
    transport = socket._conn.transport if socket._conn is not None else None
    assert transport is not None
    transport.abort()
    await until(lambda: not chat._attached)


async def test_a_turn_with_tools(client: AsyncClient, upstream: ScriptedUpstream) -> None:
    upstream.answer = answering([called("add", '{"a":1,"b":2}')], [said("It is 3.")])
    chat = await client.hosted_chat(MODEL, tools=[Tool("add", "Adds.", {"type": "object"}, lambda a, b: a + b)])
    events = [told async for told in chat.stream("1 + 2?")]
    calls = [told for told in events if isinstance(told, ToolCalled | ToolAnswered)]
    assert [type(told) for told in calls] == [ToolCalled, ToolAnswered]
    assert "".join(told.text for told in events if isinstance(told, TextDelta)) == "It is 3."
    assert isinstance(events[-1], Completed)
    assert (events[-1].answer.text, events[-1].answer.tokens.input) == ("It is 3.", 200)
    assert chat.usage.total.cached == 80
    assert [item["type"] for item in chat.history] == ["userMessage", "dynamicToolCall", "agentMessage"]


async def test_a_stopped_chat_is_compacted_and_goes_on_r4_r10(client: AsyncClient) -> None:
    chat = await client.hosted_chat("synthetic/cold")
    for _ in range(2):
        await chat.send(LARGE)
    with pytest.raises(CacheStop) as stopped:
        await chat.send("and now?")
    assert (stopped.value.reason, stopped.value.count, stopped.value.wait_s) == ("measured", 2, 300.0)
    assert not chat.context_full
    assert (await chat.compact()).summary == "This is a synthetic summary."
    assert (await chat.send("and now?")).text.startswith("This is a synthetic answer.")


async def test_an_interruption_reaches_the_provider_r14(client: AsyncClient, upstream: ScriptedUpstream) -> None:
    upstream.answer = hanging(said("Once upon"))
    chat = await client.hosted_chat(MODEL)

    async def listen() -> None:
        async for told in chat.stream("a story"):
            if told == TextDelta("ce upon"):
                chat.interrupt()

    with pytest.raises(Interrupted) as interrupted:
        await listen()
    assert interrupted.value.text == "Once upon"
    await asyncio.wait_for(upstream.requests[0].closed.wait(), 10)


async def test_a_lost_socket_changes_nothing(client: AsyncClient, gateway: RunningGateway) -> None:
    chat = await client.hosted_chat("synthetic/cache")
    text = ""
    async for told in chat.stream("hi"):
        if isinstance(told, TextDelta):
            if not text:
                await lose_socket(chat)
            text += told.text
    assert text.startswith("This is a synthetic answer. Input tokens")
    assert text.endswith("cached: 0.")
    assert len(gateway.decisions) == 1
    assert (await chat.send("again")).text


async def test_a_turn_is_steered_and_goes_on(client: AsyncClient, upstream: ScriptedUpstream) -> None:
    upstream.answer = hanging(said("Once upon"))
    chat = await client.hosted_chat(MODEL)
    texts: list[str] = []
    async for told in chat.stream("a story"):
        texts += [told.text] if isinstance(told, TextDelta) else []
        if told == TextDelta("ce upon"):
            upstream.answer = answering([said("Shorter.")])
            with pytest.raises(Busy):
                await client._control.call("turn/start", threadId=chat.id, input=[{"type": "text", "text": "me too"}])
            await chat.steer("shorter")
    assert "".join(texts) == "Once uponShorter."
    assert isinstance(told, Completed)
    assert told.answer.text == "Shorter."


async def test_another_program_goes_on_behind_the_cursor(client: AsyncClient, gateway: RunningGateway) -> None:
    chat = await client.hosted_chat("synthetic/cache", name="mine")
    async with aclosing(chat.stream("hi")) as events:
        async for told in events:
            if isinstance(told, TextDelta):
                break
    cursor = chat.cursor
    async with AsyncClient(gateway.url) as other:
        assert [thread.name for thread in await other.threads()] == ["mine"]
        resumed = await other.resume(chat.id, cursor=cursor)
        rest = "".join([told.text async for told in resumed.follow() if isinstance(told, TextDelta)])
        assert isinstance(told, TextDelta)
        assert (told.text + rest).startswith("This is a synthetic answer.")
        await other.delete(chat.id)
        with pytest.raises(ProviderError, match="no such thread"):
            await other.resume(chat.id)
