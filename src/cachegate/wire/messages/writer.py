"""Writes an `Answer` in the Messages protocol: as the events of the hub that it consists of."""

from collections.abc import Iterator

from cachegate.wire.answer import Answer
from cachegate.wire.body import encode
from cachegate.wire.hub import (
    Counted,
    Delta,
    Ended,
    Event,
    PartEnded,
    PartKind,
    PartStarted,
    Request,
    Started,
    Stop,
    Target,
)
from cachegate.wire.messages.answer_writer import AnswerWriter, write_body


class MessagesWriter:
    """See `answer.Writer`."""

    def stream(self, answer: Answer) -> list[bytes]:
        """Return the events, from `message_start` to `message_stop`."""
        writer = AnswerWriter(_request(answer), _HERE)
        return [frame for event in _events(answer) for frame in writer.frames(event)]

    def whole(self, answer: Answer) -> bytes:
        """Return the message."""
        return write_body(_request(answer), _HERE, tuple(_events(answer)))

    def count(self, tokens: int) -> bytes:
        """Return the answer of `count_tokens`."""
        return encode({"input_tokens": tokens})


_HERE = Target(model="", binding="")
"""No provider: nothing in the gateway's own answers belongs to one."""


def _request(answer: Answer) -> Request:
    return Request(answer.model, stream=True)


def _events(answer: Answer) -> Iterator[Event]:
    yield Started(answer.answer_id, answer.model, answer.created_s, answer.usage)
    yield PartStarted(0, PartKind.TEXT)
    yield from (Delta(0, text) for text in answer.deltas)
    yield PartEnded(0)
    yield Counted(answer.usage, answer.output_tokens)
    yield Ended(Stop.REFUSAL if answer.refused else Stop.END)
