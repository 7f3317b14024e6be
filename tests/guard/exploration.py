"""Explores every state that a budget can get into, with a claim watching each step.

The numbers are a small alphabet: a request is small, middling, large or larger; it reads nothing, a static prefix, what
the one before left or the larger one before that, or nobody knows. It is made of the same parts as the request that it
is compared with, or differs from it in one way. What a step means for a claim (`cold`, `reuse`) is worked out here from
the tokens, not asked of the guard. Breadth first, so the way to a broken claim is the shortest there is.

The state space is finite because time is counted from now, and because the letters of the request that the next one is
compared with are called A again after every step: all that can matter is which letters are the same.
"""

from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, TypeVar

from cachegate.guard.budget import Entry
from cachegate.guard.fingerprint import ITEM_BYTES, UNKNOWN, Fingerprint
from cachegate.guard.machine import Decision, Settled
from cachegate.guard.policy import Policy
from guard.letters import Letters
from guard.player import cause_word, decision_word, settlement_word
from guard.subject import REAL, Guard, digested

SMALL, STATIC, MIDDLING, LARGE, LARGER = 1_000, 20_000, 30_000, 200_000, 600_000
"""Tokens. Nobody takes a read of STATIC for reuse of MIDDLING; that a smaller one hides it is in `letter.txt`."""
FULL_KB = 800
"""Conversation of a request where sizes do not matter."""
LITTLE_KB, MUCH_KB = 100, 900
"""Whole input where tokens are unknown: on either side of 262,144 bytes."""
ALL, ENOUGH = -100, -75
"""As `read`: so many percent of what the request before left."""
MOST = -1_000
"""As `read`: all that a larger one before it left, where the request before was small and showed nothing."""
NOW_MS = 1_000_000_000
"""Every step begins now."""

DIFFERENCES: dict[str, Letters | None] = {
    "": Letters(),
    "tools": Letters(tools="B"),
    "instructions": Letters(instructions="B"),
    "thinking": Letters(thinking="B"),
    "speed": Letters(speed="B"),
    "opening": Letters(opening="B"),
    "history": Letters(edited=(3,)),
    "window": Letters(opening="B", window="B"),
    "compacted": Letters(opening="B", compacted=True),
    "dropped": Letters(dropped=1),
    "no digests": None,
}
"""How a request can differ from the one that it is compared with."""
_DIGESTED = {name: digested(letters) for name, letters in DIFFERENCES.items()}
_FIRST = _DIGESTED[""]
CLIENT_CHANGES = frozenset({"tools", "instructions", "thinking", "speed", "opening"})
"""Those that excuse a rebuild; the opening only in a conversation that did not shrink."""


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
    """The provider calls it the client's doing."""
    differs: str = ""
    """One of `DIFFERENCES`."""

    @property
    def fingerprint(self) -> Fingerprint | None:
        """Digests of the request, where the one that it is compared with was made of A."""
        return _DIGESTED[self.differs]

    @property
    def worked_on(self) -> bool:
        """Whether the provider did anything with it."""
        return self.began or self.ending != "failed"

    @property
    def words(self) -> str:
        """Say it as a table does."""
        read = "?" if self.read is None else f"{-self.read}%" if self.read < 0 else self.read
        read = "most" if self.read == MOST else read
        total = "?" if self.total is None else self.total
        never, change = "" if self.began else " never began", " client change" if self.changed else ""
        other = f" {self.differs}" if self.differs else ""
        return f"{total}/{read} {self.input_kb}KB {self.ending}{never}{change}{other}"


@dataclass(frozen=True, slots=True)
class Move:
    """One thing that can happen next: a pause, then a request that asks, or one that ends, or both in one."""

    wait_ms: int = 0
    ask_kb: int | None = None
    end: End | None = None
    running: int | None = None
    """Which running request ends; None: the one that asks."""


class Left(NamedTuple):
    """What should be cached: the tokens of the last measured request, and of the largest since one that showed
    something, itself among them."""

    last: int = 0
    most: int = 0

    def reused_by(self, read: int) -> bool:
        """Whether so many tokens are 75 % of what was left; more than the last request had are of a larger one."""
        return read * 4 >= (self.last if read <= self.last else self.most) * 3 > 0


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """Where a budget stands. Time is counted from here. A world has each state once: comparing them is quick."""

    entry: Entry
    left: Left
    running: tuple[int, ...]
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
            parts.append(f"({cause_word(self.settled.cause).partition(' ')[0]})")
        return " ".join([*parts, f"count={self.after.entry.count} used={self.after.entry.rebuilds_used}"])


@dataclass(slots=True)
class World:
    """A guard, a policy, and what can happen."""

    alphabet: tuple[Move, ...]
    """Requests that ask and end in one, or only ask. Ends of running requests are added to them."""
    ends: tuple[End, ...] = ()
    running_max: int = 0
    timed: bool = False
    """Whether it is known how long ago the last request ended, which only causes are made of."""
    policy: Policy = field(default_factory=Policy)
    guard: Guard = REAL
    _states: dict[tuple[Entry, Left, tuple[int, ...]], State] = field(default_factory=dict)
    _steps: dict[State, tuple[Happened, ...]] = field(default_factory=dict)
    _known: dict[tuple[State, Move], Happened] = field(default_factory=dict)

    @property
    def start(self) -> State:
        """Where everything begins."""
        return self._state(Entry(), Left(), ())

    def steps(self, state: State) -> tuple[Happened, ...]:
        """Return every step that can follow."""
        known = self._steps.get(state)
        if known is None:
            known = self._steps[state] = tuple(self._each(state))
        return known

    def _each(self, state: State) -> Iterator[Happened]:
        """Take every step once: how a request would have ended does not matter where it is stopped."""
        stopped: set[tuple[int, int | None]] = set()
        for move in self._moves(state):
            if _possible(move, state.left) and (move.wait_ms, move.ask_kb) not in stopped:
                step = self._take(state, move)
                if step.decision is not None and not step.decision.runs:
                    stopped.add((move.wait_ms, move.ask_kb))
                yield step

    def step(self, state: State, move: Move) -> Happened:
        """Let one thing happen; the same again is remembered."""
        known = self._known.get((state, move))
        if known is None:
            known = self._known[state, move] = self._take(state, move)
        return known

    def _state(self, entry: Entry, left: Left, running: tuple[int, ...]) -> State:
        known = self._states.get((entry, left, running))
        if known is None:
            known = self._states[entry, left, running] = State(entry, left, running)
        return known

    def _take(self, state: State, move: Move) -> Happened:
        entry, running, now_ms = state.entry, list(state.running), NOW_MS + move.wait_ms
        silent = not running and move.wait_ms >= self.policy.idle_ms and move.ask_kb is not None
        left = Left() if silent else state.left
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
            seen = _read(end, left)
            compared = entry.fingerprint
            entry, settled = self._settle(entry, end, seen, ended_kb, now_ms)
            cold, reuse = self._meaning(end, seen, left)
            read = seen or 0
            if end.total is not None and seen is not None:
                left = Left(end.total, end.total if cold or reuse else max(left.most, end.total))
            if end.worked_on and end.differs and (cold or reuse or compared is None):
                # The next request is compared with this one.
                entry = replace(entry, fingerprint=_renamed(entry.fingerprint, end.fingerprint))
        after = self._state(self._from_here(entry, move.wait_ms), left, tuple(sorted(running)))
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
            fingerprint=end.fingerprint,
            started_ms=now_ms,
        )
        return self.guard.settle(entry, result, now_ms, self.policy)

    def _meaning(self, end: End, read: int | None, left: Left) -> tuple[bool, bool]:
        """Return whether an end was cold, and whether it was reuse."""
        if end.total is None or read is None:
            large = end.input_kb == MUCH_KB if end.total is None else end.total >= LARGE
            return large and end.worked_on, False
        uncached = end.total - read
        if read and (left.reused_by(read) or read >= uncached):
            return False, True
        return uncached >= self.policy.large_tokens, False

    def _from_here(self, entry: Entry, passed_ms: int) -> Entry:
        """Count time from now, and let what makes no difference look the same.

        A cause is only told, never asked, and so is the time of the last end; that they decide nothing is shown in
        `test_machine.py`.
        """
        longest_ago_ms = NOW_MS - self.policy.idle_ms
        return replace(
            entry,
            count=min(entry.count, self.policy.limit + 1),
            active_ms=max(entry.active_ms - passed_ms, longest_ago_ms),
            settled_ms=max(entry.settled_ms - passed_ms, longest_ago_ms) if self.timed and entry.settled_ms else 0,
            cause=UNKNOWN,
        )


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
    start = (world.start, claim.begin())
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


def _renamed(kept: Fingerprint | None, sent: Fingerprint | None) -> Fingerprint | None:
    """Swap the letters in which a request differs from A, so that it is made of A; what is kept follows.

    Where the oldest items are gone, others have come behind: a conversation has as many as ever.
    """
    if kept is None or sent is None or _FIRST is None:
        return kept
    swapped: dict[str, Any] = {
        name: _swapped(getattr(kept, name), getattr(_FIRST, name), getattr(sent, name))
        for name in ("tools", "instructions", "opening", "thinking", "speed", "window")
    }
    pieces = [
        _swapped(*(items[at : at + ITEM_BYTES] for items in (kept.items, _FIRST.items, sent.items)))
        for at in range(0, len(kept.items), ITEM_BYTES)
    ]
    renamed = replace(kept, items=b"".join(pieces), **swapped)
    if _FIRST.items.startswith(renamed.items):
        renamed = replace(renamed, items=_FIRST.items, items_count=_FIRST.items_count)
    return renamed


def _swapped(kept: bytes, one: bytes, other: bytes) -> bytes:
    return {one: other, other: one}.get(kept, kept)


def _possible(move: Move, left: Left) -> bool:
    """Whether there is anything to read where a move reads what was left."""
    if move.end is None or move.end.read is None or move.end.read >= 0:
        return True
    return left.most > left.last if move.end.read == MOST else left.last > 0


def _read(end: End, left: Left) -> int | None:
    """Return the tokens read from the cache; no more than there were."""
    if end.read is None or end.read >= 0:
        return end.read
    return min(left.most if end.read == MOST else left.last * -end.read // 100, end.total or 0)
