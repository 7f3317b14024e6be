"""The control socket: one connection for all hosted chats of a client, opened when needed and opened anew when lost.

One task reads it: answers go to whoever asked, everything else to the chat that it is about. Only the socket is ever
opened again, never a request sent again: one whose answer was lost raises Lost, and the chat looks what became of it.
"""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Protocol as Interface

import aiohttp

from cachegate import __version__
from cachegate.sdk import frames
from cachegate.sdk.errors import BrokenAnswer, Busy, CachegateError, ProviderError, Unreachable
from cachegate.sdk.frames import Asked, Notification, Params, Rejected, Result
from cachegate.sdk.http import Http

MESSAGE_BYTES_MAX = 67_108_864
"""64 MiB: a thread's snapshot, with every turn that is shown of it, is half of that at most."""
HEARTBEAT_S = 30.0
"""Seconds of silence after which the gateway is asked whether it still lives."""
ANSWER_S = 60.0
"""Seconds for the answer to a request. All of them are short: a turn is told by notifications."""
CLIENT_NAME = "cachegate-sdk"
_PATH = "control"
_CONFLICT = -32000
_LIMIT_CODE = "message_too_large"


class Lost(BrokenAnswer):
    """The socket was lost before the answer came: what was asked for may have happened."""


class Chat(Interface):
    """What a hosted chat does with what the gateway sends."""

    def hear(self, told: Notification) -> None:
        """Take a notification; never wait."""

    def lost(self) -> None:
        """Take note that the socket was lost: nothing comes until the chat is attached again."""

    def replaced(self) -> None:
        """Take note that another chat of this client listens to the thread from now on."""

    async def run_tool(self, params: Params) -> Params:
        """Run a tool and return the answer."""


class Control:
    """See the module's first lines."""

    def __init__(self, http: Http) -> None:
        self._http = http
        self._opening = asyncio.Lock()
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._reader: asyncio.Task[None] | None = None
        self._answers: dict[int, asyncio.Future[Params]] = {}
        self._chats: dict[str, Chat] = {}
        self._tools: dict[str | int, asyncio.Task[None]] = {}
        self._count = 0
        self._message_bytes_max = MESSAGE_BYTES_MAX

    @property
    def open(self) -> bool:
        """Whether there is a socket."""
        return self._socket is not None

    def attach(self, thread_id: str, chat: Chat) -> None:
        """Tell this chat from now on what comes for its thread, and no other: nothing is told twice."""
        before = self._chats.get(thread_id)
        self._chats[thread_id] = chat
        if before is not None:
            before.replaced()

    async def call(self, method: str, **params: object) -> Params:
        """Do one request. Raises Lost when its answer does not come, Busy or ProviderError when it is refused."""
        await self.opened()
        return await self._call(method, params)

    async def opened(self) -> None:
        """Open the socket unless it is open. Raises Unreachable or ProviderError."""
        async with self._opening:
            if self._socket is None:
                await self._open()

    def drop(self) -> None:
        """Give the socket up, as if it had been lost."""
        if self._reader is not None:
            self._reader.cancel()

    async def close(self) -> None:
        """Close the socket. What runs in the gateway goes on."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()
            await asyncio.wait({reader})
        for task in self._tools.values():
            task.cancel()
        if self._tools:
            await asyncio.wait(self._tools.values())

    async def _open(self) -> None:
        gateway = self._http.gateway
        try:
            self._socket = await self._http.session.ws_connect(
                gateway.base_url / _PATH,
                headers=gateway.headers,
                heartbeat=HEARTBEAT_S,
                max_msg_size=MESSAGE_BYTES_MAX,
            )
        except aiohttp.WSServerHandshakeError as error:
            raise ProviderError(f"The gateway at {gateway} refused a control socket.", error.status) from None
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(
                f"The control socket of the gateway at {gateway} cannot be reached ({type(error).__name__})."
            ) from None
        self._reader = asyncio.create_task(self._read(self._socket))
        await self._greet(self._socket)

    async def _greet(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        client = {"name": CLIENT_NAME, "version": __version__}
        async with contextlib.AsyncExitStack() as failing:
            failing.push_async_callback(socket.close)
            limits = (await self._call("initialize", {"clientInfo": client})).get("limits")
            await self._send(frames.notification("initialized"))
            failing.pop_all()
        told = limits.get("messageBytesMax") if isinstance(limits, dict) else None
        self._message_bytes_max = told if isinstance(told, int) else MESSAGE_BYTES_MAX

    async def _call(self, method: str, params: Params) -> Params:
        self._count += 1
        answer = self._answers[self._count] = asyncio.get_running_loop().create_future()
        number = self._count
        try:
            await self._send(frames.request(number, method, params))
            async with asyncio.timeout(ANSWER_S):
                found: Params = await answer
                return found
        except TimeoutError:
            raise Lost(f"The gateway did not answer {method} within {ANSWER_S} seconds.") from None
        finally:
            del self._answers[number]
            answer.cancel()

    async def _send(self, frame: str) -> None:
        """Send a frame. Raises Lost without a socket, ProviderError for one that the gateway would not take."""
        if len(frame) > self._message_bytes_max:
            words = f"The message has {len(frame)} bytes; the gateway takes {self._message_bytes_max}."
            raise ProviderError(words, code=_LIMIT_CODE)
        if self._socket is None:
            raise Lost("The control socket was lost.")
        try:
            await self._socket.send_str(frame)
        except (aiohttp.ClientError, OSError):
            raise Lost("The control socket was lost.") from None

    async def _read(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        """Read one socket until it ends, then say so to everybody."""
        error: CachegateError = Lost("The control socket was closed.")
        try:
            async for message in socket:
                if message.type is aiohttp.WSMsgType.TEXT:
                    self._take(frames.read(message.data))
            error = Lost(f"The control socket was lost (close code {socket.close_code}).")
        except BrokenAnswer as broken:
            error = broken
        finally:
            self._socket = None
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(error)
            for chat in tuple(self._chats.values()):
                chat.lost()
            with contextlib.suppress(aiohttp.ClientError, OSError):
                await socket.close()

    def _take(self, frame: frames.Frame) -> None:
        match frame:
            case Result():
                answer = self._answers.get(frame.id)
                if answer is not None and not answer.done():
                    answer.set_result(frame.value)
            case Rejected():
                answer = None if frame.id is None else self._answers.get(frame.id)
                if answer is not None and not answer.done():
                    answer.set_exception(_refusal(frame))
            case Asked():
                self._run(frame.id, self._answer(frame))
            case Notification(method="serverRequest/resolved"):
                running = self._tools.get(str(frame.params.get("requestId")))
                if running is not None:
                    running.cancel()
                self._tell(frame)
            case Notification():
                self._tell(frame)

    def _tell(self, told: Notification) -> None:
        chat = self._chats.get(told.thread_id)
        if chat is not None:
            chat.hear(told)

    def _run(self, request_id: str | int, work: Coroutine[None, None, None]) -> None:
        task = self._tools[request_id] = asyncio.create_task(work)
        task.add_done_callback(lambda _: self._tools.pop(request_id, None))

    async def _answer(self, asked: Asked) -> None:
        """Do what the gateway asks for. Where the socket is lost meanwhile, it asks again."""
        chat = self._chats.get(str(asked.params.get("threadId")))
        if asked.method != frames.TOOL_CALL or chat is None:
            answer = frames.unknown(asked.id, asked.method)
        else:
            answer = frames.result(asked.id, await chat.run_tool(asked.params))
        with contextlib.suppress(Lost, ProviderError):
            await self._send(answer)


def _refusal(frame: Rejected) -> CachegateError:
    return Busy(frame.words) if frame.code == _CONFLICT else ProviderError(frame.words, code=str(frame.code))
