"""Why an answer ended: many streams, random departures, slow readers; nothing may be left behind."""

import asyncio
import gc
import random

import aiohttp

from cachegate.wire.facts import Protocol
from cachegate.wire.protocols import DIALECTS
from provider_streams import PATH, events, request
from running_gateway import RunningGateway, config_for, running_gateway
from scripted_upstream import Recorded, Script, ScriptedUpstream, Step, chunk, stream, stream_head

STREAMS = 200
SEED = 20261129


def answer_of(recorded: Recorded) -> Script:
    """Half of the streams end, half hang until somebody leaves."""
    protocol = next(protocol for protocol, path in PATH.items() if path == recorded.target)
    if b"ends" in recorded.body:
        return stream(b"".join(events(protocol)))
    return [stream_head(), chunk(b"".join(events(protocol)[:3])), Step.HANG]


async def one(gateway: RunningGateway, number: int, dice: random.Random) -> None:
    protocol = dice.choice(list(DIALECTS))
    data = request(protocol, text="ends" if number % 2 else "hangs")
    connector = aiohttp.TCPConnector(force_close=True)
    async with (
        aiohttp.ClientSession(connector=connector) as client,
        client.post(gateway.url + PATH[protocol], data=data) as response,
    ):
        if number % 2:
            await response.read()
        else:
            await response.content.readexactly(dice.randrange(1, 200))
            response.close()


async def test_200_streams_with_random_departures_leave_no_task_socket_or_count(upstream: ScriptedUpstream) -> None:
    upstream.answer = answer_of
    dice = random.Random(SEED)
    tasks_before = len(asyncio.all_tasks())
    async with running_gateway(config_for(upstream.url)) as gateway:
        await asyncio.gather(*(one(gateway, number, dice) for number in range(STREAMS)))
        running = gateway.app.lifecycle.running
        if running:
            await asyncio.wait(set(running), timeout=5)
        assert len(upstream.requests) == STREAMS
        hanging = [recorded for recorded in upstream.requests if b"hangs" in recorded.body]
        await asyncio.wait_for(asyncio.gather(*(recorded.closed.wait() for recorded in hanging)), 1)
        assert gateway.store.in_flight == 0
        assert not gateway.app.lifecycle.running
        assert len(gateway.records) == STREAMS, "every request is settled and recorded exactly once"
        endings = [record.ending for record in gateway.records]
        assert endings.count("cancelled") == STREAMS // 2, f"seed {SEED}"
        assert endings.count("completed") == STREAMS // 2, f"seed {SEED}"
    gc.collect()
    assert len(asyncio.all_tasks()) <= tasks_before + upstream.open_connections


async def test_a_reader_that_stalls_is_given_up_and_that_is_no_cancellation_r14(upstream: ScriptedUpstream) -> None:
    flood = b"event: x\ndata: %b\n\n" % (b"y" * 65_536)
    begin = events(Protocol.MESSAGES)[0]
    upstream.answer = lambda _: [stream_head(), chunk(begin), *[chunk(flood)] * 400, Step.HANG]
    async with running_gateway(config_for(upstream.url, limits={"sendStallSeconds": 0.2})) as gateway:
        host, port = gateway.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1)
        data = request(Protocol.MESSAGES)
        head = f"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(data)}\r\n\r\n"
        writer.write(head.encode() + data)
        recorded = (await upstream.count(1))[0]
        del reader
        running = await _running(gateway)
        await asyncio.wait(running, timeout=10)
        writer.close()
        assert [(record.ending, record.detail) for record in gateway.records] == [("timeout", "caller_stalled")]
        assert gateway.decisions == [("allowed", "miss", 1)]
        assert recorded.method == "POST"


async def _running(gateway: RunningGateway) -> set[asyncio.Task[object]]:
    found = set(gateway.app.lifecycle.running)
    assert found
    return found


async def test_a_request_aborted_while_uploading_touches_nothing_r19(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    host, port = gateway.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n{")
    await writer.drain()
    async with gateway.client.get(f"{gateway.url}/health"):
        pass  # one turn of the loop: the upload has begun
    running = set(gateway.app.lifecycle.running)
    writer.transport.abort()
    if running:
        await asyncio.wait(running, timeout=5)
    assert upstream.connections == 0
    assert len(gateway.store) == 0
