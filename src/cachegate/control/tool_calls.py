"""The tools of a thread are run by a client: who is asked, who is asked again, and how long an answer may take."""

import asyncio
from collections.abc import Callable
from typing import Protocol as Interface

from cachegate.control import rpc
from cachegate.control.params import InputText, ToolAnswer, wanted
from cachegate.control.said import arguments_of
from cachegate.control.thread import Json
from cachegate.wire.hub import ToolCall

METHOD = "item/tool/call"
PENDING_MAX = 256
"""Calls of one answer; models make a dozen."""
TIMED_OUT = "[The tool gave no answer in time.]"
FAILED = "[The client could not run the tool.]"
MALFORMED = "[The client's answer for the tool cannot be read.]"
TOO_MANY = "[Too many tools were called at once; this call was not made.]"
"""What the model is told instead of an answer."""


class Listener(Interface):
    """A connected client; `server/control.py` has the real one."""

    def tell(self, frame: bytes) -> None:
        """Put a frame into the client's queue. It never waits and never raises."""


class _Pending:
    __slots__ = ("answer", "asked", "frame")

    def __init__(self, frame: bytes) -> None:
        self.frame = frame
        self.asked: Listener | None = None
        """Who was asked and is still there."""
        self.answer: asyncio.Future[ToolAnswer] = asyncio.get_running_loop().create_future()


class ToolDesk:
    """The calls of one thread."""

    def __init__(self, thread_id: str, tool_s: float, new_id: Callable[[str], str]) -> None:
        self._thread_id = thread_id
        self._tool_s = tool_s
        self._new_id = new_id
        self._owner: Listener | None = None
        self._pending: dict[str, _Pending] = {}

    def register(self, listener: Listener) -> None:
        """Ask this client from now on, also what nobody is left to answer."""
        self._owner = listener
        for pending in self._pending.values():
            if pending.asked is None:
                self._ask(pending)

    def leave(self, listener: Listener) -> None:
        """Forget a client that is gone. What it was asked waits for the next one."""
        if self._owner is listener:
            self._owner = None
        for pending in self._pending.values():
            if pending.asked is listener:
                pending.asked = None

    def answer(self, listener: Listener, response: rpc.Response) -> None:
        """Take a client's answer; one that nobody waits for, or of somebody else, changes nothing."""
        pending = self._pending.get(str(response.id))
        if pending is None or pending.asked is not listener or pending.answer.done():
            return
        pending.answer.set_result(_read(response))

    async def run(self, turn_id: str, call: ToolCall, resolved: Callable[[str], None]) -> ToolAnswer:
        """Have a tool run. An answer that never comes is told to the model as such.

        `resolved` is told the id of a request that needs no answer any more.
        """
        if len(self._pending) >= PENDING_MAX:
            return no_answer(TOO_MANY)
        request_id = self._new_id("tool")
        params: Json = {
            "threadId": self._thread_id,
            "turnId": turn_id,
            "callId": call.call_id,
            "tool": call.tool.name,
            "arguments": arguments_of(call),
        }
        pending = self._pending[request_id] = _Pending(rpc.request(request_id, METHOD, params))
        self._ask(pending)
        try:
            async with asyncio.timeout(self._tool_s):
                return await pending.answer
        except TimeoutError:
            return no_answer(TIMED_OUT)
        finally:
            del self._pending[request_id]
            if pending.answer.cancelled() or not pending.answer.done():
                resolved(request_id)

    def _ask(self, pending: _Pending) -> None:
        pending.asked = self._owner
        if self._owner is not None:
            self._owner.tell(pending.frame)


def _read(response: rpc.Response) -> ToolAnswer:
    if response.result is None:
        return no_answer(FAILED)
    try:
        return wanted(response.result, ToolAnswer)
    except rpc.RpcError as error:
        return no_answer(f"{MALFORMED} {error.message}")


def no_answer(words: str) -> ToolAnswer:
    """Return what the model is told where no tool gave an answer."""
    return ToolAnswer([InputText(words)], success=False)
