"""One caller's conversation, and the session of the runtime that it lives in."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from cachegate.providers.copilot.native import EXITED, NativeSession, Opening, Permit, Runtime
from cachegate.wire.copilot.event_reader import Heard, TurnReader
from cachegate.wire.copilot.history import Answered, Called, Returned, Said, Step, mark
from cachegate.wire.copilot.plan import Continue, Rebuild, plan
from cachegate.wire.copilot.seed import Journal, seed
from cachegate.wire.copilot.setup import Setup
from cachegate.wire.seen import Reseed
from cachegate.wire.sessions import Known, Reason
from cachegate.wire.usage_readings import Fields

IDLE_S = 5.0
"""For a session to come to rest after its answer; one that does not is rebuilt."""


class Turn:
    """One request while it is answered."""

    __slots__ = ("heard", "reader", "retry_after", "returned", "said", "steps")

    def __init__(self, reader: TurnReader, steps: tuple[Step, ...]) -> None:
        self.reader = reader
        self.steps = steps
        """Of the caller's whole conversation."""
        self.heard: asyncio.Queue[Heard] = asyncio.Queue()
        self.said: list[str] = []
        """Ids of the events by which the session took in what the user said."""
        self.returned: dict[str, str] = {}
        """By call, the id of the event that says that it got its result."""
        self.retry_after = ""
        """The time to wait that the provider named."""

    def wait(self, retry_after: str) -> None:
        """Note the time to wait."""
        self.retry_after = retry_after


class Conversation:
    """A live session, and what it has of the conversation."""

    def __init__(self, runtime: Runtime, new_id: Callable[[], str]) -> None:
        self._runtime = runtime
        self._new_id = new_id
        self._native: NativeSession | None = None
        self._known: Known | None = None
        self._ends: tuple[str, ...] = ()
        self._effort: str | None = None
        self._tools: frozenset[str] = frozenset()
        self._turn: Turn | None = None
        self._session_id = ""
        self._at_rest = asyncio.Event()

    @property
    def waits(self) -> bool:
        """Whether calls of the model wait for their results."""
        return self._known is not None and bool(self._known.pending)

    async def begin(
        self, setup: Setup, steps: tuple[Step, ...], reader: TurnReader, on_sent: Callable[[], None]
    ) -> tuple[Turn, Reseed | None]:
        """Let the model answer a request: with what is new in it, or from a history written anew.

        Raises BadInput for a conversation that cannot be answered, and then nothing has changed; UpstreamError when the
        runtime fails.
        """
        decided = plan(self._known, setup.digest, steps, setup.window)
        if isinstance(decided, Continue) and (why := await self._hindrance()):
            decided = plan(replace(self._known or Known(), broken=why), setup.digest, steps)
        reseed = None
        if isinstance(decided, Rebuild):
            reseed = await self._rebuild(decided, setup, steps)
        elif setup.effort not in {None, self._effort}:
            await self._live.set_effort(setup.effort or "")
        self._known = replace(self._known or Known(), window=setup.window)
        self._effort = setup.effort or self._effort
        self._tools = frozenset(tool.name for tool in setup.tools)
        turn = self._turn = Turn(reader, steps)
        self._live.allow(Permit(on_sent, turn.wait))
        returned = decided.returned if isinstance(decided, Continue) else ()
        if decided.said or not returned:
            self._at_rest.clear()
            await self._live.say(decided.said, setup.schema, steering=bool(returned))
        for each in returned:
            self._live.give(each)
        return turn, reseed

    def finish(self) -> None:
        """Note what the session has now: the request's steps and the answer, which ended.

        One that cannot be gone on with is left to `settle`, so that the runtime does not go on by itself either.
        """
        turn, known = self._turn, self._known
        if turn is None or known is None or turn.reader.why:
            return
        self._turn = None
        answer = Answered(turn.reader.text, tuple(Called(*call) for call in turn.reader.calls))
        # The runtime answers a call of a tool that nobody declared by itself, and goes on without us.
        strange = any(call.name not in self._tools for call in answer.calls)
        self._known = replace(
            known,
            marks=(*map(mark, turn.steps), mark(answer)),
            pending=frozenset() if strange else frozenset(call.call_id for call in answer.calls),
            broken=Reason.UNKNOWN_TOOL if strange else "",
        )

    async def settle(self) -> None:
        """End a request, however it ended. An answer that did not end well is stopped; what was before it is kept."""
        turn, self._turn = self._turn, None
        if turn is None:
            return
        if self._known is not None:
            self._known = replace(self._known, pending=frozenset(), broken=turn.reader.why or Reason.CANCELLED)
        if self._native is not None:
            await self._native.abort()

    async def sleep(self) -> bool:
        """End the session: what it kept is in memory, and goes with it."""
        await self.close()
        return False

    async def close(self) -> None:
        """End the session."""
        native, self._native = self._native, None
        self._known = None
        if native is not None:
            await native.close()

    @property
    def _live(self) -> NativeSession:
        assert self._native is not None  # noqa: S101 -- a plan goes on with a session only where there is one
        return self._native

    async def _hindrance(self) -> str:
        """Return why the session cannot be gone on with right now; "" when it can."""
        if not await self._live.alive():
            return Reason.PROCESS_EXITED
        if self.waits:
            return ""
        try:
            async with asyncio.timeout(IDLE_S):
                await self._at_rest.wait()
        except TimeoutError:
            return Reason.BUSY
        return ""

    async def _rebuild(self, decided: Rebuild, setup: Setup, steps: tuple[Step, ...]) -> Reseed:
        old, self._native, self._session_id = self._native, None, ""
        self._known = self._effort = None  # first of all: nothing is known of a session that was never begun
        journal = Journal(await old.close() if old is not None else (), self._ends)
        native = journal.until(decided.kept)
        if native is None:
            again = plan(None, setup.digest, steps)
            assert isinstance(again, Rebuild)  # noqa: S101 -- nothing known is never gone on with
            decided, native = replace(again, reason=decided.reason), ()
        session_id = self._new_id()
        history = seed(session_id, native, decided.past)
        events = b"".join(line + b"\n" for line in history.lines) if native or decided.past else b""
        self._ends = (*journal.ends[: decided.kept], *history.ends)
        self._session_id = session_id
        self._native = await self._runtime.open(Opening(session_id, setup, events), partial(self._hear, session_id))
        self._known = Known(tuple(map(mark, steps[: len(self._ends)])), setup=setup.digest)
        return Reseed(decided.reason)

    def _hear(self, session_id: str, event: Fields) -> None:
        if session_id != self._session_id:
            return  # an old session's last words
        if event.get("type") == "session.idle":
            self._at_rest.set()
        turn = self._turn
        if turn is None:
            if event is EXITED and self._known is not None:
                self._known = replace(self._known, pending=frozenset(), broken=Reason.PROCESS_EXITED)
            return
        heard = turn.reader.exited() if event is EXITED else turn.reader.read(event)
        if heard.said is not None:
            turn.said.append(heard.said)
        if heard.returned is not None:
            turn.returned[heard.returned[0]] = heard.returned[1]
        if heard.answered is not None:
            self._ends = (*self._ends, *self._ends_of(turn), heard.answered)
        if heard.events or heard.seen:
            turn.heard.put_nowait(heard)

    def _ends_of(self, turn: Turn) -> tuple[str, ...]:
        """Return the events that complete the request's own steps, those that were new in it."""
        said = iter(turn.said)
        new = turn.steps[len(self._ends) :]
        return tuple(
            turn.returned.get(step.call_id, "") if isinstance(step, Returned) else next(said, "")
            for step in new
            if isinstance(step, Returned | Said)
        )
