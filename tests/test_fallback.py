"""Several providers for one model: the next is asked only when nothing was processed by the one before."""

from collections.abc import AsyncIterator

import pytest

from cachegate.wire.facts import Protocol
from provider_streams import COLD, LARGE_TEXT, PATH, body, events, request
from running_gateway import RunningGateway, config_for, running_gateway
from scripted_upstream import Script, ScriptedUpstream, Step, chunk, scripted_upstream, stream, stream_head, whole


@pytest.fixture
async def second() -> AsyncIterator[ScriptedUpstream]:
    async with scripted_upstream() as running:
        yield running


@pytest.fixture
async def gateway(
    upstream: ScriptedUpstream, second: ScriptedUpstream, protocol: Protocol
) -> AsyncIterator[RunningGateway]:
    kind, suffix = ("anthropic", "") if protocol is Protocol.MESSAGES else ("openai", "/v1")
    providers = {
        "one": {"kind": kind, "baseUrl": upstream.url + suffix},
        "two": {"kind": kind, "baseUrl": second.url + suffix},
    }
    config = config_for("http://unused", providers=providers, models={"model-x": ["one/first", "two/second"]})
    second.answer = lambda _: stream(b"".join(events(protocol, COLD)))
    async with running_gateway(config) as running:
        yield running


async def ask(gateway: RunningGateway, protocol: Protocol, text: str = "hi") -> tuple[int, bytes]:
    async with gateway.client.post(gateway.url + PATH[protocol], data=request(protocol, text=text)) as response:
        return response.status, await response.read()


@pytest.mark.parametrize("status", [429, 500, 503, 529])
async def test_an_overloaded_provider_hands_over(
    gateway: RunningGateway, upstream: ScriptedUpstream, second: ScriptedUpstream, protocol: Protocol, status: int
) -> None:
    upstream.answer = lambda _: [whole(status, b'{"error":{}}')]
    assert await ask(gateway, protocol) == (200, b"".join(events(protocol, COLD)))
    assert b'"first"' in upstream.requests[0].body
    assert b'"second"' in second.requests[0].body
    assert [(record.provider, record.ending) for record in gateway.records] == [("one", "failed"), ("two", "completed")]
    assert [count for _, _, count in gateway.decisions] == [0, 1]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413])
async def test_a_wrong_request_is_not_asked_again(
    gateway: RunningGateway, upstream: ScriptedUpstream, second: ScriptedUpstream, protocol: Protocol, status: int
) -> None:
    upstream.answer = lambda _: [whole(status, b'{"error":{}}')]
    assert (await ask(gateway, protocol))[0] == status
    assert second.requests == []


BROKEN: dict[str, Script] = {
    "reset before the answer": [Step.RESET],
    "cut in the answer": [stream_head(), chunk(b": x\n\n"), Step.CLOSE],
}


@pytest.mark.parametrize("how", BROKEN)
async def test_what_may_have_been_processed_is_never_sent_again(
    gateway: RunningGateway, upstream: ScriptedUpstream, second: ScriptedUpstream, protocol: Protocol, how: str
) -> None:
    upstream.answer = lambda _: BROKEN[how]
    await ask(gateway, protocol)
    assert (len(upstream.requests), len(second.requests)) == (1, 0)


async def test_the_last_providers_error_is_the_answer(
    gateway: RunningGateway, upstream: ScriptedUpstream, second: ScriptedUpstream, protocol: Protocol
) -> None:
    upstream.answer = lambda _: [whole(500, b"{}")]
    second.answer = lambda _: [whole(429, b'{"second":1}', "retry-after: 9")]
    assert await ask(gateway, protocol) == (429, b'{"second":1}')


async def test_a_stop_is_final_and_each_provider_has_its_own_budget(
    gateway: RunningGateway, upstream: ScriptedUpstream, second: ScriptedUpstream, protocol: Protocol
) -> None:
    upstream.answer = lambda _: stream(b"".join(events(protocol, COLD)))
    assert [(await ask(gateway, protocol, LARGE_TEXT))[0] for _ in range(3)] == [200, 200, 400]
    assert second.requests == [], "a stop is no reason to spend elsewhere"
    upstream.answer = lambda _: [whole(200, body(protocol))]


async def test_a_provider_that_nobody_runs_hands_over(second: ScriptedUpstream, protocol: Protocol) -> None:
    kind, suffix = ("anthropic", "") if protocol is Protocol.MESSAGES else ("openai", "/v1")
    providers = {
        "one": {"kind": kind, "baseUrl": "http://127.0.0.1:9" + suffix},
        "two": {"kind": kind, "baseUrl": second.url + suffix},
    }
    second.answer = lambda _: stream(b"".join(events(protocol)))
    config = config_for("http://unused", providers=providers, models={"model-*": ["one", "two"]})
    async with running_gateway(config) as gateway:
        assert (await ask(gateway, protocol))[0] == 200
        assert gateway.decisions[0] == ("allowed", "not_sent", 0)
