import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegate.errors import BadInput
from cachegate.wire.facts import Operation, Protocol
from cachegate.wire.hub import (
    Choice,
    HostedTool,
    Message,
    OutputFormat,
    Purpose,
    Request,
    Role,
    Sampling,
    Text,
    Thinking,
    Tool,
    ToolRef,
)
from cachegate.wire.responses.item_parser import DROPPED_ITEMS
from cachegate.wire.responses.request_parser import DROPPED, REFUSED, parse_request
from wire.recordings.codex import CODEX
from wire.recordings.opencode import OPENCODE
from wire.recordings.other_clients import OTHERS
from wire.recordings.recorded import RESPONSES, Recorded

SHELL = {"type": "function", "name": "shell", "parameters": {"type": "object"}, "strict": False}
HI = Message(Role.USER, (Text("hi"),))
SCHEMA = {"type": "object"}


def parsed(operation: Operation = Operation.GENERATE, /, **fields: Any) -> Request:
    return parse_request(json.dumps({"model": "m", "input": "hi", **fields}).encode(), operation)


def test_a_text_is_a_message_of_the_user() -> None:
    assert parsed() == Request("m", stream=False, items=(HI,))


def test_instructions_stand_in_front() -> None:
    assert parsed(instructions="Be good.").instructions == (Text("Be good."),)
    assert parsed(instructions="").instructions == parsed(instructions=None).instructions == ()


def test_codexs_light_models_bring_tools_and_instructions_in_their_input() -> None:
    request = parsed(
        input=[
            {"type": "additional_tools", "role": "developer", "tools": [SHELL, {"type": "web_search"}]},
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "You are Codex."}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        ]
    )
    assert request.items == (Message(Role.DEVELOPER, (Text("You are Codex."),)), HI)
    assert request.tools == (
        Tool(ToolRef("shell"), schema={"type": "object"}, strict=False),
        HostedTool("web_search", Protocol.RESPONSES, {"type": "web_search"}),
    )


def test_tools_that_a_search_loads_join_the_others_once() -> None:
    found = {"type": "tool_search_output", "call_id": "c", "tools": [{"type": "function", "name": "wait"}, SHELL]}
    call = {"type": "tool_search_call", "call_id": "c", "arguments": {}}
    request = parsed(tools=[SHELL], input=[call, found, call | {"call_id": "d"}, found | {"call_id": "d"}])
    tools = [tool for tool in request.tools if isinstance(tool, Tool)]
    assert [(tool.ref.name, tool.deferred) for tool in tools] == [("shell", False), ("wait", True)]


def test_tools_that_were_found_without_a_call_stand_in_front() -> None:
    """Nobody can be told of them at their place: the history was cut there."""
    found = {"type": "tool_search_output", "call_id": "c", "tools": [{"type": "function", "name": "wait"}]}
    call = {"type": "tool_search_call", "call_id": "c", "arguments": {}}
    for items in ([found], [found, call]):
        (tool,) = parsed(input=items).tools
        assert isinstance(tool, Tool)
        assert not tool.deferred


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"stream": True}, {"stream": True}),
        ({"tool_choice": "none"}, {"choice": Choice.NONE}),
        ({"tool_choice": {"type": "function", "name": "x"}}, {"choice": Choice.ONE, "chosen_tool": ToolRef("x")}),
        ({"parallel_tool_calls": False}, {"parallel_tools": False}),
        (
            {"max_output_tokens": 9, "temperature": 0, "top_p": 0.5},
            {"sampling": Sampling(max_output_tokens=9, temperature=0, top_p=0.5)},
        ),
        ({"reasoning": {"effort": "high"}}, {"thinking": Thinking(enabled=True, effort="high")}),
        (
            {"reasoning": {"effort": "medium", "summary": "auto", "context": "all_turns"}},
            {"thinking": Thinking(enabled=True, effort="medium", show=True)},
        ),
        ({"reasoning": {"effort": "none"}}, {"thinking": Thinking(enabled=False, effort="none")}),
        ({"reasoning": {"effort": None, "summary": "none"}}, {"thinking": Thinking()}),
        ({"reasoning": {"generate_summary": "concise"}}, {"thinking": Thinking(show=True)}),
        ({"text": {"verbosity": "low", "format": {"type": "text"}}}, {"verbosity": "low"}),
        ({"text": {"format": {"type": "json_object"}}}, {"output_format": OutputFormat()}),
        (
            {"text": {"format": {"type": "json_schema", "name": "t", "schema": SCHEMA, "strict": True}}},
            {"output_format": OutputFormat(SCHEMA, "t", strict=True)},
        ),
        ({"service_tier": "priority"}, {"fast": True}),
        ({"service_tier": "fast"}, {"fast": True}),
        ({"service_tier": "default"}, {"fast": False}),
        ({"prompt_cache_key": "thread"}, {"cache_key": "thread"}),
    ],
)
def test_every_setting_is_read(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    assert parsed(**fields) == Request(**{"model": "m", "stream": False, "items": (HI,), **expected})


def test_the_last_update_inside_the_conversation_holds() -> None:
    low, high = ({"type": "configuration_update", "reasoning": {"effort": effort}} for effort in ("low", "high"))
    wanted = {"type": "configuration_update", "text": {"format": {"type": "json_object"}}}
    said = {"role": "user", "content": "hi"}
    request = parsed(reasoning={"effort": "medium"}, input=[said, low, high, wanted])
    assert request.items == (HI,)
    assert (request.thinking.effort, request.output_format) == ("high", OutputFormat())


TRIGGER = {"type": "compaction_trigger"}


def test_a_trigger_at_the_end_asks_for_a_compaction() -> None:
    said = {"role": "user", "content": "hi"}
    request = parsed(input=[said, TRIGGER], stream=True)
    assert (request.purpose, request.items, request.stream) == (Purpose.COMPACTION_ITEM, (HI,), True)
    assert parsed(input=[TRIGGER, said]).purpose is Purpose.ANSWER


def test_the_path_of_older_codex_asks_for_a_compaction_object() -> None:
    request = parsed(Operation.COMPACT, stream=True)
    assert (request.purpose, request.stream) == (Purpose.COMPACTION_OBJECT, False)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("previous_response_id", "resp_1"),
        ("conversation", {"id": "conv_1"}),
        ("prompt", {"id": "pmpt_1"}),
        ("background", True),
        ("moderation", {"model": "omni"}),
        ("top_logprobs", 3),
    ],
)
def test_what_would_change_the_answer_is_refused_with_a_remedy(field: str, value: Any) -> None:
    with pytest.raises(BadInput, match=f"^{field}: .*send "):
        parsed(**{field: value})
    assert {name: parsed(**{name: empty}) for name in REFUSED for empty in (None, False)}


def test_what_is_documented_as_dropped_passes() -> None:
    top = [name for name in DROPPED if "." not in name and "[" not in name]
    values = dict.fromkeys(top, "x") | {"service_tier": "flex", "top_logprobs": 0}
    assert parsed(**values) == parsed(service_tier="default")
    assert all(f"input[].type: {kind}" in DROPPED for kind in DROPPED_ITEMS)
    assert parsed(brand_new={"x": 1}) == parsed()


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"input": None}, "input"),
        ({"input": {}}, "input"),
        ({"model": 1}, "model"),
        ({"instructions": ["x"]}, "instructions"),
        ({"tools": {}}, "tools"),
        ({"stream": "yes"}, "stream"),
        ({"reasoning": "high"}, "reasoning"),
        ({"reasoning": {"effort": 1}}, "reasoning.effort"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": {"format": {"type": ["text"]}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
        ({"max_output_tokens": "9"}, "max_output_tokens"),
        ({"prompt_cache_key": 1}, "prompt_cache_key"),
    ],
)
def test_a_field_of_a_wrong_type_is_refused_by_its_name(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(BadInput) as refused:
        parsed(**fields)
    assert refused.value.message.startswith(f"{path}: ")


def test_a_number_that_no_double_holds_is_refused_and_not_taken_for_absent() -> None:
    with pytest.raises(BadInput, match=r"^max_output_tokens: "):
        parse_request(b'{"model":"m","input":"hi","max_output_tokens":1e999}')


SENT = [one for one in (*CODEX, *OPENCODE, *OTHERS) if one.protocol is RESPONSES and "conversation" not in one.body]


@pytest.mark.parametrize("recorded", SENT, ids=lambda one: one.name)
def test_what_real_clients_send_is_read(recorded: Recorded) -> None:
    request = parse_request(json.dumps(recorded.body).encode(), recorded.operation)
    assert request.items


def test_a_lone_surrogate_does_no_harm() -> None:
    request = parse_request(b'{"model":"m","input":"a\\ud83d"}')
    assert request.items == (Message(Role.USER, (Text("a\ufffd"),)),)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
KINDS = st.sampled_from(
    ["message", "function_call", "function_call_output", "custom_tool_call", "reasoning", "compaction", "function",
     "tool_search_call", "tool_search_output", "additional_tools", "configuration_update", "compaction_trigger",
     "namespace", "custom", "input_text", "input_image", "input_file", "refusal", "allowed_tools", "json_schema"]
)  # fmt: skip
NAMES = st.sampled_from(
    ["type", "role", "content", "text", "call_id", "name", "arguments", "output", "summary", "encrypted_content",
     "tools", "image_url", "file_data", "reasoning", "execution", "namespace", "mode", "format", "schema", "effort"]
)  # fmt: skip
ODD = st.recursive(
    JSON | KINDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
FIELDS = st.sampled_from(
    ["input", "tools", "tool_choice", "reasoning", "text", "instructions", "stream", "service_tier", "model",
     "parallel_tool_calls", "max_output_tokens", "temperature", "prompt_cache_key"]
)  # fmt: skip


@settings(deadline=None, max_examples=200)
@given(st.dictionaries(FIELDS, ODD, max_size=4), st.sampled_from([Operation.GENERATE, Operation.COMPACT]))
def test_a_body_of_any_shape_is_read_or_refused(body: dict[str, Any], operation: Operation) -> None:
    with suppress(BadInput):
        assert isinstance(parse_request(json.dumps({"input": "hi", **body}).encode(), operation), Request)


@settings(deadline=None)
@given(st.binary(max_size=20))
def test_bytes_that_are_no_request_are_refused(body: bytes) -> None:
    with pytest.raises(BadInput):
        parse_request(body)
