import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegate.guard.usage import Usage
from cachegate.wire.body import encode
from cachegate.wire.chat.reader import ChatReader
from cachegate.wire.seen import Failed, Finished, Refusal, Seen
from cachegate.wire.sse import SseEvent, SseReader
from cachegate.wire.usage_readings import READINGS, Format
from wire.transcripts import byte_by_byte, in_two
from wire.usage_cases import UsageCase, cases, folded, outcome_of, reader_of, seen_by

USAGE = {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens": 1, "total_tokens": 10}
DONE = SseEvent(b"", b"[DONE]")
CASES = cases(Format.CHAT)
STREAMS = [case for case in CASES if case.events]


def chunk(reason: str | None = None, usage: Any = None, **delta: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return {"object": "chat.completion.chunk", "choices": [choice], "usage": usage}


def read(*chunks: dict[str, Any], readings: str = "openai") -> tuple[Seen, ...]:
    reader = ChatReader(readings)
    return tuple(item for data in chunks for item in reader.read(SseEvent(b"", encode(data))))


def read_body(body: Any, status: int = 200) -> tuple[Seen, ...]:
    return ChatReader().read_body(status, body if isinstance(body, bytes) else json.dumps(body).encode())


def observe(case: UsageCase, pieces: Any) -> tuple[tuple[Seen, ...], bool, bool]:
    frames, reader = SseReader(), reader_of(case)
    seen = tuple(item for piece in pieces for event in frames.feed(piece)[1] for item in reader.read(event))
    return seen, reader.finished, reader.terminal


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_of_usage(case: UsageCase) -> None:
    seen = seen_by(reader := reader_of(case), case)
    assert folded(seen) == case.usage
    assert folded(seen).uncached == case.uncached
    assert outcome_of(case, seen) == case.outcome
    assert reader.measurement.inconsistent == case.inconsistent


@pytest.mark.parametrize("case", STREAMS, ids=lambda case: case.name)
def test_every_split_says_the_same(case: UsageCase) -> None:
    told = observe(case, [case.data])
    for pieces in in_two(case.data):
        assert observe(case, pieces) == told
    assert observe(case, byte_by_byte(case.data)) == told
    assert observe(case, byte_by_byte(case.data.replace(b"\n", b"\r\n"))) == told


def test_usage_is_read_before_with_and_after_the_end_of_the_answer() -> None:
    after = {"choices": [], "usage": USAGE}
    assert read(chunk(content="a"), chunk("stop"), after) == (Finished(), Usage(9, 4))
    assert read(chunk("stop", USAGE)) == (Usage(9, 4), Finished())
    assert read(chunk(None, USAGE), chunk("stop")) == (Usage(9, 4), Finished())
    assert read(chunk("stop"), after, {"choices": [], "usage": None}) == (Finished(), Usage(9, 4))


def test_usage_in_every_chunk_replaces_and_never_adds() -> None:
    grown = [{"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": read}} for read in (1, 2, 4)]
    assert read(*(chunk(None, usage) for usage in grown))[-1] == Usage(9, 4)


def test_the_usage_of_a_choice_gives_way_to_the_answers_own() -> None:
    choice = {"delta": {}, "finish_reason": "stop", "usage": {"prompt_tokens": 9, "cached_tokens": 3}}
    assert read({"choices": [choice]}, readings="moonshot") == (Usage(9, 3), Finished())
    both = {"choices": [choice], "usage": {"prompt_tokens": 9, "cached_tokens": 4}}
    assert read(both, readings="moonshot")[-2:] == (Usage(9, 4), Finished())


def test_timings_say_something_of_llamacpp_only() -> None:
    data = {**chunk("stop"), "timings": {"cache_n": 5, "prompt_n": 4}}
    assert folded(read(data, readings="llamacpp")) == Usage(9, 5)
    assert folded(read(data)) == Usage()
    odd: Any
    for odd in (None, 7, [], "x"):
        assert folded(read({**chunk("stop"), "timings": odd}, readings="llamacpp")) == Usage()
    with_usage = {**chunk("stop", {"prompt_tokens": 9}), "timings": {"cache_n": 5, "prompt_n": 4}}
    assert folded(read(with_usage, readings="llamacpp")) == Usage(9, 5)


@pytest.mark.parametrize("usage", [None, [], 7, "x"])
def test_usage_that_is_no_object_measures_nothing(usage: Any) -> None:
    assert read(chunk("stop", usage)) == (Finished(),)
    assert read_body({"choices": [], "usage": usage}) == (Finished(),)


@pytest.mark.parametrize("reason", ["stop", "length", "tool_calls", "function_call"])
def test_a_reason_ends_the_answer_and_done_the_stream(reason: str) -> None:
    reader = ChatReader()
    reader.read(SseEvent(b"", encode(chunk(content="a"))))
    assert (reader.finished, reader.terminal) == (False, False)
    assert reader.read(SseEvent(b"", encode(chunk(reason)))) == (Finished(),)
    assert (reader.finished, reader.terminal) == (True, False), "usage may follow"
    assert reader.read(DONE) == ()
    assert (reader.finished, reader.terminal) == (True, True)


def test_done_alone_finishes_nothing() -> None:
    reader = ChatReader()
    assert reader.read(DONE) == ()
    assert (reader.finished, reader.terminal) == (False, True)


def test_a_context_that_is_full_is_told_by_the_reason() -> None:
    told = (Failed("context_length_exceeded"), Finished())
    assert read(chunk("model_context_window_exceeded")) == told
    assert read_body({"choices": [{"finish_reason": "model_context_window_exceeded"}]}) == told


def test_text_about_a_refusal_is_none() -> None:
    words = 'finish_reason: content_filter. {"refusal":"No."} prompt is too long'
    assert read(chunk(content=words), chunk("stop")) == (Finished(),)
    assert read_body({"choices": [{"message": {"content": words}, "finish_reason": "stop"}]}) == (Finished(),)


ERROR = {"message": "x", "type": "server_error", "code": None}


@pytest.mark.parametrize(
    ("name", "data", "code"),
    [
        (b"", {"error": ERROR}, "server_error"),
        (b"error", {"error": ERROR}, "server_error"),
        (b"error", {"message": "x", "code": "overloaded"}, "overloaded"),
        (b"", {"error": "text"}, "unknown"),
        (b"", {"object": "error", "message": "x", "type": "BadRequestError", "code": 400}, "BadRequestError"),
        (b"", {"error": {"code": 502, "message": "x"}, **chunk("error")}, "unknown"),
        (b"", {"choices": [{"delta": {}, "finish_reason": "error", "error": {"code": "provider_down"}}]},
         "provider_down"),
        (b"", chunk("error"), "unknown"),
        (b"", {"error": {"code": "context_length_exceeded", "message": "x"}}, "context_length_exceeded"),
    ],
)  # fmt: skip
def test_an_error_ends_a_stream_and_what_was_measured_stays(name: bytes, data: dict[str, Any], code: str) -> None:
    reader = ChatReader()
    measured = reader.read(SseEvent(b"", encode(chunk(None, USAGE))))
    assert (*measured, *reader.read(SseEvent(name, encode(data)))) == (Usage(9, 4), Failed(code))
    assert (reader.finished, reader.terminal) == (False, True)


@pytest.mark.parametrize(
    ("field", "code"),
    [
        (b'{"code":500,"message":"x","type":"server_error"}', "server_error"),
        (b'{"error":{"code":503,"message":"x","type":"unavailable_error"}}', "unavailable_error"),
        (b'{"code":400,"message":"x","type":"exceed_context_size_error"}', "context_length_exceeded"),
        (b'{"code":400,"message":"the request exceeds the available context size","type":"invalid_request_error"}',
         "context_length_exceeded"),
        (b"slot unavailable", "unknown"),
        (b"the request exceeds the available context size", "context_length_exceeded"),
        (b"{}", "unknown"),
    ],
)  # fmt: skip
def test_a_failure_in_a_field_of_its_own_is_one(field: bytes, code: str) -> None:
    stream = b"data: " + encode(chunk(content="a")) + b"\n\nerror: " + field + b"\n\ndata: [DONE]\n\n"
    frames, reader = SseReader(), ChatReader("llamacpp")
    whole, events = frames.feed(stream)
    assert whole == stream
    assert tuple(item for event in events for item in reader.read(event)) == (Failed(code),)
    assert (reader.finished, reader.terminal) == (False, True)


def test_usage_beside_an_error_is_read() -> None:
    told = {"error": ERROR, "choices": [], "usage": USAGE}
    assert read(told) == (Usage(9, 4), Failed("server_error"))
    assert ChatReader().read(SseEvent(b"error", encode(told))) == (Usage(9, 4), Failed("server_error"))


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (404, {"error": {"type": "invalid_request_error", "code": "model_not_found"}}, "model_not_found"),
        (429, {"error": ERROR}, "server_error"),
        (400, [{"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "x"}}], "INVALID_ARGUMENT"),
        (200, {"error": ERROR}, "server_error"),
        (200, {"object": "error", "message": "x"}, "unknown"),
        (200, {"choices": [{"finish_reason": "error"}]}, "unknown"),
        (502, b"<html>Bad Gateway</html>", "unknown"),
        (400, b"", "unknown"),
        (302, b"", "unknown"),
        (200, b"<html>", "not_json"),
        (200, b"", "not_json"),
        (200, b"[]", "not_json"),
    ],
)  # fmt: skip
def test_an_unstreamed_error_is_a_failure_and_no_refusal(status: int, body: Any, code: str) -> None:
    reader = ChatReader()
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    assert reader.read_body(status, raw) == (Failed(code),)
    assert not reader.finished


def test_a_whole_answer_is_finished_once() -> None:
    reader = ChatReader()
    body = {"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}], "usage": USAGE}
    assert reader.read_body(200, json.dumps(body).encode()) == (Usage(9, 4), Finished())
    assert (reader.finished, reader.terminal) == (True, True)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b'"error"', b"\xff", b"{}", b'{"choices":7}', b"[DONE"])
def test_an_event_that_is_no_chunk_says_nothing(data: bytes) -> None:
    reader = ChatReader()
    assert reader.read(SseEvent(b"", data)) == ()
    assert not reader.terminal


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
CHOICE = JSON | st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("delta", "message", "finish_reason", "usage", "error"), JSON)
)
CHUNKS = st.fixed_dictionaries(
    {}, optional={"choices": st.lists(CHOICE, max_size=2) | JSON, "usage": JSON, "timings": JSON, "error": JSON}
)
PROVIDERS = [name for name, shapes in READINGS.items() if Format.CHAT in shapes]


@settings(deadline=None, max_examples=200)
@given(st.lists(CHUNKS, max_size=4), st.sampled_from([200, 400, 500]), st.sampled_from(PROVIDERS))
def test_fields_of_any_type_are_read_without_a_crash(chunks: list[dict[str, Any]], status: int, name: str) -> None:
    reader = ChatReader(name)
    for data in chunks:
        reader.read(SseEvent(b"", json.dumps(data).encode()))
        ChatReader(name).read_body(status, json.dumps(data).encode())
    assert reader.measurement.usage.cached_read is None


def test_every_place_of_a_refusal_in_any_order_is_one() -> None:
    for order in itertools.permutations([chunk(refusal="No"), chunk("content_filter", USAGE), {"usage": USAGE}]):
        assert Refusal() in read(*order)
