"""What dies by force: a worker with fifty streams frees all of them, and what was measured of them counts."""

import asyncio
import json
import os
import signal
import sqlite3
import time
from contextlib import AsyncExitStack, closing, suppress
from pathlib import Path

import pytest
from benchmarks.raw_clients import LARGE, ask, connected, head_of, request

from supervised_program import CONFIG, SupervisedProgram, supervised_program, until

pytestmark = pytest.mark.skipif(os.name != "posix", reason="sockets are inherited on POSIX only")
STREAMS = 50


def leases(gateway: SupervisedProgram) -> int:
    """Requests in flight, as the workers' store has them."""
    with closing(sqlite3.connect(f"file:{gateway.directory}/guard.db?mode=ro", uri=True)) as database:
        return int(database.execute("SELECT count(*) FROM leases").fetchone()[0])


def measured() -> bytes:
    """Return a large Messages request, whose usage stands in the first event, in a conversation of its own."""
    said = {"role": "user", "content": LARGE}
    body = json.dumps({"model": "synthetic/cold+hang", "stream": True, "messages": [said]}).encode()
    head = "POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    head += f"x-cachegate-thread-id: killed\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def begin(gateway: SupervisedProgram, opened: AsyncExitStack, asked: list[bytes]) -> list[asyncio.StreamReader]:
    """Begin streams that never end, and wait until the store knows of each."""
    readers = []
    for one in asked:
        reader, writer = await opened.enter_async_context(connected(gateway.port))
        writer.write(one)
        readers.append(reader)
    for reader in readers:
        assert (await head_of(reader))[0] == 200
        await reader.readuntil(b"event: ")

    async def all_run() -> bool:
        return leases(gateway) == len(asked)

    await until(all_run, "a lease for every stream")
    return readers


async def kill_all(gateway: SupervisedProgram, readers: list[asyncio.StreamReader]) -> float:
    """Kill every worker; returns the seconds until all requests are free and the port answers again."""
    pids = await gateway.workers()
    killed_s = time.monotonic()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for reader in readers:
        with suppress(ConnectionError):
            await reader.read()

    async def served_and_freed() -> bool:
        return leases(gateway) == 0 and (await ask(gateway.port, "cache"))[0] == 200

    await until(served_and_freed, "every lease to be freed and the port to answer")
    took_s = time.monotonic() - killed_s

    async def replaced() -> bool:
        return len(set(await gateway.workers()) - set(pids)) == len(pids)

    await until(replaced, "as many workers as before")
    return took_s


@pytest.mark.parametrize("workers", [1, 2])
async def test_killed_workers_free_their_requests_and_lose_nothing_that_was_measured_r13(
    tmp_path: Path, workers: int
) -> None:
    """R13: a dead process holds nothing. R14: and it cancels nothing, so what was measured counts."""
    async with supervised_program(tmp_path, CONFIG, "--workers", str(workers)) as gateway, AsyncExitStack() as opened:
        small = [request("hang", stream=True)] * (STREAMS - 1)
        took_s = await kill_all(gateway, await begin(gateway, opened, [measured(), *small]))
        print(f"{workers} killed with {STREAMS} streams: all freed and served again after {took_s:.2f} s")  # noqa: T201 -- a figure to keep
        await kill_all(gateway, await begin(gateway, opened, [measured()]))
        async with connected(gateway.port) as (reader, writer):
            writer.write(measured())
            assert (await head_of(reader))[0] == 400, "two were measured, and both count"
