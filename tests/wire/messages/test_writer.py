import json

import anthropic.types
import pytest
from hypothesis import given, settings

from cachegate.guard.usage import Usage
from cachegate.wire.answer import Answer
from cachegate.wire.facts import Protocol
from cachegate.wire.messages.reader import MessagesReader
from cachegate.wire.messages.writer import MessagesWriter
from cachegate.wire.seen import Finished, Refusal
from wire.answers import KNOWN, STATES, answer, answers
from wire.transcripts import feed, observe
from wire.usage_cases import folded
from wire.vendor_sdks import JSON, Wire, anthropic_client, anthropic_final, ask_anthropic, check_anthropic_event

WRITER = MessagesWriter()
REFUSED = pytest.mark.parametrize("refused", [False, True], ids=["answered", "refused"])


def read_by_the_sdk(written: Answer) -> tuple[anthropic.types.Message, anthropic.types.Message]:
    """Return the answer as the SDK reads it, streamed and whole."""
    return anthropic_final(b"".join(WRITER.stream(written))), ask_anthropic(Wire(WRITER.whole(written), kind=JSON))


def test_each_item_of_a_stream_is_one_event() -> None:
    items = WRITER.stream(answer())
    assert [feed([item]).released for item in items] == items
    assert [event.name for event in feed(items).events] == [
        b"message_start", b"content_block_start", b"content_block_delta", b"content_block_delta", b"content_block_stop",
        b"message_delta", b"message_stop",
    ]  # fmt: skip


def test_the_name_of_an_event_is_its_type() -> None:
    assert all(json.loads(event.data)["type"] == event.name.decode() for event in feed(WRITER.stream(answer())).events)


@REFUSED
def test_a_stream_has_every_field_of_the_sdks_types(refused: bool) -> None:
    for event in feed(WRITER.stream(answer(refused=refused))).events:
        check_anthropic_event(event)


@REFUSED
def test_a_whole_answer_has_every_field_of_the_sdks_type(refused: bool) -> None:
    anthropic.types.Message.model_validate_json(WRITER.whole(answer(refused=refused)))


@REFUSED
def test_the_sdk_reads_the_same_answer_streamed_and_whole(refused: bool) -> None:
    written = answer(KNOWN, "Hel", "", "lo\u2028\n\n🙂", refused=refused)
    for message in read_by_the_sdk(written):
        assert (message.id, message.model, message.role) == ("msg_a1", "synthetic/cold", "assistant")
        assert [block.text for block in message.content if block.type == "text"] == ["Hello\u2028\n\n🙂"]
        assert (message.stop_reason, message.stop_sequence) == ("refusal" if refused else "end_turn", None)
        usage = message.usage
        assert (usage.input_tokens, usage.cache_read_input_tokens, usage.cache_creation_input_tokens) == (
            64_512, 65_536, 1_024,
        )  # fmt: skip
        assert usage.output_tokens == 7


@pytest.mark.parametrize("usage", STATES, ids=str)
def test_what_is_unknown_is_left_out_and_never_zero(usage: Usage) -> None:
    written = json.loads(WRITER.whole(answer(usage)))["usage"]
    assert ("input_tokens" in written) is (usage.input_total is not None)
    assert ("cache_read_input_tokens" in written) is (usage.cached_read is not None)
    assert ("cache_creation_input_tokens" in written) is (usage.cache_write is not None)
    for message in read_by_the_sdk(answer(usage)):
        assert message.usage.cache_read_input_tokens == usage.cached_read
        assert message.usage.cache_creation_input_tokens == usage.cache_write


@settings(deadline=None)
@given(answers)
def test_our_reader_reads_back_what_was_written(written: Answer) -> None:
    reader = MessagesReader()
    whole = reader.read_body(200, WRITER.whole(written))
    streamed = observe(Protocol.MESSAGES, feed(WRITER.stream(written)).events)
    for seen in (whole, streamed.seen):
        assert folded(seen) == written.usage
        assert (Refusal() in seen) is written.refused
        assert seen[-1] == Finished()
    assert (streamed.finished, streamed.terminal, reader.finished) == (True, True, True)
    texts = [json.loads(event.data) for event in feed(WRITER.stream(written)).events]
    deltas = [event["delta"]["text"] for event in texts if event["type"] == "content_block_delta"]
    assert tuple(deltas) == written.deltas


def test_an_answer_without_text_is_one_all_the_same() -> None:
    silent = Answer("a1", "m", 1, (), KNOWN, 0)
    for message in read_by_the_sdk(silent):
        assert [block.text for block in message.content if block.type == "text"] == [""]


def test_the_sdk_reads_a_count() -> None:
    assert WRITER.count(4_096) == b'{"input_tokens":4096}'
    with anthropic_client(Wire(WRITER.count(4_096), kind=JSON)) as client:
        counted = client.messages.count_tokens(model="m", messages=[{"role": "user", "content": "hi"}])
    assert counted.input_tokens == 4_096
