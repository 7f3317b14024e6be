import json
from typing import Any

import pytest
from anthropic.types import MessageParam, message_create_params
from hypothesis import given, settings
from pydantic import TypeAdapter

from cachegate.errors import BadInput
from cachegate.wire.compaction import SUMMARY_REQUEST
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import (
    Choice,
    HostedTool,
    OutputFormat,
    Purpose,
    Request,
    Sampling,
    Thinking,
    Tool,
    ToolRef,
)
from cachegate.wire.messages.codec import CODEC
from cachegate.wire.messages.request_renderer import BUDGETS, DROPPED, EFFORTS, MAX_TOKENS, NO_LONGER_AVAILABLE
from cachegate.wire.quirks import Quirk
from contract.codec_strategies import any_requests
from wire.messages.rendered import TOOLS, call, rendered, result, target, user

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
BUDGET = (Quirk.NO_ADAPTIVE_THINKING,)


def test_the_least_request() -> None:
    assert rendered(user("a"), quirks=(Quirk.NO_CACHE_MARKS,)) == {
        "model": "claude",
        "max_tokens": MAX_TOKENS,
        "stream": True,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}],
    }


@pytest.mark.parametrize(
    ("thinking", "sent", "effort"),
    [
        (Thinking(), None, None),
        (Thinking(show=False), None, None),
        (Thinking(effort="medium"), {"type": "adaptive"}, "medium"),
        (Thinking(effort="minimal", show=True), {"type": "adaptive", "display": "summarized"}, "low"),
        (Thinking(effort="none"), {"type": "disabled"}, None),
        (Thinking(enabled=False, effort="low"), {"type": "disabled"}, "low"),
        (Thinking(enabled=True, show=False), {"type": "adaptive", "display": "omitted"}, None),
        (Thinking(show=True), {"type": "adaptive", "display": "summarized"}, None),
        (Thinking(enabled=True, budget_tokens=2048), {"type": "enabled", "budget_tokens": 2048}, None),
        (Thinking(enabled=True, budget_tokens=64_000), {"type": "enabled", "budget_tokens": MAX_TOKENS - 1}, None),
        (Thinking(enabled=True, budget_tokens=100), {"type": "disabled"}, None),
    ],
)
def test_thinking(thinking: Thinking, sent: Any, effort: str | None) -> None:
    body = rendered(user("a"), thinking=thinking)
    assert body.get("thinking") == sent
    assert body.get("output_config") == ({"effort": effort} if effort else None)


@pytest.mark.parametrize("effort", [None, *EFFORTS])
def test_models_that_know_no_effort_get_a_budget(effort: str | None) -> None:
    body = rendered(user("a"), thinking=Thinking(enabled=True, effort=effort, show=True), quirks=BUDGET)
    assert body["thinking"] == {"type": "enabled", "budget_tokens": BUDGETS[EFFORTS.get(effort or "", "medium")]}
    assert "output_config" not in body


def test_a_small_answer_leaves_no_room_for_thoughts() -> None:
    body = rendered(user("a"), thinking=Thinking(effort="high"), sampling=Sampling(64), quirks=BUDGET)
    assert (body["thinking"], body["max_tokens"]) == ({"type": "disabled"}, 64)


def test_a_budget_needs_a_client_that_hands_thoughts_back() -> None:
    """Else the results of its tools are refused: the answer must begin with a thinking block."""
    wish: dict[str, Any] = {"thinking": Thinking(effort="high"), "keeps_thoughts": False, "quirks": BUDGET}
    assert rendered(user("a"), tools=TOOLS, **wish)["thinking"] == {"type": "disabled"}
    assert rendered(user("a"), **wish)["thinking"]["type"] == "enabled"


@pytest.mark.parametrize(
    ("choice", "parallel", "sent"),
    [
        (None, None, None), (None, True, None), (None, False, {"type": "auto", "disable_parallel_tool_use": True}),
        (Choice.AUTO, None, {"type": "auto"}), (Choice.NONE, None, {"type": "none"}),
        (Choice.NONE, False, {"type": "none"}),
        (Choice.REQUIRED, False, {"type": "any", "disable_parallel_tool_use": True}),
        (Choice.ONE, None, {"type": "tool", "name": "shell"}),
    ],
)  # fmt: skip
def test_choice(choice: Choice | None, parallel: bool | None, sent: Any) -> None:
    wish: dict[str, Any] = {"choice": choice, "parallel_tools": parallel, "chosen_tool": ToolRef("shell")}
    assert rendered(user("a"), tools=TOOLS, **wish).get("tool_choice") == sent
    without = {**wish, "choice": None if choice is Choice.ONE else choice}
    assert "tool_choice" not in rendered(user("a"), **without)


@pytest.mark.parametrize("chosen", [None, ToolRef("gone")])
def test_a_chosen_tool_must_be_there(chosen: ToolRef | None) -> None:
    with pytest.raises(BadInput, match=r"^tool_choice: "):
        rendered(user("a"), tools=TOOLS, choice=Choice.ONE, chosen_tool=chosen)


@pytest.mark.parametrize("choice", [Choice.REQUIRED, Choice.ONE])
def test_a_forced_tool_leaves_no_time_to_think(choice: Choice) -> None:
    body = rendered(user("a"), tools=TOOLS, choice=choice, chosen_tool=ToolRef("Read"), thinking=Thinking(enabled=True))
    assert body["thinking"] == {"type": "disabled"}


@pytest.mark.parametrize(
    ("sampling", "sent"),
    [
        (Sampling(7, 0.5, None, 3, ("END",)), {"temperature": 0.5, "top_k": 3, "stop_sequences": ["END"]}),
        (Sampling(temperature=0), {"temperature": 0}),
        (Sampling(temperature=1.7), {"temperature": 1}),
        (Sampling(temperature=0.5, top_p=1), {"temperature": 0.5}),
        (Sampling(top_p=1), {"top_p": 1}),
        (Sampling(temperature=0.5, top_p=0.5), {"temperature": 0.5, "top_p": 0.5}),
    ],
)
def test_sampling(sampling: Sampling, sent: Any) -> None:
    dice = ("temperature", "top_p", "top_k", "stop_sequences")
    body = rendered(user("a"), sampling=sampling)
    assert {name: body[name] for name in dice if name in body} == sent
    for more in ({"thinking": Thinking(enabled=True)}, {"quirks": (Quirk.NO_SAMPLING,)}):
        without = rendered(user("a"), sampling=sampling, **more)
        assert [name for name in dice[:3] if name in without] == []
        assert without.get("stop_sequences") == sent.get("stop_sequences")


def test_tools() -> None:
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: x"}
    search = HostedTool("web_search_20250305", Protocol.MESSAGES, {"type": "web_search_20250305", "name": "web"})
    tools = (
        Tool(ToolRef("Read"), "Reads.", SCHEMA, strict=True),
        Tool(ToolRef("spawn", "agents"), "", None, strict=False),
        Tool(ToolRef("apply_patch", custom=True), "Patches.", None, grammar=grammar),
        Tool(ToolRef("odd"), schema={"properties": {}}),
        Tool(ToolRef("größe")),
        HostedTool("web_search", Protocol.RESPONSES, {"type": "web_search"}),
        search,
        Tool(ToolRef("web"), "Has the name of another one."),
        Tool(ToolRef("late"), deferred=True),
    )
    sent = rendered(user("a"), tools=tools, quirks=(Quirk.NO_CACHE_MARKS,))["tools"]
    assert sent[0] == {"name": "Read", "description": "Reads.", "input_schema": SCHEMA, "strict": True}
    assert sent[1] == {"name": "agents__spawn", "input_schema": {"type": "object", "properties": {}}}
    assert sent[2]["name"] == "apply_patch"
    assert sent[2]["description"].startswith("Patches.")
    assert "start: x" in sent[2]["description"]
    assert sent[2]["input_schema"]["required"] == ["input"]
    assert sent[3]["input_schema"] == {"properties": {}, "type": "object"}
    assert sent[4]["name"].isascii()
    assert sent[5:] == [search.definition, {"name": "late", "input_schema": {"type": "object", "properties": {}}}]
    assert "strict" not in rendered(user("a"), tools=tools, quirks=(Quirk.NO_STRICT,))["tools"][0]


def test_calls_need_a_declared_tool_even_where_none_may_be_called() -> None:
    """Codex leaves its tools out when it compacts, and Anthropic refuses calls of a conversation without any."""
    body = rendered(user("a"), call(), result("c1", "x"), choice=Choice.AUTO, quirks=(Quirk.NO_CACHE_MARKS,))
    schema = {"type": "object", "properties": {}}
    assert body["tools"] == [{"name": "Read", "description": NO_LONGER_AVAILABLE, "input_schema": schema}]
    assert body["tool_choice"] == {"type": "none"}
    assert "tools" not in rendered(user("a"), choice=Choice.AUTO)


LATE = Tool(ToolRef("late"), deferred=True)
OWN_SEARCH = HostedTool("tool_search_tool_bm25_20251119", Protocol.MESSAGES, {"type": "x", "name": "search"})
OPENAIS_SEARCH = HostedTool("tool_search", Protocol.RESPONSES, {"type": "tool_search"})


@pytest.mark.parametrize(
    ("tools", "deferred"),
    [
        ((TOOLS[0], LATE), ["late"]),
        ((OWN_SEARCH, LATE), ["late"]),
        # Nothing would ever find it, or nothing would be left in front.
        ((TOOLS[0], OPENAIS_SEARCH, LATE), []),
        ((OPENAIS_SEARCH, LATE), []),
        ((LATE,), []),
        (TOOLS, []),
    ],
)
def test_a_deferred_tool_waits_where_it_can_be_found(tools: Any, deferred: list[str]) -> None:
    sent = rendered(user("a"), tools=tools, quirks=(Quirk.TOOL_REFERENCES,))["tools"]
    assert [tool["name"] for tool in sent if tool.get("defer_loading")] == deferred
    assert all("cache_control" not in tool for tool in sent if tool.get("defer_loading"))
    others = rendered(user("a"), tools=tools)
    assert "defer_loading" not in str(others), "servers that imitate Anthropic do not know it"


@pytest.mark.parametrize(
    ("wanted", "sent"),
    [
        (None, None),
        (OutputFormat(), None),
        (OutputFormat(SCHEMA, "title", strict=True), {"format": {"type": "json_schema", "schema": SCHEMA}}),
    ],
)
def test_a_format(wanted: OutputFormat | None, sent: Any) -> None:
    assert rendered(user("a"), output_format=wanted).get("output_config") == sent


@pytest.mark.parametrize("purpose", [Purpose.COMPACTION_ITEM, Purpose.COMPACTION_OBJECT])
def test_a_compaction_is_the_same_conversation_and_one_text_more(purpose: Purpose) -> None:
    """Also the same `tool_choice`: another one would cost the cache of the very conversation that is summed up."""
    items = (user("a"), call(), result("c1", "x"))
    more: dict[str, Any] = {"tools": TOOLS, "choice": Choice.AUTO}
    plain, compaction = (
        rendered(*items, quirks=(Quirk.NO_CACHE_MARKS,), purpose=each, **more) for each in (Purpose.ANSWER, purpose)
    )
    assert compaction["messages"][-1]["content"].pop() == {"type": "text", "text": SUMMARY_REQUEST}
    assert compaction == plain


def test_what_is_dropped_changes_nothing() -> None:
    more: dict[str, Any] = {"fast": True, "verbosity": "low", "cache_key": "k", "wants_usage": False}
    assert {"fast", "verbosity", "cache_key"} <= set(DROPPED)
    assert rendered(user("a"), **more) == rendered(user("a"))


def test_too_deep_a_schema_is_refused() -> None:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(5000):
        schema = {"type": "object", "properties": {"a": schema}}
    with pytest.raises(BadInput, match=r"^tools: "):
        rendered(user("a"), tools=(Tool(ToolRef("deep"), schema=schema),))


# --- as the SDK types it ---

PARAMS = TypeAdapter(message_create_params.MessageCreateParamsStreaming)


def read_through(value: Any) -> Any:
    """The SDK types arrays as iterables, which pydantic checks only as they are read."""
    if isinstance(value, dict):
        return {name: read_through(inner) for name, inner in value.items()}
    return value if isinstance(value, str | bytes) or not hasattr(value, "__iter__") else [*map(read_through, value)]


@settings(deadline=None, max_examples=60)
@given(any_requests())
def test_the_sdk_types_what_is_rendered(request: Request) -> None:
    try:
        body = json.loads(CODEC.render_request(request, target()))
    except BadInput:
        return
    read_through(PARAMS.validate_python({**body, "stream": True}))


@settings(deadline=None, max_examples=60)
@given(any_requests())
def test_a_rendered_request_is_the_same_when_parsed_and_rendered_again(request: Request) -> None:
    try:
        body = CODEC.render_request(request, target())
    except BadInput:
        return
    assert json.loads(CODEC.render_request(CODEC.parse_request(body), target())) == json.loads(body)


def test_the_sdks_own_type_of_a_message_knows_system_turns() -> None:
    assert "system" in str(TypeAdapter(MessageParam).json_schema())
