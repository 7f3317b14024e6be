"""Request bodies as coding agents send them: many items, tool calls, and source code full of escapes.

The bytes are the same in every run, so two runs on two machines send the same work.
"""

import json
import random

from benchmarks.plan import PLAN_HEADER, Plan

KIB = 1_024
SIZES = {"4 KB": 4 * KIB, "256 KB": 256 * KIB, "1 MB": KIB * KIB, "4 MB": 4 * KIB * KIB}

_ITEM_CHARS = 1_800
_WORDS = (
    "self", "return", "value", "import", "async", "await", "for", "if", "not", "None", '"text"', "'name'", "{", "}",
    "[", "]", "(", ")", "=", "==", "->", "#", "TODO", "\\n", "\\t", "path/to/file", "request", "response", "stream",
    "event", "cache", "token", "budget", "provider", "reader", "writer", "größe", "naïve", "…", "match", "raise",
)  # fmt: skip

Json = dict[str, object]


def body_of(size: int) -> bytes:
    """Return a Responses request of exactly `size` bytes."""
    dice = random.Random(size)  # noqa: S311 -- repeatable text, no secret
    items: list[Json] = []
    used = len(_encode(_request(items, "")))
    while True:
        item = _item(len(items), _source(dice, min(_ITEM_CHARS, max(40, size // 8))))
        cost = len(_encode(item)) + 1
        if used + cost > size - 8:
            break
        items.append(item)
        used += cost
    padding = size - len(_encode(_request(items, "")))
    return _encode(_request(items, "x" * padding))


def head(body_bytes: int, plan: Plan, thread: str) -> bytes:
    """Return the head of a request. `thread` tells one conversation of the load from another."""
    return (
        "POST /v1/responses HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: benchmark/1\r\nAccept: text/event-stream\r\n"
        "Content-Type: application/json\r\nAuthorization: Bearer sk-benchmark\r\n"
        f"{PLAN_HEADER}: {plan.header()}\r\nthread-id: {thread}\r\nContent-Length: {body_bytes}\r\n\r\n"
    ).encode()


def _source(dice: random.Random, chars: int) -> str:
    """Return something like source code of about `chars` characters."""
    lines: list[str] = []
    length = 0
    while length < chars:
        line = " " * (4 * dice.randrange(4)) + " ".join(dice.choices(_WORDS, k=dice.randrange(3, 12)))
        lines.append(line)
        length += len(line) + 1
    return "\n".join(lines)


def _item(number: int, text: str) -> Json:
    match number % 4:
        case 0:
            return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
        case 1:
            return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
        case 2:
            arguments = json.dumps({"command": ["bash", "-lc", text]})
            return {"type": "function_call", "name": "shell", "call_id": f"call_{number}", "arguments": arguments}
        case _:
            return {"type": "function_call_output", "call_id": f"call_{number - 1}", "output": text}


def _request(items: list[Json], padding: str) -> Json:
    tool: Json = {
        "type": "function",
        "name": "shell",
        "description": "Runs a command and returns its output.",
        "parameters": {"type": "object", "properties": {"command": {"type": "array", "items": {"type": "string"}}}},
    }
    last: Json = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": f"Go on.{padding}"}]}
    return {
        "model": "gpt-x",
        "stream": True,
        "store": False,
        "instructions": 'You are a coding agent.\nKeep "changes" small and say what you did.',
        "tools": [tool],
        "input": [*items, last],
    }


def _encode(value: Json) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
