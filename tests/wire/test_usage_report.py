import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegate.errors import BadInput
from cachegate.guard.usage import Usage
from cachegate.wire.body import encode
from cachegate.wire.native_events import EVENT_READERS
from cachegate.wire.usage_readings import READINGS
from cachegate.wire.usage_report import PROTOCOLS, PROVIDERS, Outcome, Question, Report, report
from wire.transcripts import TRANSCRIPTS, Transcript
from wire.usage_cases import CASES, UsageCase

OUTCOMES = {
    "": {Outcome.FINISHED, Outcome.CUT},
    "error": {Outcome.FAILED},
    "refusal": {Outcome.REFUSED},
    "context_overflow": {Outcome.OVERFLOW},
    # The gateway records `response.incomplete` as what it is: an answer that came to its end.
    "incomplete": {Outcome.CUT, Outcome.FINISHED},
}
ANTHROPIC = Question("anthropic")
CHAT = Question("openai", "chat")


def asked(case: UsageCase) -> Report:
    streamed = case.body is None and case.shape not in EVENT_READERS
    question = Question(case.provider, case.shape.value, streamed=streamed, status=case.status)
    if case.body is not None:
        return report(question, encode(case.body))
    lines = b"\n".join(encode(event) for event in case.events)
    return report(question, case.data if streamed else lines)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_case_is_reported_as_it_is_recorded(case: UsageCase) -> None:
    told = asked(case)
    assert told.usage == case.usage
    assert told.inconsistent == case.inconsistent
    assert told.subagent_calls == case.subagent_calls
    assert told.side_calls == case.side_calls
    if case.calls is not None:
        assert told.calls == case.calls
        return
    assert told.outcome in OUTCOMES[case.outcome]


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda transcript: transcript.name)
def test_a_recorded_stream_is_reported(transcript: Transcript) -> None:
    provider = "anthropic" if transcript.protocol == "messages" else "codex"
    told = report(Question(provider, streamed=True), transcript.data)
    usage = Usage()
    for item in transcript.seen:
        usage = usage.updated(item) if isinstance(item, Usage) else usage
    assert told.usage == usage
    assert (told.outcome is Outcome.CUT) == (not transcript.terminal)


def test_every_provider_can_be_asked_about() -> None:
    assert set(PROVIDERS) == set(READINGS)
    for provider in PROVIDERS:
        for shape in READINGS[provider]:
            assert report(Question(provider, shape.value), b"{}").usage == Usage()
    assert PROTOCOLS == ("messages", "responses", "chat")


USAGE = {"input_tokens": 14, "cache_creation_input_tokens": 181_000, "cache_read_input_tokens": 0}
WHOLE: dict[str, Any] = {"type": "message", "stop_reason": "end_turn", "usage": USAGE}


def test_people_read_numbers_and_never_a_zero_for_unknown() -> None:
    assert report(ANTHROPIC, encode(WHOLE)).lines() == [
        "input total  181,014",
        "cached read  0",
        "cache write  181,000",
        "uncached     181,014",
        "outcome      finished",
    ]
    assert report(CHAT, b'{"choices":[],"usage":{"prompt_tokens":9}}').lines() == [
        "input total  9",
        "cached read  not reported",
        "cache write  not reported",
        "uncached     not reported",
        "outcome      finished",
    ]


def test_people_read_what_is_beside_the_call() -> None:
    compaction = {"type": "compaction", "input_tokens": 25, "cache_read_input_tokens": 160_000}
    lines = report(ANTHROPIC, encode({**WHOLE, "usage": {**USAGE, "iterations": [compaction]}})).lines()
    assert lines[-1] == (
        "beside: compaction  input total 160,025, cached read 160,000, cache write not reported, uncached 25"
    )
    contradictory = {"choices": [], "usage": {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 10}}}
    assert report(CHAT, encode(contradictory)).lines()[-1] == (
        "inconsistent  a part was reported that is larger than the whole, so the parts are unknown"
    )
    case = next(case for case in CASES if case.name == "claude-cli-two-calls-one-turn")
    lines = asked(case).lines()
    assert [line.partition("  ")[0] for line in lines[5:]] == ["call 1", "call 2", "sub-agent"]
    assert "input total 99,006, cached read 0" in lines[5]
    assert "input total 8,002" in lines[7]


def test_programs_read_the_same_with_null_for_unknown() -> None:
    told = report(ANTHROPIC, encode({**WHOLE, "usage": {"input_tokens": 9}}))
    assert told.as_json() == {
        "inputTokens": 9, "cachedTokens": None, "cacheWriteTokens": None, "uncachedTokens": None,
        "inconsistent": False, "outcome": "finished", "code": None,
        "calls": [{"inputTokens": 9, "cachedTokens": None, "cacheWriteTokens": None, "uncachedTokens": None}],
        "subagentCalls": [], "sideCalls": [],
    }  # fmt: skip
    assert json.dumps(told.as_json())


@pytest.mark.parametrize(
    ("question", "payload", "outcome"),
    [
        (ANTHROPIC, WHOLE, "finished"),
        (ANTHROPIC, {**WHOLE, "stop_reason": "refusal"}, "refused"),
        (ANTHROPIC, {**WHOLE, "stop_reason": "model_context_window_exceeded"}, "context overflow"),
        (ANTHROPIC, {"type": "error", "error": {"type": "overloaded_error"}}, "failed overloaded_error"),
        (ANTHROPIC, {"type": "error", "error": {"message": "prompt is too long: 9 tokens > 8"}}, "context overflow"),
        (ANTHROPIC, {"type": "error", "error": {"type": "api_error", "message": "content filtering policy"}},
         "refused api_error"),
        (ANTHROPIC, [], "failed not_json"),
        (Question("codex", status=400), {"detail": "Unsupported"}, "failed unknown"),
        (Question("ollama-native"), {"done": False}, "cut off"),
    ],
)  # fmt: skip
def test_the_end_is_named_as_a_record_names_it(question: Question, payload: Any, outcome: str) -> None:
    assert report(question, encode(payload)).lines()[4] == f"outcome      {outcome}"


def test_an_error_page_can_be_asked_about_with_its_status() -> None:
    told = report(Question("anthropic", status=502), b"<html>Bad Gateway</html>")
    assert (told.outcome, told.code, told.usage) == (Outcome.FAILED, "unknown", Usage())


def test_the_providers_switch_can_be_tried() -> None:
    assert report(ANTHROPIC, encode(WHOLE)).usage.cached_read == 0
    assert report(Question("anthropic", zero_is_unknown=True), encode(WHOLE)).usage.cached_read is None
    native = encode({"usageMetadata": {"promptTokenCount": 9, "cachedContentTokenCount": 0}})
    assert report(Question("gemini-native"), native).usage == Usage(9, 0)
    assert report(Question("gemini-native", zero_is_unknown=True), native).usage == Usage(9)


def test_a_stream_may_lack_its_last_blank_line_and_begin_with_anything() -> None:
    data = b": hello\n\ndata: " + encode({"choices": [], "usage": {"prompt_tokens": 9}})
    told = report(Question("openrouter", "chat", streamed=True), data)
    assert (told.usage, told.outcome) == (Usage(9), Outcome.CUT)


@pytest.mark.parametrize("form", ["array", "lines", "sse"])
def test_events_of_an_api_of_its_own_come_in_any_form(form: str) -> None:
    events = [{"usageMetadata": {"promptTokenCount": 9}}, {"candidates": [{"finishReason": "STOP"}]}]
    payload = {
        "array": encode(events),
        "lines": b"\r\n\n".join(map(encode, events)) + b"\n",
        "sse": b"".join(b"data: " + encode(event) + b"\n\n" for event in events),
    }[form]
    told = report(Question("gemini-native", streamed=form == "sse"), payload)
    assert (told.usage, told.outcome) == (Usage(9), Outcome.FINISHED)


@pytest.mark.parametrize(
    ("question", "payload", "words"),
    [
        (Question("nobody"), b"{}", "There is no provider 'nobody'. Known are: anthropic, azure,"),
        (
            Question("openai"),
            b"{}",
            "openai answers in several protocols. Add --protocol with one of: responses, chat.",
        ),
        (Question("codex", "chat"), b"{}", "For codex there is no protocol 'chat'. There is: responses."),
        (ANTHROPIC, b" \n", "There is no payload."),
        (ANTHROPIC, b"event: message_start\ndata: {}\n\n", "It looks like a stream: add --sse."),
        (ANTHROPIC, b"hello", "This is no JSON: 'hello'."),
        (Question("ollama-native"), b'{"done":false}\n{"do', "This is no JSON: '{\"do'."),
        (Question("anthropic", streamed=True), b"{}", "There is no event with data in this stream. Leave out --sse"),
        (Question("bedrock", streamed=True), b"\xff", "There is no event with data"),
    ],
)
def test_what_cannot_be_read_is_told_in_a_sentence(question: Question, payload: bytes, words: str) -> None:
    with pytest.raises(BadInput) as raised:
        report(question, payload)
    assert words in raised.value.message


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=80), st.sampled_from(PROVIDERS), st.booleans(), st.sampled_from([200, 400]))
def test_any_bytes_are_reported_or_told_to_be_none(payload: bytes, provider: str, streamed: bool, status: int) -> None:
    for shape in READINGS[provider]:
        with suppress(BadInput):
            told = report(Question(provider, shape.value, streamed=streamed, status=status), payload)
            assert told.usage == Usage()
            assert told.lines()
