import json
from pathlib import Path
from typing import Any

import pytest

from cachegate.wire.claude_cli.prompt import Turn
from cachegate.wire.claude_cli.transcript import kept_lines, transcript
from cachegate.wire.hub import Json

RECORDED = tuple((Path(__file__).parent.parent / "recordings" / "claude_transcript.jsonl").read_bytes().splitlines())
"""Of claude 2.1.332: a message, two calls with a thought, their results and nothing else, an answer; a message, a call,
its result and a text, an answer. Cut to the fields that say who speaks and who came before."""
ENDS = (0, 1, 13, 16, 21, 24, 27, 32, 34)
"""How many lines hold that many turns."""


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def result(call_id: str) -> Json:
    return {"type": "tool_result", "tool_use_id": call_id, "content": "r"}


CALLED: Json = {"type": "tool_use", "id": "c1", "name": "Read", "input": {}}
U1 = Turn("user", (text("one"),))
A1 = Turn("assistant", (text("answer"),))
CALLS = Turn("assistant", (text("look"), CALLED))
RESULTS = Turn("user", (result("c1"), result("c2")))


def rows(lines: tuple[bytes, ...]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines]


def line(kind: str, content: object = "x", **more: object) -> bytes:
    return json.dumps({"type": kind, "message": {"role": kind, "content": content}, **more}).encode()


# --- what is kept of an old transcript ---


@pytest.mark.parametrize("kept", range(len(ENDS)))
def test_turns_of_a_real_transcript_are_kept_with_all_their_lines(kept: int) -> None:
    lines, turns = kept_lines(RECORDED, kept)
    assert turns == kept
    assert lines == RECORDED[: ENDS[kept]]
    said = [row["message"] for row in rows(lines) if "message" in row]
    assert sum(len(message["content"]) for message in said) == (0, 1, 5, 7, 8, 9, 11, 13, 14)[kept]


def test_a_transcript_with_fewer_turns_says_how_many() -> None:
    assert kept_lines(RECORDED, 9) == (RECORDED[:34], 8)
    assert kept_lines((), 3) == ((), 0)
    assert kept_lines((b"no json", b"[1]"), 1) == ((), 0)


@pytest.mark.parametrize(
    "note",
    [
        line("system"),
        line("summary"),
        line("attachment"),
        line("assistant", isSidechain=True),
        line("user", isSidechain=True),
        line("user", []),
        b"{",
    ],
    ids=["system", "summary", "attachment", "of a sub-agent", "to a sub-agent", "an empty message", "half a line"],
)
def test_a_line_that_says_nothing_is_no_turn_and_is_kept_inside_one(note: bytes) -> None:
    one, two, three = line("user"), line("assistant"), line("user", "y")
    lines = (note, one, note, note, two, note, two, note, three, note)
    assert kept_lines(lines, 1) == (lines[:2], 1)
    assert kept_lines(lines, 2) == (lines[:7], 2)
    assert kept_lines(lines, 3) == (lines[:9], 3)


@pytest.mark.parametrize("content", ["", "x", [text("x")]])
def test_a_message_is_a_turn_as_text_and_in_parts(content: object) -> None:
    assert kept_lines((line("user", content),), 1)[1] == 1


# --- what is written ---


def test_a_conversation_is_a_chain_of_lines() -> None:
    written = rows(transcript("s1", "/work", "model-x", (), (U1, CALLS, RESULTS, A1, U1)))
    assert [row["type"] for row in written] == ["user", "assistant", "user", "assistant", "user"]
    assert [row["message"]["content"] for row in written] == [
        list(turn.blocks) for turn in (U1, CALLS, RESULTS, A1, U1)
    ]
    assert [row["parentUuid"] for row in written] == [None, *(row["uuid"] for row in written[:-1])]
    assert all((row["sessionId"], row["cwd"], row["isSidechain"]) == ("s1", "/work", False) for row in written)
    assert len({row["uuid"] for row in written}) == 5


def test_an_answer_says_why_it_ended_and_who_wrote_it() -> None:
    called, said = (
        row["message"] for row in rows(transcript("s1", "/w", "model-x", (), (U1, CALLS, RESULTS, A1, U1)))[1:4:2]
    )
    assert (called["stop_reason"], said["stop_reason"]) == ("tool_use", "end_turn")
    assert (called["model"], called["role"], called["type"]) == ("model-x", "assistant", "message")
    assert called["id"] != said["id"]
    assert called["id"].startswith("msg_")


def test_ids_are_the_same_for_the_same_place_and_differ_otherwise() -> None:
    first = transcript("s1", "/w", "m", (), (U1, A1, U1))
    assert transcript("s1", "/w", "m", (), (U1, A1, U1)) == first
    longer = transcript("s1", "/w", "m", (), (U1, A1, U1, A1, U1))
    assert longer[:3] == first
    other = rows(transcript("s2", "/w", "m", (), (U1, A1, U1)))
    assert not {row["uuid"] for row in other} & {row["uuid"] for row in rows(first)}


@pytest.mark.parametrize(
    ("last", "empty"),
    [
        (RESULTS, True),
        (Turn("user", (result("c1"), text("and"))), False),
        (U1, False),
    ],
    ids=["results", "results and a text", "a text"],
)
def test_behind_results_at_the_end_the_user_says_nothing(last: Turn, empty: bool) -> None:
    written = rows(transcript("s1", "/w", "m", (), (U1, CALLS, last)))
    assert len(written) == (4 if empty else 3)
    if empty:
        assert (written[-1]["type"], written[-1]["message"]) == ("user", {"role": "user", "content": []})
        assert written[-1]["parentUuid"] == written[-2]["uuid"]


def test_results_in_the_midst_get_nothing_behind_them() -> None:
    assert len(transcript("s1", "/w", "m", (), (U1, CALLS, RESULTS, A1, U1))) == 5


def test_old_lines_are_taken_over_for_the_new_session() -> None:
    native, _ = kept_lines(RECORDED, 2)
    chained = [row for row in rows(native) if "uuid" in row]
    assert len(chained) == 7
    new = rows(transcript("s9", "/new", "m", native, (RESULTS,)))
    assert new[: len(chained)] == [{**row, "sessionId": "s9", "cwd": "/new"} for row in chained]
    assert len(new) == len(chained) + 2
    assert new[len(chained)]["parentUuid"] == chained[-1]["uuid"]


def test_notes_of_the_old_session_are_left_out() -> None:
    """One of them says where the old session was left, and the program would go on from there."""
    native = (line("user", uuid="u1"), line("assistant", uuid="u2"), b'{"type":"last-prompt","leafUuid":"u9"}', b"half")
    written = rows(transcript("s9", "/w", "m", native, (U1,)))
    assert [row["type"] for row in written] == ["user", "assistant", "user"]
    assert written[-1]["parentUuid"] == "u2"
    assert rows(transcript("s9", "/w", "m", (b'{"type":"mode"}',), (U1,)))[-1]["parentUuid"] is None


def test_an_old_session_that_needs_no_more_is_taken_over_whole() -> None:
    moved = rows((line("user", uuid="u1", sessionId="s9", cwd="/w"),))
    assert rows(transcript("s9", "/w", "m", (line("user", uuid="u1"),), ())) == moved
