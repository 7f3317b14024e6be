"""How each provider says that it refuses to answer (R17), as a table; no transport error is a refusal."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Place(StrEnum):
    """Where a signal stands."""

    REASON = "reason"
    """Why an answer ended: `stop_reason`, `finish_reason`, `incomplete_details.reason`, and their relatives."""
    FIELD = "field"
    """Of a message, a usage event or `promptFeedback`: not empty."""
    PART = "content part"
    EVENT = "event"
    CODE = "error code or type"
    MESSAGE = "error message"
    """Words in it, in lower case."""
    TEXT = "text of the Claude CLI"
    """A pattern. Only what the CLI says itself is searched, never what the model wrote."""


@dataclass(frozen=True, slots=True)
class Signal:
    """One way to refuse."""

    place: Place
    word: str
    sender: str


SIGNALS = (
    Signal(Place.REASON, "refusal", "Anthropic, Claude CLI"),
    Signal(Place.REASON, "content_filter", "OpenAI, Azure, Gemini's OpenAI API, Copilot"),
    Signal(Place.REASON, "sensitive", "Z.ai"),
    Signal(Place.REASON, "guardrail_intervened", "Bedrock"),
    Signal(Place.REASON, "content_filtered", "Bedrock"),
    Signal(Place.REASON, "SAFETY", "Gemini"),
    Signal(Place.REASON, "PROHIBITED_CONTENT", "Gemini"),
    Signal(Place.FIELD, "refusal", "OpenAI Chat Completions"),
    Signal(Place.FIELD, "contentFilterTriggered", "Copilot SDK"),
    Signal(Place.FIELD, "blockReason", "Gemini"),
    Signal(Place.PART, "refusal", "OpenAI Responses"),
    Signal(Place.EVENT, "response.refusal.delta", "OpenAI Responses"),
    Signal(Place.EVENT, "response.refusal.done", "OpenAI Responses"),
    Signal(Place.CODE, "invalid_prompt", "OpenAI"),
    Signal(Place.CODE, "bio_policy", "OpenAI"),
    Signal(Place.CODE, "misalignment_policy_violation", "OpenAI"),
    Signal(Place.CODE, "cyber_policy", "Codex, OpenRouter"),
    Signal(Place.CODE, "content_filter", "Azure"),
    Signal(Place.CODE, "ResponsibleAIPolicyViolation", "Azure, as the inner error"),
    Signal(Place.CODE, "refusal", "OpenRouter"),
    Signal(Place.CODE, "content_policy_violation", "OpenRouter"),
    Signal(Place.CODE, "flagged_input", "OpenRouter's moderation, as a field of `metadata`"),
    Signal(Place.MESSAGE, "content filtering policy", "Anthropic"),
    Signal(Place.TEXT, r"can.?t help with this\. start a new session to continue", "Claude CLI"),
    Signal(Place.TEXT, r"unable to respond to this request, which appears to violate our usage policy", "Claude CLI"),
)


def _words(place: Place) -> frozenset[str]:
    return frozenset(signal.word for signal in SIGNALS if signal.place is place)


REASONS, CODES, EVENTS = _words(Place.REASON), _words(Place.CODE), _words(Place.EVENT)
_FIELDS, _PARTS, _MESSAGES = _words(Place.FIELD), _words(Place.PART), _words(Place.MESSAGE)
_TEXT = re.compile("|".join(sorted(_words(Place.TEXT))), re.IGNORECASE)


def ended_by_refusal(reason: object) -> bool:
    """Whether an answer that ended for this reason was refused, or filtered away."""
    return isinstance(reason, str) and reason in REASONS


def carries_refusal(holder: Mapping[str, object]) -> bool:
    """Whether an object has a field of its own for a refusal, and something in it."""
    return any(value is True or (isinstance(value, str) and value != "") for value in map(holder.get, _FIELDS))


def is_refusing_part(part_type: object) -> bool:
    """Whether a content part of this type is a refusal."""
    return isinstance(part_type, str) and part_type in _PARTS


def is_refusing_error(words: Iterable[str], text: str) -> bool:
    """Whether an error refuses what was asked, rather than how: by its codes and types, or by its message."""
    lower = text.lower()
    return not CODES.isdisjoint(words) or any(message in lower for message in _MESSAGES)


def is_refusing_text(text: str) -> bool:
    """Whether the Claude CLI says, in words of its own, that the model refused."""
    return _TEXT.search(text) is not None
