"""A real llama.cpp behind the gateway, asked in all protocols as it is and translated: its prompt cache survives."""

import asyncio
import json
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import anthropic
import openai
import pytest

from cachegate.config import Config
from cachegate.guard.machine import Ending
from cachegate.observe.record import Record
from cachegate.wire.facts import Protocol
from cachegate.wire.sse import SseReader
from clients.llamacpp_server import PATIENCE_S, LlamaCpp, Setup, StartLlamaCpp
from clients.sdk_conversations import CONVERSATIONS, MODEL, TOKENS, Conversation, Told
from clients.tiny_model import ANSWERS, CONTEXT_TOKENS, OPENING, TEXT, THINKS, THOUGHT
from provider_streams import PATH
from running_gateway import RunningGateway, running_gateway

LARGE_TOKENS = 256
"""Fewer than the first prompt of a conversation here, so that the guard has an opinion on it."""
SCHEMA = {
    "type": "object",
    "properties": {"line": {"type": "integer"}},
    "required": ["line"],
    "additionalProperties": False,
}
TOOLS = {"read_line": SCHEMA, "delete_line": SCHEMA}
CUT = {Protocol.MESSAGES: "max_tokens", Protocol.RESPONSES: "max_output_tokens", Protocol.CHAT: "length"}
CALLED = {Protocol.MESSAGES: "tool_use", Protocol.RESPONSES: "completed", Protocol.CHAT: "tool_calls"}
OUTGROWN = b'{"code":500,"message":"Context size has been exceeded.","type":"server_error"}'
RELAYED = {
    Protocol.MESSAGES: OUTGROWN,
    Protocol.RESPONSES: b'{"error":%b}' % OUTGROWN,
    Protocol.CHAT: b'{"error":%b}' % OUTGROWN,
}
TRANSLATED = {
    Protocol.MESSAGES: b'{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long"}}',
    Protocol.RESPONSES: b'"error":{"code":"context_length_exceeded","message":"Context size has been exceeded."',
    Protocol.CHAT: b'"message":"Context size has been exceeded."',
}
"""How a broken stream ends: in llama.cpp's own bytes, or as what clients know as a full context."""
STREAMED_OR_WHOLE = pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])


@pytest.fixture(scope="module")
def llamacpp(start_llamacpp: StartLlamaCpp) -> LlamaCpp:
    return start_llamacpp(Setup())


@pytest.fixture(scope="module")
def thinker(start_llamacpp: StartLlamaCpp) -> LlamaCpp:
    return start_llamacpp(Setup(script=THINKS))


@pytest.fixture(scope="module")
def caller(start_llamacpp: StartLlamaCpp) -> LlamaCpp:
    return start_llamacpp(Setup(script=ANSWERS))


@pytest.fixture(scope="module")
def shared_by_two(start_llamacpp: StartLlamaCpp) -> LlamaCpp:
    return start_llamacpp(Setup(slots=2, context_tokens=8_192))


@pytest.fixture(params=list(Protocol), ids=lambda asked: f"asked_in_{asked.value}")
def asked(request: pytest.FixtureRequest) -> Protocol:
    """The protocol in which llama.cpp is asked; where the client speaks the same one, it is relayed."""
    chosen: Protocol = request.param
    return chosen


@pytest.fixture
async def gateway(llamacpp: LlamaCpp, asked: Protocol) -> AsyncIterator[RunningGateway]:
    async with running_gateway(config(llamacpp, asked)) as running:
        yield running


def config(server: LlamaCpp, asked: Protocol) -> Config:
    return Config.model_validate(
        {
            "listen": "127.0.0.1:0",
            "providers": {"local": {"kind": "llamacpp", "baseUrl": server.url, "protocols": [asked.value]}},
            "models": {"*": "local"},
            "cacheGuard": {"largeTokens": LARGE_TOKENS},
        }
    )


@pytest.fixture
def instructions(request: pytest.FixtureRequest) -> str:
    """Of this test only: with those of another one they have nothing in common but how a prompt begins."""
    return f"{request.node.name}. " + "Read before you write. " * 30


def body(protocol: Protocol, text: str, *, streamed: bool, tokens_max: int = TOKENS) -> dict[str, Any]:
    """A request of one message, as little as a protocol needs."""
    limit = "max_output_tokens" if protocol is Protocol.RESPONSES else "max_tokens"
    items = "input" if protocol is Protocol.RESPONSES else "messages"
    return {"model": MODEL, "stream": streamed, limit: tokens_max, items: [{"role": "user", "content": text}]}


async def settled(gateway: RunningGateway, requests: int) -> list[Record]:
    """Wait until so many requests are on record."""
    async with asyncio.timeout(PATIENCE_S):
        while len(gateway.records) < requests:
            async with gateway.client.get(f"{gateway.url}/diagnostics/recent") as answer:
                await answer.read()
    return gateway.records


def assert_each_reuses_the_prompt_before(told: list[Told], records: list[Record], *, but: int = 0) -> None:
    """What the client is told is what was observed, and each prompt was cached up to where the one before it ended."""
    assert [record.usage.input_total for record in records] == [answer.prompt_tokens for answer in told]
    assert [record.usage.cached_read for record in records] == [answer.read_tokens for answer in told]
    assert min(reused_of_answers(told)) >= -but
    guards = [record.guard for record in records if record.guard is not None]
    assert [guard.reason for guard in guards] == ["miss", *["reuse"] * (len(told) - 1)]


async def three_calls(conversation: Conversation, *, streamed: bool) -> list[Told]:
    """Have a tool called three times, each with the result of the one before."""
    told: list[Told] = []
    conversation.say("Which line?")
    for result in ("It is empty.", "It says 7.", "That was all."):
        told.append(await conversation.answer(streamed=streamed, tokens_max=200, forced=True))
        (call,) = told[-1].calls
        assert call.name in TOOLS
        assert isinstance(call.arguments["line"], int)
        conversation.give(call, result)
    assert len({answer.calls[0].call_id for answer in told}) == 3
    return told


def reused_of_answers(told: list[Told]) -> list[int]:
    """Return how many tokens of each answer, but the last, were reused behind its prompt."""
    return [(after.read_tokens or 0) - (before.prompt_tokens or 0) for before, after in pairwise(told)]


@STREAMED_OR_WHOLE
async def test_each_turn_reuses_all_that_came_before_it(
    gateway: RunningGateway, protocol: Protocol, instructions: str, *, streamed: bool
) -> None:
    conversation = CONVERSATIONS[protocol](gateway.url, instructions)
    told: list[Told] = []
    for text in ("First.", "Second?", "Third!"):
        conversation.say(text)
        told.append(await conversation.answer(streamed=streamed))
    assert [len(answer.text) for answer in told] == [TOKENS] * 3
    assert_each_reuses_the_prompt_before(told, await settled(gateway, 3))
    # A character is a token, and the last one of an answer was never read by the model.
    assert reused_of_answers(told) == [TOKENS - 1] * 2


@STREAMED_OR_WHOLE
async def test_thoughts_and_tool_calls_are_understood_and_the_cache_survives_them(
    thinker: LlamaCpp,
    asked: Protocol,
    protocol: Protocol,
    instructions: str,
    *,
    streamed: bool,
) -> None:
    async with running_gateway(config(thinker, asked)) as gateway:
        told = await three_calls(CONVERSATIONS[protocol](gateway.url, instructions, TOOLS), streamed=streamed)
        assert_each_reuses_the_prompt_before(told, await settled(gateway, 3), but=len(OPENING))
    assert {(answer.thoughts, answer.text, answer.stop) for answer in told} == {(THOUGHT, TEXT, CALLED[protocol])}
    # The end of its thoughts is one more token, and so is the beginning of a call, which is written anew from there.
    assert min(reused_of_answers(told)) >= len(THOUGHT) + 1 + len(TEXT) + 1


async def test_the_cache_survives_the_thoughts_of_a_codex_whose_tools_llamacpp_does_not_know(
    thinker: LlamaCpp, instructions: str
) -> None:
    """Codex keeps of a thought its summary and its opaque value, and a custom tool has all of it written anew."""
    history: list[Any] = []
    usages: list[Any] = []
    fixed = {"instructions": instructions, "tools": [{"type": "custom", "name": "apply_patch"}], "stream": False}
    async with running_gateway(config(thinker, Protocol.RESPONSES)) as gateway:
        for text in ("First.", "Second?", "Third!"):
            history.append({"role": "user", "content": text})
            asking = {"model": MODEL, "max_output_tokens": 200, **fixed, "input": history}
            async with gateway.client.post(gateway.url + PATH[Protocol.RESPONSES], json=asking) as answer:
                told = await answer.json()
            assert [item["type"] for item in told["output"]] == ["reasoning", "message"], told
            history += [{name: part for name, part in item.items() if name != "content"} for item in told["output"][:1]]
            history += told["output"][1:]
            usages.append(told["usage"])
    reused = [
        after["input_tokens_details"]["cached_tokens"] - before["input_tokens"] for before, after in pairwise(usages)
    ]
    assert min(reused) >= len(THOUGHT) + 1 + len(TEXT)


async def test_no_thoughts_are_invented_where_there_were_none(
    caller: LlamaCpp, asked: Protocol, protocol: Protocol, instructions: str
) -> None:
    async with running_gateway(config(caller, asked)) as gateway:
        told = await three_calls(CONVERSATIONS[protocol](gateway.url, instructions, TOOLS), streamed=True)
        assert_each_reuses_the_prompt_before(told, await settled(gateway, 3))
    assert {(answer.thoughts, answer.text, answer.stop) for answer in told} == {("", TEXT, CALLED[protocol])}
    assert min(reused_of_answers(told)) >= len(TEXT) + 1


async def test_a_conversation_whose_slot_another_one_takes_is_stopped(
    llamacpp: LlamaCpp, gateway: RunningGateway, protocol: Protocol, instructions: str
) -> None:
    conversation = CONVERSATIONS[protocol](gateway.url, instructions)
    for text in ("First.", "Second?"):
        await llamacpp.forget()
        conversation.say(text)
        told = await conversation.answer(streamed=True)
        assert told.read_tokens is not None
        assert told.read_tokens < 10, "the beginning of every prompt"
    conversation.say("Third!")
    with pytest.raises((anthropic.BadRequestError, openai.BadRequestError), match="5 minutes"):
        await conversation.answer(streamed=True)
    await settled(gateway, 3)
    assert gateway.decisions == [("allowed", "miss", 1), ("allowed", "miss", 2), ("blocked", "measured", 2)]


async def test_an_answer_that_was_cut_is_told_as_cut(
    request: pytest.FixtureRequest, gateway: RunningGateway, asked: Protocol, protocol: Protocol
) -> None:
    if asked is Protocol.RESPONSES:
        reason = "llama.cpp's Responses calls every answer completed"
        request.applymarker(pytest.mark.xfail(strict=True, reason=reason))
    conversation = CONVERSATIONS[protocol](gateway.url, "")
    conversation.say("Go on.")
    assert (await conversation.answer(streamed=True)).stop == CUT[protocol]


async def test_a_full_context_is_on_record_and_told_in_the_protocols_own_words(
    llamacpp: LlamaCpp, gateway: RunningGateway, asked: Protocol, protocol: Protocol
) -> None:
    overflowing = body(protocol, "x" * (CONTEXT_TOKENS + 1), streamed=True)
    async with gateway.client.post(gateway.url + PATH[protocol], json=overflowing) as answer:
        status, told = answer.status, await answer.read()
    error = json.loads(told)["error"]
    (record,) = await settled(gateway, 1)
    assert (status, record.status, record.detail) == (400, 400, "context_length_exceeded")
    assert str(CONTEXT_TOKENS) in error["message"]
    if asked is protocol:
        async with gateway.client.post(llamacpp.url + PATH[protocol], json=overflowing) as answer:
            assert told == await answer.read(), "relayed as it is"
        assert error["type"] == "exceed_context_size_error"
    elif protocol is Protocol.MESSAGES:
        assert "prompt is too long" in error["message"]
    else:
        assert error["code"] == "context_length_exceeded"


@STREAMED_OR_WHOLE
async def test_a_caller_who_leaves_frees_the_slot(
    llamacpp: LlamaCpp, gateway: RunningGateway, protocol: Protocol, *, streamed: bool
) -> None:
    before = await llamacpp.decoded()
    endless = body(protocol, "Tell me everything.", streamed=streamed, tokens_max=CONTEXT_TOKENS - 1_000)

    async def listen() -> None:
        async with gateway.client.post(gateway.url + PATH[protocol], json=endless) as answer:
            await answer.read()

    listening = asyncio.create_task(listen())
    await llamacpp.busy()
    listening.cancel()
    # llama.cpp looks for a caller who waits for a whole answer once a second, and each question for its slots puts that
    # off. So nobody asks: the only slot's next task begins when it is free.
    await llamacpp.forget()
    assert await llamacpp.decoded() - before < CONTEXT_TOKENS // 2, "it did not just come to its end"
    (record,) = await settled(gateway, 1)
    assert record.ending == Ending.CANCELLED


async def test_usage_is_measured_and_hidden_from_a_client_that_did_not_ask(gateway: RunningGateway) -> None:
    told: list[bytes] = []
    for _ in range(2):
        unasked = body(Protocol.CHAT, "How many tokens?", streamed=True)
        async with gateway.client.post(gateway.url + PATH[Protocol.CHAT], json=unasked) as answer:
            told.append(await answer.read())
    assert not any(b'"usage"' in data for data in told)
    assert all(data.endswith(b"data: [DONE]\n\n") for data in told)
    first, second = [record.usage for record in await settled(gateway, 2)]
    assert first.input_total is not None
    assert second.cached_read == first.input_total - 1, "the last token is always computed"


async def test_a_stream_that_llamacpp_breaks_off_ends_as_failed(
    shared_by_two: LlamaCpp, asked: Protocol, protocol: Protocol
) -> None:
    """Two slots share a cache: when a second prompt has no room beside what the first answer took, both fail."""
    half = "x" * (shared_by_two.context_tokens // 2)
    large = body(protocol, half, streamed=True, tokens_max=shared_by_two.context_tokens)
    async with running_gateway(config(shared_by_two, asked)) as gateway:

        async def listen() -> bytes:
            async with gateway.client.post(gateway.url + PATH[protocol], json=large) as answer:
                return await answer.read()

        first = asyncio.create_task(listen())
        await shared_by_two.busy()
        told = await asyncio.gather(first, listen())
        records = await settled(gateway, 2)
    assert {record.ending for record in records} == {Ending.FAILED}
    assert {record.detail for record in records} == {"context_length_exceeded"}
    for data in told:
        *before, last = SseReader().feed(data)[1]
        assert (RELAYED if asked is protocol else TRANSLATED)[protocol] in last.data
        assert asked is not protocol or not any(b"exceeded" in event.data for event in before), "once"


async def test_tokens_are_counted_by_the_model_itself(llamacpp: LlamaCpp) -> None:
    asking = body(Protocol.MESSAGES, "How long is this?", streamed=False)
    async with running_gateway(config(llamacpp, Protocol.MESSAGES)) as gateway:
        async with gateway.client.post(f"{gateway.url}/v1/messages/count_tokens", json=asking) as answer:
            counted = (await answer.json())["input_tokens"]
        async with gateway.client.post(f"{gateway.url}/v1/messages", json=asking) as answer:
            assert answer.status == 200
        assert [record.usage.input_total for record in await settled(gateway, 2)] == [None, counted]
