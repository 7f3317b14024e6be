"""Explores every state that a budget can get into, with a claim watching each step.

The numbers are a small alphabet: a request is small, large or larger; it reads nothing, a static prefix, everything
that the one before left, or nobody knows. What a step means for a claim (`cold`, `reuse`) is worked out here from the
tokens, not asked of the guard. Breadth first, so the way to a broken claim is the shortest there is.
"""

from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from cachegate.guard.budget import Entry
from cachegate.guard.machine import Decision, Settled
from cachegate.guard.policy import Policy
from guard.player import decision_word, settlement_word
from guard.subject import REAL, Guard

SMALL, STATIC, LARGE, LARGER = 1_000, 20_000, 200_000, 600_000
"""Tokens."""
FULL_KB = 800
"""Conversation of a request where sizes do not matter."""
LITTLE_KB, MUCH_KB = 100, 900
"""Whole input where tokens are unknown: on either side of 262,144 bytes."""
ALL, ENOUGH = -100, -75
"""As `read`: so many percent of what the request before left."""


class BrokenError(Exception):
    """A step that a claim forbids."""


class OutOfScopeError(Exception):
    """A step that a claim says nothing about; what comes after it is not looked at."""


@dataclass(frozen=True, slots=True)
class End:
    """One way for a request to end."""

    total: int | None
    read: int | None
    ending: str = "completed"
    input_kb: int = MUCH_KB
    began: bool = True
    changed: bool = False

    @property
    def words(self) -> str:
        """Say it as a table does."""
        read = "?" if self.read is None else f"{-self.read}%" if self.read < 0 else self.read
        total = "?" if self.total is None else self.total
        never, change = "" if self.began else " never began", " client change" if self.changed else ""
        return f"{total}/{read} {self.input_kb}KB {self.ending}{never}{change}"


@dataclass(frozen=True, slots=True)
class Move:
    """One thing that can happen next: a pause, then a request that asks, or one that ends, or both in one."""

    wait_ms: int = 0
    ask_kb: int | None = None
    end: End | None = None
    running: int | None = None
    """Which running request ends; None: the one that asks."""


@dataclass(frozen=True, slots=True)
class State:
    """Where a budget stands. Time is counted from here."""

    entry: Entry
    previous: int
    """Total of the last measured request: what it should have left cached."""
    running: tuple[int, ...] = ()
    """Conversation sizes of the requests in flight."""


@dataclass(frozen=True, slots=True)
class Happened:
    """A step, as the claims see it."""

    move: Move
    silent: bool
    """It began after real silence: five minutes, and nothing running."""
    decision: Decision | None
    settled: Settled | None
    ended_kb: int
    cold: bool
    """A large input was, or may have been, processed again."""
    reuse: bool
    read: int
    before: State
    after: State

    @property
    def row(self) -> str:
        """Say it as a table does."""
        parts = [f"+{self.move.wait_ms}ms"]
        if self.move.ask_kb is not None:
            parts.append(f"ask {self.move.ask_kb}KB")
        if self.move.end is not None and self.settled is not None:
            parts.append(f"end {self.move.end.words}")
        parts.append("->")
        if self.decision is not None:
            parts.append(decision_word(self.decision))
        if self.settled is not None:
            parts.append(settlement_word(self.settled))
        return " ".join([*parts, f"count={self.after.entry.count} used={self.after.entry.rebuilds_used}"])


@dataclass(slots=True)
class World:
    """A guard, a policy, and what can happen."""

    alphabet: tuple[Move, ...]
    """Requests that ask and end in one, or only ask. Ends of running requests are added to them."""
    ends: tuple[End, ...] = ()
    running_max: int = 0
    policy: Policy = field(default_factory=Policy)
    guard: Guard = REAL
    _known: dict[tuple[State, Move], Happened] = field(default_factory=dict)

    def steps(self, state: State) -> Iterator[Happened]:
        """Return every step that can follow."""
        for move in self._moves(state):
            if state.previous > 0 or not _reads_what_was_left(move):
                yield self.step(state, move)

    def step(self, state: State, move: Move) -> Happened:
        """Let one thing happen; the same again is remembered."""
        known = self._known.get((state, move))
        if known is None:
            known = self._known[state, move] = self._take(state, move)
        return known

    def _take(self, state: State, move: Move) -> Happened:
        entry, running, now_ms = state.entry, list(state.running), move.wait_ms
        silent = not running and move.wait_ms >= self.policy.idle_ms and move.ask_kb is not None
        previous = 0 if silent else state.previous
        decision: Decision | None = None
        settled: Settled | None = None
        ended_kb, end = 0, move.end
        if move.ask_kb is not None:
            entry, decision = self.guard.admit(entry, self.guard.ask(move.ask_kb), now_ms, self.policy)
            if not decision.runs:
                end = None
            elif end is None:
                running.append(move.ask_kb)
        cold = reuse = False
        read = 0
        if end is not None:
            ended_kb = running.pop(move.running or 0) if move.ask_kb is None else move.ask_kb
            seen = _read(end, previous)
            entry, settled = self._settle(entry, end, seen, ended_kb, now_ms)
            cold, reuse = self._meaning(end, seen, previous)
            read = seen or 0
            if end.total is not None and seen is not None:
                previous = end.total
        after = State(self._from_here(entry, now_ms), previous, tuple(sorted(running)))
        return Happened(move, silent, decision, settled, ended_kb, cold, reuse, read, state, after)

    def _moves(self, state: State) -> Iterator[Move]:
        for move in self.alphabet:
            if move.end is not None or len(state.running) < self.running_max:
                yield move
        for place in range(len(state.running)):
            yield from (Move(end=end, running=place) for end in self.ends)
            yield Move(wait_ms=self.policy.idle_ms, end=self.ends[0], running=place)

    def _settle(self, entry: Entry, end: End, read: int | None, ended_kb: int, now_ms: int) -> tuple[Entry, Settled]:
        result = self.guard.result(
            usage=self.guard.usage(end.total, read),
            ending=self.guard.ending(end.ending),
            conversation_bytes=ended_kb,
            input_bytes=end.input_kb * 1_000,
            began=end.began,
            client_changed=end.changed,
        )
        return self.guard.settle(entry, result, now_ms, self.policy)

    def _meaning(self, end: End, read: int | None, previous: int) -> tuple[bool, bool]:
        """Return whether an end was cold, and whether it was reuse."""
        if end.total is None or read is None:
            large = end.input_kb == MUCH_KB if end.total is None else end.total >= LARGE
            return large and (end.began or end.ending != "failed"), False
        uncached = end.total - read
        if read and (read * 4 >= previous * 3 > 0 or read >= uncached):
            return False, True
        return uncached >= self.policy.large_tokens, False

    def _from_here(self, entry: Entry, now_ms: int) -> Entry:
        """Count time from now, and let what no longer makes a difference look the same."""
        count = min(entry.count, self.policy.limit + 1)
        active_ms = max(entry.active_ms - now_ms, -self.policy.idle_ms)
        if (count, active_ms) == (entry.count, entry.active_ms):
            return entry
        return replace(entry, count=count, active_ms=active_ms)


Ghost = TypeVar("Ghost", bound=Hashable)


class Claim(Protocol[Ghost]):
    """Watches each step with a memory of its own.

    Raises BrokenError for a step that must not be, OutOfScopeError for one that it says nothing about.
    """

    def begin(self) -> Ghost:
        """Return the memory at the start."""

    def watch(self, memory: Ghost, step: Happened, policy: Policy) -> Ghost:
        """Look at a step and return the new memory."""


@dataclass(frozen=True, slots=True)
class Explored:
    """What became of a claim."""

    states: int
    broken: str
    """The shortest way to break it, one row a line; empty when it holds."""


def explore(world: World, claim: Claim[Ghost]) -> Explored:
    """Look at every state that can be reached from a fresh budget."""
    start = (State(Entry(), 0), claim.begin())
    came_from: dict[tuple[State, Ghost], tuple[tuple[State, Ghost], Happened] | None] = {start: None}
    waiting = deque([start])
    while waiting:
        here = waiting.popleft()
        state, memory = here
        for step in world.steps(state):
            try:
                there = (step.after, claim.watch(memory, step, world.policy))
            except OutOfScopeError:
                continue
            except BrokenError as broken:
                return Explored(len(came_from), f"{broken}\n{_way(came_from, here, step)}")
            if there not in came_from:
                came_from[there] = (here, step)
                waiting.append(there)
    return Explored(len(came_from), "")


def _way(
    came_from: dict[tuple[State, Ghost], tuple[tuple[State, Ghost], Happened] | None],
    here: tuple[State, Ghost],
    last: Happened,
) -> str:
    rows = [last.row]
    origin = came_from[here]
    while origin is not None:
        here, step = origin
        rows.append(step.row)
        origin = came_from[here]
    return "\n".join(f"  {row}" for row in reversed(rows))


def _reads_what_was_left(move: Move) -> bool:
    return move.end is not None and move.end.read is not None and move.end.read < 0


def _read(end: End, previous: int) -> int | None:
    """Return the tokens read from the cache; no more than there were."""
    if end.read is None or end.read >= 0:
        return end.read
    return min(previous * -end.read // 100, end.total or 0)
