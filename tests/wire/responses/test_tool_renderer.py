from typing import Any

import pytest

from cachegate.wire.facts import Protocol
from cachegate.wire.hub import Choice, HostedTool, Item, Request, Target, Tool, ToolCall, ToolRef, ToolResult
from cachegate.wire.quirks import Quirk
from cachegate.wire.responses.tool_parser import CLIENT_SEARCH
from cachegate.wire.responses.tool_renderer import ToolRenderer
from cachegate.wire.tool_names import found_tool

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: WORD"}
SHELL, PATCH, SPAWN = ToolRef("shell"), ToolRef("apply_patch", custom=True), ToolRef("spawn", "agents")
OURS = HostedTool("web_search", Protocol.RESPONSES, {"type": "web_search"})
THEIRS = HostedTool("web_search_20250305", Protocol.MESSAGES, {"type": "web_search_20250305"})


def renderer(*tools: Tool | HostedTool, quirks: tuple[Quirk, ...] = (), chosen: ToolRef | None = None) -> ToolRenderer:
    request = Request("m", stream=True, tools=tools, chosen_tool=chosen)
    return ToolRenderer(request, Target("m", "openai", quirks=frozenset(quirks)))


def function(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}, **more}


def test_a_function_is_not_made_strict_by_silence() -> None:
    assert renderer(Tool(SHELL, "Runs.", SCHEMA)).tools() == [
        {"type": "function", "name": "shell", "description": "Runs.", "parameters": SCHEMA, "strict": False}
    ]
    assert renderer(Tool(SHELL, strict=True)).tools() == [function("shell", strict=True)]
    assert renderer(Tool(SHELL, strict=True), quirks=(Quirk.NO_STRICT,)).tools() == [function("shell")]


def test_openai_gets_custom_tools_and_namespaces_as_codex_sends_them() -> None:
    tools = (Tool(SPAWN), Tool(ToolRef("note", "agents", custom=True)), Tool(PATCH, "Edits.", grammar=GRAMMAR))
    assert renderer(*tools).tools() == [
        {
            "type": "namespace",
            "name": "agents",
            "description": "agents",
            "tools": [function("spawn", strict=False), {"type": "custom", "name": "note"}],
        },
        {"type": "custom", "name": "apply_patch", "description": "Edits.", "format": GRAMMAR},
    ]


def test_a_namespace_stands_where_it_began_and_once() -> None:
    """Codex finds tools of a namespace that it declared before; OpenAI refuses a second one of the name."""
    found = Tool(ToolRef("wait", "agents"), namespace_description="Later.")
    space, shell = renderer(Tool(SPAWN, namespace_description="Agents."), Tool(SHELL), found).tools()
    assert space == {
        "type": "namespace",
        "name": "agents",
        "description": "Agents.",
        "tools": [function("spawn", strict=False), function("wait", strict=False)],
    }
    assert shell["name"] == "shell"


def test_others_get_functions_only() -> None:
    plain = renderer(Tool(SPAWN), Tool(PATCH, "Edits.", grammar=GRAMMAR), quirks=(Quirk.PLAIN_TOOLS,))
    spawn, patch = plain.tools()
    assert spawn == function("agents__spawn", strict=False)
    assert (patch["type"], patch["name"]) == ("function", "apply_patch")
    assert "start: WORD" in str(patch["description"])
    assert plain.names.ref("agents__spawn") == SPAWN
    assert plain.call(ToolCall("c", PATCH, "*** Begin")) == {
        "type": "function_call", "call_id": "c", "name": "apply_patch", "arguments": '{"input":"*** Begin"}',
    }  # fmt: skip
    assert plain.result_type(custom=True) == "function_call_output"


def test_names_that_openai_does_not_take_are_flattened_and_cut() -> None:
    dotted, long = ToolRef("read", "mcp.fs"), ToolRef("x" * 65)
    ours = renderer(Tool(dotted), Tool(long))
    named = [str(tool["name"]) for tool in ours.tools()]
    assert named == [ours.names.wire(dotted), ours.names.wire(long)]
    assert [tool["type"] for tool in ours.tools()] == ["function", "function"]
    assert [ours.names.ref(name) for name in named] == [dotted, long]


def test_hosted_tools_go_only_where_they_come_from() -> None:
    assert renderer(OURS, THEIRS).tools() == [{"type": "web_search"}]


def test_deferred_tools_wait_only_where_they_can_be_searched() -> None:
    later = Tool(SHELL, deferred=True)
    search = HostedTool("tool_search", Protocol.RESPONSES, {"type": "tool_search"})
    assert renderer(later).tools() == [function("shell", strict=False)]
    assert renderer(later, search).tools() == [function("shell", strict=False, defer_loading=True), search.definition]


def test_the_clients_own_search_is_openais_and_a_function_elsewhere() -> None:
    search, called = Tool(CLIENT_SEARCH, "Finds.", SCHEMA), ToolCall("c", CLIENT_SEARCH, '{"query":"a"}')
    ours, plain = renderer(search), renderer(search, quirks=(Quirk.PLAIN_TOOLS,))
    assert ours.tools() == [
        {"type": "tool_search", "execution": "client", "description": "Finds.", "parameters": SCHEMA}
    ]
    item = {"type": "tool_search_call", "call_id": "c", "execution": "client", "status": "completed"}
    assert ours.call(called) == {**item, "arguments": {"query": "a"}}
    assert ours.call(ToolCall("c", CLIENT_SEARCH, "odd")) == {**item, "arguments": "odd"}
    assert plain.tools() == [
        {"type": "function", "name": "tool_search", "description": "Finds.", "parameters": SCHEMA, "strict": False}
    ]
    assert plain.call(called)["name"] == "tool_search"
    assert plain.names.ref("tool_search") == CLIENT_SEARCH


FOUND = Tool(SPAWN, deferred=True, namespace_description="Agents.")
SEARCHED = (ToolCall("c", CLIENT_SEARCH, "{}"), ToolResult("c", (found_tool(SPAWN), found_tool(ToolRef("gone")))))


def test_what_the_clients_own_search_found_stands_in_its_result() -> None:
    request = Request("m", stream=True, items=SEARCHED, tools=(Tool(CLIENT_SEARCH), FOUND))
    ours = ToolRenderer(request, Target("m", "openai"))
    assert [tool["type"] for tool in ours.tools()] == ["tool_search"]
    spawn = function("spawn", strict=False, defer_loading=True)
    space = {"type": "namespace", "name": "agents", "description": "Agents.", "tools": [spawn]}
    assert ours.searches(SEARCHED[0])
    assert ours.found(SEARCHED[1]) == {
        "type": "tool_search_output", "call_id": "c", "execution": "client", "status": "completed", "tools": [space],
    }  # fmt: skip
    others = ToolRenderer(request, Target("m", "xai", quirks=frozenset({Quirk.PLAIN_TOOLS})))
    assert [tool["name"] for tool in others.tools()] == ["tool_search", "agents__spawn"]
    assert not others.searches(SEARCHED[0])


@pytest.mark.parametrize("items", [(), SEARCHED[1:], (ToolCall("c", SHELL, "{}"), SEARCHED[1])])
def test_a_tool_that_no_search_of_openais_found_stands_in_front(items: tuple[Item, ...]) -> None:
    """Claude Code's search is a function to OpenAI, whatever it finds."""
    request = Request("m", stream=True, items=items, tools=(Tool(SHELL), FOUND))
    assert [tool["name"] for tool in ToolRenderer(request, Target("m", "openai")).tools()] == ["shell", "agents"]


@pytest.mark.parametrize(
    ("choice", "chosen", "rendered"),
    [
        (None, None, None),
        (Choice.AUTO, None, "auto"),
        (Choice.NONE, None, "none"),
        (Choice.REQUIRED, None, "required"),
        (Choice.ONE, SHELL, {"type": "function", "name": "shell"}),
        (Choice.ONE, PATCH, {"type": "custom", "name": "apply_patch"}),
        (Choice.ONE, SPAWN, {"type": "function", "name": "spawn", "namespace": "agents"}),
        (Choice.ONE, None, None),
    ],
)
def test_every_choice_is_said(choice: Choice | None, chosen: ToolRef | None, rendered: Any) -> None:
    assert renderer(Tool(SHELL), Tool(PATCH), Tool(SPAWN), chosen=chosen).choice(choice) == rendered


def test_a_choice_of_a_custom_tool_is_one_of_a_function_where_it_is_one() -> None:
    plain = renderer(Tool(PATCH), quirks=(Quirk.PLAIN_TOOLS,), chosen=PATCH)
    assert plain.choice(Choice.ONE) == {"type": "function", "name": "apply_patch"}


def test_calls_keep_the_bytes_that_the_model_wrote() -> None:
    ours = renderer(Tool(SHELL), Tool(PATCH), Tool(SPAWN))
    assert ours.call(ToolCall("c", SHELL, '{ "a" :1}')) == {
        "type": "function_call", "call_id": "c", "name": "shell", "arguments": '{ "a" :1}',
    }  # fmt: skip
    assert ours.call(ToolCall("c", SPAWN, "{}"))["namespace"] == "agents"
    assert ours.call(ToolCall("c", PATCH, "*** Begin")) == {
        "type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": "*** Begin",
    }  # fmt: skip
    assert [ours.result_type(custom=custom) for custom in (False, True)] == [
        "function_call_output", "custom_tool_call_output",
    ]  # fmt: skip
