import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegate.errors import ErrorKind
from cachegate.guard.usage import Usage
from cachegate.wire.body import encode
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
from cachegate.wire.responses.tool_parser import CLIENT_SEARCH
from cachegate.wire.sse import SseEvent, SseReader
from wire.transcripts import RESPONSES, Transcript, byte_by_byte, in_two

PATCH, SPAWN = ToolRef("apply_patch", custom=True), ToolRef("spawn", "agents")
ASKED = Request("m", stream=True, tools=(Tool(ToolRef("shell")), Tool(PATCH), Tool(SPAWN)))
TARGET = Target("gpt-6", "openai")
BY_NAME = {transcript.name: transcript for transcript in RESPONSES}
BEGUN = Started("resp_0d2f7a61b3c94e5f0068f1c2d4a58c819e", "gpt-6-sol", 1_795_906_800)


def read(pieces: list[bytes], request: Request = ASKED, target: Target = TARGET) -> tuple[Event, ...]:
    reader, stream = AnswerReader(request, target), SseReader()
    told = [event for piece in pieces for sse in stream.feed(piece)[1] for event in reader.read(sse)]
    return (*told, *reader.end())


def heard(*events: dict[str, Any], request: Request = ASKED, target: Target = TARGET) -> tuple[Event, ...]:
    reader = AnswerReader(request, target)
    return tuple(told for event in events for told in reader.read(SseEvent(b"", encode(event))))


def created(**fields: Any) -> dict[str, Any]:
    return {"type": "response.created", "response": {"id": "resp_1", "model": "gpt-6", "created_at": 1.0, **fields}}


def ended(kind: str = "completed", **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "response": {"id": "resp_1", "status": kind, **fields}}


def done(index: int, **item: Any) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def added(index: int, **item: Any) -> dict[str, Any]:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def texts(events: tuple[Event, ...]) -> dict[int, str]:
    parts: dict[int, str] = {event.index: "" for event in events if isinstance(event, PartStarted)}
    for event in events:
        if isinstance(event, Delta):
            parts[event.index] += event.text
    return parts


GOLDEN = {
    "responses-tool-use": (
        BEGUN,
        PartStarted(0, PartKind.THINKING, item_id="rs_0d2f7a61"),
        PartEnded(0, opaque="gAAAAABo8cLW3m"),
        PartStarted(
            1,
            PartKind.TOOL_CALL,
            ToolCall("call_Xc1d2E3f4G5h6I7j", ToolRef("shell", "functions"), ""),
            "fc_0d2f7a62",
        ),
        Delta(1, '{"command":["bash","'),
        Delta(1, '-lc","grep -n refusal src"]}'),
        PartEnded(1),
        PartStarted(2, PartKind.TOOL_CALL, ToolCall("call_Yd1d2E3f4G5h6I7k", PATCH, ""), "ctc_0d2f7a63"),
        Delta(2, "*** Begin Patch\n"),
        Delta(2, "*** End Patch"),
        PartEnded(2),
        Counted(Usage(77_000, 76_288, 0), 61, 0),
        Ended(Stop.TOOL_CALLS),
    ),
    "responses-refusal": (
        BEGUN,
        PartStarted(0, PartKind.REFUSAL, item_id="msg_0d2f7a61b3c94e5f0068f1c2d6b7a4819f", phase="final_answer"),
        Delta(0, "I can't"),
        Delta(0, " help."),
        PartEnded(0),
        Counted(Usage(66_000, 0, 65_000), 8, 0),
        Ended(Stop.REFUSAL),
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_a_recorded_answer_is_read(name: str) -> None:
    assert read([BY_NAME[name].data]) == GOLDEN[name]


@pytest.mark.parametrize(
    ("name", "last"),
    [
        ("responses-text", Ended(Stop.END)),
        ("responses-incomplete", Ended(Stop.MAX_TOKENS)),
        ("responses-filtered", Ended(Stop.CONTENT_FILTER)),
        ("responses-odd", Ended(Stop.END)),
        ("responses-failed", ("server_error", 500)),
        ("responses-error", ("rate_limit_exceeded", 429)),
        ("responses-nested-error", ("server_is_overloaded", 503)),
        ("responses-policy", ("cyber_policy", 400)),
    ],
)
def test_every_end_is_told_as_what_it_is(name: str, last: Any) -> None:
    end = read([BY_NAME[name].data])[-1]
    assert ((end.code, end.status) if isinstance(end, Broken) else end) == last


def test_a_frame_under_another_name_says_nothing() -> None:
    reader = AnswerReader(ASKED, TARGET)
    assert reader.read(SseEvent(b"keepalive", encode(ended()))) == ()
    assert reader.read(SseEvent(b"response.completed", encode(ended())))[-1] == Ended(Stop.END)


def test_a_stream_that_was_cut_has_no_end() -> None:
    events = read([BY_NAME["responses-cut"].data])
    assert events
    assert not any(isinstance(event, Ended | Broken) for event in events)


@pytest.mark.parametrize("transcript", RESPONSES, ids=lambda one: one.name)
def test_any_split_of_the_bytes_says_the_same(transcript: Transcript) -> None:
    whole = read([transcript.data])
    assert read(byte_by_byte(transcript.data)) == whole
    if len(transcript.data) < 2_500:
        assert all(read(list(cut)) == whole for cut in in_two(transcript.data))


def test_usage_is_told_before_a_failure() -> None:
    events = read([BY_NAME["responses-failed"].data])
    assert [type(event) for event in events[-2:]] == [Counted, Broken]


@pytest.mark.parametrize("name", [b"", b"error"])
def test_an_error_without_the_protocols_shape_is_told_in_its_own_words(name: bytes) -> None:
    reader = AnswerReader(ASKED, TARGET)
    error = SseEvent(name, encode({"error": {"code": 503, "message": "Loading model", "type": "server_error"}}))
    assert reader.read(error) == (Broken(ErrorKind.UPSTREAM, 500, "server_error", "Loading model"),)
    assert reader.read(error) == (), "once"


def test_nothing_is_told_after_the_end() -> None:
    assert heard(created(), ended(), ended("failed", error={"code": "x"}))[-1] == Ended(Stop.END)


def test_an_overflow_is_one_in_whatever_words() -> None:
    error = {"message": "Your input exceeds the context window of this model.", "code": "invalid_request_error"}
    (broken,) = heard({"type": "error", "error": error})
    assert broken == Broken(ErrorKind.INVALID, 400, CODE, error["message"])


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("max_output_tokens", Stop.MAX_TOKENS),
        ("content_filter", Stop.CONTENT_FILTER),
        ("model_context_window_exceeded", Stop.CONTEXT_FULL),
        ("steered", Stop.PAUSE),
        (None, Stop.PAUSE),
        ([], Stop.PAUSE),
    ],
)
def test_why_an_answer_was_cut_short(reason: Any, stop: Stop) -> None:
    assert heard(ended("incomplete", incomplete_details={"reason": reason}))[-1] == Ended(stop)


def test_parallel_calls_may_overlap() -> None:
    calls = [
        added(0, type="function_call", id="fc_1", call_id="a", name="shell", arguments=""),
        added(1, type="function_call", id="fc_2", call_id="b", name="agents__spawn", arguments=""),
        {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": "{"},
        {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": "{}"},
        {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": "}"},
        done(1, type="function_call", id="fc_2", call_id="b", name="agents__spawn", arguments="{}"),
        done(0, type="function_call", id="fc_1", call_id="a", name="shell", arguments="{}"),
    ]
    events = heard(created(), *calls, ended())
    assert [event.call for event in events if isinstance(event, PartStarted)] == [
        ToolCall("a", ToolRef("shell"), ""),
        ToolCall("b", SPAWN, ""),
    ]
    assert texts(events) == {0: "{}", 1: "{}"}
    assert [event.index for event in events if isinstance(event, PartEnded)] == [1, 0]


def test_a_custom_tool_that_was_sent_as_a_function_is_unwrapped_at_its_end() -> None:
    call = {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "apply_patch"}
    delta = {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": '{"input":"*** '}
    arguments = '{"input":"*** Begin"}'
    events = heard(added(0, **call, arguments=""), delta, done(0, **call, arguments=arguments), ended())
    assert events[1:4] == (
        PartStarted(0, PartKind.TOOL_CALL, ToolCall("a", PATCH, ""), "fc_1"),
        Delta(0, "*** Begin"),
        PartEnded(0),
    )


def test_summaries_are_one_text_with_space_between_and_raw_thoughts_are_thoughts_too() -> None:
    def thought(text: str, index: int) -> dict[str, Any]:
        where = {"item_id": "rs_1", "output_index": 0, "summary_index": index}
        return {"type": "response.reasoning_summary_text.delta", **where, "delta": text}

    item = {"type": "reasoning", "id": "rs_1", "encrypted_content": "gAAA"}
    summary = [{"type": "summary_text", "text": text} for text in ("One", "Two")]
    events = heard(thought("O", 0), thought("ne", 0), thought("Two", 1), done(0, **item, summary=summary), ended())
    assert texts(events) == {0: "One\n\nTwo"}
    assert PartEnded(0, opaque="gAAA") in events
    raw = {"type": "response.reasoning_text.delta", "output_index": 0, "content_index": 0, "delta": "Hm."}
    assert texts(heard(raw, ended())) == {0: "Hm."}


def test_thoughts_of_which_nothing_is_told_are_none() -> None:
    events = heard(created(), done(0, type="reasoning", id="rs_1", summary=[], encrypted_content=None), ended())
    assert events == (Started("resp_1", "gpt-6", 1), Ended(Stop.END))


def test_finished_items_alone_are_enough() -> None:
    """So some servers stream: no deltas, no numbers."""
    message = {
        "type": "message",
        "id": "msg_1",
        "content": [{"type": "output_text", "text": "Hi", "annotations": [{}]}],
    }
    call = {"type": "function_call", "call_id": "a", "name": "shell", "arguments": "{}"}
    events = heard(
        {"type": "response.output_item.done", "item": message},
        {"type": "response.output_item.done", "item": {**message, "id": "msg_2"}},
        {"type": "response.output_item.done", "item": call},
        ended(),
    )
    assert events[0] == Started("unknown", "gpt-6")
    assert texts(events) == {0: "Hi", 1: "Hi", 2: "{}"}
    assert events[-1] == Ended(Stop.TOOL_CALLS)


def test_what_a_stream_did_not_tell_stands_in_its_last_event_and_is_not_told_twice() -> None:
    item = {"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": "Hi"}]}
    assert texts(heard(created(), ended(output=[item]))) == {0: "Hi"}
    delta = {"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": "Hi"}
    assert texts(heard(created(), delta, ended(output=[item]))) == {0: "Hi"}


def test_the_rest_of_a_text_comes_with_the_finished_item() -> None:
    delta = {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "He"}
    note = {"type": "url_citation", "url": "https://x"}
    part = {"type": "output_text", "text": "Hello", "annotations": [note]}
    events = heard(delta, done(0, type="message", id="msg_1", content=[part]), ended())
    assert events[1:5] == (
        PartStarted(0, PartKind.TEXT),
        Delta(0, "He"),
        Delta(0, "llo"),
        PartEnded(0, annotations=(note,)),
    )


@pytest.mark.parametrize("kind", ["web_search_call", "image_generation_call", "mcp_call", "compaction", "brand_new"])
def test_items_of_the_providers_own_tools_are_left_out(kind: str) -> None:
    assert heard(created(), added(0, type=kind), done(0, type=kind), ended()) == heard(created(), ended())


def test_usage_is_read_as_the_upstream_spells_it() -> None:
    usage = {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 2}
    assert Counted(Usage(9, 0), 2) in heard(ended(usage=usage))
    assert Counted(Usage(9), 2) in heard(ended(usage=usage), target=replace(TARGET, readings="ollama"))
    assert not any(isinstance(event, Counted) for event in heard(ended(usage=None)))


def body(**fields: Any) -> tuple[Event, ...]:
    return AnswerReader(ASKED, TARGET).read_body(encode({"id": "resp_1", "model": "gpt-6", **fields}))


def test_a_whole_answer_says_what_its_stream_says() -> None:
    for transcript in RESPONSES:
        if not transcript.finished or transcript.name == "responses-odd":
            continue
        last = json.loads(transcript.data.split(b"data: ")[-1])
        whole = AnswerReader(ASKED, TARGET).read_body(encode(last["response"]))
        streamed = read([transcript.data])
        assert texts(whole) == texts(streamed)
        assert _unphased(whole) == _unphased(streamed)


def _unphased(events: tuple[Event, ...]) -> list[Event]:
    """Leave out pieces of text, and labels: a stream that told no beginning of an item told none."""
    kept = (event for event in events if not isinstance(event, Delta))
    return [replace(event, phase=None) if isinstance(event, PartStarted) else event for event in kept]


def test_a_call_of_the_clients_own_search_comes_whole() -> None:
    call = {"type": "tool_search_call", "id": "tsc_1", "call_id": "c1", "execution": "client", "arguments": {"q": 1}}
    read_ = (
        PartStarted(0, PartKind.TOOL_CALL, ToolCall("c1", CLIENT_SEARCH, ""), "tsc_1"),
        Delta(0, '{"q":1}'),
        PartEnded(0),
    )
    streamed = heard(added(0, **{**call, "arguments": {}}), done(0, **call))
    for events in (streamed, body(output=[call])):
        assert tuple(event for event in events if isinstance(event, PartStarted | Delta | PartEnded)) == read_
    assert body(output=[call])[-1] == Ended(Stop.TOOL_CALLS)
    assert not any(isinstance(event, PartStarted) for event in body(output=[{**call, "execution": "server"}]))


def test_the_label_of_a_message_is_known_when_it_begins() -> None:
    begun = {"type": "message", "id": "msg_1", "phase": "commentary"}
    delta = {"type": "response.output_text.delta", "output_index": 0, "delta": "Hm."}
    events = heard(added(0, **begun), delta)
    assert PartStarted(0, PartKind.TEXT, phase="commentary") in events
    text = {"type": "output_text", "text": "Hm."}
    (started, *_) = [event for event in body(output=[{**begun, "content": [text]}]) if isinstance(event, PartStarted)]
    assert started.phase == "commentary"


def test_a_whole_answer_that_failed_is_broken() -> None:
    (broken,) = body(status="failed", error={"code": "server_error", "message": "m"})
    assert broken == Broken(ErrorKind.UPSTREAM, 500, "server_error", "m")
    assert body(status="incomplete", incomplete_details={"reason": "max_output_tokens"})[-1] == Ended(Stop.MAX_TOKENS)


@pytest.mark.parametrize("data", [b"", b"[]", b"<html>", b"{}"])
def test_a_body_that_is_no_answer_is_broken(data: bytes) -> None:
    (broken,) = AnswerReader(ASKED, TARGET).read_body(data)
    assert isinstance(broken, Broken)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
KINDS = st.sampled_from(["message", "reasoning", "function_call", "custom_tool_call", "web_search_call"])
ITEM = JSON | st.fixed_dictionaries(
    {"type": KINDS | JSON},
    optional=dict.fromkeys(
        ("id", "call_id", "name", "namespace", "arguments", "input", "encrypted_content"), st.text(max_size=3) | JSON
    )
    | dict.fromkeys(
        ("content", "summary"),
        JSON
        | st.lists(st.fixed_dictionaries({"type": JSON | st.just("refusal")}, optional={"text": JSON}), max_size=2),
    ),
)
RESPONSE = JSON | st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(("id", "model", "created_at", "status", "usage", "error", "incomplete_details"), JSON)
    | {"output": JSON | st.lists(ITEM, max_size=2)},
)
TYPES = st.sampled_from(
    ["response.created", "response.output_item.added", "response.output_item.done", "response.output_text.delta",
     "response.refusal.delta", "response.reasoning_summary_text.delta", "response.reasoning_text.delta",
     "response.function_call_arguments.delta", "response.custom_tool_call_input.delta", "response.completed",
     "response.incomplete", "response.failed", "error"]
)  # fmt: skip
EVENTS = st.fixed_dictionaries(
    {"type": TYPES | JSON},
    optional={"response": RESPONSE, "item": ITEM, "error": JSON}
    | dict.fromkeys(("delta", "item_id"), st.text(max_size=3) | JSON)
    | dict.fromkeys(("output_index", "content_index", "summary_index"), st.integers(0, 2) | JSON),
)


@settings(deadline=None, max_examples=150)
@given(st.lists(EVENTS, max_size=6))
def test_events_of_any_shape_are_read_in_order(events: list[dict[str, Any]]) -> None:
    told = heard(*events)
    begun: set[int] = set()
    open_: set[int] = set()
    for event in told:
        match event:
            case PartStarted():
                assert event.index == len(begun)
                begun.add(event.index)
                open_.add(event.index)
            case Delta():
                assert event.index in open_
            case PartEnded():
                open_.remove(event.index)
            case Ended():
                assert not open_
            case _:
                pass
    assert [event for event in told[:-1] if isinstance(event, Ended | Broken)] == []
    assert [event for event in told[1:] if isinstance(event, Started)] == []


@settings(deadline=None)
@given(RESPONSE)
def test_a_body_of_any_shape_is_read(response: Any) -> None:
    assert isinstance(AnswerReader(ASKED, TARGET).read_body(encode(response))[-1], Ended | Broken)
