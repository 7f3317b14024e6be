"""What a turn tells while it runs, and what it comes to. What nobody reported is None, never 0."""

from collections.abc import Mapping
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Tokens:
    """Counts of one request or of many; each is None where the provider did not say."""

    input: int | None = None
    """Everything that went in, what was read from the cache included."""
    cached: int | None = None
    """The part of `input` that was read from the provider's prompt cache."""
    cache_write: int | None = None
    """The part of `input` that was written to it."""
    output: int | None = None
    total: int | None = None

    def __add__(self, other: "Tokens") -> "Tokens":
        """Return the sum; one with an unknown part is unknown."""
        sums = {
            part.name: None if mine is None or others is None else mine + others
            for part in fields(self)
            for mine, others in [(getattr(self, part.name), getattr(other, part.name))]
        }
        return Tokens(**sums)


NO_TOKENS = Tokens(0, 0, 0, 0, 0)
"""What nothing took; the beginning of every sum."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a chat took so far."""

    last: Tokens = Tokens()
    """Of its newest request."""
    total: Tokens = NO_TOKENS
    """Of all its requests. One whose end was never heard makes it unknown from then on."""

    def plus(self, tokens: Tokens) -> "Usage":
        """Return the usage after one request more."""
        return Usage(tokens, self.total + tokens)


@dataclass(frozen=True, slots=True)
class Answer:
    """A finished turn."""

    text: str
    """What the model said after its last tool round; of a refusal, its words."""
    tokens: Tokens
    """What all requests of the turn took together."""
    incomplete: str | None = None
    """Why the answer was cut short, such as `max_output_tokens`; None for a complete one."""
    refused: bool = False
    """The model refused to answer."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The model says more."""

    text: str


@dataclass(frozen=True, slots=True)
class ThoughtDelta:
    """The model thinks more, as far as its provider shows it."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """The model calls a tool; it runs now."""

    call_id: str
    name: str
    arguments: Mapping[str, object] | str
    """A string where the model wrote something that is no JSON object: such a call fails."""


@dataclass(frozen=True, slots=True)
class ToolAnswered:
    """A tool has run; the model hears `output` next."""

    call_id: str
    name: str
    output: str
    success: bool
    """Whether the tool ran without raising; otherwise `output` says what went wrong."""


@dataclass(frozen=True, slots=True)
class UsageUpdated:
    """One request of the turn has ended."""

    usage: Usage
    """Of the whole chat."""


@dataclass(frozen=True, slots=True)
class Completed:
    """The turn is over; always the last event."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class Compacted:
    """A compaction succeeded."""

    summary: str
    """The text that stands for the conversation from now on."""
    tokens: Tokens


Event = TextDelta | ThoughtDelta | ToolCalled | ToolAnswered | UsageUpdated | Completed
"""What `stream()` yields."""
