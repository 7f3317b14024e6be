from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cachegate.wire.hub import Item, Message, Request, Role, Target, Text, ToolCall, ToolRef, ToolResult
from cachegate.wire.responses.conversation_renderer import LOST_CALL, NO_RESULT, render_conversation
from cachegate.wire.responses.item_renderer import ItemRenderer
from cachegate.wire.responses.tool_parser import CLIENT_SEARCH
from cachegate.wire.responses.tool_renderer import ToolRenderer

SHELL, PATCH = ToolRef("shell"), ToolRef("apply_patch", custom=True)
STOP = Message(Role.USER, (Text("Stop."),))


def rendered(*items: Item) -> list[dict[str, Any]]:
    target = Target("m", "openai")
    return render_conversation(
        items, ItemRenderer(target, ToolRenderer(Request("m", stream=True, items=items), target))
    )


def call(call_id: str, tool: ToolRef = SHELL) -> ToolCall:
    return ToolCall(call_id, tool, "{}")


def result(call_id: str, text: str = "ok") -> ToolResult:
    return ToolResult(call_id, (Text(text),))


def ids(items: list[dict[str, Any]]) -> list[str]:
    return [item["call_id"] for item in items]


def test_calls_and_results_that_fit_are_told_as_they_are() -> None:
    items = rendered(call("c1"), call("c2"), result("c2"), result("c1"))
    assert ids(items) == ["c1", "c2", "c2", "c1"]
    assert [item["type"] for item in items] == ["function_call"] * 2 + ["function_call_output"] * 2


def test_a_call_that_was_interrupted_is_answered_where_it_stands() -> None:
    items = rendered(call("c1"), call("c2", PATCH), result("c1"), STOP)
    assert ids(items[:4]) == ["c1", "c2", "c2", "c1"]
    assert items[2] == {"type": "custom_tool_call_output", "call_id": "c2", "output": NO_RESULT}
    assert rendered(call("c1"), call("c2", PATCH), result("c1"), STOP, call("c3"), result("c3"))[:5] == items


def test_a_result_without_a_call_is_told_in_words() -> None:
    (told,) = rendered(result("lost"))
    assert told["role"] == "user"
    assert [part["text"] for part in told["content"]] == [LOST_CALL, "ok"]
    assert [item.get("role") for item in rendered(call("c"), result("c"), result("c"))] == [None, None, "user"]
    assert [item["type"] for item in rendered(result("c"), call("c"))] == [
        "message", "function_call", "function_call_output",
    ]  # fmt: skip


def test_a_search_of_the_clients_is_answered_by_what_it_found() -> None:
    asked = call("c", CLIENT_SEARCH)
    found = {"type": "tool_search_output", "call_id": "c", "execution": "client", "status": "completed", "tools": []}
    assert rendered(asked, result("c"))[1] == found
    assert rendered(asked, STOP)[1] == found, "interrupted"


def test_a_result_is_of_the_kind_of_its_call() -> None:
    assert rendered(call("c", PATCH), result("c"))[1]["type"] == "custom_tool_call_output"


def test_an_id_that_openai_would_not_take_is_replaced_in_call_and_result() -> None:
    for odd in ("functions.Read:0", "i" * 65, "é", ""):
        first, second = ids(rendered(call(odd), result(odd)))
        assert first == second != odd
        assert len(first) <= 64
        assert first.isascii()


def test_an_id_that_comes_again_is_told_apart_and_keeps_its_result() -> None:
    items = rendered(call("c"), result("c", "one"), call("c"), result("c", "two"))
    first, one, second, two = ids(items)
    assert first == one == "c"
    assert second == two != "c"
    assert items[:2] == rendered(call("c"), result("c", "one"))


calls = st.sampled_from(["a", "b", "a.b", "é", "i" * 70])
items_ = st.lists(st.one_of(calls.map(call), calls.map(result), st.just(STOP)), max_size=8)


@given(items_)
def test_every_call_has_one_result_behind_it(items: list[Item]) -> None:
    waiting: set[str] = set()
    seen: set[str] = set()
    for item in rendered(*items):
        match item["type"]:
            case "function_call":
                assert item["call_id"] not in seen
                seen.add(item["call_id"])
                waiting.add(item["call_id"])
            case "function_call_output":
                waiting.remove(item["call_id"])
    assert not waiting
