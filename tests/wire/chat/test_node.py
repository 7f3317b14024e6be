from typing import Any

import pytest

from cachegate.errors import BadInput
from cachegate.wire.chat.node import Node

NODE = Node("a[1]", {"text": "x", "empty": "", "flag": True, "number": 0.5, "count": 3, "null": None, "list": [{}, 7]})


def test_fields_are_read_by_their_kind() -> None:
    assert (NODE.text("text"), NODE.word("text"), NODE.flag("flag")) == ("x", "x", True)
    assert (NODE.number("number"), NODE.count("count")) == (0.5, 3)
    assert Node("", {"count": 3.0}).count("count") == 3
    assert NODE.items("list") == [("a[1].list[0]", {}), ("a[1].list[1]", 7)]
    assert Node("", {"list": [{}]}).nodes("list") == [Node("list[0]", {})]


@pytest.mark.parametrize("name", ["null", "missing"])
def test_null_is_absent(name: str) -> None:
    assert (NODE.text(name), NODE.flag(name), NODE.number(name), NODE.count(name)) == (None, None, None, None)
    assert (NODE.items(name), NODE.nodes(name), NODE.maybe(name)) == ([], [], Node(f"a[1].{name}", {}))


@pytest.mark.parametrize(
    ("read", "name"),
    [
        (Node.text, "count"),
        (Node.word, "empty"),
        (Node.word, "missing"),
        (Node.word, "count"),
        (Node.flag, "count"),
        (Node.flag, "text"),
        (Node.number, "flag"),
        (Node.number, "text"),
        (Node.count, "number"),
        (Node.node, "text"),
        (Node.node, "missing"),
        (Node.maybe, "text"),
        (Node.items, "text"),
        (Node.nodes, "list"),
    ],
)
def test_what_is_wrong_is_refused_under_its_name(read: Any, name: str) -> None:
    with pytest.raises(BadInput) as refused:
        read(NODE, name)
    assert refused.value.message.startswith(f"a[1].{name}")


@pytest.mark.parametrize("value", [-1, 1.5, -0.5])
def test_a_count_is_a_whole_number_of_at_least_0(value: float) -> None:
    with pytest.raises(BadInput, match=r"^n: must be a whole number"):
        Node("", {"n": value}).count("n")


def test_a_mark_is_an_object_under_one_of_two_names() -> None:
    assert Node("", {"cache_control": {"type": "ephemeral"}}).marked
    assert Node("", {"copilot_cache_control": {"type": "ephemeral"}}).marked
    assert not Node("", {"cache_control": None}).marked
    assert not NODE.marked


@pytest.mark.parametrize("value", [None, [], "x", 7])
def test_an_object_must_be_one(value: Any) -> None:
    with pytest.raises(BadInput, match=r"^tools\[0\]: must be a JSON object"):
        Node.of(value, "tools[0]")
