"""A chat that the gateway hosts: its history and its turns live there, and this is one who listens.

When the socket is lost, the turn goes on in the gateway. The chat opens the socket again, resumes behind the last event
that it handed out, and loses and repeats none. A request whose answer was lost is never sent again: whether its turn
began is read from the thread.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from cachegate.sdk import tools as tool_rules
from cachegate.sdk.control import Control, Lost
from cachegate.sdk.conversation import Input, Json, Text, parts_of
from cachegate.sdk.errors import BrokenAnswer, CachegateError, Closed, Interrupted, ProviderError, Unreachable
from cachegate.sdk.events import Answer, Compacted, Completed, Event, ToolAnswered, ToolCalled, Usage
from cachegate.sdk.frames import Notification, Params
from cachegate.sdk.hosted_turn import TurnReader, is_context_full, usage_of
from cachegate.sdk.tools import Tool
from cachegate.sdk.turns import Interruption, Turns, answer_of

DELAYS_S = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 5.0, 5.0, 10.0, 10.0, 10.0, 10.0)
"""Pauses before each attempt to resume: a gateway that restarts is back within a minute, or stays away."""
INTERRUPT_S = 10.0
"""Seconds for the gateway to tell how an interrupted turn ended; the upstream itself stops within one."""
BEGIN_S = 60.0
"""Seconds for a turn to begin."""
WAITING_MAX = 100_000
"""Events that may wait for a listener. With more the socket is given up, and resumed once there is room."""
_NO_TURN = "no_turn"
_LOST = "lost"


class AsyncHostedChat:
    """One thread; made by `AsyncClient.hosted_chat` and `AsyncClient.resume`."""

    def __init__(self, control: Control, thread: Params, tools: Sequence[Tool] = (), cursor: str | None = None) -> None:
        self._control = control
        self._loop = asyncio.get_running_loop()
        self._tools = tuple(tools)
        self._turns = Turns()
        self._waiting: asyncio.Queue[Notification | None] = asyncio.Queue()
        """What was not handed out yet; None where the socket was lost."""
        self._placed = cursor is not None
        """Whether the caller knew a place to begin behind."""
        self._holding = True
        """Whether what comes waits for a listener. A chat that was resumed is asked for what it missed."""
        self._left: _Listened | None = None
        """The turn that is listened to, or whose listener left before its end."""
        self._attached = False
        self._replaced = False
        self._missed = ""
        """What the newest resume said about it: `replayed`, `none` or `lost`."""
        self._newest: str | None = None
        """The place behind the last event that the newest resume sends again."""
        self._behind = False
        """Whether such events are still to come."""
        self._shown: tuple[Params, ...] = ()
        """The turns of the newest snapshot."""
        self._stopping: set[asyncio.Task[None]] = set()
        self._running: dict[tuple[str, str], asyncio.Task[ToolAnswered]] = {}
        self._items: dict[str, tuple[Json, ...]] = {}
        """Of each turn that is known."""
        self._active: str | None = None
        self.id = str(thread.get("id"))
        """The thread's id; `client.resume` takes it."""
        self.model = ""
        """The model that answers."""
        self.cursor = cursor
        """The place behind the last event that was handed out; `client.resume` takes it, too."""
        self._usage = Usage()
        self._context_full = False
        self._take(thread)
        control.attach(self.id, self)
        if "model" in thread:
            # It was begun just now: whoever begins a thread listens to it.
            self._attached, self._holding = control.open, False
            self.cursor = thread.get("cursor")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self.model}>"

    @property
    def usage(self) -> Usage:
        """What the chat took so far, as the gateway counts it."""
        return self._usage

    @property
    def context_full(self) -> bool:
        """Whether the newest request no longer fitted. An answer or a compaction clears it; no cache stop sets it."""
        return self._context_full

    @property
    def history(self) -> tuple[Json, ...]:
        """What was said and done, oldest first, in the control socket's form. A compaction is one item of it."""
        return tuple(item for items in self._items.values() for item in items)

    async def send(self, said: Input) -> Answer:
        """Say something and return what the turn comes to. Raises what errors.py shows."""
        return await answer_of(self.stream(said))

    async def stream(self, said: Input) -> AsyncGenerator[Event, None]:
        """Do the same as `send`, and tell everything as it happens; the last event is Completed.

        A caller that stops listening ends nothing: the turn goes on, and `follow` goes on listening to it.
        """
        content = _content(said)
        with self._turns.begin() as interruption, self._listening():
            self._left = await self._begin(interruption, "turn/start", input=content)
            async with contextlib.aclosing(self._tell(self._left, interruption)) as telling:
                async for event in telling:
                    yield event

    async def follow(self) -> AsyncGenerator[Event, None]:
        """Listen to the turn that runs, or that went on behind the cursor. Raises ProviderError when there is none.

        Where a listener of this chat left, it goes on with the next event.
        """
        with self._turns.begin() as interruption, self._listening():
            with interruption:
                await self.attach()
                self._left = self._left or await self._under_way()
            self._interruptible(self._left.reader, interruption)
            async with contextlib.aclosing(self._tell(self._left, interruption)) as telling:
                async for event in telling:
                    yield event

    def interrupt(self) -> bool:
        """End the running turn, from any task or thread; it raises Interrupted. Return whether one was running."""
        if self._turns.interrupt():
            return True
        if self._active is not None:
            self._loop.call_soon_threadsafe(self._stop, self._active)
        return self._active is not None

    async def steer(self, said: Input) -> None:
        """Say more to the running turn: what was said so far stays, and the model goes on with the new input in mind.

        Raises ProviderError when no turn runs.
        """
        if self._active is None:
            raise ProviderError("No turn runs that could be steered. Use send.", code=_NO_TURN)
        await self._control.call("turn/steer", threadId=self.id, expectedTurnId=self._active, input=_content(said))

    async def compact(self) -> Compacted:
        """Have the gateway replace the conversation by a summary; when that fails, it is what it was."""
        with self._turns.begin() as interruption, self._listening():
            reader = (await self._begin(interruption, "thread/compact/start")).reader
            while reader.end is None:
                await self._more(reader, interruption)
            _completed(reader)
        if reader.summary is None:
            raise ProviderError("The compaction brought no summary. The history is as it was.", code="no_summary")
        return Compacted(reader.summary, reader.tokens)

    # --- what the control socket tells ---

    def hear(self, told: Notification) -> None:
        """See `control.Chat`."""
        if self._waiting.qsize() >= WAITING_MAX:
            self._control.drop()
            return
        self._waiting.put_nowait(told)
        if not self._holding:
            self._catch_up()

    def lost(self) -> None:
        """See `control.Chat`."""
        self._attached = False
        self._waiting.put_nowait(None)

    def replaced(self) -> None:
        """See `control.Chat`."""
        self._replaced = True
        self.lost()

    async def run_tool(self, params: Params) -> Params:
        """See `control.Chat`. A call that is asked for again, on a new socket, is not run again."""
        key = (str(params.get("turnId")), str(params.get("callId")))
        if key not in self._running:
            arguments = params.get("arguments")
            known = arguments if isinstance(arguments, dict) else str(arguments)
            call = ToolCalled(key[1], str(params.get("tool")), known)
            self._running[key] = asyncio.create_task(tool_rules.answered(self._tools, call))
        answered = await self._running[key]
        return {"contentItems": [{"type": "inputText", "text": answered.output}], "success": answered.success}

    # --- listening ---

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        self._holding = True
        try:
            yield
        finally:
            self._holding = self._left is not None
            if not self._holding:
                self._catch_up()

    async def _tell(self, turn: "_Listened", interruption: Interruption) -> AsyncGenerator[Event, None]:
        """Tell a turn to its end. Raises what it ended with."""
        while turn.events or turn.reader.end is None:
            while turn.events:
                yield turn.events.popleft()
            if turn.reader.end is None:
                turn.events.extend(await self._more(turn.reader, interruption))
        self._left = None
        yield _completed(turn.reader)

    def _catch_up(self) -> None:
        """Take in what nobody listens to."""
        while not self._waiting.empty():
            told = self._waiting.get_nowait()
            if told is not None:
                self._note(told)

    def _note(self, told: Notification) -> None:
        """Take in what a notification says about the thread."""
        params = told.params
        turn = params.get("turn")
        if isinstance(params.get("cursor"), str):
            self.cursor = params["cursor"]
            self._behind = self._behind and self.cursor != self._newest
        if told.method == "thread/tokenUsage/updated":
            self._usage = usage_of(params.get("tokenUsage"))
        elif told.method == "thread/compacted":
            self._context_full = False
        elif told.method == "turn/started" and isinstance(turn, dict):
            self._active = str(turn.get("id"))
            self._items.setdefault(self._active, ())
        elif told.method == "turn/completed" and isinstance(turn, dict):
            self._ended(turn)

    def _ended(self, turn: Params) -> None:
        self._items[str(turn.get("id"))] = tuple(turn.get("items") or ())
        if self._active == turn.get("id"):
            self._active = None
        self._running.clear()
        error = turn.get("error")
        if turn.get("status") == "completed":
            self._context_full = False
        elif isinstance(error, dict) and is_context_full(error):
            self._context_full = True

    def _take(self, thread: Params) -> None:
        """Take in a snapshot."""
        self._usage = usage_of(thread.get("tokenUsage"))
        self._context_full = thread.get("contextFull") is True
        self.model = str(thread.get("model"))
        self._shown = tuple(turn for turn in thread.get("turns") or () if isinstance(turn, dict))
        self._items = {str(turn.get("id")): tuple(turn.get("items") or ()) for turn in self._shown}
        last = self._shown[-1] if self._shown else {}
        self._active = str(last.get("id")) if last.get("status") == "inProgress" else None

    async def attach(self, delays_s: Sequence[float] = (0.0,)) -> None:
        """Listen to the thread, behind the last event that was handed out. Raises what the last attempt raised."""
        if self._replaced:
            raise Closed("This client resumed the thread since then. Use the chat that resume returned.")
        failed: CachegateError = Lost("The control socket was lost.")
        for delay_s in () if self._attached else delays_s:
            await asyncio.sleep(delay_s)
            try:
                value = await self._control.call(
                    "thread/resume", threadId=self.id, cursor=self.cursor, dynamicTools=declared(self._tools)
                )
            except (Unreachable, BrokenAnswer) as error:
                failed = error
                continue
            except ProviderError as error:
                # Without a status it is an answer, such as that there is no such thread; with one the gateway restarts.
                if error.status is None:
                    raise
                failed = error
                continue
            self._attached = self._control.open
            if self._attached:
                self._missed = str(value.get("missed"))
                self._take(value.get("thread") or {})
                self._newest = str(value.get("cursor"))
                self._behind = self._missed == "replayed"
                if self._missed != "replayed":
                    self.cursor = self._newest
                return
        if not self._attached:
            raise failed

    async def _begin(self, interruption: Interruption, method: str, **params: object) -> "_Listened":
        """Begin a turn, once. Where the answer is lost, the thread tells whether it began."""
        with interruption:
            await self.attach()
        known, turn = dict(self._items), None
        with contextlib.suppress(Lost):
            turn = (await self._control.call(method, threadId=self.id, **params)).get("turn")
        if isinstance(turn, dict):
            begun = _listened(turn.get("id"))
        else:
            try:
                async with asyncio.timeout(BEGIN_S):
                    begun = await self._begun(known)
            except TimeoutError:
                raise BrokenAnswer(f"The gateway began no turn within {BEGIN_S} seconds.") from None
        self._placed = False
        self._interruptible(begun.reader, interruption)
        return begun

    async def _begun(self, known: Mapping[str, object]) -> "_Listened":
        """Wait for the beginning of a turn that was not known before."""
        while True:
            told = await self._waiting.get()
            if told is not None:
                self._note(told)
                if told.method == "turn/started" and self._active is not None and self._active not in known:
                    return _listened(self._active)
            elif not self._attached:
                await self.attach(DELAYS_S)
                new = [turn for turn in self._shown if str(turn.get("id")) not in known]
                if not new:
                    raise BrokenAnswer(
                        "The socket was lost before the turn began, and it did not begin. Send it again."
                    )
                return _listened(new[0].get("id"), new[0] if self._missed == _LOST else None)

    async def _under_way(self) -> "_Listened":
        """Return the turn to follow, and what of it has to be told at once."""
        placed, self._placed = self._placed, False
        while placed and (self._behind or not self._waiting.empty()):
            told = await self._waiting.get()
            if told is None:
                await self.attach(DELAYS_S)
                continue
            self._note(told)
            turn_id = told.params.get("turnId") or (told.params.get("turn") or {}).get("id")
            if turn_id:
                turn = _listened(turn_id)
                turn.events.extend(turn.reader.hear(told))
                return turn
        if placed and self._missed == _LOST and self._shown:
            return _listened(self._shown[-1].get("id"), self._shown[-1])
        if self._active is None:
            raise ProviderError("No turn runs that could be followed.", code=_NO_TURN)
        # Behind a cursor of the caller's nothing is missing, and what stands before it was told once.
        return _listened(self._active, None if placed else await self._read(self._active))

    async def _read(self, turn_id: str) -> Params:
        """Return a turn as it is now; what waits and is part of that already is not told again."""
        thread = (await self._control.call("thread/read", threadId=self.id)).get("thread") or {}
        self._take(thread)
        waiting = [self._waiting.get_nowait() for _ in range(self._waiting.qsize())]
        places = [None if told is None else told.params.get("cursor") for told in waiting]
        shown = thread.get("cursor")
        for told in waiting[places.index(shown) + 1 if shown in places else 0 :]:
            self._waiting.put_nowait(told)
        return next((turn for turn in self._shown if turn.get("id") == turn_id), {"status": "inProgress"})

    async def _more(self, reader: TurnReader, interruption: Interruption) -> list[Event]:
        """Return what comes next, after resuming where the socket was lost."""
        told = await self._next(interruption)
        if told is not None:
            self._note(told)
            return reader.hear(told)
        if self._attached:
            return []
        with interruption:
            await self.attach(DELAYS_S)
        if self._missed != _LOST:
            return []
        turn = next((turn for turn in self._shown if turn.get("id") == reader.turn_id), None)
        if turn is None:
            raise BrokenAnswer("The gateway no longer knows the turn: what became of it cannot be told.")
        return reader.snapshot(turn)

    async def _next(self, interruption: Interruption) -> Notification | None:
        """Wait for what comes next; once interrupted, only so long."""
        if not interruption.asked:
            with contextlib.suppress(Interrupted), interruption:
                return await self._waiting.get()
        try:
            async with asyncio.timeout(INTERRUPT_S):
                return await self._waiting.get()
        except TimeoutError:
            raise Interrupted from None

    def _interruptible(self, reader: TurnReader, interruption: Interruption) -> None:
        """Have an interruption end this turn in the gateway, at once and whatever its listener does."""
        self._active = reader.turn_id
        interruption.then = partial(self._stop, reader.turn_id)
        if interruption.asked:
            self._stop(reader.turn_id)

    def _stop(self, turn_id: str) -> None:
        task = self._loop.create_task(self._interrupt(turn_id))
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    async def _interrupt(self, turn_id: str) -> None:
        """Interrupt a turn; one that is over needs none."""
        with contextlib.suppress(CachegateError):
            await self._control.call("turn/interrupt", threadId=self.id, turnId=turn_id)


@dataclass(frozen=True, slots=True)
class _Listened:
    """A turn that is listened to, and what of it was read but not handed out."""

    reader: TurnReader
    events: deque[Event]


def _listened(turn_id: object, shown: Params | None = None) -> _Listened:
    """Return a turn to listen to, with what a snapshot of it has to tell at once."""
    reader = TurnReader(str(turn_id))
    return _Listened(reader, deque(() if shown is None else reader.snapshot(shown)))


def _completed(reader: TurnReader) -> Completed:
    if isinstance(reader.end, CachegateError):
        raise reader.end
    assert reader.end is not None  # noqa: S101 -- nobody asks before the end
    return reader.end


def declared(tools: Sequence[Tool]) -> list[Json] | None:
    """Return tools as the control socket declares them; None for none."""
    return [
        {"name": tool.name, "description": tool.description, "inputSchema": tool.parameters} for tool in tools
    ] or None


def _content(said: Input) -> list[Json]:
    """Return an input in the control socket's form. Raises ValueError for one that says nothing."""
    content: list[Json] = [
        {"type": "text", "text": part.text} if isinstance(part, Text) else {"type": "image", "url": part.url}
        for part in parts_of(said)
    ]
    if not content:
        raise ValueError("An empty input says nothing. A hosted chat goes on by itself; use follow to listen.")
    return content
