import asyncio
import itertools
import json
from dataclasses import replace
from typing import Any

import pytest

from cachegate.errors import BadInput, UpstreamError
from cachegate.providers.copilot import conversation as module
from cachegate.providers.copilot.conversation import Conversation, Turn
from cachegate.wire.copilot.event_reader import TurnReader
from cachegate.wire.copilot.history import Answered, Called, Returned, Said, Step
from cachegate.wire.copilot.setup import DeclaredTool, Setup, tool_names
from cachegate.wire.hub import Broken, Delta, Ended, Request
from cachegate.wire.seen import Reseed
from copilot_runtime import REST, Asked, ScriptedRuntime, ScriptedSession, answers, failure, text_delta, whole

TOOLS = (DeclaredTool("Read", "Reads.", {"type": "object"}),)
SETUP = Setup("up", "Be brief.", TOOLS, None, None)
OTHER = Setup("up", "Be long.", TOOLS, None, None)
U1, U2, U3 = Said("one"), Said("two"), Said("three")
A1 = Answered("Hello world")
CALLS = Answered("", (Called("c1", "Read", '{"path": "/a"}'), Called("c2", "Read", '{"path": "/a"}')))
R1, R2 = Returned("c1", "r1"), Returned("c2", "r2")
ASKS = answers("", Asked("c1"), Asked("c2"))
NAMES = tool_names(Request("m", stream=True))


class Talk:
    """A conversation, and what is asked in it."""

    def __init__(self, runtime: ScriptedRuntime) -> None:
        numbers = itertools.count(1)
        self.runtime = runtime
        self.conversation = Conversation(runtime, lambda: f"s{next(numbers)}")
        self.sent = 0

    def _send(self) -> None:
        self.sent += 1

    async def begin(self, *steps: Step, setup: Setup = SETUP) -> tuple[Turn, str]:
        """Ask; return the turn, and why the session was begun anew."""
        self.runtime.log.clear()
        turn, reseed = await self.conversation.begin(setup, steps, TurnReader(NAMES, "model-x"), self._send)
        return turn, "" if reseed is None else reseed.reason

    async def ask(self, *steps: Step, setup: Setup = SETUP) -> str:
        """Ask, and take the answer to its good end."""
        turn, reason = await self.begin(*steps, setup=setup)
        assert isinstance(told(turn)[-1], Ended)
        self.conversation.finish()
        await self.conversation.settle()
        return reason


def told(turn: Turn) -> list[Any]:
    return [event for _ in range(turn.heard.qsize()) for event in turn.heard.get_nowait().events]


def written(session: ScriptedSession) -> list[tuple[str, str]]:
    """What a session began with: the kind and the content of each event that is a step."""
    events = [json.loads(line) for line in session.opening.events.split(b"\n") if line]
    return [
        (event["type"], str(event["data"].get("content", event["data"].get("toolCallId"))))
        for event in events
        if event["type"] in {"user.message", "assistant.message", "tool.execution_complete"}
    ]


def talk(*replies: tuple[Any, ...]) -> Talk:
    return Talk(ScriptedRuntime(*replies))


# --- going on ---


async def test_a_new_conversation_begins_a_session_without_a_history() -> None:
    stage = talk()
    turn, reason = await stage.begin(U1)
    assert reason == "no_session"
    assert stage.runtime.log == ["open", "allow", "say one"]
    assert stage.runtime.last.opening.session_id == "s1"
    assert stage.runtime.last.opening.setup == SETUP
    assert [event.text for event in told(turn) if isinstance(event, Delta)] == ["Hello", " world"]
    assert stage.sent == 1


async def test_a_conversation_from_elsewhere_is_resumed() -> None:
    stage = talk()
    assert await stage.ask(U1, A1, U2) == "no_session"
    assert stage.runtime.log == ["resume", "allow", "say two"]
    assert written(stage.runtime.last) == [("user.message", "one"), ("assistant.message", "Hello world")]


async def test_what_is_new_is_said_to_the_live_session() -> None:
    stage = talk()
    await stage.ask(U1)
    assert await stage.ask(U1, A1, U2, U3) == ""
    assert stage.runtime.log == ["allow", "say two|three"]
    assert stage.sent == 2


async def test_results_are_given_and_nothing_is_said() -> None:
    stage = talk(ASKS)
    await stage.ask(U1)
    assert stage.conversation.waits
    assert await stage.ask(U1, CALLS, R2, R1) == ""
    assert stage.runtime.log == ["allow", "give c2", "give c1"]
    assert not stage.conversation.waits
    assert await stage.ask(U1, CALLS, R2, R1, A1, U2) == "", "the answer behind results is known, too"


async def test_what_the_user_says_beside_results_is_said_before_they_are_given() -> None:
    stage = talk(ASKS)
    await stage.ask(U1)
    assert await stage.ask(U1, CALLS, R1, R2, U2) == ""
    assert stage.runtime.log == ["allow", "steer two", "give c1", "give c2"]
    assert await stage.ask(U1, CALLS, R1, R2, U2, A1, U3) == ""


async def test_the_form_of_the_answer_goes_with_what_is_said() -> None:
    stage = talk()
    await stage.begin(U1, setup=replace(SETUP, schema={"type": "array"}))
    assert stage.runtime.last.said == [((U1,), {"type": "array"}, False)]


async def test_an_effort_is_changed_in_place_and_once() -> None:
    stage = talk()
    await stage.ask(U1, setup=replace(SETUP, effort="low"))
    high = replace(SETUP, effort="high")
    assert await stage.ask(U1, A1, U2, setup=high) == ""
    assert stage.runtime.log == ["effort high", "allow", "say two"]
    assert await stage.ask(U1, A1, U2, A1, U3, setup=high) == ""
    assert stage.runtime.log == ["allow", "say three"]
    assert await stage.ask(U1, A1, U2, A1, U3, A1, U1, setup=SETUP) == ""
    assert stage.runtime.log == ["allow", "say one"], "no word of effort changes none"
    assert await stage.ask(U1, A1, U2, A1, U3, A1, U1, A1, U2, setup=high) == ""
    assert stage.runtime.log == ["allow", "say two"], "and does not forget it"


async def test_a_new_session_has_the_effort_it_was_begun_with() -> None:
    stage = talk()
    high = replace(SETUP, effort="high")
    await stage.ask(U1, setup=high)
    assert await stage.ask(U1, A1, U2, setup=OTHER) == "fingerprint_changed"
    assert await stage.ask(U1, A1, U2, A1, U3, setup=replace(OTHER, effort="high")) == ""
    assert stage.runtime.log == ["effort high", "allow", "say three"]


# --- from a history ---


async def test_other_instructions_begin_a_session_with_the_old_ones_own_history() -> None:
    stage = talk()
    await stage.ask(U1)
    old = stage.runtime.last
    assert await stage.ask(U1, A1, U2, setup=OTHER) == "fingerprint_changed"
    assert stage.runtime.log == ["close", "resume", "allow", "say two"]
    assert stage.runtime.last.opening.setup == OTHER
    native = stage.runtime.last.opening.events.split(b"\n")
    assert native[1] in old.lines, "as the old one wrote it"
    assert b'"s2"' in native[0]
    assert written(stage.runtime.last) == [("user.message", "one"), ("assistant.message", "Hello world")]
    assert await stage.ask(U1, A1, U2, A1, U3, setup=OTHER) == ""


async def test_an_edited_history_is_kept_up_to_the_edit_and_then_written() -> None:
    stage = talk()
    await stage.ask(U1)
    await stage.ask(U1, A1, U2)
    old = stage.runtime.last
    assert await stage.ask(U1, A1, U3, Answered("mine"), U2) == "history_diverged"
    assert written(stage.runtime.last) == [
        ("user.message", "one"),
        ("assistant.message", "Hello world"),
        ("user.message", "three"),
        ("assistant.message", "mine"),
    ]
    kept = set(old.lines) & set(stage.runtime.last.opening.events.split(b"\n"))
    assert kept == set(old.lines[1 : old.lines.index(next(x for x in old.lines if b"assistant.message" in x)) + 1])


async def test_a_cancelled_request_is_stopped_and_the_next_one_begins_before_it() -> None:
    stage = talk(answers(), (text_delta("par"),))
    await stage.ask(U1)
    old = stage.runtime.last
    before = len(old.lines)
    await stage.begin(U1, A1, U2)
    await stage.conversation.settle()
    assert stage.runtime.log[-1] == "abort"
    assert await stage.ask(U1, A1, U3) == "cancelled"
    assert stage.runtime.log == ["close", "resume", "allow", "say three"]
    resumed = stage.runtime.last.opening.events.rstrip(b"\n").split(b"\n")
    end = next(number for number, line in enumerate(old.lines) if b"assistant.message" in line)
    assert resumed[1:] == old.lines[1 : end + 1]
    assert end < before
    assert await stage.ask(U1, A1, U3, A1, U2) == "", "it lives on"


async def test_a_first_request_that_was_cancelled_begins_from_nothing() -> None:
    stage = talk(())
    await stage.begin(U1)
    await stage.conversation.settle()
    assert await stage.ask(U1) == "cancelled"
    assert stage.runtime.log == ["close", "open", "allow", "say one"]


async def test_a_provider_that_failed_is_asked_again_from_before_it() -> None:
    stage = talk(answers(), (failure("no", 500),))
    await stage.ask(U1)
    turn, _ = await stage.begin(U1, A1, U2)
    assert isinstance(told(turn)[0], Broken)
    await stage.conversation.settle()
    assert await stage.ask(U1, A1, U2) == "provider_error"
    assert stage.runtime.log == ["close", "resume", "allow", "say two"]
    assert written(stage.runtime.last) == [("user.message", "one"), ("assistant.message", "Hello world")]


async def test_results_that_met_a_failure_are_written_and_the_model_just_goes_on() -> None:
    stage = talk(ASKS, (failure("no", 529),))
    await stage.ask(U1)
    await stage.begin(U1, CALLS, R2, R1)
    await stage.conversation.settle()
    assert not stage.conversation.waits
    assert await stage.ask(U1, CALLS, R2, R1) == "provider_error"
    assert stage.runtime.log == ["close", "resume", "allow", "say "]
    assert written(stage.runtime.last)[2:] == [("tool.execution_complete", "c2"), ("tool.execution_complete", "c1")]
    assert await stage.ask(U1, CALLS, R2, R1, A1, U2) == ""


async def test_calls_that_were_left_alone_are_answered_in_the_history() -> None:
    stage = talk(ASKS)
    await stage.ask(U1)
    assert await stage.ask(U1, CALLS, U2) == "history_diverged"
    assert stage.runtime.log[:2] == ["close", "resume"]
    assert not stage.conversation.waits


async def test_a_rebuilt_session_can_be_rebuilt_from() -> None:
    stage = talk(ASKS, answers(), ())
    await stage.ask(U1)
    await stage.ask(U1, CALLS, R2, R1)
    await stage.begin(U1, CALLS, R2, R1, A1, U2)
    await stage.conversation.settle()
    conversation: tuple[Step, ...] = (U1, CALLS, R2, R1, A1, U2)
    for reason in ("cancelled", "fingerprint_changed", "fingerprint_changed"):
        old = stage.runtime.last
        setup = SETUP if stage.runtime.last.opening.setup == OTHER or reason == "cancelled" else OTHER
        assert await stage.ask(*conversation, setup=setup) == reason
        resumed = stage.runtime.last.opening.events.rstrip(b"\n").split(b"\n")
        assert all(line in old.lines for line in resumed[1:]), "all of it is the old one's own"
        conversation = (*conversation, A1, U3)
    assert [kind for kind, _ in written(stage.runtime.last)] == [
        "user.message", "assistant.message", "tool.execution_complete", "tool.execution_complete",
        "assistant.message", *("user.message", "assistant.message") * 2,
    ]  # fmt: skip


async def test_a_history_that_was_written_is_the_sessions_own_from_then_on() -> None:
    stage = talk()
    conversation: tuple[Step, ...] = (U1, A1, U2)
    await stage.ask(*conversation)
    for edited in (conversation, (U1, A1, U3), (U2,)):
        await stage.ask(*edited)
        old = stage.runtime.last
        assert await stage.ask(*edited, A1, U1, setup=OTHER) == "fingerprint_changed"
        resumed = stage.runtime.last.opening.events.rstrip(b"\n").split(b"\n")
        assert all(line in old.lines for line in resumed[1:]), "all of it is the old one's own"
        assert [text for _, text in written(stage.runtime.last)][-2:] == [edited[-1].text, "Hello world"]


async def test_results_come_back_in_any_order_and_are_kept_together() -> None:
    stage = talk(ASKS)
    await stage.ask(U1)
    session = stage.runtime.last
    await stage.ask(U1, CALLS, R2, R1)
    await stage.ask(U1, CALLS, R2, R1, A1, U2, setup=OTHER)
    order = [line for line in session.lines if b"tool.execution_complete" in line]
    resumed = stage.runtime.last.opening.events.split(b"\n")
    assert [line for line in resumed if b"tool.execution_complete" in line] == order


async def test_a_history_that_was_lost_is_written_anew() -> None:
    stage = talk()
    await stage.ask(U1)
    stage.runtime.last.lines.clear()
    stage.runtime.last.runs = False
    assert await stage.ask(U1, A1, U2) == "process_exited"
    assert written(stage.runtime.last) == [("user.message", "one"), ("assistant.message", "Hello world")]
    assert await stage.ask(U1, A1, U2, A1, U3) == ""


# --- a session that cannot go on ---


async def test_a_runtime_that_went_while_nobody_asked_begins_again() -> None:
    stage = talk(ASKS)
    await stage.ask(U1)
    stage.runtime.last.exit()
    assert not stage.conversation.waits
    assert await stage.ask(U1, CALLS, R1, R2) == "process_exited"
    assert stage.runtime.log == ["close", "resume", "allow", "say "]


async def test_a_runtime_that_went_unheard_is_missed_before_it_is_asked() -> None:
    stage = talk()
    await stage.ask(U1)
    stage.runtime.last.runs = False
    assert await stage.ask(U1, A1, U2) == "process_exited"


async def test_a_runtime_that_goes_in_the_midst_of_an_answer_breaks_it() -> None:
    stage = talk((text_delta("par"),))
    turn, _ = await stage.begin(U1)
    stage.runtime.last.exit()
    assert isinstance(told(turn)[-1], Broken)
    await stage.conversation.settle()
    assert await stage.ask(U1) == "process_exited"


async def test_a_session_that_does_not_come_to_rest_is_rebuilt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_S", 0)
    stage = talk(answers(), answers()[: -len(REST)])
    await stage.ask(U1)
    assert await stage.ask(U1, A1, U2) == "", "it did"
    assert await stage.ask(U1, A1, U2, A1, U3) == "busy", "behind the next answer it did not"
    assert await stage.ask(U1, A1, U2, A1, U3, A1, U1) == "", "the new one did"


async def test_a_session_is_given_time_to_come_to_rest() -> None:
    stage = talk(answers()[: -len(REST)])
    await stage.ask(U1)
    asyncio.get_running_loop().call_soon(stage.runtime.last.play, REST)
    async with asyncio.timeout(60):
        assert await stage.ask(U1, A1, U2) == ""


async def test_one_whose_calls_wait_is_never_at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_S", 0)
    stage = talk(ASKS)
    await stage.ask(U1)
    assert await stage.ask(U1, CALLS, R1, R2) == ""


async def test_a_call_of_a_tool_that_nobody_declared_is_not_waited_for() -> None:
    stage = talk(answers("", Asked("c1"), Asked("c2", "Guessed")))
    await stage.ask(U1)
    assert not stage.conversation.waits, "the runtime answers it by itself, and goes on"
    guessed = Answered("", (CALLS.calls[0], Called("c2", "Guessed", '{"path": "/a"}')))
    assert await stage.ask(U1, guessed, R1, R2) == "unknown_tool"
    assert written(stage.runtime.last)[1:] == [
        ("assistant.message", ""),
        ("tool.execution_complete", "c1"),
        ("tool.execution_complete", "c2"),
    ]


# --- what must not be heard, and what must not change ---


async def test_an_old_sessions_last_words_are_not_heard() -> None:
    stage = talk(answers(), (), ())
    await stage.ask(U1)
    await stage.begin(U1, A1, U2)
    old = stage.runtime.last
    await stage.conversation.settle()
    turn, reason = await stage.begin(U1, A1, U2)
    assert reason == "cancelled"
    old.play((text_delta("late"), whole("late"), *REST))
    old.exit()
    assert turn.heard.empty()
    assert not turn.reader.over
    stage.runtime.last.play(answers("new"))
    assert isinstance(told(turn)[-1], Ended)


async def test_what_an_interrupted_session_still_says_reaches_nobody() -> None:
    stage = talk(answers(), (text_delta("par"),))
    await stage.ask(U1)
    turn, _ = await stage.begin(U1, A1, U2)
    told(turn)
    await stage.conversation.settle()
    stage.runtime.last.play(answers("late"))
    assert turn.heard.empty()


@pytest.mark.parametrize("steps", [(U1, A1), ()], ids=["begun for the model", "nothing"])
async def test_what_cannot_be_answered_changes_nothing(steps: tuple[Step, ...]) -> None:
    stage = talk()
    await stage.ask(U1)
    with pytest.raises(BadInput):
        await stage.begin(*steps, setup=OTHER)
    await stage.conversation.settle()
    assert stage.runtime.log == []
    assert await stage.ask(U1, A1, U2) == ""


async def test_an_answer_that_ended_is_not_stopped() -> None:
    stage = talk()
    await stage.ask(U1)
    assert "abort" not in stage.runtime.log


async def test_an_end_without_a_request_changes_nothing() -> None:
    stage = talk()
    stage.conversation.finish()
    await stage.conversation.settle()
    assert not stage.conversation.waits
    assert stage.runtime.log == []


async def test_an_answer_ends_once() -> None:
    stage = talk()
    await stage.ask(U1)
    stage.conversation.finish()
    assert await stage.ask(U1, A1, U2) == ""


async def test_an_answer_that_ends_behind_its_session_is_forgotten() -> None:
    stage = talk()
    await stage.begin(U1)
    await stage.conversation.close()
    stage.conversation.finish()
    await stage.conversation.settle()
    assert await stage.ask(U1, A1, U2) == "no_session"


async def test_a_session_that_cannot_begin_leaves_nothing_behind() -> None:
    stage = talk()
    await stage.ask(U1)
    stage.runtime.refuses = UpstreamError("no")
    with pytest.raises(UpstreamError):
        await stage.begin(U1, A1, U2, setup=OTHER)
    await stage.conversation.settle()
    stage.runtime.refuses = None
    assert await stage.ask(U1, A1, U2) == "no_session"
    assert written(stage.runtime.last) == [("user.message", "one"), ("assistant.message", "Hello world")]


async def test_a_message_that_was_not_taken_ends_the_session() -> None:
    stage = talk(ASKS)
    await stage.ask(U1)
    stage.runtime.refuses = UpstreamError("no")
    with pytest.raises(UpstreamError):
        await stage.begin(U1, CALLS, R1, R2, U2)
    await stage.conversation.settle()
    assert stage.runtime.log[-1] == "abort"
    stage.runtime.refuses = None
    assert await stage.ask(U1, CALLS, R1, R2, U2) == "cancelled"


async def test_a_caller_who_leaves_while_the_old_session_closes_leaves_no_half_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = talk()
    await stage.ask(U1)
    closing = asyncio.Event()

    async def never() -> tuple[bytes, ...]:
        closing.set()
        await asyncio.Event().wait()
        return ()

    monkeypatch.setattr(stage.runtime.last, "close", never)
    asking = asyncio.ensure_future(stage.begin(U1, A1, U2, setup=OTHER))
    async with asyncio.timeout(60):
        await closing.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await stage.conversation.settle()
    assert await stage.ask(U1, A1, U2) == "no_session"


async def test_the_end_ends_the_session() -> None:
    stage = talk(ASKS)
    await stage.ask(U1)
    await stage.conversation.close()
    assert stage.runtime.log[-1] == "close"
    assert not stage.conversation.waits
    await stage.conversation.close()
    assert stage.runtime.log.count("close") == 1


async def test_the_providers_time_to_wait_is_noted() -> None:
    stage = talk((failure("slow down", 429),))
    stage.runtime.retry_after = "7"
    turn, _ = await stage.begin(U1)
    assert turn.retry_after == "7"


def test_a_change_of_instructions_is_the_callers() -> None:
    assert Reseed("fingerprint_changed").by_client
    assert not any(Reseed(reason).by_client for reason in ("no_session", "cancelled", "busy", "history_diverged"))
