"""The codecs under test, whom they speak for, and how an answer is driven through one of them."""

import itertools
from collections.abc import Iterable, Mapping

import pytest

from cachegate.wire.chat.codec import CODEC as CHAT
from cachegate.wire.codec import Codec
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import Event, Request, Target
from cachegate.wire.messages.codec import CODEC as MESSAGES
from cachegate.wire.quirks import Quirk
from cachegate.wire.responses.codec import CODEC as RESPONSES
from cachegate.wire.sse import SseReader

CODECS: Mapping[Protocol, Codec] = {
    Protocol.MESSAGES: MESSAGES,
    Protocol.RESPONSES: RESPONSES,
    Protocol.CHAT: CHAT,
}
PAIRS = tuple(itertools.product(CODECS, CODECS))
"""(client's protocol, upstream's protocol)."""

EACH = pytest.mark.parametrize("spoken", CODECS, ids=[protocol.value for protocol in CODECS])
EACH_PAIR = pytest.mark.parametrize(
    ("client", "upstream"), PAIRS, ids=[f"{client.value}-to-{upstream.value}" for client, upstream in PAIRS]
)

MODEL, BINDING, KEY = "model-there", "account-one", "thread-7f3a"


def target(upstream: Protocol, *quirks: Quirk, binding: str = BINDING) -> Target:
    return Target(MODEL, binding, KEY, frozenset(quirks), upstream)


ASKED = Request("model-here", stream=True)
"""A request of which only the answer matters."""


def read(spoken: Protocol, data: bytes, request: Request = ASKED, there: Target | None = None) -> tuple[Event, ...]:
    """Read a streamed answer, however it ends."""
    return read_pieces(spoken, [data], request, there)


def read_pieces(
    spoken: Protocol, pieces: Iterable[bytes], request: Request = ASKED, there: Target | None = None
) -> tuple[Event, ...]:
    reader, stream = CODECS[spoken].stream_reader(request, there or target(spoken)), SseReader()
    told = [event for piece in pieces for sse in stream.feed(piece)[1] for event in reader.read(sse)]
    return (*told, *reader.end())


def write(spoken: Protocol, events: Iterable[Event], request: Request = ASKED, there: Target | None = None) -> bytes:
    """Write a streamed answer for a client."""
    writer = CODECS[spoken].stream_writer(request, there or target(spoken))
    return b"".join(writer.write(event) for event in events)
