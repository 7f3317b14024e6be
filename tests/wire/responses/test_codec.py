"""The codec as a whole; its parts are tested beside it, and what all codecs owe in `contract/test_codecs.py`."""

import json

import openai
import pytest

from cachegate.errors import ErrorKind
from cachegate.wire.codec import Codec
from cachegate.wire.facts import Operation
from cachegate.wire.hub import Broken, Ended, Purpose, Request, Stop, Target
from cachegate.wire.responses.answer_reader import AnswerReader
from cachegate.wire.responses.answer_writer import AnswerWriter
from cachegate.wire.responses.codec import CODEC
from cachegate.wire.responses.compaction_writer import CompactionWriter
from wire.transcripts import RESPONSES, feed
from wire.vendor_sdks import JSON, Wire, ask_openai, openai_final

TARGET = Target("m", "openai")
ASKED = Request("m", stream=True)


def test_it_is_a_codec() -> None:
    codec: Codec = CODEC
    assert isinstance(codec.stream_reader(ASKED, TARGET), AnswerReader)


@pytest.mark.parametrize(
    ("purpose", "writer"),
    [
        (Purpose.ANSWER, AnswerWriter),
        (Purpose.COMPACTION_ITEM, CompactionWriter),
        (Purpose.COMPACTION_OBJECT, CompactionWriter),
    ],
)
def test_what_is_asked_decides_who_writes(purpose: Purpose, writer: type) -> None:
    assert type(CODEC.stream_writer(Request("m", stream=True, purpose=purpose), TARGET)) is writer


def test_a_request_goes_through() -> None:
    request = CODEC.parse_request(b'{"model":"m","input":"hi"}', Operation.COMPACT)
    assert request.purpose is Purpose.COMPACTION_OBJECT
    assert json.loads(CODEC.render_request(request, TARGET))["input"][0]["content"][0]["text"] == "hi"


@pytest.mark.parametrize("name", ["responses-text", "responses-tool-use", "responses-refusal"])
def test_an_answer_goes_through_and_the_sdk_reads_the_same(name: str) -> None:
    data = next(transcript.data for transcript in RESPONSES if transcript.name == name)
    reader, writer = CODEC.stream_reader(ASKED, TARGET), CODEC.stream_writer(ASKED, TARGET)
    streamed = b"".join(writer.write(told) for event in feed([data]).events for told in reader.read(event))
    assert reader.end() == ()
    before, after = openai_final(data), openai_final(streamed)
    assert (after.output_text, after.usage) == (before.output_text, before.usage)
    assert [item.type for item in after.output] == [item.type for item in before.output]
    events = CODEC.read_body(ASKED, TARGET, json.dumps(before.to_dict()).encode())
    whole = ask_openai(Wire(CODEC.write_body(ASKED, TARGET, events), kind=JSON))
    assert [item.type for item in whole.output] == [item.type for item in before.output]


def test_an_error_goes_through() -> None:
    broken = CODEC.read_error(429, b'{"error":{"message":"Slow down.","code":"rate_limit_exceeded"}}')
    assert broken == Broken(ErrorKind.UNAVAILABLE, 429, "rate_limit_exceeded", "Slow down.")
    answer = CODEC.write_error(broken, "req_1")
    with pytest.raises(openai.RateLimitError, match="Slow down"):
        ask_openai(Wire(answer.body, status=answer.status, kind=JSON))


def test_an_unstreamed_compaction_is_an_object() -> None:
    asked = Request("m", stream=False, purpose=Purpose.COMPACTION_OBJECT)
    body = {"status": "completed", "output": [{"type": "message", "content": [{"type": "output_text", "text": "S"}]}]}
    events = CODEC.read_body(asked, TARGET, json.dumps(body).encode())
    assert events[-1] == Ended(Stop.END)
    assert json.loads(CODEC.write_body(asked, TARGET, events))["object"] == "response.compaction"
