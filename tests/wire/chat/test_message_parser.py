import json
from typing import Any

import pytest

from cachegate.errors import BadInput
from cachegate.wire.chat.message_parser import parse_messages
from cachegate.wire.chat.node import Node
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import (
    Document,
    Image,
    Item,
    Message,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolRef,
    ToolResult,
)

MARK = {"cache_control": {"type": "ephemeral"}}
PNG = "data:image/png;base64,AAAA"


def parse(*messages: Any) -> tuple[tuple[Text, ...], tuple[Item, ...]]:
    return parse_messages(Node("", {"messages": list(messages)}))


def items(*messages: Any) -> tuple[Item, ...]:
    return parse(*messages)[1]


def part(value: Any) -> Part:
    (item,) = items({"role": "user", "content": [value]})
    assert isinstance(item, Message)
    return item.parts[0]


def refused(*messages: Any) -> str:
    with pytest.raises(BadInput) as raised:
        parse(*messages)
    return raised.value.message


ASK = {"role": "user", "content": "hi"}


def test_system_messages_in_front_are_instructions_and_later_ones_messages() -> None:
    instructions, rest = parse(
        {"role": "system", "content": "a"},
        {"role": "system", "content": [{"type": "text", "text": "b", **MARK}]},
        ASK,
        {"role": "system", "content": "c"},
    )
    assert instructions == (Text("a"), Text("b", marked=True))
    assert rest == (Message(Role.USER, (Text("hi"),)), Message(Role.SYSTEM, (Text("c"),)))


def test_a_developer_stays_a_developer_wherever_he_speaks() -> None:
    assert parse({"role": "developer", "content": "a"}, ASK, {"role": "developer", "content": "b"}) == (
        (),
        (
            Message(Role.DEVELOPER, (Text("a"),)),
            Message(Role.USER, (Text("hi"),)),
            Message(Role.DEVELOPER, (Text("b"),)),
        ),
    )


@pytest.mark.parametrize(
    ("value", "parsed"),
    [
        ({"type": "text", "text": "a"}, Text("a")),
        ({"text": "a"}, Text("a")),
        ({"type": "text", "text": "a", **MARK}, Text("a", marked=True)),
        (
            {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}},
            Image(url="https://x/y.png", detail="low"),
        ),
        ({"type": "image_url", "image_url": "https://x/y.png"}, Image(url="https://x/y.png")),
        (
            {"type": "image_url", "image_url": {"url": PNG}, **MARK},
            Image(data="AAAA", media_type="image/png", marked=True),
        ),
        (
            {"type": "image_url", "image_url": {"url": "DATA:image/png;name=a;BASE64,AAAA"}},
            Image(data="AAAA", media_type="image/png"),
        ),
        (
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"}},
            Document(data="AAAA", media_type="application/pdf", name="a.pdf"),
        ),
        (
            {"type": "file", "file": {"filename": "a.PDF", "file_data": "AAAA"}},
            Document(data="AAAA", media_type="application/pdf", name="a.PDF"),
        ),
        ({"type": "file", "file": {"file_data": "AAAA"}}, Document(data="AAAA")),
        ({"type": "file", "file": {"file_data": "https://x/a.pdf"}}, Document(url="https://x/a.pdf")),
    ],
)
def test_a_part_of_a_message(value: Any, parsed: Part) -> None:
    assert part(value) == parsed


def test_a_mark_on_a_message_is_one_on_its_last_part() -> None:
    (item,) = items({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], **MARK})
    assert item == Message(Role.USER, (Text("a"), Text("b", marked=True)))
    (item,) = items({"role": "user", "content": "a", "copilot_cache_control": {"type": "ephemeral"}})
    assert item == Message(Role.USER, (Text("a", marked=True),))


def test_an_assistants_message_is_thoughts_then_text_then_calls() -> None:
    arguments = '{ "a" : 1 }'
    parsed = items(
        ASK,
        {
            "role": "assistant",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}},
                {"id": "c2", "type": "custom", "custom": {"name": "p", "input": "*** x"}},
            ],
            "content": "Let me.",
            "refusal": "No.",
            "reasoning_content": "Hm.",
        },
        {"role": "tool", "tool_call_id": "c2", "content": "r2"},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "r1"}]},
    )
    assert parsed[1:] == (
        Reasoning("Hm.", "reasoning_content", Protocol.CHAT),
        Message(Role.ASSISTANT, (Text("Let me."), Text("No.", refusal=True))),
        ToolCall("c1", ToolRef("f"), arguments),
        ToolCall("c2", ToolRef("p", custom=True), "*** x"),
        ToolResult("c2", (Text("r2"),), custom=True),
        ToolResult("c1", (Text("r1"),)),
    )


@pytest.mark.parametrize("content", [None, "", []])
def test_an_assistant_who_says_nothing_leaves_no_message(content: Any) -> None:
    assert items(ASK, {"role": "assistant", "content": content}) == (Message(Role.USER, (Text("hi"),)),)


def test_thoughts_with_details_are_carried_whole() -> None:
    details = [
        {"type": "reasoning.text", "text": "Hm.", "signature": "s"},
        {"type": "reasoning.encrypted", "data": "g"},
    ]
    parsed = items(ASK, {"role": "assistant", "content": "a", "reasoning": "Hm.", "reasoning_details": details})
    assert parsed[1] == Reasoning("Hm.", json.dumps(details, separators=(",", ":")), Protocol.CHAT)
    (_, sealed, _) = items(ASK, {"role": "assistant", "content": "a", "reasoning_details": details[1:]})
    assert isinstance(sealed, Reasoning)
    assert (sealed.text, sealed.redacted) == ("", True)


def test_what_gemini_signs_a_call_with_is_carried_beside_it() -> None:
    extra = {"google": {"thought_signature": "sig"}}
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}, "extra_content": extra}
    parsed = items(ASK, {"role": "assistant", "tool_calls": [call]})
    assert parsed[1:] == (
        Reasoning(
            "", '{"id":"c1","extra_content":{"google":{"thought_signature":"sig"}}}', Protocol.CHAT, redacted=True
        ),
        ToolCall("c1", ToolRef("f"), "{}"),
    )


def test_calls_of_old_clients_are_numbered() -> None:
    parsed = items(
        ASK,
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "r"},
        {"role": "assistant", "function_call": {"name": "g", "arguments": ""}},
        {"role": "function", "name": "g", "content": None},
    )
    assert parsed[1:] == (
        ToolCall("call_function_0", ToolRef("f"), "{}"),
        ToolResult("call_function_0", (Text("r"),)),
        ToolCall("call_function_1", ToolRef("g"), ""),
        ToolResult("call_function_1", ()),
    )


@pytest.mark.parametrize(
    ("messages", "field"),
    [
        ([], "messages"),
        ([7], "messages[0]"),
        ([{"role": "user", "content": None}], "messages"),
        ([{"content": "x"}], "messages[0].role"),
        ([{"role": "robot"}], "messages[0].role"),
        ([{"role": "tool", "content": "x"}], "messages[0].tool_call_id"),
        ([{"role": "function", "name": "f", "content": "x"}], "messages[0]"),
        ([{"role": "user", "content": 7}], "messages[0].content"),
        ([{"role": "user", "content": ["x"]}], "messages[0].content[0]"),
        (
            [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}],
            "messages[0].content[0].input_audio",
        ),
        ([{"role": "user", "content": [{"type": "video_url"}]}], "messages[0].content[0].type"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content[0].image_url"),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/svg+xml,<svg/>"}}]}],
            "messages[0].content[0].image_url.url",
        ),
        (
            [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}],
            "messages[0].content[0].file.file_id",
        ),
        ([{"role": "user", "content": [{"type": "file", "file": {}}]}], "messages[0].content[0].file.file_data"),
        ([{"role": "system", "content": [{"type": "image_url", "image_url": {"url": PNG}}]}], "messages[0].content"),
        ([ASK, {"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}], "messages[1].tool_calls[0].id"),
        (
            [ASK, {"role": "assistant", "tool_calls": [{"id": "c", "function": {}}]}],
            "messages[1].tool_calls[0].function.name",
        ),
        ([ASK, {"role": "assistant", "tool_calls": [{"id": "c", "type": "x"}]}], "messages[1].tool_calls[0].type"),
        ([ASK, {"role": "assistant", "tool_calls": {}}], "messages[1].tool_calls"),
    ],
)
def test_what_cannot_be_carried_is_refused_under_its_name(messages: list[Any], field: str) -> None:
    assert refused(*messages).startswith(f"{field}: ")
