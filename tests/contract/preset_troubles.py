"""How each provider says that something went wrong: its own words, shapes and codes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cachegate.wire.facts import Protocol
from contract.preset_facts import M

Json = Mapping[str, Any]
TOKENS, MAXIMUM = 210_000, 200_000
REQUEST_ID = "req_of_the_provider"


@dataclass(frozen=True, slots=True)
class Overflow:
    """A context that is full."""

    error: Json
    """Fields of the error."""
    shape: str = "nested"
    """`nested` in `error`; `flat`; `listed`, nested in a list; or `text`, where `error` is just the message."""
    sized: bool = True
    """It says how large the prompt is, and how large it may be."""
    status: int = 400


def _invalid(message: str, **more: Any) -> Json:
    return {"message": message, "type": "invalid_request_error", "param": None, **more}


_MAXIMUM_IS = f"This model's maximum context length is {MAXIMUM} tokens. However, you requested {TOKENS} tokens."
_OPENAI = Overflow(
    _invalid("Your input exceeds the context window of this model.", code="context_length_exceeded"), sized=False
)
OVERFLOWS: Mapping[str, Overflow] = {
    "anthropic": Overflow({"message": f"prompt is too long: {TOKENS} tokens > {MAXIMUM} maximum"}),
    "openai": _OPENAI,
    "codex": _OPENAI,
    "azure": _OPENAI,
    "openrouter": Overflow(
        {
            "code": 400,
            "message": f"This endpoint's maximum context length is {MAXIMUM} tokens. However, you requested about "
            f"{TOKENS} tokens ({TOKENS - 10} of text input, 10 in the output).",
            "metadata": {"error_type": "context_length_exceeded", "provider_name": "Any"},
        }
    ),
    "xai": Overflow(
        {
            "code": "Client specified an invalid argument",
            "message": f"This model's maximum prompt length is {MAXIMUM} but the request contains {TOKENS} tokens.",
        },
        "text",
    ),
    "deepseek": Overflow(_invalid(_MAXIMUM_IS, code="invalid_request_error")),
    "gemini": Overflow(
        {
            "code": 400,
            "message": f"The input token count ({TOKENS}) exceeds the maximum number of tokens allowed ({MAXIMUM}).",
            "status": "INVALID_ARGUMENT",
        },
        "listed",
    ),
    "mistral": Overflow(
        {
            "object": "error",
            "message": f"Prompt contains {TOKENS} tokens and 0 draft tokens, too large for model with {MAXIMUM} "
            "maximum context length",
            "type": "invalid_request_prompt",
            "code": "3051",
        },
        "flat",
    ),
    "moonshot": Overflow(
        _invalid(
            f"Invalid request: Your request exceeded model token limit: {MAXIMUM} (requested: {TOKENS})", code=None
        )
    ),
    "qwen": Overflow(
        _invalid(
            f"<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, {MAXIMUM}]",
            code="invalid_parameter_error",
        ),
        sized=False,
    ),
    "groq": Overflow(
        _invalid("Please reduce the length of the messages or completion.", code="context_length_exceeded"),
        sized=False,
    ),
    "llamacpp": Overflow(
        {
            "code": 400,
            "message": f"request ({TOKENS} tokens) exceeds the available context size ({MAXIMUM} tokens), try "
            "increasing it",
            "type": "exceed_context_size_error",
            "n_prompt_tokens": TOKENS,
            "n_ctx": MAXIMUM,
        }
    ),
    "vllm": Overflow({**_invalid(_MAXIMUM_IS), "object": "error", "type": "BadRequestError", "code": 400}, "flat"),
    "sglang": Overflow(
        {
            "object": "error",
            "message": f"The input ({TOKENS} tokens) is longer than the model's context length ({MAXIMUM} tokens).",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
        "flat",
    ),
    "ollama": Overflow(
        {
            "message": "the prompt is longer than the context length currently available",
            "type": "invalid_request_error",
        },
        sized=False,
    ),
    "lmstudio": Overflow(
        {
            "message": "Trying to keep the first 9000 tokens when context overflows. However, the number of tokens to "
            "keep from the initial prompt is greater than the context length. Try a larger one."
        },
        "text",
        sized=False,
    ),
    "openai-compatible": Overflow({**_invalid(_MAXIMUM_IS), "code": None}),
}
"""Z.ai says it as a reason to stop, in a good answer."""
OVERFLOWS_ELSEWHERE = {"zai"}


def _anthropics(status: int, message: str) -> Json:
    kind = {400: "invalid_request_error", 429: "rate_limit_error", 529: "overloaded_error"}[status]
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": REQUEST_ID}


def overflow(kind: str, spoken: Protocol) -> tuple[int, bytes]:
    """Status and body. In Messages, a provider's own words stand in Anthropic's shape."""
    said = OVERFLOWS[kind]
    if spoken is M:
        shaped: Any = _anthropics(400, said.error["message"])
        shaped["error"].update({name: value for name, value in said.error.items() if name.startswith("n_")})
    elif said.shape == "text":
        shaped = {"code": said.error.get("code"), "error": said.error["message"]}
    else:
        shaped = said.error if said.shape == "flat" else {"error": said.error}
    return said.status, json.dumps([shaped] if said.shape == "listed" and spoken is not M else shaped).encode()


_LIMITS: Mapping[str, Json] = {
    "openai": {"type": "requests", "code": "rate_limit_exceeded"},
    "codex": {"type": "usage_limit_reached", "plan_type": "plus", "resets_at": 1_795_910_400},
    "openrouter": {"code": 429, "metadata": {"provider_name": "Any", "raw": "busy"}},
    "gemini": {"code": 429, "status": "RESOURCE_EXHAUSTED"},
    "mistral": {"type": "service_tier_capacity_exceeded", "code": "3505"},
    "moonshot": {"type": "rate_limit_reached_error"},
    "zai": {"code": "1302"},
    "qwen": {"type": "limit_requests", "code": "limit_requests"},
    "groq": {"type": "tokens", "code": "rate_limit_exceeded"},
}
LIMITED, BUSY = "Wait a little, there were too many requests.", "The model is overloaded just now."


def limited(kind: str, spoken: Protocol) -> bytes:
    """The body of a 429."""
    if spoken is M:
        return json.dumps(_anthropics(429, LIMITED)).encode()
    error = {"error": {"message": LIMITED, **_LIMITS.get(kind, {"type": "rate_limit_error", "code": None})}}
    return json.dumps([error] if kind == "gemini" else error).encode()


def overloaded(spoken: Protocol) -> tuple[int, bytes]:
    """Status and body of an overload: Anthropic's own status, or OpenAI's with its code."""
    if spoken is M:
        return 529, json.dumps(_anthropics(529, BUSY)).encode()
    error = {"message": BUSY, "type": "server_error", "code": "server_is_overloaded", "param": None}
    return 503, json.dumps({"error": error}).encode()


REFUSALS: Mapping[str, tuple[int, Json]] = {
    "anthropic": (400, {"type": "invalid_request_error", "message": "Output blocked by content filtering policy"}),
    "openai": (400, _invalid("Your prompt was flagged.", code="invalid_prompt")),
    "codex": (400, _invalid("This was flagged.", code="cyber_policy")),
    "azure": (
        400,
        {
            "message": "The response was filtered.",
            "code": "content_filter",
            "innererror": {"code": "ResponsibleAIPolicyViolation"},
        },
    ),
    "openrouter": (
        403,
        {"code": 403, "message": "Moderated.", "metadata": {"error_type": "refusal", "flagged_input": "so"}},
    ),
}
"""Requests that a provider refuses with an error, and not with an answer."""


def refusal(kind: str, spoken: Protocol) -> tuple[int, bytes]:
    """Status and body."""
    status, error = REFUSALS[kind]
    return status, json.dumps({"type": "error", "error": error} if spoken is M else {"error": error}).encode()
