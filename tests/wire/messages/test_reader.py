import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegate.errors import ErrorKind
from cachegate.guard.usage import Usage
from cachegate.wire.body import encode
from cachegate.wire.facts import Protocol
from cachegate.wire.messages.reader import MessagesReader
from cachegate.wire.seen import Failed, Finished, Refusal, Seen
from cachegate.wire.sse import SseEvent, frame
from cachegate.wire.usage_readings import Format
from wire.transcripts import MESSAGES, Transcript, byte_by_byte, expected, feed, in_two, observe
from wire.usage_cases import UsageCase, cases, folded, outcome_of, reader_of, seen_by, seen_in

BLOCKED = {
    "type": "error",
    "error": {"type": "invalid_request_error", "message": "Output blocked by content filtering policy"},
}


def read(*events: dict[str, Any], named: bool = True) -> tuple[Seen, ...]:
    reader = MessagesReader()
    sent = [SseEvent(event["type"].encode() if named else b"", encode(event)) for event in events]
    return tuple(item for event in sent for item in reader.read(event))


def read_body(body: Any, status: int = 200) -> tuple[Seen, ...]:
    return MessagesReader().read_body(status, body if isinstance(body, bytes) else json.dumps(body).encode())


def start(**usage: Any) -> dict[str, Any]:
    return {"type": "message_start", "message": {"usage": usage}}


def delta(**usage: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}


@pytest.fixture(params=MESSAGES, ids=lambda transcript: transcript.name)
def transcript(request: pytest.FixtureRequest) -> Transcript:
    chosen: Transcript = request.param
    return chosen


def test_a_stream_says_what_was_recorded(transcript: Transcript) -> None:
    assert observe(Protocol.MESSAGES, feed([transcript.data]).events) == expected(transcript)


def test_every_split_in_two_says_the_same(transcript: Transcript) -> None:
    for pieces in in_two(transcript.data):
        assert observe(Protocol.MESSAGES, feed(pieces).events) == expected(transcript)


def test_byte_by_byte_says_the_same(transcript: Transcript) -> None:
    assert observe(Protocol.MESSAGES, feed(byte_by_byte(transcript.data)).events) == expected(transcript)


@pytest.mark.parametrize("case", cases(Format.MESSAGES), ids=lambda case: case.name)
def test_a_case_of_usage(case: UsageCase) -> None:
    reader = reader_of(case)
    assert isinstance(reader, MessagesReader)
    seen = seen_by(reader, case)
    assert seen == seen_in(case)
    assert reader.side_calls == case.side_calls
    assert reader.measurement.inconsistent == case.inconsistent
    assert folded(seen) == case.usage
    assert folded(seen).uncached == case.uncached
    assert outcome_of(case, seen) == case.outcome


def test_events_without_a_name_are_known_by_their_type() -> None:
    events = (start(input_tokens=5, cache_read_input_tokens=4), delta(output_tokens=1), {"type": "message_stop"})
    assert read(*events, named=False) == read(*events) == (Usage(9, 4), Usage(9, 4), Finished())


@pytest.mark.parametrize("name", [b"ping", b"content_block_delta", b"vendor_event", b"message"])
def test_other_events_say_nothing_whatever_they_hold(name: bytes) -> None:
    assert MessagesReader().read(SseEvent(name, b'{"type":"message_stop"}')) == ()


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b'"error"', b"[DONE]", b"\xff", b"{}", b'{"type":7}'])
@pytest.mark.parametrize("name", [b"message_start", b"message_delta", b"message_stop", b"error", b""])
def test_an_event_that_is_no_object_of_its_kind_says_nothing(name: bytes, data: bytes) -> None:
    reader = MessagesReader()
    assert reader.read(SseEvent(name, data)) == ()
    assert not reader.terminal


@pytest.mark.parametrize(
    ("name", "data"),
    [
        (b"error", {"code": 503, "message": "Loading.", "type": "unavailable_error"}),  # llama.cpp
        (b"error", {"error": {"code": 503, "message": "Loading.", "type": "unavailable_error"}}),
        (b"", {"error": {"code": 503, "message": "Loading.", "type": "unavailable_error"}}),
    ],
)
def test_an_error_without_the_protocols_shape_ends_the_stream_all_the_same(name: bytes, data: dict[str, Any]) -> None:
    reader = MessagesReader()
    assert reader.read(SseEvent(name, encode(data))) == (Failed("unavailable_error"),)
    assert reader.terminal, "the client got it: a second one would be too many"
    assert not reader.finished


def test_an_error_where_a_whole_answer_should_be_needs_no_type() -> None:
    assert read_body({"error": {"type": "overloaded_error", "message": "x"}}) == (Failed("overloaded_error"),)


def test_the_last_known_value_of_each_count_holds() -> None:
    seen = read(
        start(input_tokens=10, cache_read_input_tokens=100, cache_creation_input_tokens=1),
        delta(input_tokens=20, cache_creation_input_tokens=None),
        delta(cache_read_input_tokens=200),
    )
    assert seen == (Usage(111, 100, 1), Usage(121, 100, 1), Usage(221, 200, 1))


@pytest.mark.parametrize(
    "placeholder",
    [
        {"input_tokens": 0, "output_tokens": 0},
        {"input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 0},
        {"input_tokens": 0, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0},
    ],
)
def test_the_zeros_of_a_placeholder_never_pass_for_measured_ones(placeholder: dict[str, int]) -> None:
    """Z.ai and others begin with zeros and tell the truth at the end, sometimes without any cache field."""
    assert folded(read(start(**placeholder), delta(input_tokens=70_000))) == Usage(70_000)
    assert folded(read(start(**placeholder), delta(input_tokens=7, cache_read_input_tokens=70_000))) == (
        Usage(70_007, 70_000)
    )
    truth = start(input_tokens=9, cache_read_input_tokens=90_000, cache_creation_input_tokens=500)
    assert folded(read(truth, delta(**placeholder))) == Usage(90_509, 90_000, 500)
    assert folded(read(start(**placeholder), {"type": "message_stop"})) == Usage()


@pytest.mark.parametrize("usage", [None, [], 7, "x"])
def test_usage_that_is_no_object_measures_nothing(usage: Any) -> None:
    assert read({"type": "message_start", "message": {"usage": usage}}) == ()
    assert read({"type": "message_start", "message": usage}) == ()
    assert read_body({"type": "message", "usage": usage}) == (Finished(),)


@pytest.mark.parametrize(
    ("reason", "refused"),
    [("refusal", True), ("end_turn", False), ("tool_use", False), ("max_tokens", False),
     ("pause_turn", False), ("content_filter", True), (None, False), (7, False), ([], False)],
)  # fmt: skip
def test_only_the_stop_reason_is_a_refusal(reason: Any, refused: bool) -> None:
    refusal: tuple[Seen, ...] = (Refusal(),) if refused else ()
    assert read({"type": "message_delta", "delta": {"stop_reason": reason}}) == refusal
    assert read_body({"type": "message", "stop_reason": reason}) == (*refusal, Finished())


@pytest.mark.parametrize("usage", [None, {"input_tokens": 3, "cache_read_input_tokens": 0}])
def test_a_refusal_is_known_by_its_details_too_with_usage_and_without(usage: dict[str, int] | None) -> None:
    details = {"stop_details": {"type": "refusal", "category": None, "explanation": None}}
    measured: tuple[Seen, ...] = (Usage(3, 0),) if usage else ()
    for reason in ({}, {"stop_reason": None}, {"stop_reason": "refusal"}):
        assert read({"type": "message_delta", "delta": {**details, **reason}, "usage": usage}) == (*measured, Refusal())
        assert read_body({"type": "message", **details, **reason, "usage": usage}) == (*measured, Refusal(), Finished())
    other: Any
    for other in (None, 7, {}, {"type": None}, {"type": "end_turn"}, {"type": []}):
        assert read({"type": "message_delta", "delta": {"stop_details": other}}) == ()
        refused = {"stop_details": other, "stop_reason": "refusal"}
        assert read({"type": "message_delta", "delta": refused}) == (Refusal(),)


def test_an_answer_that_filled_its_context_says_so_and_is_finished() -> None:
    reason = {"stop_reason": "model_context_window_exceeded"}
    overflow = Failed("context_length_exceeded")
    assert read({"type": "message_delta", "delta": reason}, {"type": "message_stop"}) == (overflow, Finished())
    assert read_body({"type": "message", **reason}) == (overflow, Finished())


def test_calls_on_the_side_are_kept_apart_in_a_stream_too() -> None:
    reader = MessagesReader()
    compaction = {"type": "compaction", "input_tokens": 25, "cache_read_input_tokens": 160_000}
    for event in (start(input_tokens=14), delta(output_tokens=1, iterations=[compaction]), delta(output_tokens=2)):
        reader.read(SseEvent(b"", encode(event)))
    assert reader.side_calls == (("compaction", Usage(160_025, 160_000)),)
    assert reader.measurement.usage == Usage(14)


def test_the_readings_of_a_provider_can_be_named() -> None:
    late = (start(input_tokens=70_010), delta(cache_read_input_tokens=70_012))
    for readings, total in (("anthropic", 140_022), ("qwen", 70_012)):
        reader = MessagesReader(readings)
        seen = [item for event in late for item in reader.read(SseEvent(b"", encode(event)))]
        assert seen[-1] == Usage(total, 70_012)
    filled = MessagesReader(zero_is_unknown=True)
    assert filled.read(SseEvent(b"", encode(start(input_tokens=9, cache_read_input_tokens=0)))) == (Usage(9),)


def test_text_about_a_refusal_is_none() -> None:
    words = {"type": "text", "text": "stop_reason: refusal. Output blocked by content filtering policy."}
    assert read_body({"type": "message", "content": [words], "stop_reason": "end_turn"}) == (Finished(),)


def test_an_answer_blocked_by_the_providers_filter_is_a_refusal_however_it_comes() -> None:
    refused = (Refusal(), Failed("invalid_request_error"))
    assert read_body(BLOCKED, 400) == refused
    assert read_body(BLOCKED) == refused
    assert read(BLOCKED) == refused


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (400, {"type": "error", "error": {"type": "invalid_request_error", "message": "max_tokens: Field required"}},
         "invalid_request_error"),
        (400, {"type": "error", "error": {"type": "invalid_request_error", "message":
         "prompt is too long: 210000 tokens > 200000 maximum"}}, "context_length_exceeded"),
        (413, {"type": "error", "error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}},
         "request_too_large"),
        (401, {"type": "error", "error": {"type": "authentication_error", "message": "x"}}, "authentication_error"),
        (429, {"type": "error", "error": {"type": "rate_limit_error", "message": "x"}}, "rate_limit_error"),
        (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "overloaded_error"),
        (500, {"type": "error", "error": {"type": 7, "message": None}}, "unknown"),
        (500, {"error": "text"}, "unknown"),
        (502, b"<html>Bad Gateway</html>", "unknown"),
        (503, b"", "unknown"),
        (302, b"", "unknown"),
        (200, {"type": "error", "error": {"type": "overloaded_error", "message": "x"}}, "overloaded_error"),
        (200, {"type": "error"}, "unknown"),
        (200, b"<html>", "not_json"),
        (200, b"", "not_json"),
        (200, b"[]", "not_json"),
    ],
)  # fmt: skip
def test_an_error_is_a_failure_and_no_refusal(status: int, body: Any, code: str) -> None:
    reader = MessagesReader()
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    assert reader.read_body(status, raw) == (Failed(code),)
    assert not reader.finished


def test_a_whole_answer_is_finished() -> None:
    reader = MessagesReader()
    assert reader.read_body(200, b'{"input_tokens":4096}') == (Finished(),)
    assert (reader.finished, reader.terminal) == (True, True)


def test_an_error_ends_a_stream_and_does_not_finish_it() -> None:
    reader = MessagesReader()
    assert reader.read(SseEvent(b"error", b'{"type":"error","error":{}}')) == (Failed("unknown"),)
    assert (reader.finished, reader.terminal) == (False, True)


def test_a_terminal_error_of_our_own_ends_the_stream() -> None:
    reader = MessagesReader()
    ending = reader.terminal_error(ErrorKind.TIMEOUT, "Silence.")
    assert ending == frame("error", b'{"type":"error","error":{"type":"timeout_error","message":"Silence."}}')
    assert (reader.finished, reader.terminal) == (False, True)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
EVENTS = st.fixed_dictionaries(
    {"type": st.sampled_from(["message_start", "message_delta", "message_stop", "error"]) | JSON},
    optional=dict.fromkeys(("message", "delta", "usage", "error"), JSON),
)


@settings(deadline=None, max_examples=200)
@given(st.lists(EVENTS, max_size=4), st.sampled_from([200, 400, 500]))
def test_fields_of_any_type_are_read_without_a_crash(events: list[dict[str, Any]], status: int) -> None:
    reader = MessagesReader()
    for event in events:
        reader.read(SseEvent(b"", json.dumps(event).encode()))
        MessagesReader().read_body(status, json.dumps(event).encode())
    assert reader.terminal or not reader.finished
