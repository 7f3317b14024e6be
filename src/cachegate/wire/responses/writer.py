"""Writes an `Answer` of the gateway's own in the Responses protocol."""

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
    kind = PartKind.REFUSAL if answer.refused else PartKind.TEXT
    return (
        Started(answer.answer_id, answer.model, answer.created_s),
        PartStarted(0, kind),
        *(Delta(0, text) for text in answer.deltas),
        PartEnded(0),
        # An answer of our own is written without thinking: that is known, and strict clients want to be told.
        Counted(answer.usage, answer.output_tokens, reasoning_tokens=0),
        Ended(Stop.REFUSAL if answer.refused else Stop.END),
    )
