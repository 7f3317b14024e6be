"""Tools, calls and their answers in the Responses protocol, for OpenAI and for those who know functions only."""

import re
from collections.abc import Mapping
from itertools import groupby

from cachegate.wire.custom_tools import as_function, wrap
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import Choice, HostedTool, Request, Target, Tool, ToolCall, ToolRef
from cachegate.wire.quirks import Quirk
from cachegate.wire.tool_names import OPENAI_CHARS_MAX, ToolNames

Rendered = dict[str, object]

_GOOD_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NO_ARGUMENTS: Mapping[str, object] = {"type": "object", "properties": {}}
_CHOICES: Mapping[Choice, str] = {Choice.AUTO: "auto", Choice.NONE: "none", Choice.REQUIRED: "required"}


class ToolRenderer:
    """Renders the tools of one request. Where namespaces are unknown, they become part of the names."""

    __slots__ = ("_plain", "_request", "_searchable", "_strict", "names")

    def __init__(self, request: Request, target: Target) -> None:
        self._request = request
        self._plain = Quirk.PLAIN_TOOLS in target.quirks
        self._strict = Quirk.NO_STRICT not in target.quirks
        self._searchable = any(isinstance(tool, HostedTool) and tool.kind == "tool_search" for tool in request.tools)
        self.names = ToolNames(request, OPENAI_CHARS_MAX)

    def tools(self) -> list[Rendered]:
        """Return `tools`. Those that the provider runs itself are offered only where they were meant to be."""
        rendered: list[Rendered] = []
        for namespace, group in groupby(self._request.tools, key=self._namespace):
            tools = [shown for tool in group if (shown := self._tool(tool)) is not None]
            if namespace is None:
                rendered += tools
            else:
                rendered.append({"type": "namespace", "name": namespace, "description": namespace, "tools": tools})
        return rendered

    def choice(self, choice: Choice | None) -> object:
        """Return `tool_choice`; None where nothing was said."""
        chosen = self._request.chosen_tool
        if choice is Choice.ONE and chosen is not None:
            kind = "custom" if chosen.custom and not self._plain else "function"
            return {"type": kind, **self._named(chosen)}
        return _CHOICES.get(choice) if choice is not None else None

    def call(self, call: ToolCall) -> Rendered:
        """Return a call as an item. Its arguments are the bytes that the model wrote."""
        head: Rendered = {"call_id": call.call_id, **self._named(call.tool)}
        if not call.tool.custom:
            return {"type": "function_call", **head, "arguments": call.arguments}
        if self._plain:
            return {"type": "function_call", **head, "arguments": wrap(call.arguments)}
        return {"type": "custom_tool_call", **head, "input": call.arguments}

    def result_type(self, *, custom: bool) -> str:
        """Return the type of the item that answers a call."""
        return "custom_tool_call_output" if custom and not self._plain else "function_call_output"

    def _namespace(self, tool: Tool | HostedTool) -> str | None:
        """Return the namespace to group by."""
        return tool.ref.namespace if isinstance(tool, Tool) and self._in_namespace(tool.ref) else None

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
        if shown.ref.custom:
            format_ = {} if tool.grammar is None else {"format": tool.grammar}
            return {"type": "custom", "name": name, **described, **format_, **later}
        # Without a word Responses would make a schema strict, and demand arguments that are optional.
        strict = {"strict": tool.strict or False} if self._strict else {}
        schema = _NO_ARGUMENTS if shown.schema is None else shown.schema
        return {"type": "function", "name": name, **described, "parameters": schema, **strict, **later}
