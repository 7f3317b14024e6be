"""Frames of a live `claude` process, as the real one writes them."""

from collections.abc import Sequence

from cachegate.guard.usage import Usage
from cachegate.wire.usage_readings import Fields

USAGE: Fields = {
    "input_tokens": 10, "cache_read_input_tokens": 501, "cache_creation_input_tokens": 20, "output_tokens": 1,
}  # fmt: skip
MEASURED = Usage(531, 501, 20)
RESULT: Fields = {
    "type": "result", "subtype": "success", "is_error": False, "stop_reason": "end_turn",
    "usage": {"input_tokens": 0, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0, "output_tokens": 9},
}  # fmt: skip
"""The end of a turn. What it counts is a sum, and zeros where nothing is known."""
STEPPED: Fields = {"type": "result", "subtype": "error_max_turns", "is_error": True, "terminal_reason": "max_turns"}
"""The end of a step in which the program took the results of tools."""


def raw(kind: str, **more: object) -> Fields:
    return {"type": "stream_event", "event": {"type": kind, **more}, "parent_tool_use_id": None}


def start(usage: object = USAGE, number: int = 1) -> Fields:
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "model-x", "content": []}
    return raw("message_start", message={**message, "stop_reason": None, "usage": usage})


def block(index: int, begun: Fields, *deltas: Fields) -> list[Fields]:
    return [
        raw("content_block_start", index=index, content_block=begun),
        *(raw("content_block_delta", index=index, delta=delta) for delta in deltas),
        raw("content_block_stop", index=index),
    ]


def text(index: int, *parts: str) -> list[Fields]:
    return block(index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": part} for part in parts))


def thought(index: int, words: str) -> list[Fields]:
    said = {"type": "thinking_delta", "thinking": words}
    signed = {"type": "signature_delta", "signature": "c2ln"}
    return block(index, {"type": "thinking", "thinking": "", "signature": ""}, said, signed)


def call(index: int, call_id: str, *parts: str, name: str = "Read") -> list[Fields]:
    begun = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
    return block(index, begun, *({"type": "input_json_delta", "partial_json": part} for part in parts))


def ending(reason: str | None, **more: object) -> Fields:
    usage = {"usage": {**USAGE, "output_tokens": 9}} if reason else {}
    return raw("message_delta", delta={"stop_reason": reason, "stop_sequence": None, **more}, **usage)


STOP = raw("message_stop")


def ends(reason: str = "end_turn", **more: object) -> list[Fields]:
    return [ending(reason, **more), STOP]


def answers(*parts: str) -> list[Fields]:
    """An answer in text, and the end of its turn."""
    return [start(), *text(0, *parts), *ends(), RESULT]


def asks(*call_ids: str) -> list[Fields]:
    """An answer that calls a tool, which the program waits for."""
    calls = [frame for number, call_id in enumerate(call_ids) for frame in call(number, call_id, "{}")]
    return [start(), *calls, *ends("tool_use")]


def api_error(words: str, status: int | None = None, kind: str = "", **more: object) -> Fields:
    """An answer of the program's own, that tells of an error."""
    content: Sequence[Fields] = [{"type": "text", "text": words}]
    told = {"api_error_status": status, "api_error_type": kind or None}
    message = {"id": "m", "type": "message", "role": "assistant", "model": "<synthetic>", "content": content}
    named = {"type": "assistant", "is_api_error_message": True, "error": "unknown", "parent_tool_use_id": None}
    return {**named, "message": {**message, "stop_reason": "stop_sequence"}, **told, **more}
