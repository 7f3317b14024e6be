import json
from dataclasses import replace
from typing import Any

import pytest

from cachegate.errors import BadInput
from cachegate.wire.chat.request_parser import parse_request
from cachegate.wire.chat.request_renderer import DROPPED, SCHEMA_REQUEST, render_request
from cachegate.wire.compaction import SUMMARY_REQUEST
from cachegate.wire.facts import Protocol
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
from cachegate.wire.quirks import Quirk
from wire.chat.chunks import PATCH, SHELL, SPAWN, target

ASK = Message(Role.USER, (Text("hi"),))
PLAIN = Request("m", stream=False, items=(ASK,))
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


def render(request: Request, *quirks: Quirk) -> dict[str, Any]:
    body = render_request(request, target(*quirks))
    assert body == render_request(request, target(*quirks))
    rendered: dict[str, Any] = json.loads(body)
    return rendered


def rendered(field: str, *quirks: Quirk, **more: Any) -> Any:
    return render(replace(PLAIN, **more), *quirks).get(field)


def test_a_plain_request_says_no_more_than_it_must() -> None:
    assert render(PLAIN) == {"model": "kimi", "messages": [{"role": "user", "content": "hi"}]}


def test_usage_is_always_asked_of_a_stream_also_where_the_client_will_not_see_it() -> None:
    for wants in (True, False):
        body = render(replace(PLAIN, stream=True, wants_usage=wants))
        assert (body["stream"], body["stream_options"]) == (True, {"include_usage": True})
    assert "stream_options" not in render(replace(PLAIN, stream=True), Quirk.NO_STREAM_USAGE)
    assert "stream_options" not in render(PLAIN)


def test_the_cache_key_is_the_clients_or_else_the_threads() -> None:
    assert rendered("prompt_cache_key", Quirk.CHAT_CACHE_KEY, cache_key="mine") == "mine"
    assert rendered("prompt_cache_key", Quirk.CHAT_CACHE_KEY) == "thread-1"
    assert rendered("prompt_cache_key", cache_key="mine") is None


def test_all_kinds_of_tools_are_functions_under_one_name() -> None:
    hosted = (HostedTool("web", Protocol.RESPONSES, {"type": "web"}), HostedTool("web", Protocol.CHAT, {"type": "web"}))
    strict = replace(SHELL, strict=True, deferred=True)
    tools = rendered("tools", tools=(strict, SPAWN, PATCH, *hosted))
    assert [tool.get("function", {}).get("name") for tool in tools] == ["shell", "agents__spawn", "apply_patch", None]
    assert tools[0]["function"]["strict"] is True
    assert tools[1]["function"] == {
        "name": "agents__spawn",
        "description": "Spawns.",
        "parameters": {"type": "object", "properties": {}},
    }
    assert "grammar" in tools[2]["function"]["description"]
    assert tools[3] == {"type": "web"}
    assert "strict" not in rendered("tools", Quirk.NO_STRICT, tools=(strict,))[0]["function"]
    assert "description" not in rendered("tools", tools=(Tool(ToolRef("a")),))[0]["function"]


@pytest.mark.parametrize(
    ("choice", "chosen", "shown"),
    [
        (None, None, None),
        (Choice.AUTO, None, "auto"),
        (Choice.NONE, None, "none"),
        (Choice.REQUIRED, None, "required"),
        (Choice.ONE, SPAWN.ref, {"type": "function", "function": {"name": "agents__spawn"}}),
        (Choice.ONE, PATCH.ref, {"type": "function", "function": {"name": "apply_patch"}}),
    ],
)
def test_a_choice(choice: Choice | None, chosen: ToolRef | None, shown: Any) -> None:
    tools = (SHELL, SPAWN, PATCH)
    assert rendered("tool_choice", tools=tools, choice=choice, chosen_tool=chosen) == shown
    assert rendered("tool_choice", choice=choice, chosen_tool=chosen) is None, "refused without tools"


def test_freeform_tools_are_such_where_the_server_knows_them() -> None:
    quirks = (Quirk.CUSTOM_TOOLS,)
    shell, patch, plain, bare = rendered(
        "tools",
        *quirks,
        tools=(
            SHELL,
            replace(PATCH, grammar={"type": "grammar", "syntax": "lark", "definition": "start: x"}),
            replace(PATCH, ref=ToolRef("note", "agents", custom=True), grammar={"type": "text"}),
            Tool(ToolRef("bare", custom=True)),
        ),
    )
    assert shell["type"] == "function"
    grammar = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: x"}}
    assert patch == {
        "type": "custom",
        "custom": {"name": "apply_patch", "description": "Patches.", "format": grammar},
    }
    assert plain["custom"] == {"name": "agents__note", "description": "Patches.", "format": {"type": "text"}}
    assert bare == {"type": "custom", "custom": {"name": "bare"}}
    for chosen in (PATCH.ref, ToolRef("apply_patch")):
        one = {"tools": (SHELL, PATCH), "choice": Choice.ONE, "chosen_tool": chosen}
        assert rendered("tool_choice", *quirks, **one) == {"type": "custom", "custom": {"name": "apply_patch"}}
    one = {"tools": (SHELL, PATCH), "choice": Choice.ONE, "chosen_tool": SHELL.ref}
    assert rendered("tool_choice", *quirks, **one) == {"type": "function", "function": {"name": "shell"}}


def test_a_freeform_tool_comes_back_from_its_own_form() -> None:
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: x"}
    asked = replace(PLAIN, tools=(SHELL, replace(PATCH, grammar=grammar)), choice=Choice.ONE, chosen_tool=PATCH.ref)
    again = parse_request(render_request(asked, target(Quirk.CUSTOM_TOOLS)))
    assert (again.tools, again.choice, again.chosen_tool) == (asked.tools, asked.choice, asked.chosen_tool)


def test_parallel_calls() -> None:
    assert rendered("parallel_tool_calls", tools=(SHELL,), parallel_tools=False) is False
    assert rendered("parallel_tool_calls", parallel_tools=False) is None
    assert rendered("parallel_tool_calls", Quirk.NO_PARALLEL, tools=(SHELL,), parallel_tools=False) is None


def test_sampling() -> None:
    sampling = Sampling(5, 0.5, 0.9, 40, ("END",))
    body = render(replace(PLAIN, sampling=sampling))
    shown = {name: value for name, value in body.items() if name not in {"model", "messages"}}
    assert shown == {"max_completion_tokens": 5, "stop": ["END"], "temperature": 0.5, "top_p": 0.9}
    assert render(replace(PLAIN, sampling=sampling), Quirk.MAX_TOKENS)["max_tokens"] == 5
    assert {"temperature", "top_p"}.isdisjoint(render(replace(PLAIN, sampling=sampling), Quirk.NO_SAMPLING))
    with pytest.raises(BadInput, match=r"^stop_sequences: "):
        render(replace(PLAIN, sampling=Sampling(stop=tuple("abcde"))))


@pytest.mark.parametrize(
    ("thinking", "effort", "reasoning"),
    [
        (Thinking(), None, None),
        (Thinking(effort="max"), "max", {"effort": "xhigh"}),
        (Thinking(enabled=False, effort="none"), "none", {"effort": "none"}),
        (Thinking(enabled=True), None, {"enabled": True}),
        (Thinking(enabled=False), None, {"enabled": False}),
        (Thinking(enabled=True, budget_tokens=2_000), "low", {"max_tokens": 2_000}),
        (Thinking(enabled=True, budget_tokens=10_000), "medium", {"max_tokens": 10_000}),
        (Thinking(enabled=True, budget_tokens=31_999), "high", {"max_tokens": 31_999}),
        (Thinking(enabled=False, budget_tokens=31_999), None, {"enabled": False}),
    ],
)
def test_thinking(thinking: Thinking, effort: str | None, reasoning: Any) -> None:
    assert rendered("reasoning_effort", Quirk.EFFORT, thinking=thinking) == effort
    assert rendered("reasoning", Quirk.REASONING_OBJECT, thinking=thinking) == reasoning
    assert {"reasoning", "reasoning_effort"}.isdisjoint(render(replace(PLAIN, thinking=thinking)))


def test_structured_output() -> None:
    form = OutputFormat(SCHEMA, "my schema", strict=True)
    assert rendered("response_format", output_format=form) == {
        "type": "json_schema",
        "json_schema": {"name": "my_schema", "strict": True, "schema": SCHEMA},
    }
    assert rendered("response_format", output_format=OutputFormat()) == {"type": "json_object"}
    assert rendered("response_format", output_format=OutputFormat(SCHEMA))["json_schema"]["name"] == "answer"
    body = render(replace(PLAIN, output_format=form, instructions=(Text("a"),)), Quirk.NO_JSON_SCHEMA)
    assert body["response_format"] == {"type": "json_object"}
    asked = SCHEMA_REQUEST + json.dumps(SCHEMA, separators=(",", ":"))
    assert body["messages"][0]["content"] == [{"type": "text", "text": "a"}, {"type": "text", "text": asked}]


def test_fast_is_a_service_tier_where_the_server_has_that_one() -> None:
    tiers = [rendered("service_tier", Quirk.PRIORITY_TIER, fast=fast) for fast in (True, False, None)]
    assert tiers == ["priority", None, None]
    assert "service_tier" not in render(replace(PLAIN, fast=True)), "Groq and others refuse it"


def test_verbosity_is_told_to_those_who_know_it() -> None:
    assert rendered("verbosity", Quirk.VERBOSITY, verbosity="low") == "low"
    assert rendered("verbosity", Quirk.VERBOSITY) is None
    assert "verbosity" not in render(replace(PLAIN, verbosity="low"))


@pytest.mark.parametrize("purpose", [Purpose.COMPACTION_ITEM, Purpose.COMPACTION_OBJECT])
def test_a_summary_is_asked_for_behind_the_same_conversation(purpose: Purpose) -> None:
    request = replace(PLAIN, tools=(SHELL,), choice=Choice.AUTO)
    plain, compacting = render(request), render(replace(request, purpose=purpose))
    assert compacting.pop("messages") == [*plain.pop("messages"), {"role": "user", "content": SUMMARY_REQUEST}]
    assert compacting == plain


def test_what_is_lost_is_listed() -> None:
    assert {"top_k", "verbosity", "speed"} <= set(DROPPED)
    assert render(replace(PLAIN, verbosity="low", sampling=Sampling(top_k=4))) == render(PLAIN)
