"""The HTTP upstream beside what the road's tests see: connections, pinning, proxies, limits."""

import functools
from contextlib import aclosing
from dataclasses import replace

import pytest
from yarl import URL

from cachegate.errors import UpstreamError
from cachegate.guard.usage import Usage
from cachegate.providers.base import Call, Head, Piece
from cachegate.providers.http import HttpProvider, Upstream, UpstreamLimits
from cachegate.providers.passage import Terms
from cachegate.providers.presets import PRESETS
from cachegate.wire.facts import Operation, Protocol
from cachegate.wire.parse import Received, parse
from cachegate.wire.sse import SseEvent
from provider_streams import body, events, request
from scripted_upstream import Recorded, Script, ScriptedUpstream, Step, stream, whole


def nothing() -> None:
    """Nobody asks whether it was sent."""


def call(data: bytes | None = None) -> Call:
    data = data or request(Protocol.MESSAGES)
    return Call(
        parse(Received(Protocol.MESSAGES, Operation.GENERATE, (), "", data, data), bytes(32)),
        "req_1",
        "anthropic",
        "model-x",
        nothing,
    )


async def run(provider: HttpProvider, asked: Call) -> list[Head | Piece]:
    async with aclosing(provider.stream(asked)) as parts:
        return [part async for part in parts]


def provider_at(url: str, pinned: tuple[str, ...] = (), limits: UpstreamLimits | None = None) -> HttpProvider:
    terms = Terms(PRESETS["anthropic"], frozenset(Protocol), None, None)
    return HttpProvider(Upstream(terms, URL(url), pinned, limits or UpstreamLimits()))


async def test_connections_are_kept_and_used_again(upstream: ScriptedUpstream) -> None:
    upstream.answer = lambda _: stream(b"".join(events(Protocol.MESSAGES)))
    provider = provider_at(upstream.url)
    for _ in range(5):
        await run(provider, call())
    await provider.close()
    assert (len(upstream.requests), upstream.connections) == (5, 1)


async def test_a_connection_that_broke_is_not_used_again(upstream: ScriptedUpstream) -> None:
    upstream.answer = lambda _: [whole(200, body(Protocol.MESSAGES))[:-1], Step.CLOSE]
    provider = provider_at(upstream.url)
    for _ in range(2):
        with pytest.raises(UpstreamError):
            await run(provider, call())
    await provider.close()
    assert upstream.connections == 2


async def test_a_pinned_provider_connects_to_its_checked_address_whatever_its_name(upstream: ScriptedUpstream) -> None:
    port = URL(upstream.url).port
    provider = provider_at(f"http://model.invalid:{port}", ("127.0.0.1",))
    await run(provider, call())
    await provider.close()
    assert upstream.requests[0].header("host") == f"model.invalid:{port}"


async def test_a_proxy_of_the_environment_is_no_way_to_ones_own_machine(
    upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    provider = provider_at(upstream.url)
    await run(provider, call())
    await provider.close()
    assert len(upstream.requests) == 1


async def test_a_redirect_is_not_followed(upstream: ScriptedUpstream) -> None:
    upstream.answer = lambda _: [whole(307, b"", f"location: {upstream.url}/elsewhere")]
    provider = provider_at(upstream.url)
    head, _ = await run(provider, call())
    await provider.close()
    assert isinstance(head, Head)
    assert head.status == 307
    assert len(upstream.requests) == 1


async def test_an_unstreamed_answer_has_a_limit(upstream: ScriptedUpstream) -> None:
    upstream.answer = lambda _: [whole(200, b" " * 5_000)]
    provider = provider_at(upstream.url, limits=UpstreamLimits(body_bytes_max=4_000))
    with pytest.raises(UpstreamError, match="more than 4000 bytes"):
        await run(provider, call())
    await provider.close()


async def test_a_large_body_goes_up_whole(upstream: ScriptedUpstream) -> None:
    provider = provider_at(upstream.url)
    data = request(Protocol.MESSAGES, text="y" * 5_000_000)
    await run(provider, call(data))
    await provider.close()
    assert upstream.requests[0].body == data
    assert upstream.requests[0].header("content-length") == str(len(data))


def _answered(script: Script, _: Recorded) -> Script:
    return script


@pytest.mark.parametrize(("switch", "read"), [(False, 0), (True, None)])
async def test_zeros_are_believed_unless_the_switch_says_that_they_are_filled_in(
    upstream: ScriptedUpstream, switch: bool, read: int | None
) -> None:
    for script in ([whole(200, body(Protocol.MESSAGES))], stream(b"".join(events(Protocol.MESSAGES)))):
        upstream.answer = functools.partial(_answered, script)
        terms = Terms(PRESETS["anthropic"], frozenset(Protocol), None, None, zero_is_unknown=switch)
        provider = HttpProvider(Upstream(terms, URL(upstream.url)))
        parts = await run(provider, call())
        await provider.close()
        usages = [seen for part in parts if isinstance(part, Piece) for seen in part.seen if isinstance(seen, Usage)]
        assert {(usage.input_total, usage.cached_read) for usage in usages} == {(200_000, read)}


def test_an_answer_is_read_as_its_providers_row_says() -> None:
    late = (b'{"type":"message_start","message":{"usage":{"input_tokens":10}}}',
            b'{"type":"message_delta","usage":{"cache_read_input_tokens":12}}')  # fmt: skip
    for readings, total in (("anthropic", 22), ("qwen", 12)):
        preset = replace(PRESETS["anthropic"], readings=readings)
        reader = Terms(preset, frozenset(Protocol), None, None).reader(Protocol.MESSAGES)
        seen = [item for data in late for item in reader.read(SseEvent(b"", data))]
        assert seen[-1] == Usage(total, 12)
