import json
from typing import Any

import anthropic.types
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegate.errors import ErrorKind
from cachegate.guard.usage import Usage
from cachegate.wire.facts import Protocol
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
    Started,
    Stop,
    Target,
    ToolCall,
    ToolRef,
)
from cachegate.wire.messages.answer_reader import AnswerReader
from cachegate.wire.messages.answer_writer import STOP_REASONS, AnswerWriter, write_body
from wire.transcripts import MESSAGES, feed
from wire.vendor_sdks import JSON, Wire, anthropic_events, anthropic_final, ask_anthropic, check_anthropic_event

ASKED = Request("asked", stream=True)
HERE = Target("claude", "account-one", origin=Protocol.MESSAGES)
ELSEWHERE = Target("gpt", "openai", origin=Protocol.RESPONSES)
T, X, R, C = PartKind.TEXT, PartKind.THINKING, PartKind.REFUSAL, PartKind.TOOL_CALL
BEGUN = Started("resp_1", "gpt")
COUNTED = Counted(Usage(100, 90, 3), 12, 4)


def call(index: int) -> PartStarted:
    return PartStarted(index, C, ToolCall(f"c{index}", ToolRef("Read"), ""))


def stream(*events: Event, target: Target = HERE) -> bytes:
    writer = AnswerWriter(ASKED, target)
    return b"".join(writer.write(event) for event in events)


def told(*events: Event, target: Target = HERE) -> list[Any]:
    return [json.loads(event.data) for event in feed([stream(*events, target=target)]).events]


def whole(*events: Event, target: Target = HERE) -> Any:
    return json.loads(write_body(ASKED, target, events))


ANSWER: tuple[Event, ...] = (
    BEGUN,
    PartStarted(0, X), Delta(0, "H"), Delta(0, "m."), PartEnded(0, "sig"),
    PartStarted(1, X), PartEnded(1, "blob", redacted=True),
    PartStarted(2, T), Delta(2, "a"), PartEnded(2),
    call(3), Delta(3, '{"path":'), Delta(3, '"a"}'), PartEnded(3),
    call(4), PartEnded(4),
    COUNTED, Ended(Stop.TOOL_CALLS),
)  # fmt: skip


def test_a_stream_event_by_event() -> None:
    assert told(*ANSWER) == [
        {
            "type": "message_start",
            "message": {
                "id": "msg_resp_1", "type": "message", "role": "assistant", "model": "gpt", "content": [],
                "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 0, "output_tokens": 0},
            },
        },
        {"type": "content_block_start", "index": 0,
         "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "H"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "m."}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "sig"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "redacted_thinking", "data": "blob"}},
        {"type": "content_block_stop", "index": 1},
        {"type": "content_block_start", "index": 2, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "text_delta", "text": "a"}},
        {"type": "content_block_stop", "index": 2},
        {"type": "content_block_start", "index": 3,
         "content_block": {"type": "tool_use", "id": "c3", "name": "Read", "input": {}}},
        {"type": "content_block_delta", "index": 3, "delta": {"type": "input_json_delta", "partial_json": '{"path":'}},
        {"type": "content_block_delta", "index": 3, "delta": {"type": "input_json_delta", "partial_json": '"a"}'}},
        {"type": "content_block_stop", "index": 3},
        {"type": "content_block_start", "index": 4,
         "content_block": {"type": "tool_use", "id": "c4", "name": "Read", "input": {}}},
        {"type": "content_block_stop", "index": 4},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use", "stop_sequence": None},
            "usage": {
                "input_tokens": 7, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 3,
                "output_tokens": 12, "output_tokens_details": {"thinking_tokens": 4},
            },
        },
        {"type": "message_stop"},
    ]  # fmt: skip


def test_a_whole_answer_is_what_the_sdk_makes_of_the_stream() -> None:
    streamed = anthropic_final(stream(*ANSWER))
    plain = ask_anthropic(Wire(write_body(ASKED, HERE, ANSWER), kind=JSON))
    assert streamed.to_dict(exclude_none=True) == plain.to_dict(exclude_none=True)
    anthropic.types.Message.model_validate_json(write_body(ASKED, HERE, ANSWER))
    for event in feed([stream(*ANSWER)]).events:
        check_anthropic_event(event)


def test_overlapping_calls_are_told_one_after_the_other() -> None:
    mixed = (BEGUN, call(0), call(1), Delta(1, '{"b"'), Delta(0, '{"a"'), Delta(1, ":2}"), Delta(0, ":1}"))
    ended = (PartEnded(1), PartEnded(0), call(2), PartEnded(2), Ended(Stop.TOOL_CALLS))
    blocks = [(event["type"], event["index"]) for event in told(*mixed, *ended) if "index" in event]
    assert [index for _, index in blocks] == sorted(index for _, index in blocks)
    assert [kind for kind, index in blocks if index == 1] == [
        "content_block_start", "content_block_delta", "content_block_delta", "content_block_stop",
    ]  # fmt: skip
    message = anthropic_final(stream(*mixed, *ended))
    assert [block.input for block in message.content if block.type == "tool_use"] == [{"a": 1}, {"b": 2}, {}]
    # The first part is told at once, while the other one waits.
    assert b'"partial_json":"{\\"a\\""' in stream(*mixed[:5])
    assert b'"partial_json":"{\\"b\\""' not in stream(*mixed)


def test_what_waits_is_told_at_the_end_even_if_nobody_ended_it() -> None:
    message = anthropic_final(stream(BEGUN, call(0), call(1), Delta(1, "{}"), Ended(Stop.TOOL_CALLS)))
    assert [block.type for block in message.content] == ["tool_use", "tool_use"]
    assert len(whole(BEGUN, call(0), call(1), Ended(Stop.TOOL_CALLS))["content"]) == 2


def test_a_thought_without_words_has_no_block() -> None:
    events = (BEGUN, PartStarted(0, X), PartEnded(0), PartStarted(1, T), Delta(1, "a"), PartEnded(1), Ended(Stop.END))
    starts = [event for event in told(*events) if event["type"] == "content_block_start"]
    assert [(event["index"], event["content_block"]["type"]) for event in starts] == [(0, "text")]
    assert whole(*events)["content"] == [{"type": "text", "text": "a"}]


def test_a_foreign_thought_is_sealed_streamed_and_whole() -> None:
    events = (BEGUN, PartStarted(0, X, item_id="rs_1"), Delta(0, "Hm."), PartEnded(0, "gAAAA"), Ended(Stop.END))
    (block,) = whole(*events, target=ELSEWHERE)["content"]
    assert block["signature"].startswith("cachegate1.")
    (streamed,) = anthropic_final(stream(*events, target=ELSEWHERE)).content
    assert streamed.to_dict() == block


# --- why it ended ---


@pytest.mark.parametrize("stop", Stop)
def test_reasons_to_stop(stop: Stop) -> None:
    assert set(STOP_REASONS) == set(Stop)
    delta = {
        "stop_reason": STOP_REASONS[stop],
        "stop_sequence": "END" if stop is Stop.STOP_SEQUENCE else None,
    }
    events = (BEGUN, Ended(stop, "END"))
    assert told(*events)[-2]["delta"] == delta
    assert {name: whole(*events)[name] for name in delta} == delta
    for event in feed([stream(*events)]).events:
        check_anthropic_event(event)


@pytest.mark.parametrize(("part", "reason"), [(call(0), "tool_use"), (PartStarted(0, R), "refusal")])
def test_a_plain_end_after_a_call_or_a_refusal_says_what_it_was(part: PartStarted, reason: str) -> None:
    events = (BEGUN, part, PartEnded(0), Ended(Stop.END))
    assert told(*events)[-2]["delta"]["stop_reason"] == whole(*events)["stop_reason"] == reason


def test_a_refusal_is_text() -> None:
    events = (BEGUN, PartStarted(0, R), Delta(0, "No."), PartEnded(0), Ended(Stop.REFUSAL))
    assert whole(*events)["content"] == [{"type": "text", "text": "No."}]


def test_an_error_ends_the_stream() -> None:
    broken = Broken(ErrorKind.UPSTREAM, 529, "overloaded_error", "Overloaded")
    events = (BEGUN, PartStarted(0, T), Delta(0, "a"), broken, PartEnded(0), Ended(Stop.END))
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    assert told(*events)[-1] == error
    with pytest.raises(anthropic.APIStatusError, match="Overloaded"):
        anthropic_events(stream(*events))
    assert told(broken) == [error]


# --- usage ---

USAGES: list[tuple[Usage, dict[str, int]]] = [
    (Usage(), {}),
    (Usage(9), {"input_tokens": 9}),
    (Usage(9, 4), {"input_tokens": 5, "cache_read_input_tokens": 4}),
    (Usage(9, 4, 5), {"input_tokens": 0, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 5}),
    (Usage(None, 4), {"cache_read_input_tokens": 4}),
    # Counts that are no parts of one whole: what cannot be is left out.
    (Usage(9, 4, 9), {"input_tokens": 5, "cache_read_input_tokens": 4}),
    (Usage(9, 10, 1), {"input_tokens": 9}),
]


@pytest.mark.parametrize(("usage", "counts"), USAGES, ids=str)
def test_what_comes_at_the_end_is_told_at_the_end(usage: Usage, counts: dict[str, int]) -> None:
    """Claude Code takes the context for as full as the last event says, so it must say everything."""
    events = (BEGUN, Counted(usage, 12), Ended(Stop.END))
    first, *_, last, _ = told(*events)
    assert first["message"]["usage"] == {"input_tokens": 0, "output_tokens": 0}
    assert last["usage"] == {**counts, "output_tokens": 12}
    assert whole(*events)["usage"] == {**counts, "output_tokens": 12}


@pytest.mark.parametrize(("usage", "counts"), USAGES, ids=str)
def test_what_is_known_at_the_beginning_is_told_there(usage: Usage, counts: dict[str, int]) -> None:
    first, *_, last, _ = told(Started("a", "m", usage=usage), Ended(Stop.END))
    known = counts if "input_tokens" in counts else {"input_tokens": 0}
    assert first["message"]["usage"] == {**known, "output_tokens": 0}
    assert last["usage"] == {**counts, "output_tokens": 0}


def test_what_was_known_is_not_forgotten() -> None:
    events = (Started("a", "m", usage=Usage(100, 90)), Counted(Usage(), 5), Counted(Usage(None, None, 3)))
    expected = {"input_tokens": 7, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 3}
    assert told(*events, Ended(Stop.END))[-2]["usage"] == {**expected, "output_tokens": 5}
    assert whole(*events, Ended(Stop.END))["usage"] == {**expected, "output_tokens": 5}


@pytest.mark.parametrize(
    ("given_", "written"), [("msg_1", "msg_1"), ("chatcmpl-1", "msg_chatcmpl-1"), ("resp_1", "msg_resp_1")]
)
def test_ids_are_the_upstreams(given_: str, written: str) -> None:
    assert whole(Started(given_, "m"), Ended(Stop.END))["id"] == written


def test_an_answer_without_id_and_model_has_some() -> None:
    first, again = (whole(Started("", ""), Ended(Stop.END)) for _ in range(2))
    assert first == again
    assert (first["id"][:4], first["model"]) == ("msg_", "asked")


# --- there and back ---


def there_and_back(events: tuple[Event, ...]) -> list[Event]:
    reader = AnswerReader(ASKED, HERE)
    return [event for sse in feed([stream(*events)]).events for event in reader.read(sse)]


@pytest.mark.parametrize(
    "transcript", [each for each in MESSAGES if each.name != "messages-tool-use"], ids=lambda each: each.name
)
def test_a_recorded_stream_is_written_as_it_was_read(transcript: Any) -> None:
    reader = AnswerReader(ASKED, HERE)
    events = tuple(event for sse in feed([transcript.data]).events for event in reader.read(sse))
    if transcript.name == "messages-odd":  # counts before the end of a part
        events = (*events[:3], events[4], events[3], events[5])
    assert there_and_back(events) == list(events)


TEXTS = st.lists(st.text(max_size=6), max_size=3)


@st.composite
def answers(draw: st.DrawFn) -> tuple[Event, ...]:
    events: list[Event] = []
    for index in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from((T, X, C)))
        pieces = [Delta(index, text) for text in draw(TEXTS) if text] if kind is not C else [Delta(index, "{}")]
        opaque = draw(st.sampled_from((None, "sig"))) if kind is X and pieces else "sig" if kind is X else None
        start = call(index) if kind is C else PartStarted(index, kind)
        events += [start, *pieces, PartEnded(index, opaque)]
    stop = Stop.TOOL_CALLS if any(isinstance(event, PartStarted) and event.call for event in events) else Stop.END
    return (Started("msg_1", "m", usage=Usage(100, 90, 3)), *events, COUNTED, Ended(stop))


@settings(deadline=None, max_examples=100)
@given(answers())
def test_what_was_written_is_read_back(events: tuple[Event, ...]) -> None:
    assert there_and_back(events) == list(events)
    for sse in feed([stream(*events)]).events:
        check_anthropic_event(sse)
