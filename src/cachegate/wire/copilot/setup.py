"""What a session is set up with before anything is said: model, instructions, tools, effort.

A session of Copilot's runtime has fewer knobs than the protocols. `DROPPED` is what is left out because an answer is as
good without it; whatever would change what the answer means is refused, by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from blake3 import blake3

from cachegate.errors import BadInput
from cachegate.wire.body import encode
from cachegate.wire.compaction import SUMMARY_REQUEST
from cachegate.wire.copilot.history import Said, Step, steps_of
from cachegate.wire.custom_tools import as_function
from cachegate.wire.hub import Choice, Json, Purpose, Request, Thinking, Tool
from cachegate.wire.messages.conversation_renderer import split_leading
from cachegate.wire.tool_names import OPENAI_CHARS_MAX, ToolNames

DROPPED: Mapping[str, str] = {
    "max_output_tokens": "a session has no limit of its own; the model's holds",
    "temperature, top_p, top_k": "the runtime sets them for each model",
    "parallel_tools": "the model decides",
    "strict": "the runtime passes schemas as they are and enforces none",
    "verbosity": "the runtime has none",
    "fast": "the runtime has none",
    "hosted tools": "tools that another provider runs itself (web search, code interpreter)",
    "deferred": "deferred tools are declared like all others, so that the list stays the same",
    "reasoning": "a live session keeps its model's thoughts itself; thoughts from elsewhere cannot be handed in",
    "cache marks, prompt_cache_key": "the runtime marks the prompt and names the conversation itself",
    "is_error of a result": "the model reads the text of the error; the runtime tells providers of no failure",
}
"""What of a request gets lost on the way into a session, and why nobody misses it."""

_EFFORTS = {"none": "low", "minimal": "low"}
"""What the runtime has no word for: the nearest. It knows low, medium, high, xhigh and max."""


@dataclass(frozen=True, slots=True)
class DeclaredTool:
    """A tool of the caller."""

    name: str
    description: str
    parameters: Json
    """JSON Schema."""


@dataclass(frozen=True, slots=True)
class Setup:
    """How a session is set up."""

    model: str
    instructions: str
    tools: tuple[DeclaredTool, ...]
    effort: str | None
    """Changed in place; it is no part of the prompt's beginning."""
    schema: Json | None
    """JSON Schema of the answer, for this turn."""
    window: bytes = b""
    """Of the compaction window that the caller named; empty where it names none."""

    @property
    def digest(self) -> bytes:
        """What must be equal for a session to go on: what stands in front of the conversation."""
        tools = [(tool.name, tool.description, tool.parameters) for tool in self.tools]
        return blake3(encode([self.instructions, tools])).digest()


def ask(request: Request, model: str, names: ToolNames) -> tuple[Setup, tuple[Step, ...]]:
    """Return a request as the setup of a session and the steps of its conversation.

    Raises BadInput, naming what a session cannot do.
    """
    if request.choice in {Choice.NONE, Choice.REQUIRED, Choice.ONE}:
        raise BadInput(
            f"tool_choice: Copilot's sessions know `auto` only, not `{request.choice.value}`. Leave it out, or route "
            "this model to another provider."
        )
    if request.sampling.stop:
        raise BadInput("stop sequences: Copilot's sessions have none. Leave them out.")
    leading, items = split_leading(request.items)
    instructions = "\n\n".join(part.text for part in (*request.instructions, *leading))
    steps = steps_of(items, names)
    if request.purpose is not Purpose.ANSWER:
        steps = (*steps, Said(SUMMARY_REQUEST))
    form = request.output_format
    schema = None if form is None else form.schema or {"type": "object"}
    return Setup(model, instructions, _tools(request, names), _effort(request.thinking), schema), steps


def tool_names(request: Request) -> ToolNames:
    """Return the names under which the runtime knows the caller's tools."""
    return ToolNames(request, OPENAI_CHARS_MAX)


def _tools(request: Request, names: ToolNames) -> tuple[DeclaredTool, ...]:
    functions = [(tool.ref, as_function(tool)) for tool in request.tools if isinstance(tool, Tool)]
    return tuple(
        DeclaredTool(names.wire(ref), tool.description or "", tool.schema or {"type": "object", "properties": {}})
        for ref, tool in functions
    )


def _effort(thinking: Thinking) -> str | None:
    return None if thinking.effort is None else _EFFORTS.get(thinking.effort, thinking.effort)
