import pytest

from cachegate.wire.facts import Protocol
from cachegate.wire.silence import Silence
from provider_streams import events

COMMENT = b": keepalive\n\n"
EVENT = {
    Protocol.MESSAGES: b'event: ping\ndata: {"type":"ping"}\n\n',
    Protocol.RESPONSES: b'event: keepalive\ndata: {"type":"keepalive"}\n\n',
    Protocol.CHAT: COMMENT,
}


def test_behind_the_first_event_the_frame_is_one_that_clients_count(protocol: Protocol) -> None:
    """Codex gives up a stream on which it hears nothing but comments."""
    silence = Silence(protocol)
    silence.told(b"".join(events(protocol)[:2]))
    assert silence.frame == EVENT[protocol]


@pytest.mark.parametrize("nothing", [(), (b"",), (b"", b"")])
def test_before_it_nothing_stands_that_a_strict_client_refuses(nothing: tuple[bytes, ...]) -> None:
    """OpenAI's own reader wants `response.created` first."""
    silence = Silence(Protocol.RESPONSES)
    for data in nothing:
        silence.told(data)
    assert silence.frame == COMMENT
    silence.told(events(Protocol.RESPONSES)[0])
    assert silence.frame == EVENT[Protocol.RESPONSES]
