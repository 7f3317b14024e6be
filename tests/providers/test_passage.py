"""Every client protocol in front of every upstream protocol, through the whole gateway."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from cachegate.providers.base import Call
from cachegate.providers.passage import Terms, Translated, passage
from cachegate.providers.presets import PRESETS
from cachegate.wire.affinity import thread_key
from cachegate.wire.envelopes import PREFIX
from cachegate.wire.facts import Operation, Protocol
from cachegate.wire.parse import Received, parse
from cachegate.wire.sse import SseReader
from provider_streams import COLD, LARGE_TEXT, PATH, SILENT, body, events, request
from running_gateway import RunningGateway, config_for, running_gateway
from scripted_upstream import Recorded, Script, ScriptedUpstream, Step, chunk, stream, stream_head, whole

UPSTREAM_PATH = {
    Protocol.MESSAGES: "/v1/messages",
    Protocol.RESPONSES: "/v1/responses",
    Protocol.CHAT: "/v1/chat/completions",
}


@pytest.fixture(params=list(Protocol), ids=[f"up-{protocol}" for protocol in Protocol])
def upstream_protocol(request: pytest.FixtureRequest) -> Protocol:
    chosen: Protocol = request.param
    return chosen


@pytest.fixture
async def gateway(upstream: ScriptedUpstream, upstream_protocol: Protocol) -> AsyncIterator[RunningGateway]:
    kind, path = ("anthropic", "") if upstream_protocol is Protocol.MESSAGES else ("openai", "/v1")
    protocols = [upstream_protocol.value]
    row = {"kind": kind, "baseUrl": upstream.url + path, "apiKey": "sk-up", "protocols": protocols}
    config = config_for("http://unused", providers={"other": row}, models={"model-x": "other/model-up"})
    async with running_gateway(config) as running:
        yield running


def answering(protocol: Protocol, usage: object = COLD) -> object:
    def answer(recorded: Recorded) -> Script:
        if json.loads(recorded.body).get("stream"):
            return stream(b"".join(events(protocol, usage)))  # type: ignore[arg-type]
        return [whole(200, body(protocol, usage))]  # type: ignore[arg-type]

    return answer


async def ask(gateway: RunningGateway, protocol: Protocol, data: bytes, **headers: str) -> tuple[int, bytes]:
    named = {"content-type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    async with gateway.client.post(gateway.url + PATH[protocol], data=data, headers=named) as response:
        return response.status, await response.read()


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_request_is_answered_in_the_clients_own_protocol(
    gateway: RunningGateway, upstream: ScriptedUpstream, protocol: Protocol, upstream_protocol: Protocol, streamed: bool
) -> None:
    upstream.answer = answering(upstream_protocol)  # type: ignore[assignment]
    status, received = await ask(gateway, protocol, request(protocol, stream=streamed))
    assert status == 200
    if streamed:
        assert received.endswith(b"\n\n")
        assert b"Hello " in received
    else:
        assert b"Hello world" in received
    asked = upstream.requests[0]
    assert asked.target == UPSTREAM_PATH[upstream_protocol]
    assert json.loads(asked.body)["model"] == "model-up"
    assert gateway.records[0].usage == COLD, "usage is read from the upstream's own answer"
    assert gateway.decisions == [("allowed", "miss", 1)]


async def test_the_providers_key_goes_up_and_the_clients_does_not(
    gateway: RunningGateway, upstream: ScriptedUpstream, protocol: Protocol, upstream_protocol: Protocol
) -> None:
    upstream.answer = answering(upstream_protocol)  # type: ignore[assignment]
    await ask(gateway, protocol, request(protocol), authorization="Bearer mine", x_api_key="mine", cookie="a=mine")
    asked = upstream.requests[0]
    keys = {asked.header("authorization"), asked.header("x-api-key")} - {None}
    assert keys == {"sk-up" if upstream_protocol is Protocol.MESSAGES else "Bearer sk-up"}
    assert not [name for name, value in asked.headers if "mine" in value]


async def test_the_guard_stops_through_a_translation_in_the_clients_shape(
    gateway: RunningGateway, upstream: ScriptedUpstream, protocol: Protocol, upstream_protocol: Protocol
) -> None:
    upstream.answer = answering(upstream_protocol, SILENT)  # type: ignore[assignment]
    data = request(protocol, text=LARGE_TEXT)
    assert [(await ask(gateway, protocol, data))[0] for _ in range(3)] == [200, 200, 400]
    assert len(upstream.requests) == 2
    assert gateway.decisions[2][:2] == ("blocked", "unreported"), "what was not reported is not measured as 0"


@pytest.mark.parametrize(("status", "told"), [(429, 429), (401, 401), (404, 404)])
async def test_an_error_is_told_in_the_clients_shape(
    gateway: RunningGateway, upstream: ScriptedUpstream, protocol: Protocol, status: int, told: int
) -> None:
    error = b'{"error":{"type":"t","message":"Said so.","code":"c"}}'
    upstream.answer = lambda _: [whole(status, error, "retry-after: 3")]
    got, received = await ask(gateway, protocol, request(protocol))
    assert got == told
    assert "Said so." in json.loads(received)["error"]["message"]
    assert gateway.decisions == [("allowed", "neutral", 0)]


async def test_a_cut_stream_is_never_a_clean_end(
    gateway: RunningGateway, upstream: ScriptedUpstream, protocol: Protocol, upstream_protocol: Protocol
) -> None:
    upstream.answer = lambda _: [stream_head(), chunk(b"".join(events(upstream_protocol)[:3])), Step.CLOSE]
    status, received = await ask(gateway, protocol, request(protocol))
    assert status == 200
    assert b'"error"' in received
    assert b"message_stop" not in received
    assert b"response.completed" not in received
    assert b"[DONE]" not in received
    assert gateway.records[0].ending == "failed"


@pytest.mark.parametrize("upstream_protocol", Protocol)
def test_in_silence_the_client_is_told_what_it_counts(protocol: Protocol, upstream_protocol: Protocol) -> None:
    if protocol is upstream_protocol:
        return
    preset = PRESETS["anthropic" if upstream_protocol is Protocol.MESSAGES else "openai"]
    data = request(protocol, max_tokens=9)
    received = parse(Received(protocol, Operation.GENERATE, (), "", data, data), bytes(32))
    call = Call(received, "req_1", "p", "up", lambda: None)
    way = passage(call, Terms(preset, frozenset({upstream_protocol}), "sk-x", None))
    assert isinstance(way, Translated)
    frames = [way.keepalive]
    for event in SseReader().feed(b"".join(events(upstream_protocol)[:3]))[1]:
        way.forward(b"", [event])
        frames.append(way.keepalive)
    comment = b": keepalive\n\n"
    first, then = {
        Protocol.MESSAGES: (b'event: ping\ndata: {"type":"ping"}\n\n',) * 2,
        Protocol.RESPONSES: (comment, b'event: keepalive\ndata: {"type":"keepalive"}\n\n'),
        Protocol.CHAT: (comment, comment),
    }[protocol]
    assert (frames[0], frames[-1]) == (first, then)


async def test_a_caller_who_leaves_stops_the_upstream(
    gateway: RunningGateway, upstream: ScriptedUpstream, protocol: Protocol, upstream_protocol: Protocol
) -> None:
    upstream.answer = lambda _: [stream_head(), chunk(events(upstream_protocol)[0]), Step.HANG]
    asking = asyncio.create_task(ask(gateway, protocol, request(protocol)))
    arrived = (await upstream.count(1))[0]
    asking.cancel()
    await asyncio.wait_for(arrived.closed.wait(), 1)


@pytest.mark.parametrize("upstream_protocol", [Protocol.RESPONSES, Protocol.CHAT], indirect=True)
async def test_tokens_are_estimated_where_the_provider_does_not_count(
    gateway: RunningGateway, upstream: ScriptedUpstream, upstream_protocol: Protocol
) -> None:
    url = f"{gateway.url}/v1/messages/count_tokens"
    async with gateway.client.post(url, data=request(Protocol.MESSAGES)) as response:
        assert response.status == 200
        assert response.headers["x-cachegate-estimate"] == "true"
        assert json.loads(await response.read())["input_tokens"] > 0
    assert upstream.requests == []
    assert gateway.decisions == [], upstream_protocol


@pytest.mark.parametrize("upstream_protocol", [Protocol.RESPONSES], indirect=True)
async def test_an_envelope_of_ours_never_goes_up_even_in_the_clients_own_protocol(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.answer = answering(Protocol.RESPONSES)  # type: ignore[assignment]
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": f"{PREFIX}abc"}
    data = json.dumps({"model": "model-x", "stream": True, "input": [{"role": "user", "content": "hi"}, thought]})
    assert (await ask(gateway, Protocol.RESPONSES, data.encode()))[0] == 200
    assert PREFIX.encode() not in upstream.requests[0].body


async def test_a_thread_is_named_to_a_provider_that_routes_by_it(upstream: ScriptedUpstream) -> None:
    upstream.answer = answering(Protocol.RESPONSES)  # type: ignore[assignment]
    row = {"kind": "xai", "baseUrl": f"{upstream.url}/v1", "apiKey": "sk-x"}
    config = config_for("http://unused", providers={"grok": row}, models={"*": "grok"})
    async with running_gateway(config) as gateway:
        await ask(gateway, Protocol.RESPONSES, request(Protocol.RESPONSES), thread_id="t1")
        await ask(gateway, Protocol.MESSAGES, request(Protocol.MESSAGES), x_claude_code_session_id="s1")
        await ask(gateway, Protocol.RESPONSES, request(Protocol.RESPONSES), x_grok_conv_id="own", thread_id="t1")
    named = [recorded.header("x-grok-conv-id") for recorded in upstream.requests]
    assert named == [thread_key("codex:t1", "model-x"), thread_key("claude-code:s1", "model-x"), "own"]
    assert json.loads(upstream.requests[1].body)["prompt_cache_key"] == named[1]


async def test_chat_usage_is_asked_for_and_hidden_from_who_did_not_ask(upstream: ScriptedUpstream) -> None:
    upstream.answer = answering(Protocol.CHAT)  # type: ignore[assignment]
    row = {"kind": "openai-compatible", "baseUrl": f"{upstream.url}/v1", "apiKey": "sk-x"}
    config = config_for("http://unused", providers={"local": row}, models={"*": "local"})
    data = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}).encode()
    async with running_gateway(config) as gateway:
        _, received = await ask(gateway, Protocol.CHAT, data)
        assert gateway.records[0].usage == COLD
    assert json.loads(upstream.requests[0].body)["stream_options"] == {"include_usage": True}
    assert b'"choices":[]' not in received
    assert received.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("how", ["trigger", "path"])
async def test_codex_can_compact_against_a_provider_that_knows_no_compaction(
    upstream: ScriptedUpstream, how: str
) -> None:
    upstream.answer = answering(Protocol.MESSAGES)  # type: ignore[assignment]
    row = {"kind": "anthropic", "baseUrl": upstream.url, "apiKey": "sk-x"}
    config = config_for("http://unused", providers={"claude": row}, models={"*": "claude"})
    said = [{"type": "message", "role": "user", "content": "hi"}]
    async with running_gateway(config) as gateway:
        if how == "trigger":
            fields = {"model": "m", "stream": True, "input": [*said, {"type": "compaction_trigger"}]}
            status, received = await ask(gateway, Protocol.RESPONSES, json.dumps(fields).encode())
        else:
            url = f"{gateway.url}/v1/responses/compact"
            async with gateway.client.post(url, json={"model": "m", "input": said}) as response:
                status, received = response.status, await response.read()
        assert status == 200
        assert received.count(b'"type":"compaction"') >= 1
        assert PREFIX.encode() in received
        assert [record.guard.mode for record in gateway.records if record.guard] == ["compaction"]


async def test_a_failure_in_a_field_that_clients_ignore_is_no_clean_end(upstream: ScriptedUpstream) -> None:
    row = {"kind": "llamacpp", "baseUrl": upstream.url}
    config = config_for("http://unused", providers={"local": row}, models={"model-x": "local/model-up"})
    begun = events(Protocol.CHAT, COLD)[0]
    failed = b'error: {"code":500,"message":"Out of memory.","type":"server_error"}\n\n'
    upstream.answer = lambda _recorded: stream(begun + failed + b"data: [DONE]\n\n")
    async with running_gateway(config) as running:
        _, received = await ask(running, Protocol.CHAT, request(Protocol.CHAT, stream=True))
        assert received.startswith(begun + failed), "relayed as it came"
        told = received.removeprefix(begun + failed)
        assert told.index(b'data: {"error":') < told.index(b"[DONE]")
        assert b"Out of memory." in told
        record = running.records[0]
        assert (record.ending, record.detail) == ("failed", "server_error")
