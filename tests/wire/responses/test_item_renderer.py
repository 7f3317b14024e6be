from typing import Any

import pytest

from cachegate.errors import BadInput
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
    Target,
    Text,
    ToolCall,
    ToolRef,
    ToolResult,
)
from cachegate.wire.quirks import Quirk
from cachegate.wire.responses.item_renderer import TOOL_ERROR, ItemRenderer, native_citation
from cachegate.wire.responses.tool_renderer import ToolRenderer

CITED = {"type": "url_citation", "url": "https://x", "title": "X", "start_index": 0, "end_index": 1}
PNG, PDF = "iVBORw0KGgo=", "JVBERi0="


def rendered(item: Item, *quirks: Quirk) -> list[dict[str, Any]]:
    target = Target("m", "openai", quirks=frozenset(quirks))
    return ItemRenderer(target, ToolRenderer(Request("m", stream=True), target)).items(item)


def given(part: Part) -> Any:
    (message,) = rendered(Message(Role.USER, (part,)))
    return message["content"][0]


@pytest.mark.parametrize("role", [Role.USER, Role.SYSTEM, Role.DEVELOPER])
def test_whoever_instructs_keeps_the_role(role: Role) -> None:
    assert rendered(Message(role, (Text("a"), Text("b")))) == [
        {
            "type": "message",
            "role": role.value,
            "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}],
        }
    ]


def test_where_no_developer_is_known_the_system_speaks() -> None:
    assert rendered(Message(Role.DEVELOPER, (Text("a"),)), Quirk.NO_DEVELOPER)[0]["role"] == "system"


def test_openai_gets_its_label_of_a_message_back() -> None:
    said = Message(Role.ASSISTANT, (Text("Hm."),), phase="commentary")
    assert rendered(said)[0]["phase"] == "commentary"
    assert "phase" not in rendered(said, Quirk.PLAIN_TOOLS)[0]
    assert "phase" not in rendered(Message(Role.USER, (Text("Hm."),), phase="commentary"))[0]


def test_what_the_assistant_said_is_output() -> None:
    said = Message(
        Role.ASSISTANT, (Text("a", annotations=(CITED, {"type": "char_location"})), Text("No.", refusal=True))
    )
    assert rendered(said)[0]["content"] == [
        {"type": "output_text", "text": "a", "annotations": [CITED]},
        {"type": "refusal", "refusal": "No."},
    ]
    assert rendered(Message(Role.ASSISTANT, (Text("a"),)))[0]["content"] == [{"type": "output_text", "text": "a"}]


def test_a_citation_in_chats_form_is_another_protocols() -> None:
    assert native_citation(CITED)
    assert not native_citation({"type": "url_citation", "url_citation": {"url": "https://x"}})


def test_a_message_of_nothing_is_none() -> None:
    assert rendered(Message(Role.USER, ())) == []


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (Image(url="https://x/a.png"), {"type": "input_image", "image_url": "https://x/a.png"}),
        (
            Image(data=PNG, media_type="image/webp", detail="low"),
            {"type": "input_image", "image_url": f"data:image/webp;base64,{PNG}", "detail": "low"},
        ),
        (Image(data=PNG), {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"}),
        (Image(data="/9j/4A"), {"type": "input_image", "image_url": "data:image/jpeg;base64,/9j/4A"}),
        (Image(data="????"), {"type": "input_image", "image_url": "data:image/png;base64,????"}),
        (Document(url="https://x/a.pdf"), {"type": "input_file", "file_url": "https://x/a.pdf"}),
        (
            Document(url="https://x/a.pdf", name="a.pdf"),
            {"type": "input_file", "filename": "a.pdf", "file_url": "https://x/a.pdf"},
        ),
        (
            Document(data=PDF, media_type="application/pdf", name="a.pdf"),
            {"type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"},
        ),
        (
            Document(data=PDF),
            {"type": "input_file", "filename": "document.pdf", "file_data": f"data:application/pdf;base64,{PDF}"},
        ),
        (
            Document(data="YQ==", media_type="text/csv"),
            {"type": "input_file", "filename": "document", "file_data": "data:text/csv;base64,YQ=="},
        ),
        (Document(text="a"), {"type": "input_text", "text": "<document>\na\n</document>"}),
        (
            Document(text="a", name='b"c.txt'),
            {"type": "input_text", "text": '<document name="b_c.txt">\na\n</document>'},
        ),
        (Text("a", marked=True), {"type": "input_text", "text": "a"}),
    ],
)
def test_every_part_is_given(part: Part, expected: Any) -> None:
    assert given(part) == expected


@pytest.mark.parametrize("part", [Image(url="https://x"), Document(text="a")])
def test_an_assistant_shows_no_pictures(part: Part) -> None:
    with pytest.raises(BadInput, match=r"^messages: .*picture or a file"):
        rendered(Message(Role.ASSISTANT, (part,)))


@pytest.mark.parametrize(
    ("result", "output"),
    [
        (ToolResult("c", ()), ""),
        (ToolResult("c", (Text("ok"),)), "ok"),
        (ToolResult("c", (Text("no"),), is_error=True), f"{TOOL_ERROR}no"),
        (ToolResult("c", (), is_error=True), TOOL_ERROR),
        (
            ToolResult("c", (Text("a"), Image(url="https://x"))),
            [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "https://x"}],
        ),
        (
            ToolResult("c", (Image(url="https://x"),), is_error=True),
            [{"type": "input_text", "text": TOOL_ERROR}, {"type": "input_image", "image_url": "https://x"}],
        ),
    ],
)
def test_a_result_is_a_text_or_parts_and_an_error_is_marked(result: ToolResult, output: Any) -> None:
    assert rendered(result) == [{"type": "function_call_output", "call_id": "c", "output": output}]


def test_a_result_of_a_custom_tool_is_its_own_kind() -> None:
    assert rendered(ToolResult("c", (Text("ok"),), custom=True))[0]["type"] == "custom_tool_call_output"


def test_a_call_is_an_item() -> None:
    assert rendered(ToolCall("c", ToolRef("shell"), "{}"))[0]["type"] == "function_call"


@pytest.mark.parametrize("binding", [None, "openai"])
def test_thoughts_go_back_to_whoever_thought(binding: str | None) -> None:
    thought = Reasoning("Hm.", "gAAAA", Protocol.RESPONSES, "rs_1", binding=binding)
    assert rendered(thought) == [
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "Hm."}],
            "encrypted_content": "gAAAA",
        }
    ]
    assert rendered(Reasoning("", "gAAAA", Protocol.RESPONSES, binding=binding)) == [
        {"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"}
    ]


@pytest.mark.parametrize("binding", [None, "openai"])
def test_thoughts_without_an_opaque_value_go_back_as_the_text_that_they_were(binding: str | None) -> None:
    thought = Reasoning("Hm.", None, Protocol.RESPONSES, "rs_1", binding=binding)
    (item,) = rendered(thought, Quirk.PLAIN_THOUGHTS)
    said = [{"type": "reasoning_text", "text": "Hm."}]
    assert item == {"type": "reasoning", "id": "rs_1", "summary": [], "content": said}, "vLLM refuses an empty value"
    assert rendered(thought) == [], "OpenAI takes none"
    other = Reasoning("Hm.", None, Protocol.RESPONSES, "rs_1", binding="another")
    assert rendered(other, Quirk.PLAIN_THOUGHTS) == []


@pytest.mark.parametrize(
    "thought",
    [
        Reasoning("Hm.", "sig", Protocol.MESSAGES),
        Reasoning("Hm.", "sig", Protocol.MESSAGES, binding="openai"),
        Reasoning("Hm.", "gAAAA", Protocol.RESPONSES, binding="azure"),
        Reasoning("Hm.", None, Protocol.RESPONSES),
        Reasoning("Hm."),
    ],
)
def test_foreign_and_unsigned_thoughts_are_dropped(thought: Reasoning) -> None:
    assert rendered(thought) == []


def test_a_summary_is_told_by_the_user_and_an_own_compaction_goes_back() -> None:
    assert rendered(Compacted(text="S")) == rendered(Message(Role.USER, (Text(f"{SUMMARY_PREFACE}S"),)))
    own = Compacted(opaque="gAAAA", origin=Protocol.RESPONSES)
    assert rendered(own) == [{"type": "compaction", "encrypted_content": "gAAAA"}]


def test_a_compaction_that_the_provider_cannot_read_is_said_to_be_missing() -> None:
    foreign = Compacted(opaque="gAAAA", origin=Protocol.RESPONSES, binding="azure")
    assert rendered(foreign) == rendered(Message(Role.USER, (Text(UNREADABLE),)))
