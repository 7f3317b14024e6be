"""Load on a gateway while it is upgraded again and again: fresh, kept-alive and streaming clients at once.

The clients are bare sockets that neither retry nor reconnect on their own: whatever is lost, they see. Beside the load
a stopped conversation is asked all the time, and around every upgrade a conversation has one miss on either side of it.
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from benchmarks.raw_clients import LARGE, answer_of, ask, connected, request

CONFIG = """\
listen: 127.0.0.1:0
providers:
  synthetic: {kind: synthetic, paceSeconds: 0.05}
  long: {kind: synthetic, paceSeconds: 0.4}
"""
"""`synthetic/slow` streams for half a second, `long/slow` for five: longer than the grace."""
KEPT_PAUSE_S = 0.05
"""At most so long does a kept-alive client wait between two requests."""
STOPPED_PAUSE_S = 0.02
PROBLEMS_MAX = 20
MISSES = 2
"""Counted requests after which the guard stops a conversation."""
STOP, RUNS = 400, 200

Upgrade = Callable[[], Awaitable[float]]
"""Upgrades and returns the seconds it took. Raises AssertionError when it does not."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of what."""

    requests_min: int = 30_000
    upgrades: int = 12
    fresh: int = 4
    kept: int = 20
    brief: int = 12
    long: int = 8


@dataclass(slots=True)
class Outcome:
    """What came of it."""

    answered: Counter[str] = field(default_factory=Counter)
    """Complete, right answers by kind of client."""
    failed: int = 0
    problems: list[str] = field(default_factory=list)
    """The first failures, in words."""
    told_to_close: int = 0
    upgrades_s: list[float] = field(default_factory=list)
    stopped_late: int = 0
    """Conversations with a miss on either side of an upgrade that were not stopped."""

    @property
    def requests(self) -> int:
        """All requests made."""
        return sum(self.answered.values()) + self.failed

    def note(self, kind: str, problem: str) -> None:
        """Count one request."""
        if not problem:
            self.answered[kind] += 1
            return
        self.failed += 1
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(f"{kind}: {problem}")


async def under_load(port: int, plan: Plan, upgrade: Upgrade) -> Outcome:
    """Upgrade as often as planned, and on until enough requests were made; every client ends its last request."""
    outcome, ending = Outcome(), asyncio.Event()
    for _ in range(MISSES):
        await _cold(port, "stopped")
    load = _Load(port, outcome, ending)
    tasks = [
        *(asyncio.create_task(load.fresh()) for _ in range(plan.fresh)),
        *(asyncio.create_task(load.kept(number)) for number in range(plan.kept)),
        *(asyncio.create_task(load.streaming("synthetic/slow")) for _ in range(plan.brief)),
        *(asyncio.create_task(load.streaming("long/slow")) for _ in range(plan.long)),
        asyncio.create_task(load.stopped()),
    ]
    try:
        while len(outcome.upgrades_s) < plan.upgrades or outcome.requests < plan.requests_min:
            thread = f"across {len(outcome.upgrades_s)}"
            across = [await _cold(port, thread)]
            outcome.upgrades_s.append(await upgrade())
            across += [await _cold(port, thread), await _cold(port, thread)]
            outcome.stopped_late += across != [RUNS, RUNS, STOP]
    finally:
        ending.set()
        await asyncio.gather(*tasks)
    return outcome


async def _cold(port: int, thread: str) -> int:
    """Ask without any reuse; the pause lets the guard settle it, for the next one may reach another worker."""
    status, _ = await ask(port, "cold", said=LARGE, thread=thread)
    await asyncio.sleep(STOPPED_PAUSE_S)
    return status


@dataclass(frozen=True, slots=True)
class _Load:
    port: int
    outcome: Outcome
    ending: asyncio.Event

    async def fresh(self) -> None:
        """Ask over a new connection each time, without a pause."""
        while not self.ending.is_set():
            await self._try("fresh", lambda: ask(self.port, "cache"), RUNS)

    async def stopped(self) -> None:
        """Ask in the stopped conversation, which must stay stopped."""
        while not self.ending.is_set():
            await self._try("stopped", lambda: ask(self.port, "cold", said=LARGE, thread="stopped"), STOP)
            await asyncio.sleep(STOPPED_PAUSE_S)

    async def streaming(self, model: str) -> None:
        """Stream answer after answer; each has to be complete."""
        while not self.ending.is_set():
            await self._try(model, lambda: ask(self.port, model, stream=True), RUNS)

    async def kept(self, seed: int) -> None:
        """Ask over one connection for as long as the gateway keeps it."""
        dice = random.Random(seed)  # noqa: S311 -- pauses, no secrets
        while not self.ending.is_set():
            async with connected(self.port) as (reader, writer):
                close = False

                async def once() -> tuple[int, bytes]:
                    nonlocal close
                    close = True  # a failure ends the connection
                    writer.write(request("cache", stream=False))
                    status, headers, body = await answer_of(reader)
                    close = headers.get("connection") == "close"
                    return status, body

                while not close and not self.ending.is_set():
                    await self._try("kept", once, RUNS)
                    await asyncio.sleep(dice.random() * KEPT_PAUSE_S)
                self.outcome.told_to_close += close

    async def _try(self, kind: str, once: Callable[[], Awaitable[tuple[int, bytes]]], wanted: int) -> None:
        try:
            status, body = await once()
        except (OSError, EOFError, TimeoutError) as error:
            self.outcome.note(kind, f"{type(error).__name__}: {error}")
            return
        problem = "" if status == wanted else f"status {status}"
        self.outcome.note(kind, problem or ("" if _whole(body) else f"cut answer: {body[-80:]!r}"))


def _whole(body: bytes) -> bool:
    """Tell whether an answer is complete: a stream by its last event, anything else by being JSON."""
    if body.startswith((b"event:", b"data:", b":")):
        return b'"type":"response.completed"' in body
    try:
        return isinstance(json.loads(body), dict)
    except ValueError:
        return False
