"""A scripted control socket: one thread, a log of its events, and whatever a test wants to go wrong."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import WSMsgType, web

Json = dict[str, Any]
COUNTS = {
    "inputTokens": 100, "cachedInputTokens": 40, "cacheWriteInputTokens": 60, "outputTokens": 7, "totalTokens": 107,
}  # fmt: skip
NOTHING = dict.fromkeys(COUNTS, 0)
UNKNOWN = dict.fromkeys(COUNTS)
THREAD = "thread_1"


class ControlPeer:
    """See the module's first line."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[tuple[str, Json]] = []
        self.headers: list[dict[str, str]] = []
        self.log: list[Json] = []
        self.turns: list[Json] = []
        self.usage: Json = {"last": UNKNOWN, "total": NOTHING}
        self.forgetful = False
        """Whether a resume finds no event any more."""
        self.cut_before: set[str] = set()
        """Methods that are never heard of: the socket is lost on their way, once."""
        self.cut_after: set[str] = set()
        """Methods whose answer is lost, once."""
        self.refusals: dict[str, Json] = {}
        self.script: Callable[[str], Awaitable[None]] = self.say_hello
        self.interrupted = asyncio.Event()
        self._socket: web.WebSocketResponse | None = None
        self._asked: dict[str, asyncio.Future[Json]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def methods(self) -> list[str]:
        return [method for method, _ in self.requests]

    def params(self, method: str) -> Json:
        """The parameters of the newest request of a kind."""
        return [params for name, params in self.requests if name == method][-1]

    # --- what scripts do ---

    async def emit(self, method: str, **params: Any) -> None:
        entry = {"threadId": THREAD, **params, "cursor": f"log.{len(self.log) + 1}"}
        self.log.append({"jsonrpc": "2.0", "method": method, "params": entry})
        await self._send(self.log[-1])

    async def ask(self, request_id: str, **params: Any) -> Json:
        """Have the client run a tool."""
        self._asked[request_id] = asyncio.get_running_loop().create_future()
        await self.ask_again(request_id, **params)
        return await asyncio.wait_for(self._asked[request_id], 10)

    async def ask_again(self, request_id: str, **params: Any) -> None:
        await self._send({"id": request_id, "method": "item/tool/call", "params": {"threadId": THREAD, **params}})

    async def begin(self, turn_id: str) -> None:
        self.turns.append({"id": turn_id, "status": "inProgress", "error": None, "items": []})
        await self.emit("turn/started", turn={**self.turns[-1], "items": []})

    async def item(self, turn_id: str, **item: Any) -> None:
        """A finished item."""
        self.turns[-1]["items"].append(item)
        await self.emit("item/completed", turnId=turn_id, item=item)

    async def delta(self, turn_id: str, text: str, kind: str = "agentMessage/delta") -> None:
        await self.emit(f"item/{kind}", turnId=turn_id, itemId="m1", delta=text)

    async def used(self, turn_id: str) -> None:
        self.usage = {"last": COUNTS, "total": COUNTS}
        await self.emit("thread/tokenUsage/updated", turnId=turn_id, tokenUsage=self.usage)

    async def complete(self, status: str = "completed", error: Json | None = None) -> None:
        self.turns[-1] |= {"status": status, "error": error}
        if error is not None:
            await self.emit("error", turnId=self.turns[-1]["id"], error=error, willRetry=False)
        await self.emit("turn/completed", turn=self.turns[-1])

    async def say_hello(self, turn_id: str) -> None:
        await self.begin(turn_id)
        await self.delta(turn_id, "hm", "reasoning/textDelta")
        await self.delta(turn_id, "Hel")
        await self.delta(turn_id, "lo.")
        await self.item(turn_id, type="agentMessage", id="m1", text="Hello.")
        await self.used(turn_id)
        await self.complete()

    async def cut(self) -> None:
        """Lose the socket."""
        socket, self._socket = self._socket, None
        assert socket is not None
        transport = socket._req.transport if socket._req is not None else None
        assert transport is not None
        transport.abort()
        await asyncio.sleep(0)

    # --- serving ---

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        socket = web.WebSocketResponse(max_msg_size=1 << 26)
        await socket.prepare(request)
        self._socket = socket
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                await self._take(socket, json.loads(message.data))
        return socket

    async def _take(self, socket: web.WebSocketResponse, frame: Json) -> None:
        assert frame["jsonrpc"] == "2.0"
        if "method" not in frame:
            answer = self._asked.get(frame["id"])
            if answer is not None and not answer.done():
                answer.set_result(frame.get("result") or frame)
            return
        method, params = frame["method"], frame.get("params", {})
        self.requests.append((method, params))
        if method in self.cut_before:
            self.cut_before.discard(method)
            await self.cut()
            return
        if "id" not in frame:
            return
        if method in self.refusals:
            await self._send({"id": frame["id"], "error": self.refusals[method]})
            return
        if method in self.cut_after:
            self.cut_after.discard(method)
            await self.cut()
            self._answer(method, params)
            return
        await socket.send_str(json.dumps({"id": frame["id"], "result": self._answer(method, params)}))
        if method == "thread/resume" and params.get("cursor") is not None and not self.forgetful:
            for told in self.log[int(params["cursor"].split(".")[1]) :]:
                await self._send(told)

    def _answer(self, method: str, params: Json) -> Json:  # noqa: PLR0911 -- a row per method
        match method:
            case "initialize":
                return {"limits": {"messageBytesMax": 100_000}}
            case "thread/start":
                return {"thread": self.thread()}
            case "thread/resume":
                seen = int((params.get("cursor") or f"log.{len(self.log)}").split(".")[1])
                missed = "lost" if self.forgetful else "replayed" if seen < len(self.log) else "none"
                thread = {**self.thread(), "turns": self.turns}
                return {"thread": thread, "cursor": f"log.{len(self.log)}", "missed": missed}
            case "turn/start":
                turn_id = f"turn_{len(self.turns) + 1}"
                self._run(self.script(turn_id))
                return {"turn": {"id": turn_id, "status": "inProgress", "error": None, "items": []}}
            case "turn/interrupt":
                self.interrupted.set()
                self._run(self.complete("interrupted"))
                return {}
            case "thread/read":
                return {"thread": {**self.thread(), "turns": self.turns}}
            case "turn/steer":
                return {"turnId": params["expectedTurnId"]}
            case "thread/compact/start":
                self._run(self.script(f"turn_{len(self.turns) + 1}"))
                return {}
            case "thread/list":
                at = int(params.get("cursor") or 0)
                return {
                    "data": [{**self.thread(), "id": f"thread_{at}"}],
                    "nextCursor": str(at + 1) if at < 2 else None,
                }
        return {}

    def thread(self) -> Json:
        active = bool(self.turns) and self.turns[-1]["status"] == "inProgress"
        return {
            "id": THREAD, "name": None, "model": "m", "protocol": "responses", "createdAt": 1, "updatedAt": 2,
            "status": "active" if active else "idle", "contextFull": False, "tokenUsage": self.usage,
            "cursor": f"log.{len(self.log)}",
        }  # fmt: skip

    def _run(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)

    async def _send(self, frame: Json) -> None:
        if self._socket is not None:
            await self._socket.send_str(json.dumps(frame))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def control_peer() -> AsyncIterator[ControlPeer]:
    peer = ControlPeer()
    runner = web.ServerRunner(web.Server(peer.serve, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    peer.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield peer
    finally:
        await peer.close()
        await runner.cleanup()
