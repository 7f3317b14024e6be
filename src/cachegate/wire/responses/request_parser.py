"""A Responses request, as Codex, opencode, Copilot, Grok and Cline send it, in the internal model."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cachegate.errors import BadInput
from cachegate.wire.body import JsonObject
from cachegate.wire.facts import Operation
from cachegate.wire.hub import (
    HostedTool,
    Item,
    Message,
    OutputFormat,
    Purpose,
    Request,
    Role,
    Sampling,
    Text,
    Thinking,
    Tool,
    ToolCall,
)
from cachegate.wire.responses.item_parser import DROPPED_ITEMS, loaded_tools, parse_item
from cachegate.wire.responses.tool_parser import distinct, parse_choice, parse_tools
from cachegate.wire.responses.typed_fields import Field

DROPPED: Mapping[str, str] = {
    "access_programs": "a matter between the caller and OpenAI",
    "background_options": "belongs to `background`, which is refused",
    "client_metadata": "says who calls; the gateway has read it",
    "context_management": "compaction on OpenAI's side; a full context is told as such instead",
    "image": "how OpenAI compresses pictures",
    "include": "what the answer can hold is always in it",
    "input[].id": "names an item on OpenAI's side",
    "input[].phase": "a label of OpenAI's models for their own texts, which only OpenAI gets back",
    "max_tool_calls": "limits only tools that the provider runs itself, which are not carried",
    "metadata": "is stored on OpenAI's side",
    "prompt_cache_options": "other caches have no such options; marks on parts are carried",
    "prompt_cache_retention": "as prompt_cache_options",
    "reasoning.context": "thoughts are always sent back as the client sends them",
    "reasoning.mode": "a mode of OpenAI's models",
    "safety_identifier": "names a person to OpenAI",
    "service_tier": "any tier but `priority` and `fast` is the usual one",
    "store": "nothing is stored on the other side, and nothing has to be",
    "stream_options": "obfuscation is no part of the answer",
    "text.format.description": "no other protocol has one",
    "tools[].allowed_callers": "only OpenAI runs programs that call tools",
    "tools[].async": "as tools[].allowed_callers",
    "tools[].description": "only of a namespace: no other protocol has namespaces",
    "tools[].output_schema": "no other protocol has one",
    "top_logprobs": "no answer of another protocol has probabilities; more than 0 is refused",
    "truncation": "a full context is told as such, and the client compacts",
    "user": "names a person to OpenAI",
    **{f"input[].type: {name}": reason for name, reason in DROPPED_ITEMS.items()},
}
"""Fields that are not carried to a provider of another protocol, and why that does no harm."""

REFUSED: Mapping[str, str] = {
    "previous_response_id": "the earlier response is stored at OpenAI only; send the whole conversation in `input`",
    "conversation": "the conversation is stored at OpenAI only; send it in `input`",
    "prompt": "the template is stored at OpenAI only; send its text in `instructions` or `input`",
    "background": "only OpenAI runs responses in the background; send the request without it",
    "moderation": "only OpenAI moderates in this way; send the request without it",
    "top_logprobs": "this provider's protocol has no probabilities; send the request without it",
}
"""Fields whose loss would change what the client gets; `false` and 0 say nothing and pass."""

_FAST_TIERS = frozenset({"priority", "fast"})
_FORMATS = frozenset({"text", "json_object", "json_schema"})


def parse_request(body: bytes, operation: Operation = Operation.GENERATE) -> Request:
    """Read a request. Raises BadInput, naming the field that is wrong or cannot be carried."""
    parsed = JsonObject(body)
    for name, reason in REFUSED.items():
        if parsed.sound(name) not in (None, False, 0):
            raise BadInput(f"{name}: {reason}.")
    conversation = _conversation(Field("input", parsed.sound("input")))
    tools = distinct((*parse_tools(Field("tools", parsed.sound("tools"))), *conversation.tools))
    chosen = parse_choice(Field("tool_choice", parsed.sound("tool_choice")), tools)
    purpose = Purpose.COMPACTION_OBJECT if operation is Operation.COMPACT else conversation.purpose
    text = Field("text", parsed.sound("text"))
    return Request(
        model=Field("model", parsed.sound("model")).optional_text() or "",
        stream=operation is not Operation.COMPACT and (Field("stream", parsed.sound("stream")).flag() or False),
        instructions=_instructions(Field("instructions", parsed.sound("instructions"))),
        items=conversation.items,
        tools=chosen.tools,
        choice=chosen.choice,
        chosen_tool=chosen.tool,
        parallel_tools=Field("parallel_tool_calls", parsed.sound("parallel_tool_calls")).flag(),
        sampling=_sampling(parsed),
        thinking=_thinking(Field("reasoning", parsed.sound("reasoning")), conversation.effort),
        output_format=_format(conversation.format or text.field("format")),
        verbosity=text.field("verbosity").optional_text(),
        fast=_fast(Field("service_tier", parsed.sound("service_tier"))),
        cache_key=Field("prompt_cache_key", parsed.sound("prompt_cache_key")).optional_text(),
        purpose=purpose,
    )


@dataclass(frozen=True, slots=True)
class _Conversation:
    """What `input` says."""

    items: tuple[Item, ...] = ()
    tools: tuple[Tool | HostedTool, ...] = ()
    purpose: Purpose = Purpose.ANSWER
    effort: str | None = None
    format: Field | None = None


def _conversation(given: Field) -> _Conversation:
    if isinstance(given.value, str):
        return _Conversation((Message(Role.USER, (Text(given.value),)),))
    if given.absent:
        raise given.refused("a text or an array of items is needed here")
    items: list[Item] = []
    tools: list[Tool | HostedTool] = []
    effort, wanted, purpose = None, None, Purpose.ANSWER
    for item in given.items():
        kind = item.field("type").value
        purpose = Purpose.COMPACTION_ITEM if kind == "compaction_trigger" else Purpose.ANSWER
        if kind == "additional_tools":
            tools += parse_tools(item.field("tools"))
        elif kind == "configuration_update":
            effort = item.field("reasoning").field("effort").optional_text() or effort
            changed = item.field("text").field("format")
            wanted = wanted if changed.absent else changed
        tools += _found(item, items)
        items += parse_item(item)
    return _Conversation(tuple(items), tuple(tools), purpose, effort, wanted)


def _found(item: Field, before: list[Item]) -> tuple[Tool, ...]:
    """Return the tools that a search found; without its call nobody could be told there, and they stand in front."""
    called = {earlier.call_id for earlier in before if isinstance(earlier, ToolCall)}
    return tuple(replace(tool, deferred=item.field("call_id").value in called) for tool in loaded_tools(item))


def _instructions(given: Field) -> tuple[Text, ...]:
    text = given.optional_text()
    return (Text(text),) if text else ()


def _sampling(parsed: JsonObject) -> Sampling:
    return Sampling(
        max_output_tokens=Field("max_output_tokens", parsed.sound("max_output_tokens")).integer(),
        temperature=Field("temperature", parsed.sound("temperature")).number(),
        top_p=Field("top_p", parsed.sound("top_p")).number(),
    )


def _thinking(reasoning: Field, updated_effort: str | None) -> Thinking:
    """Read how much to think; the last update inside the conversation holds."""
    effort = updated_effort or reasoning.field("effort").optional_text()
    shown = [reasoning.field(name).optional_text() for name in ("summary", "generate_summary")]
    return Thinking(
        enabled=None if effort is None else effort != "none",
        effort=effort,
        show=True if any(name is not None and name != "none" for name in shown) else None,
    )


def _format(wanted: Field) -> OutputFormat | None:
    if wanted.absent:
        return None
    kind = wanted.field("type")
    if not isinstance(kind.value, str) or kind.value not in _FORMATS:
        raise kind.refused("text, json_object or json_schema is needed here")
    if kind.value == "text":
        return None
    if kind.value == "json_object":
        return OutputFormat()
    return OutputFormat(
        schema=wanted.field("schema").mapping(),
        name=wanted.field("name").optional_text(),
        strict=wanted.field("strict").flag(),
    )


def _fast(tier: Field) -> bool | None:
    name = tier.optional_text()
    return None if name is None else name in _FAST_TIERS
