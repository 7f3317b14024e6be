import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachegate.wire.custom_tools import SCHEMA, as_function, unwrap, wrap
from cachegate.wire.hub import Tool, ToolRef

REF = ToolRef("apply_patch", "functions", custom=True)
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": 'start: "*** Begin Patch"'}
texts = st.text(st.characters(exclude_categories=["Cs"]))


def test_a_freeform_tool_becomes_a_function_of_one_string_that_knows_its_grammar() -> None:
    function = as_function(Tool(REF, "Patches files.", grammar=GRAMMAR, marked=True))
    assert function.ref == ToolRef("apply_patch", "functions")
    assert function.schema == SCHEMA
    assert function.marked
    assert function.description == (
        'Patches files.\n\n`input` must be text that matches this grammar (lark):\nstart: "*** Begin Patch"'
    )


@pytest.mark.parametrize("grammar", [None, {"type": "text"}, {"type": "grammar", "definition": 7}])
def test_a_tool_without_a_grammar_keeps_its_description(grammar: dict[str, object] | None) -> None:
    assert as_function(Tool(REF, "Patches.", grammar=grammar)).description == "Patches."
    assert as_function(Tool(REF, grammar=grammar)).description is None


def test_a_grammar_without_a_syntax_is_told_all_the_same() -> None:
    described = as_function(Tool(REF, grammar={"type": "grammar", "definition": "a"})).description
    assert described == "`input` must be text that matches this grammar:\na"


def test_a_function_stays_as_it_is() -> None:
    tool = Tool(ToolRef("shell"), "Runs.", {"type": "object"}, strict=True, deferred=True)
    assert as_function(tool) is tool


@given(texts)
def test_what_was_wrapped_is_unwrapped(text: str) -> None:
    assert json.loads(wrap(text)) == {"input": text}
    assert wrap(text) == wrap(text)
    assert unwrap(wrap(text)) == text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"input": "a\\nb"}', "a\nb"),
        (' {\n "input" : "a" }', "a"),
        ('{"input":"a","more":"b"}', "a"),
        ('{"patch":"a"}', "a"),
        ('{"patch":"a","more":"b"}', '{"patch":"a","more":"b"}'),
        ('{"input":7}', '{"input":7}'),
        ('"a"', "a"),
        ("*** Begin Patch", "*** Begin Patch"),
        ("", ""),
        ("[1]", "[1]"),
        ('{"input":"*** Beg', "*** Beg"),
        ('{"input":"a\\', "a"),
        ('{"input":"a\\u00', "a"),
        ('{"input":"a\\ud83d', "a"),
        ('{"input":"a\\ud83d\\ude', "a"),
        ('{"input":"\\q', '{"input":"\\q'),
    ],
)
def test_what_models_fumble_is_read_as_they_meant_it(arguments: str, text: str) -> None:
    assert unwrap(arguments) == text


@given(texts, st.integers(0, 80))
def test_arguments_cut_anywhere_give_a_beginning_of_the_text(text: str, at: int) -> None:
    cut = wrap(text)[: len('{"input":"') + at]
    assert text.startswith(unwrap(cut))


@given(st.text())
def test_anything_can_be_unwrapped(arguments: str) -> None:
    unwrap(arguments)
