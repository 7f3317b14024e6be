"""The one internal model of a conversation and of an answer: what all protocols have in common, and nothing of any.

A request is parsed from one protocol into a `Request` and rendered into another; an answer is read into `Event`s and
written from them. Three laws keep the provider's prompt cache alive through a translation:

1. Deterministic: the same value is rendered to the same bytes, always. No clock, no random id, no order of a set.
2. Prefix-stable: an item is rendered from itself and from what stands before it, never from what comes after. So the
   blocks of a conversation are a prefix of the blocks of its continuation.
3. Nothing is invented: unknown stays None, an opaque value is carried or dropped, never forged.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from cachegate.errors import ErrorKind
from cachegate.guard.usage import Usage
from cachegate.wire.facts import Protocol

Json = Mapping[str, object]
"""A JSON object as decoded; its order is kept."""


class Role(StrEnum):
    """Who speaks. OpenAI keeps DEVELOPER and SYSTEM apart; whoever knows one only renders both as it."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    DEVELOPER = "developer"


# --- what a message or a tool result is made of ---


@dataclass(frozen=True, slots=True)
class Text:
    """Text, also of a refusal."""

    text: str
    refusal: bool = False
    annotations: tuple[Json, ...] = ()
    """Citations in the form of the protocol they came from, kept only where source and target are that protocol."""
    marked: bool = False
    """The client asked to cache the prompt up to here. So in the other parts, and in tools."""
    found: "ToolRef | None" = None
    """In the result of a search for tools: this text names one that it found. Who knows references gets one instead."""


@dataclass(frozen=True, slots=True)
class Image:
    """A picture, by address or in the request itself: exactly one of `url` and `data` is set."""

    url: str | None = None
    data: str | None = None
    """Base64."""
    media_type: str | None = None
    detail: str | None = None
    marked: bool = False


@dataclass(frozen=True, slots=True)
class Document:
    """A file to read: exactly one of `url`, `data` and `text` is set."""

    url: str | None = None
    data: str | None = None
    """Base64."""
    text: str | None = None
    media_type: str | None = None
    name: str | None = None
    marked: bool = False


Part = Text | Image | Document


# --- what a conversation is made of ---


@dataclass(frozen=True, slots=True)
class Message:
    """Somebody says something."""

    role: Role
    parts: tuple[Part, ...]
    phase: str | None = None
    """OpenAI's label of what the assistant says: on the way, or in the end. It wants it back as it was."""


@dataclass(frozen=True, slots=True)
class ToolRef:
    """A tool's name. Codex groups tools in namespaces; others flatten both into one name (`wire/tool_names.py`)."""

    name: str
    namespace: str | None = None
    custom: bool = False
    """A freeform tool: its input is text and no JSON object."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The model calls a tool."""

    call_id: str
    tool: ToolRef
    arguments: str
    """JSON text as the model wrote it, or the plain input of a custom tool. Never re-encoded: its bytes are cached."""
    marked: bool = False


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What the tool answered."""

    call_id: str
    parts: tuple[Part, ...]
    is_error: bool = False
    custom: bool = False


@dataclass(frozen=True, slots=True)
class Reasoning:
    """What the model thought, with the opaque value that only its own provider can read.

    `text` may be a summary. `opaque` goes back unchanged to the provider of `origin`; for another one the whole item is
    dropped. `wire/envelopes.py` wraps a foreign opaque value so that a client of another protocol can hand it back.
    Without a value they go back as text, to who made them and wants that (`wire/plain_thoughts.py`).
    """

    text: str
    opaque: str | None = None
    origin: Protocol | None = None
    item_id: str | None = None
    redacted: bool = False
    """There is no text, and the whole block is the opaque value."""
    binding: str | None = None
    """Configured provider that made it, where an envelope says so; None is the client's own native history."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """An earlier part of the conversation, as a summary: text of our own, or an opaque value of `origin`."""

    text: str | None = None
    opaque: str | None = None
    origin: Protocol | None = None
    binding: str | None = None
    """As in `Reasoning`."""


Item = Message | ToolCall | ToolResult | Reasoning | Compacted


# --- what a request is made of ---


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the model may call."""

    ref: ToolRef
    description: str | None = None
    schema: Json | None = None
    """JSON Schema of the arguments; None for a custom tool."""
    strict: bool | None = None
    grammar: Json | None = None
    """Format of a custom tool's input, as Codex sends it."""
    deferred: bool = False
    """Known by name only until a search finds it: no part of what stands in front of the conversation."""
    marked: bool = False
    namespace_description: str | None = None
    """What its namespace is for, as all tools of it say."""


@dataclass(frozen=True, slots=True)
class HostedTool:
    """A tool that a provider runs itself (web search, code interpreter): passed to its own protocol, else dropped."""

    kind: str
    origin: Protocol
    definition: Json
    marked: bool = False


class Choice(StrEnum):
    """Whether the model must call a tool."""

    AUTO = "auto"
    NONE = "none"
    REQUIRED = "required"
    ONE = "one"
    """The tool named in `Request.chosen_tool`."""


@dataclass(frozen=True, slots=True)
class Thinking:
    """How much the model should think. None of a field means that the client did not say."""

    enabled: bool | None = None
    effort: str | None = None
    """One of none, minimal, low, medium, high, xhigh, max; renderers map to the nearest that their protocol has."""
    budget_tokens: int | None = None
    show: bool | None = None
    """The client wants to see summaries of the thoughts."""


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """JSON instead of prose; with a schema or any."""

    schema: Json | None = None
    name: str | None = None
    strict: bool | None = None


@dataclass(frozen=True, slots=True)
class Sampling:
    """Limits and dice."""

    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop: tuple[str, ...] = ()


class Purpose(StrEnum):
    """What the answer is for."""

    ANSWER = "answer"
    COMPACTION_ITEM = "compaction_item"
    """Codex's remote compaction: the answer must be one opaque compaction item."""
    COMPACTION_OBJECT = "compaction_object"
    """`/responses/compact`: the same, as an object of its own."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request, in no protocol."""

    model: str
    stream: bool
    instructions: tuple[Text, ...] = ()
    """Top-level instructions; those inside the conversation are messages."""
    items: tuple[Item, ...] = ()
    tools: tuple[Tool | HostedTool, ...] = ()
    choice: Choice | None = None
    chosen_tool: ToolRef | None = None
    parallel_tools: bool | None = None
    sampling: Sampling = field(default_factory=Sampling)
    thinking: Thinking = field(default_factory=Thinking)
    output_format: OutputFormat | None = None
    verbosity: str | None = None
    fast: bool | None = None
    """The client's Fast setting: `speed: fast`, or the service tier `priority`."""
    cache_key: str | None = None
    """`prompt_cache_key` as the client gave it."""
    wants_usage: bool = True
    """Chat Completions streams report usage only when asked to."""
    purpose: Purpose = Purpose.ANSWER
    keeps_thoughts: bool = True
    """The client hands back the opaque values of thoughts. Chat Completions has no place for them."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a renderer must know about the upstream it renders for."""

    model: str
    """The model's name there."""
    binding: str
    """Configured provider: an opaque value of another one is foreign even in the same protocol."""
    cache_key: str | None = None
    """A stable key of the caller's thread, for upstreams that route by one; used where the client gave none."""
    quirks: frozenset[str] = frozenset()
    """Words of `wire/quirks.py`."""
    origin: Protocol | None = None
    """The protocol that the upstream speaks: whose opaque values an answer holds."""
    readings: str | None = None
    """Row of `usage_readings.READINGS` by which its usage is read; None is the usual spelling of its protocol."""
    zero_is_unknown: bool = False
    """It fills in zeros where it knows nothing of its cache."""


# --- what an answer is made of ---


class PartKind(StrEnum):
    """Kinds of output parts."""

    TEXT = "text"
    REFUSAL = "refusal"
    THINKING = "thinking"
    TOOL_CALL = "tool_call"


class Stop(StrEnum):
    """Why the model stopped."""

    END = "end"
    TOOL_CALLS = "tool_calls"
    MAX_TOKENS = "max_tokens"
    STOP_SEQUENCE = "stop_sequence"
    REFUSAL = "refusal"
    CONTENT_FILTER = "content_filter"
    PAUSE = "pause"
    """The provider wants to be called again to go on (Anthropic's `pause_turn`)."""
    CONTEXT_FULL = "context_full"


@dataclass(frozen=True, slots=True)
class Started:
    """The answer began. Ids and time are the upstream's where it gives them."""

    answer_id: str
    model: str
    created_s: int | None = None
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class PartStarted:
    """An output part began; parts are numbered from 0 in their order and never overlap in the same number."""

    index: int
    kind: PartKind
    call: ToolCall | None = None
    """For TOOL_CALL: id and tool, with empty arguments."""
    item_id: str | None = None
    phase: str | None = None
    """As in `Message`."""


@dataclass(frozen=True, slots=True)
class Delta:
    """More of a part: text, thoughts, or arguments."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class PartEnded:
    """A part is complete."""

    index: int
    opaque: str | None = None
    """For THINKING: the signature or encrypted content."""
    redacted: bool = False
    annotations: tuple[Json, ...] = ()


@dataclass(frozen=True, slots=True)
class Counted:
    """Usage as known so far; the last one holds."""

    usage: Usage
    output_tokens: int | None = None
    reasoning_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """The answer is complete."""

    stop: Stop
    stop_sequence: str | None = None


@dataclass(frozen=True, slots=True)
class Broken:
    """The answer failed, before it began or on the way."""

    kind: ErrorKind
    status: int
    """HTTP status that says it in the target's protocol; of an error in a stream, the nearest."""
    code: str
    """The provider's own code or type; "context_length_exceeded" for every overflow."""
    message: str


Event = Started | PartStarted | Delta | PartEnded | Counted | Ended | Broken
"""An answer is Started, then parts (each PartStarted, Deltas, PartEnded) with Counted anywhere, then Ended or Broken.
Parts of parallel tool calls may overlap: their deltas carry the index of their part."""
