"""One connected client: its frames in, answers and events out, whatever carries them.

A request is answered once, with its own id. What it sets off is told behind its answer, never in front of it.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from cachegate import __version__
from cachegate.control import params, rpc
from cachegate.control.host import Host
from cachegate.control.hosted import HostedThread
from cachegate.control.rpc import Code, RpcError
from cachegate.control.thread import Json
from cachegate.control.tool_calls import Listener
from cachegate.providers.headers import Headers


def _nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a request, and what happens once it is told."""

    value: object
    then: Callable[[], None] = _nothing


Handler = Callable[["Session", Any], Awaitable[Reply]]
"""Takes the parameters that stand beside it in `METHODS`."""


class Session:
    """A client, from its `initialize` to its end."""

    def __init__(self, host: Host, tenant: str, headers: Headers, listener: Listener, limits: Json) -> None:
        self._host = host
        self._tenant = tenant
        self._headers = headers
        """Of its connection: the provider's credentials, for the turns it starts. Kept nowhere else."""
        self._listener = listener
        self._limits = limits
        self._initialized = False

    async def take(self, text: str) -> None:
        """Do what one frame asks for."""
        match rpc.read(text):
            case rpc.Request() as request:
                await self._answer(request)
            case rpc.Rejected(id=request_id, error=error):
                self._listener.tell(rpc.failure(request_id, error))
            case rpc.Response() as response:
                self._host.answer(self._listener, response)
            case rpc.Notification():
                return

    def close(self) -> None:
        """Let the client go."""
        self._host.leave(self._listener)

    async def _answer(self, request: rpc.Request) -> None:
        told = rpc.failure(request.id, RpcError(Code.INTERNAL, "The gateway failed on this; its log says where."))
        then: Callable[[], None] = _nothing
        try:
            reply = await self._reply(request)
            told, then = rpc.result(request.id, reply.value), reply.then
        except RpcError as error:
            told = rpc.failure(request.id, error)
        finally:
            self._listener.tell(told)
        then()

    async def _reply(self, request: rpc.Request) -> Reply:
        found = METHODS.get(request.method)
        if found is None:
            known = ", ".join(METHODS)
            name = request.method[: rpc.METHOD_CHARS_SHOWN]
            raise RpcError(Code.UNKNOWN_METHOD, f"There is no method {name!r}. Methods here: {known}.")
        kind, handle = found
        if self._initialized == (request.method == INITIALIZE):
            words = "Already initialized." if self._initialized else "Not initialized: send initialize first."
            raise RpcError(Code.NOT_INITIALIZED, words)
        return await handle(self, params.wanted(request.params, kind))

    async def _find(self, thread_id: str) -> HostedThread:
        return await self._host.find(self._tenant, thread_id)

    # --- methods ---

    async def initialize(self, wanted: params.Initialize) -> Reply:
        """Say who is here, and how much it takes."""
        self._initialized = True
        client = f"{wanted.client_info.name}/{wanted.client_info.version}".rstrip("/")
        server = {"name": "cachegate", "version": __version__}
        agent = f"cachegate/{__version__} ({client})"
        return Reply({"userAgent": agent, "serverInfo": server, "limits": self._limits})

    async def thread_start(self, wanted: params.ThreadStart) -> Reply:
        """Begin a thread and listen to it."""
        hosted = self._host.start(self._tenant, wanted, self._listener)
        shown = hosted.shown()
        return Reply({"thread": shown}, lambda: hosted.emit("thread/started", {"thread": hosted.shown()}))

    async def thread_resume(self, wanted: params.ThreadResume) -> Reply:
        """Listen to a thread, and hear what was missed."""
        hosted = await self._find(wanted.thread_id)
        missed, frames = hosted.missed(wanted.cursor)
        hosted.listeners[self._listener] = None

        def then() -> None:
            for frame in frames:
                self._listener.tell(frame)
            if wanted.dynamic_tools is not None:
                self._host.registered(hosted, wanted.dynamic_tools, self._listener)

        told = {"thread": hosted.shown_whole(), "cursor": hosted.cursor, "missed": missed}
        return Reply(told, then)

    async def thread_read(self, wanted: params.ThreadOnly) -> Reply:
        """Show a thread."""
        return Reply({"thread": (await self._find(wanted.thread_id)).shown_whole()})

    async def thread_list(self, wanted: params.ThreadList) -> Reply:
        """Show the client's threads."""
        return Reply(await self._host.page(self._tenant, wanted))

    async def thread_unsubscribe(self, wanted: params.ThreadOnly) -> Reply:
        """Listen no more."""
        (await self._find(wanted.thread_id)).leave(self._listener)
        return Reply({})

    async def thread_delete(self, wanted: params.ThreadOnly) -> Reply:
        """Forget a thread."""
        hosted = await self._host.delete(self._tenant, wanted.thread_id)
        return Reply({}, lambda: hosted.emit("thread/deleted", {}))

    async def turn_start(self, wanted: params.TurnStart) -> Reply:
        """Say something to the model."""
        hosted = await self._find(wanted.thread_id)
        running = self._host.turn(hosted, wanted, self._headers)
        return Reply({"turn": running.turn.shown()}, lambda: self._host.run(hosted, running, wanted))

    async def turn_steer(self, wanted: params.TurnSteer) -> Reply:
        """Say more while the model is at work."""
        self._host.steer(await self._find(wanted.thread_id), wanted)
        return Reply({"turnId": wanted.expected_turn_id})

    async def turn_interrupt(self, wanted: params.TurnInterrupt) -> Reply:
        """Stop the model."""
        self._host.interrupt(await self._find(wanted.thread_id), wanted)
        return Reply({})

    async def thread_compact_start(self, wanted: params.ThreadOnly) -> Reply:
        """Put a summary in the place of the history."""
        hosted = await self._find(wanted.thread_id)
        running = self._host.compaction(hosted, self._headers)
        return Reply({}, lambda: self._host.compact(hosted, running))


INITIALIZE = "initialize"
METHODS: dict[str, tuple[type[msgspec.Struct], Handler]] = {
    INITIALIZE: (params.Initialize, Session.initialize),
    "thread/start": (params.ThreadStart, Session.thread_start),
    "thread/resume": (params.ThreadResume, Session.thread_resume),
    "thread/read": (params.ThreadOnly, Session.thread_read),
    "thread/list": (params.ThreadList, Session.thread_list),
    "thread/unsubscribe": (params.ThreadOnly, Session.thread_unsubscribe),
    "thread/delete": (params.ThreadOnly, Session.thread_delete),
    "thread/compact/start": (params.ThreadOnly, Session.thread_compact_start),
    "turn/start": (params.TurnStart, Session.turn_start),
    "turn/steer": (params.TurnSteer, Session.turn_steer),
    "turn/interrupt": (params.TurnInterrupt, Session.turn_interrupt),
}
"""What a client may ask for; docs/control.md lists it."""
