"""The one HTTP upstream: a request goes up as it came, the answer comes down as it is, and is read on the side."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass

import aiohttp
from aiohttp.abc import AbstractResolver, AbstractStreamWriter, ResolveResult
from yarl import URL

from cachegate.errors import ErrorKind, UpstreamError, UpstreamTimeout
from cachegate.providers.address import is_loopback
from cachegate.providers.base import Call, Head, Piece
from cachegate.providers.estimates import estimated
from cachegate.providers.headers import CONTEXT_FULL_HEADER, Headers
from cachegate.providers.passage import Passage, Terms, passage
from cachegate.wire.codecs import CODECS
from cachegate.wire.facts import Operation, Protocol
from cachegate.wire.overflows import CODE
from cachegate.wire.seen import Failed, Seen
from cachegate.wire.sse import EventTooLong, SseReader

_SLICE_BYTES = 262_144
"""A body is written in slices of this size, so that a large one never holds the event loop for long."""
_CONNECTIONS_IDLE_S = 15.0
"""Shorter than any provider keeps an idle connection: a request is never sent into one that is just closing."""


@dataclass(frozen=True, slots=True)
class UpstreamLimits:
    """What an upstream may take."""

    connect_s: float = 10.0
    idle_s: float = 600.0
    """Silence before a request is given up: the official SDKs' own default."""
    keepalive_s: float = 25.0
    """Silence on a stream after which the client gets a frame that says nothing."""
    body_bytes_max: int = 67_108_864
    """An unstreamed answer is held back whole, so that a broken one is never passed on as complete."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """One configured HTTP provider."""

    terms: Terms
    base_url: URL
    pinned: tuple[str, ...] = ()
    """The only addresses to connect to, for a self-hosted provider (R11)."""
    limits: UpstreamLimits = UpstreamLimits()


class HttpProvider:
    """Relays to one upstream in the protocol that client and upstream share."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._session: aiohttp.ClientSession | None = None

    def speaks(self, protocol: Protocol, operation: Operation) -> bool:
        """See `Provider.speaks`: what it does not speak is translated, or counted here."""
        del operation
        return protocol in CODECS

    def models(self) -> tuple[str, ...]:
        """Nothing to list: which models a provider serves depends on the caller's account."""
        return ()

    async def stream(self, call: Call) -> AsyncGenerator[Head | Piece, None]:
        """See `Provider.stream`."""
        terms, request = self._upstream.terms, call.request
        if request.operation is Operation.COUNT_TOKENS and not terms.relays(request):
            head, count = estimated(request)
            yield head
            yield count
            return
        way = passage(call, terms)
        response = await self._begin(call, way)
        try:
            if response.ok and response.content_type == "text/event-stream":  # some keep the type for a plain error
                headers = way.head(tuple(response.headers.items()), streamed=True)
                yield Head(response.status, headers, way.fail)
                async with aclosing(self._events(response, way)) as pieces:
                    async for piece in pieces:
                        yield piece
            else:
                raw = await self._whole(response)
                seen = way.reader.read_body(response.status, raw)
                if Failed("not_json") in seen and response.ok and request.operation.guarded:
                    raise UpstreamError(_broken(self._host, "sent an answer that is no JSON"))
                status, body = way.answer(response.status, raw)
                headers = way.head(tuple(response.headers.items()), streamed=False)
                yield Head(status, (*headers, *_told(seen), ("content-length", str(len(body)))))
                yield Piece(body, seen)
        finally:
            # At its end a response is released already; before it, closing stops the upstream's work.
            response.close()

    async def close(self) -> None:
        """See `Provider.close`."""
        if self._session is not None:
            await self._session.close()

    @property
    def _host(self) -> str:
        return self._upstream.base_url.host or ""

    async def _begin(self, call: Call, way: Passage) -> aiohttp.ClientResponse:
        """Send the request and wait for the answer's head."""
        upstream = self._upstream
        way.headers["accept-encoding"] = "identity"
        try:
            async with asyncio.timeout(upstream.limits.idle_s):
                return await self._opened().post(
                    _url(upstream.base_url, way.path, call.request.query),
                    data=_Body(way.body, call.on_sent),
                    headers=way.headers,
                    allow_redirects=False,
                    skip_auto_headers=("User-Agent", "Accept", "Content-Type"),
                )
        except aiohttp.ClientError as error:
            raise UpstreamError(_broken(self._host, f"could not be reached ({type(error).__name__})")) from error
        except TimeoutError:
            words = f"{self._host} did not begin to answer within {upstream.limits.idle_s:g} s. Please try again."
            raise UpstreamTimeout(words) from None
        except OSError as error:
            raise UpstreamError(_broken(self._host, f"could not be reached ({type(error).__name__})")) from error

    async def _events(self, response: aiohttp.ClientResponse, way: Passage) -> AsyncGenerator[Piece, None]:
        """Pass a stream on in whole events. The protocol's terminal event ends it well; an end of file does not."""
        frames, reader, limits = SseReader(), way.reader, self._upstream.limits
        silent_s = 0.0
        while True:
            try:
                async with asyncio.timeout(limits.keepalive_s):
                    data = await response.content.readany()
                if not data:
                    break
                whole, events = frames.feed(data)
            except TimeoutError:
                silent_s += limits.keepalive_s
                if silent_s >= limits.idle_s and not way.over:
                    words = f"{self._host} sent nothing for {silent_s:g} s."
                    yield Piece(way.fail(ErrorKind.TIMEOUT, words), (Failed("idle", timed_out=True),))
                    return
                yield Piece(way.keepalive)
                continue
            except (aiohttp.ClientError, OSError, EventTooLong) as error:
                if not way.over:
                    words = _broken(self._host, f"broke off its answer ({type(error).__name__})")
                    yield Piece(way.fail(ErrorKind.UPSTREAM, words), (Failed("broken"),))
                return
            silent_s = 0.0
            seen = tuple(item for event in events for item in reader.read(event))
            if whole:
                yield Piece(way.forward(whole, events), seen)
        yield Piece(way.end(frames.rest()))
        if not way.over:
            words = _broken(self._host, "ended its answer without the closing event")
            yield Piece(way.fail(ErrorKind.UPSTREAM, words), (Failed("cut"),))

    async def _whole(self, response: aiohttp.ClientResponse) -> bytes:
        """Read an unstreamed answer to its end."""
        limits = self._upstream.limits
        parts: list[bytes] = []
        size = 0
        try:
            while True:
                async with asyncio.timeout(limits.idle_s):
                    part = await response.content.readany()
                if not part:
                    return b"".join(parts)
                parts.append(part)
                size += len(part)
                if size > limits.body_bytes_max:
                    raise UpstreamError(_broken(self._host, f"sent more than {limits.body_bytes_max} bytes"))
        except TimeoutError:
            raise UpstreamTimeout(f"{self._host} stopped in the middle of its answer. Please try again.") from None
        except (aiohttp.ClientError, OSError) as error:
            raise UpstreamError(_broken(self._host, f"broke off its answer ({type(error).__name__})")) from error

    def _opened(self) -> aiohttp.ClientSession:
        """Return the session; it can only be made inside the running loop."""
        if self._session is None:
            upstream = self._upstream
            resolver = _Pinned(upstream.pinned) if upstream.pinned else None
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_CONNECTIONS_IDLE_S, resolver=resolver),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=upstream.limits.connect_s),
                # A company's proxy is the way out to a provider, never the way to one's own machine.
                trust_env=not upstream.pinned and not is_loopback(self._host),
                max_field_size=65_536,
                max_line_size=65_536,
            )
        return self._session


class _Pinned(AbstractResolver):
    """Resolves any name to the addresses that were checked at start, so that a name cannot move away later."""

    def __init__(self, addresses: tuple[str, ...]) -> None:
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the pinned addresses, whatever the family asked for."""
        del family
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self._addresses
        ]

    async def close(self) -> None:
        """Nothing to release."""


class _Body(aiohttp.Payload):
    """A body of bytes that says when its first byte leaves."""

    def __init__(self, data: bytes, on_sent: Callable[[], None]) -> None:
        super().__init__(data)
        self._size = len(data)
        self._on_sent = on_sent

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the body as text."""
        return bytes(self._value).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write the body in slices."""
        self._on_sent()
        view = memoryview(self._value)
        for start in range(0, len(view), _SLICE_BYTES):
            await writer.write(view[start : start + _SLICE_BYTES])
        # Nothing is ever sent twice, and the answer's stream, which holds on to this, may stay open for an hour.
        self._value = b""


def _url(base: URL, path: str, query: str) -> URL:
    """Join base and path; people write an Anthropic base with or without its /v1."""
    root = str(base).rstrip("/")
    if root.endswith("/v1") and path.startswith("/v1/"):
        root = root.removesuffix("/v1")
    return URL(f"{root}{path}?{query}" if query else f"{root}{path}", encoded=True)


def _told(seen: tuple[Seen, ...]) -> Headers:
    """Say in a header what the body may say in words that only this provider uses; the body stays as it is."""
    return ((CONTEXT_FULL_HEADER, "true"),) if Failed(CODE) in seen else ()


def _broken(host: str, what: str) -> str:
    return f"The provider at {host} {what}. The request was not repeated; please send it again."
