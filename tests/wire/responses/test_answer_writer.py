import json
from typing import Any

import openai
import openai.types.responses
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
    Tool,
    ToolCall,
    ToolRef,
)
from cachegate.wire.overflows import CODE
from cachegate.wire.responses.answer_reader import AnswerReader
from cachegate.wire.responses.answer_writer import REFUSED, STATUS_OF_STOP, AnswerWriter, write_body
from cachegate.wire.sse import SseReader
from wire.transcripts import RESPONSES, feed
from wire.vendor_sdks import JSON, Wire, ask_openai, check_openai_event, openai_events, openai_final

SHELL, PATCH, SPAWN = ToolRef("shell"), ToolRef("apply_patch", custom=True), ToolRef("spawn", "agents")
ASKED = Request("asked", stream=True, tools=(Tool(SHELL), Tool(PATCH), Tool(SPAWN)))
TARGET = Target("m", "claude", origin=Protocol.RESPONSES)
BEGUN = Started("resp_a1", "m", 1_795_906_800)
COUNTED = Counted(Usage(131_072, 65_536, 1_024), 7, 3)


def text(index: int, said: str = "Hi") -> list[Event]:
    return [PartStarted(index, PartKind.TEXT), Delta(index, said), PartEnded(index)]


EVERYTHING: tuple[Event, ...] = (
    BEGUN,
    PartStarted(0, PartKind.THINKING, item_id="rs_1"),
    Delta(0, "Hm."),
    PartEnded(0, opaque="gAAA"),
    *text(1),
    PartStarted(2, PartKind.TOOL_CALL, ToolCall("a", SHELL, "")),
    PartStarted(3, PartKind.TOOL_CALL, ToolCall("b", PATCH, "")),
    Delta(3, "*** Begin\n"),
    Delta(2, '{"a":'),
    Delta(3, "*** End"),
    Delta(2, "1}"),
    PartEnded(2),
    PartEnded(3),
    COUNTED,
    Ended(Stop.TOOL_CALLS),
)


def written(*events: Event, target: Target = TARGET) -> bytes:
    writer = AnswerWriter(ASKED, target)
    return b"".join(writer.write(event) for event in events)


def objects(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(event.data) for event in feed([data]).events]


def read(data: bytes) -> tuple[Event, ...]:
    reader = AnswerReader(ASKED, TARGET)
    return tuple(event for sse in SseReader().feed(data)[1] for event in reader.read(sse))


def test_events_are_numbered_without_a_gap_and_named_by_their_type() -> None:
    events = feed([written(*EVERYTHING)]).events
    decoded = [json.loads(event.data) for event in events]
    assert [data["sequence_number"] for data in decoded] == list(range(len(events)))
    assert all(data["type"] == event.name.decode() for event, data in zip(events, decoded, strict=True))


def test_every_event_has_every_field_of_the_sdks_type() -> None:
    for event in feed([written(*EVERYTHING)]).events:
        check_openai_event(event)


def test_the_sdks_accumulator_reads_everything() -> None:
    final = openai_final(written(*EVERYTHING))
    whole = ask_openai(Wire(write_body(ASKED, TARGET, EVERYTHING), kind=JSON))
    for response in (final, whole):
        assert (response.id, response.model, response.status) == ("resp_a1", "m", "completed")
        assert [item.type for item in response.output] == ["reasoning", "message", "function_call", "custom_tool_call"]
        assert response.output_text == "Hi"
        assert response.usage is not None
        assert response.usage.total_tokens == 131_079


def test_parallel_calls_are_written_side_by_side() -> None:
    deltas = [
        (event["output_index"], event["delta"])
        for event in objects(written(*EVERYTHING))
        if event["type"].endswith(("arguments.delta", "input.delta"))
    ]
    assert deltas == [(3, "*** Begin\n"), (2, '{"a":'), (3, "*** End"), (2, "1}")]


def test_what_was_written_is_read_back() -> None:
    def plain(events: tuple[Event, ...]) -> list[Event]:
        kept = [event for event in events if not isinstance(event, PartStarted)]
        begun = [event for event in events if isinstance(event, PartStarted)]
        return [*(PartStarted(event.index, event.kind, event.call) for event in begun), *kept]

    assert plain(read(written(*EVERYTHING))) == plain(EVERYTHING)
    whole = AnswerReader(ASKED, TARGET).read_body(write_body(ASKED, TARGET, EVERYTHING))
    assert whole[-1] == EVERYTHING[-1]


@pytest.mark.parametrize("transcript", [one for one in RESPONSES if one.finished], ids=lambda one: one.name)
def test_a_recorded_answer_survives_reading_and_writing(transcript: Any) -> None:
    once = read(transcript.data)
    again = read(written(*once))
    ignored = (PartStarted, Started)
    assert [event for event in again if not isinstance(event, ignored)] == [
        event for event in once if not isinstance(event, ignored)
    ]
    assert next(event for event in again if isinstance(event, Started)) == once[0]


@pytest.mark.parametrize("stop", [stop for stop in Stop if stop is not Stop.CONTEXT_FULL])
def test_every_end_has_its_status(stop: Stop) -> None:
    last = objects(written(BEGUN, *text(0), COUNTED, Ended(stop)))[-1]
    status = STATUS_OF_STOP[stop]
    assert (last["type"], last["response"]["status"]) == (f"response.{status}", status)
    reason = {Stop.MAX_TOKENS: "max_output_tokens", Stop.CONTENT_FILTER: "content_filter"}.get(stop)
    details = {"reason": reason} if status == "incomplete" else None
    assert last["response"]["incomplete_details"] == details
    whole = json.loads(write_body(ASKED, TARGET, (BEGUN, *text(0), COUNTED, Ended(stop))))
    assert whole == last["response"]
    same = Stop.END if stop in {Stop.STOP_SEQUENCE, Stop.TOOL_CALLS, Stop.PAUSE} else stop
    assert read(written(BEGUN, *text(0), Ended(stop)))[-1] == Ended(same)


def test_a_full_context_is_an_error_on_which_clients_compact() -> None:
    error, failed = objects(written(BEGUN, *text(0), Ended(Stop.CONTEXT_FULL)))[-2:]
    assert (error["type"], failed["type"]) == ("error", "response.failed")
    assert error["code"] == failed["response"]["error"]["code"] == CODE
    whole = json.loads(write_body(ASKED, TARGET, (BEGUN, *text(0), Ended(Stop.CONTEXT_FULL))))
    assert (whole["status"], whole["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})


def test_a_refusal_without_words_gets_some() -> None:
    response = openai_final(written(BEGUN, Ended(Stop.REFUSAL)))
    message = response.output[0]
    assert isinstance(message, openai.types.responses.ResponseOutputMessage)
    assert message.content[0].to_dict() == {"type": "refusal", "refusal": REFUSED}
    told: list[Event] = [PartStarted(0, PartKind.REFUSAL), Delta(0, "No."), PartEnded(0)]
    assert REFUSED.encode() not in written(BEGUN, *told, Ended(Stop.REFUSAL))


@pytest.mark.parametrize("before", [(), (BEGUN,), (BEGUN, *text(0), PartStarted(1, PartKind.TEXT), Delta(1, "H"))])
def test_a_broken_answer_ends_with_an_error_and_a_failed_response(before: tuple[Event, ...]) -> None:
    broken = Broken(ErrorKind.UNAVAILABLE, 429, "rate_limit_error", "Too fast")
    data = written(*before, broken)
    events = objects(data)
    assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    failed = events[-1]["response"]
    assert failed["error"] == {"code": "rate_limit_exceeded", "message": "Too fast"}
    assert failed["id"] == ("resp_a1" if before else "resp_unknown")
    assert len(failed["output"]) == (1 if len(before) > 1 else 0)
    with pytest.raises(openai.APIError, match="Too fast"):
        openai_events(data)
    for event in feed([data]).events:
        check_openai_event(event)


def test_nothing_known_of_the_usage_is_null() -> None:
    assert objects(written(BEGUN, Ended(Stop.END)))[-1]["response"]["usage"] is None


def test_what_belongs_to_no_part_is_left_out() -> None:
    assert written(Delta(9, "x"), PartEnded(9)) == b""


PART = st.sampled_from(list(PartKind))
REF = st.sampled_from([SHELL, PATCH, SPAWN])


@st.composite
def answers(draw: st.DrawFn) -> tuple[Event, ...]:
    """Draw a complete answer, whose parts may overlap."""
    events: list[Event] = [BEGUN]
    kinds = draw(st.lists(PART, max_size=4))
    for index, kind in enumerate(kinds):
        call = ToolCall(f"call_{index}", draw(REF), "") if kind is PartKind.TOOL_CALL else None
        events.append(PartStarted(index, kind, call))
        deltas = draw(st.lists(st.tuples(st.integers(0, index), st.text(max_size=5)), max_size=3))
        events += [Delta(at, said) for at, said in deltas]
    events += [PartEnded(index) for index in draw(st.permutations(range(len(kinds))))]
    stop = draw(st.sampled_from([stop for stop in Stop if stop is not Stop.CONTEXT_FULL]))
    return (*events, *draw(st.sampled_from([(), (COUNTED,), (Counted(Usage(9)),)])), Ended(stop))


@settings(deadline=None, max_examples=60)
@given(answers())
def test_any_answer_is_written_so_that_the_sdk_reads_it(events: tuple[Event, ...]) -> None:
    data = written(*events)
    assert written(*events) == data
    last = objects(data)[-1]
    assert json.loads(write_body(ASKED, TARGET, events)) == last["response"]
    if last["type"] == "response.completed":
        final = openai_final(data)
        assert len(final.output) == len(last["response"]["output"])
    for event in feed([data]).events:
        if b'"usage":{' not in event.data:
            check_openai_event(event)
