"""Chat streams as providers send them, beside those of `tests/transcripts/`, and what must be heard in each."""

import json
from collections.abc import Mapping
from typing import Any

_COMMON = {
    "id": "chatcmpl-5f0068f1c2d4",
    "object": "chat.completion.chunk",
    "created": 1_795_906_800,
    "model": "kimi-k3",
}
USAGE = {
    "prompt_tokens": 77_000,
    "prompt_tokens_details": {"cached_tokens": 76_288},
    "completion_tokens": 61,
    "total_tokens": 77_061,
}
DONE = b"data: [DONE]\n\n"


def line(**fields: Any) -> bytes:
    return b"data: %b\n\n" % json.dumps({**_COMMON, **fields}, ensure_ascii=False).encode()


def chunk(delta: Mapping[str, Any], end: str | None = None, **more: Any) -> bytes:
    return line(choices=[{"index": 0, "delta": delta, "finish_reason": end}], **more)


def usage(**counts: Any) -> bytes:
    return line(choices=[], usage={**USAGE, **counts})


def call(index: int, arguments: str, call_id: str | None = None, name: str | None = None) -> bytes:
    named = {"name": name} if name else {}
    begun = {"id": call_id, "type": "function"} if call_id else {}
    return chunk({"tool_calls": [{"index": index, **begun, "function": {**named, "arguments": arguments}}]})


ROLE = chunk({"role": "assistant", "content": ""})
CHAT_TRANSCRIPTS: Mapping[str, bytes] = {
    "text": ROLE
    + chunk({"content": "The tests"})
    + chunk({"content": " pass. \n\nevent: x\n\n\U0001f642"})
    + chunk({}, "stop")
    + usage()
    + DONE,
    "parallel calls, by turns": ROLE
    + call(0, "", "call_a", "shell")
    + call(1, "", "call_b", "Read")
    + call(0, '{"command":')
    + call(1, '{"file_path"')
    + call(0, ' "ls"}')
    + call(1, ':"a"}')
    + chunk({}, "tool_calls")
    + usage()
    + DONE,
    "thoughts": ROLE
    + chunk({"reasoning_content": "Hm, "})
    + chunk({"reasoning_content": "\u00fcber."})
    + chunk({"content": "Done."})
    + chunk({}, "stop")
    + usage()
    + DONE,
    "refusal": ROLE + chunk({"refusal": "I can't"}) + chunk({"refusal": " help."}) + chunk({}, "stop") + usage() + DONE,
    "filtered": ROLE + chunk({"content": "Half a"}) + chunk({}, "content_filter") + usage() + DONE,
    "cut short": ROLE + chunk({"content": "Half a"}) + chunk({}, "length") + usage() + DONE,
    "no usage": ROLE + chunk({"content": "ok"}) + chunk({}, "stop") + DONE,
    "usage in its last chunk": ROLE + chunk({"content": "ok"}) + chunk({}, "stop", usage=USAGE) + DONE,
    "calls of one index": ROLE  # Gemini's OpenAI API numbers every call 0
    + call(0, '{"command":"ls"}', "call_a", "shell")
    + call(0, '{"file_path":"a"}', "call_b", "Read")
    + chunk({}, "stop")
    + usage()
    + DONE,
    "calls without index": ROLE  # Mistral's do
    + chunk(
        {
            "tool_calls": [
                {"id": "call_a", "function": {"name": "shell", "arguments": '{"command":"ls"}'}},
                {"id": "call_b", "function": {"name": "Read", "arguments": '{"file_path":"a"}'}},
            ]
        },
        "tool_calls",
    )
    + usage()
    + DONE,
    "thoughts as OpenRouter calls them": ROLE
    + chunk({"reasoning": "Hm, ", "content": ""})
    + chunk({"reasoning": "\u00fcber.", "content": ""})
    + chunk({"content": "Done."})
    + chunk({"content": ""}, "stop", usage=USAGE)
    + DONE,
    "content in parts": ROLE
    + chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}]})
    + chunk({"content": [{"type": "text", "text": "Do"}]})
    + chunk({"content": "ne."})
    + chunk({}, "stop")
    + usage()
    + DONE,
    "filter results first": line(choices=[], prompt_filter_results=[{"prompt_index": 0}])
    + ROLE
    + chunk({"content": "ok"})
    + chunk({}, "stop")
    + usage()
    + DONE,
    "without DONE": ROLE + chunk({"content": "ok"}) + chunk({}, "stop") + usage(),
    "one call at once": chunk({"role": "assistant", "content": None})
    + call(0, "{}", "functions.shell:0", "shell")
    + chunk({}, "tool_calls", usage=USAGE)
    + DONE,
}
"""Complete answers."""

CHAT_FAILED: Mapping[str, bytes] = {
    "error chunk": ROLE
    + chunk({"content": "Work"})
    + line(
        error={"code": 502, "message": "Provider disconnected"},
        choices=[{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}],
    ),
    "bare error": ROLE + b'data: {"error":{"message":"Overloaded","type":"server_error","code":503}}\n\n',
}
CHAT_CUT = ROLE + chunk({"content": "Work"}) + chunk({"content": "ing"})
