from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachegate.errors import BadInput
from cachegate.wire.copilot.history import Answered, Called, Returned, Said, Step, mark
from cachegate.wire.copilot.plan import Continue, Plan, Rebuild, plan
from cachegate.wire.sessions import Known

SETUP = b"setup"
U1, U2, U3 = Said("one"), Said("two"), Said("three")
A1 = Answered("answer")
CALLS = Answered("", (Called("c1", "Read", "{}"), Called("c2", "Read", "{}")))
R1, R2 = Returned("c1", "r1"), Returned("c2", "r2")


def known(*steps: Step, setup: bytes = SETUP, broken: str = "") -> Known:
    """A session that has these steps; the calls of a last answer wait."""
    last = steps[-1] if steps else None
    pending = frozenset(each.call_id for each in last.calls) if isinstance(last, Answered) else frozenset()
    return Known(tuple(map(mark, steps)), pending, setup, broken)


def rebuilt(reason: str, kept: tuple[Step, ...], past: tuple[Step, ...], *said: Said) -> Rebuild:
    return Rebuild(reason, len(kept), past, said)


@pytest.mark.parametrize(
    ("session", "steps", "decided"),
    [
        pytest.param(None, (U1,), rebuilt("no_session", (), (), U1), id="nothing yet"),
        pytest.param(None, (U1, A1, U2), rebuilt("no_session", (), (U1, A1), U2), id="a conversation from elsewhere"),
        pytest.param(
            None, (U1, CALLS, R1, R2), rebuilt("no_session", (), (U1, CALLS, R1, R2)), id="it just goes on from results"
        ),
        pytest.param(None, (U1, U2), rebuilt("no_session", (), (), U1, U2), id="all that was said last is said"),
        pytest.param(known(U1, A1), (U1, A1, U2), Continue((), (U2,)), id="one more message"),
        pytest.param(known(U1, A1), (U1, A1, U2, U3), Continue((), (U2, U3)), id="two more messages"),
        pytest.param(known(U1, CALLS), (U1, CALLS, R1, R2), Continue((R1, R2), ()), id="results"),
        pytest.param(known(U1, CALLS), (U1, CALLS, R2, R1), Continue((R2, R1), ()), id="results in another order"),
        pytest.param(
            known(U1, CALLS), (U1, CALLS, R1, R2, U2), Continue((R1, R2), (U2,)), id="results, and the user speaks"
        ),
        pytest.param(
            known(U1, CALLS), (U1, CALLS, R1), rebuilt("history_diverged", (U1, CALLS), (R1,)), id="a result is missing"
        ),
        pytest.param(
            known(U1, CALLS),
            (U1, CALLS, R1, R1),
            rebuilt("history_diverged", (U1, CALLS), (R1, R1)),
            id="a result comes twice, and one is missing",
        ),
        pytest.param(
            known(U1, CALLS),
            (U1, CALLS, R1, R2, R2),
            rebuilt("history_diverged", (U1, CALLS), (R1, R2, R2)),
            id="a result comes twice",
        ),
        pytest.param(
            known(U1, CALLS),
            (U1, CALLS, R1, R2, Returned("c3", "")),
            rebuilt("history_diverged", (U1, CALLS), (R1, R2, Returned("c3", ""))),
            id="a result too much",
        ),
        pytest.param(
            known(U1, CALLS),
            (U1, CALLS, U2),
            rebuilt("history_diverged", (U1, CALLS), (), U2),
            id="calls that were left alone",
        ),
        pytest.param(
            known(U1, A1), (U1, A1, R1), rebuilt("history_diverged", (U1, A1), (R1,)), id="a result nobody waits for"
        ),
        pytest.param(
            known(U1, CALLS),
            (U1, CALLS, U2, R1, R2),
            rebuilt("history_diverged", (U1, CALLS), (U2, R1, R2)),
            id="the user before the results",
        ),
        pytest.param(
            known(U1, A1),
            (U1, A1, U2, A1, U3),
            rebuilt("history_diverged", (U1, A1), (U2, A1), U3),
            id="an answer from elsewhere",
        ),
        pytest.param(
            known(U1, A1, U2, A1),
            (U1, A1, U3),
            rebuilt("history_diverged", (U1, A1), (), U3),
            id="the last message was edited",
        ),
        pytest.param(
            known(U1, A1), (U2, A1, U3), rebuilt("history_diverged", (), (U2, A1), U3), id="the first was edited"
        ),
        pytest.param(
            known(U1, CALLS, R1, R2, A1),
            (U1, CALLS, R1, Returned("c2", "edited"), A1, U2),
            rebuilt("history_diverged", (U1, CALLS), (R1, Returned("c2", "edited"), A1), U2),
            id="a result was edited: those of its answer are written together",
        ),
        pytest.param(
            known(U1, CALLS, R1, R2, A1),
            (U1, CALLS, R1, R2, U2),
            rebuilt("history_diverged", (U1, CALLS, R1, R2), (), U2),
            id="all results are the same",
        ),
        pytest.param(known(U1), (U1,), rebuilt("history_diverged", (), (), U1), id="a request that was never answered"),
        pytest.param(known(U1, A1), (U1,), rebuilt("history_diverged", (), (), U1), id="the same request again"),
        pytest.param(
            known(U1, A1, U2, A1), (U1, A1, U2), rebuilt("history_diverged", (U1, A1), (), U2), id="the last one again"
        ),
        pytest.param(
            known(U1, CALLS, R1, R2, A1),
            (U1, CALLS, R1, R2),
            rebuilt("history_diverged", (U1, CALLS, R1, R2), ()),
            id="results again",
        ),
        pytest.param(
            known(U1, A1, setup=b"other"),
            (U1, A1, U2),
            rebuilt("fingerprint_changed", (U1, A1), (), U2),
            id="other tools or instructions",
        ),
        pytest.param(
            known(U1, A1, broken="cancelled"),
            (U1, A1, U2),
            rebuilt("cancelled", (U1, A1), (), U2),
            id="a session that was interrupted",
        ),
        pytest.param(
            known(U1, A1, setup=b"other", broken="cancelled"),
            (U1, A1, U2),
            rebuilt("fingerprint_changed", (U1, A1), (), U2),
            id="the caller's change is named first",
        ),
        pytest.param(
            known(broken="provider_error"),
            (U1,),
            rebuilt("provider_error", (), (), U1),
            id="a first request that failed",
        ),
    ],
)
def test_how_a_session_goes_on(session: Known | None, steps: tuple[Step, ...], decided: Plan) -> None:
    assert plan(session, SETUP, steps) == decided


@pytest.mark.parametrize(
    ("before", "now", "steps", "reason"),
    [
        pytest.param(b"1", b"2", (U3,), "compaction_window", id="a summary in a new window"),
        pytest.param(b"1", b"1", (U3,), "history_diverged", id="an edit in the same window"),
        pytest.param(b"1", b"2", (U1, A1, U2), None, id="a new window of the same history"),
    ],
)
def test_a_compaction_that_the_caller_names_is_told_from_an_edit(
    before: bytes, now: bytes, steps: tuple[Step, ...], reason: str | None
) -> None:
    decided = plan(replace(known(U1, A1), window=before), SETUP, steps, now)
    assert getattr(decided, "reason", None) == reason


@pytest.mark.parametrize("session", [None, known(U1), known(U1, A1, setup=b"other")])
def test_an_answer_that_was_begun_for_the_model_is_refused(session: Known | None) -> None:
    with pytest.raises(BadInput, match="last message is the assistant's"):
        plan(session, SETUP, (U1, A1))


@pytest.mark.parametrize("session", [None, known(), known(U1)])
def test_a_conversation_without_a_message_is_refused(session: Known | None) -> None:
    with pytest.raises(BadInput, match="no message"):
        plan(session, SETUP, ())


STEPS = st.lists(st.sampled_from([U1, U2, A1, CALLS, R1, R2, Returned("c1", "x")]), min_size=1, max_size=10)


@given(steps=STEPS, had=STEPS, broken=st.sampled_from(["", "cancelled"]), said=st.sampled_from([U3, R2]))
def test_a_rebuild_tells_the_whole_conversation_and_keeps_only_what_was_there(
    steps: list[Step], had: list[Step], broken: str, said: Said | Returned
) -> None:
    asked = (*steps, said)
    decided = plan(replace(known(*had), broken=broken), SETUP, asked)
    if isinstance(decided, Continue):
        assert (*had, *decided.returned, *decided.said) == asked
        return
    kept = decided.kept
    assert (*asked[:kept], *decided.past, *decided.said) == asked
    assert tuple(had[:kept]) == asked[:kept]
    following = asked[kept : kept + 1]
    assert not (kept and isinstance(asked[kept - 1], Returned) and isinstance(following[:1] and following[0], Returned))
    assert not decided.past or not isinstance(decided.past[-1], Said)
