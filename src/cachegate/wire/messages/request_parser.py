"""Reads a request of the Messages API, as Claude Code and others send it, into the hub."""

from collections.abc import Iterator

from cachegate.errors import BadInput
from cachegate.wire.body import JsonObject
from cachegate.wire.facts import Operation, Protocol
from cachegate.wire.hub import (
    Choice,
    HostedTool,
    OutputFormat,
    Request,
    Sampling,
    Thinking,
    Tool,
    ToolRef,
)
from cachegate.wire.messages.content_parser import is_marked
from cachegate.wire.messages.conversation_parser import parse_instructions, parse_items, tool_definitions
from cachegate.wire.messages.request_json import JsonNode

DROPPED = {
    "betas": "switches on features of Anthropic's",
    "billing_policy": "concerns Anthropic's bill",
    "cache_control.ttl": "how long a cache lives is the other provider's rule; the marks themselves are kept",
    "compaction": "Anthropic's own compaction; the client still compacts by itself",
    "container": "the name of a container of Anthropic's code execution",
    "context_management": "Anthropic's own clearing of old thoughts and results; the client still compacts by itself",
    "diagnostics": "Anthropic's own explanation of a cache miss",
    "document.citations": "asks for citations, which other providers do not give",
    "fallback_credit_token": "concerns Anthropic's bill",
    "fallbacks": "Anthropic's own choice of another model",
    "metadata": "tells Anthropic who is asking; the gateway reads the session from it",
    "safeguards": "Claude Code's auto mode on Anthropic's servers; without it the client asks the user",
    "service_tier": "concerns Anthropic's capacity",
    "system: x-anthropic-billing-header": "is for Anthropic's accounts, and would cost another provider's cache",
    "tools.allowed_callers": "lets Anthropic's code execution call tools; other models call them directly",
    "tools.eager_input_streaming": "how finely arguments are streamed",
    "tools.input_examples": "hints beside the schema",
    "user_profile_id": "concerns Anthropic's accounts",
    "workspace_id": "concerns Anthropic's accounts",
}
"""Fields that are left out, and why that is harmless."""

REFUSED = {
    "container": "skills and files in a container exist at Anthropic only. Remove the field",
    "inference_geo": "no other provider promises the place of inference. Remove the field",
    "mcp_servers": "only Anthropic calls MCP servers itself. Connect them in the client",
    "thread": "threads are kept at Anthropic only. Send the whole conversation",
}
"""Fields without which the answer would be another one than was asked for."""

CHOICES = {"auto": Choice.AUTO, "any": Choice.REQUIRED, "none": Choice.NONE, "tool": Choice.ONE}
EFFORTS = frozenset({"none", "minimal", "low", "medium", "high", "xhigh", "max"})
THINKING = {"adaptive": True, "enabled": True, "between_tools": True, "disabled": False}
"""`thinking.type`, and whether it makes the model think."""
SHOWN = {"summarized": True, "updates": True, "omitted": False}
"""`thinking.display`, and whether the client wants to see thoughts."""
_OWN_TOOL = "custom"
"""The type of a tool that the client defines; all others are Anthropic's."""


def parse_request(raw: bytes, operation: Operation = Operation.GENERATE) -> Request:
    """Read a request. Raises BadInput, naming the field, for one that is malformed or cannot be carried."""
    del operation  # a count is asked for with the same body
    body = JsonNode(JsonObject(raw).text_bytes, "")
    _refuse(body)
    model = body.text("model")
    if not model:
        raise BadInput("model: the request names no model. Set `model` to a non-empty string.")
    choice = body.node("tool_choice")
    kind = None if choice is None else CHOICES.get(choice.needed_text("type"))
    if choice is not None and kind is None:
        raise choice.wrong("type", "`auto`, `any`, `tool` or `none`")
    one_by_one = None if choice is None else choice.flag("disable_parallel_tool_use")
    return Request(
        model=model,
        stream=body.flag("stream") is True,
        instructions=parse_instructions(body),
        items=parse_items(body),
        tools=tuple(_tools(body)),
        choice=kind,
        chosen_tool=ToolRef(choice.needed_text("name")) if choice is not None and kind is Choice.ONE else None,
        parallel_tools=None if one_by_one is None else not one_by_one,
        sampling=_sampling(body),
        thinking=_thinking(body),
        output_format=_output_format(body),
        fast=None if body.text("speed") is None else body.text("speed") == "fast",
    )


def _refuse(body: JsonNode) -> None:
    for name, reason in REFUSED.items():
        value = body.value(name)
        # The name of a container is no content of one.
        if value and not (name == "container" and isinstance(value, str)):
            raise BadInput(f"{name}: {reason}.")


def _tools(body: JsonNode) -> Iterator[Tool | HostedTool]:
    for node in (*body.nodes("tools"), *tool_definitions(body)):
        kind = node.text("type") or _OWN_TOOL
        if kind != _OWN_TOOL:
            definition = {name: value for name, value in node.whole().items() if name != "cache_control"}
            yield HostedTool(kind, Protocol.MESSAGES, definition, is_marked(node))
            continue
        yield Tool(
            ref=ToolRef(node.needed_text("name")),
            description=node.text("description"),
            schema=node.json("input_schema") or {"type": "object", "properties": {}},
            strict=node.flag("strict"),
            deferred=node.flag("defer_loading") is True,
            marked=is_marked(node),
        )


def _sampling(body: JsonNode) -> Sampling:
    stop = body.value("stop_sequences")
    texts = stop if isinstance(stop, list) else []
    if (stop is not None and stop is not texts) or not all(isinstance(text, str) for text in texts):
        raise body.wrong("stop_sequences", "an array of strings")
    return Sampling(
        max_output_tokens=body.integer("max_tokens"),
        temperature=body.number("temperature"),
        top_p=body.number("top_p"),
        top_k=body.integer("top_k"),
        stop=tuple(texts),
    )


def _thinking(body: JsonNode) -> Thinking:
    thinking, config = body.node("thinking"), body.node("output_config")
    effort = config.text("effort") if config is not None else None
    known = effort if effort in EFFORTS else None
    if thinking is None:
        return Thinking(effort=known)
    kind = thinking.needed_text("type")
    if kind not in THINKING:
        raise thinking.wrong("type", "`adaptive`, `enabled` or `disabled`")
    return Thinking(
        enabled=THINKING[kind],
        effort=known,
        budget_tokens=thinking.integer("budget_tokens"),
        show=SHOWN.get(thinking.text("display") or ""),
    )


def _output_format(body: JsonNode) -> OutputFormat | None:
    config = body.node("output_config")
    wanted = config.node("format") if config is not None else None
    wanted = wanted or body.node("output_format")
    if wanted is None:
        return None
    if wanted.needed_text("type") != "json_schema":
        raise wanted.wrong("type", "`json_schema`")
    return OutputFormat(schema=wanted.json("schema"))
