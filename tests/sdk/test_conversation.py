"""Conversations are values, and their bytes never change once they stand."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachegate.sdk import Image, Text, Tool
from cachegate.sdk.conversation import Conversation, Setup, begun, encode, input_content

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
ITEMS = st.lists(st.dictionaries(st.text(), JSON), max_size=3)


def inner(conversation: Conversation) -> bytes:
    return conversation.body(stream=True).partition(b'"input":[')[2].removesuffix(b'],"stream":true}')


@given(st.lists(ITEMS | st.text(min_size=1), min_size=1, max_size=5))
def test_every_conversation_begins_with_the_one_before(steps: list[Any]) -> None:
    now = begun(Setup("m", "c"))
    for step in steps:
        after = now.with_user(step) if isinstance(step, str) else now.with_items(step)
        assert inner(after).startswith(inner(now))
        assert json.loads(after.body(stream=False))["input"] == list(after.history())
        now = after


@given(JSON)
def test_items_mean_what_they_meant(value: Any) -> None:
    assert json.loads(encode({"value": value})) == {"value": value}


def test_halves_of_an_emoji_survive() -> None:
    assert json.loads(encode({"text": "cut \ud83d é"})) == {"text": "cut \ud83d é"}


def test_a_change_leaves_the_conversation_before_it_alone() -> None:
    first = begun(Setup("m", "c")).with_user("hi")
    first.with_partial("half").with_output("call_1", "3")
    first.history()[0].update(role="nobody")  # type: ignore[attr-defined]
    assert [item["role"] for item in first.history()] == ["user"]


def test_a_setup_is_fixed_when_a_conversation_begins() -> None:
    schema: dict[str, object] = {"type": "object"}
    conversation = begun(Setup("m", "c", tools=(Tool("t", "A tool.", schema, print),)))
    schema["type"] = "string"
    assert json.loads(conversation.with_user("x").body(stream=True))["tools"] == [
        {"type": "function", "name": "t", "description": "A tool.", "parameters": {"type": "object"}, "strict": False}
    ]


def test_a_partial_answer_without_text_adds_nothing() -> None:
    conversation = begun(Setup("m", "c")).with_user("hi")
    assert conversation.with_partial("") == conversation


def test_inputs() -> None:
    assert input_content(["a", Text("b"), Image("https://x/y.png")]) == [
        {"type": "input_text", "text": "a"},
        {"type": "input_text", "text": "b"},
        {"type": "input_image", "image_url": "https://x/y.png"},
    ]
    with pytest.raises(TypeError, match="not of int"):
        input_content([7])  # type: ignore[list-item]
