"""The machine by itself, where no table can reach: what no request of a well-behaved gateway would show."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachegate.guard.budget import Entry
from cachegate.guard.machine import Ask, Decision, Ending, Outcome, Reason, Result, admit, settle
from cachegate.guard.policy import Policy
from cachegate.guard.usage import Kind, Usage

POLICY = Policy()
NOW_MS = 10_000_000
STOPPED = Entry(count=2, failed_bytes=800_000, active_ms=NOW_MS)
COLD = Result(Usage(200_000, 0), Ending.COMPLETED, 800_000, 900_000)

entries = st.builds(
    Entry,
    count=st.integers(0, 5),
    unreported=st.booleans(),
    failed_bytes=st.integers(0, 2_000_000),
    prefix=st.integers(0, 2_000_000),
    rebuilds_used=st.integers(0, 4),
    cancel_pass=st.booleans(),
    refusal_pass=st.booleans(),
    refusal_pass_spent=st.booleans(),
    in_flight=st.integers(0, 3),
    active_ms=st.integers(0, NOW_MS),
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
    before = Entry() if silent else entry
    assert after == replace(before, active_ms=now_ms, in_flight=before.in_flight + decision.runs)
    assert decision.count == before.count


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
def test_the_machine_is_a_function(entry: Entry, result: Result, now_ms: int) -> None:
    """A store may run a change twice; both must come to the same, and leave what went in as it was."""
    copy = replace(entry)
    assert settle(entry, result, now_ms, POLICY) == settle(entry, result, now_ms, POLICY)
    assert admit(entry, Ask(5), now_ms, POLICY) == admit(entry, Ask(5), now_ms, POLICY)
    assert entry == copy
