import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from cachegate.errors import ErrorKind
from cachegate.guard.usage import Usage
from cachegate.wire import overflows
from cachegate.wire.claude_cli.prompt import Turn, mark, prompt_of
from cachegate.wire.claude_cli.turn_reader import CUT, Heard, TurnReader
from cachegate.wire.codecs import CODECS
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
from cachegate.wire.seen import Failed, Finished, Refusal, Seen
from cachegate.wire.sessions import Reason
from cachegate.wire.usage_readings import Fields
from claude_frames import (
    MEASURED,
    RESULT,
    STOP,
    USAGE,
    answers,
    api_error,
    asks,
    block,
    call,
    ending,
    ends,
    raw,
    start,
    text,
    thought,
)

PATCH = ToolRef("apply_patch", custom=True)
ASKED = Request("m", stream=True, tools=(Tool(ToolRef("Read")), Tool(PATCH)))
TARGET = Target("up", "p", origin=Protocol.MESSAGES)
STARTED = Started("msg_1", "model-x", usage=MEASURED)
COUNTED = Counted(MEASURED, 9, None)
EXITED: Fields = {"type": "process.exited"}
LIMITS = ("max_tokens", "model_context_window_exceeded")


def reader() -> TurnReader:
    return TurnReader(ASKED, TARGET)


def heard(frames: Iterable[Fields], by: TurnReader | None = None) -> list[Heard]:
    turn = by or reader()
    return [turn.read(frame) for frame in frames]


def events(told: Iterable[Heard]) -> tuple[Event, ...]:
    return tuple(event for each in told for event in each.events)


def seen(told: Iterable[Heard]) -> list[Seen]:
    return [item for each in told for item in each.seen]


# --- whole answers ---


def test_a_text_is_told_as_it_comes() -> None:
    told = heard(answers("Hello", " world"))
    assert events(told) == (
        STARTED, PartStarted(0, PartKind.TEXT), Delta(0, "Hello"), Delta(0, " world"), PartEnded(0), COUNTED,
        Ended(Stop.END),
    )  # fmt: skip
    assert seen(told) == [MEASURED, MEASURED, Finished()]


def test_thoughts_keep_their_signature_and_calls_their_arguments() -> None:
    turn = reader()
    frames = [
        start(), *thought(0, "hm"), *text(1, "I look."), *call(2, "c1", '{"path":', ' "/a"}'), *call(3, "c2"),
        *ends("tool_use"),
    ]  # fmt: skip
    told = events(heard(frames, turn))
    assert told == (
        STARTED,
        PartStarted(0, PartKind.THINKING), Delta(0, "hm"), PartEnded(0, opaque="c2ln"),
        PartStarted(1, PartKind.TEXT), Delta(1, "I look."), PartEnded(1),
        PartStarted(2, PartKind.TOOL_CALL, ToolCall("c1", ToolRef("Read"), "")),
        Delta(2, '{"path":'), Delta(2, ' "/a"}'), PartEnded(2),
        PartStarted(3, PartKind.TOOL_CALL, ToolCall("c2", ToolRef("Read"), "")), PartEnded(3),
        COUNTED, Ended(Stop.TOOL_CALLS),
    )  # fmt: skip
    assert turn.turn() == Turn(
        "assistant",
        (
            {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "c1", "name": "Read", "input": {"path": "/a"}},
            {"type": "tool_use", "id": "c2", "name": "Read", "input": {}},
        ),
    )
    assert (turn.over, turn.must_die, turn.why) == (True, False, "")


def test_the_input_of_a_freeform_tool_is_unwrapped_for_the_caller_only() -> None:
    turn = reader()
    told = heard([start(), *call(0, "c1", '{"input":"*** pa', 'tch"}', name="apply_patch"), *ends("tool_use")], turn)
    assert Delta(0, "*** patch") in events(told)
    assert PartStarted(0, PartKind.TOOL_CALL, ToolCall("c1", PATCH, "")) in events(told)
    assert turn.turn().blocks[0]["input"] == {"input": "*** patch"}


@pytest.mark.parametrize("arguments", ["", "{", "[]", '"x"'])
def test_arguments_that_are_no_object_break_nothing(arguments: str) -> None:
    turn = reader()
    heard([start(), *call(0, "c1", arguments), *ends("tool_use")], turn)
    assert len(mark(turn.turn())) == 32


def sent_back(protocol: Protocol, body: Any) -> Any:
    """What a client of this protocol sends back of an answer."""
    match protocol:
        case Protocol.MESSAGES:
            return [{"role": "assistant", "content": body["content"]}]
        case Protocol.RESPONSES:
            return body["output"]
        case Protocol.CHAT:
            return [body["choices"][0]["message"]]


OPENAI_TOOLS = [{"type": "function", "name": "Read", "parameters": {}}, {"type": "custom", "name": "apply_patch"}]
WHOLE_CALL: Fields = {"type": "tool_use", "id": "c1", "name": "Read", "input": {"n": 1}}
ASKING: dict[Protocol, dict[str, Any]] = {
    Protocol.MESSAGES: {"max_tokens": 9, "tools": [{"name": name, "input_schema": {}} for name in ("Read", "patch")]},
    Protocol.RESPONSES: {"tools": OPENAI_TOOLS},
    Protocol.CHAT: {"tools": [{"type": "function", "function": {"name": "Read", "parameters": {}}}]},
}


@pytest.mark.parametrize(
    "frames",
    [
        answers("Hello", " world\n"),
        [start(), *thought(0, "hm"), *text(1, "a"), *thought(2, "so"), *text(3, "b"), *ends()],
        [start(), *thought(0, "hm"), *text(1, "I look."), *call(2, "c1", '{"n": 1.0, "path":"/ä"}'), *ends("tool_use")],
        asks("c1", "c2"),
        [start(), *block(0, WHOLE_CALL), *ends("tool_use")],
        [start(), *block(0, WHOLE_CALL, {"type": "input_json_delta", "partial_json": '{"m":2}'}), *ends("tool_use")],
    ],
    ids=["a text", "texts between thoughts", "a call", "two calls", "a call that comes whole", "and then in parts"],
)
def test_what_the_caller_sends_back_has_the_mark_of_what_was_heard(protocol: Protocol, frames: list[Fields]) -> None:
    codec = CODECS[protocol]
    field = "input" if protocol is Protocol.RESPONSES else "messages"
    asked = {"model": "m", field: [{"role": "user", "content": "go"}], **ASKING[protocol]}
    request = codec.parse_request(json.dumps(asked).encode())
    turn = TurnReader(request, TARGET)
    body = json.loads(codec.write_body(request, TARGET, events(heard(frames, turn))))
    back = sent_back(protocol, body)
    continued = {**asked, field: [*asked[field], *back, {"role": "user", "content": "and?"}]}
    turns = prompt_of(codec.parse_request(json.dumps(continued).encode()), "up", "p").turns
    assert mark(turns[1]) == mark(turn.turn())


def test_a_patch_that_codex_sends_back_has_the_mark_of_what_was_heard() -> None:
    asked = {"model": "m", "input": [{"role": "user", "content": "go"}], "tools": OPENAI_TOOLS}
    codec = CODECS[Protocol.RESPONSES]
    request = codec.parse_request(json.dumps(asked).encode())
    turn = TurnReader(request, TARGET)
    told = heard([start(), *call(0, "c1", '{ "input":"*** \\u00fc" }', name="apply_patch"), *ends("tool_use")], turn)
    output = json.loads(codec.write_body(request, TARGET, events(told)))["output"]
    assert output[0]["type"] == "custom_tool_call"
    result = {"type": "custom_tool_call_output", "call_id": "c1", "output": "ok"}
    back = {**asked, "input": [*asked["input"], *output, result]}
    turns = prompt_of(codec.parse_request(json.dumps(back).encode()), "up", "p").turns
    assert mark(turns[1]) == mark(turn.turn())


# --- ends ---


def test_an_answer_has_not_ended_before_its_last_event() -> None:
    turn = reader()
    told = heard([start(), *text(0, "a"), ending("end_turn")], turn)
    assert not any(isinstance(event, Ended) for event in events(told))
    assert Finished() not in seen(told)
    assert not turn.over
    last = turn.read(STOP)
    assert (last.events, last.seen) == ((Ended(Stop.END),), (Finished(),))


@pytest.mark.parametrize("reason", LIMITS)
def test_at_a_limit_the_answer_ends_before_the_program_can_ask_for_more(reason: str) -> None:
    turn = reader()
    told = heard([start(), *text(0, "a lon"), ending(reason)], turn)
    assert events(told)[-1] == Ended(Stop.MAX_TOKENS if reason == "max_tokens" else Stop.CONTEXT_FULL)
    assert seen(told)[-2:] == [MEASURED, Finished()]
    assert (turn.over, turn.must_die, turn.why) == (True, True, "hidden_continuation")
    assert turn.read(STOP) == Heard()


@pytest.mark.parametrize(
    "said", [[], thought(0, "hm"), text(0), text(0, " ", "\n")], ids=["nothing", "a thought", "no text", "blanks"]
)
def test_an_answer_that_says_nothing_ends_before_the_program_can_ask_again(said: list[Fields]) -> None:
    turn = reader()
    told = heard([start(), *said, ending("end_turn")], turn)
    assert events(told)[-1] == Ended(Stop.END)
    assert seen(told)[-1] == Finished()
    assert (turn.over, turn.must_die, turn.why) == (True, True, "hidden_continuation")


@pytest.mark.parametrize("reason", ["end_turn", "tool_use", "stop_sequence", "pause_turn"])
def test_other_ends_leave_the_process_alone(reason: str) -> None:
    turn = reader()
    heard([start(), *call(0, "c1"), *ends(reason)], turn)
    assert (turn.over, turn.must_die, turn.why) == (True, False, "")


@pytest.mark.parametrize("said", [text(0, "no"), []], ids=["in words", "without a word"])
def test_a_refusal_is_an_end_and_the_programs_own_words_about_it_are_not_told(said: list[Fields]) -> None:
    turn = reader()
    of_its_own = api_error("Unable to respond", message={"model": "<synthetic>", "stop_reason": "refusal"})
    told = heard([start(), *said, of_its_own, *ends("refusal")], turn)
    assert events(told)[-1] == Ended(Stop.REFUSAL)
    assert not any(isinstance(event, Broken) for event in events(told))
    assert Refusal() in seen(told)
    assert seen(told)[-1] == Finished()
    assert (turn.over, turn.why) == (True, "refusal")


@pytest.mark.parametrize("end", [[ending(None), STOP], [STOP]], ids=["a reason of null", "no reason at all"])
def test_the_programs_own_end_of_a_broken_stream_is_a_failure(end: list[Fields]) -> None:
    turn = reader()
    told = heard([start(), *text(0, "par"), *end], turn)
    failed = events(told)[-1]
    assert isinstance(failed, Broken)
    assert (failed.kind, failed.message) == (ErrorKind.UPSTREAM, CUT)
    assert seen(told) == [MEASURED, Failed(failed.code)]
    assert (turn.over, turn.must_die, turn.why) == (True, True, "provider_error")


# --- a call that nobody asked for ---


def test_a_second_call_in_an_answer_ends_the_process() -> None:
    turn = reader()
    told = heard([start(), *text(0, "a"), start(number=2)], turn)
    assert isinstance(events(told)[-1], Broken)
    assert [type(item) for item in seen(told)] == [Usage, Usage, Failed], "what it cost is known"
    assert (turn.over, turn.must_die, turn.why) == (True, True, Reason.HIDDEN_INFERENCE)


@pytest.mark.parametrize("before", [answers("a"), [api_error("Overloaded", 529)]], ids=["an answer", "a failure"])
def test_a_call_behind_the_end_ends_the_process_and_is_not_told(before: list[Fields]) -> None:
    turn = reader()
    heard(before, turn)
    assert not turn.must_die
    of_an_agent = {**start(number=2), "parent_tool_use_id": "c1"}
    assert turn.read(of_an_agent) == Heard()
    assert not turn.must_die
    assert turn.read(start(number=2)) == Heard()
    assert (turn.must_die, turn.why) == (True, Reason.HIDDEN_INFERENCE)


# --- failures ---


@pytest.mark.parametrize(
    ("frame", "kind", "status", "code"),
    [
        (api_error("slow down", 429, "rate_limit_error"), ErrorKind.UNAVAILABLE, 429, "rate_limit_error"),
        (api_error("Overloaded", 529, "overloaded_error"), ErrorKind.UNAVAILABLE, 529, "overloaded_error"),
        (api_error("no", 401, "authentication_error"), ErrorKind.UNAUTHORIZED, 401, "authentication_error"),
        (api_error("Connection lost"), ErrorKind.UPSTREAM, 502, "unknown"),
        (api_error("Prompt is too long", 400), ErrorKind.INVALID, 400, overflows.CODE),
        (api_error("Prompt is too long"), ErrorKind.INVALID, 400, overflows.CODE),
        (
            api_error("prompt is too long: 9 tokens > 8 maximum", 400, "invalid_request_error"),
            ErrorKind.INVALID,
            400,
            overflows.CODE,
        ),
    ],
    ids=["429", "529", "401", "no connection", "too long", "too long for the program", "too long for the provider"],
)
def test_an_error_is_the_providers_own(frame: Fields, kind: ErrorKind, status: int, code: str) -> None:
    turn = reader()
    told = turn.read(frame)
    (failed,) = told.events
    assert isinstance(failed, Broken)
    assert (failed.kind, failed.status, failed.code) == (kind, status, code)
    assert failed.message in json.dumps(frame)
    assert told.seen == (Failed(code),)
    assert (turn.over, turn.must_die, turn.why) == (True, False, "provider_error")


def test_the_providers_own_error_is_told_and_not_what_the_program_makes_of_it() -> None:
    turn = reader()
    told = turn.refused(429, b'{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}')
    assert told.events == (Broken(ErrorKind.UNAVAILABLE, 429, "rate_limit_error", "slow down"),)
    assert told.seen == (Failed("rate_limit_error"),)
    assert (turn.over, turn.must_die, turn.why) == (True, False, "provider_error")
    assert heard([api_error("Usage limit reached", 429), RESULT], turn) == [Heard()] * 2
    assert turn.refused(529, b"") == Heard(), "nothing is told behind the end"


def test_an_error_without_words_has_some() -> None:
    empty = api_error("", 500)
    assert events([reader().read({**empty, "message": {"content": []}})]) == (
        Broken(ErrorKind.UPSTREAM, 500, "unknown", "The provider failed."),
    )


@pytest.mark.parametrize(
    ("frame", "why"),
    [(api_error("Overloaded", 529), "provider_error"), (EXITED, "process_exited"), (RESULT, "provider_error")],
    ids=["an error", "the process ended", "the turn ended"],
)
def test_what_was_measured_is_seen_before_a_later_failure(frame: Fields, why: str) -> None:
    turn = reader()
    told = heard([start(), *text(0, "par"), frame], turn)
    assert seen(told)[0] == MEASURED
    assert isinstance(seen(told)[-1], Failed)
    assert Finished() not in seen(told)
    assert sum(isinstance(event, Broken) for event in events(told)) == 1
    assert turn.why == why
    assert heard([frame, STOP, EXITED], turn) == [Heard()] * 3, "nothing is told behind the end"


def test_an_error_inside_the_stream_is_one() -> None:
    error = raw("error", error={"type": "overloaded_error", "message": "Overloaded"})
    turn = reader()
    told = heard([start(), error], turn)
    assert events(told)[-1] == Broken(ErrorKind.UNAVAILABLE, 529, "overloaded_error", "Overloaded")
    assert seen(told) == [MEASURED, Failed("overloaded_error")]
    assert (turn.over, turn.why) == (True, "provider_error")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"result": "Not logged in", "is_error": True}, "Not logged in"),
        ({}, "without an answer (success)"),
        ({"terminal_reason": "aborted"}, "without an answer (aborted)"),
    ],
)
def test_a_turn_that_ends_without_an_answer_is_a_failure(more: Fields, words: str) -> None:
    told = reader().read({**RESULT, **more})
    (failed,) = told.events
    assert isinstance(failed, Broken)
    assert words in failed.message
    assert failed.status == 502
    assert [type(item) for item in told.seen] == [Failed]


def test_a_turn_that_ends_because_the_prompt_is_too_long_is_an_overflow() -> None:
    (failed,) = reader().read({**RESULT, "terminal_reason": "prompt_too_long", "result": "Prompt is too long"}).events
    assert isinstance(failed, Broken)
    assert failed.code == overflows.CODE


# --- what is not heard ---


def test_what_the_end_of_the_turn_counts_measures_nothing() -> None:
    told = heard([start({"input_tokens": 10}), *text(0, "a"), ending("end_turn"), STOP, RESULT])
    assert {item for item in seen(told) if isinstance(item, Usage)} <= {Usage(10), MEASURED}
    assert heard([RESULT])[0].seen == (Failed("success"),)


def test_unknown_counts_stay_unknown() -> None:
    told = heard([start({"input_tokens": 10, "output_tokens": 1})])
    (usage,) = seen(told)
    assert isinstance(usage, Usage)
    assert (usage.cached_read, usage.cache_write) == (None, None)


def test_sub_agents_are_not_heard() -> None:
    frames = answers("of an agent")
    turn = reader()
    assert heard(({**frame, "parent_tool_use_id": "c1"} for frame in frames), turn) == [Heard()] * len(frames)
    assert not turn.over
    assert events(heard(answers("Hello"), turn))[-1] == Ended(Stop.END)


@pytest.mark.parametrize(
    "frame",
    [
        {"type": "system", "subtype": "status"},
        {"type": "rate_limit_event", "rate_limit_info": {"status": "allowed"}},
        {"type": "assistant", "message": {"content": [{"type": "text", "text": "Hello"}], "model": "model-x"}},
        {"type": "user", "message": {"content": "x"}},
        raw("ping"),
        raw("vendor.thing", index=0),
        {"type": "stream_event"},
        {},
    ],
    ids=json.dumps,
)
def test_what_the_program_says_besides_is_no_part_of_the_answer(frame: Fields) -> None:
    plain, between = answers("Hello"), answers("Hello")
    between.insert(3, frame)
    assert events(heard(between)) == events(heard(plain))
    assert seen(heard(between)) == seen(heard(plain))


def test_a_block_that_is_not_complete_when_the_answer_ends_is_a_part_of_it() -> None:
    turn = reader()
    heard([start(), *text(0, "a")[:-1], *ends()], turn)
    assert turn.turn().blocks == ({"type": "text", "text": "a"},)


def test_deltas_of_no_block_are_not_kept() -> None:
    turn = reader()
    stray = raw("content_block_delta", index=7, delta={"type": "text_delta", "text": "x"})
    heard([start(), stray, raw("content_block_delta", delta={}), *text(0, "a"), *ends()], turn)
    assert turn.turn().blocks == ({"type": "text", "text": "a"},)


def test_a_block_of_another_kind_is_kept_as_it_began() -> None:
    turn = reader()
    heard([start(), *block(0, {"type": "redacted_thinking", "data": "x"}), *text(1, "a"), *ends()], turn)
    assert turn.turn().blocks[0] == {"type": "redacted_thinking", "data": "x"}
    assert mark(turn.turn()) == mark(replace(turn.turn(), blocks=turn.turn().blocks[1:]))


def test_usage_grows_with_the_answer() -> None:
    told = heard([start({**USAGE, "cache_read_input_tokens": None}), *text(0, "a"), *ends()])
    assert [item for item in seen(told) if isinstance(item, Usage)][-1] == MEASURED
