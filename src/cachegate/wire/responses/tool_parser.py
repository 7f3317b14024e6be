"""The tools of a Responses request, wherever they stand, and which of them must be called."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from cachegate.wire.facts import Protocol
from cachegate.wire.hub import Choice, HostedTool, Tool, ToolRef
from cachegate.wire.responses.typed_fields import Field

CLIENT_SEARCH = ToolRef("tool_search", namespace="")
"""The search for further tools that Codex runs itself. Elsewhere it is a function like any other; the empty namespace,
which no client can write, tells it from a function of that name."""

_CHOICES = {"auto": Choice.AUTO, "none": Choice.NONE, "required": Choice.REQUIRED}
_NAMED = frozenset({"function", "custom"})


@dataclass(frozen=True, slots=True)
class Chosen:
    """What `tool_choice` says."""

    choice: Choice | None = None
    tool: ToolRef | None = None
    tools: tuple[Tool | HostedTool, ...] = ()
    """The tools that may be called."""


def parse_tools(tools: Field) -> Iterator[Tool | HostedTool]:
    """Yield the tools of an array, those of a namespace one by one."""
    for tool in tools.items():
        if tool.field("type").value == "namespace":
            namespace, described = tool.field("name").text(), tool.field("description").optional_text()
            for inner in tool.field("tools").items():
                found = _tool(inner, namespace)
                yield replace(found, namespace_description=described) if isinstance(found, Tool) else found
        else:
            yield _tool(tool, None)


def distinct(tools: Iterable[Tool | HostedTool]) -> tuple[Tool | HostedTool, ...]:
    """Return each tool once, where it came first: a loaded tool is declared again whenever it is found again."""
    kept: dict[object, Tool | HostedTool] = {}
    for tool in tools:
        key = (tool.ref.namespace, tool.ref.name) if isinstance(tool, Tool) else len(kept)
        kept.setdefault(key, tool)
    return tuple(kept.values())


def parse_choice(choice: Field, tools: tuple[Tool | HostedTool, ...]) -> Chosen:
    """Read `tool_choice`. A list of allowed tools leaves the others out of the request: no other protocol has one."""
    if choice.absent:
        return Chosen(tools=tools)
    if isinstance(choice.value, str):
        if choice.value not in _CHOICES:
            raise choice.refused("auto, none or required is needed here")
        return Chosen(_CHOICES[choice.value], tools=tools)
    kind = choice.field("type").text()
    if kind == "allowed_tools":
        mode = choice.field("mode")
        allowed = frozenset(_key(tool) for tool in choice.field("tools").items())
        left = tuple(tool for tool in tools if _key_of(tool) in allowed)
        return Chosen(parse_choice(mode, ()).choice or Choice.AUTO, tools=left)
    if kind not in _NAMED:
        raise choice.field("type").refused(
            "a tool that the provider runs itself cannot be forced on another provider; send auto instead"
        )
    name, namespace = choice.field("name").text(), choice.field("namespace").optional_text()
    return Chosen(Choice.ONE, ToolRef(name, namespace, custom=kind == "custom"), tools)


def _tool(tool: Field, namespace: str | None) -> Tool | HostedTool:
    match tool.field("type").value:
        case "function":
            return _function(tool, ToolRef(tool.field("name").text(), namespace))
        case "custom":
            return Tool(
                ToolRef(tool.field("name").text(), namespace, custom=True),
                description=tool.field("description").optional_text(),
                grammar=tool.field("format").optional_mapping(),
                deferred=tool.field("defer_loading").flag() or False,
            )
        case "tool_search" if tool.field("execution").value == "client":
            return _function(tool, CLIENT_SEARCH)
        case str(kind):
            return HostedTool(kind, Protocol.RESPONSES, tool.mapping())
        case _:
            raise tool.field("type").refused("the type of a tool is needed here")


def _function(tool: Field, ref: ToolRef) -> Tool:
    return Tool(
        ref,
        description=tool.field("description").optional_text(),
        schema=tool.field("parameters").optional_mapping(),
        strict=tool.field("strict").flag(),
        deferred=tool.field("defer_loading").flag() or False,
    )


def _key(tool: Field) -> tuple[str | None, str]:
    """Return what an entry of the allowed tools names: a tool by its name, a hosted one by its type."""
    kind = tool.field("type").text()
    if kind in _NAMED:
        return tool.field("namespace").optional_text(), tool.field("name").text()
    return None, kind


def _key_of(tool: Tool | HostedTool) -> tuple[str | None, str]:
    return (tool.ref.namespace, tool.ref.name) if isinstance(tool, Tool) else (None, tool.kind)
