"""The machine by itself, where no table can reach: what no request of a well-behaved gateway would show."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachegate.guard.budget import Entry
from cachegate.guard.fingerprint import ITEM_BYTES, UNKNOWN, Cause, Change
from cachegate.guard.machine import Ask, Decision, Ending, Outcome, Reason, Result, admit, settle
from cachegate.guard.policy import Policy
from cachegate.guard.usage import Kind, Usage
from guard.letters import Letters
from guard.subject import digested

POLICY = Policy()
NOW_MS = 10_000_000
STOPPED = Entry(count=2, failed_bytes=800_000, active_ms=NOW_MS)
COLD = Result(Usage(200_000, 0), Ending.COMPLETED, 800_000, 900_000)

causes = st.builds(Cause, st.sampled_from(Change), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9_999))
made_of = st.one_of(
    st.none(),
    st.builds(
        Letters,
        tools=st.sampled_from("AB"),
        opening=st.sampled_from("AB"),
        window=st.sampled_from(("", "1")),
        items=st.integers(3, 5),
        edited=st.sampled_from(((), (2,))),
        dropped=st.integers(0, 2),
        unmarked=st.booleans(),
    ),
)
digests = made_of.map(digested)
entries = st.builds(
    Entry,
    count=st.integers(0, 5),
    unreported=st.booleans(),
    failed_bytes=st.integers(0, 2_000_000),
    prefix=st.integers(0, 2_000_000),
    prefix_high=st.integers(0, 2_000_000),
    rebuilds_used=st.integers(0, 4),
    cancel_pass=st.booleans(),
    refusal_pass=st.booleans(),
    refusal_pass_spent=st.booleans(),
    in_flight=st.integers(0, 3),
    active_ms=st.integers(0, NOW_MS),
    settled_ms=st.integers(0, NOW_MS),
    fingerprint=digests,
    input_bytes=st.integers(0, 2_000_000),
    cause=causes,
)
tokens = st.one_of(st.none(), st.integers(0, 1_000_000))
results = st.builds(
    Result,
    usage=st.builds(Usage, tokens, tokens),
    ending=st.sampled_from(Ending),
    conversation_bytes=st.integers(0, 2_000_000),
    input_bytes=st.integers(0, 2_000_000),
    sent=st.booleans(),
    began=st.booleans(),
    client_changed=st.booleans(),
    fingerprint=digests,
    started_ms=st.integers(0, NOW_MS),
)


def test_r13_an_end_without_a_beginning_leaves_nothing_negative() -> None:
    """After a restart the end of an old request meets a fresh entry (R20)."""
    entry, settled = settle(Entry(), COLD, NOW_MS, POLICY)
    assert entry.in_flight == 0
    assert settled.count == 1


def test_r12_a_clock_that_goes_back_is_no_silence() -> None:
    entry, decision = admit(STOPPED, Ask(800_000), NOW_MS - 400_000, POLICY)
    assert not decision.runs
    assert entry.count == 2


def test_r12_a_fresh_entry_needs_no_silence() -> None:
    entry, decision = admit(Entry(), Ask(800_000), 0, POLICY)
    assert decision == Decision(Outcome.ALLOWED, Reason.CLEAR, 0)
    assert entry == Entry(in_flight=1)


@pytest.mark.parametrize("outcome", list(Outcome), ids=str)
def test_r11_only_blocked_does_not_run(outcome: Outcome) -> None:
    assert Decision(outcome, Reason.CLEAR, 0).runs is (outcome is not Outcome.BLOCKED)


def test_r10_an_empty_conversation_is_no_half_of_an_empty_one() -> None:
    _, decision = admit(replace(STOPPED, failed_bytes=0), Ask(0), NOW_MS, POLICY)
    assert decision.outcome is Outcome.BLOCKED


@pytest.mark.parametrize("self_hosted", [False, True], ids=["R10 metered", "R11 self-hosted"])
def test_half_the_failed_input_recovers(self_hosted: bool) -> None:
    _, decision = admit(STOPPED, Ask(400_000, self_hosted), NOW_MS, POLICY)
    assert (decision.outcome, decision.reason) == (Outcome.RECOVERED, Reason.SMALLER_INPUT)


def test_r24_every_outcome_and_reason_is_a_fixed_word() -> None:
    for word in (*Outcome, *Reason, *Kind, *Ending):
        assert word.value.replace("_", "").isalpha()
        assert word.value == word.value.lower()


@given(entries, st.integers(0, 2_000_000), st.booleans(), st.integers(0, NOW_MS))
def test_r12_r13_an_ask_changes_only_activity_and_what_runs(
    entry: Entry,
    size: int,
    self_hosted: bool,
    later_ms: int,
) -> None:
    now_ms = entry.active_ms + later_ms
    after, decision = admit(entry, Ask(size, self_hosted), now_ms, POLICY)
    silent = entry.in_flight == 0 and later_ms >= POLICY.idle_ms
    before = Entry(settled_ms=entry.settled_ms) if silent else entry
    assert after == replace(before, active_ms=now_ms, in_flight=before.in_flight + decision.runs)
    assert decision.count == before.count
    assert decision.cause == before.cause


@given(entries, results, st.integers(0, 86_400_000))
def test_r8_r13_r16_an_end_keeps_the_entry_within_its_bounds(entry: Entry, result: Result, later_ms: int) -> None:
    now_ms = entry.active_ms + later_ms
    after, settled = settle(entry, result, now_ms, POLICY)
    assert after.active_ms == now_ms
    assert after.in_flight == max(0, entry.in_flight - 1)
    assert after.count in {0, entry.count, entry.count + 1}
    assert 0 <= after.rebuilds_used <= POLICY.rebuilds
    assert not (after.refusal_pass and after.refusal_pass_spent) or entry.refusal_pass
    assert settled.count == after.count
    assert settled.excused <= settled.kind.cold, "only a cold request is excused"
    assert not (settled.excused and after.count > entry.count), "what is excused is not counted"
    assert not (settled.excused and result.ending is Ending.REFUSED), "R17"


@given(entries, results)
def test_r8_the_count_grows_by_exactly_the_cold_requests_that_are_not_excused(entry: Entry, result: Result) -> None:
    after, settled = settle(entry, result, entry.active_ms, POLICY)
    counted = settled.kind.cold and not settled.excused
    assert after.count == (0 if settled.kind is Kind.REUSE else entry.count + counted)
    assert settled.reason is not Reason.NOT_SENT or settled.kind is Kind.NEUTRAL


@given(entries, results, st.integers(0, NOW_MS))
def test_r15_what_the_next_request_is_compared_with(entry: Entry, result: Result, now_ms: int) -> None:
    """The last request that the provider worked on: not one that never left, and not one that failed at the door.

    Nor a small one that showed nothing, where there is another; but its time is noted.
    """
    after, settled = settle(entry, result, now_ms, POLICY)
    worked_on = result.sent and (result.began or result.ending is not Ending.FAILED)
    aside = settled.kind is Kind.NEUTRAL and entry.fingerprint is not None
    assert after.settled_ms == (now_ms if worked_on else entry.settled_ms)
    one = result if worked_on and not aside else entry
    assert (after.fingerprint, after.input_bytes) == (one.fingerprint, one.input_bytes)


@given(entries, results)
def test_r19_what_never_left_changes_nothing(entry: Entry, result: Result) -> None:
    after, settled = settle(entry, replace(result, sent=False), NOW_MS, POLICY)
    assert after == replace(entry, in_flight=max(0, entry.in_flight - 1), active_ms=NOW_MS)
    assert (settled.reason, settled.excused, settled.cause) == (Reason.NOT_SENT, False, UNKNOWN)


@given(entries, results)
def test_r7_a_request_sets_both_prefixes_and_a_neutral_one_only_raises_the_high_one(
    entry: Entry, result: Result
) -> None:
    after, settled = settle(entry, result, NOW_MS, POLICY)
    total = result.usage.input_total
    if not (result.sent and result.usage.measured):
        assert (after.prefix, after.prefix_high) == (entry.prefix, entry.prefix_high)
    elif settled.kind is Kind.NEUTRAL:
        assert (after.prefix, after.prefix_high) == (total, max(entry.prefix_high, total or 0))
    else:
        assert after.prefix == after.prefix_high == total
    assert after.prefix <= after.prefix_high or entry.prefix > entry.prefix_high


@given(entries, results)
def test_r7_only_what_the_last_request_cannot_have_left_is_held_against_an_earlier_one(
    entry: Entry, result: Result
) -> None:
    read = result.usage.cached_read
    _, settled = settle(entry, result, NOW_MS, POLICY)
    held, other = ("prefix", "prefix_high") if (read or 0) <= entry.prefix else ("prefix_high", "prefix")
    assert settle(replace(entry, **{other: getattr(entry, held)}), result, NOW_MS, POLICY)[1].kind is settled.kind


@given(entries, results, st.integers(1, 4))
def test_r15_a_dropped_front_excuses_nothing(entry: Entry, result: Result, gone: int) -> None:
    """A conversation that begins where the one before went on is treated like one that begins as it did."""
    if entry.fingerprint is None or result.fingerprint is None:
        return
    opening = entry.fingerprint.items[gone * ITEM_BYTES : (gone + 1) * ITEM_BYTES] or entry.fingerprint.opening
    (_, one), (_, two) = (
        settle(entry, replace(result, fingerprint=replace(result.fingerprint, opening=one)), NOW_MS, POLICY)
        for one in (opening, entry.fingerprint.opening)
    )
    assert one == two


@given(entries, results, causes, st.integers(0, NOW_MS), st.integers(0, NOW_MS))
def test_r24_a_cause_is_told_and_decides_nothing(
    entry: Entry, result: Result, cause: Cause, ended_ms: int, started_ms: int
) -> None:
    """Neither the last cause nor the time since the last request changes what is counted, excused or stopped."""
    other = replace(entry, cause=cause, settled_ms=ended_ms)
    one, told = settle(entry, result, NOW_MS, POLICY)
    two, told_too = settle(other, replace(result, started_ms=started_ms), NOW_MS, POLICY)
    assert replace(two, cause=one.cause, settled_ms=one.settled_ms) == one
    assert replace(told_too, cause=told.cause) == told
    one, decision = admit(entry, Ask(5), NOW_MS, POLICY)
    two, decision_too = admit(other, Ask(5), NOW_MS, POLICY)
    assert replace(two, cause=one.cause, settled_ms=one.settled_ms) == one
    assert replace(decision_too, cause=decision.cause) == decision


@given(entries, results)
def test_r24_only_a_cold_request_has_a_cause_and_only_a_counted_one_leaves_it(entry: Entry, result: Result) -> None:
    after, settled = settle(entry, result, NOW_MS, POLICY)
    assert settled.kind.cold or settled.cause == UNKNOWN
    if settled.kind is Kind.REUSE:
        assert after.cause == UNKNOWN
    elif settled.kind.cold and not settled.excused:
        assert after.cause == settled.cause
    else:
        assert after.cause == entry.cause


@given(entries, results)
def test_r16_an_excuse_is_used_only_by_a_cold_request(entry: Entry, result: Result) -> None:
    after, settled = settle(entry, result, NOW_MS, POLICY)
    used = after.rebuilds_used - entry.rebuilds_used
    assert used <= 1
    assert used < 1 or settled.reason in {Reason.CANCEL_REBUILD, Reason.CLIENT_CHANGE}


@given(entries, results)
def test_r15_what_was_edited_behind_the_opening_excuses_nothing(entry: Entry, result: Result) -> None:
    """However the history differs, the same is counted and excused; only the told cause may be another."""
    if result.fingerprint is None:
        return
    edited = replace(result, fingerprint=replace(result.fingerprint, items=b"some" * 3, items_count=3))
    one, told = settle(entry, result, NOW_MS, POLICY)
    two, told_too = settle(entry, edited, NOW_MS, POLICY)
    assert (told.kind, told.reason, told.excused) == (told_too.kind, told_too.reason, told_too.excused)
    assert replace(two, fingerprint=one.fingerprint, cause=one.cause) == one


@given(entries, results, st.integers(0, NOW_MS))
def test_the_machine_is_a_function(entry: Entry, result: Result, now_ms: int) -> None:
    """A store may run a change twice; both must come to the same, and leave what went in as it was."""
    copy = replace(entry)
    assert settle(entry, result, now_ms, POLICY) == settle(entry, result, now_ms, POLICY)
    assert admit(entry, Ask(5), now_ms, POLICY) == admit(entry, Ask(5), now_ms, POLICY)
    assert entry == copy
