"""An answer that the gateway writes itself, before it has a protocol's form."""

from dataclasses import dataclass
from typing import Protocol as Interface

from cachegate.guard.usage import Usage
from cachegate.wire.hub import Counted, Delta, Ended, Event, PartEnded, PartKind, PartStarted, Started, Stop


@dataclass(frozen=True, slots=True)
class Answer:
    """A text answer. What `usage` does not know is left out of the protocol's usage, never written as 0."""

    answer_id: str
    """Unique part of the ids in the answer."""
    model: str
    created_s: int
    """Unix time."""
    deltas: tuple[str, ...]
    usage: Usage
    output_tokens: int
    refused: bool = False

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(self.deltas)


def told(answer: Answer, kind: PartKind, stop: Stop, reasoning_tokens: int | None = None) -> tuple[Event, ...]:
    """Return the answer as events of the hub. How a refusal is told, by its part or by its end, is the protocol's."""
    return (
        Started(answer.answer_id, answer.model, answer.created_s, answer.usage),
        PartStarted(0, kind),
        *(Delta(0, delta) for delta in answer.deltas),
        PartEnded(0),
        Counted(answer.usage, answer.output_tokens, reasoning_tokens),
        Ended(stop),
    )


class Writer(Interface):
    """Writes answers in one protocol."""

    def stream(self, answer: Answer) -> list[bytes]:
        """Return the events of a streamed answer, in order; joined, they are the stream."""

    def whole(self, answer: Answer) -> bytes:
        """Return the body of an unstreamed answer."""

    def count(self, tokens: int) -> bytes:
        """Return the body of a token count."""
