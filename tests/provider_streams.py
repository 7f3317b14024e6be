"""Answers of providers in both protocols, as bytes, with the usage a test wants."""

import json
from typing import Any

from cachegate.guard.usage import Usage
from cachegate.wire.answer import Answer
from cachegate.wire.facts import Protocol
from cachegate.wire.protocols import DIALECTS

COLD = Usage(200_000, 0, 200_000)
WARM = Usage(201_000, 200_000, 1_000)
SILENT = Usage(200_000)
"""The input is known, its cache usage is not."""

PATH = {
    Protocol.MESSAGES: "/v1/messages",
    Protocol.RESPONSES: "/v1/responses",
    Protocol.CHAT: "/v1/chat/completions",
}


def answer(usage: Usage = COLD, *, refused: bool = False) -> Answer:
    return Answer("a1", "model-x", 1_700_000_000, ("Hello ", "world"), usage, 7, refused)


def events(protocol: Protocol, usage: Usage = COLD, *, refused: bool = False) -> list[bytes]:
    """The events of a streamed answer."""
    return DIALECTS[protocol].writer.stream(answer(usage, refused=refused))


def body(protocol: Protocol, usage: Usage = COLD, *, refused: bool = False) -> bytes:
    """The body of an unstreamed answer."""
    return DIALECTS[protocol].writer.whole(answer(usage, refused=refused))


def request(protocol: Protocol, *, text: str = "hi", stream: bool = True, **more: Any) -> bytes:
    """A request as a client might send it, with odd spacing and unknown fields to see that bytes survive."""
    conversation = [{"role": "user", "content": text}]
    field = "input" if protocol is Protocol.RESPONSES else "messages"
    if protocol is Protocol.CHAT and stream:
        more = {"stream_options": {"include_usage": True}, **more}
    fields = {"model": "model-x", "stream": stream, field: conversation, "x_unknown": {"kept": [1, 2.50]}, **more}
    return json.dumps(fields, indent=1).encode()


LARGE_TEXT = "x" * 300_000
"""More than 262,144 bytes: large also for a provider that reports nothing."""
