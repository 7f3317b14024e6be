"""Ambiguous HTTP never reaches a provider, and no second request hides in a first one."""

import asyncio
import re

import pytest

from running_gateway import RunningGateway
from scripted_upstream import ScriptedUpstream

HIDDEN = b"GET /diagnostics/recent HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n"

REFUSED = {
    "length and chunked": POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "two lengths": POST + b"Content-Length: 0\r\nContent-Length: 34\r\n\r\n" + HIDDEN,
    "a list of lengths": POST + b"Content-Length: 0, 0\r\n\r\n",
    "a signed length": POST + b"Content-Length: +5\r\n\r\nhello",
    "a hexadecimal length": POST + b"Content-Length: 0x5\r\n\r\nhello",
    "a length with underscore": POST + b"Content-Length: 1_0\r\n\r\n0123456789",
    "unknown transfer coding": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunked is not last": POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "vertical tab": POST + b"Transfer-Encoding:\x0bchunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "space before the colon": POST + b"Transfer-Encoding : chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "a folded header": POST + b"X-A: b\r\n folded\r\nContent-Length: 0\r\n\r\n",
    "bare line feeds": (POST + b"Content-Length: 0\r\n\r\n").replace(b"\r\n", b"\n"),
    "bare carriage return": POST + b"X-A: b\rTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n",
    "a NUL": POST + b"X-A: b\x00c\r\nContent-Length: 0\r\n\r\n",
    "no end of a chunk": CHUNKED + b"\r\n5\r\nhelloXX0\r\n\r\n",
    "an endless chunk size": CHUNKED + b"\r\nfffffffffffffffff1\r\nA\r\n0\r\n\r\n",
    "an underscore in a chunk size": CHUNKED + b"\r\n0_5\r\nhello\r\n0\r\n\r\n",
    "a negative chunk size": CHUNKED + b"\r\n-1\r\nhello\r\n0\r\n\r\n",
    "a line feed in a chunk extension": CHUNKED + b"\r\n0;a\n" + HIDDEN,
    "no Host": b"POST /v1/messages HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
    "two Hosts": POST + b"Host: localhost\r\nContent-Length: 0\r\n\r\n",
    "another machine's Host": b"POST /v1/messages HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 2\r\n\r\n{}",
    "a header of 64 KiB": POST + b"X-A: " + b"a" * 65_600 + b"\r\nContent-Length: 0\r\n\r\n",
    "1000 headers": POST + b"".join(b"X-%d: a\r\n" % number for number in range(1000)) + b"Content-Length: 0\r\n\r\n",
    "a space in the method": b"PO ST /v1/messages HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


async def exchange(gateway: RunningGateway, raw: bytes) -> bytes:
    """Send raw bytes and return everything until the gateway closes or goes quiet."""
    host, port = gateway.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(raw)
    got = b""
    try:
        async with asyncio.timeout(0.5):
            while part := await reader.read(65_536):
                got += part
    except (TimeoutError, ConnectionError):
        pass
    writer.close()
    return got


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", REFUSED)
async def test_an_ambiguous_request_is_refused_once_and_reaches_nobody(
    gateway: RunningGateway, upstream: ScriptedUpstream, name: str
) -> None:
    answer = await exchange(gateway, REFUSED[name])
    statuses = [int(code) for code in re.findall(rb"HTTP/1\.[01] (\d{3})", answer)]
    assert all(400 <= status < 500 for status in statuses), statuses
    assert len(statuses) <= 1, "a hidden request was answered"
    assert b"records" not in answer
    assert upstream.connections == 0


INFERENCE = (
    b"/v1/messages", b"/v1/messages/count_tokens", b"/v1/responses", b"/v1/responses/compact", b"/v1/chat/completions",
    b"/v1/auxiliary/classify",
)  # fmt: skip
UPGRADES = {
    "in the usual words": b"Connection: Upgrade\r\nUpgrade: websocket\r\n",
    "in odd casing": b"cOnNeCtIoN: uPgRaDe\r\nuPgRaDe: WebSocket\r\n",
    "to HTTP/2": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
    "to one of two": b"Connection: Upgrade\r\nUpgrade: websocket, h2c\r\n",
    "in split headers": b"Connection: keep-alive\r\nUpgrade: h2c\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n",
    "without saying so to the hop": b"Upgrade: websocket\r\n",
}
SOCKET = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"


@pytest.mark.parametrize("how", UPGRADES)
@pytest.mark.parametrize("path", INFERENCE)
@pytest.mark.parametrize("sent", [b"GET", b"POST"])
async def test_a_raw_upgrade_is_a_426_and_no_other_status_r3(
    gateway: RunningGateway, upstream: ScriptedUpstream, path: bytes, how: str, sent: bytes
) -> None:
    body = b"Content-Length: 2\r\n\r\n{}" if sent == b"POST" else b"\r\n"
    answer = await exchange(
        gateway, b"%b %b HTTP/1.1\r\nHost: localhost\r\n" % (sent, path) + UPGRADES[how] + SOCKET + body
    )
    assert re.findall(rb"HTTP/1\.1 (\d{3})", answer) == [b"426"]
    assert upstream.connections == 0


async def test_http2_without_asking_is_refused(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    answer = await exchange(gateway, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
    assert not re.search(rb"HTTP/\S+ [123]", answer)
    assert upstream.connections == 0


async def test_the_gateway_still_serves_afterwards(gateway: RunningGateway) -> None:
    for raw in list(REFUSED.values())[:5]:
        await exchange(gateway, raw)
    async with gateway.client.get(f"{gateway.url}/health") as response:
        assert response.status == 200
