import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegate.errors import BadInput
from cachegate.wire.chat.request_parser import DROPPED, REFUSED, parse_request
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import Choice, HostedTool, OutputFormat, Request, Sampling, Thinking, Tool, ToolRef

ASK = {"role": "user", "content": "hi"}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


def parse(**more: Any) -> Request:
    return parse_request(json.dumps({"model": "m", "messages": [ASK], **more}).encode())


def refused(**more: Any) -> str:
    with pytest.raises(BadInput) as raised:
        parse(**more)
    return raised.value.message


def test_a_request_says_what_it_says_and_nothing_else() -> None:
    request = parse()
    assert request == Request("m", stream=False, items=request.items, keeps_thoughts=False)


@pytest.mark.parametrize(
    ("tool", "parsed"),
    [
        (
            {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA, "strict": True}},
            Tool(ToolRef("f"), "d", SCHEMA, strict=True),
        ),
        (
            {"type": "function", "function": {"name": "f"}},
            Tool(ToolRef("f"), schema={"type": "object", "properties": {}}),
        ),
        (
            {"function": {"name": "f", "parameters": SCHEMA}, "cache_control": {"type": "ephemeral"}},
            Tool(ToolRef("f"), schema=SCHEMA, marked=True),
        ),
        (
            {
                "type": "custom",
                "custom": {
                    "name": "p",
                    "description": "d",
                    "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "x"}},
                },
            },
            Tool(ToolRef("p", custom=True), "d", grammar={"type": "grammar", "syntax": "lark", "definition": "x"}),
        ),
        (
            {"type": "custom", "custom": {"name": "p", "format": {"type": "text"}}},
            Tool(ToolRef("p", custom=True), grammar={"type": "text"}),
        ),
        ({"type": "custom", "custom": {"name": "p"}}, Tool(ToolRef("p", custom=True))),
        ({"type": "web_search", "x": 1}, HostedTool("web_search", Protocol.CHAT, {"type": "web_search", "x": 1})),
    ],
)
def test_a_tool(tool: Any, parsed: Tool | HostedTool) -> None:
    assert parse(tools=[tool]).tools == (parsed,)


def test_functions_of_old_clients_are_tools() -> None:
    request = parse(functions=[{"name": "f", "parameters": SCHEMA}], function_call={"name": "f"})
    assert request.tools == (Tool(ToolRef("f"), schema=SCHEMA),)
    assert (request.choice, request.chosen_tool) == (Choice.ONE, ToolRef("f"))


@pytest.mark.parametrize(
    ("choice", "parsed"),
    [
        (None, (None, None)),
        ("auto", (Choice.AUTO, None)),
        ("none", (Choice.NONE, None)),
        ("required", (Choice.REQUIRED, None)),
        ("any", (Choice.REQUIRED, None)),
        ({"type": "function", "function": {"name": "f"}}, (Choice.ONE, ToolRef("f"))),
        ({"type": "custom", "custom": {"name": "p"}}, (Choice.ONE, ToolRef("p", custom=True))),
    ],
)
def test_a_choice(choice: Any, parsed: tuple[Choice | None, ToolRef | None]) -> None:
    request = parse(tool_choice=choice)
    assert (request.choice, request.chosen_tool) == parsed


@pytest.mark.parametrize(
    ("fields", "parsed"),
    [
        ({"max_tokens": 5}, Sampling(max_output_tokens=5)),
        ({"max_tokens": 5, "max_completion_tokens": 7}, Sampling(max_output_tokens=7)),
        ({"max_completion_tokens": 0, "max_tokens": 5}, Sampling(max_output_tokens=0)),
        ({"temperature": 0, "top_p": 0.5, "top_k": 4}, Sampling(temperature=0, top_p=0.5, top_k=4)),
        ({"stop": "END"}, Sampling(stop=("END",))),
        ({"stop": ["a", "b"]}, Sampling(stop=("a", "b"))),
        ({"stop": None}, Sampling()),
    ],
)
def test_sampling(fields: dict[str, Any], parsed: Sampling) -> None:
    assert parse(**fields).sampling == parsed


@pytest.mark.parametrize(
    ("fields", "parsed"),
    [
        ({"reasoning_effort": "low"}, Thinking(effort="low")),
        ({"reasoning_effort": "none"}, Thinking(enabled=False, effort="none")),
        ({"reasoning": {"effort": "high", "exclude": True}}, Thinking(effort="high", show=False)),
        ({"reasoning": {"max_tokens": 2000, "enabled": True}}, Thinking(enabled=True, budget_tokens=2000)),
        ({"thinking": {"type": "disabled"}}, Thinking(enabled=False)),
        ({"thinking": {"type": "enabled", "budget_tokens": 9}}, Thinking(enabled=True, budget_tokens=9)),
        ({"thinking": {"type": "auto"}}, Thinking()),
        ({"enable_thinking": False}, Thinking(enabled=False)),
        ({"enable_thinking": True, "thinking_budget": 9}, Thinking(enabled=True, budget_tokens=9)),
        ({"chat_template_kwargs": {"enable_thinking": False}}, Thinking(enabled=False)),
    ],
)
def test_every_spelling_of_thinking(fields: dict[str, Any], parsed: Thinking) -> None:
    assert parse(**fields).thinking == parsed


@pytest.mark.parametrize(
    ("form", "parsed"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, OutputFormat()),
        (
            {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}},
            OutputFormat(SCHEMA, "n", strict=True),
        ),
        ({"type": "json_schema", "json_schema": {"name": "n"}}, OutputFormat(None, "n")),
    ],
)
def test_structured_output(form: Any, parsed: OutputFormat | None) -> None:
    assert parse(response_format=form).output_format == parsed


def test_the_rest() -> None:
    request = parse(
        stream=True, parallel_tool_calls=False, verbosity="low", service_tier="priority", prompt_cache_key="k"
    )
    assert (request.stream, request.parallel_tools, request.verbosity) == (True, False, "low")
    assert (request.fast, request.cache_key) == (True, "k")
    assert parse(service_tier="flex").fast is None


@pytest.mark.parametrize(
    ("fields", "wants"),
    [
        ({}, True),
        ({"stream": True}, False),
        ({"stream": True, "stream_options": None}, False),
        ({"stream": True, "stream_options": {"include_usage": False}}, False),
        ({"stream": True, "stream_options": {"include_usage": True}}, True),
    ],
)
def test_a_stream_reports_usage_only_when_asked(fields: dict[str, Any], wants: bool) -> None:
    assert parse(**fields).wants_usage is wants


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"model": ""}, "model"),
        ({"model": 7}, "model"),
        ({"messages": None}, "messages"),
        ({"messages": {}}, "messages"),
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"tools": {}}, "tools"),
        ({"tools": [7]}, "tools[0]"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]},
            "tools[0].function.parameters",
        ),
        ({"tools": [{"type": 7}]}, "tools[0].type"),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"tool_choice": {"type": "allowed_tools", "allowed_tools": {}}}, "tool_choice.allowed_tools"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice.type"),
        ({"tool_choice": []}, "tool_choice"),
        ({"response_format": {"type": "grammar"}}, "response_format.type"),
        ({"reasoning_effort": "heroic"}, "reasoning_effort"),
        ({"stop": [1]}, "stop"),
        ({"stop": 7}, "stop"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"stream": "yes"}, "stream"),
        ({"stream": True, "stream_options": []}, "stream_options"),
    ],
)
def test_what_cannot_be_carried_is_refused_under_its_name(fields: dict[str, Any], field: str) -> None:
    assert refused(**fields).startswith(f"{field}: ")


def test_what_is_lost_is_listed_and_lost() -> None:
    values: dict[str, Any] = {name: {"x": 1} for name in DROPPED if "." not in name and name != "service_tier"}
    assert parse(**values, unheard_of=[1]) == parse()
    assert all(reason for reason in (*DROPPED.values(), *REFUSED.values()))
    assert not set(DROPPED) & set(REFUSED)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"model":"m","model":"m"}', b"\xff", b"null"])
def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(BadInput):
        parse_request(body)


NAMES = (
    "role",
    "content",
    "type",
    "text",
    "tool_calls",
    "id",
    "function",
    "name",
    "arguments",
    "tool_call_id",
    "image_url",
    "url",
    "file",
    "file_data",
    "custom",
    "input",
    "refusal",
    "reasoning_content",
    "reasoning_details",
    "effort",
)
WORDS = (
    "user",
    "assistant",
    "tool",
    "system",
    "function",
    "text",
    "image_url",
    "custom",
    "none",
    "json_schema",
    "",
    "x",
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)
TOP = (
    "messages",
    "tools",
    "functions",
    "tool_choice",
    "function_call",
    "response_format",
    "reasoning",
    "thinking",
    "stop",
    "stream",
    "stream_options",
    "n",
    "max_tokens",
    "temperature",
    "chat_template_kwargs",
    "service_tier",
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(TOP), values, max_size=5), st.lists(values, max_size=3))
def test_no_shape_of_a_request_is_more_than_refused(fields: dict[str, Any], messages: list[Any]) -> None:
    refusal = ""
    try:
        parse(**{"messages": [ASK, *messages], **fields})
    except BadInput as error:
        refusal = error.message
    assert not refusal or ": " in refusal


def test_a_number_that_no_double_holds_is_refused_and_not_taken_for_absent() -> None:
    with pytest.raises(BadInput, match=r"^max_tokens: "):
        parse_request(b'{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":1e999}')
