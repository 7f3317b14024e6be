"""The only way from a `claude` process to the provider: it lets one model call through for each request of a caller.

The program calls the model again where a model stops at its limit, says nothing, or breaks off, and no switch turns all
of that off. To end the process in time is a race; a door is none. What passes is passed as it is, and only its status
is looked at: the provider's own words for a failure say more than what the program makes of them.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import aiohttp
from aiohttp import web

from cachegate.errors import ErrorKind, UpstreamError
from cachegate.wire.messages.errors import error_body

ANTHROPIC = "https://api.anthropic.com"
_BODY_BYTES_MAX = 67_108_864
_FAILURE_BYTES_MAX = 65_536
_FIRST_FAILURE = 400
_PATH = "v1/messages"
_HOP_BY_HOP = frozenset(
    {"connection", "content-length", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}
)
_NOT_ASKED = _HOP_BY_HOP | {"accept-encoding"}
"""What a request leaves behind; answers are asked for as they are, because a failure is read here."""
_REFUSED = "Cachegate lets one model call through for each request."


@dataclass(frozen=True, slots=True)
class Permit:
    """Permission for one model call, and what is to be told of it."""

    on_sent: Callable[[], None]
    """It leaves."""
    on_failure: Callable[[int, bytes, str], None]
    """The provider answered with an error: status, body, and `retry-after` or ""."""


class Gate:
    """A small server on this machine; every session has a secret path of its own."""

    def __init__(self, upstream: str, connect_s: float = 10.0) -> None:
        self._upstream = upstream.rstrip("/").removesuffix("/v1")
        self._connect_s = connect_s
        self._permits: dict[str, Permit] = {}
        self._http: aiohttp.ClientSession | None = None
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen. Raises UpstreamError when no port is to be had."""
        app = web.Application(client_max_size=_BODY_BYTES_MAX)
        app.router.add_route("*", "/{key}/{path:.*}", self._serve)
        # Without handler_cancellation a handler would never learn that the program has hung up.
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        except OSError as error:
            raise UpstreamError(f"No port of this machine is free for Claude Code ({type(error).__name__}).") from error
        self._http = aiohttp.ClientSession(
            auto_decompress=False,
            trust_env=True,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_s),
        )

    async def stop(self) -> None:
        """Hang up on everybody."""
        if self._runner is not None:
            await self._runner.cleanup()
        if self._http is not None:
            await self._http.close()

    def url(self, key: str) -> str:
        """Return the base address for a session."""
        assert self._runner is not None  # noqa: S101 -- nobody asks before it listens
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}/{key}"

    def allow(self, key: str, permit: Permit) -> None:
        """Permit a session one model call."""
        self._permits[key] = permit

    def close(self, key: str) -> None:
        """Permit a session none."""
        self._permits.pop(key, None)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if request.method != "POST" or request.match_info["path"] != _PATH:
            return _answer(404, ErrorKind.NOT_FOUND, "There is nothing here but the model.")
        body = await request.read()
        permit = self._permits.pop(request.match_info["key"], None)
        if permit is None:
            return _answer(400, ErrorKind.INVALID, _REFUSED)
        permit.on_sent()
        try:
            return await self._pass_on(request, body, permit)
        except (aiohttp.ClientError, OSError) as error:
            words = f"Anthropic's address could not be reached ({type(error).__name__}). Please send the request again."
            permit.on_failure(502, error_body(ErrorKind.UPSTREAM, words, ""), "")
            return _answer(502, ErrorKind.UPSTREAM, words)

    async def _pass_on(self, request: web.Request, body: bytes, permit: Permit) -> web.StreamResponse:
        assert self._http is not None  # noqa: S101 -- it serves only once it is started
        url = f"{self._upstream}/{_PATH}" + (f"?{request.query_string}" if request.query_string else "")
        headers = [(name, value) for name, value in request.headers.items() if name.lower() not in _NOT_ASKED]
        headers.append(("accept-encoding", "identity"))
        async with self._http.post(url, data=body, headers=headers, allow_redirects=False) as upstream:
            if upstream.status >= _FIRST_FAILURE:
                return await _failed(upstream, permit)
            response = web.StreamResponse(status=upstream.status)
            for name, value in upstream.headers.items():
                if name.lower() not in _HOP_BY_HOP:
                    response.headers.add(name, value)
            await response.prepare(request)
            try:
                async for data in upstream.content.iter_any():
                    await response.write(data)
            except (aiohttp.ClientError, OSError):
                # A stream that breaks must not look as if it had ended.
                if request.transport is not None:
                    request.transport.abort()
                return response
            with suppress(ConnectionResetError):
                await response.write_eof()
            return response


async def _failed(upstream: aiohttp.ClientResponse, permit: Permit) -> web.Response:
    said = await upstream.content.read(_FAILURE_BYTES_MAX)
    wait = upstream.headers.get("retry-after", "")
    permit.on_failure(upstream.status, said, wait)
    # What follows is for the program alone. It must not wait and try again: the caller decides that.
    return web.Response(status=upstream.status, body=said, content_type="application/json")


def _answer(status: int, kind: ErrorKind, words: str) -> web.Response:
    return web.Response(status=status, body=error_body(kind, words, ""), content_type="application/json")
