"""What each provider says of its cache, in its own spelling, and what that means.

Every report speaks of 12,000 tokens. *Warm* read 9,000 of them, *cold* read none and says so, *silent* says nothing of
its cache. Where a 0 is only filled in, cold means as little as silent.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cachegate.guard.usage import Usage
from cachegate.wire.facts import Protocol
from contract.preset_facts import FACTS, C, M, R

Json = Mapping[str, Any]

TOTAL, READ, WRITTEN, OUTPUT = 12_000, 9_000, 2_000, 7
UNKNOWN = Usage(TOTAL)


@dataclass(frozen=True, slots=True)
class Report:
    """Of one answer."""

    told: Json | None
    """The usage at its end, and in an unstreamed answer."""
    means: Usage
    begins: Json = field(default_factory=dict)
    """Messages: the usage in the first event of a stream."""
    beside: Json = field(default_factory=dict)
    """Chat: what stands beside the usage in its chunk."""


Reports = Mapping[str, Report]

_OUT = {"output_tokens": OUTPUT}


def _message(
    means: Usage, cache: Mapping[str, int] | None = None, *, late: bool = False, begins: Json | None = None
) -> Report:
    """Anthropic's spelling; `late`: the cache is spoken of at the end of the stream only."""
    known = cache or {}
    counts = {"input_tokens": TOTAL - sum(known.values()), **known}
    first: Json = {"input_tokens": TOTAL, "output_tokens": 0} if late else {**counts, "output_tokens": 1}
    last = {**counts, **_OUT} if late or begins is not None else _OUT
    return Report(last, means, first if begins is None else begins)


def _read(read: int, written: int | None = None) -> dict[str, int]:
    cached = {"cache_read_input_tokens": read}
    return cached if written is None else {**cached, "cache_creation_input_tokens": written}


_ZEROS = {"input_tokens": 0, "output_tokens": 0, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
_NO_CACHE = _message(UNKNOWN)
_WRITING: Reports = {
    "warm": _message(Usage(TOTAL, READ, WRITTEN), _read(READ, WRITTEN)),
    "cold": _message(Usage(TOTAL, 0, 0), _read(0, 0)),
    "silent": _NO_CACHE,
}
_READING: Reports = {
    "warm": _message(Usage(TOTAL, READ, 0), _read(READ, 0)),
    "cold": _message(Usage(TOTAL, 0, 0), _read(0, 0)),
    "silent": _NO_CACHE,
}
_FILLED_IN: Reports = {"cold": _message(UNKNOWN, _read(0, 0)), "silent": _NO_CACHE}
_LATE_WARM = _message(Usage(TOTAL, READ), _read(READ), late=True)
_LATE_COLD = _message(Usage(TOTAL, 0), _read(0), late=True)

MESSAGES: Mapping[str, Reports] = {
    "anthropic": _WRITING,
    "openrouter": _WRITING,
    "deepseek": _READING,
    "moonshot": _READING,
    "zai": {  # nothing but zeros in front
        "warm": _message(Usage(TOTAL, READ), _read(READ), begins=_ZEROS),
        "cold": _message(Usage(TOTAL, 0), _read(0), begins=_ZEROS),
        "silent": _message(UNKNOWN, begins=_ZEROS),
    },
    "llamacpp": {
        "warm": _message(Usage(TOTAL, READ), _read(READ)),
        "cold": _message(Usage(TOTAL, 0), _read(0)),
        "silent": _NO_CACHE,
    },
    "vllm": {"warm": _LATE_WARM, "cold": _LATE_COLD, "silent": _NO_CACHE},
    "sglang": {"warm": _LATE_WARM, "silent": _NO_CACHE},  # leaves out a 0
    "ollama": _FILLED_IN,
    "lmstudio": _FILLED_IN,
}


def _response(means: Usage, **cache: int) -> Report:
    details = {"input_tokens_details": cache} if cache else {}
    counts = {"input_tokens": TOTAL, "output_tokens": OUTPUT, "total_tokens": TOTAL + OUTPUT}
    return Report({**counts, **details, "output_tokens_details": {"reasoning_tokens": 0}}, means)


_SILENT_RESPONSE = _response(UNKNOWN)
_OPENAI_RESPONSES: Reports = {
    "warm": _response(Usage(TOTAL, READ, WRITTEN), cached_tokens=READ, cache_write_tokens=WRITTEN),
    "cold": _response(Usage(TOTAL, 0, 0), cached_tokens=0, cache_write_tokens=0),
    "silent": _SILENT_RESPONSE,
}
_READING_RESPONSES: Reports = {
    "warm": _response(Usage(TOTAL, READ), cached_tokens=READ),
    "cold": _response(Usage(TOTAL, 0), cached_tokens=0),
    "silent": _SILENT_RESPONSE,
}
_FILLED_RESPONSES: Reports = {
    "warm": _response(Usage(TOTAL, READ), cached_tokens=READ, cache_write_tokens=0),
    "cold": _response(UNKNOWN, cached_tokens=0, cache_write_tokens=0),
    "silent": _SILENT_RESPONSE,
}
_HARD_CODED: Reports = {"cold": _response(UNKNOWN, cached_tokens=0), "silent": _SILENT_RESPONSE}

RESPONSES: Mapping[str, Reports] = {
    "openai": _OPENAI_RESPONSES,
    "codex": {**_OPENAI_RESPONSES, "silent": Report(None, Usage())},
    "azure": _OPENAI_RESPONSES,
    "openrouter": _OPENAI_RESPONSES,
    "xai": _READING_RESPONSES,
    "llamacpp": _READING_RESPONSES,
    "vllm": _FILLED_RESPONSES,
    "sglang": _FILLED_RESPONSES,
    "ollama": _HARD_CODED,
    "lmstudio": _HARD_CODED,
}


def _chat(means: Usage, details: Json | None = None, *, prompt: int = TOTAL, **more: Any) -> Report:
    counts = {"prompt_tokens": prompt, "completion_tokens": OUTPUT, "total_tokens": prompt + OUTPUT}
    return Report({**counts, "prompt_tokens_details": details, **more}, means)


def _beside(report: Report, **fields: Any) -> Report:
    told = {name: value for name, value in (report.told or {}).items() if name != "prompt_tokens_details"}
    return Report(told, report.means, beside=fields)


_SILENT_CHAT = _chat(UNKNOWN)
_DETAILS: Reports = {
    "warm": _chat(Usage(TOTAL, READ), {"cached_tokens": READ}),
    "cold": _chat(Usage(TOTAL, 0), {"cached_tokens": 0}),
    "silent": _SILENT_CHAT,
}
_OPENAI_CHAT: Reports = {
    "warm": _chat(Usage(TOTAL, READ, WRITTEN), {"cached_tokens": READ, "cache_write_tokens": WRITTEN}),
    "cold": _chat(Usage(TOTAL, 0, 0), {"cached_tokens": 0, "cache_write_tokens": 0, "audio_tokens": 0}),
    "silent": _SILENT_CHAT,
}


def _deepseek(means: Usage, hit: int) -> Report:
    return _chat(means, prompt_cache_hit_tokens=hit, prompt_cache_miss_tokens=TOTAL - hit)


def _qwen(means: Usage, read: int, written: int) -> Report:
    return _chat(means, {"cached_tokens": read, "cache_creation_input_tokens": written, "cache_type": "ephemeral"})


def _llamacpp(means: Usage, **timings: int) -> Report:
    return _beside(_chat(means), timings={**timings, "predicted_n": OUTPUT, "predicted_ms": 1.5})


_PROVIDERS_CHAT: Mapping[str, Reports] = {
    "openai": _OPENAI_CHAT,
    "azure": _OPENAI_CHAT,
    "openrouter": _OPENAI_CHAT,
    "xai": {**_DETAILS, "warm": _chat(Usage(TOTAL, READ), {"cached_tokens": READ}, prompt=TOTAL - READ)},
    "deepseek": {
        "warm": _deepseek(Usage(TOTAL, READ), READ),
        "cold": _deepseek(Usage(TOTAL, 0), 0),
        "silent": _SILENT_CHAT,
    },
    "mistral": {
        "warm": _chat(Usage(TOTAL, READ), num_cached_tokens=READ),
        "cold": _chat(Usage(TOTAL, 0), num_cached_tokens=0),
        "silent": _SILENT_CHAT,
    },
    "moonshot": {
        "warm": _chat(Usage(TOTAL, READ), cached_tokens=READ),
        "cold": _chat(Usage(TOTAL, 0), cached_tokens=0),
        "silent": _SILENT_CHAT,
    },
    "qwen": {
        "warm": _qwen(Usage(TOTAL, READ, WRITTEN), READ, WRITTEN),
        "cold": _qwen(Usage(TOTAL, 0, 0), 0, 0),
        "silent": _SILENT_CHAT,
    },
    "groq": {
        state: Report(report.told, report.means, beside={"x_groq": {"id": "req_1", "usage": report.told}})
        for state, report in _DETAILS.items()
    },
    "llamacpp": {
        "warm": _llamacpp(Usage(TOTAL, READ), cache_n=READ, prompt_n=TOTAL - READ),
        "cold": _llamacpp(Usage(TOTAL, 0), cache_n=0, prompt_n=TOTAL),
        "silent": _llamacpp(UNKNOWN, prompt_n=TOTAL - READ),  # a fork that leaves out what it read
    },
    "vllm": {
        **_DETAILS,
        "warm": _chat(Usage(TOTAL, READ, WRITTEN), {"cached_tokens": READ, "created_cache_tokens": WRITTEN}),
    },
    # Counts of pictures bring along a 0 that nobody measured.
    "sglang": {**_DETAILS, "silent": _chat(UNKNOWN, {"cached_tokens": 0, "image_tokens": 576})},
    "ollama": {"cold": _chat(UNKNOWN, {"cached_tokens": 0}), "silent": _SILENT_CHAT},
    "lmstudio": {"cold": _chat(UNKNOWN, {"cached_tokens": 0}), "silent": _SILENT_CHAT},
}
CHAT: Mapping[str, Reports] = {
    kind: _PROVIDERS_CHAT.get(kind, _DETAILS) for kind, facts in FACTS.items() if C in facts.paths
}

REPORTS: Mapping[Protocol, Mapping[str, Reports]] = {M: MESSAGES, R: RESPONSES, C: CHAT}


def usual(kind: str, spoken: Protocol) -> Report:
    """What the provider says of a conversation that it had in its cache, as far as it ever speaks of that."""
    reports = REPORTS[spoken][kind]
    return reports.get("warm") or reports["silent"]
