import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachegate.wire.chat.call_ids import CALL_ID_CHARS_MAX, SHORT_ID_CHARS, CallIds, cut

SHORT = re.compile(rf"[a-zA-Z0-9]{{{SHORT_ID_CHARS}}}")
IDS = st.lists(st.sampled_from(["", "0", "call_1", "abcDEF123", "abcDEF124", "\ud800", "é" * 9, "i" * 50]), max_size=12)


def test_a_long_id_is_cut_and_stays_distinct() -> None:
    one, other = "i" * 90 + "a", "i" * 90 + "b"
    assert cut("i" * CALL_ID_CHARS_MAX) == "i" * CALL_ID_CHARS_MAX
    assert len(cut(one)) == CALL_ID_CHARS_MAX
    assert cut(one) == cut(one) != cut(other)
    ids = CallIds(short=False)
    assert [ids.new(call_id) for call_id in ("0", "0", one)] == ["0", "0", cut(one)], "turns tell them apart"


@pytest.mark.parametrize("call_id", ["abcDEF123", "000000000"])
def test_a_short_id_that_fits_is_kept_once(call_id: str) -> None:
    ids = CallIds(short=True)
    assert ids.new(call_id) == call_id
    again, third = ids.new(call_id), ids.new(call_id)
    assert len({call_id, again, third}) == 3
    assert SHORT.fullmatch(again)


@given(IDS, st.integers(0, 12))
def test_short_ids_are_made_of_what_stands_before_them_and_never_given_twice(drawn: list[str], cut_at: int) -> None:
    def given_to(call_ids: list[str]) -> list[str]:
        ids = CallIds(short=True)
        return [ids.new(call_id) for call_id in call_ids]

    whole = given_to(drawn)
    assert given_to(drawn[:cut_at]) == whole[:cut_at]
    assert all(SHORT.fullmatch(wire_id) for wire_id in whole)
    assert len(set(whole)) == len(whole)


def test_a_kept_id_gives_way_to_one_that_was_made_before_it() -> None:
    made = CallIds(short=True).new("call_1")
    ids = CallIds(short=True)
    assert ids.new("call_1") == made
    assert ids.new(made) != made
    assert CallIds(short=True).new("call_2") != made, "it is made from the client's id"
