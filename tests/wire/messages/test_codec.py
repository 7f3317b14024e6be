import json
from typing import Any

import pytest

from cachegate.wire.codec import Codec
from cachegate.wire.codecs import CODECS
from cachegate.wire.facts import Operation, Protocol
from cachegate.wire.hub import Ended, Request, Started, Stop
from cachegate.wire.messages.codec import CODEC
from cachegate.wire.overflows import CODE
from wire.messages.rendered import target
from wire.recordings.claude_code import CLAUDE_CODE, claude
from wire.transcripts import MESSAGES, feed

ASKED = Request("m", stream=True)


def test_it_is_the_codec_of_its_protocol() -> None:
    codec: Codec = CODEC
    assert CODECS[Protocol.MESSAGES] is codec


@pytest.mark.parametrize("operation", [Operation.GENERATE, Operation.COUNT_TOKENS])
def test_a_request_goes_through(operation: Operation) -> None:
    request = CODEC.parse_request(json.dumps(claude()).encode(), operation)
    assert json.loads(CODEC.render_request(request, target()))["model"] == "claude"


@pytest.mark.parametrize("recorded", CLAUDE_CODE, ids=lambda recorded: recorded.name)
def test_claude_codes_requests_survive_a_rendering(recorded: Any) -> None:
    request = CODEC.parse_request(json.dumps({"model": "m", **recorded.body}).encode(), recorded.operation)
    body = CODEC.render_request(request, target())
    assert CODEC.render_request(CODEC.parse_request(body), target()) == body
    assert b"billing-header" not in body


def test_an_answer_goes_through_streamed_and_whole() -> None:
    reader, writer = CODEC.stream_reader(ASKED, target()), CODEC.stream_writer(ASKED, target())
    read = [event for sse in feed([MESSAGES[0].data]).events for event in reader.read(sse)]
    assert b"".join(map(writer.write, read)).endswith(b'event: message_stop\ndata: {"type":"message_stop"}\n\n')
    assert reader.end() == ()
    body = CODEC.write_body(ASKED, target(), tuple(read))
    again = CODEC.read_body(ASKED, target(), body)
    assert isinstance(again[0], Started)
    assert again[-1] == Ended(Stop.END)


def test_an_error_goes_through() -> None:
    said = {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long"}}
    broken = CODEC.read_error(400, json.dumps(said).encode())
    assert broken.code == CODE
    assert json.loads(CODEC.write_error(broken, "req_1").body) == {**said, "request_id": "req_1"}
