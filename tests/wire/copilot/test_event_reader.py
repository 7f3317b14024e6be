import itertools
import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachegate.errors import ErrorKind
from cachegate.guard.usage import Usage
from cachegate.wire.copilot.event_reader import TOO_LONG, Heard, TurnReader
from cachegate.wire.copilot.setup import tool_names
from cachegate.wire.custom_tools import wrap
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
    Tool,
    ToolCall,
    ToolRef,
)
from cachegate.wire.seen import Failed, Finished, Refusal, Seen
from copilot_runtime import (
    REST,
    Asked,
    Told,
    answers,
    call_delta,
    event,
    failure,
    text_delta,
    thought_delta,
    usage,
    whole,
)

PATCH = ToolRef("apply_patch", custom=True)
FILES = ToolRef("read", "files")
NAMES = tool_names(Request("m", stream=True, tools=(Tool(PATCH), Tool(FILES))))
MEASURED = Usage(531, 501, 20)
COUNTED = Counted(MEASURED, 9, None)
STARTED = Started("b8e44e99", "up")


def reader() -> TurnReader:
    return TurnReader(NAMES, "up")


def heard(told: Iterable[Told], by: TurnReader | None = None) -> list[Heard]:
    turn = by or reader()
    return [turn.read(event(kind, data, f"e{number}")) for number, (kind, data) in enumerate(told)]


def events(told: Iterable[Told], by: TurnReader | None = None) -> list[Event]:
    return [each for said in heard(told, by) for each in said.events]


def seen(told: Iterable[Told], by: TurnReader | None = None) -> list[Seen]:
    return [each for said in heard(told, by) for each in said.seen]


def call_of(ref: ToolRef, call_id: str = "c1") -> ToolCall:
    return ToolCall(call_id, ref, "")


# --- whole streams ---


def test_an_answer_of_text() -> None:
    turn = reader()
    assert events(answers("Hello world"), turn) == [
        STARTED,
        PartStarted(0, PartKind.TEXT),
        Delta(0, "Hello"),
        Delta(0, " world"),
        COUNTED,
        PartEnded(0),
        Ended(Stop.END),
    ]
    assert (turn.over, turn.why, turn.text, turn.calls) == (True, "", "Hello world", ())


def test_thoughts_stand_before_the_text_and_are_no_part_of_it() -> None:
    turn = reader()
    assert events(answers("ab", thoughts="hm"), turn) == [
        Started("20611b1a", "up"),
        PartStarted(0, PartKind.THINKING),
        Delta(0, "hm"),
        PartEnded(0),
        PartStarted(1, PartKind.TEXT),
        Delta(1, "a"),
        Delta(1, "b"),
        COUNTED,
        PartEnded(1),
        Ended(Stop.END),
    ]
    assert turn.text == "ab"


def test_thoughts_between_texts_part_them_for_the_caller_only() -> None:
    turn = reader()
    told = events((text_delta("a"), thought_delta("hm"), text_delta("b"), whole("ab")), turn)
    assert [each.kind for each in told if isinstance(each, PartStarted)] == [
        PartKind.TEXT, PartKind.THINKING, PartKind.TEXT,
    ]  # fmt: skip
    assert turn.text == "ab"


def test_parallel_calls_may_overlap() -> None:
    turn = reader()
    told = (
        text_delta("so"),
        call_delta("c1", "Read", '{"a"'),
        call_delta("c2", "files__read", "{"),
        call_delta("c1", "Read", ":1}"),
        call_delta("c2", "files__read", "}"),
        usage("tool_calls"),
        whole("so", (Asked("c1"), Asked("c2", "files__read"))),
    )
    assert events(told, turn) == [
        STARTED,
        PartStarted(0, PartKind.TEXT),
        Delta(0, "so"),
        PartEnded(0),
        PartStarted(1, PartKind.TOOL_CALL, call_of(ToolRef("Read"))),
        Delta(1, '{"a"'),
        PartStarted(2, PartKind.TOOL_CALL, call_of(FILES, "c2")),
        Delta(2, "{"),
        Delta(1, ":1}"),
        Delta(2, "}"),
        COUNTED,
        PartEnded(1),
        PartEnded(2),
        Ended(Stop.TOOL_CALLS),
    ]
    assert turn.calls == (("c1", "Read", '{"a":1}'), ("c2", "files__read", "{}"))
    assert turn.why == ""


@pytest.mark.parametrize(
    "written",
    ['{"input": "*** patch\\n"}', '{"input":"*** patch\\n","note":1}', '"*** patch\\n"'],
    ids=["as asked for", "with something beside it", "the text alone"],
)
def test_the_input_of_a_freeform_tool_is_told_when_it_is_whole(written: str) -> None:
    turn = reader()
    half = len(written) // 2
    pieces = (call_delta("c1", "apply_patch", written[:half]), call_delta("c1", "apply_patch", written[half:]))
    assert events((*pieces, whole("", (Asked("c1", "apply_patch"),))), turn) == [
        Started("c1", "up"),
        PartStarted(0, PartKind.TOOL_CALL, call_of(PATCH)),
        Delta(0, "*** patch\n"),
        PartEnded(0),
        Ended(Stop.TOOL_CALLS),
    ]
    assert turn.calls == (("c1", "apply_patch", wrap("*** patch\n")),), "as the caller hands it back"


@pytest.mark.parametrize("begun", [(), (call_delta("c1", "Read", ""),)], ids=["without a delta", "an empty delta"])
def test_a_call_without_deltas_is_told_at_the_end(begun: tuple[Told, ...]) -> None:
    turn = reader()
    told = events((*begun, whole("", (Asked("c1", "Read", {"path": "/a"}),))), turn)
    assert PartStarted(0, PartKind.TOOL_CALL, call_of(ToolRef("Read"))) in told
    assert told[-3:] == [Delta(0, '{"path":"/a"}'), PartEnded(0), Ended(Stop.TOOL_CALLS)]
    assert turn.calls == (("c1", "Read", '{"path":"/a"}'),)


def test_a_freeform_call_without_deltas_is_unwrapped() -> None:
    told = events((whole("", (Asked("c1", "apply_patch", {"input": "x"}),)),))
    assert [each.text for each in told if isinstance(each, Delta)] == ["x"]


@pytest.mark.parametrize("arguments", [{"arguments": {}}, {"arguments": None}, {}])
def test_a_call_without_arguments_has_an_empty_object(arguments: dict[str, object]) -> None:
    turn = reader()
    events((("assistant.message", {"toolRequests": [{"toolCallId": "c1", "name": "Read", **arguments}]}),), turn)
    assert turn.calls == (("c1", "Read", "{}"),)


def test_a_message_without_deltas_is_told_at_the_end_and_its_call_names_it() -> None:
    turn = reader()
    assert events((usage(), whole("Hello")), turn) == [
        Started("msg_1", "model-x"),
        COUNTED,
        PartStarted(0, PartKind.TEXT),
        Delta(0, "Hello"),
        PartEnded(0),
        Ended(Stop.END),
    ]
    assert turn.text == "Hello"


def test_an_answer_that_says_nothing_is_an_answer() -> None:
    assert events((whole(),)) == [Started("b8e44e99", "model-x"), Ended(Stop.END)]


@pytest.mark.parametrize("kind", ["assistant.message_delta", "assistant.reasoning_delta"])
@pytest.mark.parametrize("piece", ["", None, 7])
def test_a_delta_of_nothing_says_nothing(kind: str, piece: object) -> None:
    assert events(((kind, {"deltaContent": piece}), ("assistant.tool_call_delta", {"inputDelta": None}))) == []


@pytest.mark.parametrize("kind", ["assistant.turn_start", "session.usage_info", "model.call_finished", "of tomorrow"])
def test_other_events_say_nothing(kind: str) -> None:
    assert heard(((kind, {"content": "x"}),)) == [Heard()]
    assert reader().read({"data": {}}) == Heard()
    assert reader().read({"type": [], "data": {}}) == Heard()


def test_a_call_that_was_cut_off_is_ended_and_not_called() -> None:
    turn = reader()
    told = events((call_delta("c1", "Read", '{"a'), usage("length")), turn)
    assert told[-2:] == [PartEnded(0), Ended(Stop.MAX_TOKENS)]
    assert turn.calls == ()


PIECES = st.one_of(
    st.builds(text_delta, st.text(max_size=3)),
    st.builds(thought_delta, st.text(max_size=3)),
    st.builds(call_delta, st.sampled_from(["c1", "c2"]), st.just("Read"), st.text(max_size=3)),
)


@given(pieces=st.lists(PIECES, max_size=10), ends=st.booleans())
def test_however_its_pieces_come_an_answer_is_well_formed(pieces: list[Told], *, ends: bool) -> None:
    begun = [data["toolCallId"] for kind, data in pieces if kind == "assistant.tool_call_delta"]
    calls = [Asked(call_id) for call_id in dict.fromkeys(begun)]
    turn = reader()
    told = events((*pieces, whole("", calls) if ends else usage("length")), turn)
    assert [type(each) for each in told].count(Started) == 1
    assert isinstance(told[0], Started)
    assert isinstance(told[-1], Ended)
    open_parts: set[int] = set()
    numbers = itertools.count()
    for each in told[1:-1]:
        match each:
            case PartStarted():
                assert each.index == next(numbers)
                open_parts.add(each.index)
            case Delta():
                assert each.index in open_parts
            case PartEnded():
                open_parts.remove(each.index)
            case _:
                assert isinstance(each, Counted)
    assert open_parts == set()
    assert [call_id for call_id, _, _ in turn.calls] == ([each.call_id for each in calls] if ends else [])


# --- what the session's keeper has to know ---


def test_what_was_said_returned_and_answered_is_told_by_its_event() -> None:
    told = heard((
        ("user.message", {"content": "hi"}),
        ("tool.execution_complete", {"toolCallId": "c1", "success": True}),
        whole("Hello"),
    ))  # fmt: skip
    assert (told[0].said, told[1].returned, told[2].answered) == ("e0", ("c1", "e1"), "e2")
    assert told[0].events == told[1].events == ()


# --- usage and ends ---


def test_usage_is_seen_with_its_event_and_the_end_with_the_end() -> None:
    turn = reader()
    told = heard((usage(reasoningTokens=4), whole("Hello")), turn)
    assert told[0].events[-1] == Counted(MEASURED, 9, 4)
    assert told[0].seen == (MEASURED,)
    assert told[1].seen == (Finished(),)


@pytest.mark.parametrize(
    ("counts", "measured"),
    [
        ({"cacheDetailsReported": False, "cacheReadTokens": 0, "cacheWriteTokens": 0}, Usage(531)),
        ({"cacheDetailsReported": True, "cacheReadTokens": 0, "cacheWriteTokens": 0}, Usage(531, 0, 0)),
        ({"cacheReadTokens": None, "cacheWriteTokens": None}, Usage(531)),
    ],
    ids=["zeros of a provider that reports nothing", "zeros that were reported", "no counts"],
)
def test_what_was_not_reported_is_unknown(counts: dict[str, Any], measured: Usage) -> None:
    found = [each for each in seen((usage(**counts), whole())) if isinstance(each, Usage)]
    assert [(each.input_total, each.cached_read) for each in found] == [(measured.input_total, measured.cached_read)]


def test_sub_agents_are_not_heard() -> None:
    turn = reader()
    for kind, data in (*answers("theirs", Asked("c9")), failure("theirs", 500), *REST, ("user.message", {})):
        assert turn.read(event(kind, data, agent="agent-1")) == Heard()
    assert (turn.over, turn.why) == (False, "")
    assert events(answers("ours"), turn)[-1] == Ended(Stop.END)


@pytest.mark.parametrize(
    "flags", [{"finish": "content_filter", "contentFilterTriggered": True}, {"contentFilterTriggered": True}]
)
def test_a_refusal_is_seen_and_told(flags: dict[str, Any]) -> None:
    turn = reader()
    told = heard((text_delta("no"), usage(**flags), whole("no")), turn)
    assert told[1].seen == (MEASURED, Refusal())
    assert (told[2].events[-1], told[2].seen) == (Ended(Stop.REFUSAL), (Finished(),))
    assert turn.why == "refusal"


def test_a_refusal_that_calls_a_tool_is_not_gone_on_with() -> None:
    turn = reader()
    assert events((usage("content_filter"), whole("", (Asked("c1"),))), turn)[-1] == Ended(Stop.TOOL_CALLS)
    assert turn.why == "refusal"


def test_an_answer_at_its_limit_ends_with_its_usage() -> None:
    turn = reader()
    told = heard((text_delta("a lon"), usage("length"), text_delta("ger"), usage(), whole("longer")), turn)
    assert told[1].events == (COUNTED, PartEnded(0), Ended(Stop.MAX_TOKENS))
    assert told[1].seen == (MEASURED, Finished())
    assert told[2:] == [Heard()] * 3, "the runtime lets the model go on, which nobody asked for"
    assert turn.why == "output_limit"


@pytest.mark.parametrize("finish", ["stop", "tool_calls", "a word of tomorrow"])
def test_an_answer_without_calls_has_a_usual_end(finish: str) -> None:
    assert events((usage(finish), whole("a")))[-1] == Ended(Stop.END)


# --- failures ---


def nested(**error: object) -> str:
    return json.dumps({"error": error})


@pytest.mark.parametrize(
    ("told", "kind", "status", "code", "message"),
    [
        pytest.param(
            failure('{"type":"rate_limit_error","message":"slow down"}', 429, errorType="rate_limit_error"),
            ErrorKind.UNAVAILABLE, 429, "rate_limit_error", "slow down", id="Anthropic's inner error",
        ),
        pytest.param(
            failure('{"type":"overloaded_error","message":"Overloaded"}', 529, errorType="overloaded_error"),
            ErrorKind.UNAVAILABLE, 529, "overloaded_error", "Overloaded", id="an overload",
        ),
        pytest.param(
            failure('{"type":"overloaded_error","message":"Overloaded"}', errorType="overloaded_error"),
            ErrorKind.UNAVAILABLE, 529, "overloaded_error", "Overloaded", id="an overload in the midst of the stream",
        ),
        pytest.param(
            failure(nested(message="no", type="invalid_request_error", code="unsupported_value", param=None), 400),
            ErrorKind.INVALID, 400, "unsupported_value", "no", id="OpenAI's nested error",
        ),
        pytest.param(
            failure(nested(message="no quota", code=None), 429, errorCode="quota_exceeded", errorType="quota"),
            ErrorKind.UNAVAILABLE, 429, "quota_exceeded", "no quota", id="the runtime's own code",
        ),
        pytest.param(
            failure("Bad gateway", 502), ErrorKind.UPSTREAM, 502, "server_error", "Bad gateway", id="a plain text"
        ),
        pytest.param(
            failure('"error reading a body: unexpected EOF"', failureKind="transport"),
            ErrorKind.UPSTREAM, 502, "server_error", "error reading a body: unexpected EOF", id="a quoted text",
        ),
        pytest.param(
            ("session.error", {"errorType": "query", "message": "400 weird", "statusCode": 400}),
            ErrorKind.INVALID, 400, "query", "400 weird", id="an error of the session",
        ),
        pytest.param(
            ("session.error", {"errorType": "authentication", "message": "sign in"}),
            ErrorKind.UNAUTHORIZED, 401, "authentication", "sign in", id="nobody signed in",
        ),
        pytest.param(
            ("session.error", {"errorType": "authorization", "message": "no seat"}),
            ErrorKind.FORBIDDEN, 403, "authorization", "no seat", id="no licence",
        ),
        pytest.param(
            ("session.error", {"errorType": "quota", "errorCode": "quota_exceeded", "message": "used up"}),
            ErrorKind.UNAVAILABLE, 429, "quota_exceeded", "used up", id="the month is used up",
        ),
        pytest.param(
            ("session.error", {"errorType": "rate_limit", "message": "wait"}),
            ErrorKind.UNAVAILABLE, 429, "rate_limit", "wait", id="too fast",
        ),
    ],
)  # fmt: skip
def test_a_failure_is_the_providers_own(told: Told, kind: ErrorKind, status: int, code: str, message: str) -> None:
    turn = reader()
    (said,) = heard((told,), turn)
    (broken,) = said.events
    assert isinstance(broken, Broken)
    assert (broken.kind, broken.status, broken.message) == (kind, status, message)
    assert said.seen == (Failed(broken.code),)
    assert (turn.over, turn.why) == (True, "provider_error")
    assert broken.code == code


OVERFLOW = "prompt is too long: 250000 tokens > 200000 maximum"


@pytest.mark.parametrize(
    ("told", "message"),
    [
        (failure(json.dumps({"type": "invalid_request_error", "message": OVERFLOW}), 400), OVERFLOW),
        (failure(nested(message="too much", code="context_length_exceeded"), 400), "too much"),
        (failure(nested(message="too much", code="model_max_prompt_tokens_exceeded"), 413), "too much"),
        (("session.error", {"errorType": "context_limit", "message": "full"}), "full"),
        (("session.compaction_start", {"conversationTokens": 120_000}), TOO_LONG),
    ],
)
def test_a_full_context_is_told_as_one(told: Told, message: str) -> None:
    turn = reader()
    (said,) = heard((told,), turn)
    assert said.events == (Broken(ErrorKind.INVALID, 400, "context_length_exceeded", message),)
    assert said.seen == (Failed("context_length_exceeded"),)
    assert turn.over


def test_an_error_that_refuses_is_a_refusal() -> None:
    (said,) = heard((failure(nested(message="no", code="content_policy_violation"), 400),))
    assert said.seen[0] == Refusal()
    assert isinstance(said.seen[1], Failed)


@pytest.mark.parametrize("kind", ["session.idle", "abort"])
@pytest.mark.parametrize("before", [(), (text_delta("par"),)], ids=["before", "in the midst"])
def test_a_turn_without_an_answer_has_failed(kind: str, before: tuple[Told, ...]) -> None:
    said = heard((*before, (kind, {})))[-1]
    (broken,) = said.events
    assert isinstance(broken, Broken)
    assert (broken.kind, broken.status) == (ErrorKind.UPSTREAM, 502)
    assert "without an answer" in broken.message
    assert said.seen == (Failed("runtime"),)


def test_a_runtime_that_is_gone_has_failed() -> None:
    turn = reader()
    heard((text_delta("par"),), turn)
    said = turn.exited()
    assert isinstance(said.events[0], Broken)
    assert "in the midst" in said.events[0].message
    assert said.seen == (Failed("runtime"),)
    assert (turn.over, turn.why) == (True, "process_exited")


@pytest.mark.parametrize("ending", [answers("a"), answers("a", Asked("c1")), (failure("no", 500),), (usage("length"),)])
def test_behind_the_end_nothing_is_said(ending: tuple[Told, ...]) -> None:
    turn = reader()
    heard(ending, turn)
    why, text, calls = turn.why, turn.text, turn.calls
    late = (*answers("late", Asked("c9")), failure("late", 500), ("session.error", {"message": "late"}), *REST)
    assert heard((*late, ("session.compaction_start", {}), ("user.message", {})), turn) == [Heard()] * (len(late) + 2)
    assert turn.exited() == Heard()
    assert (turn.why, turn.text, turn.calls) == (why, text, calls)


@pytest.mark.parametrize(
    "told", [answers("a"), answers("a", Asked("c1")), (text_delta("a"), usage("length")), (whole("a"),)]
)
def test_the_end_is_seen_once_and_with_the_last_event(told: tuple[Told, ...]) -> None:
    said = heard(told)
    ends = [any(isinstance(each, Ended) for each in one.events) for one in said]
    assert ends == [Finished() in one.seen for one in said]
    assert sum(ends) == 1
