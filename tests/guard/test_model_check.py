"""The claims C1 ... C5, proved by looking at every state; and proof that the proof can fail."""

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from itertools import chain, product

import pytest

from cachegate.guard.policy import Policy
from guard.claims import AtMost, FollowUpsAreFree, NeverStopped, StopsHold
from guard.exploration import (
    ALL,
    CLIENT_CHANGES,
    DIFFERENCES,
    ENOUGH,
    FULL_KB,
    LARGE,
    LARGER,
    LITTLE_KB,
    MIDDLING,
    MOST,
    MUCH_KB,
    SMALL,
    STATIC,
    Claim,
    End,
    Ghost,
    Happened,
    Move,
    State,
    World,
    explore,
)
from guard.letters import ITEMS, Letters
from guard.mutants import MUTANTS, guard_of
from guard.oracle import Ended, Oracle, Past
from guard.subject import REAL, Guard

POLICY = Policy()
BRIEF = replace(POLICY, rebuilds=1)
"""One rebuild instead of four: the same shape, with room for overlapping requests."""
BOUND = 11
"""Two counted, four rebuilds each after a cancelled request, and the rebuild after a refusal."""

ENDINGS = ("completed", "cancelled", "refused", "timeout")
TOKENS = (
    *((SMALL, 0), (LARGE, 0), (LARGE, STATIC), (LARGE, None)),
    *((SMALL, ALL), (LARGE, ALL), (LARGER, ALL), (LARGE, ENOUGH), (LARGER, ENOUGH)),
)
ENDS = (
    *(End(total, read, ending) for (total, read), ending in product(TOKENS, ENDINGS)),
    *(End(None, None, ending, kb) for kb, ending in product((LITTLE_KB, MUCH_KB), ENDINGS)),
    *(End(total, None, "failed", began=began) for total, began in product((None, LARGE), (True, False))),
    *(End(LARGE, 0, ending, changed=True) for ending in ENDINGS),
    *(End(None, None, ending, changed=True) for ending in ("completed", "cancelled")),
    *(End(LARGE, 0, differs=differs) for differs in DIFFERENCES if differs),
    *(End(LARGE, 0, ending, differs="tools") for ending in ENDINGS if ending != "completed"),
    *(End(LARGE, 0, ending, LITTLE_KB, differs="opening") for ending in ("completed", "cancelled")),
    *(End(total, read, differs="tools") for total, read in ((SMALL, 0), (LARGE, ALL), (LARGE, None))),
    *(End(total, read) for total, read in ((MIDDLING, 0), (LARGE, MOST))),
    *(End(SMALL, 0, differs=differs) for differs in ("opening", "dropped", "no digests")),
    *(End(None, None, ending, differs="tools") for ending in ("completed", "cancelled", "timeout")),
    *(End(None, None, "failed", began=began, differs="tools") for began in (True, False)),
)
CALM_ENDS = tuple(
    end
    for end in ENDS
    if end.ending not in {"cancelled", "refused"}
    and not end.changed
    and (end.differs not in CLIENT_CHANGES or end.total == SMALL)
)
"""Nothing was cancelled, changed or refused; but histories are edited, conversations compacted or cut at the front, and
small requests in between have other tools."""
FEW_ENDS = (
    *(End(LARGE, 0, ending) for ending in ENDINGS),
    End(LARGE, 0, changed=True),
    End(LARGE, 0, differs="tools"),
    End(LARGE, 0, "cancelled", differs="tools"),
    End(LARGE, 0, differs="window"),
    End(LARGE, 0, differs="dropped"),
    End(LARGE, ALL),
    End(LARGE, STATIC),
    End(SMALL, 0),
    End(SMALL, 0, "cancelled"),
    End(None, None, "refused", LITTLE_KB),
    End(None, None, "cancelled"),
    End(None, None, "failed", began=False),
)
"""Enough for every path through the machine; for worlds with more sizes, or more at a time."""


@cache
def one_after_the_other(guard: Guard = REAL, ends: tuple[End, ...] = ENDS, *, timed: bool = False) -> World:
    """Requests that end before the next one asks, now and then after a silence."""
    return _sequence(ends, (FULL_KB,), guard, timed=timed)


@cache
def of_several_sizes(guard: Guard = REAL) -> World:
    """As above, with conversations that are more or less than half, or empty."""
    return _sequence(FEW_ENDS, (800, 500, 400, 200, 0), guard)


@cache
def overlapping(policy: Policy, guard: Guard = REAL) -> World:
    """Two requests at a time, of three sizes, with pauses on either side of the silence."""
    waits = (policy.idle_ms - 1, policy.idle_ms)
    asks = (*(Move(0, kb) for kb in (800, 400, 200)), *(Move(wait, 800) for wait in waits))
    return World(asks, FEW_ENDS, running_max=2, policy=policy, guard=guard)


def _sequence(ends: Iterable[End], sizes_kb: Iterable[int], guard: Guard, *, timed: bool = False) -> World:
    at_once = (Move(0, kb, end) for end, kb in product(ends, sizes_kb))
    later = (Move(wait, FULL_KB, End(LARGE, 0)) for wait in (POLICY.idle_ms - 1, POLICY.idle_ms))
    return World(tuple(chain(at_once, later)), timed=timed, policy=POLICY, guard=guard)


def hold(world: World, claim: Claim[Ghost], states_min: int) -> None:
    """Explore; fail with the shortest counterexample, or when there was hardly anything to explore."""
    explored = explore(world, claim)
    assert not explored.broken, f"{claim} is broken by\n{explored.broken}"
    assert explored.states >= states_min, f"{explored.states} states are fewer than the alphabet once reached"


def test_c1_at_most_eleven_cold_requests_between_two_reuses() -> None:
    hold(one_after_the_other(), AtMost(BOUND), 2_000)


def test_c1_eleven_are_possible() -> None:
    broken = explore(one_after_the_other(), AtMost(BOUND - 1)).broken
    assert len(broken.splitlines()) == 1 + BOUND, f"the bound is not tight: {broken or 'ten hold'}"


def test_c1_at_most_two_when_nothing_was_cancelled_changed_or_refused() -> None:
    large = {end.differs for end in CALM_ENDS if end.total != SMALL}
    assert large == {"", "history", "window", "compacted", "dropped", "no digests"}
    assert {end.differs for end in CALM_ENDS if end.total == SMALL} > {"tools", "opening"}
    hold(one_after_the_other(ends=CALM_ENDS), AtMost(2), 10)


def test_c1_at_most_six_when_only_the_client_changes_something() -> None:
    """Two counted, and four rebuilds: by the provider's word or by digests, whatever changes and however often."""
    changing = tuple(end for end in ENDS if end.ending not in {"cancelled", "refused"})
    hold(one_after_the_other(ends=changing), AtMost(6), 100)
    assert explore(one_after_the_other(ends=changing), AtMost(5)).broken, "the bound is not tight"


def test_c1_each_halving_adds_at_most_one() -> None:
    """Recovery (R10) admits more than C1 says, but each such request must be half of the last counted one."""
    hold(of_several_sizes(), AtMost(BOUND + 3), 2_000)


def test_c2_a_chat_that_reuses_is_never_stopped() -> None:
    hold(one_after_the_other(), NeverStopped(), 20)


def test_c3_follow_ups_are_stopped_only_with_no_rebuild_left() -> None:
    """And after more than four cancelled or excused ones in a row, cancelled client changes among them."""
    hold(one_after_the_other(), FollowUpsAreFree(), 2_000)


def test_c3_five_in_a_row_are_enough() -> None:
    broken = explore(one_after_the_other(), FollowUpsAreFree(free_min=6)).broken
    assert "with 0 rebuilds left, after 5 free ones" in broken, "the bound is not tight"


def test_c3_a_refused_rebuild_is_an_exception() -> None:
    """R17 counts a refusal even where a rebuild was owed to a cancellation."""
    broken = explore(one_after_the_other(), FollowUpsAreFree(refusals_are_follow_ups=True)).broken
    assert "refused" in broken.splitlines()[-2]


def test_c3_a_small_cancelled_request_is_one_of_the_five() -> None:
    """It needs no rebuild, but gives a pass as good as any: with the four that follow on passes, five were free."""
    broken = explore(one_after_the_other(), FollowUpsAreFree(small_ones_count=False)).broken
    assert "after 4 free ones" in broken
    assert f"end {SMALL}/0 {MUCH_KB}KB cancelled -> allowed neutral" in broken


def test_the_oracle_agrees_in_every_state() -> None:
    """Each state is reached on its shortest way; there, whatever comes next, the oracle and the guard say the same."""
    world = one_after_the_other(timed=True)
    pasts: dict[State, Past] = {world.start: []}
    waiting = deque(pasts)
    while waiting:
        state = waiting.popleft()
        for step in world.steps(state):
            oracle = Oracle(1, {"chat": pasts[state]})
            expected = oracle_says(oracle, step)
            assert step.row.partition(" -> ")[2].startswith(expected), f"{expected} after {pasts[state]}: {step.row}"
            if step.after not in pasts:
                pasts[step.after] = oracle.pasts["chat"]
                waiting.append(step.after)
    assert len(pasts) > 1_000


def oracle_says(oracle: Oracle, step: Happened) -> str:
    """Let the same happen to the oracle; return its words."""
    past, end = oracle.pasts["chat"], step.move.end
    now_ms = (past[-1].at_ms if past else 0) + step.move.wait_ms
    last = oracle.compared_letters("chat")
    decision = oracle.ask("chat", now_ms, FULL_KB, self_hosted=False)
    if end is None or decision.startswith("stopped"):
        return decision
    ended = Ended(
        at_ms=now_ms,
        total=end.total,
        read=None if end.read is None else step.read,
        ending=end.ending,
        conversation_bytes=FULL_KB,
        whole_bytes=end.input_kb * 1_000,
        began=end.began,
        changed=end.changed,
        letters=other_letters(last, DIFFERENCES[end.differs]),
        started_ms=now_ms,
    )
    told = oracle.end("chat", ended)
    because = told.because.partition(" ")[0]
    return f"{decision} {told.word} ({because}) count={oracle.count('chat')} used={oracle.rebuilds_used('chat')}"


def other_letters(last: Letters | None, differing: Letters | None) -> Letters | None:
    """Return letters that differ from the last ones as these differ from A: what was A becomes B, and B becomes A.

    Where the oldest item is dropped, the next one opens the conversation, and a new one comes behind.
    """
    if last is None or differing is None:
        return differing
    dropped = last.dropped + differing.dropped
    same_opening = "A" if differing.dropped else last.opening
    other_opening = "A" if last.opening == "C" else "C"
    return Letters(
        tools="A" if last.tools == differing.tools else "B",
        instructions="A" if last.instructions == differing.instructions else "B",
        opening=same_opening if differing.opening == "A" else other_opening,
        thinking="A" if last.thinking == differing.thinking else "B",
        speed="A" if last.speed == differing.speed else "B",
        window="" if last.window == differing.window else "B",
        items=ITEMS + dropped,
        edited=tuple(sorted({*last.edited} ^ {at + dropped for at in differing.edited})),
        dropped=dropped,
        compacted=differing.compacted,
    )


LOOP_ENDS = (
    *(End(LARGE, 0, ending) for ending in ENDINGS),
    *(End(None, None, ending) for ending in ENDINGS),
    *(End(None, None, ending, LITTLE_KB) for ending in ("cancelled", "refused")),
    *(End(LARGE, 0, ending, changed=True) for ending in ("completed", "cancelled")),
    *(End(LARGE, 0, differs=differs) for differs in ("tools", "opening", "window", "history", "dropped")),
    End(LARGE, 0, "cancelled", differs="tools"),
    End(LARGE, STATIC),
    End(SMALL, 0),
    End(SMALL, 0, differs="tools"),
    End(MIDDLING, 0),
    End(None, None, "failed", began=False),
)


def test_c4_every_loop_with_a_cold_request_reaches_the_stop() -> None:
    assert endless_loop(one_after_the_other()) == ""


def test_c5_stops_hold_one_after_the_other() -> None:
    hold(of_several_sizes(), StopsHold(), 800)


@pytest.mark.parametrize("policy", [BRIEF, POLICY], ids=lambda policy: f"{policy.rebuilds} rebuilds")
def test_c5_stops_hold_with_overlapping_requests(policy: Policy) -> None:
    hold(overlapping(policy), StopsHold(), 2_000)


def endless_loop(world: World) -> str:
    """Return a loop of at most three requests, one of them cold and none a reuse, that is never stopped."""
    for length in (1, 2, 3):
        for loop in product((Move(0, FULL_KB, end) for end in LOOP_ENDS), repeat=length):
            state, cold = world.start, 0
            rows: list[str] = []
            for move in loop * (BOUND + 1):
                step = world.step(state, move)
                if step.decision is not None and not step.decision.runs:
                    break
                state, cold, rows = step.after, cold + step.cold, [*rows, step.row]
            else:
                if cold:
                    return "\n".join(rows)
    return ""


def broken_guard(name: str) -> Guard:
    """Return a wrong guard of `mutants.py` by its name."""
    return guard_of(next(mutant for mutant in MUTANTS if mutant.name == name))


@pytest.mark.parametrize(
    "name",
    [
        "unlimited refusal passes",
        "unlimited rebuilds",
        "cancelled requests are free for ever",
        "one rebuild more",
        "nothing counts",
        "nobody is stopped",
        "a small request sets the high prefix",
    ],
)
def test_the_check_of_c1_and_c4_can_fail(name: str) -> None:
    world = one_after_the_other(broken_guard(name), FEW_ENDS)
    assert explore(world, AtMost(BOUND)).broken
    assert endless_loop(world) or name == "one rebuild more", "one rebuild more is too many, but not endless"


@pytest.mark.parametrize(
    "name",
    [
        "every edit is excused",
        "compactions are excused",
        "windows do not matter",
        "a window is a change",
        "the client's word does not matter",
        "no digests are a change",
        "a dropped front is a change",
        "small requests are compared with",
    ],
)
def test_the_check_of_calm_chats_can_fail(name: str) -> None:
    assert explore(one_after_the_other(broken_guard(name), CALM_ENDS), AtMost(2)).broken


@pytest.mark.parametrize(
    "name", ["no 75 percent rule", "more than 75 percent", "prefix never set", "only the high prefix"]
)
def test_the_check_of_c2_can_fail(name: str) -> None:
    assert explore(one_after_the_other(broken_guard(name)), NeverStopped()).broken


@pytest.mark.parametrize(
    "name",
    [
        "cancelled requests count",
        "cancel passes do not help",
        "cancellations give no pass",
        "cancelled changes cost a rebuild",
    ],
)
def test_the_check_of_c3_can_fail(name: str) -> None:
    assert explore(one_after_the_other(broken_guard(name), FEW_ENDS), FollowUpsAreFree()).broken


@pytest.mark.parametrize("name", ["always measured", "last kind decides the words", "one miss more"])
def test_the_check_of_stops_can_fail(name: str) -> None:
    assert explore(one_after_the_other(broken_guard(name)), StopsHold()).broken


@pytest.mark.parametrize(
    "name", ["any smaller input", "less than half", "first failed size is kept", "half of nothing"]
)
def test_the_check_of_sizes_can_fail(name: str) -> None:
    assert explore(of_several_sizes(broken_guard(name)), StopsHold()).broken


@pytest.mark.parametrize(
    "name", ["idle while running", "never released", "all released", "stopped attempts are no activity", "never idle"]
)
def test_the_check_of_overlaps_can_fail(name: str) -> None:
    assert explore(overlapping(BRIEF, broken_guard(name)), StopsHold()).broken


def test_without_a_limit_refusals_too_small_to_count_hand_out_passes_for_ever() -> None:
    """Why `refusal_pass_spent` exists: without it neither C1 nor C4 holds."""
    world = one_after_the_other(broken_guard("unlimited refusal passes"), FEW_ENDS)
    for way in (endless_loop(world), explore(world, AtMost(BOUND)).broken):
        assert f"?/? {LITTLE_KB}KB refused -> allowed neutral" in way
        assert "excused:after-refusal" in way
