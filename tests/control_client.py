"""A client of the control socket, as simple as one can be: it keeps everything it is sent, in order."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

Frame = dict[str, Any]
PATIENCE_S = 20


class RpcFailed(Exception):  # noqa: N818 -- it reads as what it is
    """The gateway answered with an error."""

    def __init__(self, error: Frame) -> None:
        super().__init__(error["message"])
        self.code = error["code"]
        self.message = error["message"]
        self.data = error.get("data")


class ControlClient:
    """One connection."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.events: list[Frame] = []
        """Notifications, in order."""
        self.calls: list[Frame] = []
        """Requests of the gateway's, in order."""
        self.answers: dict[Any, list[Frame]] = {}
        self.closed = asyncio.Event()
        self._changed = asyncio.Condition()
        self._ids = 0
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        async for message in self.socket:
            frame = json.loads(message.data)
            assert frame["jsonrpc"] == "2.0"
            async with self._changed:
                if "method" not in frame:
                    self.answers.setdefault(frame["id"], []).append(frame)
                elif "id" in frame:
                    self.calls.append(frame)
                else:
                    self.events.append(frame)
                self._changed.notify_all()
        self.closed.set()
        async with self._changed:
            self._changed.notify_all()

    async def until(self, condition: Callable[[], Any]) -> Any:
        """Wait until it holds, and return it."""
        async with asyncio.timeout(PATIENCE_S), self._changed:
            await self._changed.wait_for(lambda: condition() or self.closed.is_set())
        return condition()

    async def send(self, frame: Any) -> None:
        await self.socket.send_str(frame if isinstance(frame, str) else json.dumps(frame))

    async def ask(self, method: str, params: Any = None, **named: Any) -> Frame:
        """Return the result. Raises RpcFailed for an error."""
        self._ids += 1
        number = self._ids
        await self.send({"id": number, "method": method, "params": named if params is None else params})
        answer: Frame = (await self.until(lambda: self.answers.get(number)))[0]
        if "error" in answer:
            raise RpcFailed(answer["error"])
        result: Frame = answer["result"]
        return result

    async def thread(self, model: str = "synthetic/cache", **more: Any) -> str:
        """Begin a thread and return its id."""
        thread_id: str = (await self.ask("thread/start", model=model, **more))["thread"]["id"]
        return thread_id

    async def say(self, thread_id: str, text: str, **more: Any) -> str:
        """Start a turn and return its id."""
        told = await self.ask("turn/start", threadId=thread_id, input=[{"type": "text", "text": text}], **more)
        turn_id: str = told["turn"]["id"]
        return turn_id

    async def completed(self, turn_id: str) -> Frame:
        """Wait for a turn's end and return the turn."""
        found = await self.until(lambda: [e for e in self.named("turn/completed") if e["turn"]["id"] == turn_id])
        turn: Frame = found[0]["turn"]
        return turn

    async def turn(self, thread_id: str, text: str, **more: Any) -> Frame:
        """Run a whole turn and return it."""
        return await self.completed(await self.say(thread_id, text, **more))

    def named(self, method: str) -> list[Frame]:
        """Return the parameters of all notifications of one kind."""
        return [event["params"] for event in self.events if event["method"] == method]


@asynccontextmanager
async def connected(client: aiohttp.ClientSession, url: str, **headers: str) -> AsyncIterator[ControlClient]:
    """Connect and initialize; header names are written with underscores."""
    async with uninitialized(client, url, **headers) as control:
        await control.ask("initialize", clientInfo={"name": "test", "version": "1"})
        yield control


@asynccontextmanager
async def uninitialized(client: aiohttp.ClientSession, url: str, **headers: str) -> AsyncIterator[ControlClient]:
    """Connect, and say nothing yet."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with client.ws_connect(f"{url}/control", headers=named, max_msg_size=0) as socket:
        control = ControlClient(socket)
        try:
            yield control
        finally:
            control._reading.cancel()


def text_of(turn: Frame) -> str:
    """Return what the model said."""
    return "".join(item["text"] for item in turn["items"] if item["type"] == "agentMessage")
