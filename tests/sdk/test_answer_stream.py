"""Answers read from bytes: at every split the same, whole or streamed the same, and errors as what they are."""

import json
from pathlib import Path
from typing import Any

import pytest

from cachegate.sdk import (
    BrokenAnswer,
    CachegateError,
    CacheStop,
    ContextFull,
    ProviderError,
    TextDelta,
    ThoughtDelta,
    Tokens,
    answer_stream,
)
from cachegate.sdk.answer_stream import AnswerReader, Heard, Told, refusal
from sdk.replies import USAGE, begun, called, event, response, said, streamed, thought

TRANSCRIPTS = Path(__file__).parent.parent / "transcripts"
ITEMS = [thought("hm"), said("Hello."), called("add", '{"a":1}')]


def read(*pieces: bytes, whole: bool = False) -> list[Told | Heard]:
    reader = AnswerReader(streamed=not whole)
    told: list[Told | Heard] = [told for piece in pieces for told in reader.feed(piece)]
    return [*told, *reader.end()]


def heard(told: list[Told | Heard]) -> Heard:
    assert isinstance(told[-1], Heard)
    return told[-1]


@pytest.mark.parametrize(
    "data",
    [streamed(*ITEMS), *((TRANSCRIPTS / f"responses-{name}.sse").read_bytes() for name in ("text", "tool-use", "odd"))],
)
def test_every_split_gives_the_same_answer(data: bytes) -> None:
    expected = read(data)
    for cut in range(0, len(data), 1 if len(data) < 4_000 else 7):
        assert read(data[:cut], data[cut:]) == expected


def test_a_whole_answer_is_told_like_a_streamed_one() -> None:
    whole = read(json.dumps(response(ITEMS)).encode(), whole=True)
    assert whole[:2] == [ThoughtDelta("hm"), TextDelta("Hello.")]
    assert heard(whole) == heard(read(streamed(*ITEMS)))


def test_items_stand_in_the_last_event_where_they_were_not_streamed() -> None:
    only_end = event("response.completed", response=response([said("Hello.")]))
    assert read(only_end)[0] == TextDelta("Hello.")
    only_items = begun(said("Hello.")) + event("response.completed", response=response([]))
    assert heard(read(only_items)).items == (said("Hello."),)


def test_what_comes_after_the_end_is_not_heard() -> None:
    data = streamed(said("Hello.")) + event("response.output_text.delta", delta=" more") + b"data: [DONE]\n\n"
    assert heard(read(data)).text == "Hello."
    assert read(data) == read(streamed(said("Hello.")))


@pytest.mark.parametrize("name", ["cut"])
def test_an_end_of_file_is_no_end_of_an_answer(name: str) -> None:
    with pytest.raises(BrokenAnswer, match="before it was complete"):
        read((TRANSCRIPTS / f"responses-{name}.sse").read_bytes())


@pytest.mark.parametrize("name", ["failed", "error", "nested-error"])
def test_failures_are_raised_in_the_providers_words(name: str) -> None:
    with pytest.raises(ProviderError) as failed:
        read((TRANSCRIPTS / f"responses-{name}.sse").read_bytes())
    assert failed.value.code
    assert failed.value.status is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"object":"list"}',
        json.dumps(response([], "in_progress")).encode(),
        b'{"status":"completed","output":"x"}',
    ],
)
def test_a_whole_answer_that_is_none_is_broken(body: bytes) -> None:
    with pytest.raises(BrokenAnswer):
        read(body, whole=True)


def test_a_failed_whole_answer_is_raised_and_its_usage_known() -> None:
    reader = AnswerReader(streamed=False)
    reader.feed(json.dumps({**response([], "failed"), "error": {"code": "server_error", "message": "no"}}).encode())
    with pytest.raises(ProviderError, match="no"):
        reader.end()
    assert reader.tokens.input == 100


def test_an_answer_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_stream, "ANSWER_BYTES_MAX", 1_000)
    reader = AnswerReader()
    with pytest.raises(BrokenAnswer, match="1000 bytes"):
        reader.feed(b": keepalive\n\n" * 100)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (USAGE, Tokens(100, 40, 60, 7, 107)),
        (None, Tokens()),
        ({"input_tokens": 5}, Tokens(input=5)),
        ({"input_tokens": True, "output_tokens": -1, "total_tokens": "9"}, Tokens()),
        ({"input_tokens": 0, "input_tokens_details": {"cached_tokens": 0}}, Tokens(input=0, cached=0)),
    ],
)
def test_usage_that_nobody_reported_is_none(usage: dict[str, Any] | None, expected: Tokens) -> None:
    assert heard(read(streamed(said("x"), usage=usage))).tokens == expected


STOP = b'{"error":{"message":"Please wait.","type":"invalid_request_error","code":"invalid_prompt","param":null}}'


def test_a_stop_is_known_by_its_header() -> None:
    told = {"X-Cachegate-Stop": "reason=unreported, count=3, wait-seconds=300"}
    error = refusal(400, told, STOP)
    assert isinstance(error, CacheStop)
    assert (error.words, error.reason, error.count, error.wait_s) == ("Please wait.", "unreported", 3, 300.0)
    bare = refusal(400, {"x-cachegate-stop": "hm"}, b"")
    assert isinstance(bare, CacheStop)
    assert (bare.reason, bare.count, bare.wait_s) == (None, None, None)


@pytest.mark.parametrize(
    ("body", "kind", "words", "code"),
    [
        (b'{"error":{"message":"no","code":"context_length_exceeded"}}', ContextFull, "no", None),
        (b'{"error":{"message":"no","code":"x"}}', ProviderError, "no", "x"),
        (b'{"error":{"message":"no","type":"t","code":null}}', ProviderError, "no", "t"),
        (b'{"error":"no"}', ProviderError, "no", None),
        (b'{"detail":"no"}', ProviderError, "no", None),
        (b'{"message":"no"}', ProviderError, "no", None),
        (b"<html>no</html>", ProviderError, "<html>no</html>", None),
        (b"\xff", ProviderError, "\ufffd", None),
        (b"", ProviderError, "The answer has the status 404 and says nothing.", None),
    ],
)
def test_error_answers_of_every_shape(body: bytes, kind: type[CachegateError], words: str, code: str | None) -> None:
    error = refusal(404, {}, body)
    assert type(error) is kind
    assert error.words == words
    if isinstance(error, ProviderError):
        assert (error.status, error.code) == (404, code)
