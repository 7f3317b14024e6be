"""Payloads of many providers with the usage that must be read from them, and the list of those left for later.

The data is shared by all readers; `usage_cases.json` holds every case of a protocol that the gateway speaks today,
and under `ids` the name of every case there is, so that none is left out in silence.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cachegate.guard.usage import Usage
from cachegate.wire.body import encode
from cachegate.wire.facts import Protocol
from cachegate.wire.protocols import DIALECTS
from cachegate.wire.seen import Failed, Finished, Refusal, Seen
from cachegate.wire.sse import SseReader, frame

LATER = {
    "no Chat Completions yet": (
        "oai-chat-sse-usage-after-finish", "oai-chat-details-empty", "oai-chat-invalid-values",
        "oai-chat-cached-exceeds-total", "azure-chat-sse", "copilot-chat-claude", "xai-chat-miss", "xai-chat-exclusive",
        "openrouter-chat-sse", "deepseek-hit-miss", "deepseek-miss", "gemini-compat-no-details", "mistral-num-cached",
        "moonshot-choice-usage", "moonshot-absent", "zai-chat", "qwen-chat-explicit", "llamacpp-chat-json",
        "llamacpp-sse-timings-only", "vllm-details-zero", "sglang-multimodal-false-zero", "ollama-chat",
        "lmstudio-chat", "FU05", "FU08", "FU11",
    ),
    "no Copilot SDK yet": (
        "copilot-sdk-warm", "copilot-sdk-zero-unreported", "copilot-sdk-flag-absent", "copilot-sdk-subagent",
    ),
    "no Claude CLI yet": ("claude-cli-two-calls-one-turn", "claude-cli-failed-after-start"),
    "no Gemini, Bedrock or Ollama protocol yet": (
        "gemini-native-warm", "gemini-native-absent", "bedrock-json", "bedrock-stream-no-cache", "ollama-native",
        "FU03",
    ),
    "no option zero_is_unknown yet": (
        "vllm-responses-false-zero", "sglang-responses-false-zero", "ollama-responses-hardcoded",
    ),
    "no option late_cache_fields_inclusive yet": ("qwen-messages-late-cache",),
    "nothing to measure: a matter of translation": ("FU13", "FU15", "FU16"),
    "nothing to measure: a matter of the guard or the road": ("FU10", "FS03", "FS04", "FM03", "FM07"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class UsageCase:
    """One answer of a provider, streamed (`events`) or whole (`body`), and what it says."""

    name: str
    protocol: Protocol
    body: dict[str, Any] | None
    events: tuple[dict[str, Any], ...]
    status: int
    usage: Usage
    uncached: int | None
    outcome: str
    """`error`, `refusal`, `incomplete`, or nothing of note."""


def _loaded() -> dict[str, Any]:
    data: dict[str, Any] = json.loads((Path(__file__).parent / "usage_cases.json").read_text("utf-8"))
    return data


def _case(row: dict[str, Any]) -> UsageCase:
    return UsageCase(
        name=row["id"],
        protocol=Protocol(row["protocol"]),
        body=row.get("body"),
        events=tuple(row.get("events", ())),
        status=row.get("status", 200),
        usage=Usage(*row["usage"]),
        uncached=row["uncached"],
        outcome=row.get("outcome", ""),
    )


IDS = frozenset(_loaded()["ids"])
_POSTPONED = frozenset(name for names in LATER.values() for name in names)
CASES = tuple(_case(row) for row in _loaded()["cases"] if row["id"] not in _POSTPONED)


def cases(protocol: Protocol) -> list[UsageCase]:
    return [case for case in CASES if case.protocol is protocol]


def seen_in(case: UsageCase) -> tuple[Seen, ...]:
    """Return everything the protocol's reader observes."""
    reader = DIALECTS[case.protocol].reader()
    if case.body is not None:
        return reader.read_body(case.status, encode(case.body))
    _, events = SseReader().feed(b"".join(frame(event["type"], encode(event)) for event in case.events))
    return tuple(item for event in events for item in reader.read(event))


def folded(seen: tuple[Seen, ...]) -> Usage:
    """Fold the observations as the road does."""
    usage = Usage()
    for item in seen:
        usage = usage.updated(item) if isinstance(item, Usage) else usage
    return usage


def outcome_of(case: UsageCase, seen: tuple[Seen, ...]) -> str:
    """Name the end. For a reader a `response.incomplete` is the protocol's own end; here it is what it says."""
    if any(isinstance(item, Failed) for item in seen):
        return "error"
    if Refusal() in seen:
        return "refusal"
    cut_short = case.events and case.events[-1]["type"] == "response.incomplete"
    return "" if Finished() in seen and not cut_short else "incomplete"
