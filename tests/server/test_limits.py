"""Bodies within limits of size and time; the bombs are checked where they would hurt."""

import asyncio
import sys
import tracemalloc
import zlib

import pytest

from cachegate.errors import BadInput
from cachegate.server.limits import decode_body
from running_gateway import config_for, running_gateway
from scripted_upstream import ScriptedUpstream

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MIB = 1_048_576


def gzip_bomb(size: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    return b"".join([*(packer.compress(bytes(MIB)) for _ in range(size // MIB)), packer.flush()])


def zstd_bomb(size: int) -> bytes:
    return zstd.compress(bytes(size), 3)


@pytest.mark.parametrize(("encoding", "bomb"), [("gzip", gzip_bomb), ("zstd", zstd_bomb)])
async def test_a_bomb_is_a_413_and_takes_no_memory(encoding: str, bomb: object) -> None:
    data = bomb(256 * MIB)  # type: ignore[operator]
    assert len(data) < MIB
    tracemalloc.start()
    try:
        with pytest.raises(BadInput) as caught:
            await decode_body(data, encoding, 2 * MIB)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.status == 413
    assert peak < 8 * MIB


@pytest.mark.parametrize("size", [0, 1, 65_536, 65_537, 1_000_000])
async def test_what_was_compressed_comes_back(size: int) -> None:
    plain = bytes(number % 251 for number in range(size))
    packer = zlib.compressobj(6, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    packed = packer.compress(plain) + packer.flush()
    assert await decode_body(packed, "gzip", MIB) == plain
    assert await decode_body(packed, " GZIP ", MIB) == plain
    assert await decode_body(zstd.compress(plain), "zstd", MIB) == plain
    assert await decode_body(plain, "identity", MIB) == plain


async def test_a_zstd_window_that_would_eat_memory_is_refused() -> None:
    options: dict[int, int] = {zstd.CompressionParameter.window_log: 27, zstd.CompressionParameter.compression_level: 1}
    packer = zstd.ZstdCompressor(options=options)
    packed = packer.compress(bytes(MIB)) + packer.flush()
    with pytest.raises(BadInput, match="no valid zstd"):
        await decode_body(packed, "zstd", 2 * MIB)


async def test_a_body_that_trickles_is_given_up(upstream: ScriptedUpstream) -> None:
    async with running_gateway(config_for(upstream.url, limits={"bodySeconds": 0.1})) as gateway:
        host, port = gateway.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n{")
        answer = await asyncio.wait_for(reader.read(4096), 10)
        writer.close()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"did not arrive in time" in answer
