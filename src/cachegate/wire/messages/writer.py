"""Writes an `Answer` in the Messages protocol."""

from cachegate.guard.usage import Usage
from cachegate.wire.answer import Answer
from cachegate.wire.body import encode
from cachegate.wire.sse import frame


class MessagesWriter:
    """See `answer.Writer`."""

    def stream(self, answer: Answer) -> list[bytes]:
        """Return the events, from `message_start` to `message_stop`."""
        stop = _stop(answer)
        message = {**_message(answer), "content": [], "stop_reason": None, "stop_sequence": None}
        usage = _usage(answer.usage)
        return [
            _event("message_start", message={**message, "usage": {**usage, "output_tokens": 1}}),
            _event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
            *(
                _event("content_block_delta", index=0, delta={"type": "text_delta", "text": delta})
                for delta in answer.deltas
            ),
            _event("content_block_stop", index=0),
            _event("message_delta", delta=stop, usage={**usage, "output_tokens": answer.output_tokens}),
            _event("message_stop"),
        ]

    def whole(self, answer: Answer) -> bytes:
        """Return the message."""
        usage = {**_usage(answer.usage), "output_tokens": answer.output_tokens}
        content = [{"type": "text", "text": answer.text}]
        return encode({**_message(answer), "content": content, **_stop(answer), "usage": usage})

    def count(self, tokens: int) -> bytes:
        """Return the answer of `count_tokens`."""
        return encode({"input_tokens": tokens})


def _event(name: str, **fields: object) -> bytes:
    return frame(name, encode({"type": name, **fields}))


def _message(answer: Answer) -> dict[str, object]:
    return {"id": f"msg_{answer.answer_id}", "type": "message", "role": "assistant", "model": answer.model}


def _stop(answer: Answer) -> dict[str, object]:
    return {"stop_reason": "refusal" if answer.refused else "end_turn", "stop_sequence": None}


def _usage(usage: Usage) -> dict[str, int]:
    """Anthropic counts read and written tokens beside the fresh ones."""
    counts = {"cache_read_input_tokens": usage.cached_read, "cache_creation_input_tokens": usage.cache_write}
    known = {name: count for name, count in counts.items() if count is not None}
    fresh = {} if usage.input_total is None else {"input_tokens": usage.input_total - sum(known.values())}
    return {**fresh, **known}
