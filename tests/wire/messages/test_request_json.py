import json
from collections.abc import Callable
from typing import Any

import pytest

from cachegate.errors import BadInput
from cachegate.wire.messages.request_json import JsonNode


def node(**fields: Any) -> JsonNode:
    return JsonNode(json.dumps(fields).encode(), "messages[1]")


READERS: dict[str, tuple[Callable[[JsonNode], object], Any, list[Any]]] = {
    # reader, a good value, bad ones
    "text": (lambda given: given.text("f"), "x", [1, True, [], {}]),
    "flag": (lambda given: given.flag("f"), True, [1, 0, "true", [], {}]),
    "integer": (lambda given: given.integer("f"), 7, [True, 7.5, "7", [], {}]),
    "number": (lambda given: given.number("f"), 7.5, [True, "7", [], {}]),
    "json": (lambda given: given.json("f"), {"a": [1]}, [1, "x", [], True]),
}


@pytest.mark.parametrize("name", READERS)
def test_a_field_is_of_its_type_or_absent(name: str) -> None:
    read, good, bad = READERS[name]
    assert read(node(f=good)) == good
    assert read(node(f=None)) is None
    assert read(node()) is None
    for value in bad:
        with pytest.raises(BadInput, match=r"^messages\[1\]\.f: .* where .* belongs"):
            read(node(f=value))


def test_a_needed_text_must_be_there() -> None:
    assert node(f="").needed_text("f") == ""
    for given in (node(), node(f=None), node(f=1)):
        with pytest.raises(BadInput, match=r"^messages\[1\]\.f: "):
            given.needed_text("f")


def test_nodes_know_their_path() -> None:
    outer = node(source={"data": 1}, content=[{}, {"text": 2}])
    inner = outer.node("source")
    assert inner is not None
    assert inner.path == "messages[1].source"
    assert [each.path for each in outer.nodes("content")] == ["messages[1].content[0]", "messages[1].content[1]"]
    assert (outer.node("none"), list(outer.nodes("none"))) == (None, [])


@pytest.mark.parametrize("value", [1, "x", {}, True])
def test_what_is_no_array_has_no_nodes(value: Any) -> None:
    with pytest.raises(BadInput, match="an array"):
        list(node(f=value).nodes("f"))


@pytest.mark.parametrize("raw", [b"[]", b"1", b'"x"', b"", b"{", b"null"])
def test_what_is_no_object_is_no_node(raw: bytes) -> None:
    with pytest.raises(BadInput, match=r"^tools\[0\]: not a JSON object"):
        JsonNode(raw, "tools[0]")


def test_raw_is_byte_for_byte() -> None:
    given = JsonNode(b'{"input" : {"a" : 1.50, "b":"\\u00e9"}, "n":null}', "")
    assert given.raw("input") == b'{"a" : 1.50, "b":"\\u00e9"}'
    assert given.raw("n") == b""
    assert given.whole() == {"input": {"a": 1.5, "b": "é"}, "n": None}
    assert given.at("input") == "input"


def test_too_deep_a_nest_is_refused() -> None:
    deep = b'{"f":' + b"[" * 5000 + b"]" * 5000 + b"}"
    with pytest.raises(BadInput):
        JsonNode(deep, "tools[0]").value("f")
