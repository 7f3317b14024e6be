"""Every spelling of cached tokens, in one table: a row per provider and format, read by the few lines below it.

A count is measured only when it is an integer of at least 0; anything else is unknown. Two families exist:
*exclusive* (Anthropic: the input count leaves out what was read or written) and *subset* (OpenAI: the input count
is the whole prompt). Counts come several times in a stream; the last known value of each field wins, none are added.
`docs/usage.md` shows the table to people.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from cachegate.guard.usage import Usage

Fields = Mapping[str, object]
Counts = Mapping[str, int]
"""Measured counts by their path."""

UNKNOWN = Usage()


class Format(StrEnum):
    """A shape in which answers come: the protocols, and what only one provider speaks."""

    MESSAGES = "messages"
    RESPONSES = "responses"
    CHAT = "chat"
    CLAUDE_CLI = "claude-cli"
    COPILOT_SDK = "copilot-sdk"
    GEMINI = "gemini-native"
    BEDROCK = "bedrock"
    OLLAMA = "ollama-native"


@dataclass(frozen=True, slots=True)
class Reading:
    """Where one provider puts its counts in one format.

    A count is a dotted path below the object that reports usage. `a + b` adds counts up, `b?` may be missing, and
    `c[]` stands for every item of a list. Of several spellings the first that is known holds.
    """

    total: tuple[str, ...]
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    exclusive: bool = False
    """`total` leaves out what was read and written."""
    zero_is_unknown: bool = False
    """A 0 for `read` or `write` is filled in where nothing was measured; a positive number is evidence all the same."""
    zero_is_unknown_beside: tuple[str, ...] = ()
    """Counts that, where positive, bring along such a 0."""
    late_cache_fields_inclusive: bool = False
    """Of an exclusive spelling: cache counts that come first in a later event, alone, are parts of `total` already."""
    read_beyond_total: Literal["inconsistent", "add"] = "inconsistent"
    """What a subset larger than its whole means: nonsense, or that this answer's `total` leaves it out."""

    def counts(self, report: Fields) -> Counts:
        """Return what `report` measures."""
        found = ((path, _at(report, path.split("."))) for path in _paths(self))
        return {path: value for path, value in found if value is not None}

    def usage(self, report: Fields) -> Usage:
        """Return what one report says by itself."""
        return Measurement(self).add(report)


_MESSAGES = Reading(
    total=("input_tokens",),
    read=("cache_read_input_tokens",),
    write=(
        "cache_creation_input_tokens",
        "cache_creation.ephemeral_5m_input_tokens? + cache_creation.ephemeral_1h_input_tokens?",
    ),
    exclusive=True,
)
_RESPONSES = Reading(
    total=("input_tokens",),
    read=("input_tokens_details.cached_tokens",),
    write=("input_tokens_details.cache_write_tokens",),
)
_CHAT = Reading(
    total=("prompt_tokens",),
    read=("prompt_tokens_details.cached_tokens",),
    write=("prompt_tokens_details.cache_write_tokens",),
)
_CHAT_READ = replace(_CHAT, write=())
_FILLED_MESSAGES = replace(_MESSAGES, zero_is_unknown=True)
_FILLED_RESPONSES = replace(_RESPONSES, zero_is_unknown=True)
_FILLED_CHAT = replace(_CHAT, zero_is_unknown=True)

READINGS: Mapping[str, Mapping[Format, Reading]] = {
    "anthropic": {Format.MESSAGES: _MESSAGES},
    "vertex": {Format.MESSAGES: _MESSAGES},
    "foundry": {Format.MESSAGES: _MESSAGES},
    # Raw Messages events, one set per model call; `result.usage` adds the calls of a turn up and is none.
    "claude-cli": {Format.CLAUDE_CLI: _MESSAGES},
    "openai": {Format.RESPONSES: _RESPONSES, Format.CHAT: _CHAT},
    "codex": {Format.RESPONSES: _RESPONSES},
    "azure": {Format.RESPONSES: _RESPONSES, Format.CHAT: _CHAT},
    "copilot": {Format.MESSAGES: _MESSAGES, Format.RESPONSES: _RESPONSES, Format.CHAT: _CHAT_READ},
    "copilot-sdk": {
        Format.COPILOT_SDK: Reading(total=("inputTokens",), read=("cacheReadTokens",), write=("cacheWriteTokens",))
    },
    "xai": {
        Format.RESPONSES: replace(_RESPONSES, write=(), read_beyond_total="add"),
        Format.CHAT: replace(_CHAT_READ, read_beyond_total="add"),
    },
    # A proto scalar: 0 and absent are the same thing there.
    "xai-grpc": {
        Format.CHAT: Reading(total=("prompt_tokens",), read=("cached_prompt_text_tokens",), zero_is_unknown=True)
    },
    "openrouter": {Format.MESSAGES: _MESSAGES, Format.RESPONSES: _RESPONSES, Format.CHAT: _CHAT},
    "deepseek": {
        Format.MESSAGES: _MESSAGES,
        Format.CHAT: replace(_CHAT_READ, read=("prompt_tokens_details.cached_tokens", "prompt_cache_hit_tokens")),
    },
    "gemini": {Format.CHAT: _CHAT_READ},
    "gemini-native": {
        Format.GEMINI: Reading(
            total=("promptTokenCount + toolUsePromptTokenCount?",), read=("cachedContentTokenCount",)
        )
    },
    "mistral": {
        Format.CHAT: replace(
            _CHAT_READ,
            read=(
                "num_cached_tokens",
                "prompt_tokens_details.cached_tokens",
                "prompt_token_details.cached_tokens",
            ),
        )
    },
    "moonshot": {
        Format.MESSAGES: _MESSAGES,
        Format.CHAT: replace(_CHAT_READ, read=("prompt_tokens_details.cached_tokens", "cached_tokens")),
    },
    "zai": {Format.MESSAGES: _MESSAGES, Format.CHAT: _CHAT_READ},
    "qwen": {
        Format.MESSAGES: replace(_MESSAGES, late_cache_fields_inclusive=True),
        Format.CHAT: replace(_CHAT, write=("prompt_tokens_details.cache_creation_input_tokens",)),
    },
    "bedrock": {
        Format.BEDROCK: Reading(
            total=("inputTokens",),
            read=("cacheReadInputTokens",),
            write=("cacheWriteInputTokens", "cacheDetails[].inputTokens"),
            exclusive=True,
        )
    },
    "llamacpp": {
        Format.MESSAGES: _MESSAGES,
        Format.RESPONSES: _RESPONSES,
        # The timings come with the last chunk whether usage was asked for or not. Forks without `cache_n` exist:
        # their `prompt_n` is what was processed, and no whole prompt.
        Format.CHAT: replace(
            _CHAT_READ,
            total=("prompt_tokens", "timings.cache_n + timings.prompt_n"),
            read=("prompt_tokens_details.cached_tokens", "timings.cache_n"),
        ),
    },
    "vllm": {
        Format.MESSAGES: _MESSAGES,
        Format.RESPONSES: _FILLED_RESPONSES,
        Format.CHAT: replace(_CHAT, write=("prompt_tokens_details.created_cache_tokens",)),
    },
    "sglang": {
        Format.MESSAGES: _MESSAGES,
        Format.RESPONSES: _FILLED_RESPONSES,
        # The details are printed for the sake of the image count, with a 0 even where the cache report is off.
        Format.CHAT: replace(
            _CHAT_READ,
            zero_is_unknown_beside=(
                "prompt_tokens_details.image_tokens",
                "prompt_tokens_details.audio_tokens",
                "prompt_tokens_details.video_tokens",
            ),
        ),
    },
    # No cached count but a hard-coded 0 so far; should a positive one ever come, it is evidence.
    "ollama": {Format.MESSAGES: _FILLED_MESSAGES, Format.RESPONSES: _FILLED_RESPONSES, Format.CHAT: _FILLED_CHAT},
    "ollama-native": {Format.OLLAMA: Reading(total=("prompt_eval_count",), read=("prompt_eval_cached_count",))},
    "lmstudio": {Format.MESSAGES: _FILLED_MESSAGES, Format.RESPONSES: _FILLED_RESPONSES, Format.CHAT: _FILLED_CHAT},
    "openai-compatible": {Format.MESSAGES: _MESSAGES, Format.RESPONSES: _RESPONSES, Format.CHAT: _CHAT},
}
"""How each provider spells its counts, by the name that a preset's `readings` or `cachegate read-usage` gives it."""


def reading_of(readings: str, shape: Format, *, zero_is_unknown: bool = False) -> Reading:
    """Return a row of the table. `zero_is_unknown` is for a proxy in between that fills in zeros.

    Raises KeyError where the provider does not speak the format.
    """
    row = READINGS[readings][shape]
    return replace(row, zero_is_unknown=True) if zero_is_unknown else row


class Measurement:
    """The counts of one model call, as far as its answer has told them."""

    __slots__ = ("_counts", "_late", "_reading", "inconsistent", "usage")

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._counts: Counts = {}
        self._late = False
        self.usage = UNKNOWN
        """What is known so far."""
        self.inconsistent = False
        """The provider reported a part that is larger than its whole."""

    def add(self, report: Fields) -> Usage:
        """Take in one more report of the same call, and return what is known now. No null erases what was known."""
        newer = self._reading.counts(report)
        if _judged(self._reading, newer).usage.input_total == 0:
            # The zeros of a placeholder must not pass for measured ones once a later report fills in the total.
            return self.usage
        self._late = self._is_late(newer)
        filled = self._reading.zero_is_unknown
        told = {path: value for path, value in newer.items() if value or not filled or path not in self._counts}
        counts = {**self._counts, **told}
        judged = _judged(self._reading, counts, late=self._late)
        self.inconsistent = judged.inconsistent
        parts_known = self.usage != Usage(self.usage.input_total)
        if not (judged.inconsistent and parts_known):
            self._counts, self.usage = counts, self.usage.updated(judged.usage)
        return self.usage

    def _is_late(self, newer: Counts) -> bool:
        reading = self._reading
        if not reading.late_cache_fields_inclusive or _known(reading.total, newer) is not None:
            return False
        cache = (*reading.read, *reading.write)
        return self._late or (_known(cache, self._counts) is None and _known(cache, newer) is not None)


def side_calls(usage: Fields, reading: Reading) -> tuple[tuple[str, Usage], ...]:
    """Return the calls that a provider made on the side of this one, such as its own compaction, by their type.

    They have caches of their own and are left out of the top level.
    """
    listed = usage.get("iterations")
    calls = [fields(item) for item in listed] if isinstance(listed, list) else []
    return tuple((str(call.get("type")), reading.usage(call)) for call in calls if call.get("type") != "message")


def count(value: object) -> int | None:
    """Return a measured count, or None: a bool, a float, a string or a negative number measures nothing."""
    return value if type(value) is int and value >= 0 else None


def fields(value: object) -> Fields:
    """Return a JSON object's fields, none for anything else."""
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[object]:
    """Return a JSON array's items, none for anything else."""
    return value if isinstance(value, list) else []


@dataclass(frozen=True, slots=True)
class _Judged:
    usage: Usage
    inconsistent: bool = False


def _judged(reading: Reading, counts: Counts, *, late: bool = False) -> _Judged:
    """Make one observation of the counts: the whole, its parts, and whether they go together."""
    total, read, write = (_known(spellings, counts) for spellings in (reading.total, reading.read, reading.write))
    if reading.zero_is_unknown or any(counts.get(path) for path in reading.zero_is_unknown_beside):
        read, write = read or None, write or None
    if total is None:
        return _Judged(Usage(None, read, write))
    if reading.exclusive:
        cached = (read or 0) + (write or 0)
        total = max(total, cached) if late else total + cached
    elif (read or 0) > total and reading.read_beyond_total == "add":
        total += read or 0
    elif max(read or 0, write or 0) > total:
        return _Judged(Usage(total), inconsistent=True)
    return _Judged(Usage(total, read, write))


def _known(spellings: tuple[str, ...], counts: Counts) -> int | None:
    """Return the first spelling that is known."""
    return next((value for spelling in spellings if (value := _sum(spelling, counts)) is not None), None)


def _sum(spelling: str, counts: Counts) -> int | None:
    terms = [(counts.get(path), optional) for path, optional in _terms(spelling)]
    if any(value is None and not optional for value, optional in terms):
        return None
    found = [value for value, _ in terms if value is not None]
    return sum(found) if found else None


@functools.cache
def _terms(spelling: str) -> tuple[tuple[str, bool], ...]:
    """Return the paths of a sum, and whether each may be missing."""
    return tuple((term.removesuffix("?"), term.endswith("?")) for term in spelling.split(" + "))


@functools.cache
def _paths(reading: Reading) -> tuple[str, ...]:
    spellings = (*reading.total, *reading.read, *reading.write, *reading.zero_is_unknown_beside)
    return tuple(dict.fromkeys(path for spelling in spellings for path, _ in _terms(spelling)))


def _at(value: object, names: list[str]) -> int | None:
    """Return the count at a path; of a list, the sum of what its items measure."""
    if not names:
        return count(value)
    name, rest = names[0], names[1:]
    if not name.endswith("[]"):
        return _at(fields(value).get(name), rest)
    found = [
        part for item in items(fields(value).get(name.removesuffix("[]"))) if (part := _at(item, rest)) is not None
    ]
    return sum(found) if found else None
