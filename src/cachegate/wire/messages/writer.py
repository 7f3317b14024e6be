"""Writes an `Answer` in the Messages protocol: as the events of the hub that it consists of."""

from cachegate.wire.answer import Answer, told
from cachegate.wire.body import encode
from cachegate.wire.hub import Event, PartKind, Request, Stop, Target
from cachegate.wire.messages.answer_writer import AnswerWriter, write_body


class MessagesWriter:
    """See `answer.Writer`."""

    def stream(self, answer: Answer) -> list[bytes]:
        """Return the events, from `message_start` to `message_stop`."""
        writer = AnswerWriter(_request(answer), _HERE)
        return [frame for event in _events(answer) for frame in writer.frames(event)]

    def whole(self, answer: Answer) -> bytes:
        """Return the message."""
        return write_body(_request(answer), _HERE, _events(answer))

    def count(self, tokens: int) -> bytes:
        """Return the answer of `count_tokens`."""
        return encode({"input_tokens": tokens})


_HERE = Target(model="", binding="")
"""No provider: nothing in the gateway's own answers belongs to one."""


def _request(answer: Answer) -> Request:
    return Request(answer.model, stream=True)


def _events(answer: Answer) -> tuple[Event, ...]:
    return told(answer, PartKind.TEXT, Stop.REFUSAL if answer.refused else Stop.END)
