"""Reading a request body within its limits: bytes on the wire, bytes once decoded, and time."""

import asyncio
import sys
import zlib
from collections.abc import Callable

from aiohttp import StreamReader

from cachegate.errors import BadInput, ErrorKind

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

BYTES_PER_S_MIN = 65_536
"""A client that sends slower than this, beyond the base time, is holding a connection and not sending a request."""
_OFF_LOOP_BYTES = 262_144
"""Decoding more than this would hold the event loop for milliseconds."""
_STEP_BYTES = 65_536
_WINDOW_LOG_MAX = 23
"""8 MiB: what RFC 9659 asks of every decoder on the web; more is an attack on memory."""


async def read_body(content: StreamReader, body_bytes_max: int, body_s: float) -> bytes:
    """Return the body as sent. Raises BadInput: 413 beyond the limit, 400 for one that only trickles in."""
    if content.is_eof() and content.total_bytes <= body_bytes_max:
        return content.read_nowait(-1)
    parts: list[bytes] = []
    size = 0
    started_s = asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout(body_s) as deadline:
            while part := await content.readany():
                size += len(part)
                if size > body_bytes_max:
                    raise _too_large(body_bytes_max)
                parts.append(part)
                deadline.reschedule(started_s + body_s + size / BYTES_PER_S_MIN)
    except TimeoutError:
        raise BadInput(f"The request body did not arrive in time ({size} bytes came). Send it again.") from None
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def decode_body(body: bytes, encoding: str, body_bytes_max: int) -> bytes:
    """Return the decoded body. Raises BadInput: 415 for an unknown encoding, 400 for a broken one, 413 for a bomb."""
    name = encoding.strip().lower()
    if name in {"", "identity"}:
        return body
    if name not in _DECODERS:
        known = ", ".join(_DECODERS)
        raise BadInput(
            f"content-encoding: {encoding[:40]!r} is not supported. Send the body plain, or as one of: {known}.",
            ErrorKind.ENCODING,
        )
    decoder = _DECODERS[name]
    if len(body) < _OFF_LOOP_BYTES:
        return decoder(body, body_bytes_max)
    return await asyncio.to_thread(decoder, body, body_bytes_max)


def _gunzip(body: bytes, bytes_max: int) -> bytes:
    decoder = zlib.decompressobj(zlib.MAX_WBITS | 16)
    parts: list[bytes] = []
    size = 0
    data = body
    try:
        while data and not decoder.eof:
            part = decoder.decompress(data, _STEP_BYTES)
            size += len(part)
            if size > bytes_max:
                raise _too_large(bytes_max)
            parts.append(part)
            data = decoder.unconsumed_tail
            if not part and not data:
                break
    except zlib.error as error:
        raise _broken("gzip", str(error)) from None
    if not decoder.eof or decoder.unused_data:
        raise _broken("gzip", "it is cut short, or something follows it")
    return b"".join(parts)


def _unzstd(body: bytes, bytes_max: int) -> bytes:
    decoder = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _WINDOW_LOG_MAX})
    parts: list[bytes] = []
    size = 0
    data = body
    try:
        while not decoder.eof:
            part = decoder.decompress(data, _STEP_BYTES)
            data = b""
            size += len(part)
            if size > bytes_max:
                raise _too_large(bytes_max)
            parts.append(part)
            if decoder.needs_input:
                break
    except zstd.ZstdError as error:
        raise _broken("zstd", str(error)) from None
    if not decoder.eof or decoder.unused_data:
        raise _broken("zstd", "it is cut short, or something follows it")
    return b"".join(parts)


_DECODERS: dict[str, Callable[[bytes, int], bytes]] = {"gzip": _gunzip, "zstd": _unzstd}


def _too_large(bytes_max: int) -> BadInput:
    return BadInput(
        f"The request body is larger than {bytes_max} bytes. Send a smaller one, or raise limits.bodyBytesMax.",
        ErrorKind.TOO_LARGE,
    )


def _broken(name: str, why: str) -> BadInput:
    return BadInput(f"The request body is no valid {name}: {why}.")
