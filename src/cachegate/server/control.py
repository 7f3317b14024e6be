"""The control socket: WebSocket frames in, WebSocket frames out. What they mean is `control/`'s business.

Nothing waits for a client that reads slowly: its frames queue up to a limit, then it is let go, and comes back with its
last cursor. Its own requests are read only while there is room for their answers.
"""

import asyncio
import contextlib
import sqlite3
from collections import deque
from pathlib import Path

from aiohttp import WSMsgType, web

from cachegate.config import Config
from cachegate.control.history import History
from cachegate.control.host import Host, HostLimits
from cachegate.control.session import Session
from cachegate.control.turn_request import passed_up
from cachegate.errors import BadInput, ConfigError, ErrorKind, GatewayError, Unavailable
from cachegate.observe.log import LOGGER
from cachegate.providers.headers import Headers
from cachegate.road import CallerLeft, CallerStalled, Gateway, reply
from cachegate.server.auth import Access
from cachegate.server.exchange import Exchange, Lifecycle
from cachegate.server.inference import headers_of, refuse
from cachegate.wire.facts import Protocol, Sender
from cachegate.wire.model_list import asker
from cachegate.wire.protocols import DIALECTS

QUEUE_BYTES_MAX = 33_554_432
"""Frames that may wait for a client: several times what the log of a thread holds, so that a resume fits."""
QUEUE_FRAMES_MAX = 65_536
"""As above, for many small ones."""
PING_S = 20.0
"""Between pings in silence; a client that leaves one unanswered for half as long is gone."""
CLOSE_S = 5.0
"""Time for a client to take its leave."""
TOO_SLOW = 4008
"""Close code: the client reads too slowly."""
GOING_AWAY, UNSUPPORTED, INTERNAL = 1001, 1003, 1011
"""Close codes of the WebSocket protocol."""
_NO_UPGRADE = 426


class Connection:
    """One client's queue; implements `control.tool_calls.Listener`."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        self.too_slow = asyncio.Event()
        self._socket = socket
        self._frames: deque[bytes] = deque()
        self._bytes = 0
        self._filled, self._room, self._empty = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._room.set()
        self._empty.set()

    def tell(self, frame: bytes) -> None:
        """See `Listener.tell`. An empty queue takes any frame, however large it is."""
        if self.too_slow.is_set():
            return
        if self._frames and (self._bytes + len(frame) > QUEUE_BYTES_MAX or len(self._frames) >= QUEUE_FRAMES_MAX):
            self.too_slow.set()
            return
        self._frames.append(frame)
        self._bytes += len(frame)
        self._filled.set()
        self._empty.clear()
        if self._bytes > QUEUE_BYTES_MAX // 2:
            self._room.clear()

    async def overflow(self) -> None:
        """Wait until the client turns out to read too slowly."""
        await self.too_slow.wait()

    async def room(self) -> None:
        """Wait until there is room for an answer."""
        await self._room.wait()

    async def write(self) -> None:
        """Write what is queued, for ever. Raises ConnectionError when the client is gone."""
        while True:
            await self._filled.wait()
            while self._frames:
                frame = self._frames.popleft()
                await self._socket.send_frame(frame, WSMsgType.TEXT)
                self._bytes -= len(frame)
            self._filled.clear()
            self._room.set()
            self._empty.set()

    async def close(self, code: int, words: str, *, flush: bool = False) -> None:
        """Take leave, after everything queued is written if `flush`; a client that does not is cut off."""
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(CLOSE_S):
                if flush:
                    await self._empty.wait()
                await self._socket.close(code=code, message=words.encode())


class Control:
    """Serves `/control`."""

    def __init__(self, host: Host, access: Access, lifecycle: Lifecycle, config: Config, workers: int = 1) -> None:
        self._workers = workers
        self._host = host
        self._access = access
        self._lifecycle = lifecycle
        self._config = config
        self._connections: set[Connection] = set()

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request on the path: with an upgrade, or with why there is none."""
        exchange = Exchange(request, self._lifecycle, self._config.limits.send_stall_seconds)
        try:
            tenant, headers = self._access.admit(headers_of(request))
            if request.method != "GET" or request.headers.get("upgrade", "").strip().lower() != "websocket":
                await _ask_for_upgrade(exchange)
                return exchange.response
            self._check_open(request)
            return await self._talk(request, tenant, headers)
        except GatewayError as error:
            await refuse(exchange, asker(Sender.of(tuple(request.headers.items()))), error)
        except (CallerLeft, CallerStalled):
            exchange.abort()
        return exchange.response

    async def release(self) -> None:
        """Let the clients go that another process can serve on: this one is retiring."""
        words = "The gateway was upgraded. Connect again."
        spared = [each for each in self._connections if await self._host.spares(each)]
        await asyncio.gather(*(each.close(GOING_AWAY, words, flush=True) for each in spared))

    async def close(self) -> None:
        """Let every client go, and close what the host keeps open."""
        words = "The gateway is shutting down."
        await asyncio.gather(*(each.close(GOING_AWAY, words, flush=True) for each in self._connections))
        await self._host.close()

    def _check_open(self, request: web.BaseRequest) -> None:
        """Raise GatewayError for an upgrade that cannot be made just now, or not at all."""
        if self._workers > 1:
            words = f"Hosted chats live in one process, and this gateway serves with {self._workers}."
            raise Unavailable(f"{words} Start it with --workers 1.")
        if self._lifecycle.stopping:
            raise Unavailable("The gateway is shutting down. Connect again in a moment.")
        if len(self._connections) >= self._config.control.connections_max:
            most = self._config.control.connections_max
            raise Unavailable(f"{most} clients are connected already. Close one, or raise control.connectionsMax.")
        if "sec-websocket-protocol" in request.headers:
            raise BadInput("sec-websocket-protocol: this socket has no subprotocols. Leave the header out.")

    async def _talk(self, request: web.BaseRequest, tenant: str, headers: Headers) -> web.StreamResponse:
        """Serve one client until it leaves."""
        config = self._config.control
        socket = web.WebSocketResponse(
            heartbeat=PING_S, max_msg_size=config.message_bytes_max, compress=False, timeout=CLOSE_S
        )
        connection = Connection(socket)
        limits = {"messageBytesMax": config.message_bytes_max, "toolSeconds": config.tool_seconds}
        session = Session(self._host, tenant, passed_up(headers), connection, limits)
        self._connections.add(connection)
        try:
            await _prepare(socket, request)
            await self._exchange(socket, connection, session)
        finally:
            self._connections.discard(connection)
            session.close()
        return socket

    async def _exchange(self, socket: web.WebSocketResponse, connection: Connection, session: Session) -> None:
        reading = asyncio.ensure_future(_read(socket, connection, session))
        writing = asyncio.ensure_future(connection.write())
        slow = asyncio.ensure_future(connection.overflow())
        tasks = {reading, writing, slow}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            failed = _failure_of(reading)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if connection.too_slow.is_set():
            await connection.close(TOO_SLOW, "too slow; resume with your last cursor")
        elif failed is not None:
            LOGGER.error("a control client's frame failed inside the gateway", exc_info=failed)
            await connection.close(INTERNAL, "the gateway failed; its log says where")


async def _read(socket: web.WebSocketResponse, connection: Connection, session: Session) -> None:
    """Take the client's frames until it leaves."""
    while True:
        await connection.room()
        message = await socket.receive()
        match message.type:
            case WSMsgType.TEXT:
                await session.take(message.data)
            case WSMsgType.BINARY:
                await connection.close(UNSUPPORTED, "text frames only")
                return
            case _:
                return


def _failure_of(task: asyncio.Future[None]) -> BaseException | None:
    """Return what went wrong inside; that the client is gone is nothing."""
    error = task.exception() if task.done() and not task.cancelled() else None
    return None if isinstance(error, ConnectionError) else error


async def _prepare(socket: web.WebSocketResponse, request: web.BaseRequest) -> None:
    try:
        await socket.prepare(request)
    except web.HTTPBadRequest as error:
        raise BadInput(f"The WebSocket handshake is wrong: {error.text}") from None
    except ConnectionError:
        raise CallerLeft from None


async def _ask_for_upgrade(exchange: Exchange) -> None:
    words = "This path is a WebSocket: connect with an upgrade. docs/control.md says what it carries."
    body = DIALECTS[Protocol.RESPONSES].error_body(ErrorKind.INVALID, words, exchange.request_id)
    await reply(exchange, _NO_UPGRADE, body, (("upgrade", "websocket"), ("connection", "upgrade")))


def host_of(config: Config, gateway: Gateway, lifecycle: Lifecycle) -> Host:
    """Return the host of the configured gateway. Raises ConfigError where its file cannot be opened."""
    control, limits = config.control, config.limits
    kept = HostLimits(
        threads_max=control.threads_max,
        tool_s=control.tool_seconds,
        rounds_max=control.tool_rounds_max,
        body_bytes_max=limits.body_bytes_max,
        in_flight_max=limits.in_flight_max,
    )
    return Host(gateway, lifecycle, kept, None if control.history is None else _history(control.history))


def _history(name: str) -> History:
    path = Path(name).expanduser()
    try:
        return History(path)
    except (OSError, sqlite3.Error) as error:
        words = f"control.history: {path} cannot be opened: {error}. Name a file that can be made, or one made here"
        raise ConfigError("the configuration", (words,)) from None
