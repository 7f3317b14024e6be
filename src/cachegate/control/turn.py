"""One turn of a hosted thread: rounds of inference and tools, until the model has said what it has to say.

A turn owns its thread's history while it runs. What it may keep of an answer that did not come to its end is decided in
one place (`_keep`), and it ends in one place (`_close`), once, whatever ends it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Protocol as Interface

from cachegate.control.answer import Answering, cut_short, infer
from cachegate.control.hosted import HostedThread
from cachegate.control.params import ToolAnswer
from cachegate.control.said import Began, Done, Grew, Heard, Said, Told, arguments_of
from cachegate.control.thread import (
    Compaction,
    Json,
    Progress,
    ShownItem,
    Thread,
    ToolUse,
    Turn,
    TurnError,
    TurnStatus,
    UserMessage,
)
from cachegate.control.tool_calls import no_answer
from cachegate.control.turn_request import Asking, compacted, inference_of, shown_content, tool_result
from cachegate.errors import HTTP_STATUS, BadInput, ErrorKind
from cachegate.providers.headers import Headers
from cachegate.road import Gateway
from cachegate.wire.hub import Broken, Ended, Item, Message, Stop, Text, ToolCall, ToolResult
from cachegate.wire.overflows import CODE as CONTEXT_FULL

STEERS_MAX = 64
"""Inputs that wait to be taken into a turn: more of them are no person's."""
UNANSWERED = "[The call was interrupted: there is no answer.]"
"""The answer to a call that was under way when the turn was interrupted."""
NO_SUCH_TOOL = "[There is no such tool.]"
_INTERNAL = "The gateway failed on this turn; its log says where."
_SUMMARY_STOPS = frozenset({Stop.END, Stop.STOP_SEQUENCE})


class Life(Interface):
    """What the gateway is about to do with what runs; `server/exchange.py` has it."""

    stopping: bool
    cutting: bool
    running: set[asyncio.Task[object]]


@dataclass(frozen=True, slots=True)
class Ground:
    """What turns stand on."""

    gateway: Gateway
    life: Life
    body_bytes_max: int
    rounds_max: int
    """Rounds of tools in one turn."""
    new_id: Callable[[str], str]
    """Returns a new id that begins with this word."""
    now_s: Callable[[], int]
    save: Callable[[Thread], None]
    """Keeps a thread, where threads are kept."""


@dataclass(frozen=True, slots=True)
class End:
    """How a turn ended."""

    status: TurnStatus
    error: TurnError | None = None


_INTERRUPTED = End(TurnStatus.INTERRUPTED)


class RunningTurn:
    """One turn. Create it, and `run` it as a task of its own."""

    def __init__(self, hosted: HostedThread, ground: Ground, headers: Headers, *, steerable: bool = True) -> None:
        self._turn = Turn(ground.new_id("turn"))
        self.steerable = steerable
        self._hosted = hosted
        self._ground = ground
        self._headers = headers
        self._interrupted = False
        self._steers: list[tuple[Message, tuple[Json, ...]]] = []
        self._inferring: asyncio.Task[None] | None = None
        self._calling: asyncio.Task[None] | None = None
        self._unanswered = len(hosted.thread.history)
        """Where in the history the words begin that no answer was given to yet."""
        self._items = 0
        self._said: Said | None = None

    # --- from outside ---

    @property
    def turn(self) -> Turn:
        """The turn as it is now, with what is being said."""
        turn = self._turn
        for item in () if self._said is None else self._said.under_way():
            turn = turn.put(item)
        return turn

    def interrupt(self) -> None:
        """End the turn; what runs for it is cancelled, which is the caller's own doing (R14)."""
        self._interrupted = True
        for work in (self._inferring, self._calling):
            if work is not None:
                work.cancel()

    def steer(self, message: Message, content: tuple[Json, ...]) -> None:
        """Take more of the user's into the turn: at once, or behind the answers of the tools that run."""
        self._steers.append((message, content))
        if self._inferring is not None:
            self._inferring.cancel()

    @property
    def crowded(self) -> bool:
        """Whether too much waits to be taken in."""
        return len(self._steers) >= STEERS_MAX

    async def answer(self, message: Message, content: tuple[Json, ...]) -> None:
        """Run the turn that a user's message sets off."""
        self._steers.append((message, content))
        await self._run(self._rounds())

    async def compact(self) -> None:
        """Run the turn that puts a summary in the place of the history."""
        await self._run(self._summary())

    def lost(self) -> None:
        """End the turn whose task was cancelled before it began."""
        self._close(_INTERRUPTED)

    # --- its life ---

    async def _run(self, work: Coroutine[None, None, End]) -> None:
        end = End(TurnStatus.FAILED, TurnError(_INTERNAL, HTTP_STATUS[ErrorKind.INTERNAL]))
        self._emit("turn/started", {"turn": self._turn.shown()})
        try:
            end = await work
        except asyncio.CancelledError:
            end = _INTERRUPTED
            raise
        finally:
            self._close(end)

    def _close(self, end: End) -> None:
        """End the turn: the one place, passed once."""
        self._turn = replace(self._turn, status=end.status, error=end.error)
        if end.error is not None:
            error = end.error.shown()
            self._emit("error", {"turnId": self._turn.id, "error": error, "willRetry": False})
        hosted = self._hosted
        hosted.thread = hosted.thread.ended(self._turn, self._ground.now_s())
        hosted.running = None
        self._emit("turn/completed", {"turn": self._turn.shown()})
        self._ground.save(hosted.thread)

    async def _rounds(self) -> End:
        rounds = 0
        while rounds < self._ground.rounds_max:
            self._take_in()
            heard, error = await self._infer(compacts=False)
            if heard.calls:
                await self._call(heard.calls)
            if self._interrupted:
                return _INTERRUPTED
            more = bool(heard.calls) or _wants_more(heard)
            if not (more or self._steers):
                return End(TurnStatus.COMPLETED) if error is None else End(TurnStatus.FAILED, error)
            rounds += more
        words = f"The model called tools in {rounds} rounds without an end. Send a message to go on."
        return End(TurnStatus.FAILED, TurnError(words, HTTP_STATUS[ErrorKind.INVALID]))

    def _take_in(self) -> None:
        """Put what the user sent into the history."""
        steers, self._steers = self._steers, []
        for message, content in steers:
            item = UserMessage(self._item_id(), content)
            self._put("item/started", item)
            self._put("item/completed", item)
            self._extend((message,))
        if steers:
            self._ground.save(self._as_interrupted())

    def _as_interrupted(self) -> Thread:
        """Return the thread as it is when the gateway's process ends in the midst of this turn."""
        return self._hosted.thread.ended(replace(self._turn, status=TurnStatus.INTERRUPTED), self._ground.now_s())

    async def _summary(self) -> End:
        item = Compaction(self._item_id())
        self._put("item/started", item)
        heard, error = await self._infer(compacts=True)
        if self._interrupted:
            return _INTERRUPTED
        summary = "".join(part.text for part in _said(heard.items))
        complete = isinstance(heard.end, Ended) and heard.end.stop in _SUMMARY_STOPS and not heard.calls
        if error is None and not (complete and summary.strip()):
            words = "The model wrote no complete summary; the thread is as it was. Please try again."
            error = TurnError(words, HTTP_STATUS[ErrorKind.UPSTREAM])
        if error is not None:
            return End(TurnStatus.FAILED, error)
        self._hosted.thread = replace(self._hosted.thread, history=compacted(summary), context_full=False)
        self._put("item/completed", replace(item, summary=summary))
        self._emit("thread/compacted", {"turnId": self._turn.id})
        return End(TurnStatus.COMPLETED)

    # --- an inference ---

    async def _infer(self, *, compacts: bool) -> tuple[Heard, TurnError | None]:
        """Run one inference and keep what is to be kept of it. Its error is None where the model answered."""
        thread, ground = self._hosted.thread, self._ground
        asking = Asking(thread.id, thread.settings, thread.history, self._headers, compacts)
        if self._interrupted:
            return Heard((), None, None), None
        try:
            asked = inference_of(asking, ground.body_bytes_max, ground.gateway.secret)
        except BadInput as error:
            heard = Heard((), Broken(error.kind, error.status, error.kind.value, error.message), None)
            self._keep(heard, compacts=compacts)
            return heard, TurnError(error.message, error.status)
        said = Said(thread.settings.protocol, self._item_id)
        tell = _deaf if compacts else self._tell
        answering = Answering(asked, ground.new_id("req"), thread.tenant, said, tell)
        answering.cutting = lambda: ground.life.cutting
        self._said = None if compacts else said
        self._inferring = asyncio.ensure_future(infer(ground.gateway, asked, answering))
        try:
            await _finished(self._inferring)
        finally:
            self._inferring = self._said = None
            heard = answering.heard()
            self._keep(heard, compacts=compacts)
        return heard, _error_of(heard, answering)

    def _keep(self, heard: Heard, *, compacts: bool) -> None:
        """Take over what an answer leaves: its usage, what the model is handed back, whether the context is full.

        Of an answer that failed before it said anything, the words that it was to answer go as well: sent again, they
        are the same request. Whoever interrupts or steers keeps them.
        """
        thread, end = self._hosted.thread, heard.end
        if heard.tokens is not None:
            thread = replace(thread, usage=thread.usage.plus(heard.tokens))
        full = _is_full(heard)
        if full or (isinstance(end, Ended) and not compacts):
            thread = replace(thread, context_full=full)
        self._hosted.thread = thread
        if heard.tokens is not None:
            usage = {"turnId": self._turn.id, "tokenUsage": thread.usage.shown()}
            self._emit("thread/tokenUsage/updated", usage)
        if compacts:
            return
        if heard.items:
            self._extend(heard.items)
            self._unanswered = len(self._hosted.thread.history)
        elif not (isinstance(end, Ended) or self._interrupted or self._steers or self._ground.life.cutting):
            self._hosted.thread = replace(thread, history=thread.history[: self._unanswered])

    # --- tools ---

    async def _call(self, calls: tuple[ToolCall, ...]) -> None:
        """Have the tools run, all at once. Every call gets an answer, so that the next request can be sent."""
        answers: dict[int, ToolResult] = {}
        work = self._all(calls, answers)
        self._calling = asyncio.ensure_future(work)
        if self._interrupted:
            self._calling.cancel()
        try:
            await _finished(self._calling)
        finally:
            self._calling = None
            interrupted = ToolResult("", (Text(UNANSWERED),), is_error=True)
            results = (answers.get(at, replace(interrupted, call_id=call.call_id)) for at, call in enumerate(calls))
            self._extend(tuple(results))
            self._unanswered = len(self._hosted.thread.history)

    async def _all(self, calls: tuple[ToolCall, ...], answers: dict[int, ToolResult]) -> None:
        async def one(at: int, call: ToolCall) -> None:
            answers[at] = await self._one(call)

        await asyncio.gather(*(one(at, call) for at, call in enumerate(calls)))

    async def _one(self, call: ToolCall) -> ToolResult:
        item = ToolUse(self._item_id(), call.tool.name, arguments_of(call))
        ended = replace(item, progress=Progress.FAILED, success=False)
        self._put("item/started", item)
        try:
            answer = await self._asked(call)
            progress = Progress.COMPLETED if answer.success else Progress.FAILED
            content = shown_content(answer.content_items)
            ended = replace(item, progress=progress, content=content, success=answer.success)
            return tool_result(call, answer.content_items, success=answer.success)
        finally:
            self._put("item/completed", ended)

    async def _asked(self, call: ToolCall) -> ToolAnswer:
        known = {tool.ref.name for tool in self._hosted.thread.settings.tools}
        if call.tool.name not in known:
            return no_answer(NO_SUCH_TOOL)
        return await self._hosted.tools.run(self._turn.id, call, self._resolved)

    def _resolved(self, request_id: str) -> None:
        self._emit("serverRequest/resolved", {"requestId": request_id})

    # --- what is shown ---

    def _tell(self, told: Told) -> None:
        match told:
            case Began(item=item):
                self._put("item/started", item)
            case Done(item=item):
                self._put("item/completed", item)
            case Grew():
                method = "item/reasoning/textDelta" if told.thinks else "item/agentMessage/delta"
                self._emit(method, {"turnId": self._turn.id, "itemId": told.item_id, "delta": told.delta})

    def _put(self, method: str, item: ShownItem) -> None:
        self._turn = self._turn.put(item)
        self._emit(method, {"turnId": self._turn.id, "item": item.shown()})

    def _emit(self, method: str, params: Json) -> None:
        self._hosted.emit(method, params)

    def _extend(self, items: tuple[Item, ...]) -> None:
        thread = self._hosted.thread
        self._hosted.thread = replace(thread, history=(*thread.history, *items))

    def _item_id(self) -> str:
        self._items += 1
        return f"{self._turn.id}-{self._items}"


async def _finished(work: asyncio.Task[None]) -> None:
    """Wait for the end of a step, which may be cancelled alone. Who cancels the turn waits for the step's end, too.

    Raises what went wrong inside it.
    """
    try:
        await asyncio.wait({work})
    except asyncio.CancelledError:
        work.cancel()
        await asyncio.wait({work})
        raise
    if not work.cancelled():
        work.result()


def _deaf(told: Told) -> None:
    """Tell nobody: the words of a summary are no part of the conversation that a client watches."""


def _said(items: tuple[Item, ...]) -> tuple[Text, ...]:
    return tuple(part for item in items if isinstance(item, Message) for part in item.parts if isinstance(part, Text))


def _wants_more(heard: Heard) -> bool:
    return isinstance(heard.end, Ended) and heard.end.stop is Stop.PAUSE


def _is_full(heard: Heard) -> bool:
    """Whether the provider said that the context is full; a stop of the guard never says so (R23)."""
    match heard.end:
        case Ended(stop=stop):
            return stop is Stop.CONTEXT_FULL
        case Broken(code=code):
            return code == CONTEXT_FULL
        case None:
            return False


def _error_of(heard: Heard, answering: Answering) -> TurnError | None:
    match heard.end:
        case Ended(stop=Stop.CONTEXT_FULL):
            words = "The context is full: the model had no room to end its answer. Compact the thread."
            return TurnError(words, HTTP_STATUS[ErrorKind.INVALID], context_full=True)
        case Ended():
            return None
        case Broken() as broken:
            return TurnError(broken.message, broken.status, _is_full(heard), answering.stop)
        case None:
            missing = cut_short()
            return TurnError(missing.message, missing.status)
