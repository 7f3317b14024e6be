import re
from typing import Any

import pytest

from cachegate.errors import BadInput
from cachegate.wire.chat.call_ids import CALL_ID_CHARS_MAX
from cachegate.wire.chat.message_renderer import (
    ATTACHED,
    ERROR_MARK,
    MISSING_RESULT,
    NO_THOUGHTS,
    SYSTEM_IN_TURN,
    Conversation,
)
from cachegate.wire.compaction import SUMMARY_PREFACE, UNREADABLE
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import (
    Compacted,
    Document,
    Image,
    Item,
    Message,
    Part,
    Reasoning,
    Request,
    Role,
    Text,
    ToolCall,
    ToolRef,
    ToolResult,
)
from cachegate.wire.quirks import Quirk
from cachegate.wire.tool_names import ToolNames
from wire.chat.chunks import target

SHELL, PATCH = ToolRef("shell"), ToolRef("apply_patch", custom=True)
IMAGE = Image(data="AAAA", media_type="image/png")
SHOWN = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def render(*items: Item, quirks: tuple[Quirk, ...] = (), instructions: tuple[Text, ...] = ()) -> list[Any]:
    conversation = Conversation(ToolNames(Request("m", stream=True, items=items), 64), target(*quirks))
    conversation.instruct(instructions)
    for item in items:
        conversation.add(item)
    return conversation.messages()


def user(*parts: Part | str) -> Message:
    return Message(Role.USER, tuple(Text(part) if isinstance(part, str) else part for part in parts))


def said(text: str, role: Role = Role.ASSISTANT) -> Message:
    return Message(role, (Text(text),))


def call(call_id: str, ref: ToolRef = SHELL, arguments: str = '{ "a":1}') -> ToolCall:
    return ToolCall(call_id, ref, arguments)


def result(call_id: str, *parts: Part | str, is_error: bool = False) -> ToolResult:
    return ToolResult(call_id, tuple(Text(part) if isinstance(part, str) else part for part in parts), is_error)


def tool(call_id: str, content: str) -> dict[str, str]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def called(call_id: str, name: str = "shell", arguments: str = '{ "a":1}') -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_text_and_calls_are_one_message_and_their_results_follow_in_their_order() -> None:
    assert render(
        user("hi"), said("Let me."), call("a"), call("b", PATCH, "*** x"), result("b", "rb"), result("a", "ra")
    ) == [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": "Let me.",
            "tool_calls": [called("a"), called("b", "apply_patch", '{"input":"*** x"}')],
        },
        tool("b", "rb"),
        tool("a", "ra"),
    ]


def test_a_call_without_text_and_arguments() -> None:
    assert render(call("a", arguments=""), result("a"))[0] == {
        "role": "assistant",
        "content": None,
        "tool_calls": [called("a", arguments="{}")],
    }


def test_several_texts_stay_parts_and_one_is_a_string() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert render(user("a", "b"))[0]["content"] == parts
    assert render(user("a"))[0]["content"] == "a"
    assert render(Message(Role.ASSISTANT, (Text("a"), Text("b"))))[0]["content"] == parts
    assert render(user("a", "b"), quirks=(Quirk.STRING_CONTENT,))[0]["content"] == "a\n\nb"
    assert render(user("a", IMAGE), quirks=(Quirk.STRING_CONTENT,))[0]["content"] == [parts[0], SHOWN]


@pytest.mark.parametrize(
    ("part", "shown"),
    [
        (IMAGE, SHOWN),
        (
            Image(url="https://x/y.png", detail="low"),
            {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}},
        ),
        (
            Document(data="AAAA", media_type="application/pdf"),
            {"type": "file", "file": {"filename": "document.pdf", "file_data": "data:application/pdf;base64,AAAA"}},
        ),
        (
            Document(data="AAAA", media_type="text/csv"),
            {"type": "file", "file": {"filename": "document", "file_data": "data:text/csv;base64,AAAA"}},
        ),
        (
            Document(text="body", name='a"b.txt'),
            {"type": "text", "text": '<document name="a_b.txt">\nbody\n</document>'},
        ),
        (Document(text="body"), {"type": "text", "text": "<document>\nbody\n</document>"}),
    ],
)
def test_a_part_of_a_message(part: Part, shown: dict[str, Any]) -> None:
    assert render(user(part))[0]["content"] == [shown]


def test_an_error_is_marked_in_its_text() -> None:
    assert render(call("a"), result("a", "No such file.", is_error=True))[1] == tool("a", ERROR_MARK + "No such file.")


def test_pictures_of_results_follow_when_all_results_are_there() -> None:
    assert render(call("a"), call("b"), result("a", "ra", IMAGE), result("b", IMAGE), user("go"))[1:] == [
        tool("a", "ra"),
        tool("b", ATTACHED),
        {"role": "user", "content": [{"type": "text", "text": "Attached to the result of tool call a:"}, SHOWN]},
        {"role": "user", "content": [{"type": "text", "text": "Attached to the result of tool call b:"}, SHOWN]},
        {"role": "user", "content": "go"},
    ]


def test_what_is_said_between_a_call_and_its_result_waits() -> None:
    assert render(call("a"), said("note", Role.SYSTEM), user("steer"), result("a", "ra"))[1:] == [
        tool("a", "ra"),
        {"role": "system", "content": "note"},
        {"role": "user", "content": "steer"},
    ]


def test_a_result_that_never_comes_is_told_as_such() -> None:
    aborted = (call("a"), call("b"), result("b", "rb"), user("Stop."))
    shown = [tool("b", "rb"), tool("a", MISSING_RESULT), {"role": "user", "content": "Stop."}]
    assert render(*aborted)[1:] == shown
    assert render(*aborted, said("Fine."), user("x"))[1:4] == shown
    assert render(call("a"))[1:] == [tool("a", MISSING_RESULT)]


def test_a_result_that_belongs_to_no_call_is_told_by_the_user() -> None:
    (stray,) = render(result("zz", "r", IMAGE))
    assert stray["role"] == "user"
    assert stray["content"][0]["text"].endswith("zz, which stands nowhere before it:\nr")
    assert stray["content"][1] == SHOWN
    twice = render(call("a"), result("a", "1"), result("a", "2"))
    assert [message["role"] for message in twice] == ["assistant", "tool", "user"]


def test_ids_that_servers_use_again_are_matched_turn_by_turn() -> None:
    rendered = render(call("0"), result("0", "x"), call("0"), result("0", "y"))
    assert rendered[1::2] == [tool("0", "x"), tool("0", "y")]


def test_a_long_id_is_cut_alike_in_the_call_and_its_result() -> None:
    one, other = "i" * 90 + "a", "i" * 90 + "b"
    turn, first, second = render(call(one), call(other), result(other, "o"), result(one, "1"))
    ids = [shown["id"] for shown in turn["tool_calls"]]
    assert all(len(call_id) <= CALL_ID_CHARS_MAX for call_id in ids)
    assert [second["tool_call_id"], first["tool_call_id"]] == ids
    assert len(set(ids)) == 2


SHORT = (Quirk.SHORT_CALL_IDS,)


def test_short_ids_are_the_same_in_a_call_and_its_result_and_in_every_continuation() -> None:
    talk = (call("call_one"), call("abcDEF123"), result("abcDEF123", "2"), result("call_one", "1"), user("go"))
    again = (call("abcDEF123"), call("call_one"), result("call_one", "3"), result("abcDEF123", "4"))
    first, two, one, said, second, three, four = render(*talk, *again, quirks=SHORT)
    ids = [shown["id"] for turn in (first, second) for shown in turn["tool_calls"]]
    assert [two["tool_call_id"], one["tool_call_id"]] == [ids[1], ids[0]]
    assert [three["tool_call_id"], four["tool_call_id"]] == [ids[3], ids[2]]
    assert [message["content"] for message in (two, one, three, four)] == ["2", "1", "3", "4"]
    assert all(re.fullmatch(r"[a-zA-Z0-9]{9}", wire_id) for wire_id in ids)
    assert ids[1] == "abcDEF123"
    assert len(set(ids)) == 4, "one that comes again is another call"
    assert render(*talk, quirks=SHORT) == [first, two, one, said]


def test_two_calls_of_one_turn_with_one_short_id_are_answered_in_their_order() -> None:
    turn, first, second = render(call("a"), call("a"), result("a", "1"), result("a", "2"), quirks=SHORT)
    assert [first["tool_call_id"], second["tool_call_id"]] == [shown["id"] for shown in turn["tool_calls"]]
    assert (first["content"], second["content"]) == ("1", "2")


def test_a_short_id_that_never_gets_its_result_is_answered_too() -> None:
    turn, missing = render(call("call_one"), quirks=SHORT)
    assert missing == tool(turn["tool_calls"][0]["id"], MISSING_RESULT)


def test_what_belongs_to_a_call_with_a_short_id_stays_with_it() -> None:
    sealed = thought('{"id":"call_b","extra_content":{"google":1}}', text="", redacted=True)
    first, second = render(call("call_a"), sealed, call("call_b"), quirks=SHORT)[0]["tool_calls"]
    assert (first.get("extra_content"), second["extra_content"]) == (None, {"google": 1})


def test_a_freeform_call_is_one_where_the_server_knows_such_and_else_a_function() -> None:
    talk = (call("a", PATCH, "*** x"), call("b"), result("a", "done"), result("b", "ra"))
    native = {"id": "a", "type": "custom", "custom": {"name": "apply_patch", "input": "*** x"}}
    turn, first, _ = render(*talk, quirks=(Quirk.CUSTOM_TOOLS,))
    assert turn["tool_calls"] == [native, called("b")]
    assert first == tool("a", "done")
    assert render(*talk)[0]["tool_calls"] == [called("a", "apply_patch", '{"input":"*** x"}'), called("b")]


def test_a_refusal_has_a_field_and_is_text_for_servers_that_know_strings_only() -> None:
    refusal = Message(Role.ASSISTANT, (Text("No.", refusal=True),))
    assert render(refusal) == [{"role": "assistant", "content": "", "refusal": "No."}]
    assert render(refusal, quirks=(Quirk.STRING_CONTENT,)) == [{"role": "assistant", "content": "No."}]


def test_an_answer_that_says_nothing_is_left_out() -> None:
    assert render(Message(Role.ASSISTANT, (Text(""),)), Reasoning("Hm.", "reasoning_content", Protocol.CHAT)) == []


@pytest.mark.parametrize(
    ("quirks", "role"), [((), "developer"), ((Quirk.NO_DEVELOPER,), "system"), ((Quirk.ONE_SYSTEM_IN_FRONT,), "system")]
)
def test_a_developer(quirks: tuple[Quirk, ...], role: str) -> None:
    assert render(said("a", Role.DEVELOPER), user("x"), quirks=quirks)[0] == {"role": role, "content": "a"}


def test_one_system_message_in_front_takes_all_that_come_before_the_conversation() -> None:
    items = (said("b", Role.DEVELOPER), said("c", Role.SYSTEM), user("hi"), said("d", Role.SYSTEM))
    late = {"role": "user", "content": SYSTEM_IN_TURN.format("d")}
    quirks = (Quirk.ONE_SYSTEM_IN_FRONT,)
    front = {"role": "system", "content": [{"type": "text", "text": text} for text in "abc"]}
    assert render(*items, instructions=(Text("a"),), quirks=quirks) == [front, {"role": "user", "content": "hi"}, late]
    plain = render(*items, instructions=(Text("a"),), quirks=(*quirks, Quirk.STRING_CONTENT))
    assert plain[0] == {"role": "system", "content": "a\n\nb\n\nc"}
    assert render(*items, quirks=(*quirks, Quirk.CHAT_CACHE_MARKS))[0]["content"][-1]["text"] == "c"


def thought(opaque: str | None = "reasoning_content", **more: Any) -> Reasoning:
    return Reasoning(**{"text": "Hm.", "opaque": opaque, "origin": Protocol.CHAT, "binding": "account-one", **more})


BACK = (Quirk.REASONING_CONTENT,)
NEEDED = (*BACK, Quirk.NEEDS_THOUGHTS)


def test_its_own_thoughts_go_back_to_a_server_that_wants_them_with_calls() -> None:
    assert render(thought(), call("a"), result("a"), quirks=BACK)[0]["reasoning_content"] == "Hm."
    assert render(thought("reasoning"), call("a"), quirks=BACK)[0]["reasoning"] == "Hm."
    assert render(thought(), thought(text=" So."), call("a"), quirks=BACK)[0]["reasoning_content"] == "Hm. So."
    assert "reasoning_content" not in render(thought(), said("Done."), user("x"), quirks=BACK)[0]
    assert "reasoning_content" not in render(thought(), call("a"), result("a"))[0]


@pytest.mark.parametrize(
    "foreign",
    [
        thought(binding="account-two"),
        thought(origin=Protocol.MESSAGES, opaque="sig"),
        thought(origin=None, binding=None, opaque=None),
    ],
)
def test_foreign_thoughts_are_dropped_and_nothing_is_forged_in_their_place(foreign: Reasoning) -> None:
    assert b"Hm." not in str(render(foreign, call("a"), result("a"), quirks=BACK)).encode()
    assert b"Hm." not in str(render(foreign, call("a"), result("a"), quirks=NEEDED)).encode()
    assert render(foreign, call("a"), quirks=NEEDED)[0]["reasoning_content"] == NO_THOUGHTS
    assert "reasoning_content" not in render(foreign, call("a"), quirks=BACK)[0]
    assert "reasoning_content" not in render(foreign, call("a"))[0]


def test_a_blank_thought_goes_to_those_only_who_refuse_a_call_without_one() -> None:
    assert render(call("a"), quirks=NEEDED)[0]["reasoning_content"] == NO_THOUGHTS
    assert "reasoning_content" not in render(call("a"), quirks=BACK)[0], "a template would show it to the model"
    assert render(thought(), call("a"), quirks=NEEDED)[0]["reasoning_content"] == "Hm."
    assert "reasoning_content" not in render(said("Done."), quirks=NEEDED)[0]


def test_openrouter_gets_its_details_back_or_else_its_text() -> None:
    details = '[{"type":"reasoning.text","text":"Hm.","signature":"s"}]'
    quirks = (Quirk.REASONING_OBJECT,)
    rendered = render(thought(details), said("Done."), quirks=quirks)[0]
    assert rendered["reasoning_details"] == [{"type": "reasoning.text", "text": "Hm.", "signature": "s"}]
    assert "reasoning" not in rendered
    assert render(thought("reasoning"), said("Done."), quirks=quirks)[0]["reasoning"] == "Hm."
    assert "reasoning_details" not in render(thought(details, binding="account-two"), said("Done."), quirks=quirks)[0]


def test_gemini_gets_its_signature_back_at_the_call_it_belongs_to() -> None:
    sealed = thought('{"id":"b","extra_content":{"google":1}}', text="", redacted=True)
    first, second = render(call("a"), sealed, call("b"), result("a"), result("b"))[0]["tool_calls"]
    assert (first.get("extra_content"), second["extra_content"]) == (None, {"google": 1})


def test_a_summary_takes_the_place_of_what_it_sums_up() -> None:
    assert render(Compacted(text="All well."))[0] == {"role": "user", "content": SUMMARY_PREFACE + "All well."}
    assert render(Compacted(opaque="x", origin=Protocol.RESPONSES))[0] == {"role": "user", "content": UNREADABLE}


@pytest.mark.parametrize(
    ("item", "field"),
    [
        (user(Document(url="https://x/a.pdf")), "document.url"),
        (Message(Role.ASSISTANT, (IMAGE,)), "assistant"),
        (Message(Role.SYSTEM, (IMAGE,)), "system"),
    ],
)
def test_what_cannot_be_carried_is_refused_under_its_name(item: Item, field: str) -> None:
    with pytest.raises(BadInput) as refused:
        render(item)
    assert refused.value.message.startswith(f"{field}: ")


def test_with_marks_all_text_stands_in_parts_and_at_most_four_are_marked() -> None:
    marked = Text("m", marked=True)
    items: tuple[Item, ...] = (
        *(Message(Role.USER, (marked,)) for _ in range(6)),
        call("a"),
        ToolResult("a", (marked,)),
    )
    rendered = render(*items, instructions=(marked,), quirks=(Quirk.CHAT_CACHE_MARKS,))
    contents = [message["content"] for message in rendered if message["content"] is not None]
    assert all(isinstance(content, list) for content in contents)
    assert ["cache_control" in content[-1] for content in contents] == [True, *[False] * 4, True, True, True]


def test_marks_on_messages_leave_their_texts_as_they_are_without_marks() -> None:
    marked = Text("m", marked=True)
    items: tuple[Item, ...] = (
        *(Message(Role.USER, (marked,)) for _ in range(3)),
        user(),
        user("a", IMAGE),
        user("a", "b"),
        said("Let me."),
        call("a"),
        result("a"),
        said("Done."),
        user("x"),
    )
    plain = render(*items, instructions=(Text("s"),))
    rendered = render(*items, instructions=(Text("s"),), quirks=(Quirk.MESSAGE_CACHE_MARKS,))
    marks = [message.pop("copilot_cache_control", None) for message in rendered]
    assert rendered == plain
    ephemeral = {"type": "ephemeral"}
    assert [number for number, mark in enumerate(marks) if mark == ephemeral] == [0, 3, 6, 10]
    assert "cache_control" not in str(rendered)
