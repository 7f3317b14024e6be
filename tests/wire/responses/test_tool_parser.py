from typing import Any

import pytest

from cachegate.errors import BadInput
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import Choice, HostedTool, Tool, ToolRef
from cachegate.wire.responses.tool_parser import CLIENT_SEARCH, Chosen, distinct, parse_choice, parse_tools
from cachegate.wire.responses.typed_fields import Field

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: WORD"}
SHELL, PATCH, SPAWN = ToolRef("shell"), ToolRef("apply_patch", custom=True), ToolRef("spawn", "agents")
SEARCH = HostedTool("web_search", Protocol.RESPONSES, {"type": "web_search"})
TOOLS = (Tool(SHELL), Tool(PATCH), Tool(SPAWN), SEARCH)


def tools(*given: Any) -> list[Tool | HostedTool]:
    return list(parse_tools(Field("tools", list(given))))


def choice(given: Any) -> Chosen:
    return parse_choice(Field("tool_choice", given), TOOLS)


def test_a_function_keeps_everything_that_it_says() -> None:
    function = {
        "type": "function", "name": "shell", "description": "Runs.", "parameters": SCHEMA, "strict": False,
        "defer_loading": True,
    }  # fmt: skip
    assert tools(function) == [Tool(SHELL, "Runs.", SCHEMA, strict=False, deferred=True)]
    assert tools({"type": "function", "name": "shell"}) == [Tool(SHELL)]


def test_a_custom_tool_keeps_its_grammar() -> None:
    custom = {"type": "custom", "name": "apply_patch", "description": "Edits.", "format": GRAMMAR}
    assert tools(custom) == [Tool(PATCH, "Edits.", grammar=GRAMMAR)]


def test_the_tools_of_a_namespace_are_tools_with_a_namespace() -> None:
    inner = [{"type": "function", "name": "spawn"}, {"type": "custom", "name": "note"}]
    assert tools({"type": "namespace", "name": "agents", "description": "Agents.", "tools": inner}) == [
        Tool(SPAWN, namespace_description="Agents."),
        Tool(ToolRef("note", "agents", custom=True), namespace_description="Agents."),
    ]


@pytest.mark.parametrize("kind", ["web_search", "image_generation", "mcp", "code_interpreter", "local_shell", "new"])
def test_what_the_provider_runs_is_kept_as_it_is(kind: str) -> None:
    given = {"type": kind, "server_label": "x"}
    assert tools(given) == [HostedTool(kind, Protocol.RESPONSES, given)]


def test_a_search_is_a_function_where_the_client_runs_it_and_hosted_where_not() -> None:
    client = {"type": "tool_search", "execution": "client", "description": "Finds.", "parameters": SCHEMA}
    assert tools(client) == [Tool(CLIENT_SEARCH, "Finds.", SCHEMA)]
    assert tools({"type": "tool_search"}) == [HostedTool("tool_search", Protocol.RESPONSES, {"type": "tool_search"})]


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"type": "function"}, r"tools\[0\]\.name"),
        ({"type": "function", "name": 1}, r"tools\[0\]\.name"),
        ({"type": "function", "name": "x", "parameters": []}, r"tools\[0\]\.parameters"),
        ({"type": "namespace", "name": "n", "tools": {}}, r"tools\[0\]\.tools"),
        ({"type": "namespace", "name": "n", "tools": [{}]}, r"tools\[0\]\.tools\[0\]\.type"),
        ({}, r"tools\[0\]\.type"),
        ("shell", r"tools\[0\]"),
    ],
)
def test_a_tool_of_an_odd_shape_is_refused_by_its_place(given: Any, path: str) -> None:
    with pytest.raises(BadInput, match=f"^{path}: "):
        tools(given)


def test_a_tool_declared_twice_is_one_and_keeps_its_place() -> None:
    again = Tool(SHELL, "Later.")
    assert distinct((*TOOLS, again, SEARCH)) == (*TOOLS, SEARCH)


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        (None, Chosen(tools=TOOLS)),
        ("auto", Chosen(Choice.AUTO, tools=TOOLS)),
        ("none", Chosen(Choice.NONE, tools=TOOLS)),
        ("required", Chosen(Choice.REQUIRED, tools=TOOLS)),
        ({"type": "function", "name": "shell"}, Chosen(Choice.ONE, SHELL, TOOLS)),
        ({"type": "function", "name": "spawn", "namespace": "agents"}, Chosen(Choice.ONE, SPAWN, TOOLS)),
        ({"type": "custom", "name": "apply_patch"}, Chosen(Choice.ONE, PATCH, TOOLS)),
        (
            {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": "shell"}, {"type": "web_search"}],
            },
            Chosen(Choice.REQUIRED, tools=(Tool(SHELL), SEARCH)),
        ),
        ({"type": "allowed_tools", "tools": []}, Chosen(Choice.AUTO)),
    ],
)
def test_every_form_of_a_choice_is_read(given: Any, chosen: Chosen) -> None:
    assert choice(given) == chosen


@pytest.mark.parametrize("given", ["any", 1, [], {}, {"type": "function"}, {"type": "web_search"}, {"type": "mcp"}])
def test_a_choice_that_cannot_be_carried_is_refused_by_its_name(given: Any) -> None:
    with pytest.raises(BadInput, match=r"^tool_choice[\w.]*: "):
        choice(given)
