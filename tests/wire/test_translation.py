"""One request through a translation: its answer is told once, ends once, and a cut is never an end."""

import json

import pytest

from cachegate.errors import ErrorKind
from cachegate.wire.codecs import CODECS
from cachegate.wire.facts import Operation, Protocol
from cachegate.wire.hub import Target
from cachegate.wire.parse import Received, parse
from cachegate.wire.sse import SseReader
from cachegate.wire.translation import StreamTranslation, Translation
from provider_streams import COLD, body, events, request

PAIRS = [(client, upstream) for client in Protocol for upstream in Protocol]
IDS = [f"{client}-{upstream}" for client, upstream in PAIRS]


def translation(client: Protocol, upstream: Protocol, *, streamed: bool = True) -> Translation:
    data = request(client, stream=streamed)
    received = parse(Received(client, Operation.GENERATE, (), "", data, data), bytes(32))
    target = Target("model-up", "binding", "thread", frozenset(), upstream)
    return Translation.of(received, CODECS[client], CODECS[upstream], target)


def fed(stream: StreamTranslation, sent: list[bytes]) -> bytes:
    return b"".join(stream.feed(SseReader().feed(event)[1]) for event in sent)


def text_of(protocol: Protocol, written: bytes) -> str:
    """What a client of the protocol would show."""
    _, seen = SseReader().feed(written)
    told: list[str] = []
    for event in seen:
        data = json.loads(event.data) if event.data != b"[DONE]" else {}
        match protocol:
            case Protocol.MESSAGES:
                told.append(data.get("delta", {}).get("text", ""))
            case Protocol.RESPONSES:
                told.append(data["delta"] if data.get("type") == "response.output_text.delta" else "")
            case Protocol.CHAT:
                told += [choice["delta"].get("content") or "" for choice in data.get("choices", [])]
    return "".join(told)


@pytest.mark.parametrize(("client", "upstream"), PAIRS, ids=IDS)
def test_a_request_names_the_upstreams_model(client: Protocol, upstream: Protocol) -> None:
    rendered = json.loads(translation(client, upstream).body())
    assert rendered["model"] == "model-up"
    assert rendered["stream"] is True
    assert "hi" in json.dumps(rendered)


@pytest.mark.parametrize(("client", "upstream"), PAIRS, ids=IDS)
def test_a_stream_is_told_and_ends_once(client: Protocol, upstream: Protocol) -> None:
    stream = translation(client, upstream).stream()
    written = fed(stream, events(upstream, COLD)) + stream.end()
    assert text_of(client, written) == "Hello world"
    assert stream.over
    reader_sees = CODECS[client].stream_reader(translation(client, client).request, Target("m", "b"))
    told = [item for event in SseReader().feed(written)[1] for item in reader_sees.read(event)]
    assert sum(type(item).__name__ == "Ended" for item in told) == 1
    assert stream.fail(ErrorKind.UPSTREAM, "late") == b"", "nothing is said behind the end"


@pytest.mark.parametrize(("client", "upstream"), PAIRS, ids=IDS)
def test_a_cut_stream_is_not_over_and_can_be_failed(client: Protocol, upstream: Protocol) -> None:
    for count in (0, 1, 3):
        stream = translation(client, upstream).stream()
        fed(stream, events(upstream, COLD)[:count])
        stream.end()
        assert not stream.over
        assert b"error" in stream.fail(ErrorKind.UPSTREAM, "Broke off.")
        assert stream.over


@pytest.mark.parametrize(("client", "upstream"), PAIRS, ids=IDS)
def test_an_unstreamed_answer_is_translated(client: Protocol, upstream: Protocol) -> None:
    written, broken = translation(client, upstream, streamed=False).answer(body(upstream, COLD))
    assert broken is None
    assert b"Hello world" in written
    seen = CODECS[client].read_body(translation(client, client).request, Target("m", "b"), written)
    assert any(type(item).__name__ == "Ended" for item in seen)


@pytest.mark.parametrize(("client", "upstream"), PAIRS, ids=IDS)
def test_an_error_keeps_its_meaning(client: Protocol, upstream: Protocol) -> None:
    sent = json.dumps({"type": "error", "error": {"type": "rate_limit_error", "message": "Slow down.", "code": "x"}})
    answer = translation(client, upstream).error(429, sent.encode(), "req_1")
    assert answer.status == 429
    assert "Slow down." in answer.body.decode()
