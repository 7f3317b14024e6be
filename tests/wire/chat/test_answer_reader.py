import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegate.errors import ErrorKind
from cachegate.guard.usage import Usage
from cachegate.wire.chat.answer_reader import STOPS
from cachegate.wire.chat.codec import CODEC
from cachegate.wire.chat.errors import BREAKS
from cachegate.wire.hub import (
    Broken,
    Counted,
    Delta,
    Ended,
    Event,
    PartEnded,
    PartKind,
    PartStarted,
    Request,
    Sampling,
    Started,
    Stop,
)
from cachegate.wire.sse import SseReader
from wire.chat.chunks import ASKED, DONE, ROLE, USAGE, calls, chunk, line, piece, read, read_body, target, usage
from wire.transcripts import byte_by_byte, in_two

HI = chunk(ROLE) + chunk({"content": "Hi"})
STARTED = Started("gen-1", "kimi-k3", 5)
COUNTED = Counted(Usage(90, 64), 7)


def text(*pieces: str, index: int = 0, kind: PartKind = PartKind.TEXT) -> list[Event]:
    return [PartStarted(index, kind), *(Delta(index, piece) for piece in pieces), PartEnded(index)]


def thought(*pieces: str, opaque: str = "reasoning_content", index: int = 0) -> list[Event]:
    said = [Delta(index, piece) for piece in pieces]
    return [PartStarted(index, PartKind.THINKING), *said, PartEnded(index, opaque, redacted=not pieces)]


def parts(*pieces: bytes) -> list[Event]:
    return [event for event in read(*pieces) if isinstance(event, PartStarted | Delta | PartEnded)]


def counts(*pieces: bytes, readings: str | None = None) -> list[Counted]:
    return [event for event in read(*pieces, there=target(readings=readings)) if isinstance(event, Counted)]


def test_a_plain_answer() -> None:
    stream = HI + chunk({"content": " there"}) + chunk({}, "stop") + usage() + DONE
    assert list(read(stream)) == [STARTED, *text("Hi", " there"), COUNTED, Ended(Stop.END)]


THINKING = (
    chunk({"role": "assistant", "content": None})
    + chunk({"reasoning_content": "Hm, "})
    + chunk({"reasoning_content": "über.", "content": ""})
    + chunk({"content": "Let me \U0001f642."})
    + calls(piece("", index=0, id="a", name="shell"))
    + calls(piece('{"cmd":"ls"}', index=0))
    + chunk({}, "tool_calls")
    + usage(completion_tokens_details={"reasoning_tokens": 3})
    + DONE
)


def test_thoughts_text_and_calls_in_their_order() -> None:
    told = read(THINKING)
    assert list(told[:7]) == [
        STARTED,
        *thought("Hm, ", "über."),
        PartStarted(1, PartKind.TEXT),
        Delta(1, "Let me \U0001f642."),
    ]
    assert told[-2:] == (Counted(Usage(90, 64), 7, 3), Ended(Stop.TOOL_CALLS))
    assert [event.index for event in told if isinstance(event, PartStarted)] == [0, 1, 2]


def test_any_split_of_the_bytes_says_the_same() -> None:
    for pieces in (byte_by_byte(THINKING), *in_two(THINKING)):
        assert read(*pieces) == read(THINKING)


@pytest.mark.parametrize(
    ("delta", "expected"),
    [
        ({"reasoning": "Hm."}, thought("Hm.", opaque="reasoning")),
        ({"reasoning_content": "Hm.", "reasoning": "Hm."}, thought("Hm.")),
        (
            {"reasoning": "Hm.", "reasoning_details": [{"type": "reasoning.text", "text": "Hm."}]},
            thought("Hm.", opaque='[{"type":"reasoning.text","text":"Hm."}]'),
        ),
        (
            {"reasoning_details": [{"type": "reasoning.summary", "summary": "Hm."}]},
            thought("Hm.", opaque='[{"type":"reasoning.summary","summary":"Hm."}]'),
        ),
        (
            {"reasoning_details": [{"type": "reasoning.encrypted", "data": "g"}]},
            thought(opaque='[{"type":"reasoning.encrypted","data":"g"}]'),
        ),
        (
            {
                "content": [
                    {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]},
                    {"type": "text", "text": "Hi"},
                ]
            },
            [*thought("Hm."), *text("Hi", index=1)],
        ),
        ({"refusal": "No."}, text("No.", kind=PartKind.REFUSAL)),
        ({"content": "a", "refusal": "No."}, [*text("a"), *text("No.", index=1, kind=PartKind.REFUSAL)]),
        ({"content": 7, "refusal": [], "reasoning_content": {}, "tool_calls": "x"}, []),
        (None, []),
    ],
)
def test_a_delta(delta: Any, expected: list[Event]) -> None:
    assert parts(chunk(delta), chunk({}, "stop"), DONE) == expected


def test_details_that_come_in_pieces_are_whole_again_with_their_signature() -> None:
    pieces = [{"text": "H", "index": 0}, {"text": "m.", "index": 0}, {"signature": "sig", "index": 0}]
    stream = [chunk({"reasoning_details": [{"type": "reasoning.text", **piece}]}) for piece in pieces]
    opaque = '[{"type":"reasoning.text","text":"Hm.","index":0,"signature":"sig"}]'
    assert parts(*stream, chunk({"content": "a"}), chunk({}, "stop")) == [
        *thought("H", "m.", opaque=opaque),
        *text("a", index=1),
    ]


def test_what_is_said_after_calls_is_a_part_of_its_own() -> None:
    stream = (
        chunk({"content": "a"}),
        calls(piece("{}", index=0, id="a", name="shell")),
        chunk({"content": "b"}),
        chunk({}, "stop"),
    )
    assert parts(*stream)[-3:] == text("b", index=2)


def test_annotations_come_with_the_text() -> None:
    note = {"type": "url_citation", "url_citation": {"url": "https://x"}}
    told = parts(HI, chunk({"annotations": [note, 7]}), chunk({}, "stop"))
    assert told[-1] == PartEnded(0, annotations=(note,))


@pytest.mark.parametrize(("reason", "stop"), STOPS.items())
def test_every_reason_to_finish(reason: str, stop: Stop) -> None:
    expected = Stop.END if stop is Stop.TOOL_CALLS else stop
    assert read(HI, chunk({}, reason), DONE)[-1] == Ended(expected)


@pytest.mark.parametrize("reason", ["stop", "tool_calls", "function_call", "whatever"])
def test_calls_are_known_by_themselves(reason: str) -> None:
    called = calls(piece("{}", index=0, id="a", name="shell"))
    assert read(called, chunk({}, reason), DONE)[-1] == Ended(Stop.TOOL_CALLS)
    assert read(called, chunk({}, "length"), DONE)[-1] == Ended(Stop.MAX_TOKENS)


def test_a_refusal_is_one_whatever_the_reason_says() -> None:
    assert read(chunk({"refusal": "No."}), chunk({}, "stop"), DONE)[-1] == Ended(Stop.REFUSAL)


def test_a_call_of_an_old_server() -> None:
    stream = (
        chunk({"function_call": {"name": "shell", "arguments": '{"a"'}}),
        chunk({"function_call": {"arguments": ":1}"}}),
    )
    told = read(*stream, chunk({}, "function_call"))
    assert [event.text for event in told if isinstance(event, Delta)] == ['{"a"', ":1}"]
    assert told[-1] == Ended(Stop.TOOL_CALLS)


@pytest.mark.parametrize("field", ["stop_reason", "matched_stop"])
def test_a_stop_sequence_that_the_server_names(field: str) -> None:
    asked = Request("m", stream=True, sampling=Sampling(stop=("END",)))
    choice = {"index": 0, "delta": {}, "finish_reason": "stop"}
    assert read(HI, line({"choices": [{**choice, field: "END"}]}), DONE, request=asked)[-1] == Ended(
        Stop.STOP_SEQUENCE, "END"
    )
    for other in ("X", 7, None):
        assert read(HI, line({"choices": [{**choice, field: other}]}), DONE, request=asked)[-1] == Ended(Stop.END)


# --- the end of a stream ---


def test_a_stream_without_done_is_complete_when_the_model_has_finished() -> None:
    assert read(HI, chunk({}, "stop"), usage())[-1] == Ended(Stop.END)
    assert read(HI, DONE)[-1] == Ended(Stop.END)


def test_a_stream_that_was_cut_has_not_ended() -> None:
    whole = HI + calls(piece("{}", index=0, id="a", name="shell")) + chunk({}, "stop")
    for at in range(len(whole) - 1):
        assert not any(isinstance(event, Ended | Broken) for event in read(whole[:at]))


def test_nothing_follows_the_end() -> None:
    assert read(HI, chunk({}, "stop"), DONE, HI, usage(), DONE)[-1] == Ended(Stop.END)


def test_an_end_without_an_answer_is_a_failure() -> None:
    (broken,) = read(DONE)
    assert isinstance(broken, Broken)
    assert (broken.kind, broken.status) == (ErrorKind.UPSTREAM, 502)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (
            line(
                {
                    "error": {"code": 502, "message": "Down."},
                    "choices": [{"delta": {"content": ""}, "finish_reason": "error"}],
                }
            ),
            502,
            "server_error",
        ),
        (
            line({"error": {"message": "Down.", "type": "server_error", "code": "server_is_overloaded"}}),
            503,
            "server_is_overloaded",
        ),
        (line({"error": "Down."}), 502, "server_error"),
        (
            line({"object": "error", "message": "Down.", "type": "InternalServerError", "code": 500}),
            500,
            "InternalServerError",
        ),
        (b"event: error\n" + line({"message": "Down."}), 502, "server_error"),
        (b"event: error\ndata: Down.\n\n", 502, "server_error"),
        (b'error: {"code":503,"message":"Down.","type":"unavailable_error"}\n\n', 503, "unavailable_error"),
        (b'error: {"code":500,"message":"Down.","type":"server_error"}\n\n', 500, "server_error"),
        (b"error: Down.\n\n", 502, "server_error"),
        (
            line({"choices": [{"delta": {}, "finish_reason": "error", "error": {"code": 429, "message": "Down."}}]}),
            429,
            "rate_limit_exceeded",
        ),
        (line({"error": {"message": "Down.", "code": "context_length_exceeded"}}), 400, "context_length_exceeded"),
    ],
)
def test_an_error_ends_an_answer_as_failed(error: bytes, status: int, code: str) -> None:
    told = read(HI, error, HI, chunk({}, "stop"), DONE)
    broken = told[-1]
    assert isinstance(broken, Broken)
    assert (broken.status, broken.code, broken.message) == (status, code, "Down.")
    assert not any(isinstance(event, Ended) for event in told)
    assert read(error)[-1] == broken


@pytest.mark.parametrize("reason", sorted(BREAKS))
def test_a_reason_that_is_none(reason: str) -> None:
    broken = read(HI, chunk({}, reason), DONE)[-1]
    assert isinstance(broken, Broken)
    assert broken.status in {502, 503}


def test_usage_is_told_before_a_failure() -> None:
    told = read(HI, line({"error": {"message": "x"}, "usage": USAGE}))
    assert told[-2] == COUNTED


# --- usage ---


def test_usage_in_every_chunk_is_told_when_it_changes() -> None:
    first, last = {**USAGE, "completion_tokens": 1}, USAGE
    stream = [
        chunk({"content": "a"}, usage=first),
        chunk({"content": "b"}, usage=first),
        chunk({}, "stop", usage=last),
        DONE,
    ]
    assert counts(*stream) == [Counted(Usage(90, 64), 1), COUNTED]


def test_moonshot_counts_in_the_choice() -> None:
    finish = {
        "index": 0,
        "delta": {},
        "finish_reason": "stop",
        "usage": {"prompt_tokens": 9, "completion_tokens": 2, "cached_tokens": 4},
    }
    assert counts(HI, line({"choices": [finish]}), DONE, readings="moonshot") == [Counted(Usage(9, 4), 2)]
    assert counts(HI, line({"choices": [finish]}), DONE) == [Counted(Usage(9), 2)]


def test_llamacpp_has_timings() -> None:
    timings = chunk({}, "stop", timings={"cache_n": 60, "prompt_n": 4})
    assert counts(HI, timings, DONE, readings="llamacpp") == [Counted(Usage(64, 60))]


@pytest.mark.parametrize(
    "told", [{}, None, [], {"prompt_tokens": None}, {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}]
)
def test_what_is_unknown_stays_unknown(told: Any) -> None:
    assert all(counted == Counted(Usage()) for counted in counts(HI, chunk({}, "stop", usage=told), DONE))


def test_zeros_that_a_proxy_fills_in_are_unknown() -> None:
    there = replace(target(), zero_is_unknown=True)
    told = read(HI, usage(prompt_tokens_details={"cached_tokens": 0}), there=there)
    assert [event for event in told if isinstance(event, Counted)] == [Counted(Usage(90), 7)]
    whole: dict[str, Any] = {"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}], "usage": USAGE}
    zero: dict[str, Any] = {
        **whole,
        "usage": {**USAGE, "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}},
    }
    for body, details in ((zero, None), (whole, {"cached_tokens": 64})):
        events = read_body(body, there=there)
        assert json.loads(CODEC.write_body(ASKED, there, events))["usage"].get("prompt_tokens_details") == details
    known = read_body(zero)
    assert json.loads(CODEC.write_body(ASKED, target(), known))["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


@pytest.mark.parametrize("readings", ["nobody", "anthropic"])
def test_a_provider_without_a_row_is_read_as_usual(readings: str) -> None:
    assert counts(HI, usage(), readings=readings) == [COUNTED]


# --- beginnings ---


def test_a_chunk_without_choices_begins_nothing() -> None:
    filtered = line({"id": "", "model": "", "created": 0, "choices": [], "prompt_filter_results": []})
    assert read(filtered, HI)[0] == STARTED


def test_an_answer_without_an_id_gets_one_always_the_same() -> None:
    nameless = line({"choices": [{"delta": {"content": "a"}}]})
    started = read(nameless)[0]
    assert isinstance(started, Started)
    assert (started.model, started.created_s) == ("kimi", None)
    assert started.answer_id
    assert read(nameless)[0] == started


@pytest.mark.parametrize(
    "data", [b"data: {\n\n", b"data: []\n\n", b"data: 7\n\n", b"data: null\n\n", b"data: {}\n\n", b": hi\n\n"]
)
def test_an_event_that_is_no_chunk_says_nothing(data: bytes) -> None:
    assert read(data, HI) == read(HI)


def test_only_the_first_choice_is_told() -> None:
    other = {"index": 1, "delta": {"content": "other"}, "finish_reason": "stop"}
    assert read(HI, line({"choices": [other]}), chunk({}, "stop"), DONE) == read(HI, chunk({}, "stop"), DONE)


# --- whole answers ---

MESSAGE = {
    "role": "assistant",
    "content": "Let me.",
    "reasoning_content": "Hm.",
    "tool_calls": [piece('{"cmd":"ls"}', id="a", name="shell"), piece('{"input":"x"}', id="b", name="apply_patch")],
}
WHOLE = {"id": "gen-1", "object": "chat.completion", "created": 5, "model": "kimi-k3", "usage": USAGE}


def completion(message: Any, reason: str | None = "stop") -> dict[str, Any]:
    return {**WHOLE, "choices": [{"index": 0, "message": message, "finish_reason": reason}]}


def test_a_whole_answer() -> None:
    told = read_body(completion(MESSAGE, "tool_calls"))
    assert [event for event in told if not isinstance(event, PartStarted)] == [
        STARTED,
        COUNTED,
        Delta(0, "Hm."),
        PartEnded(0, "reasoning_content"),
        Delta(1, "Let me."),
        PartEnded(1),
        Delta(2, '{"cmd":"ls"}'),
        PartEnded(2),
        Delta(3, "x"),
        PartEnded(3),
        Ended(Stop.TOOL_CALLS),
    ]


def test_a_whole_answer_without_a_reason_is_complete() -> None:
    assert read_body(completion({"content": "a"}, None))[-1] == Ended(Stop.END)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", {"choices": []}, {"choices": {}}])
def test_a_body_that_is_no_answer_is_a_failure(body: Any) -> None:
    (broken,) = read_body(body)
    assert isinstance(broken, Broken)
    assert broken.status == 502


def test_an_error_with_a_good_status_is_one_all_the_same() -> None:
    (broken,) = read_body({"error": {"code": 429, "message": "Slow."}})
    assert broken == Broken(ErrorKind.UNAVAILABLE, 429, "rate_limit_exceeded", "Slow.")
    assert isinstance(read_body(completion({"content": "a"}, "error"))[-1], Broken)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "delta",
                    "message",
                    "content",
                    "tool_calls",
                    "index",
                    "id",
                    "function",
                    "name",
                    "arguments",
                    "usage",
                    "error",
                    "finish_reason",
                    "reasoning_details",
                    "type",
                    "text",
                    "prompt_tokens",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)


@settings(deadline=None)
@given(st.lists(values | values.map(lambda value: {"choices": [{"delta": value}]}), max_size=5))
def test_no_shape_of_a_chunk_breaks_the_order_of_events(drawn: list[Any]) -> None:
    reader, cutter = CODEC.stream_reader(ASKED, target()), SseReader()
    told = [event for value in [*drawn] for sse in cutter.feed(line(value))[1] for event in reader.read(sse)]
    told += reader.end()
    read_body(json.dumps(drawn[0]).encode() if drawn else b"")
    opened: set[int] = set()
    for event in told:
        match event:
            case PartStarted():
                opened.add(event.index)
            case Delta():
                assert event.index in opened
            case PartEnded():
                opened.remove(event.index)
            case Ended():
                assert opened == set()
    assert all(not isinstance(event, Ended | Broken) for event in told[:-1])
