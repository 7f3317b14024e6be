"""Raw clients of a gateway: no library that would retry, reconnect or forgive."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
ANSWER_S = 60.0
LARGE = "x" * 300_000
"""Input that makes a request count."""


def request(model: str, *, stream: bool, close: bool = False, said: str = "x", thread: str = "") -> bytes:
    """Return a Responses request as bytes. A model without a provider's name is one of `synthetic`."""
    model = model if "/" in model else f"synthetic/{model}"
    asked: dict[str, object] = {"model": model, "stream": stream, "input": said}
    if thread:
        asked["prompt_cache_key"] = thread
    body = json.dumps(asked).encode()
    head = "POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    head += f"content-length: {len(body)}\r\n" + ("connection: close\r\n" if close else "")
    return head.encode() + b"\r\n" + body


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Connection]:
    """Hold a connection of one's own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def head_of(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    """Read the head of an answer: its status and its headers."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
    return int(lines[0].split()[1]), headers


async def answer_of(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """Read one whole answer, however it is framed."""
    async with asyncio.timeout(ANSWER_S):
        status, headers = await head_of(reader)
        if "content-length" in headers:
            return status, headers, await reader.readexactly(int(headers["content-length"]))
        return status, headers, await _chunks(reader)


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    parts: list[bytes] = []
    while size := int(await reader.readuntil(b"\r\n"), 16):
        parts.append(await reader.readexactly(size))
        await reader.readexactly(2)
    await reader.readexactly(2)
    return b"".join(parts)


async def ask(port: int, model: str, *, stream: bool = False, said: str = "x", thread: str = "") -> tuple[int, bytes]:
    """Ask over a fresh connection; returns the status and the whole answer."""
    async with connected(port) as (reader, writer):
        writer.write(request(model, stream=stream, close=True, said=said, thread=thread))
        status, _, body = await answer_of(reader)
        return status, body
