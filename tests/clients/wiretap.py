"""A transparent wire between a client and the gateway that remembers what the client asked for.

The upstream cannot see the retries that the gateway stops, and a client does not always admit them.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

_REQUEST_LINE = re.compile(rb"([A-Z]+) (/[^ ?]*)[^ ]* HTTP/1\.1\r\n")
"""A request line may follow the last byte of a body directly; a body of JSON holds no raw line end that would fit."""

_CHUNK_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Wiretap:
    """`url` is the gateway as the client sees it."""

    url: str
    _sent: list[bytearray] = field(default_factory=list, repr=False)

    @property
    def requests(self) -> list[str]:
        """Every request the client sent, connection by connection."""
        lines = [match for sent in self._sent for match in _REQUEST_LINE.finditer(sent)]
        return [f"{line[1].decode()} {line[2].decode()}" for line in lines]


@asynccontextmanager
async def wiretap(gateway_url: str) -> AsyncIterator[Wiretap]:
    """Listen on a free port and pass every connection on to the gateway, byte for byte."""
    gateway = urlsplit(gateway_url)
    sent: list[bytearray] = []

    async def connect(from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        from_gateway, to_gateway = await asyncio.open_connection(gateway.hostname, gateway.port)
        asked, answered = bytearray(), bytearray()
        sent.append(asked)
        await asyncio.gather(_pass_on(from_client, to_gateway, asked), _pass_on(from_gateway, to_client, answered))

    server = await asyncio.start_server(connect, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield Wiretap(f"http://{host}:{port}", sent)


async def _pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter, copy: bytearray) -> None:
    with suppress(ConnectionError):
        while chunk := await source.read(_CHUNK_BYTES):
            copy += chunk
            target.write(chunk)
            await target.drain()
    target.close()
    with suppress(ConnectionError):
        await target.wait_closed()
