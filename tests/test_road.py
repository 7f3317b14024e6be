"""Same-protocol relay: bytes up, bytes down, headers, errors, broken answers, cancellation."""

import asyncio
import gzip
import json
import sys
from collections.abc import Callable

import aiohttp
import pytest
from yarl import URL

from cachegate.guard.machine import Ending
from cachegate.guard.usage import Usage
from cachegate.wire.facts import Protocol
from provider_streams import COLD, LARGE_TEXT, PATH, SILENT, WARM, body, events, request
from recording_store import RecordingStore
from running_gateway import RunningGateway, config_for, running_gateway
from scripted_upstream import Script, ScriptedUpstream, Step, chunk, stream, stream_head, whole

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

JSON = {"content-type": "application/json"}


async def ask(
    gateway: RunningGateway, protocol: Protocol, data: bytes, headers: dict[str, str] | None = None
) -> tuple[int, bytes, aiohttp.ClientResponse]:
    url = gateway.url + PATH[protocol]
    async with gateway.client.post(url, data=data, headers={**JSON, **(headers or {})}) as response:
        return response.status, await response.read(), response


async def test_a_streamed_answer_comes_down_as_the_same_bytes(
    gateway: RunningGateway, upstream: ScriptedUpstream, protocol: Protocol
) -> None:
    odd = b': comment\r\n\r\nevent: brand_new\ndata: {"type":"brand_new"}\n\n'
    sent = b"".join([odd, *events(protocol)])
    upstream.answer = lambda _: stream(sent, "request-id: req_up", "x-codex-turn-state: t1")
    data = request(protocol)
    status, received, response = await ask(gateway, protocol, data)
    assert (status, received) == (200, sent)
    assert upstream.requests[0].body == data
    assert response.headers["request-id"] == "req_up"
    assert response.headers["x-codex-turn-state"] == "t1"
    assert response.headers["content-type"] == "text/event-stream"
    assert gateway.records[0].usage == COLD


async def test_an_answer_split_at_odd_places_comes_down_whole(
    gateway: RunningGateway, upstream: ScriptedUpstream, protocol: Protocol
) -> None:
    sent = b"".join(events(protocol))
    pieces = [sent[at : at + 7] for at in range(0, len(sent), 7)]
    upstream.answer = lambda _: [stream_head(), *map(chunk, pieces), chunk(b"")]
    assert (await ask(gateway, protocol, request(protocol)))[1] == sent
    assert gateway.records[0].usage == COLD


async def test_an_unstreamed_answer_comes_down_as_the_same_bytes(
    gateway: RunningGateway, upstream: ScriptedUpstream, protocol: Protocol
) -> None:
    sent = body(protocol, WARM) + b"\n"
    upstream.answer = lambda _: [whole(200, sent, "anthropic-ratelimit-requests-remaining: 3")]
    status, received, response = await ask(gateway, protocol, request(protocol, stream=False))
    assert (status, received) == (200, sent)
    assert response.headers["anthropic-ratelimit-requests-remaining"] == "3"
    assert gateway.records[0].usage == WARM


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
async def test_a_compressed_request_goes_up_as_it_came(
    gateway: RunningGateway, upstream: ScriptedUpstream, protocol: Protocol, encoding: str
) -> None:
    plain = request(protocol, text=LARGE_TEXT)
    data = gzip.compress(plain) if encoding == "gzip" else zstd.compress(plain)
    upstream.answer = lambda _: stream(b"".join(events(protocol)))
    status, _, _ = await ask(gateway, protocol, data, {"content-encoding": encoding})
    assert status == 200
    assert upstream.requests[0].body == data
    assert upstream.requests[0].header("content-encoding") == encoding


async def test_headers_pass_but_those_between_neighbours_and_the_query_too(
    gateway: RunningGateway, upstream: ScriptedUpstream, protocol: Protocol
) -> None:
    upstream.answer = lambda _: [whole(200, body(protocol), "connection: x-secret-hop", "x-secret-hop: 1", "x-new: 2")]
    passing = {
        "authorization": "Bearer mine", "x-api-key": "mine", "anthropic-beta": "a,b", "anthropic-version": "2023-06-01",
        "openai-organization": "o", "x-codex-turn-metadata": "{}", "x-stainless-lang": "js", "session-id": "s",
        "thread-id": "t", "x-totally-unknown": "kept", "user-agent": "agent/1",
    }  # fmt: skip
    stopping = {
        "connection": "keep-alive, x-hop", "x-hop": "1", "te": "trailers", "proxy-authorization": "p", "cookie": "c=1",
        "x-forwarded-for": "1.2.3.4", "x-cachegate-key": "k", "x-harness-cache-recovery": "1", "via": "v",
        "accept-encoding": "br",
    }  # fmt: skip
    url = URL(gateway.url + PATH[protocol] + "?beta=true&x=%2F", encoded=True)
    async with gateway.client.post(url, data=request(protocol, stream=False), headers=passing | stopping) as response:
        assert response.status == 200
        assert "x-secret-hop" not in response.headers
        assert response.headers["x-new"] == "2"
    arrived = upstream.requests[0]
    assert arrived.target == PATH[protocol] + "?beta=true&x=%2F"
    for name, value in passing.items():
        known = name != "anthropic-beta" or protocol is Protocol.MESSAGES
        assert arrived.header(name) == (value if known else None), "others refuse a beta they do not know"
    for name in stopping.keys() - {"accept-encoding", "connection"}:
        assert arrived.header(name) is None, name
    assert arrived.header("accept-encoding") == "identity"


@pytest.mark.parametrize("status", [307, 400, 401, 404, 429, 500, 529])
async def test_a_providers_error_passes_unchanged_and_counts_nothing_r19(
    gateway: RunningGateway, upstream: ScriptedUpstream, protocol: Protocol, status: int
) -> None:
    error = b'{"error":{"message":"as the provider says it","type":"t","code":"c"}}'
    upstream.answer = lambda _: [whole(status, error, "retry-after: 7", "x-should-retry: true")]
    got, received, response = await ask(gateway, protocol, request(protocol, text=LARGE_TEXT))
    assert (got, received) == (status, error)
    assert (response.headers["retry-after"], response.headers["x-should-retry"]) == ("7", "true")
    assert "x-cachegate-context-full" not in response.headers
    assert gateway.decisions == [("allowed", "neutral", 0)]
    assert len(upstream.requests) == 1


async def test_a_full_context_in_a_providers_own_words_is_also_told_in_a_header(
    gateway: RunningGateway, upstream: ScriptedUpstream, protocol: Protocol
) -> None:
    error = b'{"error":{"message":"context window exceeds limit (2013)","type":"bad_request_error"}}'
    upstream.answer = lambda _: [whole(400, error)]
    got, received, response = await ask(gateway, protocol, request(protocol, text=LARGE_TEXT))
    assert (got, received) == (400, error), "the bytes are the provider's"
    assert response.headers["x-cachegate-context-full"] == "true"


async def test_an_error_without_body_passes(
    gateway: RunningGateway, upstream: ScriptedUpstream, protocol: Protocol
) -> None:
    upstream.answer = lambda _: [whole(503, b"")]
    status, received, _ = await ask(gateway, protocol, request(protocol))
    assert (status, received) == (503, b"")


BROKEN: dict[str, Callable[[bytes], Script]] = {
    "end of file between events": lambda some: [stream_head(), chunk(some), chunk(b"")],
    "end of file inside an event": lambda some: [stream_head(), chunk(some + b"event: half\ndata: {"), chunk(b"")],
    "connection closed": lambda some: [stream_head(), chunk(some), Step.CLOSE],
    "connection reset": lambda some: [stream_head(), chunk(some), Step.RESET],
}


@pytest.mark.parametrize("how", BROKEN)
async def test_a_stream_that_breaks_gets_the_protocols_terminal_error(
    gateway: RunningGateway, upstream: ScriptedUpstream, protocol: Protocol, how: str
) -> None:
    some = b"".join(events(protocol)[:3])
    upstream.answer = lambda _: BROKEN[how](some)
    status, received, _ = await ask(gateway, protocol, request(protocol, text=LARGE_TEXT))
    assert status == 200
    last = received.removeprefix(some).decode() if how != "connection reset" else received.decode()
    assert "half" not in last
    if protocol is Protocol.MESSAGES:
        assert last.startswith("event: error\ndata: {") or how == "connection reset"
        assert json.loads(last.split("data: ")[-1])["error"]["type"] == "api_error"
        assert gateway.decisions == [("allowed", "miss", 1)]  # message_start had said so
    elif protocol is Protocol.CHAT:
        assert json.loads(last.split("data: ")[-1])["error"]["code"] == "server_error"
        assert "[DONE]" not in last
        assert gateway.decisions == [("allowed", "unreported", 1)]
    else:
        assert "event: error\n" in last
        failed = json.loads(last.split("data: ")[-1])
        assert failed["type"] == "response.failed"
        assert failed["response"]["error"]["code"] == "server_error"
        assert gateway.decisions == [("allowed", "unreported", 1)]
    assert gateway.records[0].ending == "failed"


async def test_nonsense_on_the_connection_is_never_a_clean_end(
    gateway: RunningGateway, upstream: ScriptedUpstream, protocol: Protocol
) -> None:
    upstream.answer = lambda _: [stream_head(), chunk(events(protocol)[0]), b"zz\r\nnonsense"]
    status, received, _ = await ask(gateway, protocol, request(protocol))
    assert status == 502 or b'"error"' in received
    assert gateway.records[0].ending == "failed"


async def test_an_unstreamed_answer_that_breaks_is_an_error_and_no_answer(
    gateway: RunningGateway, upstream: ScriptedUpstream, protocol: Protocol
) -> None:
    sent = whole(200, body(protocol))[:-5]
    upstream.answer = lambda _: [sent, Step.CLOSE]
    status, received, _ = await ask(gateway, protocol, request(protocol, stream=False))
    assert status == 502
    assert "error" in json.loads(received)
    assert len(upstream.requests) == 1, "no silent retry"


async def test_an_answer_that_is_no_json_is_an_error(
    gateway: RunningGateway, upstream: ScriptedUpstream, protocol: Protocol
) -> None:
    upstream.answer = lambda _: [whole(200, b"<html>", content_type="text/html")]
    assert (await ask(gateway, protocol, request(protocol, stream=False)))[0] == 502


async def test_an_upstream_that_nobody_runs_is_a_502_and_counts_nothing_r19(protocol: Protocol) -> None:
    async with running_gateway(config_for("http://127.0.0.1:9")) as gateway:
        status, received, _ = await ask(gateway, protocol, request(protocol, text=LARGE_TEXT))
        assert status == 502
        assert "could not be reached" in received.decode()
        assert gateway.decisions == [("allowed", "not_sent", 0)]


async def test_silence_gets_keep_alive_events_never_inside_an_event(
    upstream: ScriptedUpstream, protocol: Protocol
) -> None:
    some = events(protocol)
    upstream.answer = lambda _: [stream_head(), chunk(some[0] + some[1][:9]), Step.HANG]
    async with (
        running_gateway(config_for(upstream.url, limits={"keepAliveSeconds": 0.05})) as gateway,
        gateway.client.post(gateway.url + PATH[protocol], data=request(protocol), headers=JSON) as response,
    ):
        frame = {
            Protocol.MESSAGES: b'event: ping\ndata: {"type":"ping"}\n\n',
            Protocol.RESPONSES: b'event: keepalive\ndata: {"type":"keepalive"}\n\n',
            Protocol.CHAT: b": keepalive\n\n",
        }[protocol]
        expected = some[0] + frame + frame
        assert await response.content.readexactly(len(expected)) == expected


async def test_endless_silence_is_a_timeout_and_counts_r19(upstream: ScriptedUpstream, protocol: Protocol) -> None:
    upstream.answer = lambda _: [stream_head(), Step.HANG]
    limits = {"keepAliveSeconds": 0.05, "upstreamIdleSeconds": 0.1}
    async with running_gateway(config_for(upstream.url, limits=limits)) as gateway:
        status, received, _ = await ask(gateway, protocol, request(protocol, text=LARGE_TEXT))
        assert status == 200
        assert b'"error"' in received
        assert gateway.decisions == [("allowed", "unreported", 1)]
        assert gateway.records[0].ending == "timeout"
        await asyncio.wait_for(upstream.requests[0].closed.wait(), 5)


async def test_no_answer_at_all_is_a_504(upstream: ScriptedUpstream, protocol: Protocol) -> None:
    upstream.answer = lambda _: [Step.HANG]
    async with running_gateway(config_for(upstream.url, limits={"upstreamIdleSeconds": 0.1})) as gateway:
        assert (await ask(gateway, protocol, request(protocol)))[0] == 504
        assert gateway.records[0].ending == "timeout"


@pytest.mark.parametrize("phase", ["before the answer", "in the stream", "in an unstreamed answer"])
async def test_a_caller_who_leaves_stops_the_upstream_r14(
    gateway: RunningGateway, upstream: ScriptedUpstream, protocol: Protocol, phase: str
) -> None:
    some = b"".join(events(protocol)[:2])
    begun: dict[str, Script] = {
        "before the answer": [Step.HANG],
        "in the stream": [stream_head(), chunk(some), Step.HANG],
        "in an unstreamed answer": [whole(200, body(protocol))[:-5], Step.HANG],
    }
    upstream.answer = lambda _: begun[phase]
    data = request(protocol, text=LARGE_TEXT, stream=phase == "in the stream")
    asking = asyncio.create_task(ask(gateway, protocol, data))
    arrived = (await upstream.count(1))[0]
    asking.cancel()
    await asyncio.wait_for(arrived.closed.wait(), 1)
    await _at_rest(gateway)
    assert gateway.records[0].ending == "cancelled"
    outcome, _, count = gateway.decisions[0]
    assert count == 0
    assert outcome == ("excused" if protocol is Protocol.MESSAGES and phase == "in the stream" else outcome)


async def test_a_caller_who_leaves_after_the_end_cancelled_nothing_r14(
    gateway: RunningGateway, upstream: ScriptedUpstream, protocol: Protocol
) -> None:
    sent = b"".join(events(protocol))
    upstream.answer = lambda _: [stream_head(), chunk(sent), Step.HANG]
    async with gateway.client.post(gateway.url + PATH[protocol], data=request(protocol), headers=JSON) as response:
        await response.content.readexactly(len(sent))
        response.close()
    await _at_rest(gateway)
    assert gateway.records[0].ending == "completed"
    assert gateway.decisions == [("allowed", "miss", 1)]


async def test_two_cold_requests_run_and_the_third_reaches_nobody_r9(
    gateway: RunningGateway, upstream: ScriptedUpstream, protocol: Protocol
) -> None:
    upstream.answer = lambda _: stream(b"".join(events(protocol, COLD)))
    data = request(protocol, text=LARGE_TEXT)
    assert [(await ask(gateway, protocol, data))[0] for _ in range(4)] == [200, 200, 400, 400]
    assert len(upstream.requests) == 2
    assert gateway.decisions[2:] == [("blocked", "measured", 2)] * 2
    half = request(protocol, text=LARGE_TEXT[:140_000])
    assert (await ask(gateway, protocol, half))[0] == 200
    assert gateway.decisions[-1] == ("recovered", "smaller_input", 3)


async def test_a_stop_is_final_and_in_the_protocols_shape_r23(
    gateway: RunningGateway, upstream: ScriptedUpstream, protocol: Protocol
) -> None:
    upstream.answer = lambda _: stream(b"".join(events(protocol, SILENT)))
    data = request(protocol, text=LARGE_TEXT)
    for _ in range(2):
        await ask(gateway, protocol, data)
    status, received, response = await ask(gateway, protocol, data)
    assert status == 400
    assert response.headers["x-should-retry"] == "false"
    assert response.headers["x-cachegate-stop"] == "reason=unreported, count=2, wait-seconds=300"
    assert response.headers["content-type"] == "application/json"
    assert "retry-after" not in response.headers
    error = json.loads(received)["error"]
    if protocol is Protocol.MESSAGES:
        assert error["type"] == "billing_error"
        assert json.loads(received)["request_id"] == response.headers["request-id"]
    else:
        assert (error["code"], error["type"]) == ("invalid_prompt", "invalid_request_error")
    assert "did not report" in error["message"]
    assert "5 minutes" in error["message"]


async def test_a_working_cache_is_never_stopped(
    gateway: RunningGateway, upstream: ScriptedUpstream, protocol: Protocol
) -> None:
    upstream.answer = lambda _: stream(b"".join(events(protocol, WARM)))
    data = request(protocol, text=LARGE_TEXT)
    assert [(await ask(gateway, protocol, data))[0] for _ in range(4)] == [200] * 4


async def test_a_self_hosted_provider_is_measured_and_never_stopped_r11(upstream: ScriptedUpstream) -> None:
    row = {"kind": "anthropic", "baseUrl": upstream.url, "selfHosted": True}
    upstream.answer = lambda _: stream(b"".join(events(Protocol.MESSAGES, COLD)))
    async with running_gateway(config_for(upstream.url, providers={"anthropic": row})) as gateway:
        data = request(Protocol.MESSAGES, text=LARGE_TEXT)
        assert [(await ask(gateway, Protocol.MESSAGES, data))[0] for _ in range(4)] == [200] * 4
        assert [outcome for outcome, _, _ in gateway.decisions] == ["allowed", "allowed", "observed", "observed"]


async def test_an_alias_changes_the_models_name_and_no_other_byte(
    upstream: ScriptedUpstream, protocol: Protocol
) -> None:
    provider = "anthropic" if protocol is Protocol.MESSAGES else "openai"
    upstream.answer = lambda _: stream(b"".join(events(protocol)))
    async with running_gateway(config_for(upstream.url, models={"model-x": f"{provider}/real/name"})) as gateway:
        data = request(protocol)
        await ask(gateway, protocol, gzip.compress(data), {"content-encoding": "gzip"})
        assert upstream.requests[0].body == data.replace(b'"model-x"', b'"real/name"', 1)
        assert upstream.requests[0].header("content-encoding") is None


async def test_a_configured_key_replaces_the_clients_own(upstream: ScriptedUpstream) -> None:
    providers = {
        "anthropic": {"kind": "anthropic", "baseUrl": f"{upstream.url}/v1", "apiKey": "gateway-side-a"},
        "openai": {"kind": "openai", "baseUrl": f"{upstream.url}/v1", "apiKey": "gateway-side-o"},
    }
    upstream.answer = lambda _: [whole(200, b"{}")]
    theirs = {"authorization": "Bearer theirs", "x-api-key": "theirs"}
    async with running_gateway(config_for(upstream.url, providers=providers)) as gateway:
        for protocol in (Protocol.MESSAGES, Protocol.RESPONSES):
            await ask(gateway, protocol, request(protocol, stream=False), theirs)
    messages, responses = upstream.requests
    assert (messages.target, messages.header("x-api-key")) == ("/v1/messages", "gateway-side-a")
    assert (responses.target, responses.header("authorization")) == ("/v1/responses", "Bearer gateway-side-o")
    assert messages.header("authorization") is None
    assert responses.header("x-api-key") is None


async def test_token_counts_pass_and_are_not_the_guards_business(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.answer = lambda _: [whole(200, b'{"input_tokens":12}')]
    url = f"{gateway.url}/v1/messages/count_tokens?beta=true"
    async with gateway.client.post(url, data=request(Protocol.MESSAGES)) as response:
        assert await response.read() == b'{"input_tokens":12}'
    assert upstream.requests[0].target == "/v1/messages/count_tokens?beta=true"
    assert gateway.decisions == []


async def test_a_compaction_has_its_own_budget_r4(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    upstream.answer = lambda _: stream(b"".join(events(Protocol.RESPONSES, COLD)))
    data = request(Protocol.RESPONSES, text=LARGE_TEXT, prompt_cache_key="t1")
    for _ in range(3):
        await ask(gateway, Protocol.RESPONSES, data)
    upstream.answer = lambda _: [whole(200, body(Protocol.RESPONSES, COLD))]
    statuses = []
    for _ in range(3):
        async with gateway.client.post(f"{gateway.url}/v1/responses/compact", data=data) as response:
            statuses.append(response.status)
    assert statuses == [200, 200, 400]
    assert upstream.requests[-1].target == "/v1/responses/compact"


async def _at_rest(gateway: RunningGateway) -> None:
    """Wait until every running answer has ended."""
    running = gateway.app.lifecycle.running
    if running:
        await asyncio.wait(set(running), timeout=5)
    assert gateway.store.in_flight == 0


# --- leases: opened, noted and closed exactly once, however a request ends (R13) ---

ENDINGS: dict[str, Callable[[Protocol], Script]] = {
    "streamed": lambda protocol: stream(b"".join(events(protocol))),
    "event by event": lambda protocol: [stream_head(), *map(chunk, events(protocol)), chunk(b"")],
    "refused": lambda protocol: stream(b"".join(events(protocol, refused=True))),
    "an error": lambda _: [whole(529, b"{}")],
    "broken off": lambda protocol: [stream_head(), chunk(b"".join(events(protocol)[:2])), Step.CLOSE],
    "reset": lambda _: [Step.RESET],
    "nonsense": lambda _: [b"no HTTP at all\r\n\r\n", Step.CLOSE],
    "silent": lambda _: [stream_head(), Step.HANG],
    "never begun": lambda _: [Step.HANG],
}
IMPATIENT = {"upstreamIdleSeconds": 0.1, "keepAliveSeconds": 0.05}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_a_lease_is_opened_and_closed_once_in_every_ending_r13(
    upstream: ScriptedUpstream, protocol: Protocol, ending: str
) -> None:
    upstream.answer = lambda _: ENDINGS[ending](protocol)
    store = RecordingStore()
    async with running_gateway(config_for(upstream.url, limits=IMPATIENT), store) as gateway:
        await ask(gateway, protocol, request(protocol))
        await _at_rest(gateway)
        (story,) = store.stories.values()
        assert (story.opened, story.closed, story.late) == (1, 1, 0)
        (record,) = gateway.records
        if record.status == 200:
            assert story.notes[0].began, "the head"
            assert story.notes[0].usage == Usage(), "before anything was measured"
            assert story.settled is not None
            assert story.settled.usage == record.usage, "all that was measured"
        assert all(note.sent and note.ending is not Ending.CANCELLED for note in story.notes)
        assert len(story.notes) <= 1 + len(events(protocol))


async def test_each_usage_is_noted_before_the_caller_sees_it_r5(upstream: ScriptedUpstream) -> None:
    """Whatever a caller has seen outlives this process: it was noted while the answer still runs."""
    sent = b"".join(events(Protocol.MESSAGES)[:2])
    upstream.answer = lambda _: [stream_head(), chunk(sent), Step.HANG]
    store = RecordingStore()
    async with (
        running_gateway(config_for(upstream.url), store) as gateway,
        gateway.client.post(
            gateway.url + PATH[Protocol.MESSAGES], data=request(Protocol.MESSAGES), headers=JSON
        ) as response,
    ):
        await response.content.readexactly(len(sent))
        (story,) = store.stories.values()
        assert story.closed == 0
        assert story.notes[-1].usage == COLD
        assert story.notes[-1].ending is Ending.SHUTDOWN, "a process that dies cancels nothing"


async def test_what_is_finished_and_measured_is_settled_before_the_caller_has_its_end(
    upstream: ScriptedUpstream, protocol: Protocol
) -> None:
    """The caller's next request may reach another process, where the miss must count already."""
    sent = b"".join(events(protocol))
    upstream.answer = lambda _: [stream_head(), chunk(sent), Step.HANG]
    store = RecordingStore()
    async with (
        running_gateway(config_for(upstream.url), store) as gateway,
        gateway.client.post(gateway.url + PATH[protocol], data=request(protocol), headers=JSON) as response,
    ):
        await response.content.readexactly(len(sent))
        (story,) = store.stories.values()
        assert story.closed == 1
        assert story.settled is not None
        assert (story.settled.usage, story.settled.ending) == (COLD, Ending.COMPLETED)
    (record,) = gateway.records
    assert (record.ending, record.usage) == ("completed", COLD), "recorded once, whatever happens to the connection"


async def test_a_callers_leaving_and_a_shutdown_close_the_lease_once_r13(
    upstream: ScriptedUpstream, protocol: Protocol
) -> None:
    upstream.answer = lambda _: [stream_head(), chunk(b"".join(events(protocol)[:2])), Step.HANG]
    store = RecordingStore()
    async with running_gateway(config_for(upstream.url), store) as gateway:
        leaving = asyncio.create_task(ask(gateway, protocol, request(protocol)))
        arrived = (await upstream.count(1))[0]
        leaving.cancel()
        await asyncio.wait_for(arrived.closed.wait(), 5)
        await _at_rest(gateway)
        cut = asyncio.create_task(ask(gateway, protocol, request(protocol)))
        await upstream.count(2)
        await gateway.app.close()
        await asyncio.wait({cut})
        cut.exception()
    assert [(story.opened, story.closed, story.late) for story in store.stories.values()] == [(1, 1, 0)] * 2


async def test_each_provider_that_is_asked_has_a_lease_of_its_own(upstream: ScriptedUpstream) -> None:
    answers: list[Script] = [[whole(503, b"{}")], stream(b"".join(events(Protocol.MESSAGES)))]
    upstream.answer = lambda _: answers.pop(0)
    store = RecordingStore()
    config = config_for(upstream.url, models={"model-x": ["anthropic/a", "anthropic/b"]})
    async with running_gateway(config, store) as gateway:
        assert (await ask(gateway, Protocol.MESSAGES, request(Protocol.MESSAGES)))[0] == 200
        await _at_rest(gateway)
    assert [(story.opened, story.closed, story.late) for story in store.stories.values()] == [(1, 1, 0)] * 2
    assert len({story.key for story in store.stories.values()}) == 2


async def test_a_stopped_request_opens_no_lease_r9(upstream: ScriptedUpstream, protocol: Protocol) -> None:
    upstream.answer = lambda _: stream(b"".join(events(protocol)))
    store = RecordingStore()
    async with running_gateway(config_for(upstream.url), store) as gateway:
        for _ in range(3):
            await ask(gateway, protocol, request(protocol, text=LARGE_TEXT))
    assert (len(store.stories), store.asked_without_opening) == (2, 1)


async def test_what_the_guard_does_not_watch_has_no_lease(upstream: ScriptedUpstream) -> None:
    upstream.answer = lambda _: [whole(200, b'{"input_tokens":12}')]
    store = RecordingStore()
    async with running_gateway(config_for(upstream.url), store) as gateway:
        url = f"{gateway.url}/v1/messages/count_tokens"
        async with gateway.client.post(url, data=request(Protocol.MESSAGES)) as response:
            await response.read()
    assert (store.stories, len(store)) == ({}, 0)
