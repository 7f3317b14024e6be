"""An event loop whose clock jumps to the next timer: hours of waiting pass in milliseconds, the same way every time.

It serves no sockets and no threads; what needs one waits for nothing, which is an error here and no hang.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

START_S = 1_000_000.0
"""Far from zero, so that nothing leans on where a steady clock begins."""

Answer = TypeVar("Answer")


class StandstillError(RuntimeError):
    """Everything waits, and no timer will ever wake anything."""


class _Jump(selectors.SelectSelector):
    """Finds no socket ready, ever; instead of waiting it moves the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = START_S

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise StandstillError("everything waits, and no timer is set")
        self.now_s += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An ordinary loop on a clock of its own."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.now_s


def run(main: Coroutine[Any, Any, Answer]) -> Answer:
    """Run `main` in virtual time, and everything it left running to its end."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(_to_the_end(main))


async def _to_the_end(main: Coroutine[Any, Any, Answer]) -> Answer:
    answer = await main
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others)
    return answer
