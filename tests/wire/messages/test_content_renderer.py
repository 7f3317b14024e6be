import json
from typing import Any

import pytest

from cachegate.errors import BadInput
from cachegate.wire.hub import Document, Image, Part, Text, ToolCall, ToolRef
from cachegate.wire.messages.content_renderer import UNPARSED, Block, part_blocks, tool_input

PNG, PDF, WORDS = "iVBORw0KGgo=", "JVBERi0xLjQ=", "d29yZHM="

PARTS: list[tuple[Part, dict[str, Any]]] = [
    (Text("hi"), {"type": "text", "text": "hi"}),
    (Text("hi", refusal=True), {"type": "text", "text": "hi"}),
    (
        Text("hi", annotations=({"type": "char_location"}, {"type": "url_citation"})),
        {"type": "text", "text": "hi", "citations": [{"type": "char_location"}]},
    ),
    (Image(data=PNG, media_type="image/webp"), {"type": "base64", "media_type": "image/webp", "data": PNG}),
    (Image(data=PNG, media_type="image/jpg"), {"type": "base64", "media_type": "image/jpeg", "data": PNG}),
    (Image(data=PNG), {"type": "base64", "media_type": "image/png", "data": PNG}),
    (Image(data="/9j/4AAQ"), {"type": "base64", "media_type": "image/jpeg", "data": "/9j/4AAQ"}),
    (Image(data="AAAA"), {"type": "base64", "media_type": "image/png", "data": "AAAA"}),
    (Image(url="https://a.test/b.png", detail="high"), {"type": "url", "url": "https://a.test/b.png"}),
    (Image(url=f"data:image/gif;base64,{PNG}"), {"type": "base64", "media_type": "image/gif", "data": PNG}),
    (Document(data=PDF, media_type="application/pdf"),
     {"type": "base64", "media_type": "application/pdf", "data": PDF}),
    (Document(data=PDF), {"type": "base64", "media_type": "application/pdf", "data": PDF}),
    (Document(url=f"data:application/pdf;base64,{PDF}"),
     {"type": "base64", "media_type": "application/pdf", "data": PDF}),
    (Document(url="https://a.test/b.pdf"), {"type": "url", "url": "https://a.test/b.pdf"}),
    (Document(text="words"), {"type": "text", "media_type": "text/plain", "data": "words"}),
    (Document(data=WORDS, media_type="text/markdown"), {"type": "text", "media_type": "text/plain", "data": "words"}),
]  # fmt: skip


@pytest.mark.parametrize(("part", "said"), PARTS, ids=str)
def test_a_part_is_a_block(part: Part, said: dict[str, Any]) -> None:
    kinds = {Text: "text", Image: "image", Document: "document"}
    fields = said if isinstance(part, Text) else {"type": kinds[type(part)], "source": said}
    assert list(part_blocks((part,))) == [Block(fields)]


def test_names_and_marks_are_kept() -> None:
    (block,) = part_blocks((Document(text="words", name="a.txt", marked=True),))
    assert (block.fields["title"], block.marked) == ("a.txt", True)


@pytest.mark.parametrize("blank", ["", " ", "\n\t", "\u2028"])
def test_blank_text_is_left_out(blank: str) -> None:
    assert list(part_blocks((Text(blank), Text("x"), Text(blank, marked=True)))) == [
        Block({"type": "text", "text": "x"})
    ]


@pytest.mark.parametrize(
    "document", [Document(data="UEsDBA==", media_type="application/zip"), Document(data="?", media_type="text/csv")]
)
def test_what_no_document_can_be_is_refused_by_name(document: Document) -> None:
    with pytest.raises(BadInput, match=r"^document: "):
        list(part_blocks((document,)))


def inputs(arguments: str, *, custom: bool = False) -> bytes:
    return bytes(tool_input(ToolCall("c1", ToolRef("t", custom=custom), arguments)))


@pytest.mark.parametrize(
    "arguments", ["{}", '{ "path" : "\\u00e9" }', '{"n":[1,2.50,1e3]}', '{"a":"\n"}'.replace("\n", "\\n")]
)
def test_arguments_go_on_byte_for_byte(arguments: str) -> None:
    assert inputs(arguments) == arguments.encode()


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ("", {}), ("  ", {}), ('{"path": "a', {UNPARSED: '{"path": "a'}), ("[1]", {UNPARSED: "[1]"}),
        ("null", {UNPARSED: "null"}), ('{"a":1,"a":2}', {UNPARSED: '{"a":1,"a":2}'}),
        ('{"a":"\\ud83d"}', {"a": "\ufffd"}),
    ],
)  # fmt: skip
def test_arguments_that_are_no_object_are_wrapped_into_one(arguments: str, sent: Any) -> None:
    assert json.loads(inputs(arguments)) == sent


def test_the_input_of_a_custom_tool_is_wrapped() -> None:
    assert inputs("*** Begin Patch", custom=True) == b'{"input":"*** Begin Patch"}'
