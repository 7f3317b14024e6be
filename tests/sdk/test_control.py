"""The control socket: how it is opened, and how it is refused."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from cachegate.sdk import AsyncClient, BrokenAnswer, Busy, ProviderError, Unreachable
from scripted_upstream import ScriptedUpstream, whole
from sdk.control_peer import ControlPeer, control_peer


@pytest.fixture
async def peer() -> AsyncIterator[ControlPeer]:
    async with control_peer() as running:
        yield running


async def test_one_socket_serves_all_chats_of_a_client(peer: ControlPeer) -> None:
    async with AsyncClient(peer.url) as client:
        await asyncio.gather(client.threads(), client.threads(), client.hosted_chat("m"))
    assert peer.methods().count("initialize") == 1
    assert len(peer.headers) == 1


async def test_without_a_gateway_nothing_was_sent() -> None:
    async with AsyncClient("http://127.0.0.1:9", key="gateway-secret") as client:
        with pytest.raises(Unreachable) as failed:
            await client.threads()
    assert "secret" not in str(failed.value)


@pytest.mark.parametrize("status", [200, 401, 403, 426, 503])
async def test_a_refused_socket_is_told_with_its_status(upstream: ScriptedUpstream, status: int) -> None:
    upstream.answer = lambda _: [whole(status, b"{}")]
    async with AsyncClient(upstream.url) as client:
        with pytest.raises(ProviderError) as failed:
            await client.threads()
    assert failed.value.status == status
    assert len(upstream.requests) == 1


async def test_a_redirect_is_not_followed(upstream: ScriptedUpstream, peer: ControlPeer) -> None:
    upstream.answer = lambda _: [whole(307, b"", f"location: {peer.url}/control")]
    async with AsyncClient(upstream.url, key="secret") as client:
        with pytest.raises(ProviderError) as failed:
            await client.threads()
    assert failed.value.status == 307
    assert peer.headers == []


async def test_a_refused_request_is_told(peer: ControlPeer) -> None:
    peer.refusals = {
        "thread/list": {"code": -32003, "message": "Too much."},
        "thread/delete": {"code": -32000, "message": "Busy."},
    }
    async with AsyncClient(peer.url) as client:
        with pytest.raises(ProviderError, match=r"Too much\. \(-32003\)"):
            await client.threads()
        with pytest.raises(Busy):
            await client.delete("t")


async def test_a_refused_greeting_closes_the_socket(peer: ControlPeer) -> None:
    peer.refusals = {"initialize": {"code": -32003, "message": "Full."}}
    async with AsyncClient(peer.url) as client:
        for _ in range(2):
            with pytest.raises(ProviderError, match="Full"):
                await client.threads()
    assert peer.methods() == ["initialize", "initialize"]


@pytest.mark.parametrize("method", ["thread/list", "thread/start"])
async def test_a_request_whose_answer_is_lost_is_not_sent_again(peer: ControlPeer, method: str) -> None:
    peer.cut_after = {method}
    async with AsyncClient(peer.url) as client:
        with pytest.raises(BrokenAnswer, match="lost"):
            await (client.threads() if method == "thread/list" else client.hosted_chat("m"))
    assert peer.methods().count(method) == 1


async def test_what_is_asked_for_an_unknown_chat_is_refused(peer: ControlPeer) -> None:
    async with AsyncClient(peer.url) as client:
        await client.threads()
        assert (await peer.ask("tool_1", tool="t"))["error"]["code"] == -32601
