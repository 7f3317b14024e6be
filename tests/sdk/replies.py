"""What a provider of the Responses protocol answers, as a script for a scripted upstream."""

import asyncio
import json
from collections.abc import Callable, Iterable
from typing import Any

from scripted_upstream import Recorded, Script, Step, chunk, stream, stream_head, whole

Json = dict[str, Any]
Answering = Callable[[Recorded], Script]
MODEL = "openai/gpt-x"
USAGE = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 40, "cache_write_tokens": 60},
    "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 107,
}


def said(text: str, number: int = 1) -> Json:
    return {
        "id": f"msg_{number}", "type": "message", "status": "completed", "role": "assistant", "phase": "final_answer",
        "content": [{"type": "output_text", "annotations": [], "logprobs": [], "text": text}],
    }  # fmt: skip


def thought(text: str, number: int = 1) -> Json:
    summary = [{"type": "summary_text", "text": text}]
    return {"id": f"rs_{number}", "type": "reasoning", "summary": summary, "encrypted_content": "gAAA+é=="}


def called(name: str, arguments: str, number: int = 1) -> Json:
    return {
        "id": f"fc_{number}", "type": "function_call", "status": "completed", "name": name, "call_id": f"call_{number}",
        "arguments": arguments,
    }  # fmt: skip


def response(output: Iterable[Json], status: str = "completed", usage: Json | None = USAGE, **more: Any) -> Json:
    return {
        "id": "resp_1", "object": "response", "created_at": 1, "model": "gpt-x", "status": status, "error": None,
        "incomplete_details": None, "output": list(output), "usage": usage, **more,
    }  # fmt: skip


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def begun(*output: Json) -> bytes:
    """The events of a stream up to its end, each text in two deltas."""
    frames = [event("response.created", response=response([], "in_progress", None))]
    for at, item in enumerate(output):
        frames.append(event("response.output_item.added", output_index=at, item={"type": item["type"]}))
        for part in item.get("content", []):
            halves = (part["text"][:2], part["text"][2:])
            frames += [event("response.output_text.delta", output_index=at, delta=half) for half in halves]
        shown = [part["text"] for part in item.get("summary", [])]
        frames += [event("response.reasoning_summary_text.delta", output_index=at, delta=text) for text in shown]
        frames.append(event("response.output_item.done", output_index=at, item=item))
    return b"".join(frames)


def streamed(*output: Json, status: str = "completed", usage: Json | None = USAGE, **more: Any) -> bytes:
    return begun(*output) + event(f"response.{status}", response=response(output, status, usage, **more))


def answering(*rounds: Iterable[Json], usage: Json | None = USAGE) -> Answering:
    """Answer one request after the other, streamed or whole, as each asks for it."""
    waiting = iter(rounds)

    def answer(recorded: Recorded) -> Script:
        output = list(next(waiting))
        if json.loads(recorded.body)["stream"]:
            return stream(streamed(*output, usage=usage))
        return [whole(200, json.dumps(response(output, usage=usage)).encode())]

    return answer


def hanging(*output: Json) -> Answering:
    """Begin an answer and never end it."""
    return lambda _: [stream_head(), chunk(begun(*output)), Step.HANG]


async def until(holds: Callable[[], bool]) -> None:
    """Let others run until something holds."""
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 -- what is waited for tells nobody
            await asyncio.sleep(0)


def conversation(recorded: Recorded) -> bytes:
    """The bytes of a request between `"input":[` and the end of it, which prefixes are about."""
    head, _, tail = recorded.body.partition(b'"input":[')
    assert b'"tools"' in head or b'"tools"' not in recorded.body
    inside, end, _ = tail.rpartition(b'],"stream":')
    assert end
    return inside
