import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachegate.wire.chat.call_reader import CallReader
from cachegate.wire.hub import Delta, Event, PartEnded, PartKind, PartStarted, ToolRef
from cachegate.wire.tool_names import ToolNames
from wire.chat.chunks import ASKED, piece

Told = tuple[str, ToolRef, str]
SHELL, SPAWN, PATCH = ToolRef("shell"), ToolRef("spawn", "agents"), ToolRef("apply_patch", custom=True)
ONE, TWO = '{"cmd":"ls"}', '{"cmd":"pwd"}'


def events(*entries: dict[str, Any]) -> list[Event]:
    reader = CallReader(ToolNames(ASKED, 64), itertools.count())
    return [*(event for entry in entries for event in reader.read([entry], "gen-1")), *reader.end()]


def told(*entries: dict[str, Any]) -> list[Told]:
    """Return id, tool and arguments of each call; every call must begin and end, in this order."""
    found: dict[int, Told] = {}
    ended = set[int]()
    for event in events(*entries):
        match event:
            case PartStarted(kind=PartKind.TOOL_CALL):
                assert event.call is not None
                found[event.index] = (event.call.call_id, event.call.tool, "")
            case Delta():
                assert event.index not in ended
                call_id, ref, text = found[event.index]
                found[event.index] = (call_id, ref, text + event.text)
            case PartEnded():
                ended.add(event.index)
    assert ended == set(found)
    return list(found.values())


A, B = ("a", SHELL, ONE), ("b", SHELL, TWO)


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param(
            [
                piece("", index=0, id="a", name="shell"),
                piece('{"cmd"', index=0),
                piece(':"ls"}', index=0),
                piece("", index=1, id="b", name="shell"),
                piece(TWO, index=1),
            ],
            id="as OpenAI does",
        ),
        pytest.param(
            [piece(ONE, index=0, id="a", name="shell"), piece(TWO, index=1, id="b", name="shell")], id="at once"
        ),
        pytest.param(
            [
                piece("", index=0, id="a", name="shell"),
                piece("", index=1, id="b", name="shell"),
                piece('{"cmd"', index=0),
                piece('{"cmd"', index=1),
                piece(':"ls"}', index=0),
                piece(':"pwd"}', index=1),
            ],
            id="by turns",
        ),
        pytest.param(
            [
                piece('{"cmd"', index=0, id="a", name="shell"),
                piece(':"ls"}', index=0, id="a", name="shell"),
                piece(TWO, index=1, id="b", name="shell"),
                piece("", index=1, id="b", name="shell"),
            ],
            id="id and name in every piece",
        ),
        pytest.param(
            [piece(ONE, index=0, id="a", name="shell"), piece(TWO, index=0, id="b", name="shell")], id="all number 0"
        ),
        pytest.param([piece(ONE, id="a", name="shell"), piece(TWO, id="b", name="shell")], id="without numbers"),
        pytest.param(
            [
                piece('{"cmd"', id="a", name="shell"),
                piece('{"cmd"', id="b", name="shell"),
                piece(':"ls"}', id="a"),
                piece(':"pwd"}', id="b"),
            ],
            id="by ids",
        ),
        pytest.param(
            [
                piece('{"cmd"', id="a", name="shell"),
                piece(':"ls"}'),
                piece('{"cmd"', id="b", name="shell"),
                piece(':"pwd"}'),
            ],
            id="whatever came last",
        ),
        pytest.param(
            [
                piece(index=0, id="a"),
                piece("{", index=0),
                piece('"cmd":"ls"}', index=0, name="shell"),
                piece(TWO, index=1, id="b", name="shell"),
            ],
            id="the name comes late",
        ),
        pytest.param(
            [piece({"cmd": "ls"}, index=0, id="a", name="shell"), piece({"cmd": "pwd"}, index=1, id="b", name="shell")],
            id="decoded arguments",
        ),
    ],
)
def test_two_calls_however_they_come(entries: list[dict[str, Any]]) -> None:
    assert told(*entries) == [A, B]


@pytest.mark.parametrize("more", [{}, {"index": 0}, {"id": ""}, {"index": 0, "id": None}])
def test_calls_without_ids_get_one_each_always_the_same(more: dict[str, Any]) -> None:
    entries = [piece(ONE, name="shell", **more), piece(TWO, name="shell", **more)]
    (first, second) = told(*entries)
    assert [first[1:], second[1:]] == [A[1:], B[1:]]
    assert first[0] != second[0]
    assert first[0].startswith("call_")
    assert told(*entries) == [first, second]


def test_an_id_that_two_calls_share_becomes_two() -> None:
    first, second = told(piece(ONE, index=0, id="a", name="shell"), piece(TWO, index=1, id="a", name="shell"))
    assert (first[0], first[2], second[2]) == ("a", ONE, TWO)
    assert second[0] != "a"


def test_a_call_is_over_when_its_arguments_are_and_the_next_begins() -> None:
    began = events(piece(ONE, index=0, id="a", name="shell"), piece("", index=1, id="b", name="shell"))
    assert [type(event).__name__ for event in began] == [
        "PartStarted",
        "Delta",
        "PartEnded",
        "PartStarted",
        "Delta",
        "PartEnded",
    ]


def test_names_are_restored_and_freeform_inputs_unwrapped() -> None:
    assert told(
        piece("{}", index=0, id="a", name="agents__spawn"),
        piece('{"input":"*** B', index=1, id="b", name="apply_patch"),
        piece('egin"}', index=1),
        piece("{}", index=2, id="c", name="unheard_of"),
    ) == [("a", SPAWN, "{}"), ("b", PATCH, "*** Begin"), ("c", ToolRef("unheard_of"), "{}")]


def test_a_freeform_call_that_came_as_one_is_not_unwrapped() -> None:
    native = {"index": 0, "id": "a", "type": "custom", "custom": {"name": "apply_patch", "input": '{"input":'}}
    assert told(native, {"index": 0, "custom": {"input": '"x"}'}}) == [("a", PATCH, '{"input":"x"}')]
    assert told({"index": 0, "id": "a", "custom": {"name": "apply_patch", "input": ""}}) == [("a", PATCH, "")]
    unknown = {"index": 0, "id": "a", "custom": {"name": "new", "input": "x"}}
    assert told(unknown) == [("a", ToolRef("new", custom=True), "x")]


def test_no_arguments_are_an_empty_object() -> None:
    assert told(piece("", index=0, id="a", name="shell")) == [("a", SHELL, "{}")]


def test_what_must_come_back_with_a_call_goes_in_front_of_it_as_a_thought() -> None:
    extra = {"google": {"thought_signature": "sig"}}
    began = events({**piece(ONE, index=0, id="a", name="shell"), "extra_content": extra})
    opaque = '{"id":"a","extra_content":{"google":{"thought_signature":"sig"}}}'
    assert began[:2] == [PartStarted(0, PartKind.THINKING), PartEnded(0, opaque, redacted=True)]
    assert isinstance(began[2], PartStarted)
    assert began[2].index == 1


def test_pieces_of_nothing_are_no_calls() -> None:
    assert events({}, piece("x"), piece("x", index=0, id="a"), {"index": "0"}, piece("{}", index=True)) == []


odd = st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["", "a", "b", "shell", "{}", '{"a":', "1}"])
entries = st.fixed_dictionaries(
    {},
    optional={
        "index": odd,
        "id": odd,
        "function": st.fixed_dictionaries({}, optional={"name": odd, "arguments": odd}),
        "custom": st.fixed_dictionaries({}, optional={"name": odd, "input": odd}),
        "extra_content": odd,
    },
)


@given(st.lists(entries, max_size=8))
def test_no_order_of_pieces_breaks_the_order_of_events(drawn: list[dict[str, Any]]) -> None:
    opened, closed = set[int](), set[int]()
    for event in events(*drawn):
        match event:
            case PartStarted():
                assert event.index == len(opened)
                opened.add(event.index)
            case Delta():
                assert event.index in opened - closed
            case PartEnded():
                assert event.index in opened - closed
                closed.add(event.index)
    assert opened == closed
    assert len({call_id for call_id, _, _ in told(*[e for e in drawn if "extra_content" not in e])}) == len(
        told(*[e for e in drawn if "extra_content" not in e])
    )
