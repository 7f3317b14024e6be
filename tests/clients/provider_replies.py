"""What a provider says, as data: the full event sequences of both protocols around one text and one usage.

Clients parse strictly, each in its own way, so nothing that a real provider always sends is left out here.
The non-streaming reply is what the stream's last word says, so the two cannot drift apart.
"""

import time
from dataclasses import dataclass
from itertools import count
from typing import Any

JsonObject = dict[str, Any]

_numbers = count(1)


@dataclass(frozen=True, slots=True)
class ReportedUsage:
    """Token counts in one convention for both protocols: `cached` is a part of `total`."""

    total: int
    cached: int
    output: int = 20

    def for_messages(self) -> JsonObject:
        """Input that was not read is reported as written to the cache but for a short tail, as the real API does."""
        fresh = self.total - self.cached
        tail = min(fresh, 10)
        return {
            "input_tokens": tail,
            "cache_creation_input_tokens": fresh - tail,
            "cache_read_input_tokens": self.cached,
            "cache_creation": {"ephemeral_5m_input_tokens": fresh - tail, "ephemeral_1h_input_tokens": 0},
            "output_tokens": self.output,
            "service_tier": "standard",
        }

    def for_responses(self) -> JsonObject:
        return {
            "input_tokens": self.total,
            "input_tokens_details": {"cached_tokens": self.cached, "cache_write_tokens": 0},
            "output_tokens": self.output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": self.total + self.output,
        }


COLD = ReportedUsage(total=200_000, cached=0)
WARM = ReportedUsage(total=200_000, cached=199_000)


@dataclass(frozen=True, slots=True)
class ScriptedStream:
    """One streamed reply. `opening` ends in the middle of the answer: a provider that hangs says no more than that."""

    opening: tuple[JsonObject, ...]
    ending: tuple[JsonObject, ...]


def messages_reply(text: str, usage: ReportedUsage, model: str) -> JsonObject:
    return {
        "id": _new_id("msg"),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": usage.for_messages(),
    }


def messages_stream(text: str, usage: ReportedUsage, model: str) -> ScriptedStream:
    whole = messages_reply(text, usage, model)
    begun = {**whole, "content": [], "stop_reason": None, "usage": {**whole["usage"], "output_tokens": 1}}
    first, rest = _halves(text)
    return ScriptedStream(
        opening=(
            {"type": "message_start", "message": begun},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "ping"},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": first}},
        ),
        ending=(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": rest}},
            {"type": "content_block_stop", "index": 0},
            {
                "type": "message_delta",
                "delta": {"stop_reason": whole["stop_reason"], "stop_sequence": None},
                "usage": whole["usage"],
            },
            {"type": "message_stop"},
        ),
    )


def responses_reply(text: str, usage: ReportedUsage, model: str) -> JsonObject:
    return _response([_message(text)], usage, model)


def responses_stream(text: str, usage: ReportedUsage, model: str) -> ScriptedStream:
    item = _message(text)
    first, rest = _halves(text)
    to_item = {"output_index": 0, "item_id": item["id"]}
    to_part = {**to_item, "content_index": 0}
    begun = {**item, "status": "in_progress", "content": []}
    return _responses_stream(
        _response([item], usage, model),
        opening=[
            {"type": "response.output_item.added", "output_index": 0, "item": begun},
            {"type": "response.content_part.added", **to_part, "part": _output_text("")},
            {"type": "response.output_text.delta", **to_part, "delta": first, "logprobs": []},
        ],
        ending=[
            {"type": "response.output_text.delta", **to_part, "delta": rest, "logprobs": []},
            {"type": "response.output_text.done", **to_part, "text": text, "logprobs": []},
            {"type": "response.content_part.done", **to_part, "part": _output_text(text)},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
        ],
    )


def compaction_stream(text: str, usage: ReportedUsage, model: str) -> ScriptedStream:
    """The reply to a `compaction_trigger`: one sealed item, which only the provider can open later."""
    item = {"id": _new_id("cmp"), "type": "compaction", "encrypted_content": text}
    added: JsonObject = {"type": "response.output_item.added", "output_index": 0, "item": item}
    done: JsonObject = {"type": "response.output_item.done", "output_index": 0, "item": item}
    return _responses_stream(_response([item], usage, model), opening=[added], ending=[done])


def _responses_stream(whole: JsonObject, opening: list[JsonObject], ending: list[JsonObject]) -> ScriptedStream:
    begun = {**whole, "status": "in_progress", "completed_at": None, "output": [], "usage": None}
    events: list[JsonObject] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        *opening,
        *ending,
        {"type": "response.completed", "response": whole},
    ]
    numbered = tuple({**event, "sequence_number": number} for number, event in enumerate(events))
    middle = 2 + len(opening)
    return ScriptedStream(numbered[:middle], numbered[middle:])


def _response(output: list[JsonObject], usage: ReportedUsage, model: str) -> JsonObject:
    return {
        "id": _new_id("resp"),
        "object": "response",
        "created_at": int(time.time()),
        "completed_at": int(time.time()),
        "status": "completed",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "metadata": {},
        "model": model,
        "output": output,
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "service_tier": "default",
        "store": False,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": usage.for_responses(),
        "user": None,
    }


def _message(text: str) -> JsonObject:
    content = [_output_text(text)]
    return {"id": _new_id("msg"), "type": "message", "role": "assistant", "status": "completed", "content": content}


def _output_text(text: str) -> JsonObject:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _halves(text: str) -> tuple[str, str]:
    middle = len(text) // 2
    return text[:middle], text[middle:]


def _new_id(prefix: str) -> str:
    return f"{prefix}_{next(_numbers):032x}"
