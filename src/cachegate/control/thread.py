"""A thread, its turns and their items as values, and as the JSON objects that a client is shown. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

import msgspec

from cachegate.guard.usage import Usage
from cachegate.wire.body import encode
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import Item, Text, Tool

Json = Mapping[str, object]
"""An object as a client is shown it."""


# --- tokens ---


@dataclass(frozen=True, slots=True)
class Tokens:
    """What requests used. None is unknown, and never 0."""

    input: int | None = None
    cached: int | None = None
    written: int | None = None
    output: int | None = None

    @classmethod
    def of(cls, usage: Usage, output: int | None) -> "Tokens":
        """Return what one request used."""
        return cls(usage.input_total, usage.cached_read, usage.cache_write, output)

    def plus(self, more: "Tokens") -> "Tokens":
        """Return the sum; unknown where any part of it is."""
        return Tokens(
            _sum(self.input, more.input),
            _sum(self.cached, more.cached),
            _sum(self.written, more.written),
            _sum(self.output, more.output),
        )

    def shown(self) -> Json:
        """Return it as a client is shown it."""
        return {
            "inputTokens": self.input,
            "cachedInputTokens": self.cached,
            "cacheWriteInputTokens": self.written,
            "outputTokens": self.output,
            "totalTokens": _sum(self.input, self.output),
        }


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Of a thread: the last request, and all of them. Before the first, no last one is known, and the sum is 0."""

    last: Tokens = Tokens()
    total: Tokens = Tokens(0, 0, 0, 0)

    def plus(self, tokens: Tokens) -> "TokenUsage":
        """Return the usage after one more request."""
        return TokenUsage(tokens, self.total.plus(tokens))

    def shown(self) -> Json:
        """Return it as a client is shown it."""
        return {"last": self.last.shown(), "total": self.total.shown()}


# --- items ---


class Progress(StrEnum):
    """How far a tool call is."""

    RUNNING = "inProgress"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class UserMessage:
    """What the user sent."""

    id: str
    content: tuple[Json, ...]

    def shown(self) -> Json:
        """Return it as a client is shown it."""
        return {"type": "userMessage", "id": self.id, "content": self.content}


@dataclass(frozen=True, slots=True)
class AgentMessage:
    """What the model said."""

    id: str
    text: str

    def shown(self) -> Json:
        """Return it as a client is shown it."""
        return {"type": "agentMessage", "id": self.id, "text": self.text}


@dataclass(frozen=True, slots=True)
class Thought:
    """What may be read of the model's thoughts."""

    id: str
    text: str

    def shown(self) -> Json:
        """Return it as a client is shown it."""
        return {"type": "reasoning", "id": self.id, "text": self.text}


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool that the client runs, and what it answered."""

    id: str
    tool: str
    arguments: object
    """An object, or the text where the model wrote none."""
    progress: Progress = Progress.RUNNING
    content: tuple[Json, ...] | None = None
    success: bool | None = None

    def shown(self) -> Json:
        """Return it as a client is shown it."""
        return {
            "type": "dynamicToolCall",
            "id": self.id,
            "tool": self.tool,
            "arguments": self.arguments,
            "status": self.progress.value,
            "contentItems": self.content,
            "success": self.success,
        }


@dataclass(frozen=True, slots=True)
class Compaction:
    """The conversation became a summary."""

    id: str
    summary: str | None = None

    def shown(self) -> Json:
        """Return it as a client is shown it."""
        told = {} if self.summary is None else {"summary": self.summary}
        return {"type": "contextCompaction", "id": self.id, **told}


ShownItem = UserMessage | AgentMessage | Thought | ToolUse | Compaction


# --- turns ---


class TurnStatus(StrEnum):
    """How a turn goes, or went."""

    RUNNING = "inProgress"
    COMPLETED = "completed"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class CacheStop:
    """The guard stopped a request: nothing was sent to the provider."""

    reason: str
    """`measured` or `unreported`."""
    count: int
    wait_s: int

    def shown(self) -> Json:
        """Return it as a client is shown it."""
        return {"reason": self.reason, "count": self.count, "waitSeconds": self.wait_s}


@dataclass(frozen=True, slots=True)
class TurnError:
    """Why a turn failed."""

    message: str
    status: int
    """HTTP status of the answer, or the nearest."""
    context_full: bool = False
    """The provider said that the context is full. A stop of the guard never is."""
    stop: CacheStop | None = None

    def shown(self) -> Json:
        """Return it as a client is shown it."""
        return {
            "message": self.message,
            "codexErrorInfo": "contextWindowExceeded" if self.context_full else "other",
            "cacheStop": None if self.stop is None else self.stop.shown(),
            "status": self.status,
        }


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn, from a user's message to the end of what it set off."""

    id: str
    status: TurnStatus = TurnStatus.RUNNING
    error: TurnError | None = None
    items: tuple[ShownItem, ...] = ()

    def put(self, item: ShownItem) -> "Turn":
        """Return the turn with an item, in the place of the one with its id or behind all others."""
        kept = {each.id: each for each in self.items}
        return replace(self, items=tuple({**kept, item.id: item}.values()))

    def shown(self) -> Json:
        """Return it as a client is shown it."""
        error = None if self.error is None else self.error.shown()
        return {
            "id": self.id,
            "status": self.status.value,
            "error": error,
            "items": [item.shown() for item in self.items],
        }


# --- threads ---


@dataclass(frozen=True, slots=True)
class Settings:
    """What every request of a thread has in common."""

    model: str
    protocol: Protocol = Protocol.RESPONSES
    instructions: str | None = None
    tools: tuple[Tool, ...] = ()
    effort: str | None = None
    max_output_tokens: int | None = None


SHOWN_TURNS_MAX = 1_024
"""Turns of a thread that are kept to be shown; what the model is told is kept apart from them."""
SHOWN_BYTES_MAX = 33_554_432
"""Bytes of them: a snapshot has to fit into a frame that a client takes."""


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread as it stands between two requests."""

    id: str
    tenant: str
    settings: Settings
    created_s: int
    updated_s: int
    name: str | None = None
    history: tuple[Item, ...] = ()
    """What the model is told: in the hub, so that it is rendered alike every time."""
    turns: tuple[bytes, ...] = field(default=(), repr=False)
    """Finished turns as JSON, oldest first."""
    usage: TokenUsage = TokenUsage()
    context_full: bool = False

    def ended(self, turn: Turn, now_s: int) -> "Thread":
        """Return the thread with one more finished turn; the oldest ones go where there are too many."""
        turns = (*self.turns, encode(turn.shown()))[-SHOWN_TURNS_MAX:]
        size = sum(map(len, turns))
        while size > SHOWN_BYTES_MAX and len(turns) > 1:
            size -= len(turns[0])
            turns = turns[1:]
        return replace(self, turns=turns, updated_s=now_s)

    def shown(self, cursor: str, *, active: bool) -> Json:
        """Return it as a client is shown it, without its turns."""
        return {
            "id": self.id,
            "name": self.name,
            "model": self.settings.model,
            "protocol": self.settings.protocol.value,
            "createdAt": self.created_s,
            "updatedAt": self.updated_s,
            "status": "active" if active else "idle",
            "contextFull": self.context_full,
            "tokenUsage": self.usage.shown(),
            "cursor": cursor,
        }

    def shown_whole(self, cursor: str, running: Turn | None) -> Json:
        """Return it with its turns, the one under way as the last."""
        now = () if running is None else (encode(running.shown()),)
        turns = [msgspec.Raw(turn) for turn in (*self.turns, *now)]
        return {**self.shown(cursor, active=running is not None), "turns": turns}


def instructions_of(settings: Settings) -> tuple[Text, ...]:
    """Return the instructions as the hub has them."""
    return (Text(settings.instructions),) if settings.instructions else ()
