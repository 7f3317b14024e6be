"""A request in the Responses protocol, for OpenAI, xAI, OpenRouter and local servers.

Instructions, tools and items stand in this order in the provider's cache; each is rendered from itself alone.
"""

from collections.abc import Mapping

from cachegate.errors import BadInput
from cachegate.wire.body import encode
from cachegate.wire.compaction import summary_request
from cachegate.wire.hub import Choice, OutputFormat, Purpose, Request, Target, Text, Thinking
from cachegate.wire.quirks import Quirk
from cachegate.wire.responses.conversation_renderer import render_conversation
from cachegate.wire.responses.item_renderer import ItemRenderer
from cachegate.wire.responses.tool_renderer import ToolRenderer

DROPPED: Mapping[str, str] = {
    "annotations": "citations in another protocol's form; the text they belong to is carried",
    "cache_control": "OpenAI caches by itself; `prompt_cache_key` names the thread",
    "deferral of tools": "they stand with all others; but what Codex's own search finds stays in its place for OpenAI",
    "hosted tools": "another provider runs them",
    "temperature, top_p": "only for an upstream that refuses them",
    "thinking of another provider": "only the provider that thought it can read it",
    "thinking.budget_tokens": "becomes the nearest effort",
    "top_k": "this protocol has none",
    "x-anthropic-billing-header": "noise of Claude Code that would change the beginning of the prompt",
}
"""What is left out of a request for an upstream of this protocol, and why that does no harm."""

EFFORTS: Mapping[str, str] = {
    "none": "none",
    "minimal": "minimal",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "xhigh",
    "max": "max",
}
"""The protocol has all of the model's efforts by the same names; which of them a model takes, its provider says."""
COARSE_EFFORTS: Mapping[str, str] = {
    **EFFORTS, "none": "low", "minimal": "low", "xhigh": "high", "max": "high"
}  # fmt: skip
"""For an upstream that knows three."""
EFFORT_OF_BUDGET = ((4_096, "low"), (16_384, "medium"))
"""Thinking tokens up to which an effort is the nearest; `high` beyond."""

OUTPUT_TOKENS_MIN = 16
"""OpenAI refuses less. Claude Code probes models with 1."""

_NOISE = "x-anthropic-billing-header"
_FORMAT_NAME = "answer"
_NO_THINKING = "none"


def render_request(request: Request, target: Target) -> bytes:
    """Return the body. Raises BadInput, naming the field that the protocol cannot say."""
    if request.sampling.stop:
        raise BadInput(
            "stop_sequences: this provider's protocol has no stop sequences. Send the request without "
            "`stop_sequences` (`stop`), or to a provider of another protocol."
        )
    tools = ToolRenderer(request, target)
    items = request.items if request.purpose is Purpose.ANSWER else (*request.items, summary_request())
    # Models that do not think refuse to be asked for their thoughts.
    thinks = request.thinking.enabled is not False and _effort(request.thinking) != _NO_THINKING
    carried = thinks and request.thinking != Thinking()
    fields: dict[str, object] = {
        "model": target.model,
        "instructions": _instructions(request.instructions),
        "input": render_conversation(items, ItemRenderer(target, tools)),
        **_tools(request, target, tools),
        "reasoning": _reasoning(request.thinking, target) or None,
        "include": ["reasoning.encrypted_content"] if carried else None,
        "store": False if carried or Quirk.NO_STORE in target.quirks else None,
        "stream": request.stream,
        "text": _text(request) or None,
        **_sampling(request, target),
        "service_tier": "priority" if request.fast else None,
        "prompt_cache_key": request.cache_key or target.cache_key,
    }
    return encode({name: value for name, value in fields.items() if value is not None})


def _instructions(texts: tuple[Text, ...]) -> str | None:
    kept = [part.text for part in texts if part.text and not part.text.startswith(_NOISE)]
    return "\n\n".join(kept) or None


def _tools(request: Request, target: Target, renderer: ToolRenderer) -> dict[str, object]:
    """Return the tools and how they are called. For a summary they stay, or the conversation would be read anew."""
    tools = renderer.tools()
    if not tools:
        return {}
    forced = request.choice in {Choice.REQUIRED, Choice.ONE} and request.purpose is not Purpose.ANSWER
    choice = Choice.NONE if forced else request.choice
    parallel = None if Quirk.NO_PARALLEL in target.quirks else request.parallel_tools
    return {"tools": tools, "tool_choice": renderer.choice(choice), "parallel_tool_calls": parallel}


def _reasoning(thinking: Thinking, target: Target) -> dict[str, object]:
    effort = _effort(thinking)
    efforts = COARSE_EFFORTS if Quirk.COARSE_EFFORT in target.quirks else EFFORTS
    said = {} if effort is None else {"effort": efforts.get(effort, effort)}
    shown = {"summary": "auto"} if thinking.show and effort != _NO_THINKING else {}
    return {**said, **shown}


def _effort(thinking: Thinking) -> str | None:
    if thinking.enabled is False:
        return _NO_THINKING
    if thinking.effort is not None or thinking.budget_tokens is None:
        return thinking.effort
    budget = thinking.budget_tokens
    return next((effort for tokens, effort in EFFORT_OF_BUDGET if budget <= tokens), "high")


def _text(request: Request) -> dict[str, object]:
    asked = request.output_format if request.purpose is Purpose.ANSWER else None
    wanted = {} if asked is None else {"format": _format(asked)}
    return {**wanted, **({} if request.verbosity is None else {"verbosity": request.verbosity})}


def _format(wanted: OutputFormat) -> dict[str, object]:
    if wanted.schema is None:
        return {"type": "json_object"}
    strict = {} if wanted.strict is None else {"strict": wanted.strict}
    return {"type": "json_schema", "name": wanted.name or _FORMAT_NAME, "schema": wanted.schema, **strict}


def _sampling(request: Request, target: Target) -> dict[str, object]:
    sampling = request.sampling
    most = None if Quirk.NO_OUTPUT_LIMIT in target.quirks else sampling.max_output_tokens
    dice = {} if Quirk.NO_SAMPLING in target.quirks else {"temperature": sampling.temperature, "top_p": sampling.top_p}
    return {"max_output_tokens": None if most is None else max(most, OUTPUT_TOKENS_MIN), **dice}
