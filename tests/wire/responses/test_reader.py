import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegate.errors import ErrorKind
from cachegate.guard.usage import Usage
from cachegate.wire.body import encode
from cachegate.wire.facts import Protocol
from cachegate.wire.refusals import CODES as REFUSAL_CODES
from cachegate.wire.responses.reader import ResponsesReader
from cachegate.wire.seen import Failed, Finished, Refusal, Seen
from cachegate.wire.sse import SseEvent
from cachegate.wire.usage_readings import Format
from wire.transcripts import RESPONSES, Transcript, byte_by_byte, expected, feed, in_two, observe
from wire.usage_cases import UsageCase, cases, folded, outcome_of, reader_of, seen_by

USAGE = {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 1, "total_tokens": 10}
REFUSING = {"type": "message", "content": [{"type": "output_text", "text": "…"}, {"type": "refusal", "refusal": "No."}]}


def read(*events: dict[str, Any], named: bool = True) -> tuple[Seen, ...]:
    reader = ResponsesReader()
    sent = [SseEvent(event["type"].encode() if named else b"", encode(event)) for event in events]
    return tuple(item for event in sent for item in reader.read(event))


def read_body(body: Any, status: int = 200) -> tuple[Seen, ...]:
    return ResponsesReader().read_body(status, body if isinstance(body, bytes) else json.dumps(body).encode())


def ended(kind: str, **response: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "response": {"id": "resp_1", "status": kind, **response}}


@pytest.fixture(params=RESPONSES, ids=lambda transcript: transcript.name)
def transcript(request: pytest.FixtureRequest) -> Transcript:
    chosen: Transcript = request.param
    return chosen


def test_a_stream_says_what_was_recorded(transcript: Transcript) -> None:
    assert observe(Protocol.RESPONSES, feed([transcript.data]).events) == expected(transcript)


def test_every_split_in_two_says_the_same(transcript: Transcript) -> None:
    for pieces in in_two(transcript.data):
        assert observe(Protocol.RESPONSES, feed(pieces).events) == expected(transcript)


def test_byte_by_byte_says_the_same(transcript: Transcript) -> None:
    assert observe(Protocol.RESPONSES, feed(byte_by_byte(transcript.data)).events) == expected(transcript)


@pytest.mark.parametrize("case", cases(Format.RESPONSES), ids=lambda case: case.name)
def test_a_case_of_usage(case: UsageCase) -> None:
    seen = seen_by(reader := reader_of(case), case)
    assert reader.measurement.inconsistent == case.inconsistent
    assert folded(seen) == case.usage
    assert folded(seen).uncached == case.uncached
    assert outcome_of(case, seen) == case.outcome


def test_events_without_a_name_are_known_by_their_type() -> None:
    event = ended("completed", usage=USAGE)
    assert read(event, named=False) == read(event) == (Usage(9, 4), Finished())


@pytest.mark.parametrize("name", [b"keepalive", b"response.output_text.delta", b"codex.rate_limits", b"message"])
def test_other_events_say_nothing_whatever_they_hold(name: bytes) -> None:
    assert ResponsesReader().read(SseEvent(name, encode(ended("completed", usage=USAGE)))) == ()


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b'"error"', b"[DONE]", b"\xff", b"{}", b'{"type":7}'])
@pytest.mark.parametrize("name", [b"response.created", b"response.completed", b"response.failed", b"error", b""])
def test_an_event_that_is_no_object_of_its_kind_says_nothing(name: bytes, data: bytes) -> None:
    reader = ResponsesReader()
    assert reader.read(SseEvent(name, data)) == ()
    assert not reader.terminal


@pytest.mark.parametrize("name", [b"", b"error"])
def test_an_error_without_the_protocols_shape_ends_the_stream_all_the_same(name: bytes) -> None:
    reader = ResponsesReader()
    error = {"code": 503, "message": "Loading.", "type": "unavailable_error"}  # llama.cpp
    assert reader.read(SseEvent(name, encode({"error": error}))) == (Failed("unavailable_error"),)
    assert reader.terminal, "the client got it: a second one would be too many"
    assert not reader.finished


@pytest.mark.parametrize("usage", [None, [], 7, "x"])
def test_usage_that_is_no_object_measures_nothing(usage: Any) -> None:
    assert read(ended("completed", usage=usage)) == (Finished(),)
    assert read_body({"status": "completed", "usage": usage}) == (Finished(),)
    assert read({"type": "response.completed", "response": usage}) == (Finished(),)


@pytest.mark.parametrize("reason", ["content_filter", "max_output_tokens", None, 7])
def test_a_filter_that_cuts_an_answer_short_is_a_refusal(reason: Any) -> None:
    refusal: tuple[Seen, ...] = (Refusal(),) if reason == "content_filter" else ()
    response = {"incomplete_details": {"reason": reason}, "usage": USAGE}
    assert read(ended("incomplete", **response)) == (Usage(9, 4), *refusal, Finished())
    assert read_body({"status": "incomplete", **response}) == (Usage(9, 4), *refusal, Finished())


def test_a_refusing_part_is_a_refusal_and_text_about_one_is_none() -> None:
    assert read_body({"status": "completed", "output": [REFUSING]}) == (Refusal(), Finished())
    assert read(ended("completed", output=[{"type": "reasoning"}, REFUSING])) == (Refusal(), Finished())
    told = {"type": "message", "content": [{"type": "output_text", "text": '{"type":"refusal"}'}]}
    assert read_body({"status": "completed", "output": [told]}) == (Finished(),)
    odd_outputs: list[Any] = [None, 7, [None, 7, [], {"content": 7}, {"content": [None, 7, []]}]]
    for odd in odd_outputs:
        assert read_body({"status": "completed", "output": odd}) == (Finished(),)


@pytest.mark.parametrize("code", sorted(REFUSAL_CODES))
def test_a_policy_code_is_a_refusal_however_it_comes(code: str) -> None:
    error = {"code": code, "message": "x"}
    refused = (Refusal(), Failed(code))
    assert read({"type": "error", **error, "param": None}) == refused
    assert read({"type": "error", "error": error}) == refused
    assert read(ended("failed", error=error)) == refused
    assert read_body({"error": error}, 400) == refused
    assert read_body({"status": "failed", "error": error}) == refused


def test_what_codex_and_azure_name_a_policy_is_known() -> None:
    named = {"invalid_prompt", "bio_policy", "misalignment_policy_violation", "cyber_policy", "content_filter"}
    assert named <= REFUSAL_CODES
    assert not {"server_error", "context_length_exceeded", "invalid_request_error"} & REFUSAL_CODES


@pytest.mark.parametrize(
    "event",
    [
        {"type": "response.content_part.added", "part": {"type": "refusal", "refusal": ""}},
        {"type": "response.content_part.done", "part": {"type": "refusal", "refusal": "No."}},
        {"type": "response.output_item.done", "item": REFUSING},
        {"type": "response.refusal.delta", "delta": "N"},
        {"type": "response.refusal.done", "refusal": "No."},
    ],
    ids=lambda event: str(event["type"]),
)
def test_a_refusal_is_seen_mid_stream_even_if_its_end_never_comes(event: dict[str, Any]) -> None:
    """Codex's terminal event may hold no output, and a stream may break before it."""
    assert read(event) == (Refusal(),)
    assert read(event, named=False) == (Refusal(),)
    assert read(event, ended("completed", output=[], usage=USAGE)) == (Refusal(), Usage(9, 4), Finished())
    told = {"type": "output_text"}
    odd_parts: list[Any] = [None, 7, [], {}, told, {"type": ["refusal"]}, {"content": [told]}]
    for odd in odd_parts:
        if not event["type"].startswith("response.refusal"):
            assert read({"type": event["type"], "part": odd, "item": odd}) == ()


@pytest.mark.parametrize("kind", [None, 7, [], {}, ["response.refusal.delta"]])
def test_a_type_that_is_no_text_says_nothing(kind: Any) -> None:
    assert ResponsesReader().read(SseEvent(b"", encode({"type": kind}))) == ()


def test_azures_inner_error_is_a_refusal() -> None:
    error = {"code": "content_filter", "innererror": {"code": "ResponsibleAIPolicyViolation"}, "message": "x"}
    assert read_body({"error": error}, 400) == (Refusal(), Failed("content_filter"))
    assert read_body({"error": {**error, "code": None}}, 400) == (Refusal(), Failed("ResponsibleAIPolicyViolation"))


def test_the_readings_of_a_provider_can_be_named() -> None:
    event = SseEvent(b"", encode(ended("completed", usage={**USAGE, "input_tokens_details": {"cached_tokens": 0}})))
    assert ResponsesReader("openai").read(event) == (Usage(9, 0), Finished())
    assert ResponsesReader("vllm").read(event) == (Usage(9), Finished())
    assert ResponsesReader(zero_is_unknown=True).read(event) == (Usage(9), Finished())


@pytest.mark.parametrize("code", ["server_error", "rate_limit_exceeded", "context_length_exceeded", None, 400, ["x"]])
def test_any_other_code_is_a_failure_only(code: Any) -> None:
    error = {"code": code, "message": "x"}
    failed = (Failed(code if isinstance(code, str) else "unknown"),)
    assert read({"type": "error", **error}) == failed
    assert read({"type": "error", "error": error}) == failed
    assert read(ended("failed", error=error)) == failed
    assert read_body({"error": error}, 429) == failed
    assert read_body({"error": error}) == failed


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (502, b"<html>Bad Gateway</html>", "unknown"),
        (400, b"", "unknown"),
        (302, b"", "unknown"),
        (500, b'{"error":"text"}', "unknown"),
        (400, b'{"detail":"Unsupported"}', "unknown"),
        (200, b"<html>", "not_json"),
        (200, b"", "not_json"),
        (200, b"[]", "not_json"),
    ],
)
def test_an_error_of_no_known_shape_is_a_failure_all_the_same(status: int, body: bytes, code: str) -> None:
    reader = ResponsesReader()
    assert reader.read_body(status, body) == (Failed(code),)
    assert not reader.finished


def test_usage_is_observed_before_the_failure() -> None:
    error = {"code": "server_error", "message": "x"}
    measured = (Usage(9, 4), Failed("server_error"))
    assert read(ended("failed", error=error, usage=USAGE)) == measured
    assert read_body({"status": "failed", "error": error, "usage": USAGE}) == measured


def test_a_compaction_measures_like_any_answer() -> None:
    assert read_body({"object": "response.compaction", "output": [], "usage": USAGE}) == (Usage(9, 4), Finished())
    item = {"type": "compaction", "encrypted_content": "gAAAA"}
    assert read(ended("completed", output=[item], usage=USAGE)) == (Usage(9, 4), Finished())


@pytest.mark.parametrize(
    ("event", "finished"),
    [(ended("completed"), True), (ended("incomplete"), True), (ended("failed"), False), ({"type": "error"}, False)],
)
def test_what_ends_a_stream_and_what_finishes_it(event: dict[str, Any], finished: bool) -> None:
    reader = ResponsesReader()
    reader.read(SseEvent(event["type"].encode(), encode(event)))
    assert (reader.finished, reader.terminal) == (finished, True)


@pytest.mark.parametrize("count", range(10))
def test_a_terminal_error_continues_the_stream_it_ends(count: int) -> None:
    """A client that follows ids and numbers finds the same response, failed, and no gap before it."""
    text = next(transcript for transcript in RESPONSES if transcript.name == "responses-text")
    events = feed([text.data]).events[:count]
    reader = ResponsesReader()
    for event in events:
        reader.read(event)
    error, failed = (json.loads(event.data) for event in feed([reader.terminal_error(ErrorKind.UPSTREAM, "x")]).events)
    assert (error["sequence_number"], failed["sequence_number"]) == (len(events), len(events) + 1)
    assert reader.terminal
    response = failed["response"]
    if events:
        created = json.loads(events[0].data)["response"]
        assert {name: response[name] for name in ("id", "created_at", "model")} == {
            name: created[name] for name in ("id", "created_at", "model")
        }
    assert (response["status"], response["usage"], response["output"]) == ("failed", None, [])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
RESPONSE = JSON | st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("status", "usage", "error", "output", "incomplete_details", "id"), JSON)
)
TYPES = ["response.created", "response.refusal.done", "response.completed", "response.failed", "error"]
EVENTS = st.fixed_dictionaries(
    {"type": st.sampled_from(TYPES) | JSON}, optional={"response": RESPONSE, "error": JSON, "code": JSON}
)


@settings(deadline=None, max_examples=200)
@given(st.lists(EVENTS, max_size=4), st.sampled_from([200, 400, 500]))
def test_fields_of_any_type_are_read_without_a_crash(events: list[dict[str, Any]], status: int) -> None:
    reader = ResponsesReader()
    for event in events:
        reader.read(SseEvent(b"", json.dumps(event).encode()))
        ResponsesReader().read_body(status, json.dumps(event.get("response", event)).encode())
    assert reader.terminal or not reader.finished
    assert reader.terminal_error(ErrorKind.UPSTREAM, "x")


def test_an_answer_that_ends_in_half_an_emoji_is_complete_all_the_same() -> None:
    text = b'{"output":[{"type":"message","content":[{"type":"output_text","text":"\\ud83d"}]}],"usage":%b' % encode(
        USAGE
    )
    reader = ResponsesReader()
    seen = reader.read(SseEvent(b"", b'{"type":"response.completed","response":' + text + b"}}"))
    assert Finished() in seen
    assert Usage(9, 4) in seen
    assert read_body(text + b"}") == seen
