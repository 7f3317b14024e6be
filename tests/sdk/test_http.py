"""One POST: sent once, to where it was meant for, with credentials that are never shown."""

import json

import pytest

from cachegate.sdk import AsyncClient, BrokenAnswer, ProviderError, Unreachable
from cachegate.sdk.http import Address, address
from scripted_upstream import ScriptedUpstream, Step, whole
from sdk.replies import answering, said


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "Give http"),
        ("127.0.0.1:4283", "Give http"),
        ("ftp://x", "Give http"),
        ("file:///etc/passwd", "Give http"),
        ("http://", "Give http"),
        ("http://x/?a=1", "Give http"),
        ("http://me:pw@x", "credentials"),
        ("http://x:99999", "no URL"),
    ],
)
def test_only_http_addresses_are_taken(url: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as refused:
        address(url)
    assert "pw" not in str(refused.value)


@pytest.mark.parametrize("bad", ["a\r\nx: 1", "é", "\x00"])
def test_a_value_that_no_header_can_hold_is_refused_and_not_shown(bad: str) -> None:
    with pytest.raises(ValueError, match="x-cachegate-key") as refused:
        address("http://x", key=bad)
    assert bad not in str(refused.value)


def test_times_are_above_zero() -> None:
    with pytest.raises(ValueError, match="above 0"):
        address("http://x", idle_s=0)


def test_credentials_are_never_shown() -> None:
    client = AsyncClient("http://127.0.0.1:1", key="gateway-secret", api_key="provider-secret")
    chat = client.chat("m")
    shown = f"{client!r} {client} {chat!r} {client._gateway!r} {client._gateway} {client._http!r}"
    assert "127.0.0.1:1" in shown
    assert "secret" not in shown
    assert isinstance(client._gateway, Address)


async def test_without_a_gateway_nothing_was_sent() -> None:
    async with AsyncClient("http://127.0.0.1:9", key="gateway-secret") as client:
        chat = client.chat("m")
        with pytest.raises(Unreachable, match="cachegate serve") as failed:
            await chat.send("hi")
        assert "secret" not in str(failed.value)
        assert (chat.history, chat.usage.total.input) == ((), 0)


async def test_a_redirect_is_not_followed(upstream: ScriptedUpstream) -> None:
    upstream.answer = lambda _: [whole(307, b"", f"location: {upstream.url}/elsewhere")]
    async with AsyncClient(upstream.url, api_key="sk") as client:
        with pytest.raises(ProviderError) as failed:
            await client.chat("m").send("hi")
    assert failed.value.status == 307
    assert [request.target for request in upstream.requests] == ["/v1/responses"]


@pytest.mark.parametrize("step", [Step.CLOSE, Step.RESET])
async def test_a_connection_that_breaks_is_not_tried_again(upstream: ScriptedUpstream, step: Step) -> None:
    async with AsyncClient(upstream.url) as client:
        chat = client.chat("m")
        upstream.answer = answering([said("ok")])
        await chat.send("hi")
        upstream.answer = lambda _: [step]
        with pytest.raises(BrokenAnswer, match="may have been processed"):
            await chat.send("again")
    assert len(upstream.requests) == 2


async def test_silence_is_given_up(upstream: ScriptedUpstream) -> None:
    upstream.answer = lambda _: [Step.HANG]
    async with AsyncClient(upstream.url, idle_s=0.05) as client:
        with pytest.raises(BrokenAnswer):
            await client.chat("m").send("hi")


async def test_an_error_that_breaks_off_is_still_told(upstream: ScriptedUpstream) -> None:
    head = b"HTTP/1.1 500 X\r\ncontent-type: text/plain\r\ncontent-length: 999\r\n\r\n"
    upstream.answer = lambda _: [head + b"it broke", Step.CLOSE]
    async with AsyncClient(upstream.url) as client:
        with pytest.raises(ProviderError, match="it broke"):
            await client.chat("m").send("hi")


async def test_a_path_in_front_of_the_gateway_is_kept_and_large_bodies_go_whole(upstream: ScriptedUpstream) -> None:
    upstream.answer = answering([said("ok")])
    text = "é" * 2_000_000
    async with AsyncClient(f"{upstream.url}/proxy/cachegate/") as client:
        await client.chat("m").send(text)
    (request,) = upstream.requests
    assert request.target == "/proxy/cachegate/v1/responses"
    assert json.loads(request.body)["input"][0]["content"][0]["text"] == text
