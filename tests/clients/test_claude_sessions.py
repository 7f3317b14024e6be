"""Live sessions of the real `claude` program behind the gateway, before a provider with a strict prompt cache."""

import asyncio
import contextlib
import json
import os
import select
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import anthropic
import pytest

from clients.claude_code import ClaudeCode
from clients.codex import Codex
from clients.gateway_in_front import WITH_KEY, WITH_TOKEN, gateway_of_claude, records_at_the_end
from clients.messages_caller import TOOLS, Caller, result
from clients.provider_replies import COLD, JsonObject
from clients.strict_upstream import Midst, StrictUpstream, Turn
from clients.tool_upstream import KEY, Call, Failure, Thought, Words
from gateway_program import GatewayProgram

pytestmark = pytest.mark.clients
either_account = pytest.mark.parametrize("account", [WITH_KEY, WITH_TOKEN], ids=["key", "login"])
LARGE = "word " * 40_000
"""About 50,000 tokens: enough that a cold request is a miss together with another one."""


@asynccontextmanager
async def calling(
    upstream: StrictUpstream, program: Path, folder: Path, sessions: str = "{warmup: never}", account: str = WITH_KEY
) -> AsyncIterator[tuple[Caller, GatewayProgram]]:
    async with (
        gateway_of_claude(upstream.url, program, folder, sessions, account) as gateway,
        aiohttp.ClientSession() as http,
    ):
        yield Caller(http, gateway.url), gateway


def _read(call_id: str, path: str = "/a") -> Call:
    return Call(call_id, "Read", json.dumps({"path": path}))


def _says(text: str) -> Turn:
    return Turn((Words(text),))


LOOK = Turn((Thought("Look.", "c2lnMQ=="), Words("Let me look."), _read("toolu_1"), _read("toolu_2", "/b")))


@either_account
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_calls_wait_for_their_results_and_everything_is_read_from_the_cache(
    claude_program: Path, tmp_path: Path, account: str, stream: bool
) -> None:
    script = (LOOK, _says("Both came."), Turn((Thought("Again.", "c2lnMg=="), _read("toolu_3"))), _says("That is all."))
    async with (
        StrictUpstream(script, tokens_min=1) as upstream,
        calling(upstream, claude_program, tmp_path, account=account) as (caller, gateway),
    ):
        caller.say("Look at both.")
        told = [await caller.ask(stream=stream)]
        caller.say(result("toolu_2", "b is empty", failed=True), result("toolu_1", "a is full"), "and hurry")
        told.append(await caller.ask(stream=stream))
        caller.say("Once more.")
        told.append(await caller.ask(stream=stream))
        caller.say(result("toolu_3", "x" * 300_000))
        told.append(await caller.ask(stream=stream))
        records = await records_at_the_end(gateway)

    assert [each.stop_reason for each in told] == ["tool_use", "end_turn"] * 2
    assert [block for block in told[0].content if block["type"] != "thinking"] == [
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"path": "/a"}},
        {"type": "tool_use", "id": "toolu_2", "name": "Read", "input": {"path": "/b"}},
    ]
    upstream.assert_inferences(4)
    upstream.assert_each_extends_the_one_before()
    for earlier, later in zip(upstream.inferences, upstream.inferences[1:], strict=False):
        assert earlier.usage is not None
        assert later.usage is not None
        assert later.usage.cached >= earlier.usage.total - 10, "all that was sent before is read"
    assert b"x" * 300_000 in upstream.inferences[3].received.body
    counted = [(record["inputTokens"], record["cachedTokens"]) for record in records]
    assert counted == [(each.usage.total, each.usage.cached) for each in upstream.inferences if each.usage]


@either_account
async def test_codex_holds_a_conversation_with_tools(
    claude_program: Path, codex_program: Path, tmp_path: Path, account: str
) -> None:
    patch = json.dumps({"input": '*** Begin Patch\n*** Add File: made.txt\n+"Zwölf" 😀\n*** End Patch\n'})
    script = (
        _says("Answer 1."),
        Turn((Thought("Echo.", "c2ln"), Call("toolu_e2", "exec_command", '{"cmd": "echo said-2"}'))),
        _says("Answer 2."),
        Turn(
            (
                Call("toolu_e3", "exec_command", '{"cmd": "echo a"}'),
                Call("toolu_e4", "exec_command", '{"cmd": "echo b"}'),
            )
        ),
        _says("Answer 3."),
        Turn((Call("toolu_patch", "apply_patch", patch),)),
        _says("Answer 4."),
        Turn((Call("toolu_nobody", "made_up_tool", '{"why": "models do"}'),)),
        _says("Answer 5."),
    )
    async with (
        StrictUpstream(script, tokens_min=1) as upstream,
        gateway_of_claude(upstream.url, claude_program, tmp_path, account=account) as gateway,
    ):
        codex = Codex.install(codex_program, tmp_path / "home", gateway.url)
        async with codex.thread() as thread:
            turns = [await thread.turn(f"message {number}") for number in range(1, 6)]

    assert [(turn.status, turn.error) for turn in turns] == [("completed", None)] * 5
    assert [turn.answer for turn in turns] == [f"Answer {number}." for number in range(1, 6)]
    upstream.assert_inferences(len(script))
    upstream.assert_each_extends_the_one_before()
    assert (codex.home.project / "made.txt").read_text() == '"Zwölf" 😀\n'


async def test_claude_code_itself_holds_a_conversation_with_tools(claude_program: Path, tmp_path: Path) -> None:
    echo = '{"command":"echo said-2","description":"Say it"}'
    script = (_says("Answer 1."), Turn((Thought("Echo.", "c2ln"), Call("toolu_e", "Bash", echo))), _says("Answer 2."))
    async with (
        StrictUpstream((*script, _says("Answer 3.")), tokens_min=1) as upstream,
        gateway_of_claude(upstream.url, claude_program, tmp_path) as gateway,
        ClaudeCode.install(claude_program, tmp_path / "home", gateway.url).session("--allowedTools", "Bash") as session,
    ):
        turns = [await session.turn(f"message {number}") for number in (1, 2, 3)]
        records = await records_at_the_end(gateway)

    assert [(turn.failed, turn.text) for turn in turns] == [(False, f"Answer {number}.") for number in (1, 2, 3)]
    upstream.assert_inferences(4)
    upstream.assert_each_extends_the_one_before()
    assert b"said-2" in upstream.inferences[2].received.body
    assert [record["rebuilt"] for record in records] == ["no_session", "", "", ""]


async def test_the_anthropic_sdk_streams_a_tool_call(claude_program: Path, tmp_path: Path) -> None:
    async with (
        StrictUpstream((LOOK,), tokens_min=1) as upstream,
        gateway_of_claude(upstream.url, claude_program, tmp_path) as gateway,
        anthropic.AsyncAnthropic(api_key="unused", base_url=gateway.url, max_retries=0) as client,
    ):
        asked = client.messages.stream(
            model="claude-opus-5",
            max_tokens=1_000,
            messages=[{"role": "user", "content": "Look."}],
            tools=TOOLS,  # type: ignore[arg-type] # plain objects
        )
        async with asked as stream:
            message = await stream.get_final_message()

    assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert message.stop_reason == "tool_use"
    upstream.assert_inferences(1)


@either_account
@pytest.mark.parametrize("where", ["text", "tool"])
async def test_a_caller_who_breaks_off_pays_no_more_and_loses_nothing(
    claude_program: Path, tmp_path: Path, account: str, where: str
) -> None:
    """The user's text, 5 November: follow-ups that cancelled a turn made it cold and were counted."""
    parts = (Words("It never ends."),) if where == "text" else (Words("Wait."), _read("toolu_1", "/never/ends"))
    script = (_says("Answer 1."), Turn(parts, midst=Midst.HANGS), _says("Answer 2."), _says("Answer 3."))
    async with (
        StrictUpstream(script, tokens_min=1) as upstream,
        calling(upstream, claude_program, tmp_path, account=account) as (caller, gateway),
    ):
        caller.say(LARGE)
        await caller.ask()
        caller.say("Go on.")
        await caller.leave_in_the_midst()
        await asyncio.wait_for(upstream.hung_up.wait(), 1.0)
        caller.say("Never mind.")
        told = [await caller.ask()]
        caller.say("Thanks.")
        told.append(await caller.ask())
        records = await records_at_the_end(gateway)

    assert [each.content[-1]["text"] for each in told] == ["Answer 2.", "Answer 3."]
    upstream.assert_inferences(4)
    upstream.assert_each_extends_the_one_before()
    first = upstream.inferences[0].usage
    assert first is not None
    assert all(each.usage and each.usage.cached >= first.total - 10 for each in upstream.inferences[1:])
    assert [record["ending"] for record in records] == ["completed", "cancelled", "completed", "completed"]
    assert {record["guard"]["outcome"] for record in records} <= {"allowed", "excused"}


@either_account
async def test_two_follow_ups_in_a_row_stop_nothing(claude_program: Path, tmp_path: Path, account: str) -> None:
    """The user's text, 5 November: each follow-up cancelled a turn, and the request behind them was stopped."""
    hanging = Turn((Words("Let me see."), _read("toolu_never")), midst=Midst.HANGS)
    script = (_says("Answer 1."), hanging, hanging, _says("Answer 2."))
    async with (
        StrictUpstream(script, tokens_min=1) as upstream,
        calling(upstream, claude_program, tmp_path, account=account) as (caller, gateway),
    ):
        caller.say(LARGE * 2)  # cold, it is a miss
        await caller.ask()
        for text in ("Do it.", "No, do it like this."):
            caller.say(text)
            upstream.hanging.clear()
            upstream.hung_up.clear()
            await caller.leave_in_the_midst()
            await asyncio.wait_for(upstream.hung_up.wait(), 1.0)
        caller.say("Go on.")
        told = await caller.ask()
        records = await records_at_the_end(gateway)

    assert told.content[-1]["text"] == "Answer 2."
    upstream.assert_inferences(4)
    last, first = upstream.inferences[3].usage, upstream.inferences[0].usage
    assert last is not None
    assert first is not None
    assert last.cached >= first.total - 10
    assert [record["ending"] for record in records] == ["completed", "cancelled", "cancelled", "completed"]
    assert records[0]["guard"]["reason"] == "miss"
    assert records[-1]["guard"]["outcome"] == "allowed"


FAILURES: dict[str, tuple[Turn | Failure, int, str]] = {
    "rate": (
        Failure(429, {"type": "rate_limit_error", "message": "Slow down."}, retry_after="7"),
        429,
        "rate_limit_error",
    ),
    "overload": (Failure(529, {"type": "overloaded_error", "message": "Overloaded"}), 529, "overloaded_error"),
    "broken": (Failure(500, {"type": "api_error", "message": "Internal"}), 500, "api_error"),
    "full": (
        Failure(400, {"type": "invalid_request_error", "message": "prompt is too long: 9000 tokens > 8000 maximum"}),
        400,
        "invalid_request_error",
    ),
    "midst": (Turn((Words("Part of it."),), midst=Midst.ERROR), 200, "overloaded_error"),
    "cut": (Turn((Words("Part of it."),), midst=Midst.CUT), 502, "api_error"),
}


@either_account
@pytest.mark.parametrize("name", FAILURES)
async def test_a_failure_is_told_once_and_nothing_is_lost(
    claude_program: Path, tmp_path: Path, name: str, account: str
) -> None:
    failure, status, error_type = FAILURES[name]
    script = (_says("Answer 1."), failure, _says("Better."))
    async with (
        StrictUpstream(script, tokens_min=1) as upstream,
        calling(upstream, claude_program, tmp_path, account=account) as (caller, _),
    ):
        caller.say(LARGE)
        await caller.ask()
        caller.say("Go on.")
        told = await caller.ask(stream=True, keep=False)
        again = await caller.ask()

    error = told.events[-1] if told.text.startswith("event:") else json.loads(told.text)
    # Of a connection that breaks, the program tells the beginning or not, as it happens to have read it.
    assert error["error"]["type"] == error_type
    assert told.status == status or name == "cut"
    assert (name == "full") == ("prompt is too long" in error["error"]["message"])
    assert told.retry_after == ("7" if name == "rate" else "")
    assert not isinstance(failure, Failure) or error["error"] == failure.error, "the provider's own words"
    assert again.content[-1]["text"] == "Better."
    upstream.assert_inferences(3)
    last, first = upstream.inferences[2].usage, upstream.inferences[0].usage
    assert last is not None
    assert first is not None
    assert last.cached >= first.total - 10


@either_account
@pytest.mark.parametrize(
    ("turn", "reason"),
    [
        (Turn((Words("Cut off"),), stop="max_tokens"), "max_tokens"),
        (Turn((Words("No."),), stop="refusal"), "refusal"),
        (Turn((Words("Full"),), stop="model_context_window_exceeded"), "model_context_window_exceeded"),
        (Turn((Thought("Hm.", "c2ln"),)), "end_turn"),
    ],
    ids=["limit", "refusal", "window", "silence"],
)
async def test_the_program_calls_the_model_once_however_it_stops(
    claude_program: Path, tmp_path: Path, account: str, turn: Turn, reason: str
) -> None:
    script = (_says("Answer 1."), turn, _says("Going on."))
    async with (
        StrictUpstream(script, tokens_min=1) as upstream,
        calling(upstream, claude_program, tmp_path, account=account) as (caller, _),
    ):
        caller.say(LARGE)
        await caller.ask()
        caller.say("Tell me all.")
        told = await caller.ask(stream=True)
        calls = len(upstream.inferences)
        caller.say("Go on.")
        again = await caller.ask()

    assert (told.stop_reason, calls) == (reason, 2)
    assert again.content[-1]["text"] == "Going on."
    upstream.assert_inferences(3)


async def test_other_tools_rebuild_the_session_and_are_excused(claude_program: Path, tmp_path: Path) -> None:
    """The user's text, 8 November: a cold resume, then new tools 17 seconds later, and the warm request was stopped."""
    more = [*TOOLS, {"name": "one_more", "description": "One more", "input_schema": {"type": "object"}}]
    script = (_says("Answer 1."), _says("Answer 2."), _says("Answer 3."))
    async with (
        StrictUpstream(script, tokens_min=1) as upstream,
        calling(upstream, claude_program, tmp_path) as (caller, gateway),
    ):
        caller.say(LARGE * 2)
        await caller.ask()
        caller.say("Now with more tools.")
        await caller.ask(tools=more)
        caller.say("And on.")
        told = await caller.ask(tools=more)
        records = await records_at_the_end(gateway)

    assert told.status == 200
    outcomes = [(record["guard"]["outcome"], record["guard"]["reason"]) for record in records]
    assert outcomes[0] == ("allowed", "miss")
    assert outcomes[1][0] == "excused"
    assert outcomes[2] == ("allowed", "reuse")


@either_account
async def test_a_killed_process_is_replaced_with_its_calls_pending(
    claude_program: Path, tmp_path: Path, account: str
) -> None:
    script = (_says("Answer 1."), LOOK, _says("Both came."))
    async with (
        StrictUpstream(script, tokens_min=1) as upstream,
        calling(upstream, claude_program, tmp_path, account=account) as (caller, gateway),
    ):
        caller.say(LARGE)
        await caller.ask()
        caller.say("Look.")
        await caller.ask()
        for process in processes_of(gateway):
            os.kill(process, signal.SIGKILL)
        caller.say(result("toolu_1", "a"), result("toolu_2", "b"))
        told = await caller.ask()

    assert told.content[-1]["text"] == "Both came."
    upstream.assert_inferences(3)
    upstream.assert_each_extends_the_one_before()
    last, first = upstream.inferences[2].usage, upstream.inferences[0].usage
    assert last is not None
    assert first is not None
    assert last.cached >= first.total - 10, "thoughts and reminders of the old process included"


async def test_two_cold_requests_stop_the_third(claude_program: Path, tmp_path: Path) -> None:
    script = (Turn((Words("One."),), usage=COLD), Turn((Words("Two."),), usage=COLD))
    async with StrictUpstream(script) as upstream, calling(upstream, claude_program, tmp_path) as (caller, gateway):
        for text in ("one", "two"):
            caller.say(text)
            await caller.ask()
        caller.say("three")
        told = await caller.ask(keep=False)
        records = await records_at_the_end(gateway)

    assert (told.status, json.loads(told.text)["error"]["type"]) == (400, "billing_error")
    upstream.assert_inferences(2)
    assert [record["guard"]["outcome"] for record in records] == ["allowed", "allowed", "blocked"]


async def test_two_callers_on_one_thread_do_not_disturb_each_other(claude_program: Path, tmp_path: Path) -> None:
    script = (
        _says("Answer 1."),
        Turn((Words("It never ends."),), midst=Midst.HANGS),
        _says("Aside."),
        _says("Answer 3."),
    )
    async with (
        StrictUpstream(script, tokens_min=1) as upstream,
        calling(upstream, claude_program, tmp_path) as (caller, gateway),
        aiohttp.ClientSession() as http,
    ):
        caller.say("One.")
        await caller.ask()
        caller.say("Two.")
        running = asyncio.ensure_future(caller.ask(stream=True, keep=False))
        await upstream.hanging.wait()
        other = Caller(http, gateway.url)
        other.say("Something else.")
        told = await other.ask()
        running.cancel()
        await asyncio.wait_for(upstream.hung_up.wait(), 1.0)
        caller.say("Three.")
        again = await caller.ask()

    assert told.content[-1]["text"] == "Aside."
    assert again.content[-1]["text"] == "Answer 3."
    upstream.assert_inferences(4)


@pytest.mark.parametrize(("size", "live"), [(300_000, True), (1_000, False)])
async def test_a_large_conversation_goes_live_at_once_and_a_small_one_with_its_second_request(
    claude_program: Path, tmp_path: Path, size: int, live: bool
) -> None:
    script = (_says("Answer 1."), _says("Answer 2."), _says("Answer 3."))
    async with (
        StrictUpstream(script, tokens_min=1) as upstream,
        calling(upstream, claude_program, tmp_path, "{warmup: auto}") as (caller, gateway),
    ):
        caller.say("x" * size)
        await caller.ask()
        first = processes_of(gateway)
        caller.say("Two.")
        await caller.ask()
        second = processes_of(gateway)
        caller.say("Three.")
        await caller.ask()
        third = processes_of(gateway)

    # One that ends with its answer may still be on its way out when the caller has it.
    assert (first == second) == live
    assert second == third
    upstream.assert_inferences(3)
    upstream.assert_each_extends_the_one_before()


def _told_by(caller: Caller, thread: str) -> None:
    caller.headers["x-claude-code-session-id"] = thread
    caller.messages = []


@either_account
async def test_who_has_to_leave_for_another_or_for_idleness_is_rebuilt_warm(
    claude_program: Path, tmp_path: Path, account: str
) -> None:
    sessions = "{warmup: never, maxSessions: 1, idleSeconds: 1}"
    script = tuple(_says(f"Answer {number}.") for number in range(1, 7))
    async with (
        StrictUpstream(script, tokens_min=1) as upstream,
        calling(upstream, claude_program, tmp_path, sessions, account) as (caller, gateway),
    ):
        caller.say(LARGE)
        await caller.ask()
        first, crowding = caller.messages, processes_of(gateway)
        _told_by(caller, "another-thread")
        caller.say("Somebody else.")
        await caller.ask()
        _told_by(caller, "0f0e0d0c-0b0a-4908-8706-050403020100")
        caller.messages = first
        caller.say("Back again.")
        await caller.ask()
        await gone(processes_of(gateway))  # it was idle for too long
        caller.say("And again.")
        await caller.ask()
        records = await records_at_the_end(gateway)

    upstream.assert_inferences(4)
    assert len(crowding) == 1
    assert [record["rebuilt"] for record in records] == ["no_session", "no_session", "capacity", "idle_expired"]
    begun = upstream.inferences[0].usage
    assert begun is not None
    for later in (2, 3):
        usage = upstream.inferences[later].usage
        assert usage is not None
        assert usage.cached >= begun.total - 10


async def gone(processes: list[int]) -> None:
    """Wait until these processes have ended."""
    assert processes
    async with asyncio.timeout(10):
        await asyncio.gather(*(asyncio.to_thread(_wait_for, process) for process in processes))


def _wait_for(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(process)
        try:
            select.select([descriptor], [], [], 10)
        finally:
            os.close(descriptor)


async def test_a_callers_compaction_is_one_call_and_a_new_beginning(claude_program: Path, tmp_path: Path) -> None:
    script = (_says("Answer 1."), _says("A summary."), _says("Answer 2."), _says("Answer 3."))
    async with (
        StrictUpstream(script, tokens_min=1) as upstream,
        calling(upstream, claude_program, tmp_path) as (caller, gateway),
    ):
        caller.say(LARGE)
        await caller.ask()
        caller.headers["x-claude-code-request-class"] = "compaction"
        caller.say("Summarise this conversation.")
        await caller.ask(tools=[])
        del caller.headers["x-claude-code-request-class"]
        caller.messages = []
        caller.say("Here is a summary. Go on.")
        await caller.ask()
        caller.say("And on.")
        await caller.ask()
        records = await records_at_the_end(gateway)

    upstream.assert_inferences(4)
    assert [record["guard"]["mode"] for record in records] == ["chat", "compaction", "chat", "chat"]
    assert [record["rebuilt"] for record in records] == ["no_session", "no_session", "history_diverged", ""]


async def test_thinking_effort_and_speed_are_changed_in_place(claude_program: Path, tmp_path: Path) -> None:
    script = tuple(_says(f"Answer {number}.") for number in range(1, 5))
    async with (
        StrictUpstream(script, tokens_min=1) as upstream,
        calling(upstream, claude_program, tmp_path) as (caller, gateway),
    ):
        more: list[JsonObject] = [
            {"output_config": {"effort": "low"}},
            {"output_config": {"effort": "high"}},
            {"output_config": {"effort": "high"}, "thinking": {"type": "disabled"}},
            {"output_config": {"effort": "high"}, "thinking": {"type": "enabled", "budget_tokens": 5_000}},
        ]
        for number, fields in enumerate(more):
            caller.say(f"message {number}")
            await caller.ask(model="claude-opus-4-6", **fields)
        records = await records_at_the_end(gateway)

    upstream.assert_each_extends_the_one_before()
    assert [record["rebuilt"] for record in records] == ["no_session", "", "", ""]
    sent = [inference.fields for inference in upstream.inferences]
    assert [fields["output_config"]["effort"] for fields in sent] == ["low", "high", "high", "high"]
    assert [fields.get("thinking", {}).get("type") for fields in sent][2] in {None, "disabled"}


async def test_a_replayed_conversation_leaves_no_process(claude_program: Path, tmp_path: Path) -> None:
    script = (LOOK, _says("Both came."))
    async with (
        StrictUpstream(script, tokens_min=1) as upstream,
        calling(upstream, claude_program, tmp_path, "{mode: replay}") as (caller, gateway),
    ):
        caller.say("Look.")
        await caller.ask()
        left = processes_of(gateway)
        caller.say(result("toolu_1", "a"), result("toolu_2", "b"))
        told = await caller.ask()
        later = processes_of(gateway)

    assert told.content[-1]["text"] == "Both came."
    assert not set(left) & set(later), "a process for each request"
    upstream.assert_inferences(2)
    upstream.assert_each_extends_the_one_before()


async def test_a_restarted_gateway_goes_on_warm(claude_program: Path, tmp_path: Path) -> None:
    async with StrictUpstream((LOOK, _says("Both came.")), tokens_min=1) as upstream:
        async with calling(upstream, claude_program, tmp_path) as (caller, _):
            caller.say(LARGE)
            await caller.ask()
        messages: list[JsonObject] = caller.messages
        async with calling(upstream, claude_program, tmp_path) as (caller, _):
            caller.messages = messages
            caller.say(result("toolu_1", "a"), result("toolu_2", "b"))
            told = await caller.ask()

    assert told.content[-1]["text"] == "Both came."
    upstream.assert_inferences(2)
    upstream.assert_each_extends_the_one_before()
    last, first = upstream.inferences[1].usage, upstream.inferences[0].usage
    assert last is not None
    assert first is not None
    assert last.cached >= first.total - 10


async def test_results_of_any_size_and_pictures_reach_the_model(claude_program: Path, tmp_path: Path) -> None:
    dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": dot}}
    script = (LOOK, _says("Big."), _says("Seen."))
    async with (
        StrictUpstream(script, tokens_min=1) as upstream,
        calling(upstream, claude_program, tmp_path) as (caller, _),
    ):
        caller.say("Look.")
        await caller.ask()
        caller.say(result("toolu_1", "y" * 900_000), {**result("toolu_2", ""), "content": [picture]})
        await caller.ask()
        caller.say("And this.", picture)
        await caller.ask()

    upstream.assert_inferences(3)
    upstream.assert_each_extends_the_one_before()
    assert b"y" * 900_000 in upstream.inferences[1].received.body
    assert upstream.inferences[2].received.body.count(dot.encode()) == 2


async def test_nothing_of_the_caller_is_expanded_or_kept(claude_program: Path, tmp_path: Path) -> None:
    words = "@/etc/hostname and /help and !ls"
    async with (
        StrictUpstream((_says("One."), _says("Two.")), tokens_min=1) as upstream,
        calling(upstream, claude_program, tmp_path) as (caller, gateway),
    ):
        caller.say(words)
        await caller.ask()
        caller.say("/compact")
        await caller.ask()
        (process,) = processes_of(gateway)
        command = Path(f"/proc/{process}/cmdline").read_bytes()  # noqa: ASYNC240 -- one look
        home = _home(process)
        await gateway.stop(signal.SIGTERM)

    upstream.assert_inferences(2)
    assert words.encode() in upstream.inferences[0].received.body
    assert b'"/compact"' in upstream.inferences[1].received.body
    assert KEY.encode() not in command
    assert b"caller's agent" not in command
    assert not os.path.exists(home), "its folders go with it"  # noqa: ASYNC240, PTH110 -- one look


def _home(process: int) -> str:
    environment = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    return next(part for part in environment if part.startswith(b"HOME=")).decode().removeprefix("HOME=")


def processes_of(gateway: GatewayProgram) -> list[int]:
    """Return the processes that this gateway has started."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (entry / "stat").exists():
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            if int(fields[1]) == gateway.process.pid and fields[0] != "Z":
                found.append(int(entry.name))
    return sorted(found)
