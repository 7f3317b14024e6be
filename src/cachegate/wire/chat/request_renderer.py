"""Writes a Chat Completions request. The conversation is `message_renderer`'s."""

import re
from collections.abc import Mapping
from typing import assert_never

from cachegate.errors import BadInput
from cachegate.wire.body import encode
from cachegate.wire.chat.message_renderer import Conversation
from cachegate.wire.compaction import summary_request
from cachegate.wire.custom_tools import as_function
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import (
    Choice,
    HostedTool,
    Json,
    OutputFormat,
    Purpose,
    Request,
    Sampling,
    Target,
    Text,
    Thinking,
    Tool,
    ToolRef,
)
from cachegate.wire.quirks import Quirk
from cachegate.wire.tool_names import OPENAI_CHARS_MAX, ToolNames

DROPPED: Mapping[str, str] = {
    "annotations": "citations of an earlier answer are not read by models",
    "top_k": "OpenAI's Chat Completions has none and refuses it",
    "verbosity": "sent to servers of OpenAI's own models only; others refuse unknown fields",
    "speed": "the Fast setting is sent to servers only that have OpenAI's tier for it",
    "hosted tools": "tools that another provider runs itself (web search, code interpreter)",
    "deferred": "there is no tool search; deferred tools are declared like all others, so that the list stays the same",
    "reasoning": "thoughts of another provider: it alone can read them",
    "thinking budget": "mapped to the nearest effort, where the server knows efforts",
    "thinking switch": "without an effort it is sent to servers only that take `reasoning`",
}
"""What of a request gets lost on the way to a Chat server, and why nobody misses it."""

STOPS_MAX = 4
"""OpenAI's limit."""

_CHOICES = {Choice.AUTO: "auto", Choice.NONE: "none", Choice.REQUIRED: "required"}
_EFFORTS_OF_BUDGETS = ((4_096, "low"), (16_384, "medium"))
"""Budgets of thinking tokens up to which an effort is the nearest; beyond them it is `high`."""
_HIGHEST = "high"
_OPENROUTER_EFFORTS = {"max": "xhigh"}
_SCHEMA_NAME = "answer"
_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]")
SCHEMA_REQUEST = "Answer with one JSON object and nothing else. It must conform to this JSON Schema:\n"
"""For servers that take `json_object` only."""


def render_request(request: Request, target: Target) -> bytes:
    """Write a request. Raises BadInput, naming what cannot be carried."""
    names = ToolNames(request, OPENAI_CHARS_MAX)
    return encode(
        {
            "model": target.model,
            "messages": _messages(request, target, names),
            **_tools(request, target, names),
            **_sampling(request.sampling, target),
            **_thinking(request.thinking, target),
            **_output_format(request.output_format, target),
            **_delivery(request, target),
        }
    )


def _messages(request: Request, target: Target, names: ToolNames) -> list[dict[str, object]]:
    conversation = Conversation(names, target)
    conversation.instruct((*request.instructions, *_schema_request(request.output_format, target)))
    for item in request.items:
        conversation.add(item)
    if request.purpose is not Purpose.ANSWER:
        conversation.add(summary_request())
    return conversation.messages()


def _tools(request: Request, target: Target, names: ToolNames) -> dict[str, object]:
    """Return the tools and what is said about them; a choice without any tools is refused."""
    tools = [shown for tool in request.tools if (shown := _tool(tool, target, names))]
    if not tools:
        return {}
    # The choice of a request for a summary stays as it was: some servers leave the tools out of the prompt at `none`.
    choice = request.choice
    shown_choice: object = None if choice is None else _CHOICES.get(choice)
    if choice is Choice.ONE and request.chosen_tool is not None:
        name = names.wire(request.chosen_tool)
        kind = "custom" if _is_native(names.ref(name), target) else "function"
        shown_choice = {"type": kind, kind: {"name": name}}
    parallel = None if Quirk.NO_PARALLEL in target.quirks else request.parallel_tools
    return {"tools": tools, **_known(tool_choice=shown_choice, parallel_tool_calls=parallel)}


def _is_native(ref: ToolRef, target: Target) -> bool:
    """Whether a tool is a freeform one there too."""
    return ref.custom and Quirk.CUSTOM_TOOLS in target.quirks


def _tool(tool: Tool | HostedTool, target: Target, names: ToolNames) -> Json | None:
    match tool:
        case HostedTool():
            return tool.definition if tool.origin is Protocol.CHAT else None
        case Tool() if _is_native(tool.ref, target):
            described = _known(description=tool.description, format=_format(tool.grammar))
            return {"type": "custom", "custom": {"name": names.wire(tool.ref), **described}}
        case Tool():
            function = as_function(tool)
            strict = None if Quirk.NO_STRICT in target.quirks else function.strict
            fields = {
                "name": names.wire(tool.ref),
                **_known(description=function.description),
                "parameters": function.schema or {"type": "object", "properties": {}},
                **_known(strict=strict),
            }
            return {"type": "function", "function": fields}
        case _:
            assert_never(tool)


def _format(grammar: Json | None) -> Json | None:
    """Return the format of a freeform input: a grammar stands one level deeper here than in Responses."""
    if grammar is None or grammar.get("type") != "grammar":
        return grammar
    return {"type": "grammar", "grammar": {name: value for name, value in grammar.items() if name != "type"}}


def _sampling(sampling: Sampling, target: Target) -> dict[str, object]:
    if len(sampling.stop) > STOPS_MAX:
        raise BadInput(f"stop_sequences: {len(sampling.stop)} were given; Chat Completions takes {STOPS_MAX}.")
    limit = "max_tokens" if Quirk.MAX_TOKENS in target.quirks else "max_completion_tokens"
    shown = _known(**{limit: sampling.max_output_tokens}, stop=list(sampling.stop) or None)
    if Quirk.NO_SAMPLING in target.quirks:
        return shown
    return {**shown, **_known(temperature=sampling.temperature, top_p=sampling.top_p)}


def _thinking(thinking: Thinking, target: Target) -> dict[str, object]:
    if Quirk.REASONING_OBJECT in target.quirks:
        effort = _OPENROUTER_EFFORTS.get(thinking.effort or "", thinking.effort)
        budget = None if effort or thinking.enabled is False else thinking.budget_tokens
        enabled = None if effort or budget is not None else thinking.enabled
        reasoning = _known(effort=effort, max_tokens=budget, enabled=enabled)
        return {"reasoning": reasoning} if reasoning else {}
    if Quirk.EFFORT not in target.quirks:
        return {}
    return _known(reasoning_effort=thinking.effort or _nearest_effort(thinking))


def _nearest_effort(thinking: Thinking) -> str | None:
    budget = thinking.budget_tokens
    if budget is None or thinking.enabled is False:
        return None
    return next((effort for most, effort in _EFFORTS_OF_BUDGETS if budget <= most), _HIGHEST)


def _output_format(form: OutputFormat | None, target: Target) -> dict[str, object]:
    if form is None:
        return {}
    if form.schema is None or Quirk.NO_JSON_SCHEMA in target.quirks:
        return {"response_format": {"type": "json_object"}}
    name = _FOREIGN.sub("_", form.name or _SCHEMA_NAME)[:OPENAI_CHARS_MAX]
    schema = {"name": name, **_known(strict=form.strict), "schema": form.schema}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def _schema_request(form: OutputFormat | None, target: Target) -> tuple[Text, ...]:
    if form is None or form.schema is None or Quirk.NO_JSON_SCHEMA not in target.quirks:
        return ()
    return (Text(SCHEMA_REQUEST + encode(form.schema).decode()),)


def _delivery(request: Request, target: Target) -> dict[str, object]:
    """Return how the answer comes: usage is always asked for, also where the client will not see it."""
    streamed: dict[str, object] = {"stream": True} if request.stream else {}
    if request.stream and Quirk.NO_STREAM_USAGE not in target.quirks:
        streamed["stream_options"] = {"include_usage": True}
    key = (request.cache_key or target.cache_key) if Quirk.CHAT_CACHE_KEY in target.quirks else None
    tier = "priority" if request.fast and Quirk.PRIORITY_TIER in target.quirks else None
    verbosity = request.verbosity if Quirk.VERBOSITY in target.quirks else None
    return {**streamed, **_known(prompt_cache_key=key, service_tier=tier, verbosity=verbosity)}


def _known(**fields: object) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}
