import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachegate.wire.copilot.history import Answered, Attachment, Called, Returned, Said, Step
from cachegate.wire.copilot.seed import Journal, attached, seed

PICTURE = Attachment("iVBO", "image/png")
PAST: tuple[Step, ...] = (
    Said("one", (Attachment("iVBO", "image/png", "a.png"),)),
    Answered("look", (Called("c1", "Read", '{"path":"/a"}'), Called("c2", "Read", "not json"))),
    Returned("c2", "r2", (PICTURE, Attachment("JVBE", "application/pdf"))),
    Returned("c1", "no such file", is_error=True),
    Answered("done"),
    Said("two"),
)


def line(event_id: str, kind: str = "assistant.turn_start") -> bytes:
    return json.dumps({"type": kind, "data": {}, "id": event_id}).encode()


def parsed(journal: Journal) -> list[dict[str, Any]]:
    return [json.loads(each) for each in journal.lines]


# --- what the old session has ---

OLD = Journal(
    (line("start", "session.start"), line("s1"), line("m1"), line("x"), line("s2"), line("r2"), line("r1"), line("y")),
    ("s1", "s2", "r1", "r2"),
)


@pytest.mark.parametrize(
    ("kept", "lines"),
    [(0, 0), (1, 2), (2, 5), (3, 7), (4, 7)],
    ids=["nothing", "one step", "what stands between steps", "in another order", "two that came in another order"],
)
def test_a_journal_is_cut_behind_its_steps(kept: int, lines: int) -> None:
    assert OLD.until(kept) == OLD.lines[:lines]


def test_a_journal_without_one_of_its_steps_is_of_no_use() -> None:
    assert Journal(OLD.lines[:3], OLD.ends).until(2) is None
    assert Journal(OLD.lines[:3], OLD.ends).until(1) == OLD.lines[:2]
    assert Journal((), OLD.ends).until(1) is None


def test_a_journal_whose_steps_are_not_all_known_is_of_no_use() -> None:
    assert Journal(OLD.lines, OLD.ends[:2]).until(3) is None
    assert Journal(OLD.lines, ("s1", "")).until(2) is None, "a step whose event never came by"


def test_a_broken_line_is_no_event() -> None:
    assert Journal((line("start"), b'{"id":"s1', line("s1")), ("s1",)).until(1) is not None


# --- what is written anew ---


def test_a_history_is_written_as_the_runtime_keeps_it() -> None:
    start, *events = parsed(seed("id-1", (), PAST))
    assert start["type"] == "session.start"
    assert start["data"] == {
        "sessionId": "id-1",
        "version": 1,
        "producer": "copilot-agent",
        "copilotVersion": "",
        "startTime": "2020-01-01T00:00:00.000Z",
        "context": {"cwd": "/"},
    }
    assert {event["timestamp"] for event in (start, *events)} == {"2020-01-01T00:00:00.000Z"}
    assert [event["type"] for event in events] == [
        "user.message", "assistant.message", "tool.execution_start", "tool.execution_start",
        "tool.execution_complete", "tool.execution_complete", "assistant.message", "user.message",
    ]  # fmt: skip
    said, answer, first, _, returned, failed, done, _ = (event["data"] for event in events)
    assert said["content"] == said["transformedContent"] == "one"
    assert said["attachments"] == [
        {"type": "blob", "data": "iVBO", "mimeType": "image/png", "displayName": "a.png"},
    ]
    assert answer["content"] == "look"
    assert answer["toolRequests"] == [
        {"toolCallId": "c1", "name": "Read", "arguments": {"path": "/a"}, "type": "function"},
        {"toolCallId": "c2", "name": "Read", "arguments": {}, "type": "function"},
    ]
    assert first == {"toolCallId": "c1", "toolName": "Read", "arguments": {"path": "/a"}}
    picture = {"type": "image", "data": "iVBO", "mimeType": "image/png"}
    paper = {"type": "resource", "data": "JVBE", "mimeType": "application/pdf"}
    result = {"content": "r2", "binaryResultsForLlm": [picture, paper]}
    assert returned == {"toolCallId": "c2", "success": True, "result": result}
    error = {"message": "no such file", "code": "failure"}
    assert failed == {"toolCallId": "c1", "success": False, "error": error}
    assert done["toolRequests"] == []


def test_messages_have_ids_of_their_own_and_events_other_ones() -> None:
    events = parsed(seed("id-1", (), PAST))
    ids = [event["id"] for event in events] + [
        event["data"]["messageId"] for event in events if "messageId" in event["data"]
    ]
    assert len(ids) == len(events) + 4
    assert len(set(ids)) == len(ids)


def test_each_event_names_the_one_before_it() -> None:
    events = parsed(seed("id-1", (line("old", "session.start"), line("n1"), line("n2")), PAST))
    assert events[0]["parentId"] is None
    assert [event["parentId"] for event in events[3:]] == ["n2", *(event["id"] for event in events[3:-1])]
    first, second, *_ = parsed(seed("id-1", (), PAST))
    assert second["parentId"] == first["id"]


def test_the_ends_are_the_events_that_complete_the_new_steps() -> None:
    native = (line("old", "session.start"), line("n1"))
    journal = seed("id-1", native, PAST)
    assert len(journal.ends) == len(PAST)
    by_id = {event["id"]: event["type"] for event in parsed(journal)}
    assert [by_id[end] for end in journal.ends] == [
        "user.message", "assistant.message", "tool.execution_complete", "tool.execution_complete",
        "assistant.message", "user.message",
    ]  # fmt: skip
    assert journal.until(1) == journal.lines[:3]
    assert journal.until(len(PAST)) == journal.lines


def test_the_native_lines_stay_as_they_are_but_the_session_has_its_own_beginning() -> None:
    native = (line("old", "session.start"), b'{"id": "n1",   "odd spacing": true}')
    journal = seed("id-1", native, ())
    assert journal.lines[1:] == native[1:]
    assert b"id-1" in journal.lines[0]
    assert journal.ends == ()


def test_the_same_history_makes_the_same_lines_and_another_session_other_ids() -> None:
    assert seed("id-1", (), PAST) == seed("id-1", (), PAST)
    assert {event["id"] for event in parsed(seed("id-1", (), PAST))}.isdisjoint(
        event["id"] for event in parsed(seed("id-2", (), PAST))
    )


@given(cut=st.integers(0, len(PAST)))
def test_a_longer_history_begins_with_the_lines_of_a_shorter_one(cut: int) -> None:
    whole, begun = seed("id-1", (), PAST), seed("id-1", (), PAST[:cut])
    assert whole.lines[: len(begun.lines)] == begun.lines


@given(text=st.text())
def test_any_text_is_one_line(text: str) -> None:
    journal = seed("id-1", (), (Said(text), Answered(text), Returned("c1", text)))
    assert all(b"\n" not in each for each in journal.lines)
    _, said, answered, returned = parsed(journal)
    assert said["data"]["content"] == answered["data"]["content"] == returned["data"]["result"]["content"] == text


def test_attachments_are_told_in_the_runtimes_form() -> None:
    assert attached((PICTURE, Attachment("JVBE", "application/pdf", "a.pdf"))) == [
        {"type": "blob", "data": "iVBO", "mimeType": "image/png"},
        {"type": "blob", "data": "JVBE", "mimeType": "application/pdf", "displayName": "a.pdf"},
    ]
