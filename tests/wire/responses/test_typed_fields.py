from collections.abc import Callable

import pytest

from cachegate.errors import BadInput
from cachegate.wire.responses.typed_fields import Field

BODY = Field("", {"input": [{"role": "user", "content": None}], "n": 1, "x": 0.5, "on": True, "text": "t" * 99})


def test_a_field_knows_where_it_stands() -> None:
    item = next(BODY.field("input").items())
    assert (item.path, item.field("role").path, item.field("role").text()) == ("input[0]", "input[0].role", "user")


def test_what_is_missing_is_absent_all_the_way_down() -> None:
    below = BODY.field("missing").field("deeper")
    assert below.absent
    assert below.path == "missing.deeper"
    assert (below.optional_text(), below.flag(), below.integer(), below.number()) == (None, None, None, None)
    assert (below.optional_mapping(), list(below.items())) == (None, [])


def test_values_of_the_right_type_come_back() -> None:
    assert (BODY.field("n").integer(), BODY.field("x").number(), BODY.field("n").number()) == (1, 0.5, 1)
    assert BODY.field("on").flag() is True
    assert BODY.mapping()["n"] == 1


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("n", Field.text),
        ("n", Field.flag),
        ("n", Field.mapping),
        ("n", lambda field: list(field.items())),
        ("n", lambda field: field.field("inner")),
        ("on", Field.integer),
        ("x", Field.integer),
        ("on", Field.number),
        ("text", Field.number),
        ("missing", Field.text),
        ("missing", Field.mapping),
    ],
)
def test_a_wrong_type_is_refused_by_the_fields_name(name: str, read: Callable[[Field], object]) -> None:
    with pytest.raises(BadInput, match=rf"^{name}: .+ needed here; it is ") as refused:
        read(BODY.field(name))
    assert len(refused.value.message) < 160


def test_the_whole_has_a_name_too() -> None:
    with pytest.raises(BadInput, match=r"^body: an object is needed here; it is 'list'"):
        Field("", []).mapping()
