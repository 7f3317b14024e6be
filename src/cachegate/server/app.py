"""The routes, and the life of the server: open, serve, drain, close."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from aiohttp import web

from cachegate import __version__
from cachegate.config import Config
from cachegate.errors import ErrorKind, GatewayError
from cachegate.observe.diagnostics import Diagnostics
from cachegate.road import CallerLeft, CallerStalled, Gateway, reply
from cachegate.server.auth import Access
from cachegate.server.control import Control, host_of
from cachegate.server.exchange import Exchange, Lifecycle
from cachegate.server.inference import Inference, headers_of, refuse
from cachegate.wire.body import encode
from cachegate.wire.facts import Sender
from cachegate.wire.model_list import asker, model_list
from cachegate.wire.protocols import PATHS

HEADER_BYTES_MAX = 32_768
"""One header; Codex's turn metadata needs some kilobytes."""
HEADERS_MAX = 100
BACKLOG = 1_024
"""Connections that may wait to be taken, for example while a worker is being started."""
IDLE_CONNECTION_S = 75.0
GRACE_S = 3.0
"""A kept-alive connection that rests is closed after this time. Closed at once, requests would be lost on their way."""
_LOOK_S = 0.25
"""How often a retiring server looks for connections that rest."""

Handler = Callable[[web.BaseRequest, Exchange], Awaitable[None]]


@dataclass(slots=True)
class App:
    """The gateway as an HTTP server."""

    config: Config
    gateway: Gateway
    diagnostics: Diagnostics
    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    workers: int = 1
    """Processes that serve beside each other, this one included."""
    _runner: web.ServerRunner | None = None
    _sites: list[web.BaseSite] = field(default_factory=list)
    _control: Control | None = None

    @property
    def access(self) -> Access:
        """Who may ask."""
        config = self.config
        return Access(
            clients={client.name: client.key.get_secret_value() for client in config.clients},
            hosts=frozenset({*(name.lower() for name in config.allowed_hosts), config.address[0].lower()}),
            origins=frozenset(config.allowed_origins),
        )

    async def open(self, sockets: Sequence[socket.socket] = ()) -> tuple[str, int]:
        """Listen at the configured address, or on sockets that listen already, and return the address.

        Raises OSError when it is taken, ConfigError for `control.history`.
        """
        await self.gateway.store.open()
        if self.config.control.enabled:
            hosts = host_of(self.config, self.gateway, self.lifecycle)
            self._control = Control(hosts, self.access, self.lifecycle, self.config, self.workers)
        routes = Routes(self, self.access, self._control)
        server = web.Server(
            routes.handle,
            handler_cancellation=True,
            access_log=None,
            auto_decompress=False,
            max_line_size=HEADER_BYTES_MAX,
            max_field_size=HEADER_BYTES_MAX,
            max_headers=HEADERS_MAX,
            keepalive_timeout=IDLE_CONNECTION_S,
        )
        self._runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=1.0)
        await self._runner.setup()
        runner, (host, port) = self._runner, self.config.address
        own = () if sockets else (web.TCPSite(runner, host, port, backlog=BACKLOG),)
        self._sites = [*own, *(web.SockSite(runner, opened, backlog=BACKLOG) for opened in sockets)]
        for site in self._sites:
            await site.start()
        bound = self._runner.addresses[0]
        return str(bound[0]), int(bound[1])

    async def drain(self, drain_s: float, hurry: asyncio.Event) -> None:
        """Take no new connections and wait for running answers: for `drain_s` seconds, or until `hurry` is set."""
        self.lifecycle.stopping = True
        await self._stop_listening()
        hurried = asyncio.ensure_future(hurry.wait())
        try:
            async with asyncio.timeout(drain_s):
                while self.lifecycle.running and not hurry.is_set():
                    await asyncio.wait({hurried, *self.lifecycle.running}, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            return
        finally:
            hurried.cancel()

    async def retire(self, drain_s: float, stop: asyncio.Event) -> None:
        """Leave the new connections to others, and serve the old ones to their end.

        Each answer closes its connection. One that rests for `GRACE_S` is closed, and running answers have `drain_s`
        seconds, but no less than the grace, or until `stop` is set.
        """
        loop, lifecycle = asyncio.get_running_loop(), self.lifecycle
        lifecycle.retiring = True
        retired_s = loop.time()
        until_s = retired_s + max(drain_s, GRACE_S)
        await self._stop_listening()
        server = None if self._runner is None else self._runner.server
        while server is not None and server.connections and loop.time() < until_s and not stop.is_set():
            rested_before_s = loop.time() - GRACE_S
            for connection in server.connections:
                rested_s = lifecycle.rested_s.get(connection, retired_s)
                if connection not in lifecycle.busy and rested_s <= rested_before_s:
                    connection.force_close()
            if self._control is not None:
                await self._control.release()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _LOOK_S)

    async def _stop_listening(self) -> None:
        for site in self._sites:
            await site.stop()
        self._sites.clear()

    async def close(self) -> None:
        """End what still runs as a shutdown, and release every socket."""
        running = tuple(self.lifecycle.running)
        self.lifecycle.cut()
        if running:
            await asyncio.wait(running, timeout=self.config.limits.send_stall_seconds)
        if self._control is not None:
            await self._control.close()
        if self._runner is not None:
            await self._runner.cleanup()


class Routes:
    """From method and path to a handler; the match is exact, so no spelling of a path reaches anything by surprise."""

    def __init__(self, app: App, access: Access, control: Control | None) -> None:
        self._app = app
        self._access = access
        config = app.config
        self._inference = Inference(app.gateway, access, app.lifecycle, config.limits, config.auxiliary.model)
        self._posts: dict[str, Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]] = {
            **dict.fromkeys(PATHS, self._inference.serve),
            "/v1/auxiliary/classify": self._inference.classify,
        }
        self._control = control
        self._sockets: dict[str, Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]] = (
            {} if self._control is None else {"/control": self._control.serve}
        )
        self._gets: dict[str, Handler] = {
            "/": self._root,
            "/health": self._health,
            "/v1/models": self._models,
            "/diagnostics/recent": self._recent,
        }

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request of any kind."""
        lifecycle = self._app.lifecycle
        lifecycle.begin(request.protocol)
        try:
            return await self._answer(request)
        finally:
            lifecycle.rest(request.protocol)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        serve = self._posts.get(request.path) or self._sockets.get(request.path)
        if serve is not None and request.method != "HEAD":
            return await serve(request)
        exchange = Exchange(request, self._app.lifecycle, self._app.config.limits.send_stall_seconds)
        try:
            await self._dispatch(request, exchange)
        except GatewayError as error:
            await refuse(exchange, asker(Sender.of(tuple(request.headers.items()))), error)
        except (CallerLeft, CallerStalled):
            exchange.abort()
        return exchange.response

    async def _dispatch(self, request: web.BaseRequest, exchange: Exchange) -> None:
        if request.method == "HEAD":
            await exchange.begin(200, ())
            await exchange.end()
            return
        handler = self._gets.get(request.path)
        if handler is None:
            known = ", ".join((*self._posts, *self._sockets, *self._gets))
            raise GatewayError(f"There is nothing at {request.path[:200]!r}. Paths here: {known}.", ErrorKind.NOT_FOUND)
        if request.method != "GET":
            raise GatewayError(f"{request.path} takes GET only, not {request.method[:16]}.", ErrorKind.METHOD)
        await handler(request, exchange)

    async def _root(self, request: web.BaseRequest, exchange: Exchange) -> None:
        del request
        await reply(
            exchange,
            200,
            encode({"name": "cachegate", "version": __version__, "paths": [*self._posts, *self._sockets]}),
        )

    async def _health(self, request: web.BaseRequest, exchange: Exchange) -> None:
        del request
        lifecycle, state = self._app.lifecycle, self._app.gateway.store.condition()
        body = {
            "status": "draining" if lifecycle.stopping else "ok",
            "version": __version__,
            "inFlight": len(lifecycle.running),
            "state": {"kind": state.kind, "degraded": state.degraded, "failures": state.failures},
        }
        await reply(exchange, 503 if lifecycle.stopping else 200, encode(body))

    async def _models(self, request: web.BaseRequest, exchange: Exchange) -> None:
        _, headers = self._access.admit(headers_of(request))
        names = self._app.gateway.routes.names()
        await reply(exchange, 200, model_list(asker(Sender.of(headers)), names))

    async def _recent(self, request: web.BaseRequest, exchange: Exchange) -> None:
        self._access.admit_admin(headers_of(request), request.remote or "")
        await reply(exchange, 200, encode({"records": self._app.diagnostics.recent()}))
