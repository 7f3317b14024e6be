"""The hosted threads of every tenant: found, begun, listed, forgotten; and who may see which."""

import asyncio
import secrets
import time
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from functools import partial

import msgspec

from cachegate.control import params
from cachegate.control.history import History, Listed
from cachegate.control.hosted import HostedThread
from cachegate.control.rpc import Code, Response, RpcError
from cachegate.control.thread import Json, Settings, Thread
from cachegate.control.tool_calls import Listener
from cachegate.control.turn import Ground, Life, RunningTurn
from cachegate.control.turn_request import shown_input, tools_of, user_message
from cachegate.observe.log import LOGGER
from cachegate.providers.headers import Headers
from cachegate.road import Gateway
from cachegate.wire.facts import Protocol

NO_THREAD = "There is no such thread. thread/list says which there are."
_ID_BYTES = 12


@dataclass(frozen=True, slots=True)
class HostLimits:
    """How much is hosted."""

    threads_max: int
    """Threads in memory."""
    tool_s: float
    """How long a client may take for a tool."""
    rounds_max: int
    body_bytes_max: int
    in_flight_max: int
    """Requests and turns running at once, in the whole gateway."""


class Host:
    """See the module's first line. One event loop, no locks: whatever awaits looks again afterwards."""

    def __init__(self, gateway: Gateway, life: Life, limits: HostLimits, history: History | None = None) -> None:
        self._life = life
        self._limits = limits
        self._history = history
        self._threads: dict[str, HostedThread] = {}
        """Longest unused first."""
        save = _forget if history is None else history.save
        self._ground = Ground(
            gateway, life, limits.body_bytes_max, limits.rounds_max, new_id, lambda: int(time.time()), save
        )

    # --- threads ---

    def start(self, tenant: str, wanted: params.ThreadStart, listener: Listener) -> HostedThread:
        """Begin a thread. Raises RpcError (-32003) where there are too many."""
        self._check_open()
        settings = Settings(
            model=wanted.model,
            protocol=Protocol(wanted.protocol or Protocol.RESPONSES),
            instructions=wanted.instructions,
            tools=tools_of(wanted.dynamic_tools or ()),
            effort=wanted.effort,
            max_output_tokens=wanted.max_output_tokens,
        )
        now_s = self._ground.now_s()
        thread = Thread(new_id("thread"), tenant, settings, now_s, now_s, wanted.name)
        hosted = self._host(thread)
        hosted.listeners[listener] = None
        if wanted.dynamic_tools is not None:
            hosted.tools.register(listener)
        self._ground.save(thread)
        return hosted

    async def find(self, tenant: str, thread_id: str) -> HostedThread:
        """Return a tenant's thread. Raises RpcError (-32001), in the same words for another's thread and for none."""
        hosted = self._threads.get(thread_id)
        if hosted is None and self._history is not None:
            kept = await self._history.load(tenant, thread_id)
            hosted = self._threads.get(thread_id) or (None if kept is None else self._host(kept))
        if hosted is None or hosted.deleted or hosted.thread.tenant != tenant:
            raise RpcError(Code.NO_THREAD, NO_THREAD)
        self._threads[thread_id] = self._threads.pop(thread_id)
        return hosted

    async def page(self, tenant: str, wanted: params.ThreadList) -> Json:
        """Return a page of a tenant's threads, newest first. Raises RpcError (-32602) for a cursor that is none."""
        limit, after = wanted.limit or params.LIST_USUAL, _place(wanted.cursor)
        if self._history is None:
            found = self._own(tenant, after)
        else:
            found = await self._history.page(tenant, after, limit + 1)
        page = found[:limit]
        cursor = f"{page[-1].updated_s}.{page[-1].id}" if len(found) > limit else None
        return {"data": [self._shown(each) for each in page], "nextCursor": cursor}

    async def delete(self, tenant: str, thread_id: str) -> HostedThread:
        """End what runs for a thread, and forget it."""
        hosted = await self.find(tenant, thread_id)
        hosted.deleted = True
        if hosted.running is not None and hosted.task is not None:
            hosted.running.interrupt()
            await asyncio.wait({hosted.task})
        self._threads.pop(thread_id, None)
        if self._history is not None:
            self._history.delete(thread_id)
        return hosted

    def answer(self, listener: Listener, response: Response) -> None:
        """Take a client's answer to a request of ours; it belongs to one thread at most."""
        for hosted in self._threads.values():
            hosted.tools.answer(listener, response)

    def leave(self, listener: Listener) -> None:
        """Let a client go. Nothing that runs ends with it."""
        for hosted in self._threads.values():
            hosted.leave(listener)

    def registered(self, hosted: HostedThread, tools: list[params.DynamicTool], listener: Listener) -> None:
        """Have a client run a thread's tools: these, from now on."""
        thread = hosted.thread
        hosted.thread = replace(thread, settings=replace(thread.settings, tools=tools_of(tools)))
        hosted.tools.register(listener)

    async def spares(self, listener: Listener) -> bool:
        """Whether a client can go on in another process: nothing runs that it listens to, and its threads are kept."""
        if self._history is None or any(
            hosted.running is not None and listener in hosted.listeners for hosted in self._threads.values()
        ):
            return False
        await self._history.written()
        return True

    # --- turns ---

    def turn(self, hosted: HostedThread, wanted: params.TurnStart, headers: Headers) -> RunningTurn:
        """Prepare a turn. Raises RpcError where one runs already, or too much does."""
        running = self._prepare(hosted, headers, steerable=True)
        thread = hosted.thread
        model, effort = wanted.model or thread.settings.model, wanted.effort or thread.settings.effort
        settings = replace(thread.settings, model=model, effort=effort)
        hosted.thread = replace(thread, settings=settings, updated_s=self._ground.now_s())
        return running

    def run(self, hosted: HostedThread, running: RunningTurn, wanted: params.TurnStart) -> None:
        """Let a prepared turn run."""
        self._run(hosted, running, running.answer(user_message(wanted.input), shown_input(wanted.input)))

    def compaction(self, hosted: HostedThread, headers: Headers) -> RunningTurn:
        """Prepare the turn of a compaction. Raises RpcError as `turn` does, and where there is nothing to compact."""
        if not hosted.thread.history and hosted.running is None:
            raise RpcError(Code.CONFLICT, "The thread has no history yet: there is nothing to compact.")
        return self._prepare(hosted, headers, steerable=False)

    def compact(self, hosted: HostedThread, running: RunningTurn) -> None:
        """Let a prepared compaction run."""
        self._run(hosted, running, running.compact())

    def steer(self, hosted: HostedThread, wanted: params.TurnSteer) -> None:
        """Take more input into the running turn. Raises RpcError (-32000) where that is another one, or none."""
        running = hosted.running
        if running is None or running.turn.id != wanted.expected_turn_id:
            raise RpcError(Code.CONFLICT, "expectedTurnId: this turn does not run. Use turn/start.", _running(hosted))
        if not running.steerable:
            raise RpcError(Code.CONFLICT, "A compaction takes no input. Wait for its end.", _running(hosted))
        if running.crowded:
            raise RpcError(Code.LIMIT, "Too much input waits to be taken into this turn. Wait for an answer.")
        running.steer(user_message(wanted.input), shown_input(wanted.input))

    def interrupt(self, hosted: HostedThread, wanted: params.TurnInterrupt) -> None:
        """End the running turn. Raises RpcError (-32000) where that is another one, or none."""
        if hosted.running is None or hosted.running.turn.id != wanted.turn_id:
            raise RpcError(Code.CONFLICT, "turnId: this turn does not run.", _running(hosted))
        hosted.running.interrupt()

    async def close(self) -> None:
        """Release what is kept on disk."""
        if self._history is not None:
            await self._history.close()

    # --- inside ---

    def _host(self, thread: Thread) -> HostedThread:
        """Take a thread into memory; for it, the longest unused one goes that nobody listens to."""
        if len(self._threads) >= self._limits.threads_max:
            idle = next((key for key, hosted in self._threads.items() if hosted.idle), None)
            if idle is None:
                words = f"The gateway hosts {self._limits.threads_max} threads that are in use. Unsubscribe from some."
                raise RpcError(Code.LIMIT, words)
            del self._threads[idle]
        hosted = self._threads[thread.id] = HostedThread(thread, self._limits.tool_s, new_id)
        return hosted

    def _own(self, tenant: str, after: tuple[int, str] | None) -> list[Listed]:
        threads = (hosted.thread for hosted in self._threads.values() if not hosted.deleted)
        own = [Listed.of(thread) for thread in threads if thread.tenant == tenant]
        own.sort(key=lambda each: (each.updated_s, each.id), reverse=True)
        return [each for each in own if after is None or (each.updated_s, each.id) < after]

    def _shown(self, each: Listed) -> Json | msgspec.Raw:
        hosted = self._threads.get(each.id)
        return msgspec.Raw(each.shown) if hosted is None else hosted.shown()

    def _check_open(self) -> None:
        if self._life.stopping:
            raise RpcError(Code.LIMIT, "The gateway is shutting down. Connect again in a moment.")

    def _prepare(self, hosted: HostedThread, headers: Headers, *, steerable: bool) -> RunningTurn:
        self._check_open()
        if hosted.running is not None:
            raise RpcError(Code.CONFLICT, "A turn is running. Use turn/steer, or wait for its end.", _running(hosted))
        if len(self._life.running) >= self._limits.in_flight_max:
            words = f"The gateway runs {self._limits.in_flight_max} requests already. Try again in a moment."
            raise RpcError(Code.LIMIT, words)
        running = hosted.running = RunningTurn(hosted, self._ground, headers, steerable=steerable)
        return running

    def _run(self, hosted: HostedThread, running: RunningTurn, work: Coroutine[None, None, None]) -> None:
        task = hosted.task = asyncio.ensure_future(work)
        self._life.running.add(task)
        task.add_done_callback(partial(self._over, hosted, running))

    def _over(self, hosted: HostedThread, running: RunningTurn, task: asyncio.Task[None]) -> None:
        self._life.running.discard(task)
        if hosted.running is running:
            running.lost()
        if not task.cancelled() and (error := task.exception()) is not None:
            LOGGER.error("a turn failed inside the gateway", exc_info=error)


def _forget(thread: Thread) -> None:
    """Keep nothing of a thread: nobody opted in."""


def new_id(word: str) -> str:
    """Return an id that nobody can guess."""
    return f"{word}_{secrets.token_hex(_ID_BYTES)}"


def _running(hosted: HostedThread) -> Json:
    return {"turnId": None if hosted.running is None else hosted.running.turn.id}


def _place(cursor: str | None) -> tuple[int, str] | None:
    if cursor is None:
        return None
    updated, _, thread_id = cursor.partition(".")
    if not (updated.isascii() and updated.isdigit() and len(updated) < len(str(1 << 62)) and thread_id):
        raise RpcError(Code.INVALID_PARAMS, "cursor: is none that thread/list gave. Leave it out to begin anew.")
    return int(updated), thread_id
