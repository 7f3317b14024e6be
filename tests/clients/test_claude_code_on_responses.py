"""Claude Code itself holds a conversation with providers that speak Responses, or nothing but Chat Completions."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from clients.claude_code import ClaudeCode
from clients.gateway_in_front import gateway_translating, recent_records
from clients.provider_replies import COLD, WARM, JsonObject
from clients.tool_upstream import (
    KEY,
    Answer,
    Call,
    Failure,
    Parts,
    Thought,
    ToolUpstream,
    Words,
    assert_each_extends_the_one_before,
    script_of,
)

pytestmark = pytest.mark.clients
either_provider = pytest.mark.parametrize("kind", ["openai", "openai-compatible"])

HEADERS = {"accept", "accept-encoding", "authorization", "content-length", "content-type", "host", "user-agent"}
"""All that the provider is told in headers, and nothing that Claude Code tells Anthropic."""
ALLOWED = ("--allowedTools", "Bash,Read,Write")
WRITTEN = '"Zwölf" \\ 😀\n'


def _echo(number: int) -> Call:
    # Echo alone is read-only for Claude Code, so it may run two of them at once.
    return Call(f"call_Echo{number:020}", "Bash", f'{{"command":"echo said-{number}","description":"Say it"}}')


def _seal(number: int) -> str:
    """An encrypted thought of the length and letters that real ones have."""
    return f"gAAAAABp{number:04}" + "aB3-_xYz" * 90 + "=="


def _conversation(project: Path) -> tuple[tuple[Parts, ...], ...]:
    """Return the answers to each of ten messages; all but the last of them have calls."""
    made, missing = str(project / "made.txt"), str(project / "missing.txt")
    write = Call("call_write", "Write", json.dumps({"file_path": made, "content": WRITTEN}))
    return (
        ((Thought("They say one.", _seal(1)), Words("Answer 1.")),),
        ((Thought("Let me echo.", _seal(2)), _echo(2)), (Words("Answer 2."),)),
        ((Words("Two at once."), _echo(30), _echo(31)), (Thought("Both came.", _seal(3)), Words("Answer 3."))),
        ((Thought("A file.", _seal(4)), write), (Words("Answer 4."),)),
        ((Thought("", _seal(5)), Words("Answer 5.")),),
        (
            (Thought("Read it.", _seal(6)), Call("call_read", "Read", json.dumps({"file_path": made}))),
            (Words("Answer 6."),),
        ),
        (
            (Thought("It will fail.", _seal(70)), Call("call_fail", "Read", json.dumps({"file_path": missing}))),
            (Thought("It failed.", _seal(71)), Thought("", _seal(72)), _echo(7)),
            (Words("Answer 7."),),
        ),
        ((Call("call_exit", "Bash", '{"command": "echo \\u00fc; exit 3"}'),), (Words("Answer 8."),)),
        ((Call("call_nobody", "made_up_tool", '{"why": "models do"}'),), (Words("Answer 9."),)),
        ((Thought("The end.", _seal(10)), Words("Answer 10.")),),
    )


@either_provider
async def test_ten_turns_with_tools_extend_each_other(claude_program: Path, tmp_path: Path, kind: str) -> None:
    home = tmp_path / "home"
    conversation = _conversation(home / "project")
    script = script_of(conversation)
    async with (
        ToolUpstream(script) as upstream,
        gateway_translating(upstream, kind, tmp_path) as gateway_url,
        ClaudeCode.install(claude_program, home, gateway_url).session(*ALLOWED) as session,
    ):
        turns = [await session.turn(f"message {number}") for number in range(1, len(conversation) + 1)]
        records = await recent_records(gateway_url)

    assert [(turn.failed, turn.text) for turn in turns] == [(False, f"Answer {n}.") for n in range(1, 11)]
    path = "/v1/responses" if kind == "openai" else "/v1/chat/completions"
    assert [received.path for received in upstream.received] == [path] * len(script)
    assert_each_extends_the_one_before(upstream.received)
    assert (home / "project" / "made.txt").read_text() == WRITTEN
    results = _results(upstream)
    assert "said-30" in results["call_Echo00000000000000000030"]
    assert "said-31" in results["call_Echo00000000000000000031"]
    assert "Zwölf" in results["call_read"]
    assert "not exist" in results["call_fail"]
    assert "ü" in results["call_exit"]
    assert "made_up_tool" in results["call_nobody"]
    counted = [(record["inputTokens"], record["cachedTokens"]) for record in records]
    assert counted == [(answer.usage.total, answer.usage.cached) for answer in script]
    assert {record["outcome"] for record in records} == {"allowed"}


async def test_encrypted_thoughts_come_back_unchanged(claude_program: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    conversation = _conversation(home / "project")
    script = script_of(conversation)
    async with (
        ToolUpstream(script) as upstream,
        gateway_translating(upstream, "openai", tmp_path) as gateway_url,
        ClaudeCode.install(claude_program, home, gateway_url).session(*ALLOWED) as session,
    ):
        for number in range(1, len(conversation) + 1):
            await session.turn(f"message {number}")

    assert len(upstream.received) == len(script)
    for number, received in enumerate(upstream.received):
        thoughts = [item for item in received.fields["input"] if item["type"] == "reasoning"]
        assert [thought["encrypted_content"] for thought in thoughts] == [
            thought.seal for answer in script[:number] for thought in answer.thoughts
        ]
        assert [_summary(thought) for thought in thoughts] == [
            thought.text for answer in script[:number] for thought in answer.thoughts
        ]
        assert all(thought["id"].startswith("rs_0") for thought in thoughts), "they are encrypted with their own id"


@either_provider
async def test_the_provider_gets_its_own_key_and_nothing_of_the_gateway(
    claude_program: Path, tmp_path: Path, kind: str
) -> None:
    home = tmp_path / "home"
    async with (
        ToolUpstream(script_of(_conversation(home / "project"))) as upstream,
        gateway_translating(upstream, kind, tmp_path) as gateway_url,
        ClaudeCode.install(claude_program, home, gateway_url).session(*ALLOWED) as session,
    ):
        for number in range(1, 4):
            await session.turn(f"message {number}")

    assert len(upstream.received) == 5
    for received in upstream.received:
        assert set(received.headers) == HEADERS
        assert received.headers["authorization"] == f"Bearer {KEY}"
        for word in (b"dummy-key", KEY.encode(), b"cachegate1.", b"elsewhere", b"cache_control", b"billing-header"):
            assert word not in received.body


@either_provider
async def test_two_cold_turns_stop_the_session_for_good(claude_program: Path, tmp_path: Path, kind: str) -> None:
    script = (Answer((_echo(1),), COLD), Answer((Words("Answer 1."),), COLD))
    async with (
        ToolUpstream(script) as upstream,
        gateway_translating(upstream, kind, tmp_path) as gateway_url,
        ClaudeCode.install(claude_program, tmp_path / "home", gateway_url).session(*ALLOWED) as session,
    ):
        turns = [await session.turn(text) for text in ("one", "two", "three")]
        records = await recent_records(gateway_url)

    assert [turn.failed for turn in turns] == [False, True, True]
    assert len(upstream.received) == 2, "nothing more is sent, and no stop is retried"
    for stopped in turns[1:]:
        assert stopped.text.startswith("API Error: 400 ")
        assert "5 minutes" in stopped.text
        assert "{" not in stopped.text
    assert [(record["outcome"], record["count"]) for record in records] == [
        ("allowed", 1),
        ("allowed", 2),
        ("blocked", 2),
        ("blocked", 2),
    ]


@either_provider
async def test_an_interrupted_turn_closes_its_request_upstream(claude_program: Path, tmp_path: Path, kind: str) -> None:
    script = (
        Answer((_echo(1),), WARM),
        Answer((Words("It never ends."),), WARM, hangs=True),
        Answer((Words("Answer 2."),), WARM),
    )
    async with (
        ToolUpstream(script) as upstream,
        gateway_translating(upstream, kind, tmp_path) as gateway_url,
        ClaudeCode.install(claude_program, tmp_path / "home", gateway_url).session(*ALLOWED) as session,
    ):
        await session.begin_turn("one")
        await session.see_first_text()
        await asyncio.wait_for(upstream.hanging.wait(), timeout=10)
        assert not upstream.hung_up.is_set()
        interrupting = asyncio.create_task(session.interrupt())
        await asyncio.wait_for(upstream.hung_up.wait(), timeout=1)
        await interrupting
        after = await session.turn("two")

    assert (after.failed, after.text) == (False, "Answer 2.")
    assert len(upstream.received) == len(script)
    assert_each_extends_the_one_before(upstream.received)


@either_provider
async def test_a_compaction_extends_the_conversation_that_it_replaces(
    claude_program: Path, tmp_path: Path, kind: str
) -> None:
    script = (
        Answer((Thought("Let me echo.", _seal(1)), _echo(1)), WARM),
        Answer((Words("Answer 1."),), WARM),
        Answer((Thought("A summary.", _seal(2)), Words("<summary>They echoed something.</summary>")), WARM),
        Answer((Words("Answer 2."),), WARM),
    )
    async with (
        ToolUpstream(script) as upstream,
        gateway_translating(upstream, kind, tmp_path) as gateway_url,
        ClaudeCode.install(claude_program, tmp_path / "home", gateway_url).session(*ALLOWED) as session,
    ):
        turns = [await session.turn(text) for text in ("one", "/compact", "two")]
        records = await recent_records(gateway_url)

    assert [turn.failed for turn in turns] == [False] * 3
    assert turns[-1].text == "Answer 2."
    assert len(upstream.received) == len(script)
    assert_each_extends_the_one_before(upstream.received[:3])
    assert [record["mode"] for record in records] == ["chat", "chat", "compaction", "chat"]
    assert "They echoed something." in upstream.received[-1].body.decode()


@either_provider
async def test_a_session_goes_on_through_another_gateway(claude_program: Path, tmp_path: Path, kind: str) -> None:
    home = tmp_path / "home"
    script = tuple(Answer(parts, WARM) for turn in _conversation(home / "project")[:3] for parts in turn)
    async with ToolUpstream(script) as upstream:
        async with gateway_translating(upstream, kind, tmp_path) as gateway_url:
            claude = ClaudeCode.install(claude_program, home, gateway_url)
            async with claude.session(*ALLOWED) as session:
                turns = [await session.turn("one"), await session.turn("two")]
        async with gateway_translating(upstream, kind, tmp_path) as another_url:
            moved = replace(claude, environment={**claude.environment, "ANTHROPIC_BASE_URL": another_url})
            async with moved.session(*ALLOWED, "--resume", turns[-1].session_id) as session:
                turns.append(await session.turn("three"))

    assert [turn.text for turn in turns] == ["Answer 1.", "Answer 2.", "Answer 3."]
    assert len(upstream.received) == len(script)
    assert_each_extends_the_one_before(upstream.received)


@either_provider
async def test_a_full_context_at_the_provider_makes_claude_code_compact(
    claude_program: Path, tmp_path: Path, kind: str
) -> None:
    words = "Your input exceeds the context window of this model. Please adjust your input and try again."
    full = Failure(400, {"type": "invalid_request_error", "code": "context_length_exceeded", "message": words})
    script = (
        Answer((Words("Answer 1."),), WARM),
        full,
        Answer((Words("<summary>They counted.</summary>"),), WARM),
        Answer((Words("Answer 2."),), WARM),
    )
    async with (
        ToolUpstream(script) as upstream,
        gateway_translating(upstream, kind, tmp_path) as gateway_url,
        ClaudeCode.install(claude_program, tmp_path / "home", gateway_url).session(*ALLOWED) as session,
    ):
        turns = [await session.turn("one"), await session.turn("two")]

    assert [(turn.failed, turn.text) for turn in turns] == [(False, "Answer 1."), (False, "Answer 2.")]
    assert len(upstream.received) == len(script)
    assert "They counted." in upstream.received[-1].body.decode()


def _results(upstream: ToolUpstream) -> dict[str, str]:
    """Return what the provider was told of each call, by its id."""
    fields = upstream.received[-1].fields
    answered = [item for item in fields.get("input", []) if item["type"] == "function_call_output"]
    told = {item["call_id"]: item["output"] for item in answered}
    told |= {turn["tool_call_id"]: turn["content"] for turn in fields.get("messages", []) if turn["role"] == "tool"}
    return {call_id: json.dumps(output, ensure_ascii=False) for call_id, output in told.items()}


def _summary(thought: JsonObject) -> str:
    return "".join(part["text"] for part in thought["summary"])
