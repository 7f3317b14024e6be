"""A turn from its notifications, and from a snapshot what of them was lost."""

from typing import Any

import pytest

from cachegate.sdk import CacheStop, Completed, ContextFull, Interrupted, ProviderError, TextDelta, Tokens, Usage
from cachegate.sdk.frames import Notification
from cachegate.sdk.hosted_turn import TurnReader, failure, usage_of

CALL = {"type": "dynamicToolCall", "id": "i1", "tool": "t", "arguments": {}, "success": True, "contentItems": []}
SAID = [
    {"type": "userMessage", "id": "u1", "content": []},
    {"type": "agentMessage", "id": "m1", "text": "Let me see."},
    CALL,
    {"type": "reasoning", "id": "r1", "text": "hm"},
    {"type": "agentMessage", "id": "m2", "text": "It is "},
    {"type": "agentMessage", "id": "m3", "text": "3."},
]


def ended(status: str, **more: Any) -> Notification:
    return Notification("turn/completed", {"turn": {"id": "t1", "status": status, "items": SAID, **more}})


def test_what_is_about_another_turn_is_not_heard() -> None:
    reader = TurnReader("t1")
    assert reader.hear(Notification("item/agentMessage/delta", {"turnId": "t2", "delta": "x"})) == []
    assert reader.hear(Notification("turn/completed", {"turn": {"id": "t2", "status": "completed"}})) == []
    assert reader.end is None


def test_the_answer_is_what_was_said_after_the_last_tool() -> None:
    reader = TurnReader("t1")
    assert reader.hear(ended("completed")) == []
    assert isinstance(reader.end, Completed)
    assert reader.end.answer.text == "It is 3."


def test_endings_that_are_none() -> None:
    reader = TurnReader("t1")
    reader.hear(ended("interrupted"))
    assert isinstance(reader.end, Interrupted)
    assert reader.end.text == "It is 3."
    reader.hear(ended("failed", error={"message": "no", "status": 502}))
    assert isinstance(reader.end, ProviderError)


def test_a_snapshot_tells_only_what_was_not_told() -> None:
    reader = TurnReader("t1")
    for delta in ("Let ", "me"):
        reader.hear(Notification("item/agentMessage/delta", {"turnId": "t1", "itemId": "m1", "delta": delta}))
    reader.hear(Notification("item/started", {"turnId": "t1", "item": CALL}))
    events = reader.snapshot({"id": "t1", "status": "inProgress", "items": SAID})
    assert events[0] == TextDelta(" see.")
    assert [type(event).__name__ for event in events[1:]] == ["ToolAnswered", "ThoughtDelta", "TextDelta", "TextDelta"]
    assert reader.snapshot({"id": "t1", "status": "inProgress", "items": SAID}) == []
    assert reader.tokens == Tokens(), "what it took is no longer known"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({}, ProviderError),
        ({"codexErrorInfo": "contextWindowExceeded"}, ContextFull),
        ({"cacheStop": {}}, CacheStop),
    ],
)
def test_failures(error: dict[str, Any], kind: type[Exception]) -> None:
    assert type(failure(error)) is kind


def test_usage_that_nobody_reported_is_none() -> None:
    assert usage_of({"last": {"inputTokens": None}, "total": {"inputTokens": 0}}) == Usage(Tokens(), Tokens(input=0))
    assert usage_of(None) == Usage(Tokens(), Tokens())
