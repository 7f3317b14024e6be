from dataclasses import replace

import pytest

from cachegate.errors import BadInput
from cachegate.wire.claude_cli.plan import Continue, Rebuild, plan, stands_aside
from cachegate.wire.claude_cli.prompt import Prompt, Turn, mark
from cachegate.wire.hub import Json
from cachegate.wire.sessions import Known

PROMPT = Prompt("up", "Be brief.", (), {}, (), None, None, fast=False)
OTHER = replace(PROMPT, system="Be long.")
PICTURE: Json = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}}


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def result(call_id: str, words: str = "r") -> Json:
    return {"type": "tool_result", "tool_use_id": call_id, "content": words}


def user(*blocks: Json) -> Turn:
    return Turn("user", blocks)


def calls(*call_ids: str) -> Turn:
    blocks = ({"type": "tool_use", "id": call_id, "name": "Read", "input": {}} for call_id in call_ids)
    return Turn("assistant", tuple(blocks))


U1, U2, U3 = user(text("one")), user(text("two")), user(text("three"))
A1, A2 = (Turn("assistant", (text(words),)) for words in ("answer", "another"))
CALLS = calls("c1", "c2")
R1, R2 = result("c1"), result("c2")
BOTH = user(R1, R2)


def known(*turns: Turn, setup: bytes = PROMPT.digest, broken: str = "") -> Known:
    """A process that has these turns; the calls of a last answer wait."""
    pending = frozenset(str(block.get("id")) for block in turns[-1].blocks if block["type"] == "tool_use")
    return Known(tuple(map(mark, turns)), pending, setup, broken)


@pytest.mark.parametrize(
    ("process", "turns", "decided"),
    [
        pytest.param(None, (U1,), Rebuild("no_session", 0), id="nothing yet"),
        pytest.param(None, (U1, A1, U2), Rebuild("no_session", 0), id="a conversation from elsewhere"),
        pytest.param(known(U1, A1), (U1, A1, U2), Continue((), U2.blocks), id="one more message"),
        pytest.param(known(U1, CALLS), (U1, CALLS, BOTH), Continue((R1, R2), ()), id="results"),
        pytest.param(
            known(U1, CALLS), (U1, CALLS, user(R2, R1)), Continue((R2, R1), ()), id="results in another order"
        ),
        pytest.param(
            known(U1, CALLS),
            (U1, CALLS, user(R1, R2, text("and"))),
            Continue((R1, R2), (text("and"),)),
            id="results, and the user speaks",
        ),
        pytest.param(known(U1, CALLS), (U1, CALLS, user(R1)), Rebuild("history_diverged", 2), id="a result is missing"),
        pytest.param(
            known(U1, CALLS), (U1, CALLS, user(R1, R1)), Rebuild("history_diverged", 2), id="one twice, one missing"
        ),
        pytest.param(
            known(U1, CALLS), (U1, CALLS, user(R1, R2, R2)), Rebuild("history_diverged", 2), id="a result comes twice"
        ),
        pytest.param(
            known(U1, CALLS),
            (U1, CALLS, user(R1, R2, result("c3"))),
            Rebuild("history_diverged", 2),
            id="a result too much",
        ),
        pytest.param(known(U1, CALLS), (U1, CALLS, U2), Rebuild("history_diverged", 2), id="calls left alone"),
        pytest.param(known(U1, A1), (U1, A1, user(R1)), Rebuild("history_diverged", 2), id="a result nobody waits for"),
        pytest.param(
            known(U1, A1), (U1, A1, U2, A2, U3), Rebuild("history_diverged", 2), id="an answer from elsewhere"
        ),
        pytest.param(
            known(U1, A1, U2, A2), (U1, A1, U3), Rebuild("history_diverged", 2), id="the last message was edited"
        ),
        pytest.param(known(U1, A1), (U2, A1, U3), Rebuild("history_diverged", 0), id="the first was edited"),
        pytest.param(known(U1, A1), (U1, A2, U3), Rebuild("history_diverged", 1), id="the answer was edited"),
        pytest.param(
            known(U1, CALLS, BOTH, A1),
            (U1, CALLS, user(R1, result("c2", "edited")), A1, U2),
            Rebuild("history_diverged", 2),
            id="a result was edited",
        ),
        pytest.param(known(U1, A1), (U1,), Rebuild("history_diverged", 0), id="the same request again"),
        pytest.param(known(U1, A1, U2, A2), (U1, A1, U2), Rebuild("history_diverged", 2), id="the last one again"),
        pytest.param(known(U1, CALLS, BOTH, A1), (U1, CALLS, BOTH), Rebuild("history_diverged", 2), id="results again"),
        pytest.param(
            known(U1, A1, setup=b"other"), (U1, A1, U2), Rebuild("fingerprint_changed", 2), id="another setup"
        ),
        pytest.param(
            known(U1, A1, broken="cancelled"), (U1, A1, U2), Rebuild("cancelled", 2), id="one that was interrupted"
        ),
        pytest.param(
            known(U1, CALLS, broken="process_exited"),
            (U1, CALLS, BOTH),
            Rebuild("process_exited", 2),
            id="one that died with its calls",
        ),
        pytest.param(
            known(U1, A1, broken="cancelled"), (U1, A2, U2), Rebuild("cancelled", 1), id="interrupted, then edited"
        ),
        pytest.param(
            known(U1, A1, setup=b"other", broken="cancelled"),
            (U1, A1, U2),
            Rebuild("fingerprint_changed", 2),
            id="the caller's change is named first",
        ),
        pytest.param(
            Known(setup=PROMPT.digest, broken="provider_error"),
            (U1,),
            Rebuild("provider_error", 0),
            id="a first request that failed",
        ),
        pytest.param(
            known(U1, A1),
            (U1, A1, user(text("see"), PICTURE)),
            Rebuild("not_plain", 2),
            id="a picture, which the program would change",
        ),
        pytest.param(
            known(U1, CALLS), (U1, CALLS, user(R1, result("c2", ""))), Rebuild("not_plain", 2), id="an empty result"
        ),
    ],
)
def test_how_a_process_goes_on(process: Known | None, turns: tuple[Turn, ...], decided: Continue | Rebuild) -> None:
    assert plan(process, replace(PROMPT, turns=turns)) == decided


@pytest.mark.parametrize("process", [None, known(U1, A1)])
def test_without_a_message_there_is_nothing_to_answer(process: Known | None) -> None:
    with pytest.raises(BadInput, match="no message"):
        plan(process, PROMPT)


@pytest.mark.parametrize(
    ("process", "turns", "aside"),
    [
        pytest.param(None, (U1,), False, id="there is nothing to preserve"),
        pytest.param(known(U1, A1), (U2,), False, id="no call waits"),
        pytest.param(known(U1, CALLS), (U1, CALLS, BOTH), False, id="the results come"),
        pytest.param(known(U1, CALLS), (U1, CALLS, user(R1)), False, id="a result is missing, but they go on"),
        pytest.param(known(U1, CALLS), (U1, CALLS, U2), False, id="the calls are left alone"),
        pytest.param(known(U1, CALLS), (U2,), True, id="another conversation"),
        pytest.param(known(U1, CALLS), (U2, A1, U3), True, id="a longer one"),
        pytest.param(known(U1, CALLS, setup=b"other"), (U2,), True, id="another one with other tools"),
        pytest.param(known(U1, CALLS, broken="cancelled"), (U2,), False, id="the calls are lost anyway"),
        pytest.param(
            known(U1, CALLS), (U1, CALLS, user(R1, result("c2", ""))), False, id="the results come, and are not plain"
        ),
        pytest.param(
            known(U1, CALLS, setup=b"other"), (U1, CALLS, BOTH), False, id="the results come, with other tools"
        ),
    ],
)
def test_whether_a_request_leaves_waiting_calls_alone(
    process: Known | None, turns: tuple[Turn, ...], aside: bool
) -> None:
    assert stands_aside(process, plan(process, replace(PROMPT, turns=turns))) is aside


@pytest.mark.parametrize(
    ("before", "now", "turns", "reason"),
    [
        pytest.param(b"1", b"2", (U3,), "compaction_window", id="a summary in a new window"),
        pytest.param(b"", b"1", (U3,), "compaction_window", id="a summary in the first window that is named"),
        pytest.param(b"1", b"1", (U3,), "history_diverged", id="an edit in the same window"),
        pytest.param(b"1", b"2", (U1, A1, U2), None, id="a new window of the same history"),
    ],
)
def test_a_compaction_that_the_caller_names_is_told_from_an_edit(
    before: bytes, now: bytes, turns: tuple[Turn, ...], reason: str | None
) -> None:
    decided = plan(replace(known(U1, A1), window=before), replace(PROMPT, turns=turns, window=now))
    assert getattr(decided, "reason", None) == reason


@pytest.mark.parametrize(
    ("process", "reason"),
    [
        (known(U1, A1, setup=b"other"), "fingerprint_changed"),
        (known(U1, A1, broken="cancelled"), "cancelled"),
    ],
)
def test_what_has_another_reason_is_no_compaction(process: Known, reason: str) -> None:
    decided = plan(replace(process, window=b"1"), replace(PROMPT, turns=(U3,), window=b"2"))
    assert decided == Rebuild(reason, 0)


def test_another_setup_is_another_digest() -> None:
    assert plan(known(U1, A1), replace(OTHER, turns=(U1, A1, U2))) == Rebuild("fingerprint_changed", 2)
