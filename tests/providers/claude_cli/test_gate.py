"""The door to the provider: one model call for each permit, passed on as it is."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import aiohttp
import pytest

from cachegate.providers.claude_cli.gate import Gate, Permit
from scripted_upstream import ScriptedUpstream, Step, chunk, stream, stream_head, whole

EVENTS = (
    b'event: message_start\ndata: {"type":"message_start"}\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n'
)


@dataclass(slots=True)
class Told:
    """What a permit was told."""

    sent: int = 0
    failures: list[tuple[int, bytes, str]] = field(default_factory=list)

    def leaves(self) -> None:
        self.sent += 1

    def fails(self, status: int, body: bytes, retry_after: str) -> None:
        self.failures.append((status, body, retry_after))

    @property
    def permit(self) -> Permit:
        return Permit(self.leaves, self.fails)


@pytest.fixture
async def gate(upstream: ScriptedUpstream) -> AsyncIterator[Gate]:
    opened = Gate(upstream.url)
    await opened.start()
    yield opened
    await opened.stop()


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def test_one_call_passes_for_each_permit_and_as_it_is(
    gate: Gate, upstream: ScriptedUpstream, http: aiohttp.ClientSession
) -> None:
    upstream.answer = lambda _: stream(EVENTS)
    told = Told()
    gate.allow("one", told.permit)
    headers = {"x-api-key": "k", "anthropic-beta": "a,b", "accept-encoding": "gzip"}
    url = f"{gate.url('one')}/v1/messages?beta=true"
    async with http.post(url, data=b'{"model": "m"}', headers=headers) as answer:
        assert (answer.status, await answer.read()) == (200, EVENTS)
        assert answer.content_type == "text/event-stream"
    async with http.post(url, data=b"{}") as again:
        assert again.status == 400
        assert (await again.json())["error"]["type"] == "invalid_request_error"
    (received,) = upstream.requests
    assert (received.target, received.body) == ("/v1/messages?beta=true", b'{"model": "m"}')
    assert received.header("x-api-key") == "k"
    assert received.header("anthropic-beta") == "a,b"
    assert received.header("accept-encoding") == "identity"
    assert (told.sent, told.failures) == (1, [])


async def test_a_session_without_a_permit_reaches_nobody(
    gate: Gate, upstream: ScriptedUpstream, http: aiohttp.ClientSession
) -> None:
    told = Told()
    gate.allow("one", told.permit)
    gate.close("one")
    for key, path in (("one", "v1/messages"), ("other", "v1/messages"), ("one", "api/hello")):
        async with http.post(f"{gate.url(key)}/{path}", data=b"{}") as answer:
            assert answer.status in {400, 404}
    async with http.get(f"{gate.url('one')}/v1/messages") as answer:
        assert answer.status == 404
    assert upstream.requests == []
    assert told.sent == 0


async def test_a_failure_is_told_in_the_providers_own_words(
    gate: Gate, upstream: ScriptedUpstream, http: aiohttp.ClientSession
) -> None:
    said = b'{"type":"error","error":{"type":"rate_limit_error","message":"Slow down."}}'
    upstream.answer = lambda _: [whole(429, said, "retry-after: 7")]
    told = Told()
    gate.allow("one", told.permit)
    async with http.post(f"{gate.url('one')}/v1/messages", data=b"{}") as answer:
        assert (answer.status, await answer.read()) == (429, said)
        assert "retry-after" not in answer.headers, "the program must not wait and try again"
    assert told.failures == [(429, said, "7")]


async def test_a_provider_that_cannot_be_reached_is_a_failure(http: aiohttp.ClientSession) -> None:
    gate = Gate("http://127.0.0.1:1")
    await gate.start()
    told = Told()
    gate.allow("one", told.permit)
    async with http.post(f"{gate.url('one')}/v1/messages", data=b"{}") as answer:
        assert answer.status == 502
    await gate.stop()
    assert [status for status, _, _ in told.failures] == [502]


async def test_a_stream_that_breaks_does_not_end(
    gate: Gate, upstream: ScriptedUpstream, http: aiohttp.ClientSession
) -> None:
    upstream.answer = lambda _: [stream_head(), chunk(EVENTS), Step.CLOSE]
    told = Told()
    gate.allow("one", told.permit)
    async with http.post(f"{gate.url('one')}/v1/messages", data=b"{}") as answer:
        with pytest.raises((aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError)):
            await answer.read()
    assert told.failures == []


async def test_a_program_that_hangs_up_hangs_up_on_the_provider(
    gate: Gate, upstream: ScriptedUpstream, http: aiohttp.ClientSession
) -> None:
    upstream.answer = lambda _: [stream_head(), chunk(EVENTS), Step.HANG]
    gate.allow("one", Told().permit)
    async with http.post(f"{gate.url('one')}/v1/messages", data=b"{}") as answer:
        assert await answer.content.readany() == EVENTS
        answer.close()
    async with asyncio.timeout(1):
        await upstream.requests[0].closed.wait()
