"""When a context really is full: how each provider says so, as a table, and how each protocol has to be told.

Clients compact on this error and on no other, so it must stay recognisable when it is translated, and nothing else,
least of all a stop of the guard, may look like it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from cachegate.wire.body import encode
from cachegate.wire.facts import Protocol
from cachegate.wire.usage_readings import Fields, count

CODE = "context_length_exceeded"
"""OpenAI's own code, and the word for an overflow in our records."""

CODES = frozenset(
    {
        CODE,  # OpenAI, Codex, Azure; OpenRouter as `metadata.error_type`
        "model_max_prompt_tokens_exceeded",  # Copilot
        "context_limit",  # Copilot SDK
        "exceed_context_size_error",  # llama.cpp, as the type
        "input_too_large",  # xAI
        "prompt_too_long",  # Claude CLI, as `terminal_reason`
        "model_context_window_exceeded",  # as an error of those that also use it as a reason
    }
)
"""Error codes and types that say it, whatever the message."""

REASONS = frozenset({"model_context_window_exceeded"})  # Anthropic, Bedrock, Z.ai
"""Reasons to end an answer that began well."""

PATTERNS = (
    r"prompt is too long",  # Anthropic
    r"input is too long for requested model",  # Bedrock
    r"exceeds the context window",  # OpenAI
    r"input token count\s+(?:\(\d+\)\s+)?exceeds the maximum",  # Gemini
    r"maximum prompt length is \d+",  # xAI
    r"reduce the length of the messages",  # Groq, vLLM
    r"maximum context length (?:is|of) \d+ tokens",  # OpenRouter, vLLM, SGLang, DeepSeek
    r"(?:prompt|input|context) token count of \d+ exceeds the limit of \d+",  # Copilot
    r"exceeds the available context size",  # llama.cpp
    r"context size has been exceeded",  # llama.cpp, in an answer that grew too large beside those of other slots
    r"greater than the context length",  # LM Studio
    r"context window exceeds limit",  # MiniMax
    r"exceeded model token limit",  # Moonshot
    r"too large for model with \d+ maximum context length",  # Mistral
    r"context[_ ]length[_ ]exceeded",
    r"exceed context limit",  # Anthropic, input and max_tokens together
    r"input_too_large",  # xAI
    r"prompt tokens (?:\(\d+\) )?exceeds? model maximum",  # Bedrock
    r"longer than the (?:model's )?context length",  # Ollama, SGLang, Together
    r"exceeds the context length",  # Ollama
    r"range of input length should be \[\d+,? ?\d+\]",  # Qwen
)
"""What error messages say; upper and lower case are the same."""

EXCLUDED_CODES = frozenset(
    {
        "string_above_max_length",  # one field, not the conversation
        "array_above_max_length",  # too many tools
        "integer_above_max_value",  # more output asked for than there can be
        "rate_limit_exceeded",
        "rate_limit_error",
        "insufficient_quota",
        "request_too_large",  # in bytes
        "image_too_large",
        "image_file_too_large",
    }
)
"""Codes and types that speak of another limit: of one field, of a rate, of bytes, of the output."""
EXCLUDED = (
    r"string_above_max_length",
    r"invalid ['\"`]?(?:user|safety_identifier)\b",
    r"['\"`](?:user|safety_identifier)['\"`][^.]*(?:too long|exceeds|maximum length|characters)",
    # A rate, also where no code and no status says so, as in the midst of a stream.
    r"\bper[ _-](?:second|sec|minute|min|hour|day|week|month)\b",
    r"\b[io]?[tr]p[smhd]\b",
    # The output alone; together with the input it makes a full context.
    r"(?<!and )(?<!and .)(?<!\+ )(?<!\+ .)\bmax_(?:completion_|output_|new_)?tokens\b[^.]*(?:exceeds|greater than)",
)
"""Messages about another limit: of one field, of a rate, of the output."""

_ANY = re.compile("|".join(PATTERNS), re.IGNORECASE)
_NONE = re.compile("|".join(EXCLUDED), re.IGNORECASE)
_RATE_LIMITED = 429
_N, _M = r"(?P<tokens>\d+)", r"(?P<maximum>\d+)"
_OUTPUTS = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        rf"\({_N} > {_M} - \d+\)",  # vLLM
        rf"maximum context length is {_M} tokens.*?requested {_N} output tokens",  # vLLM, newer
        rf"maximum context length (?:is|of) {_M} tokens.*?{_N} (?:tokens )?(?:in|for) the completion",  # OpenAI, SGLang
        rf"exceed context limit: \d+ \+ {_N} > {_M}",  # Anthropic
    )
)
"""Where a message about input and output says how much output was asked for."""


def is_overflow(words: Iterable[str], text: str, status: int = 0) -> bool:
    """Whether an error says that the context is full: by its codes and types first, then by its message."""
    named = frozenset(words)
    if not CODES.isdisjoint(named):
        return True
    if status == _RATE_LIMITED or not EXCLUDED_CODES.isdisjoint(named) or _NONE.search(text):
        return False
    plain = _plain(text)
    return _ANY.search(plain) is not None and not _asks_for_too_much(plain)


def _asks_for_too_much(plain: str) -> bool:
    """Whether the output asked for has no room even without a conversation: a shorter one would not help."""
    found = next((match for pattern in _OUTPUTS if (match := pattern.search(plain))), None)
    return found is not None and int(found["tokens"]) >= int(found["maximum"])


def _plain(text: str) -> str:
    """Write 131,072 as 131072."""
    return re.sub(r"(?<=\d),(?=\d{3})", "", text)


def ended_by_overflow(reason: object) -> bool:
    """Whether an answer that ended for this reason filled its context."""
    return isinstance(reason, str) and reason in REASONS


@dataclass(frozen=True, slots=True)
class Size:
    """How large a prompt was, and how large it may be, in tokens."""

    tokens: int
    maximum: int


_MADE_OF = r"(?:requested|resulted in|contains|has|a total of)"
_SIZES = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        rf"prompt is too long: {_N} tokens > {_M}",  # Anthropic
        rf"token count of {_N} exceeds the limit of {_M}",  # Copilot
        rf"maximum prompt length is {_M} but the request contains {_N}",  # xAI
        rf"maximum context length is {_M} tokens.*?for a total of (?:at least )?{_N}",  # vLLM, newer
        rf"maximum context length (?:is|of) {_M} tokens.*?{_MADE_OF}(?: about| at least)? {_N}",
        rf"request \({_N} tokens\) exceeds the available context size \({_M} tokens\)",  # llama.cpp
        rf"input \({_N} tokens\) is longer than the model's context length \({_M} tokens\)",  # SGLang
        rf"input token count \({_N}\) exceeds the maximum number of tokens allowed \({_M}\)",  # Gemini
        rf"prompt contains {_N} tokens.*?too large for model with {_M}",  # Mistral
        rf"exceeded model token limit: {_M} \(requested: {_N}\)",  # Moonshot
        rf"prompt tokens \({_N}\) exceed model maximum \({_M}\)",  # Bedrock
    )
)


def size_of(error: Fields, text: str) -> Size | None:
    """Return the numbers of an overflow, where the provider gives both and they make sense."""
    tokens, maximum = count(error.get("n_prompt_tokens")), count(error.get("n_ctx"))  # llama.cpp
    if tokens is None or maximum is None:
        plain = _plain(text)
        found = next((match for pattern in _SIZES if (match := pattern.search(plain))), None)
        if found is None:
            return None
        tokens, maximum = int(found["tokens"]), int(found["maximum"])
    return Size(tokens, maximum) if tokens > maximum else None


def overflow_body(protocol: Protocol, size: Size | None, request_id: str) -> bytes:
    """Return the body, for status 400, with which a protocol says that the context is full.

    Claude Code knows it by the wording and Codex by the code. Without numbers none are made up.
    """
    if protocol is Protocol.MESSAGES:
        numbers = "" if size is None else f": {size.tokens} tokens > {size.maximum} maximum"
        error = {"type": "invalid_request_error", "message": f"prompt is too long{numbers}"}
        return encode({"type": "error", "error": error, "request_id": request_id})
    numbers = "" if size is None else f" It has {size.tokens} tokens; {size.maximum} are possible."
    message = f"Your input exceeds the context window of this model.{numbers}"
    return encode({"error": {"message": message, "type": "invalid_request_error", "code": CODE, "param": None}})
