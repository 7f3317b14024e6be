import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegate.errors import ErrorKind
from cachegate.guard.usage import Usage
from cachegate.wire.body import encode
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
from cachegate.wire.messages.answer_reader import STOPS, AnswerReader, read_body
from cachegate.wire.overflows import CODE
from cachegate.wire.sse import SseEvent
from wire.transcripts import MESSAGES, byte_by_byte, feed, in_two

PATCH = ToolRef("apply_patch", custom=True)
ANTHROPIC = Target("claude", "account-one", origin=Protocol.MESSAGES, readings="anthropic")
ASKED = Request("m", stream=True, tools=(Tool(ToolRef("spawn", "agents")), Tool(PATCH)))
ID = "msg_01XkPq7d2LwTn5aYc8RzVbEu"
T, X, R, C = PartKind.TEXT, PartKind.THINKING, PartKind.REFUSAL, PartKind.TOOL_CALL


def read(*events: Any, request: Request = ASKED) -> tuple[Event, ...]:
    reader = AnswerReader(request, ANTHROPIC)
    return tuple(told for event in events for told in reader.read(SseEvent(event["type"].encode(), encode(event))))


def begun(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def more(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def done(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def delta(reason: str | None = "end_turn", sequence: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": sequence}, **fields}


STOP = {"type": "message_stop"}


def of_stream(data: bytes) -> tuple[Event, ...]:
    reader = AnswerReader(Request("m", stream=True), ANTHROPIC)
    return (*(told for event in feed([data]).events for told in reader.read(event)), *reader.end())


def said(index: int, *texts: str, kind: PartKind = T) -> list[Event]:
    return [PartStarted(index, kind), *(Delta(index, text) for text in texts), PartEnded(index)]


def opened(usage: Usage | None, model: str = "claude-opus-5-5") -> Started:
    return Started(ID, model, usage=usage)


_LOOK: list[Event] = [PartStarted(0, T), Delta(0, "I'll read the file first."), PartEnded(0)]
_BUILD = ("The build fails in `make`:\u2028", "\n\nevent: none of ours\ndata: {}\n\n", "Fixed it. \U0001f642")
READ = ToolCall("toolu_01A09q90qw90lq917835lq9", ToolRef("Read"), "")
GOLDEN: dict[str, list[Event]] = {
    "messages-text": [
        opened(Usage(67_021, 66_000, 1_000)), *said(0, *_BUILD), Counted(Usage(67_021, 66_000, 1_000), 310),
        Ended(Stop.END),
    ],
    "messages-tool-use": [
        opened(Usage(122_054, 120_000, 2_048)), *_LOOK, PartStarted(1, C, READ),
        Delta(1, '{"file_path": "/srv/app'), Delta(1, '/main.py"}'), PartEnded(1),
        Counted(Usage(122_054, 120_000, 2_048), 89), Ended(Stop.TOOL_CALLS),
    ],
    "messages-thinking": [
        opened(Usage(99_516, 99_000, 512)), PartStarted(0, X),
        Delta(0, "The refusal words in the log are a red herring."),
        PartEnded(0, "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pkiMOYds=="),
        PartStarted(1, X), PartEnded(1, "EmwKAhgBEgy3va3pzix/LafPsn4aDFIT2Xlxh0L5L8rLVyIw", redacted=True),
        *said(2, "Done."), Counted(Usage(99_516, 99_000, 512), 44), Ended(Stop.END),
    ],
    "messages-refusal": [
        opened(Usage(120_003, 0, 120_000)), *said(0, "I can"), Counted(Usage(120_003, 0, 120_000), 9),
        Ended(Stop.REFUSAL),
    ],
    "messages-error": [
        opened(Usage(150_009, 0, 150_000)), PartStarted(0, T), Delta(0, "Let me"),
        Broken(ErrorKind.UNAVAILABLE, 529, "overloaded_error", "Overloaded"),
    ],
    "messages-blocked": [
        opened(Usage(150_009, 150_000, 0)), PartStarted(0, T), Delta(0, "Contributor Covenant"),
        Broken(ErrorKind.INVALID, 400, "invalid_request_error", "Output blocked by content filtering policy"),
    ],
    "messages-late-usage": [
        opened(None, "glm-5"), *said(0, "Hi."), Counted(Usage(70_000), 8), Ended(Stop.END),
    ],
    "messages-odd": [
        opened(Usage(60, 30, 20)), PartStarted(0, T), Delta(0, "ok\r\n"), Counted(Usage(60, 30, 20), 5),
        PartEnded(0), Ended(Stop.END),
    ],
    "messages-cut": [opened(Usage(67_021, 66_000, 1_000)), *said(0, *_BUILD)],
}  # fmt: skip


@pytest.mark.parametrize("transcript", MESSAGES, ids=lambda transcript: transcript.name)
def test_a_recorded_stream_says(transcript: Any) -> None:
    assert list(of_stream(transcript.data)) == GOLDEN[transcript.name]


@pytest.mark.parametrize("transcript", MESSAGES, ids=lambda transcript: transcript.name)
def test_every_split_says_the_same(transcript: Any) -> None:
    whole = feed([transcript.data]).events
    assert all(feed(pieces).events == whole for pieces in in_two(transcript.data))
    reader = AnswerReader(Request("m", stream=True), ANTHROPIC)
    events = feed(byte_by_byte(transcript.data)).events
    assert [told for event in events for told in reader.read(event)] == GOLDEN[transcript.name]


def test_parallel_calls_are_parts_of_their_own() -> None:
    told = read(
        begun(0, type="tool_use", id="c1", name="agents__spawn", input={}),
        more(0, "input_json_delta", partial_json='{"n":1}'),
        done(0),
        begun(1, type="tool_use", id="c2", name="unheard_of", input={}),
        done(1),
        delta("tool_use"),
        STOP,
    )
    assert told == (
        PartStarted(0, C, ToolCall("c1", ToolRef("spawn", "agents"), "")), Delta(0, '{"n":1}'), PartEnded(0),
        PartStarted(1, C, ToolCall("c2", ToolRef("unheard_of"), "")), PartEnded(1), Ended(Stop.TOOL_CALLS),
    )  # fmt: skip


def test_the_input_of_a_custom_tool_is_unwrapped_when_it_is_complete() -> None:
    pieces = [more(0, "input_json_delta", partial_json=piece) for piece in ('{"input":"*** Be', 'gin\\n"', "}")]
    told = read(begun(0, type="tool_use", id="c1", name="apply_patch", input={}), *pieces, done(0))
    assert told == (PartStarted(0, C, ToolCall("c1", PATCH, "")), Delta(0, "*** Begin\n"), PartEnded(0))


@pytest.mark.parametrize(("name", "said_"), [("apply_patch", "*** Begin"), ("Read", '{"input":"*** Begin"}')])
def test_input_may_come_whole_at_the_beginning(name: str, said_: str) -> None:
    told = read(begun(0, type="tool_use", id="c1", name=name, input={"input": "*** Begin"}), done(0))
    assert told[1:] == (Delta(0, said_), PartEnded(0))


def test_citations_and_signatures_come_with_the_end_of_their_part() -> None:
    told = read(
        begun(0, type="text", text="a"),
        more(0, "citations_delta", citation={"type": "char_location"}),
        done(0),
        begun(1, type="thinking", thinking="b", signature="old"),
        more(1, "signature_delta", signature="new"),
        done(1),
    )
    assert told == (
        PartStarted(0, T), Delta(0, "a"), PartEnded(0, annotations=({"type": "char_location"},)),
        PartStarted(1, X), Delta(1, "b"), PartEnded(1, "new"),
    )  # fmt: skip


def test_blocks_of_tools_on_anthropics_servers_are_passed_over() -> None:
    told = read(
        begun(0, type="server_tool_use", id="s1", name="web_search", input={}),
        more(0, "input_json_delta", partial_json="{}"),
        done(0),
        begun(1, type="web_search_tool_result", tool_use_id="s1", content=[]),
        done(1),
        begun(2, type="text", text=""),
        more(2, "text_delta", text="a"),
        done(2),
    )
    assert told == tuple(said(0, "a"))


@pytest.mark.parametrize("reason", STOPS)
def test_reasons_to_stop(reason: str) -> None:
    assert read(delta(reason, "END"), STOP) == (Ended(STOPS[reason], "END"),)


@pytest.mark.parametrize("reason", [None, "of_a_later_year", 7])
def test_an_unknown_reason_is_an_end_or_a_call(reason: Any) -> None:
    assert read(delta(reason), STOP) == (Ended(Stop.END),)
    assert read(begun(0, type="tool_use", id="c", name="n", input={}), delta(reason), STOP)[-1] == Ended(
        Stop.TOOL_CALLS
    )


def test_a_refusal_is_explained() -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "It could do harm."}
    event = {"type": "message_delta", "delta": {"stop_reason": "refusal", "stop_details": details}}
    assert read(event, STOP) == (*said(0, "It could do harm.", kind=R), Ended(Stop.REFUSAL))


def test_counts_are_cumulative_and_unknown_stays_unknown() -> None:
    usage = {"output_tokens": 9, "output_tokens_details": {"thinking_tokens": 4}}
    assert read(delta(usage=usage)) == (Counted(Usage(), 9, 4),)
    assert read(delta(usage={"input_tokens": 5}), delta(usage={"cache_read_input_tokens": 4})) == (
        Counted(Usage(5)), Counted(Usage(9, 4)),
    )  # fmt: skip
    assert read(delta(usage=None), delta(usage={}), delta()) == ()


def test_what_was_left_open_is_ended_and_nothing_follows_an_end() -> None:
    assert read(begun(0, type="text", text=""), STOP, STOP, begun(1, type="text", text="x")) == (
        PartStarted(0, T), PartEnded(0), Ended(Stop.END),
    )  # fmt: skip
    error = {"type": "error", "error": {"type": "api_error", "message": "x"}}
    assert read(error, STOP) == (Broken(ErrorKind.UPSTREAM, 500, "api_error", "x"),)


BARE = {"code": 503, "message": "Loading model", "type": "unavailable_error"}


@pytest.mark.parametrize(("name", "data"), [(b"error", BARE), (b"error", {"error": BARE}), (b"", {"error": BARE})])
def test_an_error_without_the_protocols_shape_is_told_in_its_own_words(name: bytes, data: dict[str, Any]) -> None:
    reader = AnswerReader(ASKED, ANTHROPIC)
    told = reader.read(SseEvent(name, encode(data)))
    assert told == (Broken(ErrorKind.UPSTREAM, 500, "unavailable_error", "Loading model"),)
    assert reader.read(SseEvent(name, encode(data))) == (), "once"


def test_an_answer_that_outgrows_the_slots_of_llamacpp_is_an_overflow() -> None:
    said = "Context size has been exceeded."
    error = SseEvent(b"error", encode({"code": 500, "message": said, "type": "server_error"}))
    assert AnswerReader(ASKED, ANTHROPIC).read(error) == (Broken(ErrorKind.INVALID, 400, CODE, said),)


def test_a_cut_stream_has_no_end() -> None:
    reader = AnswerReader(ASKED, ANTHROPIC)
    reader.read(SseEvent(b"", encode(begun(0, type="text", text="a"))))
    assert reader.end() == ()


@pytest.mark.parametrize("name", [b"message", b"vendor", b"ping"])
def test_events_of_another_name_say_nothing_whatever_they_hold(name: bytes) -> None:
    assert AnswerReader(ASKED, ANTHROPIC).read(SseEvent(name, encode(STOP))) == ()


def test_half_an_emoji_does_not_lose_the_event() -> None:
    data = b'{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"a\\ud83d"}}'
    assert AnswerReader(ASKED, ANTHROPIC).read(SseEvent(b"content_block_start", data))[1] == Delta(0, "a\ufffd")


# --- unstreamed ---


def message(*content: Any, **fields: Any) -> bytes:
    whole = {"id": ID, "type": "message", "role": "assistant", "model": "m", "content": list(content)}
    return json.dumps({**whole, "stop_reason": "tool_use", "stop_sequence": None, **fields}).encode()


def test_a_whole_answer() -> None:
    usage = {"input_tokens": 7, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 3, "output_tokens": 5}
    body = message(
        {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
        {"type": "redacted_thinking", "data": "blob"},
        {"type": "text", "text": "a", "citations": [{"type": "char_location"}]},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"q": 1}},
        {"type": "tool_use", "id": "c1", "name": "agents__spawn", "input": {"n": 1.50}},
        {"type": "tool_use", "id": "c2", "name": "apply_patch", "input": {"input": "*** Begin"}},
        {"type": "tool_use", "id": "c3", "name": "n", "input": {}},
        usage=usage,
    ).replace(b"1.5}", b"1.50 }")
    assert read_body(ASKED, ANTHROPIC, body) == (
        Started(ID, "m"),
        PartStarted(0, X), Delta(0, "Hm."), PartEnded(0, "sig"),
        PartStarted(1, X), PartEnded(1, "blob", redacted=True),
        PartStarted(2, T), Delta(2, "a"), PartEnded(2, annotations=({"type": "char_location"},)),
        PartStarted(3, C, ToolCall("c1", ToolRef("spawn", "agents"), "")), Delta(3, '{"n": 1.50 }'), PartEnded(3),
        PartStarted(4, C, ToolCall("c2", PATCH, "")), Delta(4, "*** Begin"), PartEnded(4),
        PartStarted(5, C, ToolCall("c3", ToolRef("n"), "")), Delta(5, "{}"), PartEnded(5),
        Counted(Usage(100, 90, 3), 5),
        Ended(Stop.TOOL_CALLS),
    )  # fmt: skip


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b"{}", b'{"type":"error","error":{"type":"overloaded_error","message":"x"}}']
)
def test_a_body_that_is_no_answer_is_broken(body: bytes) -> None:
    (broken,) = read_body(ASKED, ANTHROPIC, body)
    assert isinstance(broken, Broken)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 3) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
KINDS = ("message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "error",
         "message_stop", "text", "thinking", "redacted_thinking", "tool_use", "text_delta", "signature_delta",
         "input_json_delta", "citations_delta")  # fmt: skip
INNER = st.dictionaries(
    st.sampled_from(("type", "text", "thinking", "signature", "data", "id", "name", "input", "citation", "usage",
                     "stop_reason", "stop_details", "partial_json")),
    st.sampled_from(KINDS) | JSON, max_size=4,
) | JSON  # fmt: skip
EVENTS = st.fixed_dictionaries(
    {"type": st.sampled_from(KINDS) | JSON},
    optional=dict.fromkeys(("message", "content_block", "delta", "usage", "index", "error", "content"), INNER),
)


@settings(deadline=None, max_examples=150)
@given(st.lists(EVENTS, max_size=6))
def test_events_of_any_shape_are_read_without_a_crash(events: list[Any]) -> None:
    reader = AnswerReader(ASKED, ANTHROPIC)
    for event in events:
        reader.read(SseEvent(b"", encode(event)))
        read_body(ASKED, ANTHROPIC, encode({**event, "type": "message"}))
    assert reader.end() == ()
