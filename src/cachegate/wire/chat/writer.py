"""Writes an `Answer` in the Chat Completions protocol."""

from cachegate.wire.answer import Answer, told
from cachegate.wire.body import encode
from cachegate.wire.chat.answer_writer import ChatStreamWriter, write_body
from cachegate.wire.hub import Event, PartKind, Request, Stop, Target

_END = b"\n\n"


class ChatWriter:
    """See `answer.Writer`."""

    def stream(self, answer: Answer) -> list[bytes]:
        """Return the chunks, from the role to `[DONE]`; usage is told in one of its own."""
        writer = ChatStreamWriter(Request(answer.model, stream=True), _target(answer))
        written = b"".join(writer.write(event) for event in _events(answer))
        return [line + _END for line in written.split(_END) if line]

    def whole(self, answer: Answer) -> bytes:
        """Return the completion."""
        return write_body(_target(answer), _events(answer))

    def count(self, tokens: int) -> bytes:
        """Return a count; the protocol has no request for one."""
        return encode({"object": "chat.completion.tokens", "prompt_tokens": tokens})


def _target(answer: Answer) -> Target:
    return Target(model=answer.model, binding="")


def _events(answer: Answer) -> tuple[Event, ...]:
    kind = PartKind.REFUSAL if answer.refused else PartKind.TEXT
    return told(answer, kind, Stop.END)
