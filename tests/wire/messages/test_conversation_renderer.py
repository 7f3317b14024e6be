import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegate.wire.compaction import SUMMARY_PREFACE, UNREADABLE
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import (
    Compacted,
    Image,
    Item,
    Message,
    Part,
    Reasoning,
    Role,
    Text,
    Tool,
    ToolCall,
    ToolRef,
    ToolResult,
)
from cachegate.wire.messages.codec import CODEC
from cachegate.wire.messages.content_parser import FAILED
from cachegate.wire.messages.conversation_renderer import BEGINNING, INTERRUPTED, LOST, NO_RESULT
from cachegate.wire.quirks import Quirk
from cachegate.wire.tool_names import found_tool
from wire.messages.rendered import HERE, call, rendered, result, said, target, text, turns, user

MISSING = {"type": "tool_result", "content": [text(NO_RESULT)], "is_error": True}
SYSTEM_TURNS = (Quirk.SYSTEM_TURNS,)


def used(call_id: str, name: str = "Read", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def given_back(call_id: str, *texts: str) -> dict[str, Any]:
    content = {"content": [text(each) for each in texts]} if texts else {}
    return {"type": "tool_result", "tool_use_id": call_id, **content}


def missing(call_id: str) -> dict[str, Any]:
    return {"tool_use_id": call_id, **MISSING}


def system(*texts: str, role: Role = Role.DEVELOPER) -> Message:
    return said(*texts, role=role)


def reminder(words: str) -> dict[str, str]:
    return text(f"<system-reminder>\n{words}\n</system-reminder>")


# --- turns ---


def test_items_of_one_side_become_one_turn_block_by_block() -> None:
    assert turns(user("a", "b"), user("c"), said("d"), said("e"), call(), result("c1", "f"), user("g")) == [
        ("user", [text("a"), text("b"), text("c")]),
        ("assistant", [text("d"), text("e"), used("c1")]),
        ("user", [given_back("c1", "f"), text("g")]),
    ]


def test_parallel_calls_stay_in_one_turn_and_so_do_their_results() -> None:
    assert turns(user("a"), call("c1"), call("c2"), result("c2", "two"), result("c1")) == [
        ("user", [text("a")]),
        ("assistant", [used("c1"), used("c2")]),
        ("user", [given_back("c2", "two"), given_back("c1")]),
    ]


def test_blank_messages_leave_no_turn() -> None:
    assert turns(user("a"), said(" "), user("", "b")) == [("user", [text("a"), text("b")])]


@pytest.mark.parametrize("items", [(), (user(" "),), (system("Be brief."),)])
def test_somebody_must_say_something(items: tuple[Item, ...]) -> None:
    assert turns(*items) == [("user", [text(BEGINNING)])]


def test_the_user_speaks_first() -> None:
    assert turns(said("Hello."), user("a")) == [
        ("user", [text(BEGINNING)]), ("assistant", [text("Hello.")]), ("user", [text("a")]),
    ]  # fmt: skip


def test_pictures_are_the_users() -> None:
    shown = Message(Role.ASSISTANT, (Text("Look:"), Image(url="https://a.test/b.png")))
    assert turns(user("a"), shown)[1] == ("assistant", [text("Look:"), text(LOST)])


# --- what a search found ---

SEARCH, LATE = ToolRef("ToolSearch"), ToolRef("create_issue", "mcp__github")
REFERENCE = {"type": "tool_reference", "tool_name": "mcp__github__create_issue"}
SEARCHING: dict[str, Any] = {
    "tools": (Tool(SEARCH), Tool(ToolRef("Read")), Tool(LATE, deferred=True)),
    "quirks": (Quirk.TOOL_REFERENCES,),
}


def found(call_id: str, *parts: Part) -> ToolResult:
    return ToolResult(call_id, parts)


def test_what_a_search_found_is_a_reference_to_a_tool_behind_the_prompt() -> None:
    items = (user("a"), call(tool=SEARCH), found("c1", found_tool(LATE)))
    assert turns(*items, **SEARCHING)[-1][1] == [{"type": "tool_result", "tool_use_id": "c1", "content": [REFERENCE]}]
    # Who does not know references is told in words, and has the tool in front.
    told = {"tools": SEARCHING["tools"]}
    assert turns(*items, **told)[-1][1] == [given_back("c1", "Found tool: mcp__github.create_issue")]


def test_a_tool_that_stands_in_front_or_nowhere_is_told_in_words() -> None:
    """Anthropic refuses references to tools that it does not know."""
    items = (user("a"), call(tool=SEARCH))
    for ref in (ToolRef("Read"), ToolRef("gone")):
        said_ = turns(*items, found("c1", found_tool(ref)), **SEARCHING)[-1][1]
        assert said_ == [given_back("c1", f"Found tool: {ref.name}")]


def test_words_beside_references_follow_the_results() -> None:
    """A result with references holds nothing else, and nothing may stand between two results."""
    items = (user("a"), call("c1", tool=SEARCH), call("c2"))
    results = (found("c1", Text("One:"), found_tool(LATE, marked=True), Text("Bye.")), result("c2", "b"))
    assert turns(*items, *results, user("c"), **SEARCHING)[-1][1] == [
        {"type": "tool_result", "tool_use_id": "c1", "content": [REFERENCE]},
        given_back("c2", "b"),
        text("One:"),
        text("Bye."),
        text("c"),
    ]
    marked = rendered(*items, *results, **SEARCHING)["messages"][-1]["content"]
    assert [block["type"] for block in marked if "cache_control" in block] == ["tool_result"]


def test_a_search_that_failed_or_is_not_known_refers_to_nothing() -> None:
    failed = ToolResult("c1", (found_tool(LATE),), is_error=True)
    name = "Found tool: mcp__github.create_issue"
    assert turns(user("a"), call(tool=SEARCH), failed, **SEARCHING)[-1][1] == [
        {**given_back("c1", name), "is_error": True}
    ]
    assert text(name) in turns(user("a"), found("c9", found_tool(LATE)), **SEARCHING)[-1][1]


# --- the system's words ---


def test_leading_words_of_the_system_are_instructions() -> None:
    body = rendered(system("b"), system("c", role=Role.SYSTEM), user("d"), instructions=(Text("a"), Text(" ")))
    assert [block["text"] for block in body["system"]] == ["a", "b", "c"]
    assert [message["role"] for message in body["messages"]] == ["user"]


def test_later_words_of_the_system_become_marked_text_of_the_user() -> None:
    assert turns(user("a"), system("b"), said("c"), system("d"), user("e")) == [
        ("user", [text("a"), reminder("b")]),
        ("assistant", [text("c")]),
        ("user", [reminder("d"), text("e")]),
    ]


def test_what_is_a_reminder_already_is_none_twice() -> None:
    once = "<system-reminder>\nb\n</system-reminder>"
    assert turns(user("a"), system(once)) == [("user", [text("a"), text(once)])]


def test_a_system_turn_follows_the_user_only() -> None:
    assert turns(user("a"), system("b"), system("c"), said("d"), system("e"), user("f"), quirks=SYSTEM_TURNS) == [
        ("user", [text("a")]),
        ("system", [text("b"), text("c")]),
        ("assistant", [text("d")]),
        ("user", [reminder("e"), text("f")]),
    ]


def test_a_system_turn_is_followed_by_the_assistant_only() -> None:
    assert turns(user("a"), system("b"), user("c"), quirks=SYSTEM_TURNS)[1:] == [
        ("system", [text("b")]), ("assistant", [text(INTERRUPTED)]), ("user", [text("c")]),
    ]  # fmt: skip


@pytest.mark.parametrize("quirks", [(), SYSTEM_TURNS])
def test_what_the_system_says_while_tools_run_comes_after_their_results(quirks: tuple[Quirk, ...]) -> None:
    note = [("system", [text("b")])] if quirks else []
    told = [] if quirks else [reminder("b")]
    calls = (user("a"), call("c1"), call("c2"), system("b"), result("c2", "2"))
    assert turns(*calls, result("c1", "1"), said("d"), quirks=quirks)[2:] == [
        ("user", [given_back("c2", "2"), given_back("c1", "1"), *told]), *note, ("assistant", [text("d")]),
    ]  # fmt: skip
    assert turns(*calls, quirks=quirks)[2:] == [("user", [given_back("c2", "2"), missing("c1"), *told]), *note]


def test_a_picture_among_the_systems_words_makes_them_the_users() -> None:
    shown = Message(Role.DEVELOPER, (Text("Look:"), Image(url="https://a.test/b.png")))
    picture = {"type": "image", "source": {"type": "url", "url": "https://a.test/b.png"}}
    assert turns(shown, quirks=SYSTEM_TURNS) == [("user", [reminder("Look:"), picture])]


# --- calls and results ---


@pytest.mark.parametrize("next_item", [user("go on"), system("note")])
def test_a_call_without_a_result_gets_one_where_the_conversation_goes_on(next_item: Message) -> None:
    before = (user("a"), call("c1"), call("c2"), result("c1", "one"))
    assert turns(*before, next_item)[2][1][:2] == [given_back("c1", "one"), missing("c2")]
    assert turns(*before)[2][1] == [given_back("c1", "one"), missing("c2")]


def test_an_answer_does_not_wait_for_results_either() -> None:
    assert turns(user("a"), call("c1"), call("c2"), result("c1", "one"), said("b"))[2:] == [
        ("user", [given_back("c1", "one"), missing("c2")]), ("assistant", [text("b")]),
    ]  # fmt: skip


def test_calls_one_after_the_other_are_turns_of_their_own() -> None:
    found = turns(user("a"), call("c1"), result("c1", "1"), call("c2"), result("c2", "2"))
    assert [role for role, _ in found] == ["user", "assistant", "user", "assistant", "user"]


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ((user("a"), result("c9", "x")), "Result of the tool call c9:"),
        ((user("a"), result("c9", "x", is_error=True)), "Error of the tool call c9:"),
        ((user("a"), call(), result("c1", "y"), result("c1", "x")), "Result of the tool call c1:"),
    ],
)
def test_a_result_that_answers_nothing_is_text(items: tuple[Item, ...], words: str) -> None:
    assert turns(*items)[-1][1][-2:] == [text(words), text("x")]


def test_errors_are_kept() -> None:
    assert turns(user("a"), call(), result("c1", "no", is_error=True))[2][1] == [
        {**given_back("c1", "no"), "is_error": True}
    ]


def test_an_error_with_a_picture_says_so_in_words_and_is_read_back() -> None:
    """Anthropic: all content must be type "text" if "is_error" is true."""
    failed = ToolResult("c1", (Image(url="https://a.test/b.png"),), is_error=True)
    body = rendered(user("a"), call(), failed, quirks=(Quirk.NO_CACHE_MARKS,))
    block = body["messages"][2]["content"][0]
    assert "is_error" not in block
    assert block["content"][0] == text(FAILED)
    again = CODEC.parse_request(CODEC.render_request(CODEC.parse_request(json.dumps(body).encode()), target()))
    assert again.items[2] == ToolResult("c1", (Image(url="https://a.test/b.png", marked=True),), is_error=True)


@pytest.mark.parametrize("call_id", ["functions.Read:0", "é", "", "a b", "call|1"])
def test_an_id_that_anthropic_refuses_becomes_one_it_takes(call_id: str) -> None:
    found = turns(user("a"), call(call_id), result(call_id, "x"))
    sent = found[1][1][0]["id"]
    assert sent.startswith("toolu_")
    assert found[2][1][0]["tool_use_id"] == sent
    assert turns(user("a"), call(call_id), result(call_id, "x")) == found


def test_an_id_used_again_is_another_one() -> None:
    """Servers that count calls begin at 0 in every answer; Anthropic wants each id once."""
    items = (user("a"), call("call_0"), result("call_0", "1"), call("call_0"), result("call_0", "2"))
    found = turns(*items)
    first, second = found[1][1][0]["id"], found[3][1][0]["id"]
    assert (first, first != second) == ("call_0", True)
    assert [block["tool_use_id"] for _, blocks in found for block in blocks if block["type"] == "tool_result"] == [
        first, second,
    ]  # fmt: skip
    assert turns(*items[:3]) == found[:3]


def test_names_are_those_of_the_tools() -> None:
    spawn, patch = ToolRef("spawn", "agents"), ToolRef("apply_patch", custom=True)
    assert turns(user("a"), call("c1", '{"n":1}', spawn), call("c2", "*** Begin", patch))[1][1] == [
        used("c1", "agents__spawn", n=1), used("c2", "apply_patch", input="*** Begin"),
    ]  # fmt: skip


# --- thoughts and compactions ---

OWN = Reasoning("Hm.", "sig", Protocol.MESSAGES)
THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "sig"}


@pytest.mark.parametrize(
    ("thought", "blocks"),
    [
        (OWN, [THINKING]),
        (Reasoning("Hm.", "sig", Protocol.MESSAGES, binding=HERE), [THINKING]),
        (Reasoning("", "blob", Protocol.MESSAGES, redacted=True), [{"type": "redacted_thinking", "data": "blob"}]),
        (Reasoning("", "sig", Protocol.MESSAGES), [{**THINKING, "thinking": ""}]),
        (Reasoning("Hm.", "sig", Protocol.MESSAGES, binding="account-two"), []),
        (Reasoning("Hm.", None, Protocol.MESSAGES), []),
        (Reasoning("Hm.", "gAAAA", Protocol.RESPONSES, binding=HERE), []),
        (Reasoning("Hm.", "reasoning_content", Protocol.CHAT, binding=HERE), []),
        (Reasoning("Hm."), []),
    ],
)
def test_a_thought_goes_to_whom_it_belongs(thought: Reasoning, blocks: list[Any]) -> None:
    assert turns(user("a"), thought, said("b")) == [("user", [text("a")]), ("assistant", [*blocks, text("b")])]


UNSIGNED = {**THINKING, "signature": ""}


@pytest.mark.parametrize(
    ("thought", "blocks"),
    [
        (Reasoning("Hm.", None, Protocol.MESSAGES, binding=HERE), [UNSIGNED]),
        (Reasoning("Hm.", None, Protocol.MESSAGES), [UNSIGNED]),
        (Reasoning("Hm.", "reasoning_content", Protocol.CHAT), [UNSIGNED]),
        (OWN, [THINKING]),
        (Reasoning("Hm.", None, Protocol.MESSAGES, binding="account-two"), []),
        (Reasoning("Hm.", None, Protocol.RESPONSES, binding=HERE), []),
        (Reasoning("", None, Protocol.MESSAGES, binding=HERE), []),
    ],
)
def test_a_thought_without_a_signature_goes_back_where_there_are_none(thought: Reasoning, blocks: list[Any]) -> None:
    turned = turns(user("a"), thought, said("b"), quirks=(Quirk.PLAIN_THOUGHTS,))
    assert turned == [("user", [text("a")]), ("assistant", [*blocks, text("b")])]


@pytest.mark.parametrize("after", [(), (user("b"),), (said(" "), user("b")), (system("b"),)])
def test_no_turn_ends_with_a_thought(after: tuple[Item, ...]) -> None:
    assert all(role != "assistant" for role, _ in turns(user("a"), OWN, *after))


def test_thoughts_between_calls_keep_their_place() -> None:
    assert turns(user("a"), OWN, call("c1"), OWN, call("c2"), OWN, result("c1", "x"))[1] == (
        "assistant", [THINKING, used("c1"), THINKING, used("c2")],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (Compacted(text="Sum."), SUMMARY_PREFACE + "Sum."),
        (Compacted(opaque="gAAAA", origin=Protocol.RESPONSES), UNREADABLE),
    ],
)
def test_what_was_compacted_stands_in_the_users_turn(item: Compacted, words: str) -> None:
    assert turns(item, user("a")) == [("user", [text(words), text("a")])]


# --- the law ---

IDS = st.sampled_from(("c1", "c2", "c.3"))
ITEMS: st.SearchStrategy[Item] = st.one_of(
    st.sampled_from((user("u"), said("s"), system("d"), said(" "), OWN, Compacted(text="Sum."))),
    st.builds(ToolCall, IDS, st.just(ToolRef("Read")), st.just("{}")),
    st.builds(ToolResult, IDS, st.just((Text("r"),))),
)


@settings(deadline=None, max_examples=150)
@given(st.lists(ITEMS, max_size=12), st.sampled_from(((), SYSTEM_TURNS)))
def test_however_odd_a_conversation_is_its_blocks_stay_a_prefix(items: list[Item], quirks: tuple[Quirk, ...]) -> None:
    """Until the user speaks next: a request that ends with open calls has to close them, and nobody sends one."""
    whole = _flat(turns(*items, user("end"), quirks=quirks))
    for count in range(1, len(items)):
        ended = _flat(turns(*items[:count], user("end"), quirks=quirks))
        begun = _flat(turns(*items[:count], user("end"), *items[count:], quirks=quirks))
        assert begun[: len(ended)] == ended
    assert whole


def _flat(found: list[tuple[str, list[Any]]]) -> list[tuple[str, Any]]:
    return [(role, block) for role, blocks in found for block in blocks]
