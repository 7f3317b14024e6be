"""Reads a Chat Completions request: its top-level fields and its tools. The conversation is `message_parser`'s."""

from collections.abc import Mapping

from cachegate.errors import BadInput
from cachegate.wire.body import JsonObject
from cachegate.wire.chat import message_parser
from cachegate.wire.chat.node import Node
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import (
    Choice,
    HostedTool,
    Json,
    OutputFormat,
    Request,
    Sampling,
    Thinking,
    Tool,
    ToolRef,
)

DROPPED: Mapping[str, str] = {
    "audio": "only read together with `modalities`",
    "cache_control": "cache marks are set anew for the provider; those on parts and tools are kept",
    "frequency_penalty": "no other protocol has it, and it only colours the wording",
    "logit_bias": "token ids of one model mean nothing to another",
    "messages[].name": "no other protocol names participants",
    "messages[].annotations": "citations of an earlier answer are not read by models",
    "messages[].audio": "no other protocol keeps spoken answers",
    "metadata": "kept by OpenAI for its own dashboard",
    "moderation": "an extra service of OpenAI",
    "prediction": "only makes the answer faster",
    "presence_penalty": "no other protocol has it, and it only colours the wording",
    "prompt_cache_options": "a provider's cache is asked for in its own way",
    "prompt_cache_retention": "a provider's cache is asked for in its own way",
    "safety_identifier": "names the end user to OpenAI, and to nobody else",
    "seed": "best effort even where it exists",
    "service_tier": "all values but `priority` and `fast`, which ask for speed",
    "store": "kept by OpenAI for its own dashboard",
    "stream_options.include_obfuscation": "padding of OpenAI's own streams",
    "top_logprobs": "only read together with `logprobs`",
    "user": "names the end user to OpenAI, and to nobody else",
    "web_search_options": "a tool that OpenAI runs itself",
}
"""Fields that get lost when the provider speaks another protocol, and why nobody misses them.

Every field that stands neither here nor in the code is unknown to us and gets lost too.
"""

REFUSED: Mapping[str, str] = {
    "n": "one answer is given to one request; send the request once for each",
    "logprobs": "probabilities of tokens exist in this protocol only",
    "modalities": "answers are text",
    "tool_choice.allowed_tools": "other protocols choose among all tools; name one function, or declare fewer tools",
    **message_parser.REFUSED,
}
"""Fields with values that change the answer and cannot be carried: `n` above 1, `logprobs: true`, audio."""

_CHOICES = {
    "auto": Choice.AUTO,
    "none": Choice.NONE,
    "required": Choice.REQUIRED,
    "any": Choice.REQUIRED,  # Mistral
}
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""All there are, from the least."""
_SWITCHES = {"enabled": True, "disabled": False}
"""`thinking.type` of DeepSeek and GLM."""
_FAST_TIERS = frozenset({"priority", "fast"})
_READ = frozenset(
    {"model", "messages", "stream", "stream_options", "tools", "functions", "tool_choice", "function_call",
     "parallel_tool_calls", "max_completion_tokens", "max_tokens", "temperature", "top_p", "top_k", "stop", "n",
     "logprobs", "modalities", "reasoning_effort", "reasoning", "thinking", "enable_thinking", "thinking_budget",
     "chat_template_kwargs", "response_format", "verbosity", "service_tier", "prompt_cache_key"}
)  # fmt: skip
_NO_ARGUMENTS: Json = {"type": "object", "properties": {}}
"""OpenAI: a function without `parameters` has none."""


def parse_request(body: bytes) -> Request:
    """Read a request. Raises BadInput, naming the field that is wrong or cannot be carried."""
    raw = JsonObject(body)
    top = Node("", {name: raw.sound(name) for name in raw.spans if name in _READ})
    _refuse(top)
    instructions, items = message_parser.parse_messages(top)
    choice, chosen = _tool_choice(top)
    stream = top.flag("stream") or False
    return Request(
        model=top.word("model"),
        stream=stream,
        instructions=instructions,
        items=items,
        tools=_tools(top),
        choice=choice,
        chosen_tool=chosen,
        parallel_tools=top.flag("parallel_tool_calls"),
        sampling=_sampling(top),
        thinking=_thinking(top),
        output_format=_output_format(top),
        verbosity=top.text("verbosity"),
        fast=True if top.text("service_tier") in _FAST_TIERS else None,
        cache_key=top.text("prompt_cache_key"),
        wants_usage=not stream or top.maybe("stream_options").flag("include_usage") is True,
        keeps_thoughts=False,
    )


def _refuse(top: Node) -> None:
    if top.count("n") not in {None, 1}:
        raise BadInput(f"n: {REFUSED['n']}.")
    if top.flag("logprobs"):
        raise BadInput(f"logprobs: {REFUSED['logprobs']}.")
    if any(modality != "text" for _, modality in top.items("modalities")):
        raise BadInput(f"modalities: {REFUSED['modalities']}.")


def _tools(top: Node) -> tuple[Tool | HostedTool, ...]:
    return (
        *(_tool(tool) for tool in top.nodes("tools")),
        *(_function(function, marked=False) for function in top.nodes("functions")),
    )


def _tool(tool: Node) -> Tool | HostedTool:
    match tool.text("type") or "function":
        case "function":
            return _function(tool.node("function"), marked=tool.marked)
        case "custom":
            return _custom(tool.node("custom"), marked=tool.marked)
        case kind:
            return HostedTool(kind, Protocol.CHAT, tool.fields)


def _function(function: Node, *, marked: bool) -> Tool:
    schema = function.maybe("parameters").fields
    return Tool(
        ref=ToolRef(function.word("name")),
        description=function.text("description"),
        schema=schema or _NO_ARGUMENTS,
        strict=function.flag("strict"),
        marked=marked or function.marked,
    )


def _custom(custom: Node, *, marked: bool) -> Tool:
    """Read a freeform tool. Its grammar stands one level deeper here than in Responses, whose form is the model's."""
    form = custom.maybe("format").fields
    nested = form.get("grammar")
    grammar = {"type": "grammar", **nested} if isinstance(nested, dict) else form
    return Tool(
        ref=ToolRef(custom.word("name"), custom=True),
        description=custom.text("description"),
        grammar=grammar or None,
        marked=marked or custom.marked,
    )


def _tool_choice(top: Node) -> tuple[Choice | None, ToolRef | None]:
    name = "function_call" if top.fields.get("tool_choice") is None else "tool_choice"
    value = top.fields.get(name)
    if value is None:
        return None, None
    if isinstance(value, str):
        if value not in _CHOICES:
            raise BadInput(f"{name}: {value!r} is unknown. Use one of: {', '.join(_CHOICES)}.")
        return _CHOICES[value], None
    chosen = Node.of(value, name)
    if name == "function_call":
        return Choice.ONE, ToolRef(chosen.word("name"))
    match chosen.text("type") or "function":
        case "function":
            return Choice.ONE, ToolRef(chosen.node("function").word("name"))
        case "custom":
            return Choice.ONE, ToolRef(chosen.node("custom").word("name"), custom=True)
        case "allowed_tools":
            raise BadInput(f"tool_choice.allowed_tools: {REFUSED['tool_choice.allowed_tools']}.")
        case kind:
            raise BadInput(f"tool_choice.type: {kind!r} cannot be carried. Name one function, or use a word.")


def _sampling(top: Node) -> Sampling:
    modern, older = top.count("max_completion_tokens"), top.count("max_tokens")
    stop = top.fields.get("stop")
    stops = [("stop", stop)] if isinstance(stop, str) else top.items("stop")
    texts = [text for _, text in stops if isinstance(text, str)]
    if len(texts) < len(stops):
        raise BadInput("stop: must be a string or an array of strings.")
    return Sampling(
        max_output_tokens=older if modern is None else modern,
        temperature=top.number("temperature"),
        top_p=top.number("top_p"),
        top_k=top.count("top_k"),
        stop=tuple(texts),
    )


def _thinking(top: Node) -> Thinking:
    """Read every spelling: OpenAI's effort, OpenRouter's object, the switches of DeepSeek, GLM, Qwen and vLLM."""
    reasoning = top.maybe("reasoning")
    effort = top.text("reasoning_effort") or reasoning.text("effort")
    if effort is not None and effort not in EFFORTS:
        raise BadInput(f"reasoning_effort: {effort!r} is unknown. Use one of: {', '.join(EFFORTS)}.")
    enabled = reasoning.flag("enabled")
    for place in (top, top.maybe("chat_template_kwargs")):
        enabled = place.flag("enable_thinking") if enabled is None else enabled
    switch = top.maybe("thinking")
    kind = switch.text("type")
    if enabled is None and kind in _SWITCHES:
        enabled = _SWITCHES[kind]
    budgets = (reasoning.count("max_tokens"), top.count("thinking_budget"), switch.count("budget_tokens"))
    excluded = reasoning.flag("exclude")
    return Thinking(
        enabled=False if enabled is None and effort == "none" else enabled,
        effort=effort,
        budget_tokens=next((budget for budget in budgets if budget is not None), None),
        show=None if excluded is None else not excluded,
    )


def _output_format(top: Node) -> OutputFormat | None:
    form = top.maybe("response_format")
    match form.text("type"):
        case None | "text":
            return None
        case "json_object":
            return OutputFormat()
        case "json_schema":
            named = form.node("json_schema")
            schema = named.maybe("schema").fields
            return OutputFormat(schema=schema or None, name=named.text("name"), strict=named.flag("strict"))
        case kind:
            raise BadInput(f"response_format.type: {kind!r} cannot be carried. Use text, json_object or json_schema.")
