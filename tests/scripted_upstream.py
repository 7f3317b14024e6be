"""A provider made of raw sockets: it records what arrives, byte for byte, and answers by script.

Raw on purpose: broken answers (cut, reset, garbage) and exact bytes cannot be had from a well-behaved HTTP server.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum


class Step(Enum):
    """What a script can do besides sending bytes."""

    HANG = "hang"
    """Wait until the gateway closes the connection."""
    CLOSE = "close"
    """Close cleanly, wherever the answer is."""
    RESET = "reset"
    """Reset the connection."""


Script = Sequence[bytes | Step]
HeldScript = Sequence[bytes | Step | asyncio.Event]
"""At an event the script waits until the test sets it."""


@dataclass(slots=True)
class Recorded:
    """One request as it arrived."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the gateway closes the connection while the answer hangs."""

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


class ScriptedUpstream:
    """See the module's first lines."""

    def __init__(self) -> None:
        self.requests: list[Recorded] = []
        self.connections = 0
        self.open_connections = 0
        self.answer: Callable[[Recorded], HeldScript] = lambda _: [whole(200, b"{}")]
        self.arrived = asyncio.Condition()
        self.url = ""

    async def count(self, number: int) -> list[Recorded]:
        """Wait until `number` requests have arrived."""
        async with self.arrived:
            await asyncio.wait_for(self.arrived.wait_for(lambda: len(self.requests) >= number), 10)
        return self.requests

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open_connections += 1
        try:
            while await self._one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open_connections -= 1
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ", 2)
        headers = [(line.split(":", 1)[0], line.split(":", 1)[1].strip()) for line in head[1:] if line]
        length = next((int(value) for name, value in headers if name.lower() == "content-length"), 0)
        recorded = Recorded(method, target, headers, await reader.readexactly(length))
        async with self.arrived:
            self.requests.append(recorded)
            self.arrived.notify_all()
        for step in self.answer(recorded):
            match step:
                case bytes():
                    writer.write(step)
                    await writer.drain()
                case asyncio.Event():
                    await step.wait()
                case Step.HANG:
                    await reader.read(1)
                    recorded.closed.set()
                    return False
                case Step.CLOSE:
                    return False
                case Step.RESET:
                    writer.transport.abort()
                    return False
        return True


@asynccontextmanager
async def scripted_upstream() -> AsyncIterator[ScriptedUpstream]:
    """Run a scripted provider on a free port of this machine."""
    upstream = ScriptedUpstream()
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0, limit=1 << 27)
    upstream.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield upstream
    finally:
        server.close()


def whole(status: int, body: bytes, *headers: str, content_type: str = "application/json") -> bytes:
    """A complete answer with a length."""
    lines = (f"HTTP/1.1 {status} X", f"content-type: {content_type}", f"content-length: {len(body)}", *headers)
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def stream_head(*headers: str) -> bytes:
    """The head of a chunked event stream."""
    lines = ("HTTP/1.1 200 OK", "content-type: text/event-stream", "transfer-encoding: chunked", *headers)
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body; an empty one ends it."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def stream(data: bytes, *headers: str) -> list[bytes | Step]:
    """A complete event stream in one chunk."""
    return [stream_head(*headers), chunk(data), chunk(b"")]
