from typing import Any

import pytest

from cachegate.errors import BadInput
from cachegate.wire.hub import Document, Image, Message, Part, Role, Text, ToolRef, ToolResult
from cachegate.wire.messages.content_parser import CARRIED_AS_TEXT, DROPPED_BLOCKS, REFUSED
from wire.messages.parsed import block, items

MARK = {"type": "ephemeral"}
DATA = {"type": "base64", "media_type": "image/png", "data": "iVBORw0K"}
PDF = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjQ="}
PLAIN = {"type": "text", "media_type": "text/plain", "data": "words"}

BLOCKS: list[tuple[dict[str, Any], tuple[Part, ...]]] = [
    ({"type": "text", "text": "hi"}, (Text("hi"),)),
    ({"type": "text", "text": "hi", "cache_control": MARK}, (Text("hi", marked=True),)),
    ({"type": "text", "text": "hi", "citations": [{"type": "char_location"}]},
     (Text("hi", annotations=({"type": "char_location"},)),)),
    ({"type": "image", "source": DATA}, (Image(data="iVBORw0K", media_type="image/png"),)),
    ({"type": "image", "source": {"type": "url", "url": "https://a.test/b"}, "cache_control": MARK},
     (Image(url="https://a.test/b", marked=True),)),
    ({"type": "document", "source": PDF, "title": "a.pdf", "citations": {"enabled": True}},
     (Document(data="JVBERi0xLjQ=", media_type="application/pdf", name="a.pdf"),)),
    ({"type": "document", "source": PLAIN, "context": "Of 2026."},
     (Text("Of 2026."), Document(text="words", media_type="text/plain"))),
    ({"type": "document", "source": {"type": "url", "url": "https://a.test/b.pdf"}},
     (Document(url="https://a.test/b.pdf"),)),
    ({"type": "document", "title": "T", "source": {"type": "content", "content": [{"type": "text", "text": "a"}]}},
     (Text("T"), Text("a"))),
    ({"type": "document", "source": {"type": "content", "content": "plain"}}, (Text("plain"),)),
    ({"type": "search_result", "title": "T", "source": "S", "content": [{"type": "text", "text": "a"}]},
     (Text("T\nS\n\na"),)),
    ({"type": "tool_reference", "tool_name": "WebFetch"}, (Text("Found tool: WebFetch", found=ToolRef("WebFetch")),)),
    ({"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"url": "u", "encrypted_content": "x"}]},
     (Text('{"type":"web_search_tool_result","tool_use_id":"s1","content":[{"url":"u"}]}'),)),
]  # fmt: skip


@pytest.mark.parametrize(("given", "parts"), BLOCKS, ids=[str(given["type"]) for given, _ in BLOCKS])
def test_a_block_says(given: dict[str, Any], parts: tuple[Part, ...]) -> None:
    assert block(**given) == (Message(Role.USER, parts),)


def test_the_parts_of_a_result_are_those_of_a_message() -> None:
    content = [given for given, _ in BLOCKS]
    expected = tuple(part for _, parts in BLOCKS for part in parts)
    assert block(type="tool_result", tool_use_id="c1", content=content) == (ToolResult("c1", expected),)


@pytest.mark.parametrize("kind", CARRIED_AS_TEXT)
def test_blocks_of_anthropic_only_can_be_read_at_least(kind: str) -> None:
    (message,) = block(type=kind, title="t", source="s", content=[], tool_name="n", cache_control=MARK)
    assert isinstance(message, Message)
    (part,) = message.parts
    assert isinstance(part, Text)
    assert part.marked
    assert "cache_control" not in part.text


@pytest.mark.parametrize("kind", DROPPED_BLOCKS)
def test_blocks_that_say_nothing_to_a_model_are_dropped(kind: str) -> None:
    assert block(type=kind) == ()


@pytest.mark.parametrize(
    "given",
    [
        {"type": "container_upload", "file_id": "f"}, {"type": "hologram"}, {"type": 7}, {},
        {"type": "image"}, {"type": "image", "source": {"type": "file", "file_id": "f"}},
        {"type": "image", "source": {"type": "base64"}}, {"type": "document", "source": {"type": "zip"}},
        {"type": "document", "source": {"type": "file", "file_id": "f"}}, {"type": "text", "text": 7},
    ],
)  # fmt: skip
def test_what_cannot_be_carried_is_refused_by_its_path(given: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=r"^messages\[0\]\.content\[0\](\.source)?(\.\w+)?: "):
        block(**given)


@pytest.mark.parametrize("kind", REFUSED)
def test_a_refusal_tells_the_reason(kind: str) -> None:
    given = {"type": "image", "source": {"type": kind}} if kind == "file" else {"type": kind}
    with pytest.raises(BadInput) as refused:
        block(**given)
    assert REFUSED[kind] in refused.value.message


def test_content_may_be_a_string() -> None:
    assert items({"role": "user", "content": "hi"}) == (Message(Role.USER, (Text("hi"),)),)
    assert block(type="tool_result", tool_use_id="c1", content="hi") == (ToolResult("c1", (Text("hi"),)),)
