import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from cachegate.errors import BadInput
from cachegate.wire.claude_cli.prompt import (
    RESULT_CHARS_MAX,
    Prompt,
    Turn,
    can_be_said,
    given,
    mark,
    prompt_of,
    rest_of,
    results_of,
)
from cachegate.wire.codecs import CODECS
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import Json

TOOL = {"path": {"type": "string"}}
SCHEMA = {"type": "object", "properties": TOOL}
PICTURE = "iVBO"
ASKED = {"path": "/a", "limit": 10}


def prompted(body: dict[str, Any], protocol: Protocol = Protocol.MESSAGES, binding: str = "p") -> Prompt:
    return prompt_of(CODECS[protocol].parse_request(json.dumps(body).encode()), "up", binding)


def messages_body(*more: Json, **fields: Any) -> dict[str, Any]:
    return {
        "model": "m", "max_tokens": 10, "system": "Be brief.", "stream": True,
        "tools": [{"name": "Read", "description": "Reads.", "input_schema": SCHEMA}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "see"}, picture()]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
                {"type": "text", "text": "I look. "},
                {"type": "tool_use", "id": "c1", "name": "Read", "input": ASKED},
                {"type": "tool_use", "id": "c2", "name": "Read", "input": {}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "one"},
                {"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": "two"}]},
                {"type": "text", "text": "and now?"},
            ]},
            *more,
        ],
        **fields,
    }  # fmt: skip


def picture(data: str = PICTURE) -> Json:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


def responses_body() -> dict[str, Any]:
    shown = {"type": "input_image", "image_url": f"data:image/png;base64,{PICTURE}"}
    function = {"type": "function", "name": "Read", "description": "Reads.", "parameters": SCHEMA}
    return {
        "model": "m", "max_output_tokens": 10, "instructions": "Be brief.", "stream": True, "tools": [function],
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "see"}, shown]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
            {"type": "function_call", "call_id": "c1", "name": "Read", "arguments": '{"limit": 10, "path": "/a"}'},
            {"type": "function_call", "call_id": "c2", "name": "Read", "arguments": "{ }"},
            {"type": "function_call_output", "call_id": "c1", "output": "one"},
            {"type": "function_call_output", "call_id": "c2", "output": "two"},
            {"type": "message", "role": "user", "content": "and now?"},
        ],
    }  # fmt: skip


def chat_body() -> dict[str, Any]:
    shown = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}}
    calls = (("c1", '{"path":"/a","limit":1.0e1}'), ("c2", "{}"))
    function = {"name": "Read", "description": "Reads.", "parameters": SCHEMA}
    return {
        "model": "m", "max_tokens": 10, "stream": True, "tools": [{"type": "function", "function": function}],
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "see"}, shown]},
            {"role": "assistant", "content": "I look.\n", "tool_calls": [
                {"id": call_id, "type": "function", "function": {"name": "Read", "arguments": arguments}}
                for call_id, arguments in calls
            ]},
            {"role": "tool", "tool_call_id": "c1", "content": "one"},
            {"role": "tool", "tool_call_id": "c2", "content": "two"},
            {"role": "user", "content": "and now?"},
        ],
    }  # fmt: skip


BODIES: dict[Protocol, Callable[[], dict[str, Any]]] = {
    Protocol.MESSAGES: messages_body, Protocol.RESPONSES: responses_body, Protocol.CHAT: chat_body,
}  # fmt: skip


# --- what a process is told ---


def test_a_conversation_is_the_same_over_every_protocol() -> None:
    over = [prompted(BODIES[protocol](), protocol) for protocol in Protocol]
    marks = [tuple(map(mark, each.turns)) for each in over]
    assert len(marks[0]) == 3
    assert all(one == other for one, other in pairwise(marks))
    assert all(one.digest == other.digest for one, other in pairwise(over))


def test_a_request_is_told_in_anthropics_blocks() -> None:
    told = prompted(messages_body(cache_control={"type": "ephemeral"}))
    assert (told.model, told.system) == ("up", "Be brief.")
    meta = {"anthropic/maxResultSizeChars": RESULT_CHARS_MAX}
    assert told.tools == ({"name": "Read", "description": "Reads.", "inputSchema": SCHEMA, "_meta": meta},)
    assert [turn.role for turn in told.turns] == ["user", "assistant", "user"]
    assert told.turns[0].blocks == ({"type": "text", "text": "see"}, picture())
    assert told.turns[1].blocks[0] == {"type": "thinking", "thinking": "hm", "signature": "c2ln"}


def test_instructions_in_parts_are_one_text() -> None:
    parts = [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}]
    assert prompted(messages_body(system=parts)).system == "Be brief.\n\nBe kind."
    assert prompted(messages_body(system="")).system == ""


def test_tools_that_a_provider_runs_itself_are_not_handed_over() -> None:
    hosted = {"type": "web_search_20250305", "name": "web_search"}
    told = prompted(messages_body(tools=[hosted, {"name": "Read", "input_schema": {"type": "object"}}]))
    assert [tool["name"] for tool in told.tools] == ["Read"]
    assert told.tools[0]["description"] == ""


def test_an_answer_that_the_caller_began_is_refused() -> None:
    begun = {"role": "assistant", "content": "Well, "}
    with pytest.raises(BadInput, match="last message is the assistant's"):
        prompted(messages_body(begun))


@pytest.mark.parametrize(
    ("fields", "forced"),
    [
        ({}, {"max_tokens": 10}),
        ({"temperature": 0.5}, {"max_tokens": 10, "temperature": 0.5}),
        ({"top_p": 0.5, "top_k": 3}, {"max_tokens": 10, "top_p": 0.5, "top_k": 3}),
        ({"stop_sequences": ["END"]}, {"max_tokens": 10, "stop_sequences": ["END"]}),
        (
            {"tool_choice": {"type": "tool", "name": "Read"}},
            {"max_tokens": 10, "tool_choice": {"type": "tool", "name": "Read"}},
        ),
        ({"metadata": {"user_id": "u"}}, {"max_tokens": 10}),
    ],
)
def test_what_only_the_whole_process_can_be_told(fields: dict[str, Any], forced: Json) -> None:
    assert prompted(messages_body(**fields)).extra == forced


def test_a_limit_that_nobody_gave_is_not_forced() -> None:
    assert prompted({"model": "m", "messages": [{"role": "user", "content": "hi"}]}, Protocol.CHAT).extra == {}


def test_the_format_of_the_answer_is_forced_and_its_effort_is_not() -> None:
    wanted = {"type": "json_schema", "schema": {"type": "object"}}
    told = prompted(messages_body(output_config={"format": wanted, "effort": "low"}))
    assert told.extra["output_config"] == {"format": wanted}
    assert told.effort == "low"
    assert told.digest == prompted(messages_body(output_config={"format": wanted, "effort": "high"})).digest


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({"thinking": {"type": "disabled"}}, 0),
        ({"thinking": {"type": "enabled", "budget_tokens": 2048}, "max_tokens": 4096}, 2048),
        ({"thinking": {"type": "adaptive"}}, None),
        ({"thinking": {"type": "adaptive"}, "tool_choice": {"type": "any"}}, 0),
        ({}, 0),
    ],
    ids=[
        "off",
        "a budget",
        "as the model likes",
        "refused beside a forced tool",
        "nobody asked, and a limit is forced",
    ],
)
def test_how_much_the_model_may_think(fields: dict[str, Any], tokens: int | None) -> None:
    assert prompted(messages_body(**fields)).thinking_tokens == tokens


def test_where_nothing_is_asked_for_and_nothing_forced_the_program_thinks_as_it_does() -> None:
    assert prompted({"model": "m", "input": "hi"}, Protocol.RESPONSES).thinking_tokens is None


@pytest.mark.parametrize(("asked", "effort"), [("minimal", "low"), ("high", "high"), ("none", None)])
def test_an_effort_is_one_that_the_program_knows(asked: str, effort: str | None) -> None:
    told = prompted({"model": "m", "input": "hi", "reasoning": {"effort": asked}}, Protocol.RESPONSES)
    assert told.effort == effort
    assert (told.thinking_tokens == 0) == (asked == "none")


@pytest.mark.parametrize(("fields", "fast"), [({"speed": "fast"}, True), ({"speed": "standard"}, False), ({}, False)])
def test_fast_is_fast_only_where_it_is_asked_for(fields: dict[str, Any], fast: bool) -> None:
    assert prompted(messages_body(**fields)).fast is fast


# --- what must be equal for a process to go on ---

READ, WRITE = ({"name": name, "input_schema": SCHEMA} for name in ("Read", "Write"))
PLAIN = messages_body()


@pytest.mark.parametrize(
    "fields",
    [
        {"system": "Be long."},
        {"system": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}]},
        {"tools": []},
        {"tools": [{"name": "Read", "description": "Reads!", "input_schema": SCHEMA}]},
        {"tools": [{"name": "Read", "description": "Reads.", "input_schema": {"type": "object"}}]},
        {"tool_choice": {"type": "none"}},
        {"tool_choice": {"type": "any"}},
        {"stop_sequences": ["END"]},
        {"temperature": 0.5},
        {"top_p": 0.5},
        {"top_k": 3},
        {"max_tokens": 11},
        {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
    ],
    ids=json.dumps,
)
def test_another_setup_has_another_digest(fields: dict[str, Any]) -> None:
    assert prompted(messages_body(**fields)).digest != prompted(PLAIN).digest


@pytest.mark.parametrize(
    "fields",
    [
        {"thinking": {"type": "disabled"}},
        {"thinking": {"type": "adaptive"}},
        {"output_config": {"effort": "low"}},
        {"speed": "fast"},
        {"stream": False},
        {"metadata": {"user_id": "u"}},
        {"messages": [{"role": "user", "content": "other"}]},
        {"tools": [{"cache_control": {"type": "ephemeral"}, **PLAIN["tools"][0]}]},
        {"system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_what_can_be_changed_in_a_living_process_is_no_part_of_its_digest(fields: dict[str, Any]) -> None:
    assert prompted(messages_body(**fields)).digest == prompted(PLAIN).digest


def test_tools_are_the_same_in_any_order_and_with_their_fields_in_any_order() -> None:
    turned = {"input_schema": dict(reversed(SCHEMA.items())), "name": "Read"}
    assert prompted(messages_body(tools=[READ, WRITE])).digest == prompted(messages_body(tools=[WRITE, turned])).digest


# --- marks ---


def text(words: str, **more: object) -> Json:
    return {"type": "text", "text": words, **more}


def called(call_id: str = "c1", name: str = "Read", **arguments: object) -> Json:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def result(content: object = "one", call_id: str = "c1", **more: object) -> Json:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def user(*blocks: Json) -> Turn:
    return Turn("user", blocks)


def answer(*blocks: Json) -> Turn:
    return Turn("assistant", blocks)


THOUGHT: Json = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
HIDDEN: Json = {"type": "redacted_thinking", "data": "c2ln"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (answer(text("a"), called()), answer(THOUGHT, text("a"), HIDDEN, called())),
        (answer(text("ab")), answer(text("a"), THOUGHT, text("b"))),
        (answer(text("a"), called()), answer(text("a\n"), called())),
        (answer(called()), answer(text(""), called(), text(" "))),
        (answer(called(a=1, b={"c": [1], "d": 2})), answer(called(b={"d": 2, "c": [1]}, a=1))),
        (answer(called(a=1.0)), answer(called(a=1))),
        (user(result("one")), user(result([text("one")]))),
        (user(result("one")), user(result("one", is_error=False))),
        (user(result("one")), user(dict(reversed(list(result("one").items()))))),
    ],
    ids=[
        "thoughts",
        "a text in parts",
        "blanks around a text",
        "blank texts",
        "order of arguments",
        "a whole number",
        "a result as text",
        "a result that is no error",
        "order of fields",
    ],
)
def test_what_says_the_same_has_the_same_mark(one: Turn, other: Turn) -> None:
    assert mark(one) == mark(other)


def test_a_cache_mark_is_no_part_of_a_turn() -> None:
    marked = messages_body({"role": "assistant", "content": "ok"}, {"role": "user", "content": "on"})
    moved = json.loads(json.dumps(marked))
    moved["messages"][2]["content"][0]["cache_control"] = {"type": "ephemeral"}
    moved["messages"][4]["content"] = [text("on", cache_control={"type": "ephemeral"})]
    assert prompted(moved).turns == prompted(marked).turns


DIFFERENT = (
    user(text("a")),
    user(text("b")),
    answer(text("a")),
    user(text("a"), picture()),
    user(picture(), text("a")),
    user(text("a"), picture("AAAA")),
    user(picture()),
    answer(called()),
    answer(called("c2")),
    answer(called(name="Write")),
    answer(called(a=1)),
    answer(called(a="1")),
    answer(called(a=1.5)),
    answer(called(a=True)),
    answer(called(a=[1, 2])),
    answer(called(a=[2, 1])),
    answer(called(), called("c2")),
    answer(called("c2"), called()),
    answer(text("a"), called()),
    answer(called(), text("a")),
    user(result()),
    user(result(call_id="c2")),
    user(result("two")),
    user(result([])),
    user(result([text("one"), text("two")])),
    user(result([text("onetwo")])),
    user(result([text("one"), picture()])),
    user(result(is_error=True)),
    user(result(), text("one")),
)


def test_whatever_else_differs_has_a_mark_of_its_own() -> None:
    assert len({mark(turn) for turn in DIFFERENT}) == len(DIFFERENT)


@drawn(first=st.text(max_size=5), second=st.text(max_size=5), cut=st.integers(0, 10))
def test_where_a_text_is_cut_does_not_matter(first: str, second: str, cut: int) -> None:
    whole = first + second
    assert mark(answer(text(whole[:cut]), text(whole[cut:]))) == mark(answer(text(first), text(second)))


# --- what a process can be told while it lives ---

LONG = "x" * 449_990
DOCUMENT: Json = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "d"}}


@pytest.mark.parametrize(
    ("turn", "said"),
    [
        (user(text("a")), True),
        (user(result(), result("two", "c2", is_error=True), text("and")), True),
        (user(result([text("one"), text("two")])), True),
        (user(result([text(""), text("two")])), True),
        (user(result(LONG[:449_900])), True),
        (user(result(LONG)), False),
        (user(result([text(LONG[:300_000]), text(LONG[:200_000])])), False),
        (user(result("ü" * 230_000)), False),
        (user(text(LONG * 2)), True),
        (user(text("see"), picture()), False),
        (user(DOCUMENT), False),
        (user(result([text("see"), picture()])), False),
        (user(result([{"type": "tool_reference", "tool_name": "Read"}])), False),
        (user(result([])), False),
        (user(result("")), False),
        (user(result(" \n")), False),
        (user(result(), result([], "c2")), False),
        (user({"type": "tool_result", "tool_use_id": "c1"}), False),
    ],
    ids=[
        "text", "results and text", "a result in parts", "a blank part", "a long result", "a longer one",
        "long together", "long in bytes", "a long text", "a picture", "a document", "a picture in a result",
        "a reference", "nothing in a result", "an empty text", "blanks", "one of two is empty", "no content at all",
    ],
)  # fmt: skip
def test_what_the_program_passes_on_as_it_is(turn: Turn, said: bool) -> None:
    assert can_be_said(turn) is said


def test_a_turn_is_parted_into_results_and_the_rest() -> None:
    turn = user(result(), text("and"), result("two", "c2"))
    assert results_of(turn) == (result(), result("two", "c2"))
    assert rest_of(turn) == (text("and"),)


@pytest.mark.parametrize(
    ("content", "more", "handed"),
    [
        ("one", {}, ([text("one")], False)),
        ([text("one", cache_control={}), text("two")], {"is_error": True}, ([text("one"), text("two")], True)),
        ([], {"is_error": False}, ([], False)),
    ],
)
def test_a_result_is_given_as_a_server_of_tools_gives_it(
    content: object, more: dict[str, Any], handed: tuple[list[Json], bool]
) -> None:
    assert given(result(content, **more)) == handed


def test_two_prompts_that_differ_in_their_turns_only_go_on_with_each_other() -> None:
    told = prompted(PLAIN)
    assert replace(told, turns=()).digest == told.digest
