"""Tools, calls and their answers in the Responses protocol, for OpenAI and for those who know functions only."""

import re
from collections.abc import Iterable, Mapping

from cachegate.wire.body import decode
from cachegate.wire.custom_tools import as_function, wrap
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import Choice, HostedTool, Request, Target, Text, Tool, ToolCall, ToolRef, ToolResult
from cachegate.wire.quirks import Quirk
from cachegate.wire.responses.tool_parser import CLIENT_SEARCH
from cachegate.wire.tool_names import OPENAI_CHARS_MAX, ToolNames

Rendered = dict[str, object]

_SEARCH = "tool_search"
_CLIENTS: Mapping[str, object] = {"execution": "client", "status": "completed"}
"""Of the items of a search that the client ran."""
_GOOD_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NO_ARGUMENTS: Mapping[str, object] = {"type": "object", "properties": {}}
_CHOICES: Mapping[Choice, str] = {Choice.AUTO: "auto", Choice.NONE: "none", Choice.REQUIRED: "required"}


class ToolRenderer:
    """Renders the tools of one request. Where namespaces are unknown, they become part of the names."""

    __slots__ = ("_definitions", "_found", "_plain", "_request", "_searchable", "_strict", "names")

    def __init__(self, request: Request, target: Target) -> None:
        self._request = request
        self._plain = Quirk.PLAIN_TOOLS in target.quirks
        self._strict = Quirk.NO_STRICT not in target.quirks
        self._definitions = {_key(tool.ref): tool for tool in request.tools if isinstance(tool, Tool)}
        self._found = _found_later(request) if self.native else frozenset()
        """What stands in the results of searches, and not in front."""
        self._searchable = any(self._is_search(tool) for tool in request.tools)
        self.names = ToolNames(request, OPENAI_CHARS_MAX)

    def tools(self) -> list[Rendered]:
        """Return `tools`. Those that the provider runs itself are offered only where they were meant to be."""
        return self._grouped(tool for tool in self._request.tools if not self._is_told_later(tool))

    def choice(self, choice: Choice | None) -> object:
        """Return `tool_choice`; None where nothing was said."""
        chosen = self._request.chosen_tool
        if choice is Choice.ONE and chosen is not None:
            kind = "custom" if chosen.custom and not self._plain else "function"
            return {"type": kind, **self._named(chosen)}
        return _CHOICES.get(choice) if choice is not None else None

    def call(self, call: ToolCall) -> Rendered:
        """Return a call as an item. Its arguments are the bytes that the model wrote."""
        if self.searches(call):
            arguments = decode(call.arguments.encode("utf-8", "replace"))
            asked = call.arguments if arguments is None else arguments
            return {"type": "tool_search_call", "call_id": call.call_id, **_CLIENTS, "arguments": asked}
        head: Rendered = {"call_id": call.call_id, **self._named(call.tool)}
        if not call.tool.custom:
            return {"type": "function_call", **head, "arguments": call.arguments}
        if self._plain:
            return {"type": "function_call", **head, "arguments": wrap(call.arguments)}
        return {"type": "custom_tool_call", **head, "input": call.arguments}

    @property
    def native(self) -> bool:
        """Whether the upstream knows what only OpenAI's own does."""
        return not self._plain

    def searches(self, call: ToolCall) -> bool:
        """Whether it is a call of the client's own search, which OpenAI has a name for."""
        return self.native and call.tool == CLIENT_SEARCH

    def found(self, result: ToolResult) -> Rendered:
        """Return what such a search found: the tools themselves, so that nothing in front of it changes."""
        refs = (part.found for part in result.parts if isinstance(part, Text))
        tools = (self._definitions.get(_key(ref)) for ref in refs if ref is not None)
        shown = self._grouped(tool for tool in tools if tool is not None)
        return {"type": "tool_search_output", "call_id": result.call_id, **_CLIENTS, "tools": shown}

    def result_type(self, *, custom: bool) -> str:
        """Return the type of the item that answers a call."""
        return "custom_tool_call_output" if custom and not self._plain else "function_call_output"

    def _is_search(self, tool: Tool | HostedTool) -> bool:
        """Whether deferred tools can be found by it."""
        if isinstance(tool, HostedTool):
            return tool.kind == _SEARCH
        return self.native and tool.ref == CLIENT_SEARCH

    def _is_told_later(self, tool: Tool | HostedTool) -> bool:
        return isinstance(tool, Tool) and tool.deferred and _key(tool.ref) in self._found

    def _grouped(self, tools: Iterable[Tool | HostedTool]) -> list[Rendered]:
        """Return tools as they are listed. OpenAI refuses a namespace that comes twice: it stands where it began."""
        rendered: list[Rendered] = []
        spaces: dict[str, list[Rendered]] = {}
        for tool in tools:
            namespace, shown = self._namespace(tool), self._tool(tool)
            if shown is None:
                continue
            if namespace is None:
                rendered.append(shown)
                continue
            if namespace not in spaces:
                spaces[namespace] = []
                described = self._described(namespace)
                inner = {"description": described, "tools": spaces[namespace]}
                rendered.append({"type": "namespace", "name": namespace, **inner})
            spaces[namespace].append(shown)
        return rendered

    def _namespace(self, tool: Tool | HostedTool) -> str | None:
        """Return the namespace to group by."""
        return tool.ref.namespace if isinstance(tool, Tool) and self._in_namespace(tool.ref) else None

    def _described(self, namespace: str) -> str:
        """Return what the client says a namespace is for; OpenAI wants something there."""
        said = (
            tool.namespace_description
            for tool in self._request.tools
            if isinstance(tool, Tool) and tool.ref.namespace == namespace and tool.namespace_description
        )
        return next(said, namespace)

    def _in_namespace(self, ref: ToolRef) -> bool:
        """Whether a tool can be named as a client of this protocol names it; an empty namespace is ours and none."""
        names = (ref.namespace or "", ref.name)
        return not self._plain and all(_GOOD_NAME.fullmatch(name) for name in names)

    def _named(self, ref: ToolRef) -> Rendered:
        if self._in_namespace(ref):
            return {"name": ref.name, "namespace": ref.namespace}
        return {"name": self.names.wire(ref)}

    def _tool(self, tool: Tool | HostedTool) -> Rendered | None:
        if isinstance(tool, HostedTool):
            return dict(tool.definition) if tool.origin is Protocol.RESPONSES else None
        shown = as_function(tool) if self._plain else tool
        name = self._named(tool.ref)["name"]
        described = {} if shown.description is None else {"description": shown.description}
        later = {"defer_loading": True} if tool.deferred and self._searchable else {}
        if self.native and tool.ref == CLIENT_SEARCH:
            return {"type": _SEARCH, "execution": "client", **described, "parameters": tool.schema or _NO_ARGUMENTS}
        if shown.ref.custom:
            format_ = {} if tool.grammar is None else {"format": tool.grammar}
            return {"type": "custom", "name": name, **described, **format_, **later}
        # Without a word Responses would make a schema strict, and demand arguments that are optional.
        strict = {"strict": tool.strict or False} if self._strict else {}
        schema = _NO_ARGUMENTS if shown.schema is None else shown.schema
        return {"type": "function", "name": name, **described, "parameters": schema, **strict, **later}


def _key(ref: ToolRef) -> tuple[str | None, str]:
    return ref.namespace, ref.name


def _found_later(request: Request) -> frozenset[tuple[str | None, str]]:
    """Return what the client's own searches found: each stands in the result of its search."""
    searches: set[str] = set()
    found: set[tuple[str | None, str]] = set()
    for item in request.items:
        if isinstance(item, ToolCall):
            searches.discard(item.call_id)
            searches |= {item.call_id} if item.tool == CLIENT_SEARCH else set()
        elif isinstance(item, ToolResult) and item.call_id in searches:
            searches.discard(item.call_id)
            refs = (part.found for part in item.parts if isinstance(part, Text))
            found |= {_key(ref) for ref in refs if ref is not None}
    return frozenset(found)
