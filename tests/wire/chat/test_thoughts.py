from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachegate.wire.chat.thoughts import (
    Returned,
    joined,
    opaque_of_call,
    opaque_of_details,
    plain_text,
    read_opaque,
    text_of_details,
)

SIGNED = {"type": "reasoning.text", "text": "Hm.", "signature": "sig", "index": 0}
SEALED = {"type": "reasoning.encrypted", "data": "gAAA", "index": 1}


def test_what_goes_into_an_opaque_value_comes_out_of_it() -> None:
    assert read_opaque("reasoning_content") == Returned(plain="reasoning_content")
    assert read_opaque("reasoning") == Returned(plain="reasoning")
    assert read_opaque(opaque_of_details([SIGNED, SEALED])) == Returned(details=(SIGNED, SEALED))
    extra = {"google": {"thought_signature": "sig"}}
    assert read_opaque(opaque_of_call("call_1", extra)) == Returned(call_id="call_1", extra=extra)


@given(st.none() | st.text())
def test_anything_else_holds_nothing(opaque: str | None) -> None:
    read_opaque(opaque)


@pytest.mark.parametrize("opaque", [None, "", "gAAAA=", "{}", '{"id":1}', '{"id":"a"}', "7", "\ud800"])
def test_a_value_of_another_provider_holds_nothing(opaque: str | None) -> None:
    assert read_opaque(opaque) == Returned()


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ({"reasoning_content": "a", "reasoning": "b"}, ("reasoning_content", "a")),
        ({"reasoning_content": "", "reasoning": "b"}, ("reasoning", "b")),
        ({"reasoning": {"text": "b"}}, ("", "")),
        ({}, ("", "")),
    ],
)
def test_text_has_two_names(message: dict[str, Any], found: tuple[str, str]) -> None:
    assert plain_text(message) == found


def test_details_can_be_read_as_far_as_they_are_text() -> None:
    assert text_of_details([SIGNED, SEALED, {"type": "reasoning.summary", "summary": " So."}, 7, {}]) == "Hm. So."


def test_pieces_of_one_text_become_one_detail_with_its_signature() -> None:
    pieces: list[Any] = [
        [{"type": "reasoning.text", "text": "H", "signature": None, "index": 0}],
        [{"type": "reasoning.text", "text": "m.", "index": 0}],
        [{"type": "reasoning.text", "signature": "sig", "index": 0}],
        [SEALED],
    ]
    details: list[object] = []
    for piece in pieces:
        details = joined(details, piece)
    assert details == [SIGNED, SEALED]


def test_what_is_signed_or_of_another_number_is_not_continued() -> None:
    other = {"type": "reasoning.text", "text": "And", "index": 1}
    assert joined([SIGNED], [SIGNED]) == [SIGNED, SIGNED]
    assert joined([{"type": "reasoning.text", "text": "a", "index": 0}], [other])[-1] == other
    assert joined([SEALED], [SEALED, 7]) == [SEALED, SEALED, 7]
    assert joined([], None) == []
