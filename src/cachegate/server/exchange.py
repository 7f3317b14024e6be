"""One HTTP answer, and why it ended: the seam to the HTTP server underneath."""

import asyncio
import secrets
from collections.abc import Coroutine
from dataclasses import dataclass, field

from aiohttp import web

from cachegate.guard.machine import Ending
from cachegate.road import CallerLeft, CallerStalled

_PAUSE_BYTES = 65_536
"""asyncio's high-water mark: below it a write never waits for the caller."""


@dataclass(slots=True)
class Lifecycle:
    """What the server is about to do with running answers."""

    stopping: bool = False
    """No new connections; running answers go on, and each closes its connection."""
    retiring: bool = False
    """Others take the new connections; each answer closes its connection, and nothing else changes."""
    cutting: bool = False
    """Running answers are being ended by the gateway, not by their callers."""
    running: set[asyncio.Task[object]] = field(default_factory=set)
    busy: set[object] = field(default_factory=set)
    """Connections with a request under way, of any kind."""
    rested_s: dict[object, float] = field(default_factory=dict)
    """When each connection's last answer ended, in the loop's time; only kept while retiring."""

    def begin(self, connection: object) -> None:
        """Note that a request came over a connection."""
        self.busy.add(connection)

    def rest(self, connection: object) -> None:
        """Note that it is answered."""
        self.busy.discard(connection)
        if self.retiring:
            self.rested_s[connection] = asyncio.get_running_loop().time()

    def cut(self) -> None:
        """End every running answer as a shutdown."""
        self.cutting = True
        for task in tuple(self.running):
            task.cancel()


class Exchange:
    """The answer to one request; implements `road.Caller`."""

    def __init__(self, request: web.BaseRequest, lifecycle: Lifecycle, send_stall_s: float) -> None:
        self.request_id = f"req_{secrets.token_hex(12)}"
        self.tenant = ""
        self.path = request.path
        self._request = request
        self._lifecycle = lifecycle
        self._send_stall_s = send_stall_s
        self._response: web.StreamResponse | None = None

    @property
    def status(self) -> int:
        """See `Caller.status`."""
        return 0 if self._response is None else self._response.status

    @property
    def response(self) -> web.StreamResponse:
        """The answer, for the server underneath; an empty one when none was begun."""
        return self._response if self._response is not None else web.Response(status=500)

    async def begin(self, status: int, headers: tuple[tuple[str, str], ...]) -> None:
        """See `Caller.begin`."""
        response = web.StreamResponse(status=status)
        for name, value in headers:
            response.headers.add(name, value)
        if self._lifecycle.stopping or self._lifecycle.retiring:
            response.force_close()
        self._response = response
        try:
            await response.prepare(self._request)
        except ConnectionError:
            raise CallerLeft from None

    async def send(self, data: bytes) -> None:
        """See `Caller.send`. A timer is only set when the caller reads slower than we write."""
        if not data or self._response is None:
            return
        await self._within_stall(self._response.write(data), len(data))

    async def end(self) -> None:
        """See `Caller.end`."""
        if self._response is not None:
            await self._within_stall(self._response.write_eof(), 0)

    async def _within_stall(self, writing: Coroutine[None, None, None], size_bytes: int) -> None:
        transport = self._request.transport
        if transport is None or transport.is_closing():
            writing.close()
            raise CallerLeft
        try:
            if transport.get_write_buffer_size() + size_bytes < _PAUSE_BYTES:
                await writing
            else:
                async with asyncio.timeout(self._send_stall_s):
                    await writing
        except ConnectionError:
            raise CallerLeft from None
        except TimeoutError:
            raise CallerStalled from None

    def abort(self) -> None:
        """See `Caller.abort`."""
        if self._request.transport is not None:
            self._request.transport.abort()

    def cancelled_by(self) -> Ending:
        """See `Caller.cancelled_by`."""
        return Ending.SHUTDOWN if self._lifecycle.cutting else Ending.CANCELLED
