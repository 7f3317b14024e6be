"""Writes an `Answer` of the gateway's own in the Responses protocol."""

from cachegate.wire.answer import Answer, told
from cachegate.wire.body import encode
from cachegate.wire.hub import Event, PartKind, Request, Stop, Target
from cachegate.wire.responses.answer_writer import AnswerWriter, write_body


class ResponsesWriter:
    """See `answer.Writer`."""

    def stream(self, answer: Answer) -> list[bytes]:
        """Return the events, from `response.created` to `response.completed`."""
        writer = AnswerWriter(*_asked(answer))
        return [frame for event in _events(answer) for frame in writer.frames(event)]

    def whole(self, answer: Answer) -> bytes:
        """Return the response object."""
        return write_body(*_asked(answer), _events(answer))

    def count(self, tokens: int) -> bytes:
        """Return the answer of a token count."""
        return encode({"object": "response.input_tokens", "input_tokens": tokens})


def _asked(answer: Answer) -> tuple[Request, Target]:
    return Request(answer.model, stream=True), Target(answer.model, binding="")


def _events(answer: Answer) -> tuple[Event, ...]:
    kind, stop = (PartKind.REFUSAL, Stop.REFUSAL) if answer.refused else (PartKind.TEXT, Stop.END)
    # An answer of our own is written without thinking: that is known, and strict clients want to be told.
    return told(answer, kind, stop, reasoning_tokens=0)
