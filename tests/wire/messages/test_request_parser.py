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
    Request,
    Role,
    Sampling,
    Text,
    Thinking,
    Tool,
    ToolRef,
)
from cachegate.wire.messages.codec import CODEC
from cachegate.wire.messages.request_parser import DROPPED, REFUSED
from wire.messages.parsed import parsed
from wire.recordings.claude_code import CLAUDE_CODE, claude

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}


def test_claude_codes_main_request() -> None:
    request = CODEC.parse_request(json.dumps(claude()).encode())
    assert request == Request(
        model="claude-opus-5-5",
        stream=True,
        instructions=(Text("You are Claude Code.", marked=True),),
        items=(
            Message(Role.USER, (Text("Fix the build."),)),
            Message(Role.SYSTEM, (Text("Deferred tools: WebFetch"),)),
        ),
        tools=(
            Tool(ToolRef("Read"), "Reads a file", {"type": "object"}),
            Tool(ToolRef("DeferredToolPlaceholder"), None, {"type": "object"}, deferred=True),
        ),
        sampling=Sampling(max_output_tokens=64_000),
        thinking=Thinking(enabled=True, effort="high", show=True),
    )


@pytest.mark.parametrize("recorded", CLAUDE_CODE, ids=lambda recorded: recorded.name)
def test_every_recorded_request_is_understood(recorded: Any) -> None:
    request = CODEC.parse_request(json.dumps({"model": "m", **recorded.body}).encode(), recorded.operation)
    assert not any("billing" in part.text for part in request.instructions)
    assert request.items


def test_counting_tokens_needs_no_limit() -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
    assert CODEC.parse_request(body, Operation.COUNT_TOKENS).sampling == Sampling()


@pytest.mark.parametrize(
    ("fields", "thinking"),
    [
        ({}, Thinking()),
        ({"thinking": {"type": "adaptive", "display": "updates"}}, Thinking(enabled=True, show=True)),
        ({"thinking": {"type": "adaptive", "display": "omitted"}}, Thinking(enabled=True, show=False)),
        ({"thinking": {"type": "enabled", "budget_tokens": 2048}}, Thinking(enabled=True, budget_tokens=2048)),
        ({"thinking": {"type": "between_tools"}}, Thinking(enabled=True)),
        ({"thinking": {"type": "disabled"}}, Thinking(enabled=False)),
        ({"output_config": {"effort": "xhigh"}}, Thinking(effort="xhigh")),
        ({"output_config": {"effort": "of a later year"}}, Thinking()),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}, Thinking(enabled=True, effort="low")),
    ],
)
def test_thinking(fields: dict[str, Any], thinking: Thinking) -> None:
    assert parsed(**fields).thinking == thinking


@pytest.mark.parametrize(
    ("given", "choice", "parallel", "chosen"),
    [
        (None, None, None, None),
        ({"type": "auto"}, Choice.AUTO, None, None),
        ({"type": "auto", "disable_parallel_tool_use": True}, Choice.AUTO, False, None),
        ({"type": "any", "disable_parallel_tool_use": False}, Choice.REQUIRED, True, None),
        ({"type": "none"}, Choice.NONE, None, None),
        ({"type": "tool", "name": "Read"}, Choice.ONE, None, ToolRef("Read")),
    ],
)
def test_choice(given: Any, choice: Choice | None, parallel: bool | None, chosen: ToolRef | None) -> None:
    request = parsed(tool_choice=given)
    assert (request.choice, request.parallel_tools, request.chosen_tool) == (choice, parallel, chosen)


def test_tools() -> None:
    mark = {"type": "ephemeral"}
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
    request = parsed(
        tools=[
            {"name": "Read", "description": "Reads.", "input_schema": SCHEMA, "strict": True, "cache_control": mark},
            {"type": "custom", "name": "Late", "input_schema": SCHEMA, "defer_loading": True},
            {"name": "Bare", "eager_input_streaming": True, "input_examples": [{}], "allowed_callers": ["direct"]},
            {**search, "cache_control": mark},
        ]
    )
    assert request.tools == (
        Tool(ToolRef("Read"), "Reads.", SCHEMA, strict=True, marked=True),
        Tool(ToolRef("Late"), None, SCHEMA, deferred=True),
        Tool(ToolRef("Bare"), None, {"type": "object", "properties": {}}),
        HostedTool("web_search_20250305", Protocol.MESSAGES, search, marked=True),
    )


def test_sampling() -> None:
    request = parsed(max_tokens=7, temperature=1, top_p=0.5, top_k=3, stop_sequences=["END", "\n"], stream=False)
    assert request.sampling == Sampling(7, 1, 0.5, 3, ("END", "\n"))
    assert not request.stream


@pytest.mark.parametrize("where", ["output_config", "output_format"])
def test_a_format_is_found_in_both_places(where: str) -> None:
    wanted = {"type": "json_schema", "schema": SCHEMA}
    fields = {"output_config": {"format": wanted}} if where == "output_config" else {"output_format": wanted}
    assert parsed(**fields).output_format == OutputFormat(SCHEMA)


@pytest.mark.parametrize(("speed", "fast"), [(None, None), ("fast", True), ("standard", False)])
def test_speed(speed: str | None, fast: bool | None) -> None:
    assert parsed(speed=speed).fast is fast


def test_what_is_dropped_changes_nothing() -> None:
    words = {name: {"any": "thing"} for name in DROPPED if "." not in name and ":" not in name}
    assert parsed(**{**words, "container": "name", "of_a_later_year": [1]}) == parsed()


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_change_the_answer_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(BadInput) as refused:
        parsed(**{name: {"skills": [1]}})
    assert refused.value.message == f"{name}: {REFUSED[name]}."
    assert parsed(**{name: None}) == parsed(**{name: []}) == parsed(**{name: {}}) == parsed()


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"model": ""}, "model"), ({"model": None}, "model"), ({"model": 7}, "model"), ({"stream": "yes"}, "stream"),
        ({"messages": "hi"}, "messages"), ({"messages": {}}, "messages"), ({"tools": {}}, "tools"),
        ({"tools": [{}]}, "tools[0].name"), ({"tools": [{"name": 7}]}, "tools[0].name"),
        ({"tools": [{"name": "n", "input_schema": []}]}, "tools[0].input_schema"),
        ({"tool_choice": {"type": "many"}}, "tool_choice.type"), ({"tool_choice": "auto"}, "tool_choice"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name"), ({"max_tokens": "9"}, "max_tokens"),
        ({"temperature": "hot"}, "temperature"), ({"stop_sequences": "END"}, "stop_sequences"),
        ({"stop_sequences": [7]}, "stop_sequences"), ({"thinking": {"type": "hard"}}, "thinking.type"),
        ({"thinking": True}, "thinking"), ({"output_config": {"effort": 3}}, "output_config.effort"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type"), ({"speed": 2}, "speed"),
    ],
)  # fmt: skip
def test_what_is_malformed_is_named(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(BadInput) as refused:
        parsed(**fields)
    assert refused.value.message.startswith(f"{path}: ")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
WORDS = st.sampled_from(
    ("text", "image", "document", "thinking", "redacted_thinking", "tool_use", "tool_result", "search_result", "auto",
     "tool", "any", "adaptive", "enabled", "json_schema", "base64", "url", "content", "compaction", "tool_addition",
     "tool_reference", "server_tool_use", "custom", "web_search_20250305")
)  # fmt: skip
NAMES = (
    "type", "text", "source", "content", "id", "name", "input", "tool_use_id", "thinking", "signature", "data", "url",
    "media_type", "title", "context", "citations", "cache_control", "tool", "definition", "is_error", "tool_name",
)  # fmt: skip
BLOCK = st.dictionaries(st.sampled_from(NAMES), WORDS | JSON, max_size=5) | JSON
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(("user", "assistant", "system")) | JSON, "content": st.lists(BLOCK, max_size=3) | JSON}
)
BODIES = st.fixed_dictionaries(
    {"model": st.just("m") | JSON, "messages": st.lists(MESSAGE, max_size=3) | JSON},
    optional={
        **dict.fromkeys(("system", "tools"), st.lists(BLOCK, max_size=2) | JSON),
        **dict.fromkeys(("thinking", "tool_choice", "output_config", "output_format", "stop_sequences"), BLOCK),
        **dict.fromkeys(("stream", "max_tokens", "temperature", "speed", "container", "metadata"), JSON),
    },
)


@settings(deadline=None, max_examples=150)
@given(BODIES)
def test_any_body_is_a_request_or_bad_input(body: dict[str, Any]) -> None:
    with suppress(BadInput):
        assert isinstance(CODEC.parse_request(json.dumps(body).encode()), Request)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"null", b'{"model":"m","model":"n"}', b"\xff"])
def test_a_body_that_is_no_object_is_bad_input(body: bytes) -> None:
    with pytest.raises(BadInput):
        CODEC.parse_request(body)


def test_half_an_emoji_is_replaced_and_not_refused() -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":"cut \\ud83d"}]}'
    assert CODEC.parse_request(body).items == (Message(Role.USER, (Text("cut \ufffd"),)),)
