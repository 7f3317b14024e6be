"""Threads as values, and as a client is shown them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachegate.control import thread as threads
from cachegate.control.thread import (
    AgentMessage,
    CacheStop,
    Compaction,
    Progress,
    Settings,
    Thought,
    Thread,
    Tokens,
    TokenUsage,
    ToolUse,
    Turn,
    TurnError,
    TurnStatus,
    UserMessage,
)
from cachegate.guard.usage import Usage
from cachegate.wire.body import encode
from cachegate.wire.overflows import is_overflow

counts = st.none() | st.integers(0, 9)
THREAD = Thread("thread_1", "t", Settings("model-x"), 1, 1)


@given(st.lists(st.builds(Tokens, counts, counts, counts, counts)))
def test_a_sum_is_known_while_every_part_of_it_is(used: list[Tokens]) -> None:
    usage = TokenUsage()
    for tokens in used:
        usage = usage.plus(tokens)
    for name in ("input", "cached", "written", "output"):
        parts = [getattr(tokens, name) for tokens in used]
        assert getattr(usage.total, name) == (None if None in parts else sum(parts))
        assert getattr(usage.last, name) == (parts[-1] if parts else None)


def test_unknown_is_never_shown_as_0() -> None:
    shown = Tokens.of(Usage(5, None, None), 2).shown()
    assert shown == {
        "inputTokens": 5, "cachedInputTokens": None, "cacheWriteInputTokens": None, "outputTokens": 2, "totalTokens": 7,
    }  # fmt: skip
    assert Tokens(5).shown()["totalTokens"] is None


def test_items_are_shown_by_their_type() -> None:
    use = ToolUse("i4", "look_up", {"a": 1}, Progress.COMPLETED, ({"type": "inputText", "text": "b"},), success=True)
    items = (UserMessage("i1", ({"type": "text", "text": "a"},)), Thought("i2", "b"), AgentMessage("i3", "c"), use)
    shown = json.loads(encode(Turn("turn_1", TurnStatus.COMPLETED, None, items).shown()))
    assert [item["type"] for item in shown["items"]] == ["userMessage", "reasoning", "agentMessage", "dynamicToolCall"]
    assert shown["items"][3] == {
        "type": "dynamicToolCall", "id": "i4", "tool": "look_up", "arguments": {"a": 1}, "status": "completed",
        "contentItems": [{"type": "inputText", "text": "b"}], "success": True,
    }  # fmt: skip
    assert Compaction("i").shown() == {"type": "contextCompaction", "id": "i"}
    assert Compaction("i", "s").shown() == {"type": "contextCompaction", "id": "i", "summary": "s"}


def test_an_item_keeps_its_place_when_it_grows() -> None:
    turn = Turn("turn_1").put(AgentMessage("a", "")).put(Thought("b", "x")).put(AgentMessage("a", "said"))
    assert turn.items == (AgentMessage("a", "said"), Thought("b", "x"))


def test_a_stop_is_no_full_context_r23() -> None:
    stopped = TurnError("stopped", 400, stop=CacheStop("measured", 2, 300)).shown()
    assert stopped["codexErrorInfo"] == "other"
    assert stopped["cacheStop"] == {"reason": "measured", "count": 2, "waitSeconds": 300}
    assert not is_overflow((str(stopped["codexErrorInfo"]),), str(stopped["message"]))
    full = TurnError("full", 400, context_full=True).shown()
    assert (full["codexErrorInfo"], full["cacheStop"]) == ("contextWindowExceeded", None)


def test_the_oldest_turns_go_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "SHOWN_TURNS_MAX", 3)
    thread = THREAD
    for number in range(5):
        thread = thread.ended(Turn(f"turn_{number}", TurnStatus.COMPLETED), now_s=number)
    assert [json.loads(turn)["id"] for turn in thread.turns] == ["turn_2", "turn_3", "turn_4"]
    assert thread.updated_s == 4
    monkeypatch.setattr(threads, "SHOWN_BYTES_MAX", 10)
    assert len(thread.ended(Turn("turn_5"), 5).turns) == 1


def test_a_thread_is_shown_with_the_turn_under_way_as_the_last() -> None:
    thread = THREAD.ended(Turn("turn_1", TurnStatus.COMPLETED), 2)
    shown = json.loads(encode(thread.shown_whole("log.7", Turn("turn_2"))))
    assert [turn["status"] for turn in shown["turns"]] == ["completed", "inProgress"]
    assert (shown["status"], shown["cursor"]) == ("active", "log.7")
    listed = thread.shown("log.7", active=False)
    assert set(listed) == {
        "id", "name", "model", "protocol", "createdAt", "updatedAt", "status", "contextFull", "tokenUsage", "cursor",
    }  # fmt: skip
