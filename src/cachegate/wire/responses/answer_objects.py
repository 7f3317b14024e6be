"""The objects that an answer of the Responses protocol consists of, with every field that strict clients ask for."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from blake3 import blake3

from cachegate.wire.hub import Choice, Counted, Json, Request, Started

Object = dict[str, object]

RESPONSE_PREFIX = "resp_"
_PLAIN_ID = re.compile(r"[A-Za-z0-9_-]{1,48}")
"""OpenAI takes ids of up to 64 characters back."""
_DIGEST_CHARS = 32

_CHOICES: Mapping[Choice | None, str] = {
    Choice.AUTO: "auto",
    Choice.NONE: "none",
    Choice.REQUIRED: "required",
    Choice.ONE: "required",
    None: "auto",
}


@dataclass(frozen=True, slots=True)
class Identity:
    """What stands in every response object of one answer."""

    answer_id: str
    model: str
    created_s: int
    """0 where the upstream did not say: strict clients cannot do without the field."""

    @classmethod
    def of(cls, started: Started, request: Request) -> "Identity":
        """Take over what the upstream said."""
        return cls(started.answer_id, started.model or request.model, started.created_s or 0)

    @property
    def response_id(self) -> str:
        """The id of the response: the upstream's own, with the prefix that clients expect."""
        return RESPONSE_PREFIX + self._core

    def item_id(self, prefix: str, index: int) -> str:
        """Return the id of an item: the same for the same answer, whoever translates it."""
        return f"{prefix}_{self._core}_{index}"

    @property
    def _core(self) -> str:
        core = self.answer_id.removeprefix(RESPONSE_PREFIX)
        if _PLAIN_ID.fullmatch(core):
            return core
        return blake3(core.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]


def response_object(identity: Identity, request: Request, status: str, output: list[Object]) -> Object:
    """Return a response, without an error, and with nothing known of its usage."""
    return {
        "id": identity.response_id,
        "object": "response",
        "created_at": identity.created_s,
        "status": status,
        "model": identity.model,
        "output": output,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": request.parallel_tools is not False,
        "temperature": request.sampling.temperature,
        "tool_choice": _CHOICES[request.choice],
        "tools": [],
        "top_p": request.sampling.top_p,
        "usage": None,
    }


def message_item(item_id: str, parts: list[Object], *, status: str = "completed", phase: str | None = None) -> Object:
    """Return what the assistant said."""
    said: Object = {"id": item_id, "type": "message", "role": "assistant", "status": status, "content": parts}
    return said if phase is None else {**said, "phase": phase}


def text_part(text: str, annotations: tuple[Json, ...] = ()) -> Object:
    """Return a text."""
    return {"type": "output_text", "text": text, "annotations": list(annotations), "logprobs": []}


def refusal_part(text: str) -> Object:
    """Return a refusal."""
    return {"type": "refusal", "refusal": text}


def reasoning_item(item_id: str, text: str, opaque: str | None) -> Object:
    """Return thoughts; an opaque value that is missing is left out."""
    summary = [{"type": "summary_text", "text": text}] if text else []
    carried = {} if opaque is None else {"encrypted_content": opaque}
    return {"id": item_id, "type": "reasoning", "summary": summary, **carried}


def compaction_item(item_id: str, opaque: str) -> Object:
    """Return a compacted conversation."""
    return {"id": item_id, "type": "compaction", "encrypted_content": opaque}


def usage_object(counted: Counted | None) -> Object | None:
    """Return what is known of the usage. OpenAI counts cached and written tokens inside the input.

    Codex reads a usage only with both counts, and drops a whole response whose usage lacks one: so without them there
    is none. Details are left out where they are unknown; a 0 would say that nothing was cached.
    """
    if counted is None:
        return None
    usage, total, written = counted.usage, counted.usage.input_total, counted.output_tokens
    if total is None or written is None:
        return None
    cached = {"cached_tokens": usage.cached_read, "cache_write_tokens": usage.cache_write}
    details = {name: tokens for name, tokens in cached.items() if tokens is not None}
    thought = counted.reasoning_tokens
    return {
        "input_tokens": total,
        **({"input_tokens_details": details} if details else {}),
        "output_tokens": written,
        **({} if thought is None else {"output_tokens_details": {"reasoning_tokens": thought}}),
        "total_tokens": total + written,
    }
