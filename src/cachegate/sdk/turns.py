"""One turn at a time, and how it is ended from outside: from another task, or from another thread."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from types import TracebackType
from typing import Self

from cachegate.sdk.errors import BrokenAnswer, Busy, Interrupted
from cachegate.sdk.events import Answer, Completed, Event


class Interruption:
    """Stands around the awaits of one turn; an `ask` ends the await that it meets, or else the next one.

    It does what `asyncio.timeout` does, with a person in the place of the clock: the waiting task is cancelled, and
    only its own cancellation becomes Interrupted. A cancellation by anybody else stays one.
    """

    __slots__ = ("_cancelling", "_loop", "_task", "asked", "then")

    def __init__(self) -> None:
        self.asked = False
        self.then: Callable[[], None] = lambda: None
        """Done at once when asked, whatever the turn is doing."""
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0

    def ask(self) -> None:
        """Interrupt, from any task or thread; asking twice changes nothing."""
        self._loop.call_soon_threadsafe(self._ask)

    def _ask(self) -> None:
        if not self.asked:
            self.asked = True
            if self._task is not None:
                self._task.cancel()
            self.then()

    def __enter__(self) -> Self:
        if self.asked:
            raise Interrupted
        self._task = asyncio.current_task()
        self._cancelling = 0 if self._task is None else self._task.cancelling()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if self.asked and task is not None and kind is asyncio.CancelledError and task.uncancel() <= self._cancelling:
            raise Interrupted from None


class Turns:
    """The turns of one chat."""

    __slots__ = ("_running",)

    def __init__(self) -> None:
        self._running: Interruption | None = None

    @contextmanager
    def begin(self) -> Iterator[Interruption]:
        """Run a turn. Raises Busy while another one runs."""
        if self._running is not None:
            raise Busy("This chat runs a turn already. Wait for its end, or interrupt it.")
        self._running = Interruption()
        try:
            yield self._running
        finally:
            self._running = None

    def interrupt(self) -> bool:
        """Interrupt the running turn, from any task or thread; return whether there was one."""
        running = self._running
        if running is not None:
            running.ask()
        return running is not None


async def answer_of(events: AsyncGenerator[Event, None]) -> Answer:
    """Run a turn to its end and return what it came to. Raises what the turn raises."""
    async with aclosing(events):
        async for event in events:
            if isinstance(event, Completed):
                return event.answer
    raise BrokenAnswer("The turn ended without an answer.")
