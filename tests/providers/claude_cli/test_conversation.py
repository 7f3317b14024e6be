import asyncio
import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cachegate.errors import BadInput, UpstreamError
from cachegate.providers.claude_cli import conversation as module
from cachegate.providers.claude_cli.conversation import Conversation, Exchange, Settings
from cachegate.providers.claude_cli.launch import Account
from cachegate.wire.claude_cli.prompt import Prompt, Turn
from cachegate.wire.claude_cli.turn_reader import TurnReader
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import Broken, Delta, Ended, Json, Request, Target
from cachegate.wire.sessions import Reason
from claude_frames import RESULT, STEPPED, answers, api_error, asks, call, ending, ends, start, text, thought
from claude_program import FakeProcess, FakeProgram, Refused

TOOLS: tuple[Json, ...] = ({"name": "Read", "description": "", "inputSchema": {"type": "object"}},)
PROMPT = Prompt("up", "Be brief.", TOOLS, {}, (), None, None, fast=False)
REQUEST = Request("m", stream=True)
TARGET = Target("up", "p", origin=Protocol.MESSAGES)


def words(said: str) -> Json:
    return {"type": "text", "text": said}


def result(call_id: str, said: str = "r", **more: object) -> Json:
    return {"type": "tool_result", "tool_use_id": call_id, "content": said, **more}


def user(*blocks: Json) -> Turn:
    return Turn("user", blocks)


def called(*call_ids: str) -> Turn:
    return Turn("assistant", tuple({"type": "tool_use", "id": each, "name": "Read", "input": {}} for each in call_ids))


U1, U2, U3 = (user(words(said)) for said in ("one", "two", "three"))
HELLO = Turn("assistant", (words("Hello world"),))
CALLS = called("c1", "c2")
RESULTS = user(result("c1"), result("c2", is_error=True))
ASKS = asks("c1", "c2")


class Talk:
    """A conversation, and what is asked in it."""

    def __init__(self, program: FakeProgram, root: Path) -> None:
        numbers = itertools.count(1)
        self.program = program
        settings = Settings("claude", Account(api_key="k"), root, program.gate)
        self.conversation = Conversation(settings, lambda: f"s{next(numbers)}")
        self.sent = 0

    def _send(self) -> None:
        self.sent += 1

    async def begin(self, *turns: Turn, **asked: Any) -> tuple[Exchange, str]:
        """Ask; return the request under way, and why the process was begun anew."""
        self.program.log.clear()
        prompt = replace(PROMPT, turns=turns, **asked)
        exchange, reseed = await self.conversation.begin(prompt, TurnReader(REQUEST, TARGET), self._send)
        return exchange, "" if reseed is None else reseed.reason

    async def ask(self, *turns: Turn, **asked: Any) -> str:
        """Ask, and take the answer to its good end."""
        exchange, reason = await self.begin(*turns, **asked)
        assert isinstance(told(exchange)[-1], Ended)
        self.conversation.finish()
        await self.conversation.settle()
        return reason


def told(exchange: Exchange) -> list[Any]:
    return [event for _ in range(exchange.heard.qsize()) for event in exchange.heard.get_nowait().events]


async def moments() -> None:
    """Let everybody do what can be done without waiting."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> FakeProgram:
    fake = FakeProgram()
    monkeypatch.setattr(module, "ClaudeProcess", fake)
    return fake


@pytest.fixture
def talk(program: FakeProgram, tmp_path: Path) -> Talk:
    return Talk(program, tmp_path)


def said_in(program: FakeProgram, process: FakeProcess | None = None) -> list[tuple[str, str]]:
    """Who said what in a transcript: the texts, and the ids of calls and results."""
    return [
        (str(line["type"]), str(block.get("text") or block.get("id") or block.get("tool_use_id")))
        for line in program.lines(process)
        for block in line["message"]["content"]  # type: ignore[index]
    ]


# --- a process begins ---


async def test_the_first_request_begins_a_process_from_a_transcript(program: FakeProgram, talk: Talk) -> None:
    exchange, reason = await talk.begin(U1, HELLO, U2)
    assert (reason, program.log, talk.sent) == ("no_session", ["start"], 1)
    assert told(exchange)[1:3][1] == Delta(0, "Hello")
    process = program.last
    assert process.tools == TOOLS
    assert process.home.system_path.read_text() == "Be brief."
    assert process.session_id == "s1"
    assert process.launch.environ["CLAUDE_CODE_RESUME_INTERRUPTED_TURN"] == "1"
    assert said_in(program)[:3] == [("user", "one"), ("assistant", "Hello world"), ("user", "two")]
    assert {line["sessionId"] for line in program.lines()} == {"s1"}
    assert process.said == []


async def test_what_is_forced_and_how_the_model_answers_is_told_at_the_start(program: FakeProgram, talk: Talk) -> None:
    await talk.ask(U1, extra={"max_tokens": 9}, thinking_tokens=0, effort="low", fast=True)
    process = program.last
    assert process.launch.environ["CLAUDE_CODE_EXTRA_BODY"] == '{"max_tokens":9}'
    assert (process.option("--max-thinking-tokens"), process.option("--effort")) == ("0", "low")
    assert await talk.ask(U1, HELLO, U2, extra={"max_tokens": 9}, thinking_tokens=0, effort="low", fast=True) == ""
    assert process.controls == [], "it is so already"


async def test_results_at_the_end_of_a_transcript_are_gone_on_from(program: FakeProgram, talk: Talk) -> None:
    assert await talk.ask(U1, CALLS, RESULTS) == "no_session"
    lines = program.lines()
    assert [line["message"]["content"] for line in lines][2:4] == [list(RESULTS.blocks), []]  # type: ignore[index]


async def test_a_conversation_that_cannot_be_answered_changes_nothing(program: FakeProgram, talk: Talk) -> None:
    with pytest.raises(BadInput):
        await talk.begin()
    assert (program.log, talk.sent) == ([], 0)
    await talk.ask(U1)
    with pytest.raises(BadInput):
        await talk.begin()
    assert await talk.ask(U1, HELLO, U2) == ""


async def test_a_program_that_cannot_be_started_is_an_error_and_tried_again(program: FakeProgram, talk: Talk) -> None:
    program.refuses = UpstreamError("no")
    with pytest.raises(UpstreamError):
        await talk.begin(U1)
    await talk.conversation.settle()
    program.refuses = None
    assert await talk.ask(U1)
    assert said_in(program)[0] == ("user", "one")


# --- it goes on ---


async def test_a_message_is_said_to_the_living_process(program: FakeProgram, talk: Talk) -> None:
    await talk.ask(U1)
    assert await talk.ask(U1, HELLO, U2) == ""
    assert (program.log, program.last.said, talk.sent) == (["say"], [U2.blocks], 2)
    assert await talk.ask(U1, HELLO, U2, HELLO, U3) == ""
    assert len(set(program.ids)) == 2, "each message has an id of its own"


async def test_results_are_given_and_then_nothing_is_said(program: FakeProgram, talk: Talk) -> None:
    program.replies.append(ASKS)
    await talk.ask(U1)
    assert talk.conversation.waits
    assert await talk.ask(U1, CALLS, RESULTS) == ""
    assert program.log == ["give", "give", "say"]
    assert program.last.given == [("c1", [words("r")], False), ("c2", [words("r")], True)]
    assert program.last.said == [()]
    assert not talk.conversation.waits


async def test_what_the_user_says_beside_results_is_said_behind_them(program: FakeProgram, talk: Talk) -> None:
    program.replies.append(ASKS)
    await talk.ask(U1)
    assert await talk.ask(U1, CALLS, user(*RESULTS.blocks, words("and"))) == ""
    assert program.log == ["give", "give", "say"]
    assert program.last.said == [(words("and"),)]


async def test_nothing_is_said_before_the_program_has_taken_the_results(program: FakeProgram, talk: Talk) -> None:
    program.replies.append(ASKS)
    await talk.ask(U1)
    program.step = []
    going = asyncio.ensure_future(talk.begin(U1, CALLS, RESULTS))
    await moments()
    assert program.log == ["give", "give"]
    await moments()
    assert "say" not in program.log
    assert talk.sent == 1
    program.last.play([STEPPED])
    exchange, reason = await going
    assert (reason, program.log[-1], talk.sent) == ("", "say", 2)
    assert not any(isinstance(event, Broken) for event in told(exchange)), "the end of the step is no end of the answer"


async def test_results_that_are_never_taken_are_an_error_and_not_given_again(
    program: FakeProgram, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STEP_S", 0)
    program.replies.append(ASKS)
    await talk.ask(U1)
    program.step = []
    with pytest.raises(UpstreamError, match="did not take the results"):
        await talk.begin(U1, CALLS, RESULTS)
    await talk.conversation.settle()
    assert talk.sent == 1
    assert await talk.ask(U1, CALLS, RESULTS) == "cancelled"
    assert program.log == ["close", "start"]


async def test_who_leaves_while_results_are_taken_does_not_give_them_twice(program: FakeProgram, talk: Talk) -> None:
    program.replies.append(ASKS)
    await talk.ask(U1)
    program.step = []
    going = asyncio.ensure_future(talk.begin(U1, CALLS, RESULTS))
    await moments()
    assert program.log == ["give", "give"]
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    await talk.conversation.settle()
    assert await talk.ask(U1, CALLS, RESULTS) == "cancelled"
    assert said_in(program)[:5] == [
        ("user", "one"), ("assistant", "c1"), ("assistant", "c2"), ("user", "c1"), ("user", "c2"),
    ]  # fmt: skip


async def test_an_answer_without_calls_is_at_rest_before_it_goes_on(program: FakeProgram, talk: Talk) -> None:
    program.replies.append(answers("Hello", " world")[:-1])
    await talk.ask(U1)
    going = asyncio.ensure_future(talk.begin(U1, HELLO, U2))
    await moments()
    assert program.log == []
    program.last.play([RESULT])
    _, reason = await going
    assert (reason, program.log) == ("", ["say"])


async def test_a_process_that_does_not_come_to_rest_is_replaced(
    program: FakeProgram, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REST_S", 0)
    program.replies.append(answers("Hello", " world")[:-1])
    await talk.ask(U1)
    assert await talk.ask(U1, HELLO, U2) == "busy"


# --- what is changed in place ---


@pytest.mark.parametrize(
    ("asked", "controls"),
    [
        ({}, []),
        ({"thinking_tokens": 0}, [("set_max_thinking_tokens", {"max_thinking_tokens": 0})]),
        ({"thinking_tokens": 5000}, [("set_max_thinking_tokens", {"max_thinking_tokens": 5000})]),
        ({"effort": "low"}, [("apply_flag_settings", {"settings": {"effortLevel": "low", "fastMode": False}})]),
        ({"fast": True}, [("apply_flag_settings", {"settings": {"effortLevel": None, "fastMode": True}})]),
        (
            {"thinking_tokens": 0, "effort": "low", "fast": True},
            [
                ("set_max_thinking_tokens", {"max_thinking_tokens": 0}),
                ("apply_flag_settings", {"settings": {"effortLevel": "low", "fastMode": True}}),
            ],
        ),
    ],
)
async def test_thinking_effort_and_fast_are_changed_in_place_when_they_change(
    program: FakeProgram, talk: Talk, asked: dict[str, Any], controls: list[tuple[str, dict[str, object]]]
) -> None:
    await talk.ask(U1)
    assert await talk.ask(U1, HELLO, U2, **asked) == ""
    assert program.last.controls == controls
    assert program.log == [*["control"] * len(controls), "say"], "before the model is asked"
    assert await talk.ask(U1, HELLO, U2, HELLO, U3, **asked) == ""
    assert program.last.controls == controls, "once"


async def test_thinking_goes_back_to_the_programs_own_setting(program: FakeProgram, talk: Talk) -> None:
    await talk.ask(U1, thinking_tokens=0)
    await talk.ask(U1, HELLO, U2)
    assert program.last.controls == [("set_max_thinking_tokens", {"max_thinking_tokens": 31_999})]


async def test_a_change_that_is_refused_is_asked_for_again(program: FakeProgram, talk: Talk) -> None:
    await talk.ask(U1)
    program.refuses_control = True
    with pytest.raises(UpstreamError):
        await talk.begin(U1, HELLO, U2, effort="low")
    assert talk.sent == 1
    await talk.conversation.settle()
    program.refuses_control = False
    await talk.ask(U1, HELLO, U2, effort="low")
    assert len(program.last.controls) == 2


async def test_a_new_process_has_what_its_request_asks_for(program: FakeProgram, talk: Talk) -> None:
    await talk.ask(U1, effort="low")
    await talk.ask(U2)
    assert program.last.option("--effort") is None
    assert await talk.ask(U2, HELLO, U3) == ""
    assert program.last.controls == []


# --- it is begun anew ---


async def test_another_setup_keeps_the_turns_and_what_only_the_old_process_knew(
    program: FakeProgram, talk: Talk
) -> None:
    program.replies.append([start(), *thought(0, "hm"), *text(1, "Hello world"), *ends(), RESULT])
    await talk.ask(U1)
    assert await talk.ask(U1, HELLO, U2, system="Be long.") == "fingerprint_changed"
    assert program.log == ["close", "start"]
    first, second = program.processes
    assert first.home.path == second.home.path
    assert (first.session_id, second.session_id) == ("s1", "s2")
    assert second.home.system_path.read_text() == "Be long."
    lines = program.lines(second)
    assert [line.get("thought") for line in lines[:4]] == [None, "kept", "kept", None]
    assert lines[1]["message"]["content"][0]["type"] == "thinking"  # type: ignore[index]
    assert {line["sessionId"] for line in lines} == {"s2"}


async def test_a_diverged_conversation_keeps_what_is_common(program: FakeProgram, talk: Talk) -> None:
    await talk.ask(U1)
    await talk.ask(U1, HELLO, U2)
    assert await talk.ask(U1, HELLO, U3) == "history_diverged"
    assert said_in(program)[:3] == [("user", "one"), ("assistant", "Hello world"), ("user", "three")]
    assert [line.get("thought") for line in program.lines()[:3]] == [None, "kept", None]
    assert await talk.ask(U1, HELLO, U3, HELLO, U1) == ""


async def test_pictures_go_in_with_a_transcript(program: FakeProgram, talk: Talk) -> None:
    shown = user(words("see"), {"type": "image", "source": {"type": "base64", "data": "iVBO"}})
    await talk.ask(U1)
    assert await talk.ask(U1, HELLO, shown) == "not_plain"
    assert program.lines()[2]["message"]["content"] == list(shown.blocks)  # type: ignore[index]


async def test_a_killed_process_is_replaced_with_all_that_it_has_written(program: FakeProgram, talk: Talk) -> None:
    program.replies.append(ASKS)
    await talk.ask(U1)
    program.last.exit()
    assert await talk.ask(U1, CALLS, RESULTS) == "process_exited"
    assert [line.get("thought") for line in program.lines()[:4]] == [None, "kept", "kept", None]


async def test_a_process_that_dies_when_it_is_told_something_is_replaced_at_once(
    program: FakeProgram, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await talk.ask(U1)
    process = program.last

    async def gone(content: object, message_id: str) -> None:
        del content, message_id
        process.alive = False
        raise UpstreamError("gone")

    monkeypatch.setattr(process, "say", gone)
    assert await talk.ask(U1, HELLO, U2) == "process_exited"
    assert talk.sent == 2


async def test_who_leaves_while_a_process_is_replaced_loses_nothing(
    program: FakeProgram, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await talk.ask(U1)
    first = program.last

    async def never() -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(first, "close", never)
    going = asyncio.ensure_future(talk.begin(U1, HELLO, U2, system="Be long."))
    await moments()
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    await talk.conversation.settle()
    assert not talk.conversation.waits
    assert await talk.ask(U1, HELLO, U2) == "cancelled"
    assert [line.get("thought") for line in program.lines()[:3]] == [None, "kept", None]


async def test_an_answer_that_the_old_process_never_wrote_is_written_for_it(program: FakeProgram, talk: Talk) -> None:
    """At a limit the process is killed before it writes the answer down."""
    await talk.ask(U1)
    program.replies.append([start(), *text(0, "a lon"), ending("max_tokens")])
    await talk.ask(U1, HELLO, U2)
    cut = Turn("assistant", (words("a lon"),))
    assert await talk.ask(U1, HELLO, U2, cut, U3) == "hidden_continuation"
    assert [line.get("thought") for line in program.lines()[:5]] == [None, "kept", "kept", None, None]
    assert said_in(program)[:5] == [
        ("user", "one"), ("assistant", "Hello world"), ("user", "two"), ("assistant", "a lon"), ("user", "three"),
    ]  # fmt: skip


@pytest.mark.parametrize("lost", [b"", b"no json\n"])
async def test_without_the_old_transcript_all_is_written_anew(program: FakeProgram, talk: Talk, lost: bytes) -> None:
    await talk.ask(U1)
    (path,) = program.last.home.config.rglob("s1.jsonl")
    path.write_bytes(lost)
    assert await talk.ask(U1, HELLO, U2, system="Be long.") == "fingerprint_changed"
    assert said_in(program)[:3] == [("user", "one"), ("assistant", "Hello world"), ("user", "two")]
    assert await talk.ask(U1, HELLO, U2, HELLO, U3, system="Be long.") == ""


async def test_a_tool_that_nobody_declared_ends_the_process_with_the_next_request(
    program: FakeProgram, talk: Talk
) -> None:
    program.replies.append([start(), *call(0, "c1", "{}", name="made_up"), *ends("tool_use"), STEPPED])
    await talk.ask(U1)
    assert not talk.conversation.waits
    answer = Turn("assistant", ({"type": "tool_use", "id": "c1", "name": "made_up", "input": {}},))
    assert await talk.ask(U1, answer, user(result("c1"))) == "unknown_tool"


async def test_a_refusal_ends_the_session(program: FakeProgram, talk: Talk) -> None:
    program.replies.append([start(), *text(0, "no"), *ends("refusal"), RESULT])
    await talk.ask(U1)
    assert await talk.ask(U1, Turn("assistant", (words("no"),)), U2) == "refusal"


# --- an answer that does not end well ---


async def test_one_who_leaves_interrupts_the_process(program: FakeProgram, talk: Talk) -> None:
    await talk.ask(U1)
    program.replies.append([start(), *text(0, "par")])
    await talk.begin(U1, HELLO, U2)
    await talk.conversation.settle()
    assert program.log == ["say", "interrupt"]
    assert program.last.alive
    assert await talk.ask(U1, HELLO, U2) == "cancelled"
    assert [line.get("thought") for line in program.lines()[:3]] == [None, "kept", None], "the rest is forgotten"


async def test_a_process_that_is_not_interrupted_in_time_is_killed(
    program: FakeProgram, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "INTERRUPT_S", 0)
    program.deaf = True
    program.replies.append([start()])
    await talk.begin(U1)
    await talk.conversation.settle()
    assert program.log == ["start", "interrupt", "kill"]


async def test_a_process_that_is_gone_is_not_waited_for(program: FakeProgram, talk: Talk) -> None:
    program.replies.append([start()])
    await talk.begin(U1)
    program.last.alive = False
    await talk.conversation.settle()
    assert program.log == ["start", "interrupt", "kill"]


def test_an_interrupt_is_quicker_than_a_second() -> None:
    assert module.INTERRUPT_S < 1


async def test_an_answer_that_ended_is_not_interrupted(program: FakeProgram, talk: Talk) -> None:
    await talk.ask(U1)
    await talk.conversation.settle()
    assert program.log == ["start"]


async def test_one_who_leaves_when_all_was_said_interrupts_nothing(program: FakeProgram, talk: Talk) -> None:
    await talk.begin(U1)
    await talk.conversation.settle()
    assert program.log == ["start"]
    assert await talk.ask(U1) == "cancelled"


async def test_a_failure_is_told_and_the_next_request_begins_anew(program: FakeProgram, talk: Talk) -> None:
    await talk.ask(U1)
    program.replies.append([api_error("Overloaded", 529), RESULT])
    exchange, _ = await talk.begin(U1, HELLO, U2)
    assert isinstance(told(exchange)[-1], Broken)
    await talk.conversation.settle()
    assert program.log == ["say"]
    assert await talk.ask(U1, HELLO, U2) == "provider_error"


async def test_what_was_kept_for_a_request_that_failed_is_kept_for_the_next(program: FakeProgram, talk: Talk) -> None:
    await talk.ask(U1)
    program.replies.append([api_error("Overloaded", 529), RESULT])
    await talk.begin(U1, HELLO, U2, system="Be long.")
    await talk.conversation.settle()
    assert await talk.ask(U1, HELLO, U2, system="Be long.") == "provider_error"
    assert [line.get("thought") for line in program.lines()[:3]] == [None, "kept", None]


async def test_a_process_that_exits_in_the_midst_is_a_failure(program: FakeProgram, talk: Talk) -> None:
    program.replies.append([start(), *text(0, "par")])
    exchange, _ = await talk.begin(U1)
    program.last.exit()
    assert isinstance(told(exchange)[-1], Broken)
    await talk.conversation.settle()
    assert await talk.ask(U1) == "process_exited"


async def test_at_a_limit_the_process_is_killed_within_the_same_event(program: FakeProgram, talk: Talk) -> None:
    await talk.ask(U1)
    program.replies.append([start(), *text(0, "a lon")])
    exchange, _ = await talk.begin(U1, HELLO, U2)
    program.last.listener(ending("max_tokens"))
    assert program.log[-1] == "kill"
    assert isinstance(told(exchange)[-1], Ended)


async def test_a_limit_that_is_reached_while_the_process_starts_kills_it(program: FakeProgram, talk: Talk) -> None:
    program.replies.append([start(), *text(0, "a lon"), ending("max_tokens")])
    await talk.begin(U1)
    assert program.log == ["start", "kill"]


async def test_the_providers_own_error_is_told_and_not_what_the_program_makes_of_it(
    program: FakeProgram, talk: Talk
) -> None:
    own = b'{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}'
    program.replies.append(Refused(429, own, "7", [api_error("Usage limit reached", 429), RESULT]))
    exchange, _ = await talk.begin(U1)
    (failed,) = told(exchange)
    assert (failed.status, failed.code, failed.message) == (429, "rate_limit_error", "slow down")
    assert exchange.retry_after == "7"
    await talk.conversation.settle()
    assert program.log == ["start"]
    assert await talk.ask(U1) == "provider_error"
    program.replies.append(Refused(529, b"", "9"))
    exchange, _ = await talk.begin(U1, HELLO, U2)
    assert [event.status for event in told(exchange)] == [529]
    assert exchange.retry_after == "9"


# --- the gate ---


async def test_a_process_has_no_way_to_the_provider_but_the_gate(program: FakeProgram, talk: Talk) -> None:
    await talk.ask(U1)
    assert program.last.launch.environ["ANTHROPIC_BASE_URL"] == program.gate.url("s1")
    assert not program.gate.call("s1", ()), "one call for one request"


async def test_what_has_not_called_the_model_when_its_caller_leaves_never_does(
    program: FakeProgram, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeProcess, "answer", lambda _: None)
    await talk.begin(U1)
    await talk.conversation.settle()
    assert not program.gate.call("s1", ())
    assert talk.sent == 0
    await talk.begin(U1)
    await talk.conversation.close()
    assert not program.gate.call("s2", ())


# --- a call that nobody asked for ---


async def test_a_second_call_kills_the_process_and_fails_the_request(program: FakeProgram, talk: Talk) -> None:
    program.replies.append([start(), *text(0, "a")])
    exchange, _ = await talk.begin(U1)
    program.last.play([start(number=2)])
    assert program.log[-1] == "kill"
    assert isinstance(told(exchange)[-1], Broken)
    await talk.conversation.settle()
    assert await talk.ask(U1) == Reason.HIDDEN_INFERENCE


@pytest.mark.parametrize("finished", [True, False], ids=["after the request", "before its end was noted"])
async def test_a_call_behind_the_answer_kills_the_process(program: FakeProgram, talk: Talk, finished: bool) -> None:
    exchange, _ = await talk.begin(U1)
    if finished:
        talk.conversation.finish()
    program.last.play([start(number=2)])
    if not finished:
        talk.conversation.finish()
    assert program.log[-1] == "kill"
    assert not any(isinstance(event, Broken) for event in told(exchange))
    await talk.conversation.settle()
    assert await talk.ask(U1, HELLO, U2) == Reason.HIDDEN_INFERENCE


async def test_a_call_while_results_are_taken_kills_the_process_and_nothing_is_lost(
    program: FakeProgram, talk: Talk
) -> None:
    program.replies.append(ASKS)
    await talk.ask(U1)
    program.step = [start(number=2), STEPPED]
    assert await talk.ask(U1, CALLS, RESULTS) == Reason.HIDDEN_INFERENCE
    assert program.log[:3] == ["give", "give", "kill"]
    assert program.log[-2:] == ["close", "start"]
    assert talk.sent == 2


# --- its end ---


async def test_an_old_process_is_not_heard(program: FakeProgram, talk: Talk) -> None:
    await talk.ask(U1)
    program.replies.append([start(), *text(0, "par")])
    exchange, _ = await talk.begin(U2)
    first, second = program.processes
    assert not any(isinstance(event, Broken) for event in told(exchange)), "it has just ended"
    first.play([start(number=9), *answers("of the old one")])
    assert told(exchange) == []
    assert second.alive


async def test_the_end_closes_the_process_and_removes_its_folders(program: FakeProgram, talk: Talk) -> None:
    await talk.ask(U1)
    path = program.last.home.path
    assert path.exists()
    await talk.conversation.close()
    assert program.log == ["start", "close"]
    assert not path.exists()
    await talk.conversation.close()
    assert program.log.count("close") == 1
    assert not talk.conversation.waits


async def test_a_process_whose_calls_wait_is_not_asked_to_go_but_killed(program: FakeProgram, talk: Talk) -> None:
    """It would wait with them; what was said is written down already."""
    program.replies += [ASKS, ASKS]
    await talk.ask(U1)
    await talk.ask(U1, CALLS, RESULTS, system="Be long.")
    assert program.log == ["kill", "close", "start"]
    await talk.conversation.close()
    assert program.log[-2:] == ["kill", "close"]


async def test_a_conversation_that_never_began_ends_without_a_word(program: FakeProgram, talk: Talk) -> None:
    await talk.conversation.settle()
    talk.conversation.finish()
    await talk.conversation.close()
    assert program.log == []


# --- waiting calls ---


async def test_waiting_calls_are_not_replaced_by_something_else(program: FakeProgram, talk: Talk) -> None:
    def stays(*turns: Turn) -> bool:
        return talk.conversation.must_not_be_replaced_by(replace(PROMPT, turns=turns))

    assert not stays(U2)
    program.replies.append(ASKS)
    await talk.ask(U1)
    assert stays(U2)
    assert not stays(U1, CALLS, RESULTS)
    with pytest.raises(BadInput):
        stays()
