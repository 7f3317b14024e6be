import json
from typing import Any

import openai.types.responses
import pytest
from hypothesis import given, settings

from cachegate.guard.usage import Usage
from cachegate.wire.answer import Answer
from cachegate.wire.facts import Protocol
from cachegate.wire.responses.reader import ResponsesReader
from cachegate.wire.responses.writer import ResponsesWriter
from cachegate.wire.seen import Finished, Refusal
from wire.answers import KNOWN, STATES, answer, answers
from wire.transcripts import feed, observe
from wire.usage_cases import folded
from wire.vendor_sdks import JSON, Wire, ask_openai, check_openai_event, openai_client, openai_final

WRITER = ResponsesWriter()
REFUSED = pytest.mark.parametrize("refused", [False, True], ids=["answered", "refused"])


def read_by_the_sdk(written: Answer) -> tuple[openai.types.responses.Response, openai.types.responses.Response]:
    """Return the answer as the SDK reads it, streamed and whole."""
    return openai_final(b"".join(WRITER.stream(written))), ask_openai(Wire(WRITER.whole(written), kind=JSON))


def objects(written: Answer) -> list[dict[str, Any]]:
    return [json.loads(event.data) for event in feed(WRITER.stream(written)).events]


@pytest.mark.parametrize(("refused", "kind"), [(False, b"output_text"), (True, b"refusal")])
def test_each_item_of_a_stream_is_one_event(refused: bool, kind: bytes) -> None:
    items = WRITER.stream(answer(refused=refused))
    assert [feed([item]).released for item in items] == items
    assert [event.name for event in feed(items).events] == [
        b"response.created", b"response.in_progress", b"response.output_item.added", b"response.content_part.added",
        b"response.%b.delta" % kind, b"response.%b.delta" % kind, b"response.%b.done" % kind,
        b"response.content_part.done", b"response.output_item.done", b"response.completed",
    ]  # fmt: skip


def test_events_are_numbered_without_a_gap_and_named_by_their_type() -> None:
    events = feed(WRITER.stream(answer())).events
    assert [json.loads(event.data)["sequence_number"] for event in events] == list(range(len(events)))
    assert all(json.loads(event.data)["type"] == event.name.decode() for event in events)


@REFUSED
def test_a_stream_has_every_field_of_the_sdks_types(refused: bool) -> None:
    for event in feed(WRITER.stream(answer(refused=refused))).events:
        check_openai_event(event)


@REFUSED
def test_a_whole_answer_has_every_field_of_the_sdks_type(refused: bool) -> None:
    openai.types.responses.Response.model_validate_json(WRITER.whole(answer(refused=refused)))


def test_codex_finds_what_it_needs() -> None:
    """The response's id, the finished item and the usage."""
    by_type = {event["type"]: event for event in objects(answer())}
    assert by_type["response.created"]["response"]["id"] == "resp_a1"
    assert by_type["response.output_item.done"]["item"]["content"][0]["text"] == "Hello"
    completed = by_type["response.completed"]["response"]
    assert (completed["id"], completed["created_at"]) == ("resp_a1", 1_795_906_800)
    assert completed["usage"]["input_tokens_details"] == {"cached_tokens": 65_536, "cache_write_tokens": 1_024}


@REFUSED
def test_the_sdk_reads_the_same_answer_streamed_and_whole(refused: bool) -> None:
    written = answer(KNOWN, "Hel", "", "lo\u2028\n\n🙂", refused=refused)
    for response in read_by_the_sdk(written):
        assert (response.id, response.model, response.status) == ("resp_a1", "synthetic/cold", "completed")
        assert response.output_text == ("" if refused else "Hello\u2028\n\n🙂")
        message = response.output[0]
        assert isinstance(message, openai.types.responses.ResponseOutputMessage)
        refusals = [part.refusal for part in message.content if part.type == "refusal"]
        assert refusals == (["Hello\u2028\n\n🙂"] if refused else [])
        usage = response.usage
        assert usage is not None
        assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (131_072, 7, 131_079)


@pytest.mark.parametrize("usage", STATES, ids=str)
def test_what_is_unknown_is_left_out_and_never_zero(usage: Usage) -> None:
    plain = json.loads(WRITER.whole(answer(usage)))["usage"] or {}
    assert None not in plain.get("input_tokens_details", {"known": True}).values()
    for response in read_by_the_sdk(answer(usage)):
        written = response.to_dict().get("usage")
        if usage.input_total is None:
            assert written is None
            continue
        assert isinstance(written, dict)
        details = written.get("input_tokens_details", {})
        assert isinstance(details, dict)
        assert written["input_tokens"] == usage.input_total
        assert details.get("cached_tokens") == usage.cached_read
        assert details.get("cache_write_tokens") == usage.cache_write


@settings(deadline=None)
@given(answers)
def test_our_reader_reads_back_what_was_written(written: Answer) -> None:
    """The protocol has no usage without a total, so without one nothing else is told either."""
    usage = Usage() if written.usage.input_total is None else written.usage
    reader = ResponsesReader()
    whole = reader.read_body(200, WRITER.whole(written))
    streamed = observe(Protocol.RESPONSES, feed(WRITER.stream(written)).events)
    for seen in (whole, streamed.seen):
        assert folded(seen) == usage
        assert (Refusal() in seen) is written.refused
        assert seen[-1] == Finished()
    assert (streamed.finished, streamed.terminal, reader.finished) == (True, True, True)
    deltas = [event["delta"] for event in objects(written) if event["type"].endswith(".delta")]
    assert tuple(deltas) == written.deltas


def test_an_answer_without_text_is_one_all_the_same() -> None:
    silent = Answer("a1", "m", 1, (), KNOWN, 0)
    assert [response.output_text for response in read_by_the_sdk(silent)] == ["", ""]


def test_the_sdk_reads_a_count() -> None:
    assert WRITER.count(4_096) == b'{"object":"response.input_tokens","input_tokens":4096}'
    with openai_client(Wire(WRITER.count(4_096), kind=JSON)) as client:
        assert client.responses.input_tokens.count(model="m", input="hi").input_tokens == 4_096
