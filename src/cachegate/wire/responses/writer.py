"""Writes an `Answer` in the Responses protocol, with every field that strict clients ask for."""

from cachegate.guard.usage import Usage
from cachegate.wire.answer import Answer
from cachegate.wire.body import encode
from cachegate.wire.sse import frame


class ResponsesWriter:
    """See `answer.Writer`."""

    def stream(self, answer: Answer) -> list[bytes]:
        """Return the events, from `response.created` to `response.completed`."""
        begun = _response(answer, "in_progress", [])
        kind, field = ("refusal", "refusal") if answer.refused else ("output_text", "text")
        more: dict[str, object] = {} if answer.refused else {"logprobs": []}
        where = {"item_id": f"msg_{answer.answer_id}", "output_index": 0, "content_index": 0}
        item = {"output_index": 0, "item": {**_item(answer), "status": "in_progress", "content": []}}
        empty = {**_part(answer), field: ""}
        events: list[tuple[str, dict[str, object]]] = [
            ("response.created", {"response": begun}),
            ("response.in_progress", {"response": begun}),
            ("response.output_item.added", item),
            ("response.content_part.added", {**where, "part": empty}),
            *((f"response.{kind}.delta", {**where, "delta": delta, **more}) for delta in answer.deltas),
            (f"response.{kind}.done", {**where, field: answer.text, **more}),
            ("response.content_part.done", {**where, "part": _part(answer)}),
            ("response.output_item.done", {"output_index": 0, "item": _item(answer)}),
            ("response.completed", {"response": _completed(answer)}),
        ]
        return [
            frame(name, encode({"type": name, "sequence_number": number, **fields}))
            for number, (name, fields) in enumerate(events)
        ]

    def whole(self, answer: Answer) -> bytes:
        """Return the response object."""
        return encode(_completed(answer))

    def count(self, tokens: int) -> bytes:
        """Return the answer of a token count."""
        return encode({"object": "response.input_tokens", "input_tokens": tokens})


def _completed(answer: Answer) -> dict[str, object]:
    return {**_response(answer, "completed", [_item(answer)]), "usage": _usage(answer.usage, answer.output_tokens)}


def _response(answer: Answer, status: str, output: list[object]) -> dict[str, object]:
    return {
        "id": f"resp_{answer.answer_id}",
        "object": "response",
        "created_at": answer.created_s,
        "status": status,
        "model": answer.model,
        "output": output,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": None,
    }


def _item(answer: Answer) -> dict[str, object]:
    item_id = f"msg_{answer.answer_id}"
    return {"id": item_id, "type": "message", "role": "assistant", "status": "completed", "content": [_part(answer)]}


def _part(answer: Answer) -> dict[str, object]:
    if answer.refused:
        return {"type": "refusal", "refusal": answer.text}
    return {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}


def _usage(usage: Usage, output_tokens: int) -> dict[str, object] | None:
    """OpenAI counts cached and written tokens inside the input."""
    if usage.input_total is None:
        return None
    counts = {"cached_tokens": usage.cached_read, "cache_write_tokens": usage.cache_write}
    details = {name: count for name, count in counts.items() if count is not None}
    return {
        "input_tokens": usage.input_total,
        **({"input_tokens_details": details} if details else {}),
        "output_tokens": output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.input_total + output_tokens,
    }
