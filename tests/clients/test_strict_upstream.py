"""The strict provider: what its cache keeps and finds, its script, and that a vendor's own SDK can read it."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import aiohttp
import anthropic
import pytest

from clients.provider_replies import COLD, JsonObject
from clients.strict_upstream import Midst, PromptUsage, StrictUpstream, Turn
from clients.tool_upstream import Call, Failure, Thought, Words

MODEL = "some-model"
LONG = "All work and no play. " * 400
"""Over 1024 tokens."""
HELLO = Turn((Words("Hello."),))


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


def text(words: str, *, marked: bool = False) -> JsonObject:
    return {"type": "text", "text": words, **({"cache_control": {"type": "ephemeral"}} if marked else {})}


def prompt(*said: JsonObject, model: str = MODEL, **others: Any) -> JsonObject:
    messages = [{"role": "user", "content": list(said)}]
    return {"model": model, "max_tokens": 100, "stream": True, "messages": messages, **others}


async def ask(session: aiohttp.ClientSession, upstream: StrictUpstream, body: JsonObject) -> tuple[int, str]:
    async with session.post(f"{upstream.url}/v1/messages?beta=true", json=body) as response:
        return response.status, await response.text()


async def usages(
    session: aiohttp.ClientSession, bodies: Sequence[JsonObject], tokens_min: int = 0
) -> list[PromptUsage]:
    async with StrictUpstream([HELLO] * len(bodies), tokens_min) as upstream:
        for body in bodies:
            assert (await ask(session, upstream, body))[0] == 200
        return [inference.usage for inference in upstream.inferences if inference.usage is not None]


async def test_a_prompt_is_kept_up_to_its_mark_and_found_again(session: aiohttp.ClientSession) -> None:
    tools = [{"name": "look", "input_schema": {"type": "object"}}]
    system = [text("Be kind.", marked=True)]
    begun = prompt(text("one", marked=True), text("beyond"), tools=tools, system=system)
    grown = prompt(text("one"), text("beyond"), text("two", marked=True), tools=tools, system=system)

    first, second = await usages(session, [begun, grown])

    assert (first.cached, second.cached) == (0, first.created), "the mark may go elsewhere"
    assert first.created + (first.total - first.created) == first.total < second.total
    assert second.created > 0
    assert second.for_messages()["input_tokens"] == 0
    assert first.for_messages()["input_tokens"] == first.total - first.created > 0


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"tools": [{"name": "hear", "input_schema": {}}]}, id="tools"),
        pytest.param({"system": "Be brief."}, id="system"),
        pytest.param({"model": "another-model"}, id="model"),
    ],
)
async def test_what_stands_before_costs_all_that_follows(session: aiohttp.ClientSession, changed: JsonObject) -> None:
    body = prompt(text("one", marked=True), tools=[{"name": "look", "input_schema": {}}], system="Be kind.")

    same, other = [await usages(session, [body, body]), await usages(session, [body, {**body, **changed}])]

    assert same[1].cached == same[1].total == same[0].created
    assert other[1].cached == 0


async def test_without_a_mark_nothing_is_kept_and_nothing_found(session: aiohttp.ClientSession) -> None:
    told = await usages(session, [prompt(text("one", marked=True)), prompt(text("one")), prompt(text("one"))])

    assert [(usage.created > 0, usage.cached) for usage in told] == [(True, 0), (False, 0), (False, 0)]


@pytest.mark.parametrize(("blocks", "found"), [(19, True), (20, False)])
async def test_a_mark_looks_twenty_blocks_back(session: aiohttp.ClientSession, blocks: int, found: bool) -> None:
    more = [text(str(number)) for number in range(blocks - 1)]

    _, second = await usages(
        session, [prompt(text("one", marked=True)), prompt(text("one"), *more, text("last", marked=True))]
    )

    assert (second.cached > 0) is found


async def test_what_is_small_is_not_kept(session: aiohttp.ClientSession) -> None:
    small, large = prompt(text("one", marked=True)), prompt(text(LONG, marked=True))

    told = await usages(session, [small, small, large, large], tokens_min=1024)

    assert [(usage.created > 0, usage.cached > 0) for usage in told] == [
        (False, False), (False, False), (True, False), (False, True),
    ]  # fmt: skip


async def test_an_sdk_reads_every_part_and_the_honest_usage() -> None:
    parts = (Thought("Hm.", "c2VhbA=="), Thought("", "ZGFyaw=="), Words("Look."))
    calls = (Call("toolu_1", "look", '{"at":"a"}'), Call("toolu_2", "look", '{"at":"b"}'))
    async with StrictUpstream([Turn((*parts, *calls), output_tokens=77)], tokens_min=0) as upstream:
        async with (
            anthropic.AsyncAnthropic(base_url=upstream.url, api_key="dummy", max_retries=0) as client,
            client.messages.stream(
                model=MODEL,
                max_tokens=9,
                messages=[
                    {
                        "role": "user",
                        "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}],
                    }
                ],
            ) as stream,
        ):
            told = await stream.get_final_message()
        upstream.assert_inferences(1)
        usage = upstream.inferences[0].usage

    assert [block.type for block in told.content] == ["thinking", "redacted_thinking", "text", "tool_use", "tool_use"]
    assert [block.input for block in told.content if block.type == "tool_use"] == [{"at": "a"}, {"at": "b"}]
    assert told.stop_reason == "tool_use"
    assert usage is not None
    assert usage.total == len(json.dumps(["user", {"type": "text", "text": "Hi"}])) // 4
    assert (told.usage.input_tokens, told.usage.cache_creation_input_tokens, told.usage.output_tokens) == (
        0, usage.total, 77,
    )  # fmt: skip


@pytest.mark.parametrize("stop", ["refusal", "max_tokens", "pause_turn"])
async def test_an_answer_may_end_for_another_reason(session: aiohttp.ClientSession, stop: str) -> None:
    async with StrictUpstream([Turn((Words("No."),), stop, stop_details={"type": stop})]) as upstream:
        _, told = await ask(session, upstream, prompt(text("one")))

    assert f'"stop_reason": "{stop}"' in told
    assert '"stop_details": {"type": ' in told


async def test_a_usage_may_be_made_up(session: aiohttp.ClientSession) -> None:
    async with StrictUpstream([Turn(usage=COLD)]) as upstream:
        _, told = await ask(session, upstream, prompt(text("one")))
        usage = upstream.inferences[0].usage

    assert '"cache_creation_input_tokens": 199990' in told
    assert usage is not None
    assert usage.total < 100, "the log stays honest"


async def test_a_failure_leaves_the_cache_alone(session: aiohttp.ClientSession) -> None:
    body = prompt(text("one", marked=True))
    failure = Failure(529, {"type": "overloaded_error", "message": "Overloaded"})
    async with StrictUpstream([failure, HELLO], tokens_min=0) as upstream:
        status, told = await ask(session, upstream, body)
        await ask(session, upstream, body)

    assert (status, json.loads(told)["error"]) == (529, failure.error)
    failed, answered = [inference.usage for inference in upstream.inferences]
    assert failed is None
    assert answered is not None
    assert answered.cached == 0


CALL = Call("toolu_1", "look", '{"at":"a long way from here"}')


@pytest.mark.parametrize(
    ("parts", "last"),
    [
        pytest.param((Words("It ends"),), "It ", id="text"),
        pytest.param((Words("First."), CALL), '{\\"at\\":\\"a lon', id="call"),
        pytest.param((), "message_start", id="nothing"),
    ],
)
@pytest.mark.parametrize("midst", [Midst.ERROR, Midst.CUT, Midst.HANGS])
async def test_an_answer_may_stop_in_its_midst(
    session: aiohttp.ClientSession, midst: Midst, parts: tuple[Words | Call, ...], last: str
) -> None:
    heard = b""
    async with StrictUpstream([Turn(parts, midst=midst)]) as upstream:
        async with session.post(f"{upstream.url}/v1/messages", json=prompt(text("one"))) as response:
            if midst is Midst.CUT:
                with pytest.raises(aiohttp.ClientPayloadError):
                    await response.read()
                return
            if midst is Midst.ERROR:
                heard = await response.read()
            else:
                await upstream.hanging.wait()
                while last.encode() not in heard:
                    heard += await response.content.readany()
        if midst is Midst.HANGS:
            assert not upstream.hung_up.is_set()
            response.close()
            await asyncio.wait_for(upstream.hung_up.wait(), 5)

    assert last in heard.decode()
    assert (b"event: error" in heard) is (midst is Midst.ERROR)
    assert b"message_delta" not in heard


async def test_it_knows_what_was_asked_and_how_often(session: aiohttp.ClientSession) -> None:
    async with StrictUpstream([HELLO]) as upstream:
        await ask(session, upstream, prompt(text("one")))
        upstream.assert_inferences(1)
        beyond = await ask(session, upstream, prompt(text("one")))
        upstream.script.extend([HELLO, HELLO, HELLO])
        grown = await ask(session, upstream, prompt(text("one"), text("two")))
        whole = await ask(session, upstream, {**prompt(text("one")), "stream": False})
        upstream.assert_inferences(4)
        async with session.head(f"{upstream.url}/api/hello") as hello:
            assert hello.status == 404
        with pytest.raises(AssertionError, match="HEAD /api/hello"):
            upstream.assert_inferences(4)
        assert len(upstream.received) == 5

    assert [status for status, _ in (beyond, grown, whole)] == [500, 200, 500]


async def test_it_sees_a_prompt_that_does_not_extend_the_one_before(session: aiohttp.ClientSession) -> None:
    async with StrictUpstream([HELLO] * 4) as upstream:
        for body in (
            prompt(text("one", marked=True)),
            prompt(text("one"), text("two")),
            prompt(text("one"), text("two")),
            prompt(text("one"), text("other"), text("three")),
        ):
            await ask(session, upstream, body)
        asked = upstream.inferences

    upstream.assert_each_extends_the_one_before(asked[:2])
    with pytest.raises(AssertionError, match="the same again"):
        upstream.assert_each_extends_the_one_before()
    with pytest.raises(AssertionError, match="the same again"):
        upstream.assert_each_extends_the_one_before(asked[:3])
    with pytest.raises(AssertionError, match="block 1 of 2 changed"):
        upstream.assert_each_extends_the_one_before(asked[2:])
