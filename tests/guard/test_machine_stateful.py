"""The machine in its store against the oracle: overlapping requests, silence, eviction, several budgets.

The oracle was written from the text of the rules and shares no code with the guard, so what both say is no accident.
"""

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from cachegate.guard.budget import Entry
from cachegate.guard.machine import Decision, Ending, Result, Settled
from cachegate.guard.policy import Policy
from cachegate.guard.usage import Usage
from cachegate.stores.base import Lease
from cachegate.stores.memory import MemoryStore
from guard.letters import Letters
from guard.mutants import MUTANTS, guard_of
from guard.oracle import LARGE_BYTES, LARGE_TOKENS, SILENCE_MS, Ended, Oracle
from guard.player import cause_word, decision_word, settlement_word
from guard.subject import REAL, Guard, digested

POLICY = Policy()
ENTRIES_MAX = 3
LEASE = Lease("any", Result(Usage(), Ending.SHUTDOWN, 0, 0))
"""The store of one process only counts its leases."""
BUDGETS = ("chat", "compaction", "another chat", "anonymous")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HowItEnds:
    """The end of a request, with the read in words: some are about what the request before left."""

    total: int | None
    read: str
    ending: str
    fixed_bytes: int
    sent: bool
    began: bool
    changed: bool


budgets = st.sampled_from((*BUDGETS, "chat", "chat", "chat"))
pauses_ms = st.sampled_from((1, 1_000, 60_000, SILENCE_MS - 1, SILENCE_MS - 1, SILENCE_MS - 1, SILENCE_MS, 3_600_000))
conversations = st.sampled_from((0, 100_000, 200_000, 400_000, 400_001, 800_000))
seldom = st.sampled_from((False, False, False, True))
mostly = st.sampled_from((True, True, True, False))
endings = st.sampled_from(
    ("completed", "completed", "cancelled", "cancelled", "refused", "failed", "timeout", "shutdown")
)
few = st.sampled_from("AAAB")
edits = st.sampled_from(((), (2,), (3,), (2, 3)))
made_of = st.one_of(
    st.just(Letters()),
    st.builds(Letters, tools=st.sampled_from("ABC")),
    st.builds(Letters, opening=st.sampled_from("ABC")),
    st.builds(Letters, opening=few, window=st.sampled_from(("", "1", "2")), compacted=seldom),
    st.builds(Letters, items=st.integers(3, 12), edited=edits, unmarked=seldom),
    st.builds(Letters, instructions=few, thinking=few, speed=few, edited=edits, dropped=st.integers(0, 2)),
    st.none(),
)
"""What a request is made of: often the same, else something else, or many things."""
fixed_parts = st.sampled_from((0, 200_000, LARGE_BYTES - 200_001, LARGE_BYTES - 200_000, 700_000))
ends = st.builds(
    HowItEnds,
    total=st.one_of(
        st.sampled_from((None, 0, 1_000, LARGE_TOKENS - 1, LARGE_TOKENS, 2 * LARGE_TOKENS, 200_000, 200_000, 600_000)),
        st.integers(0, 1_000_000),
    ),
    read=st.sampled_from(
        (
            *("unknown", "nothing", "nothing", "static", "large", "half"),
            *("just less", "just enough", "all", "one more", "less than most", "enough of most"),
        )
    ),
    ending=endings,
    fixed_bytes=fixed_parts,
    sent=mostly,
    began=mostly,
    changed=seldom,
)


@dataclass(frozen=True, slots=True)
class Running:
    """A request under way."""

    budget: str
    conversation_bytes: int
    letters: Letters | None
    started_ms: int


class GuardMachine(RuleBasedStateMachine):
    """Does the same to the guard in its store and to the oracle."""

    guard: Guard = REAL

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000_000
        self.store = MemoryStore(ENTRIES_MAX)
        self.oracle = Oracle(ENTRIES_MAX)
        self.running: list[Running] = []

    @rule(pause_ms=pauses_ms)
    def wait(self, pause_ms: int) -> None:
        self.now_ms += pause_ms

    @rule(budget=budgets, conversation_bytes=conversations, letters=made_of, self_hosted=seldom)
    def ask(self, budget: str, conversation_bytes: int, letters: Letters | None, *, self_hosted: bool) -> None:
        self._ask(self._new(budget, conversation_bytes, letters), self_hosted=self_hosted)

    @precondition(lambda self: self.running)
    @rule(place=st.integers(0, 100), how=ends)
    def end(self, place: int, how: HowItEnds) -> None:
        self._end(self.running.pop(place % len(self.running)), how)

    @rule(budget=budgets, conversation_bytes=conversations, letters=made_of, how=ends)
    def whole(self, budget: str, conversation_bytes: int, letters: Letters | None, how: HowItEnds) -> None:
        """A request that ends before anything else happens."""
        self._whole(self._new(budget, conversation_bytes, letters), how)

    @rule(ending=endings, fixed_bytes=fixed_parts, letters=made_of, changed=seldom)
    def cold(self, ending: str, fixed_bytes: int, letters: Letters | None, *, changed: bool) -> None:
        """A cold request of the busiest budget: the way to deep states."""
        how = HowItEnds(200_000, "nothing", ending, fixed_bytes, sent=True, began=True, changed=changed)
        self._whole(self._new(BUDGETS[0], 800_000, letters), how)

    def _new(self, budget: str, conversation_bytes: int, letters: Letters | None) -> Running:
        self.now_ms += 1
        return Running(budget, conversation_bytes, letters, self.now_ms)

    def _whole(self, one: Running, how: HowItEnds) -> None:
        before = len(self.running)
        self._ask(one, self_hosted=False)
        if len(self.running) > before:
            self._end(self.running.pop(), how)

    def _ask(self, one: Running, *, self_hosted: bool) -> None:
        expected = self.oracle.ask(one.budget, self.now_ms, one.conversation_bytes, self_hosted=self_hosted)
        ask = self.guard.ask(one.conversation_bytes, self_hosted)

        def change(entry: Entry) -> tuple[Entry, Decision]:
            return self.guard.admit(entry, ask, self.now_ms, POLICY)

        decision = at_once(self.store.apply(one.budget, change, LEASE))
        assert decision_word(decision) == expected
        assert cause_word(decision.cause) == self.oracle.last_cause(one.budget)
        if decision.runs:
            self.running.append(one)

    def _end(self, one: Running, how: HowItEnds) -> None:
        self.now_ms += 1
        read, conversation = self._tokens(one.budget, how), one.conversation_bytes
        whole = conversation + how.fixed_bytes
        expected = self.oracle.end(
            one.budget,
            Ended(
                at_ms=self.now_ms,
                total=how.total,
                read=read,
                ending=how.ending,
                conversation_bytes=conversation,
                whole_bytes=whole,
                sent=how.sent,
                began=how.began,
                changed=how.changed,
                letters=one.letters,
                started_ms=one.started_ms,
            ),
        )
        result = self.guard.result(
            usage=self.guard.usage(how.total, read),
            ending=self.guard.ending(how.ending),
            conversation_bytes=conversation,
            input_bytes=whole,
            sent=how.sent,
            began=how.began,
            client_changed=how.changed,
            fingerprint=digested(one.letters),
            started_ms=one.started_ms,
        )

        def change(entry: Entry) -> tuple[Entry, Settled]:
            return self.guard.settle(entry, result, self.now_ms, POLICY)

        settled = at_once(self.store.apply(one.budget, change, LEASE))
        assert (settlement_word(settled), cause_word(settled.cause)) == (expected.word, expected.because)

    def _tokens(self, budget: str, how: HowItEnds) -> int | None:
        left, most = self.oracle.left_behind(budget)
        known = {
            "unknown": None,
            "nothing": 0,
            "static": 20_000,
            "large": LARGE_TOKENS,
            "just less": max(0, -(-left * 3 // 4) - 1),
            "just enough": -(-left * 3 // 4),
            "all": left,
            "one more": left + 1,
            "less than most": max(0, -(-most * 3 // 4) - 1),
            "enough of most": -(-most * 3 // 4),
            "half": (how.total or 0) // 2,
        }
        return known[how.read]

    @invariant()
    def the_same_is_kept_counted_and_running(self) -> None:
        kept = self.store._entries
        assert list(kept) == list(self.oracle.pasts)
        for budget, entry in kept.items():
            assert entry.count == self.oracle.count(budget)
            assert entry.rebuilds_used == self.oracle.rebuilds_used(budget)
            assert entry.in_flight == self.oracle.running(budget)
            assert entry.fingerprint == digested(self.oracle.compared_letters(budget))
            assert cause_word(entry.cause) == self.oracle.last_cause(budget)
        assert self.store.in_flight == len(self.running)


def test_the_guard_does_what_the_oracle_says() -> None:
    run_state_machine_as_test(GuardMachine, settings=settings(max_examples=150, stateful_step_count=50, deadline=None))


@pytest.mark.parametrize(
    "name",
    [
        "prefix is the read",
        "idle while running",
        "refusal pass costs a rebuild",
        "tools count as conversation",
        "a small request sets the high prefix",
        "a small request only raises the prefix",
        "a dropped front is a change",
        "small requests are compared with",
        "cancelled changes cost a rebuild",
        "what never ran is compared with",
        "every edit is excused",
        "sizes do not matter",
        "silence is not measured",
        "the first cause is kept",
    ],
)
def test_the_oracle_notices(name: str) -> None:
    class Wrong(GuardMachine):
        guard = guard_of(next(mutant for mutant in MUTANTS if mutant.name == name))

    search = settings(
        max_examples=300,
        stateful_step_count=50,
        deadline=None,
        phases=[Phase.generate],
        derandomize=True,
        database=None,
    )
    with pytest.raises(AssertionError):
        run_state_machine_as_test(Wrong, settings=search)


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Run what awaits nothing."""
    try:
        work.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    raise AssertionError("the memory store must not wait")
