"""Routes beside inference, and the life of the server."""

import asyncio
import json
from pathlib import Path

import pytest

from cachegate.assembly import steady_clock
from cachegate.stores.fallback import FallbackStore
from cachegate.stores.local import LocalStore
from cachegate.wire.facts import Protocol
from provider_streams import PATH, events, request
from running_gateway import RunningGateway, config_for, running_gateway
from scripted_upstream import ScriptedUpstream, Step, chunk, stream_head

ANTHROPIC = {"anthropic-version": "2023-06-01"}


async def get(gateway: RunningGateway, path: str, **headers: str) -> tuple[int, dict[str, object]]:
    async with gateway.client.get(gateway.url + path, headers=headers) as response:
        return response.status, json.loads(await response.read())


async def test_the_root_and_every_head_are_200(gateway: RunningGateway) -> None:
    status, body = await get(gateway, "/")
    assert (status, body["name"]) == (200, "cachegate")
    for path in ("/", "/api/hello", "/v1/messages", "/nothing"):
        async with gateway.client.head(gateway.url + path) as response:
            assert response.status == 200


@pytest.mark.parametrize("path", ["/nothing", "/v1", "/v1/messages/", "//v1/messages", "/v1/../v1/x", "/v1/Messages"])
async def test_an_unknown_path_is_a_404_in_the_askers_shape(gateway: RunningGateway, path: str) -> None:
    status, body = await get(gateway, path)
    assert status == 404
    assert body["error"]["code"] == "not_found"  # type: ignore[index]
    status, body = await get(gateway, path, **ANTHROPIC)
    assert status == 404
    assert body["error"]["type"] == "not_found_error"  # type: ignore[index]


async def test_models_are_listed_in_the_askers_shape(upstream: ScriptedUpstream) -> None:
    config = config_for(upstream.url, models={"fast": "openai/gpt-small", "claude-*": "anthropic"})
    async with running_gateway(config) as gateway:
        _, theirs = await get(gateway, "/v1/models?limit=1000", **ANTHROPIC)
        _, ours = await get(gateway, "/v1/models")
    names = [row["id"] for row in ours["data"]]  # type: ignore[attr-defined]
    assert names[0] == "fast"
    assert "synthetic/cold" in names
    assert "claude-*" not in names
    assert [row["id"] for row in theirs["data"]] == names  # type: ignore[attr-defined]
    assert (theirs["has_more"], theirs["first_id"], theirs["last_id"]) == (False, names[0], names[-1])
    assert ours["object"] == "list"


async def test_a_wrong_method_is_a_405(gateway: RunningGateway) -> None:
    async with gateway.client.post(f"{gateway.url}/health") as response:
        assert response.status == 405


async def test_health_counts_what_runs(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    upstream.answer = lambda _: [stream_head(), Step.HANG]
    assert (await get(gateway, "/health"))[1]["inFlight"] == 0
    async with gateway.client.post(f"{gateway.url}/v1/messages", data=request(Protocol.MESSAGES)):
        assert (await get(gateway, "/health"))[1]["inFlight"] == 1


async def test_health_tells_where_the_state_is_and_whether_it_can_be_shared(
    gateway: RunningGateway, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    assert (await get(gateway, "/health"))[1]["state"] == {"kind": "memory", "degraded": False, "failures": 0}
    policy = gateway.app.gateway.policy
    for place, degraded in ((tmp_path, False), (tmp_path / "gone", True)):
        store = FallbackStore(LocalStore(place, policy, steady_clock()), policy, steady_clock())
        async with running_gateway(config_for(upstream.url), store) as shared:
            expected = {"kind": "local", "degraded": degraded, "failures": int(degraded)}
            assert (await get(shared, "/health"))[1]["state"] == expected


async def test_draining_lets_a_running_answer_end_and_takes_no_new_connection(
    upstream: ScriptedUpstream, protocol: Protocol
) -> None:
    sent = events(protocol)
    upstream.answer = lambda _: [stream_head(), chunk(sent[0]), Step.HANG]
    async with running_gateway(config_for(upstream.url)) as gateway:
        url = gateway.url + PATH[protocol]
        async with gateway.client.post(url, data=request(protocol)) as response:
            assert await response.content.readexactly(len(sent[0])) == sent[0]
            hurry = asyncio.Event()
            draining = asyncio.create_task(gateway.app.drain(60, hurry))
            assert not (await asyncio.wait({draining}, timeout=0.1))[0], "it must wait for the running answer"
            assert gateway.app.lifecycle.stopping
            hurry.set()
            await draining
            closing = asyncio.create_task(gateway.app.close())
            rest = await response.read()
            await closing
    assert b'"error"' in rest
    assert b"shutting down" in rest
    assert gateway.records[0].ending == "shutdown"
    assert gateway.decisions[0][0] == "allowed"


async def test_a_shutdown_is_no_cancellation_of_the_callers_r14(upstream: ScriptedUpstream) -> None:
    """T12: what the gateway ends itself counts as unreported when it was large."""
    upstream.answer = lambda _: [stream_head(), chunk(b": nothing yet\n\n"), Step.HANG]
    async with running_gateway(config_for(upstream.url)) as gateway:
        data = request(Protocol.RESPONSES, text="x" * 300_000)
        async with gateway.client.post(f"{gateway.url}/v1/responses", data=data) as response:
            await response.content.readany()
            await gateway.app.close()
    assert gateway.records[0].ending == "shutdown"
    assert gateway.decisions == [("allowed", "unreported", 1)]


async def test_draining_is_told_to_load_balancers(gateway: RunningGateway) -> None:
    gateway.app.lifecycle.stopping = True
    status, body = await get(gateway, "/health")
    assert (status, body["status"]) == (503, "draining")


@pytest.mark.parametrize("target", [b"POST /v1/messages", b"GET /v1/models", b"GET /nothing"])
async def test_a_header_that_is_no_text_is_a_clear_error(gateway: RunningGateway, target: bytes) -> None:
    host, port = gateway.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(target + b" HTTP/1.1\r\nhost: localhost\r\nx-odd: caf\xe9\r\nconnection: close\r\n\r\n")
    answer = await asyncio.wait_for(reader.read(), 5)
    writer.close()
    await writer.wait_closed()
    assert answer.startswith(b"HTTP/1.1 40")
    assert b"error" in answer
