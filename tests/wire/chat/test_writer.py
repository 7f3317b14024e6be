import json

import pytest
from hypothesis import given, settings
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from cachegate.guard.usage import Usage
from cachegate.wire.answer import Answer
from cachegate.wire.chat.reader import ChatReader
from cachegate.wire.chat.writer import ChatWriter
from cachegate.wire.seen import Finished, Refusal
from wire.answers import KNOWN, STATES, answer, answers
from wire.chat.chunks import chunks_of, sdk_final, sdk_whole
from wire.transcripts import feed
from wire.usage_cases import folded

WRITER = ChatWriter()
REFUSED = pytest.mark.parametrize("refused", [False, True], ids=["answered", "refused"])


def read_by_the_sdk(written: Answer) -> tuple[ChatCompletion, ChatCompletion]:
    """Return the answer as the SDK reads it, streamed and whole."""
    return sdk_final(b"".join(WRITER.stream(written))), sdk_whole(WRITER.whole(written))


def test_each_item_of_a_stream_is_one_event() -> None:
    items = WRITER.stream(answer())
    assert [feed([item]).released for item in items] == items
    assert [len(feed([item]).events) for item in items] == [1] * len(items)
    assert len(items) == 6
    assert items[-1] == b"data: [DONE]\n\n"


@REFUSED
def test_an_answer_has_every_field_of_the_sdks_types(refused: bool) -> None:
    for chunk in chunks_of(b"".join(WRITER.stream(answer(refused=refused)))):
        ChatCompletionChunk.model_validate(chunk)
    ChatCompletion.model_validate_json(WRITER.whole(answer(refused=refused)))


@REFUSED
def test_the_sdk_reads_the_same_answer_streamed_and_whole(refused: bool) -> None:
    text = "Hello\u2028\n\n🙂"
    for completion in read_by_the_sdk(answer(KNOWN, "Hel", "", "lo\u2028\n\n🙂", refused=refused)):
        assert (completion.id, completion.model, completion.created) == ("chatcmpl-a1", "synthetic/cold", 1_795_906_800)
        choice = completion.choices[0]
        assert choice.finish_reason == "stop"
        assert (choice.message.content or "", choice.message.refusal or "") == (("", text) if refused else (text, ""))
        assert completion.usage is not None
        assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (131_072, 7)


@pytest.mark.parametrize("usage", STATES, ids=str)
def test_what_is_unknown_is_left_out_and_never_zero(usage: Usage) -> None:
    written = json.loads(WRITER.whole(answer(usage)))["usage"]
    assert written.get("prompt_tokens") == usage.input_total
    details = written.get("prompt_tokens_details", {})
    assert (details.get("cached_tokens"), details.get("cache_write_tokens")) == (usage.cached_read, usage.cache_write)
    assert None not in details.values()
    read_by_the_sdk(answer(usage))


@settings(deadline=None)
@given(answers)
def test_our_reader_reads_back_what_was_written(written: Answer) -> None:
    whole, streamed = ChatReader(), ChatReader()
    events = feed(WRITER.stream(written)).events
    for seen in (
        whole.read_body(200, WRITER.whole(written)),
        tuple(s for event in events for s in streamed.read(event)),
    ):
        assert folded(seen) == written.usage
        said = any(written.deltas)
        assert (Refusal() in seen) is (written.refused and said)
        assert Finished() in seen
    assert (streamed.finished, streamed.terminal, whole.finished) == (True, True, True)


def test_an_answer_without_text_is_one_all_the_same() -> None:
    silent = Answer("a1", "m", 1, (), KNOWN, 0)
    assert [completion.choices[0].message.content or "" for completion in read_by_the_sdk(silent)] == ["", ""]


def test_a_count_is_told() -> None:
    assert json.loads(WRITER.count(4_096))["prompt_tokens"] == 4_096
