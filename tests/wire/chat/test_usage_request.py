"""Usage is asked for on the client's behalf, by one insertion, and what answers it is hidden again."""

import json

import pytest

from cachegate.wire.chat.usage_request import asks_for_usage, with_usage, without_usage
from cachegate.wire.facts import Protocol
from provider_streams import WARM, events, request


@pytest.mark.parametrize(
    ("body", "asks"),
    [
        (b'{"model":"m"}', False),
        (b'{"stream_options":null}', False),
        (b'{"stream_options":{"include_usage":false}}', False),
        (b'{"stream_options":{"include_usage":true}}', True),
        (b'{"stream_options":[]}', False),
    ],
)
def test_who_asks_is_known_and_everybody_is_asked_for(body: bytes, asks: bool) -> None:
    assert asks_for_usage(body) is asks
    assert asks_for_usage(with_usage(body))


def test_no_other_byte_moves() -> None:
    body = b' {"model" : "m", "messages": [ {"a":1.50} ] } '
    asked = with_usage(body)
    assert asked.replace(b'"stream_options":{"include_usage":true},', b"", 1) == body
    assert json.loads(asked)["messages"] == [{"a": 1.5}]


def test_other_options_survive() -> None:
    asked = with_usage(b'{"stream_options":{"include_obfuscation":false},"model":"m"}')
    assert json.loads(asked)["stream_options"] == {"include_obfuscation": False, "include_usage": True}


def test_only_the_usage_chunk_is_hidden() -> None:
    sent = events(Protocol.CHAT, WARM)
    usage = [event for event in sent if b'"choices":[]' in event.replace(b" ", b"")]
    assert len(usage) == 1
    whole = b"".join(sent)
    assert without_usage(whole) == b"".join(event for event in sent if event not in usage)
    text = b'data: {"choices":[{"delta":{"content":"\\"usage\\" and \\"choices\\":[]"}}],"usage":null}\n\n'
    assert without_usage(text) == text
    assert without_usage(b"") == b""
    assert without_usage(b": comment\n\ndata: [DONE]\n\n") == b": comment\n\ndata: [DONE]\n\n"


def test_a_test_request_asks_itself() -> None:
    assert asks_for_usage(request(Protocol.CHAT))
