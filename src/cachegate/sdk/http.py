"""The one way to the gateway over HTTP: a POST goes out once, and its answer comes back piece by piece."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from yarl import URL

from cachegate.sdk.answer_stream import refusal
from cachegate.sdk.errors import BrokenAnswer, Closed, ProviderError, Unreachable

CONNECT_S = 10.0
"""Seconds to connect; a gateway that needs longer is not there."""
IDLE_S = 600.0
"""Seconds of silence after which an answer is given up: models think for minutes, and the gateway sends keep-alives."""
ERROR_BYTES_MAX = 1_048_576
"""Of an error's body, no more is read."""
_KEEP_ALIVE_S = 15.0
"""Shorter than the gateway keeps an idle connection: no request is sent into one that is just closing."""
_SLICE_BYTES = 262_144
"""A body is written in slices, so that a large one never holds the event loop for long."""
_ERRORS_FROM = 300
"""A redirect is no answer either: none is followed, so no credential goes where it was not sent."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where the gateway is, and who asks."""

    base_url: URL
    headers: Mapping[str, str] = field(repr=False)
    """Credentials included, which therefore are never shown."""
    connect_s: float = CONNECT_S
    idle_s: float = IDLE_S

    def __str__(self) -> str:
        return str(self.base_url)


def address(
    base_url: str,
    *,
    key: str | None = None,
    api_key: str | None = None,
    headers: Mapping[str, str] | None = None,
    connect_s: float = CONNECT_S,
    idle_s: float = IDLE_S,
) -> Address:
    """Return a checked address. Raises ValueError, which never shows a credential."""
    try:
        url = URL(base_url.rstrip("/"))
    except (ValueError, TypeError):
        raise ValueError("base_url is no URL. Give one such as http://127.0.0.1:4283.") from None
    if url.user is not None or url.password is not None:
        raise ValueError("base_url holds credentials. Give them as key or api_key.")
    if url.scheme not in {"http", "https"} or not url.host or url.query_string or url.fragment:
        raise ValueError(
            f"base_url is {base_url!r}. Give http:// or https:// and a host, such as http://127.0.0.1:4283."
        )
    if connect_s <= 0 or idle_s <= 0:
        raise ValueError(f"connect_s is {connect_s} and idle_s is {idle_s}. Give seconds above 0.")
    sent = {name.lower(): value for name, value in (headers or {}).items()}
    sent |= {} if key is None else {"x-cachegate-key": key}
    sent |= {} if api_key is None else {"authorization": f"Bearer {api_key}"}
    for name, value in sent.items():
        if not value.isprintable() or not value.isascii():
            raise ValueError(f"The value of the header {name!r} holds what no header can: use printable ASCII.")
    return Address(url, sent, connect_s, idle_s)


class Http:
    """Connections to one gateway."""

    def __init__(self, gateway: Address) -> None:
        self.gateway = gateway
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    @property
    def session(self) -> aiohttp.ClientSession:
        """The session; it can only be made inside the running loop. Raises Closed."""
        if self._closed:
            raise Closed("This client was closed. Open a new one.")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=self.gateway.connect_s, sock_read=self.gateway.idle_s
                ),
                trace_configs=[_no_redirects()],
            )
        return self._session

    async def close(self) -> None:
        """Close every connection; what still runs breaks off."""
        self._closed = True
        if self._session is not None:
            await self._session.close()

    @asynccontextmanager
    async def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> AsyncIterator["Received"]:
        """Send one request and give its answer; leaving closes the connection unless the answer was read to its end.

        Raises Unreachable, BrokenAnswer, and for an error status CacheStop, ContextFull or ProviderError.
        """
        sent = {**self.gateway.headers, "accept-encoding": "identity", "content-type": "application/json", **headers}
        url = self.gateway.base_url.joinpath(*path.strip("/").split("/"))
        try:
            response = await self.session.post(url, data=_Body(body), headers=sent, allow_redirects=False)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise Unreachable(
                f"The gateway at {self.gateway} cannot be reached ({_kind(error)}). Start it with `cachegate serve`, "
                "or give its address as base_url."
            ) from None
        except (aiohttp.ClientError, OSError) as error:
            raise BrokenAnswer(
                f"The gateway at {self.gateway} did not answer ({_kind(error)}). The request may have been processed."
            ) from None
        received = Received(response, str(self.gateway))
        try:
            if response.status >= _ERRORS_FROM:
                raise refusal(response.status, dict(response.headers), await received.some(ERROR_BYTES_MAX))
            yield received
        finally:
            response.close()


@dataclass(frozen=True, slots=True)
class Received:
    """An answer that is being received."""

    response: aiohttp.ClientResponse
    gateway: str

    @property
    def streamed(self) -> bool:
        """Whether it is a stream of events."""
        return self.response.content_type == "text/event-stream"

    async def piece(self) -> bytes:
        """Return what came next; nothing at the end. Raises BrokenAnswer."""
        try:
            return await self.response.content.readany()
        except TimeoutError:
            raise BrokenAnswer(f"The gateway at {self.gateway} fell silent in the middle of its answer.") from None
        except (aiohttp.ClientError, OSError) as error:
            raise BrokenAnswer(f"The gateway at {self.gateway} broke off its answer ({_kind(error)}).") from None

    async def some(self, bytes_max: int) -> bytes:
        """Return the body as far as it came, up to a limit; of an error, half is better than nothing."""
        parts: list[bytes] = []
        async for part in self._until_it_breaks():
            parts.append(part)
            if sum(map(len, parts)) >= bytes_max:
                break
        return b"".join(parts)[:bytes_max]

    async def _until_it_breaks(self) -> AsyncGenerator[bytes, None]:
        try:
            while part := await self.piece():
                yield part
        except BrokenAnswer:
            return


class _Body(aiohttp.Payload):
    """A body of bytes, written in slices and once."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._size = len(data)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the body as text."""
        return bytes(self._value).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write the body."""
        view = memoryview(self._value)
        for start in range(0, len(view), _SLICE_BYTES):
            await writer.write(view[start : start + _SLICE_BYTES])
        self._value = b""


def _no_redirects() -> aiohttp.TraceConfig:
    """Refuse redirects where the client library would follow them: on the way to a WebSocket."""

    async def refuse(
        session: aiohttp.ClientSession, context: SimpleNamespace, sent: aiohttp.TraceRequestRedirectParams
    ) -> None:
        del session, context
        raise ProviderError("The gateway redirects the control socket. Give its own address.", sent.response.status)

    config = aiohttp.TraceConfig()
    config.on_request_redirect.append(refuse)
    return config


def _kind(error: BaseException) -> str:
    """Name an error without its text, which may show more than the caller wants in a log."""
    return type(error).__name__
