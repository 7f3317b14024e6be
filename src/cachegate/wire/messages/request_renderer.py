"""Writes a request for an upstream that speaks Messages, so that its prompt cache finds the requests before it."""

from collections.abc import Iterator
from dataclasses import replace

from cachegate.errors import BadInput
from cachegate.wire.body import encode
from cachegate.wire.compaction import summary_request
from cachegate.wire.custom_tools import as_function
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import Choice, HostedTool, Json, Purpose, Request, Target, Tool, ToolCall
from cachegate.wire.messages.cache_marks import place
from cachegate.wire.messages.content_renderer import Block, part_blocks
from cachegate.wire.messages.conversation_renderer import Conversation, split_leading
from cachegate.wire.quirks import Quirk
from cachegate.wire.tool_names import MESSAGES_CHARS_MAX, ToolNames

DROPPED = {
    "cache_key": "Anthropic finds a prompt by its marks and needs no key",
    "deferral of tools": "only Anthropic itself loads tools later; for others they stand with all others, in front",
    "detail of an image": "Anthropic sees every image the same",
    "fast": "Anthropic's fast mode is another price and needs a beta header that the client did not send",
    "hosted tools of another provider": "only that provider runs them",
    "name and strictness of an output format": "Anthropic knows the schema only, and always keeps to it",
    "output format without a schema": "the prompt has to ask for JSON anyway",
    "temperature above 1": "is sent as 1, where Anthropic's scale ends",
    "temperature, top_p and top_k while thinking": "Anthropic refuses them together",
    "thinking with a forced tool": "Anthropic refuses both together; the tool was asked for expressly",
    "thoughts of another provider or account": "only who made them can read them",
    "top_p of 1 beside a temperature": "newer models refuse both; 1 is the default",
    "thinking with a budget, of a client that cannot hand thoughts back": "Anthropic refuses the results of its tools",
    "verbosity": "Anthropic has no such setting",
}
"""What of a request is left out, and why that is harmless."""

MAX_TOKENS = 32_000
"""Anthropic wants a limit where others need none. Every current model allows this much, and answers of agents are
shorter; a higher one would make a prompt overflow earlier, for both share the context window."""

EFFORTS = {
    "minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "max",
}  # fmt: skip
NO_THINKING = "none"
BUDGETS = {"low": 4_096, "medium": 10_240, "high": 20_480, "xhigh": 28_672, "max": 28_672}
"""Tokens of thinking for models that know no effort; the highest stays below `MAX_TOKENS`."""
BUDGET_MIN = 1_024
"""Anthropic's own."""
_DEFAULT_EFFORT = "medium"
_TEMPERATURE_MAX = 1
_DISPLAYS = {True: "summarized", False: "omitted"}
_CHOICES = {Choice.AUTO: "auto", Choice.NONE: "none", Choice.REQUIRED: "any", Choice.ONE: "tool"}
_FORCING = frozenset({Choice.REQUIRED, Choice.ONE})
NO_LONGER_AVAILABLE = "This tool is no longer available."
"""Describes a tool that only the conversation still speaks of."""
_SEARCH_TOOL = "tool_search"
"""Begins the types of the tools with which a provider itself finds deferred ones, Anthropic's and OpenAI's."""
_DEFERRED = "defer_loading"


def render_request(request: Request, target: Target) -> bytes:
    """Write the request. Raises BadInput, naming it, for what Anthropic cannot be asked."""
    names = ToolNames(request, MESSAGES_CHARS_MAX)
    leading, rest = split_leading(request.items)
    system = list(part_blocks((*request.instructions, *leading)))
    tools = list(_tools(request, names, target))
    if not tools:
        request = _with_called_tools(request)
        tools = list(_tools(request, names, target))
    deferred = frozenset(tool.fields["name"] for tool in tools if tool.fields.get(_DEFERRED))
    conversation = Conversation(names, target, deferred)
    for item in rest:
        conversation.add(item)
    if request.purpose is not Purpose.ANSWER:
        # `tool_choice` stays as it was: another one would cost the cache of the whole conversation that is summed up.
        conversation.add(summary_request())
    conversation.finish()
    allowed = Quirk.NO_CACHE_MARKS not in target.quirks
    sent_tools, sent_system, *sent_turns = place(tools, system, conversation.turns, allowed=allowed)
    body = {
        "model": target.model,
        "max_tokens": _max_tokens(request),
        "stream": request.stream,
        **_settings(request, target),
        **({"tools": sent_tools, **_choice(request, names, tools)} if tools else {}),
        **({"system": sent_system} if system else {}),
        "messages": [
            {"role": turn.role, "content": content}
            for turn, content in zip(conversation.turns, sent_turns, strict=True)
        ],
    }
    try:
        return encode(body)
    except RecursionError:
        raise BadInput("tools: a schema is nested too deeply to be sent. Send a flatter one.") from None


def _with_called_tools(request: Request) -> Request:
    """Declare what the conversation called, for Anthropic refuses calls where no tool is declared; none can be called.

    Codex compacts without tools, and so do others who want a summary of a conversation.
    """
    called = dict.fromkeys(item.tool for item in request.items if isinstance(item, ToolCall))
    tools = tuple(Tool(ref, description=NO_LONGER_AVAILABLE) for ref in called)
    return replace(request, tools=tools, choice=Choice.NONE) if tools else request


def _tools(request: Request, names: ToolNames, target: Target) -> Iterator[Block]:
    """Yield the tools; of two that would have the same name, the first."""
    deferring = _defers(request, target)
    given: set[object] = set()
    for tool in request.tools:
        if isinstance(tool, HostedTool):
            if not _is_own(tool):
                continue
            block = Block(tool.definition, tool.marked)
        else:
            block = _tool(tool, names.wire(tool.ref), target, deferring=deferring)
        name = block.fields.get("name")
        if name is None or name not in given:
            given.add(name)
            yield block


def _defers(request: Request, target: Target) -> bool:
    """Whether deferred tools can wait behind the prompt: they must be found there, and some tool must stand in front.

    Codex compacts without its tools, so that only those that it once found are left.
    """
    hosted = [tool for tool in request.tools if isinstance(tool, HostedTool)]
    searches = [tool for tool in hosted if tool.kind.startswith(_SEARCH_TOOL)]
    in_front = any(_is_own(tool) for tool in hosted) or any(
        not tool.deferred for tool in request.tools if isinstance(tool, Tool)
    )
    found = not searches or any(_is_own(tool) for tool in searches)
    return Quirk.TOOL_REFERENCES in target.quirks and in_front and found


def _is_own(tool: HostedTool) -> bool:
    return tool.origin is Protocol.MESSAGES


def _tool(tool: Tool, name: str, target: Target, *, deferring: bool) -> Block:
    function = as_function(tool)
    deferred = tool.deferred and deferring
    strict = function.strict and Quirk.NO_STRICT not in target.quirks
    fields = {
        "name": name,
        **({"description": function.description} if function.description else {}),
        "input_schema": _schema(function.schema),
        **({"strict": True} if strict else {}),
        **({_DEFERRED: True} if deferred else {}),
    }
    return Block(fields, tool.marked, cacheable=not deferred)


def _schema(schema: Json | None) -> Json:
    """Return the schema of the arguments; Anthropic wants an object, and wants to be told so."""
    if schema is None:
        return {"type": "object", "properties": {}}
    return schema if schema.get("type") == "object" else {**schema, "type": "object"}


def _chosen_name(request: Request, names: ToolNames, tools: list[Block]) -> str:
    name = "" if request.chosen_tool is None else names.wire(request.chosen_tool)
    if not any(tool.fields.get("name") == name for tool in tools):
        raise BadInput(f"tool_choice: the tool {name!r} is none of those that this provider can be given.")
    return name


def _choice(request: Request, names: ToolNames, tools: list[Block]) -> Json:
    """Return `tool_choice` as far as the client chose: any change of it costs the cache."""
    single = request.parallel_tools is False
    if request.choice is None and not single:
        return {}
    choice = request.choice or Choice.AUTO
    named = {"name": _chosen_name(request, names, tools)} if choice is Choice.ONE else {}
    alone = {"disable_parallel_tool_use": True} if single and choice is not Choice.NONE else {}
    return {"tool_choice": {"type": _CHOICES[choice], **named, **alone}}


def _max_tokens(request: Request) -> int:
    return request.sampling.max_output_tokens or MAX_TOKENS


def _settings(request: Request, target: Target) -> dict[str, object]:
    sampling = request.sampling
    thinking = _thinking(request, target)
    config = {**_effort(request, target), **_format(request)}
    dice = (
        {} if thinking.get("type") in {"adaptive", "enabled"} or Quirk.NO_SAMPLING in target.quirks else _dice(request)
    )
    return {
        **({"thinking": thinking} if thinking else {}),
        **({"output_config": config} if config else {}),
        **dice,
        **({"stop_sequences": list(sampling.stop)} if sampling.stop else {}),
    }


def _dice(request: Request) -> Json:
    sampling = request.sampling
    top_p = None if sampling.temperature is not None and sampling.top_p == 1 else sampling.top_p
    dice = {
        "temperature": None if sampling.temperature is None else min(sampling.temperature, _TEMPERATURE_MAX),
        "top_p": top_p,
        "top_k": sampling.top_k,
    }
    return {name: value for name, value in dice.items() if value is not None}


def _thinking(request: Request, target: Target) -> Json:
    """Return `thinking`; nothing where the client said nothing, for then the model's own default holds."""
    wish = request.thinking
    asked = wish.budget_tokens is not None or wish.show is True or wish.effort is not None
    if wish.enabled is None and not asked:
        return {}
    silent = wish.enabled is False or (wish.enabled is None and wish.effort == NO_THINKING)
    if silent or (request.choice in _FORCING and request.tools):
        return {"type": "disabled"}
    adaptive = Quirk.NO_ADAPTIVE_THINKING not in target.quirks
    shown = {} if wish.show is None or not adaptive else {"display": _DISPLAYS[wish.show]}
    if wish.budget_tokens is None and adaptive:
        return {"type": "adaptive", **shown}
    if not request.keeps_thoughts and request.tools:
        # Where thinking has a budget, an answer that called tools must come back with its thoughts.
        return {"type": "disabled"}
    effort = EFFORTS.get(wish.effort or "", _DEFAULT_EFFORT)
    budget = min(wish.budget_tokens or BUDGETS[effort], _max_tokens(request) - 1)
    return {"type": "enabled", "budget_tokens": budget, **shown} if budget >= BUDGET_MIN else {"type": "disabled"}


def _effort(request: Request, target: Target) -> Json:
    effort = EFFORTS.get(request.thinking.effort or "")
    return {} if effort is None or Quirk.NO_ADAPTIVE_THINKING in target.quirks else {"effort": effort}


def _format(request: Request) -> Json:
    wanted = request.output_format
    if wanted is None or wanted.schema is None:
        return {}
    return {"format": {"type": "json_schema", "schema": wanted.schema}}
