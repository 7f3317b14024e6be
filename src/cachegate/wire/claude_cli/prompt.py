"""What a live `claude` process is told: instructions, tools and turns, as Anthropic's own blocks.

The request is rendered as for Anthropic, so the turns are exactly what a transcript of the CLI holds. Turns that mean
the same have the same mark: cache marks and thoughts, which callers move and leave out, are no part of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain

from blake3 import blake3

from cachegate.errors import BadInput
from cachegate.wire.body import decode, encode
from cachegate.wire.codecs import CODECS
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import Json, Request, Target
from cachegate.wire.quirks import Quirk
from cachegate.wire.usage_readings import Fields, count, fields, items

RESULT_CHARS_MAX = 500_000
"""Of a tool's result, as the CLI passes it on; longer ones go in with the transcript."""
_LIVE_RESULT_CHARS_MAX = 450_000
DROPPED: Mapping[str, str] = {
    "marks": "the CLI marks the prompt itself",
    "metadata": "the CLI names the conversation itself",
    "hosted tools": "tools that a provider runs itself cannot be handed to the CLI",
    "order of tools": "the CLI sends them sorted by name",
    "display of thoughts": "as the CLI asks for it",
}
"""What of a request gets lost on the way into a live process, and why nobody misses it."""

_THOUGHTS = frozenset({"thinking", "redacted_thinking"})
_FORCED = ("tool_choice", "stop_sequences", "temperature", "top_p", "top_k")
"""Fields that only the whole process can be told, in every request that it makes."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What one side said: blocks in Anthropic's form, without cache marks."""

    role: str
    blocks: tuple[Json, ...]


@dataclass(frozen=True, slots=True)
class Prompt:
    """A whole request."""

    model: str
    system: str
    tools: tuple[Json, ...]
    """As the MCP server lists them."""
    extra: Json
    """Fields for the body of every request of the process."""
    turns: tuple[Turn, ...]
    """They begin with the user and alternate."""
    thinking_tokens: int | None
    """0 switches thinking off; None leaves the CLI's own setting."""
    effort: str | None
    fast: bool
    window: bytes = b""
    """Of the compaction window that the caller named; empty where it names none."""
    marks: tuple[bytes, ...] = field(init=False, compare=False, repr=False)
    """Of the turns. Made once: each reads all of its turn, and a request needs them three times."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "marks", tuple(map(mark, self.turns)))

    @property
    def digest(self) -> bytes:
        """What must be equal for a process to go on: what stands in front of the turns, and what was forced on it."""
        tools = sorted(self.tools, key=lambda tool: str(tool["name"]))  # in whatever order, the CLI sorts them
        return blake3(encode([self.system, _ordered(tools), _ordered(self.extra)])).digest()


def prompt_of(request: Request, model: str, binding: str, window: bytes = b"") -> Prompt:
    """Return a request for a live process. Raises BadInput, naming what cannot be carried."""
    target = Target(model, binding, quirks=frozenset({Quirk.NO_CACHE_MARKS}), origin=Protocol.MESSAGES)
    body = fields(decode(CODECS[Protocol.MESSAGES].render_request(request, target)))
    turns = tuple(Turn(str(turn["role"]), _blocks(turn["content"])) for turn in map(fields, items(body["messages"])))
    if turns and turns[-1].role != "user":
        raise BadInput("The last message is the assistant's: a live session cannot go on with an answer begun for it.")
    extra: dict[str, object] = {name: body[name] for name in _FORCED if name in body}
    if request.sampling.max_output_tokens is not None:
        extra["max_tokens"] = request.sampling.max_output_tokens
    config = fields(body.get("output_config"))
    if "format" in config:
        extra["output_config"] = {"format": config["format"]}  # the CLI adds the effort
    effort = config.get("effort")
    return Prompt(
        model=model,
        system="\n\n".join(str(fields(block).get("text")) for block in items(body.get("system"))),
        tools=tuple(_listed(fields(tool)) for tool in items(body.get("tools")) if "input_schema" in fields(tool)),
        extra=extra,
        turns=turns,
        thinking_tokens=_thinking_tokens(fields(body.get("thinking")), forced=bool(extra)),
        effort=effort if isinstance(effort, str) else None,
        fast=request.fast is True,
        window=window,
    )


def mark(turn: Turn) -> bytes:
    """Return what tells turns apart."""
    blocks: list[object] = []
    text = ""
    for block in turn.blocks:
        if block.get("type") == "text":
            # Some protocols keep the texts of an answer apart, others join them.
            text += str(block.get("text"))
        elif block.get("type") not in _THOUGHTS:
            blocks += [text.strip(), _ordered(_plain(block))]
            text = ""
    return blake3(encode([turn.role, *blocks, text.strip()])).digest()


def results_of(turn: Turn) -> tuple[Fields, ...]:
    """Return the tool results in a turn."""
    return tuple(block for block in turn.blocks if block.get("type") == "tool_result")


def rest_of(turn: Turn) -> tuple[Fields, ...]:
    """Return what stands beside the tool results in a turn."""
    return tuple(block for block in turn.blocks if block.get("type") != "tool_result")


def can_be_said(turn: Turn) -> bool:
    """Whether the CLI passes the turn on as it is.

    It cuts long results, writes words of its own into empty ones, and changes pictures and documents.
    """
    results = [_content(result) for result in results_of(turn)]
    plain = all(block.get("type") == "text" for block in (*rest_of(turn), *chain.from_iterable(results)))
    spoken = all(any(str(part.get("text")).strip() for part in result) for result in results)
    return plain and spoken and all(len(encode(result)) <= _LIVE_RESULT_CHARS_MAX for result in results)


def given(result: Fields) -> tuple[list[Json], bool]:
    """Return a tool result as an MCP server gives it: its content, and whether it is an error."""
    return [{"type": "text", "text": str(part.get("text"))} for part in _content(result)], result.get(
        "is_error"
    ) is True


def _content(result: Fields) -> list[Fields]:
    content = result.get("content")
    return (
        [{"type": "text", "text": content}] if isinstance(content, str) else [fields(part) for part in items(content)]
    )


def _plain(block: Json) -> Json:
    """Return a block in the one form that it has among several."""
    if block.get("type") == "tool_result":
        return {**block, "content": _content(fields(block)), "is_error": block.get("is_error") is True}
    return block


def _listed(tool: Fields) -> Json:
    return {
        "name": tool["name"],
        "description": str(tool.get("description") or ""),
        "inputSchema": tool["input_schema"],
        "_meta": {"anthropic/maxResultSizeChars": RESULT_CHARS_MAX},
    }


def _thinking_tokens(thinking: Fields, *, forced: bool) -> int | None:
    match thinking.get("type"):
        case None:
            # Nobody asked for thoughts: the CLI's own may contradict a forced limit or tool, and would be refused.
            return 0 if forced else None
        case "disabled":
            return 0
    return count(thinking.get("budget_tokens"))


def _blocks(content: object) -> tuple[Json, ...]:
    return ({"type": "text", "text": content},) if isinstance(content, str) else tuple(map(fields, items(content)))


def _ordered(value: object) -> object:
    match value:
        case Mapping():
            return {key: _ordered(value[key]) for key in sorted(value)}
        case list() | tuple():
            return [_ordered(part) for part in value]
        case float() if value.is_integer():
            return int(value)  # JavaScript writes 1.0 as 1
    return value
