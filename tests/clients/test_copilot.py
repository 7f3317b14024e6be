"""GitHub Copilot's own runtime behind the gateway, asking a local provider with a key of its own."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from clients.claude_code import ClaudeCode
from clients.codex import Codex
from clients.gateway_in_front import SESSION_PATHS, gateway_of_sessions, records_at_the_end
from clients.messages_caller import TOOLS, Caller, result
from clients.provider_replies import COLD, WARM
from clients.tool_upstream import (
    KEY,
    Answer,
    Call,
    Failure,
    Parts,
    Thought,
    ToolUpstream,
    Words,
    blocks,
    script_of,
)
from gateway_program import GatewayProgram

pytestmark = pytest.mark.clients

SECRET = "the-caller-says-this-and-nobody-keeps-it"


def _read(call_id: str, path: str = "/a") -> Call:
    return Call(call_id, "Read", json.dumps({"path": path}))


@asynccontextmanager
async def calling(
    upstream: ToolUpstream, program: Path, tmp_path: Path, path: str = "/v1/messages"
) -> AsyncIterator[tuple[Caller, GatewayProgram]]:
    async with (
        gateway_of_sessions(upstream, program, path, tmp_path) as gateway,
        aiohttp.ClientSession() as http,
    ):
        yield Caller(http, gateway.url), gateway


TWO_AT_ONCE: tuple[Parts, ...] = (
    (Thought("Look.", "c2lnMQ=="), Words("Let me look."), _read("toolu_1"), Call("toolu_2", "bash", '{"path": "/b"}')),
    (Words("Both came."),),
    (Thought("Again.", "c2lnMg=="), _read("toolu_3")),
    (Words("That is all."),),
)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("path", SESSION_PATHS)
async def test_calls_wait_for_the_next_request_and_the_prompt_only_grows(
    copilot_program: Path, tmp_path: Path, path: str, stream: bool
) -> None:
    script = script_of([TWO_AT_ONCE])
    async with (
        ToolUpstream(script) as upstream,
        calling(upstream, copilot_program, tmp_path, path) as (caller, gateway),
    ):
        caller.say("Look at both.")
        first = await caller.ask(stream=stream)
        caller.say(result("toolu_2", "b is empty", failed=True), result("toolu_1", "a is full"), "and hurry")
        second = await caller.ask(stream=stream)
        caller.say("Once more.")
        third = await caller.ask(stream=stream)
        caller.say(result("toolu_3", "x" * 60_000))
        fourth = await caller.ask(stream=stream)
        records = await records_at_the_end(gateway)

    assert [told.status for told in (first, second, third, fourth)] == [200] * 4
    assert [told.stop_reason for told in (first, second, third, fourth)] == ["tool_use", "end_turn"] * 2
    said = [block for block in first.content if block["type"] != "thinking"]
    assert [block.get("text") or (block["id"], block["name"], block["input"]) for block in said] == [
        "Let me look.",
        ("toolu_1", "Read", {"path": "/a"}),
        ("toolu_2", "bash", {"path": "/b"}),
    ]
    assert second.content[-1]["text"].strip() == "Both came."
    assert [received.path for received in upstream.received] == [path] * 4, "one request, one model call"
    assert_prefixes(upstream)
    assert b"x" * 60_000 in upstream.received[3].body, "no result is too large"
    counted = [(record["inputTokens"], record["cachedTokens"]) for record in records]
    assert counted == [(answer.usage.total, answer.usage.cached) for answer in script]


def assert_prefixes(upstream: ToolUpstream, since: int = 0) -> None:
    """Each prompt begins with the one before."""
    for before, after in zip(upstream.received[since:], upstream.received[since + 1 :], strict=False):
        old = blocks(before)
        assert blocks(after)[: len(old)] == old
        assert len(blocks(after)) > len(old)


TEN_TURNS: tuple[tuple[Parts, ...], ...] = (
    ((Thought("They say one.", "c2ln"), Words("Answer 1.")),),
    (
        (Thought("Let me echo.", "c2ln"), Call("toolu_e2", "exec_command", '{"cmd": "echo said-2",  "login": false}')),
        (Words("Answer 2."),),
    ),
    (
        (
            Thought("Two.", "c2ln"),
            Call("toolu_e30", "exec_command", '{"cmd": "echo said-30"}'),
            Call("toolu_e31", "exec_command", '{"cmd": "echo said-31"}'),
        ),
        (Words("Answer 3."),),
    ),
    (
        (
            Thought("A patch.", "c2ln"),
            Call(
                "toolu_patch",
                "apply_patch",
                json.dumps({"input": '*** Begin Patch\n*** Add File: made.txt\n+"Zwölf" 😀\n*** End Patch\n'}),
            ),
        ),
        (Words("Answer 4."),),
    ),
    ((Thought("Nobody.", "c2ln"), Call("toolu_nobody", "made_up_tool", '{"why": "models do"}')), (Words("Answer 5."),)),
    ((Words("Answer 6."),),),
    ((Thought("None.", "c2ln"), Call("toolu_goal", "get_goal", "")), (Words("Answer 7."),)),
    ((Words("Answer 8."),),),
    (
        (Thought("It fails.", "c2ln"), Call("toolu_fail", "exec_command", '{"cmd":"exit 3"}')),
        (Thought("It failed.", "c2ln"), Call("toolu_e9", "exec_command", '{"cmd": "echo said-9"}')),
        (Words("Answer 9."),),
    ),
    ((Words("Answer 10."),),),
)


async def test_codex_holds_ten_turns_with_tools(copilot_program: Path, codex_program: Path, tmp_path: Path) -> None:
    script = script_of(TEN_TURNS)
    async with (
        ToolUpstream(script) as upstream,
        gateway_of_sessions(upstream, copilot_program, "/v1/messages", tmp_path) as gateway,
    ):
        codex = Codex.install(codex_program, tmp_path / "home", gateway.url)
        async with codex.thread() as thread:
            turns = [await thread.turn(f"message {number}") for number in range(1, len(TEN_TURNS) + 1)]
        records = await records_at_the_end(gateway)

    assert [(turn.status, turn.error) for turn in turns] == [("completed", None)] * 10
    assert [turn.answer.strip() for turn in turns] == [f"Answer {number}." for number in range(1, 11)]
    assert len(upstream.received) == len(script)
    assert_prefixes(upstream)
    assert (codex.home.project / "made.txt").read_text() == '"Zwölf" 😀\n'
    counted = [(record["inputTokens"], record["cachedTokens"]) for record in records]
    assert counted == [(answer.usage.total, answer.usage.cached) for answer in script]


async def test_claude_code_holds_a_conversation_with_a_responses_model(
    copilot_program: Path, claude_program: Path, tmp_path: Path
) -> None:
    script = script_of(
        [
            [(Words("Answer 1."),)],
            [(Call("call_echo", "Bash", '{"command":"echo said-2","description":"Say it"}'),), (Words("Answer 2."),)],
            [(Words("Answer 3."),)],
        ]
    )
    async with (
        ToolUpstream(script) as upstream,
        gateway_of_sessions(upstream, copilot_program, "/v1/responses", tmp_path) as gateway,
        ClaudeCode.install(claude_program, tmp_path / "home", gateway.url).session("--allowedTools", "Bash") as session,
    ):
        turns = [await session.turn(f"message {number}") for number in (1, 2, 3)]

    assert [(turn.failed, turn.text.strip()) for turn in turns] == [(False, f"Answer {n}.") for n in (1, 2, 3)]
    assert len(upstream.received) == len(script)
    assert_prefixes(upstream)
    assert b"said-2" in upstream.received[2].body


async def test_an_edited_history_keeps_what_stands_before_the_edit(copilot_program: Path, tmp_path: Path) -> None:
    script = script_of([[*TWO_AT_ONCE[:2], (Words("First try."),), (Words("Second try."),)]])
    async with ToolUpstream(script) as upstream, calling(upstream, copilot_program, tmp_path) as (caller, _):
        caller.say("Look at both.")
        await caller.ask()
        caller.say(result("toolu_1", "a"), result("toolu_2", "b"))
        await caller.ask()
        caller.say("Try it.")
        await caller.ask()
        del caller.messages[-2:]
        caller.say("Try it in another way.")
        told = await caller.ask()

    assert told.content[-1]["text"].strip() == "Second try."
    old = blocks(upstream.received[1])
    assert blocks(upstream.received[3])[: len(old)] == old, "thoughts and moments of the old session included"
    assert b"First try." not in upstream.received[3].body


async def test_an_interrupted_turn_stops_the_model_and_leaves_the_rest(copilot_program: Path, tmp_path: Path) -> None:
    script = (
        Answer((Thought("Look.", "c2lnMQ=="), _read("toolu_1")), WARM),
        Answer((Words("It never ends."),), WARM, hangs=True),
        Answer((Words("Answer 2."),), WARM),
    )
    async with ToolUpstream(script) as upstream, calling(upstream, copilot_program, tmp_path) as (caller, gateway):
        caller.say("Look.")
        await caller.ask()
        caller.say(result("toolu_1", "a"))
        await caller.leave_in_the_midst()
        await asyncio.wait_for(upstream.hung_up.wait(), 1.0)
        caller.say("Never mind.")
        told = await caller.ask()
        records = await records_at_the_end(gateway)

    assert told.content[-1]["text"].strip() == "Answer 2."
    assert [record["ending"] for record in records] == ["completed", "cancelled", "completed"]
    old = blocks(upstream.received[1])
    assert blocks(upstream.received[2])[: len(old)] == old


DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PAPER = "JVBERi0xLjQKJSVFT0YK"
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DOT}}
DOCUMENT = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PAPER}}


async def test_pictures_and_documents_reach_the_model_also_from_a_history(
    copilot_program: Path, tmp_path: Path
) -> None:
    script = script_of([[(Thought("Look.", "c2lnMQ=="), _read("toolu_1")), (Words("Seen."),), (Words("Again."),)]])
    async with ToolUpstream(script) as upstream, calling(upstream, copilot_program, tmp_path) as (caller, _):
        caller.say("Look at these.", PICTURE, DOCUMENT)
        await caller.ask()
        caller.say({"type": "tool_result", "tool_use_id": "toolu_1", "content": [PICTURE, DOCUMENT]})
        await caller.ask()
        caller.say("Now without the session.")
        await caller.ask(tools=[*TOOLS, {"name": "one_more", "input_schema": {"type": "object"}}])

    shown = [(received.body.count(DOT.encode()), received.body.count(PAPER.encode())) for received in upstream.received]
    # Of a history that is read again, the runtime sends no documents that tools returned.
    assert shown == [(1, 1), (2, 2), (2, 1)]


async def test_effort_and_form_of_the_answer_are_changed_in_place(copilot_program: Path, tmp_path: Path) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    script = script_of([[(Words("One."),), (Words("Two."),), (Words("Three."),)]])
    async with ToolUpstream(script) as upstream, calling(upstream, copilot_program, tmp_path) as (caller, _):
        caller.say("one")
        await caller.ask(output_config={"effort": "low"})
        caller.say("two")
        await caller.ask(output_config={"effort": "high"})
        caller.say("three")
        await caller.ask(output_config={"effort": "high", "format": {"type": "json_schema", "schema": schema}})

    assert_prefixes(upstream)
    budgets = [received.fields["thinking"]["budget_tokens"] for received in upstream.received]
    assert budgets[0] < budgets[1] == budgets[2]
    forms = [received.fields.get("output_config") for received in upstream.received]
    assert forms == [None, None, {"format": {"type": "json_schema", "schema": schema}}]


FAILURES = {
    "rate": Failure(429, {"type": "rate_limit_error", "message": "Slow down."}, retry_after="7"),
    "overload": Failure(529, {"type": "overloaded_error", "message": "Overloaded"}),
    "key": Failure(401, {"type": "authentication_error", "message": "No such key."}),
    "full": Failure(
        400, {"type": "invalid_request_error", "message": "prompt is too long: 9000 tokens > 8000 maximum"}
    ),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_a_failure_is_told_once_and_not_repeated(copilot_program: Path, tmp_path: Path, name: str) -> None:
    failure = FAILURES[name]
    script = (failure, Answer((Words("Better."),), WARM))
    async with ToolUpstream(script) as upstream, calling(upstream, copilot_program, tmp_path) as (caller, gateway):
        caller.say("Hello.")
        told = await caller.ask(stream=True, keep=False)
        again = await caller.ask()
        records = await records_at_the_end(gateway)

    assert (told.status, json.loads(told.text)["error"]) == (failure.status, failure.error)
    assert again.content[-1]["text"].strip() == "Better."
    assert len(upstream.received) == 2, "the runtime would have tried again, or compacted"
    assert told.retry_after == ("7" if name == "rate" else "")
    code = "context_length_exceeded" if name == "full" else failure.error["type"]
    assert [(record["detail"], record["guard"]["reason"]) for record in records] == [(code, "neutral"), ("", "reuse")]


async def test_a_model_at_its_limit_is_not_called_again(copilot_program: Path, tmp_path: Path) -> None:
    script = (Answer((Words("Cut off"),), WARM, stop="max_tokens"), Answer((Words("Going on."),), WARM))
    async with ToolUpstream(script) as upstream, calling(upstream, copilot_program, tmp_path) as (caller, _):
        caller.say("Tell me all.")
        told = await caller.ask(stream=True)
        calls = len(upstream.received)
        caller.say("Go on.")
        again = await caller.ask()

    assert (told.stop_reason, calls) == ("max_tokens", 1)
    assert again.content[-1]["text"].strip() == "Going on."
    assert b"Cut off" in upstream.received[1].body


async def test_a_killed_runtime_is_started_anew(copilot_program: Path, tmp_path: Path) -> None:
    script = script_of([[*TWO_AT_ONCE[:2], (Words("Here again."),)]])
    async with ToolUpstream(script) as upstream, calling(upstream, copilot_program, tmp_path) as (caller, gateway):
        caller.say("Look at both.")
        await caller.ask()
        for child in runtimes_of(gateway):
            os.kill(child, signal.SIGKILL)
        caller.say(result("toolu_1", "a"), result("toolu_2", "b"))
        told = await caller.ask()

    assert told.content[-1]["text"].strip() == "Both came."
    assert b"toolu_1" in upstream.received[1].body
    assert b"toolu_2" in upstream.received[1].body


async def test_nothing_of_a_conversation_reaches_a_disk(copilot_program: Path, tmp_path: Path) -> None:
    script = script_of([[(Words("Noted."),), (Words("Noted again."),)]])
    async with ToolUpstream(script) as upstream, calling(upstream, copilot_program, tmp_path) as (caller, gateway):
        caller.say(SECRET)
        await caller.ask()
        caller.say("Again.")
        await caller.ask()
        (runtime,) = runtimes_of(gateway)
        home, shown, kept, mode = traces_of(runtime)
        await gateway.stop(signal.SIGTERM)

    assert SECRET.encode() in upstream.received[1].body
    assert SECRET.encode() not in kept
    assert KEY.encode() not in shown
    assert mode == 0o700
    assert not os.path.exists(home), "its folder goes with it"  # noqa: ASYNC240, PTH110 -- one look


async def test_two_cold_requests_stop_the_third(copilot_program: Path, tmp_path: Path) -> None:
    script = (Answer((Words("One."),), COLD), Answer((Words("Two."),), COLD))
    async with ToolUpstream(script) as upstream, calling(upstream, copilot_program, tmp_path) as (caller, gateway):
        for text in ("one", "two"):
            caller.say(text)
            await caller.ask()
        caller.say("three")
        told = await caller.ask(keep=False)
        records = await records_at_the_end(gateway)

    assert (told.status, json.loads(told.text)["error"]["type"]) == (400, "billing_error")
    assert len(upstream.received) == 2
    assert [record["guard"]["outcome"] for record in records] == ["allowed", "allowed", "blocked"]


def traces_of(runtime: int) -> tuple[str, bytes, bytes, int]:
    """Return a runtime's home, its environment and arguments, all that lies in its home, and who may look there."""
    environment = Path(f"/proc/{runtime}/environ").read_bytes()
    home = next(part for part in environment.split(b"\0") if part.startswith(b"HOME=")).decode().removeprefix("HOME=")
    kept = b"".join(path.read_bytes() for path in Path(home).rglob("*") if path.is_file())
    return home, environment + Path(f"/proc/{runtime}/cmdline").read_bytes(), kept, Path(home).stat().st_mode & 0o777


def runtimes_of(gateway: GatewayProgram) -> list[int]:
    """Return the processes of the runtime that this gateway has started."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (entry / "stat").exists():
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            if int(fields[1]) == gateway.process.pid:
                found.append(int(entry.name))
    return found
