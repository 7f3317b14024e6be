import asyncio
import json
import tempfile
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from cachegate.errors import BadInput, Unavailable, UpstreamError, UpstreamTimeout
from cachegate.providers.base import Call, Head, Piece
from cachegate.providers.claude_cli import conversation
from cachegate.providers.claude_cli import provider as module
from cachegate.providers.claude_cli.discovery import Found
from cachegate.providers.claude_cli.gate import ANTHROPIC
from cachegate.providers.claude_cli.launch import Account
from cachegate.providers.claude_cli.provider import ClaudeCliProvider, Mode, SessionSettings, Warmup
from cachegate.providers.session_answer import Patience
from cachegate.wire.claude_cli.prompt import Prompt
from cachegate.wire.facts import Operation, Protocol
from cachegate.wire.parse import Received, parse
from cachegate.wire.seen import Failed, Finished, Refusal, Reseed, Seen
from claude_frames import MEASURED, RESULT, asks, ends, start, text
from claude_program import FakeGate, FakeProgram, Refused

FOREVER_S = 1e6
MOMENT_S = 0.001
TOOL: dict[Protocol, dict[str, Any]] = {
    Protocol.MESSAGES: {"name": "Read", "input_schema": {"type": "object"}},
    Protocol.RESPONSES: {"type": "function", "name": "Read", "parameters": {"type": "object"}},
    Protocol.CHAT: {"type": "function", "function": {"name": "Read", "parameters": {"type": "object"}}},
}
HELLO = "Hello world"
PARTLY = [start(), *text(0, "par")]
every_warmup = pytest.mark.parametrize("warmup", list(Warmup))
both_ways = pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])


class Stage:
    def __init__(self, program: FakeProgram, **settings: Any) -> None:
        self.program = program
        self.now_s = 0.0
        patience = Patience(**{"keepalive_s": FOREVER_S, **settings.pop("patience", {})})
        sessions = SessionSettings(**{"warmup": Warmup.NEVER, "patience": patience, **settings})
        account = Account(api_key="k", base_url="http://127.0.0.1:9/theirs")
        self.provider = ClaudeCliProvider(account, "claude", sessions, lambda: self.now_s)
        self.sent = 0

    def _send(self) -> None:
        self.sent += 1

    def call(
        self,
        protocol: Protocol,
        *said: str,
        thread: str = "t1",
        operation: Operation = Operation.GENERATE,
        headers: tuple[tuple[str, str], ...] = (),
        model: str = "up",
        **more: Any,
    ) -> Call:
        """A request whose messages are the user's and the assistant's in turn."""
        roles = ("user", "assistant")
        turns = [{"role": roles[number % 2], "content": words} for number, words in enumerate(said)]
        field = "input" if protocol is Protocol.RESPONSES else "messages"
        limit = {"max_tokens": 99} if protocol is Protocol.MESSAGES else {}
        body = {"model": "model-x", "stream": True, "tools": [TOOL[protocol]], field: turns, **limit, **more}
        data = json.dumps(body).encode()
        told = (*((("x-session-id", thread),) if thread else ()), *headers)
        received = parse(Received(protocol, operation, told, "", data, data), bytes(32))
        return Call(received, "req_1", "p", model, self._send)

    async def ask(self, call: Call) -> tuple[Head, list[Piece]]:
        async with aclosing(self.provider.stream(call)) as parts, asyncio.timeout(60):
            head, *pieces = [part async for part in parts]
        assert isinstance(head, Head)
        return head, [piece for piece in pieces if isinstance(piece, Piece)]

    async def reasons(self, *said: str, protocol: Protocol = Protocol.MESSAGES, **more: Any) -> list[str]:
        """Ask, take the answer to its good end, and return why sessions were begun for it."""
        head, pieces = await self.ask(self.call(protocol, *said, **more))
        assert head.status == 200
        assert Finished() in seen_in(pieces)
        return [each.reason for each in seen_in(pieces) if isinstance(each, Reseed)]

    @property
    def live(self) -> int:
        """How many processes live."""
        return sum(process.alive for process in self.program.processes)


def folders(path: Path) -> list[Path]:
    return list(path.iterdir())


def joined(pieces: list[Piece]) -> bytes:
    return b"".join(piece.data for piece in pieces)


def seen_in(pieces: list[Piece]) -> list[Seen]:
    return [seen for piece in pieces for seen in piece.seen]


async def begun(parts: AsyncGenerator[Head | Piece, None]) -> None:
    """Take the head and the first piece."""
    async with asyncio.timeout(60):
        assert isinstance(await anext(parts), Head)
        assert isinstance(await anext(parts), Piece)


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeProgram:
    fake = FakeProgram()

    def gate(upstream: str) -> FakeGate:
        fake.gate = FakeGate(upstream)
        return fake.gate

    async def find(configured: str | None) -> Found:
        fake.log.append(f"find {configured}")
        return Found("claude", (2, 1, 332))

    monkeypatch.setattr(module, "find_program", find)
    monkeypatch.setattr(conversation, "ClaudeProcess", fake)
    monkeypatch.setattr(module, "Gate", gate)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    return fake


# --- answers ---


@both_ways
async def test_an_answer_comes_in_the_clients_protocol(
    program: FakeProgram, protocol: Protocol, streamed: bool
) -> None:
    stage = Stage(program)
    head, pieces = await stage.ask(stage.call(protocol, "hi", stream=streamed))
    assert head.status == 200
    assert b"Hello" in joined(pieces)
    assert seen_in(pieces) == [Reseed("no_session"), MEASURED, MEASURED, Finished()]
    assert stage.sent == 1
    assert program.last.option("--model") == "up"
    await stage.provider.close()


@both_ways
async def test_a_rebuilt_session_is_told_once_with_its_reason(
    program: FakeProgram, protocol: Protocol, streamed: bool
) -> None:
    stage = Stage(program)

    async def reasons(*said: str, **more: Any) -> list[str]:
        return await stage.reasons(*said, protocol=protocol, stream=streamed, **more)

    assert await reasons("one") == ["no_session"]
    assert await reasons("one", HELLO, "two") == []
    assert await reasons("edited", HELLO, "two") == ["history_diverged"]
    assert await reasons("edited", HELLO, "two", HELLO, "x", tools=[]) == ["fingerprint_changed"]
    await stage.provider.close()


@pytest.mark.parametrize(
    ("protocol", "first", "second"),
    [
        (Protocol.RESPONSES, ("x-codex-window-id", "t1:0"), ("x-codex-window-id", "t1:1")),
        (Protocol.MESSAGES, ("x-other", "1"), ("x-claude-code-context-compacted", "1")),
    ],
)
async def test_a_compaction_that_the_client_names_is_told_and_counts(
    program: FakeProgram, protocol: Protocol, first: tuple[str, str], second: tuple[str, str]
) -> None:
    """R15: a compaction-window change is no client change."""
    stage = Stage(program)

    async def told(header: tuple[str, str], *said: str) -> list[Reseed]:
        _, pieces = await stage.ask(stage.call(protocol, *said, headers=(header,)))
        return [seen for seen in seen_in(pieces) if isinstance(seen, Reseed)]

    assert await told(first, "one") == [Reseed("no_session")]
    reseeds = await told(second, "a summary")
    assert (reseeds, [each.by_client for each in reseeds]) == ([Reseed("compaction_window")], [False])
    assert await told(second, "a summary", HELLO, "two") == []
    assert await told(second, "an edit", HELLO, "two") == [Reseed("history_diverged")]
    await stage.provider.close()


async def test_a_thread_may_change_its_protocol(program: FakeProgram) -> None:
    stage = Stage(program)
    said = ["one"]
    for protocol in (*Protocol, *Protocol):
        more = (
            {}
            if protocol is Protocol.MESSAGES
            else {"max_output_tokens" if protocol is Protocol.RESPONSES else "max_tokens": 99}
        )
        await stage.reasons(*said, protocol=protocol, **more)
        said += [HELLO, "more"]
    assert len(program.processes) == 1
    await stage.provider.close()


async def test_calls_have_the_callers_names_and_results_lead_on(program: FakeProgram) -> None:
    stage = Stage(program)
    program.replies.append(asks("c1"))
    _, pieces = await stage.ask(stage.call(Protocol.CHAT, "go", stream=False))
    message = json.loads(joined(pieces))["choices"][0]["message"]
    assert message["tool_calls"][0]["function"] == {"name": "Read", "arguments": "{}"}
    turns = [{"role": "user", "content": "go"}, message, {"role": "tool", "tool_call_id": "c1", "content": "found"}]
    assert await stage.reasons(protocol=Protocol.CHAT, messages=turns) == []
    assert program.last.given == [("c1", [{"type": "text", "text": "found"}], False)]
    await stage.provider.close()


@both_ways
async def test_a_refusal_is_seen_and_ends_the_session(program: FakeProgram, streamed: bool) -> None:
    stage = Stage(program)
    program.replies.append([start(), *text(0, "no"), *ends("refusal"), RESULT])
    _, pieces = await stage.ask(stage.call(Protocol.MESSAGES, "one", stream=streamed))
    assert {Refusal(), Finished()} <= set(seen_in(pieces))
    assert await stage.reasons("one", "no", "two") == ["refusal"]
    await stage.provider.close()


@both_ways
async def test_the_providers_own_error_is_passed_on(program: FakeProgram, streamed: bool) -> None:
    stage = Stage(program)
    program.replies.append(Refused(429, b'{"error":{"type":"rate_limit_error","message":"slow down"}}', "7"))
    head, pieces = await stage.ask(stage.call(Protocol.MESSAGES, "hi", stream=streamed))
    assert (head.status, dict(head.headers)["retry-after"]) == (429, "7")
    assert json.loads(joined(pieces))["error"]["message"] == "slow down"
    assert seen_in(pieces) == [Reseed("no_session"), Failed("rate_limit_error")]
    assert await stage.reasons("hi") == ["provider_error"]
    await stage.provider.close()


# --- when a conversation goes live ---

SMALL, LARGE = "x", "x" * 1_000
LARGE_BYTES = 900
ALONE, LIVES = (False, False), (True, True)
LATER = (False, True)


@pytest.mark.parametrize(
    ("warmup", "words", "lives"),
    [
        (Warmup.AUTO, SMALL, LATER),
        (Warmup.AUTO, LARGE, LIVES),
        (Warmup.ALWAYS, SMALL, LATER),
        (Warmup.ALWAYS, LARGE, LATER),
        (Warmup.NEVER, SMALL, LIVES),
        (Warmup.NEVER, LARGE, LIVES),
    ],
)
async def test_when_a_conversation_goes_live(
    program: FakeProgram, protocol: Protocol, warmup: Warmup, words: str, lives: tuple[bool, bool]
) -> None:
    stage = Stage(program, warmup=warmup, large_bytes=LARGE_BYTES)
    assert await stage.reasons(words, protocol=protocol) == ["no_session"]
    assert stage.live == lives[0]
    assert await stage.reasons(words, HELLO, "two", protocol=protocol) == ([] if lives[0] else ["no_session"])
    assert stage.live == lives[1]
    assert await stage.reasons(words, HELLO, "two", HELLO, "three", protocol=protocol) == []
    assert len(program.processes) == 1 + (not lives[0]), "and it stays so"
    await stage.provider.close()


@every_warmup
@pytest.mark.parametrize("words", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize(
    ("settings", "more"),
    [
        ({"mode": Mode.REPLAY}, {}),
        ({}, {"thread": ""}),
        ({}, {"headers": (("x-claude-code-request-class", "compaction"),)}),
        ({}, {"headers": (("x-claude-code-request-class", "auxiliary"),)}),
        ({}, {"protocol": Protocol.RESPONSES, "operation": Operation.COMPACT}),
    ],
    ids=["replay", "anonymous", "compaction", "auxiliary", "standalone compaction"],
)
async def test_what_never_goes_live_whatever_the_warm_up(
    program: FakeProgram, warmup: Warmup, words: str, settings: dict[str, Any], more: dict[str, Any]
) -> None:
    stage = Stage(program, warmup=warmup, large_bytes=LARGE_BYTES, **settings)
    for number in range(1, 4):
        assert await stage.reasons(words, **more) == ["no_session"]
        assert (len(program.processes), stage.live) == (number, 0)
    assert stage.sent == 3
    await stage.provider.close()


@every_warmup
async def test_a_side_request_leaves_the_threads_conversation_alone(program: FakeProgram, warmup: Warmup) -> None:
    stage = Stage(program, warmup=warmup)
    await stage.reasons("one")
    await stage.reasons("one", HELLO, "two")
    await stage.reasons("title?", headers=(("x-claude-code-request-class", "auxiliary"),))
    assert await stage.reasons("one", HELLO, "two", HELLO, "three") == []
    await stage.provider.close()


async def test_size_is_that_of_the_conversation_and_counts_from_the_limit_on(program: FakeProgram) -> None:
    assert SessionSettings().large_bytes == 256 * 1024
    size = Stage(program).call(Protocol.MESSAGES, LARGE).request.facts.conversation_bytes
    for limit, live in ((size + 1, 0), (size, 1)):
        stage = Stage(program, warmup=Warmup.AUTO, large_bytes=limit)
        await stage.reasons(LARGE, system="y" * 5_000)
        assert stage.live == live
        await stage.provider.close()


async def test_each_thread_and_model_is_warmed_up_for_itself(program: FakeProgram) -> None:
    stage = Stage(program, warmup=Warmup.AUTO)
    threads: tuple[dict[str, Any], ...] = ({}, {"thread": "t2"}, {"model": "other"})
    for more in threads:
        await stage.reasons("one", **more)
        assert stage.live == 0
    await stage.reasons("one", HELLO, "two", model="other")
    assert stage.live == 1
    await stage.provider.close()


async def test_a_thread_that_was_forgotten_is_warmed_up_again(
    program: FakeProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_THREADS_MAX", 1)
    stage = Stage(program, warmup=Warmup.AUTO)
    for thread in ("t1", "t2", "t1"):
        await stage.reasons("one", thread=thread)
        assert stage.live == 0
    await stage.reasons("one", HELLO, "two", thread="t1")
    assert stage.live == 1
    await stage.reasons("one", thread="t2")
    await stage.reasons("one", HELLO, "two", HELLO, "three", thread="t1")
    assert len(program.processes) == 5, "one that lives needs no memory"
    await stage.provider.close()


# --- the pool behind it ---


@every_warmup
async def test_calls_that_wait_are_preserved_and_other_requests_answered_beside(
    program: FakeProgram, warmup: Warmup
) -> None:
    stage = Stage(program, warmup=warmup)
    await stage.reasons("hi")
    program.replies.append(asks("c1"))
    await stage.reasons("hi", HELLO, "go")
    waiting = program.last
    assert await stage.reasons("something else") == ["no_session"]
    assert await stage.reasons("something else", HELLO, "more") == ["no_session"]
    assert (waiting.alive, stage.live) == (True, 1)
    call = {"type": "tool_use", "id": "c1", "name": "Read", "input": {}}
    said = ["hi", HELLO, "go", [call], [{"type": "tool_result", "tool_use_id": "c1", "content": "found"}]]
    assert await stage.reasons(*said) == []  # type: ignore[arg-type]
    assert waiting.given
    await stage.provider.close()


async def test_waiting_calls_that_nobody_comes_back_to_grow_old(program: FakeProgram) -> None:
    stage = Stage(program, idle_s=100)
    program.replies.append(asks("c1"))
    await stage.reasons("go")
    stage.now_s = 99
    await stage.reasons("something else")
    stage.now_s = 101
    await stage.provider._pool.sweep()
    assert stage.live == 0
    await stage.provider.close()


@every_warmup
async def test_a_request_beside_a_running_one_has_a_session_of_its_own(
    program: FakeProgram, warmup: Warmup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cachegate.providers.session_pool.PATIENCE_S", 0)
    stage = Stage(program, warmup=warmup)
    await stage.reasons("one")
    program.replies.append(PARTLY)
    running = stage.provider.stream(stage.call(Protocol.MESSAGES, "one", HELLO, "two"))
    await begun(running)
    process = program.last
    assert await stage.reasons("one", HELLO, "other") == ["no_session"]
    assert process.alive
    process.play([*ends(), RESULT])
    async with asyncio.timeout(60):
        rest = [part async for part in running if isinstance(part, Piece)]
    assert Finished() in seen_in(rest)
    assert await stage.reasons("one", HELLO, "two", "par", "three") == []
    await stage.provider.close()


@every_warmup
async def test_when_all_sessions_answer_a_request_is_turned_away(program: FakeProgram, warmup: Warmup) -> None:
    stage = Stage(program, warmup=warmup, sessions_max=1)
    program.replies.append(PARTLY)
    running = stage.provider.stream(stage.call(Protocol.CHAT, "one"))
    await begun(running)
    with pytest.raises(Unavailable, match="maxSessions"):
        await stage.ask(stage.call(Protocol.CHAT, "one", thread="t2"))
    assert stage.sent == 1
    await running.aclose()
    await stage.reasons("one", thread="t2")
    await stage.provider.close()


async def test_the_longest_unused_leaves_and_its_next_request_says_why(program: FakeProgram) -> None:
    stage = Stage(program, sessions_max=2)
    for number, thread in enumerate(("t1", "t2", "t3")):
        stage.now_s = number
        assert await stage.reasons("one", thread=thread) == ["no_session"]
    assert [process.alive for process in program.processes] == [False, True, True]
    assert await stage.reasons("one", HELLO, "two", thread="t1") == ["capacity"]
    assert await stage.reasons("one", HELLO, "two", HELLO, "three", thread="t1") == []
    assert await stage.reasons("one", HELLO, "two", thread="t3") == []
    await stage.provider.close()


async def test_a_session_that_nobody_uses_is_swept_away_and_its_next_request_says_why(program: FakeProgram) -> None:
    stage = Stage(program, idle_s=4 * MOMENT_S)
    await stage.reasons("one")
    stage.now_s = 1.0
    async with asyncio.timeout(60):
        await program.last.ended.wait()
    assert await stage.reasons("one", HELLO, "two") == ["idle_expired"]
    await stage.provider.close()


# --- a caller who leaves ---


@pytest.mark.parametrize("pieces", [0, 1], ids=["behind the head", "in the midst"])
async def test_closing_the_stream_interrupts_the_session_at_once(
    program: FakeProgram, protocol: Protocol, pieces: int
) -> None:
    stage = Stage(program)
    program.replies.append(PARTLY)
    parts = stage.provider.stream(stage.call(protocol, "hi"))
    for _ in range(1 + pieces):
        await anext(parts)
    assert "interrupt" not in program.log
    await parts.aclose()
    assert program.log[-1] == "interrupt"
    assert await stage.reasons("hi", protocol=protocol) == ["cancelled"]
    await stage.provider.close()


@both_ways
async def test_a_cancelled_request_interrupts_the_session(program: FakeProgram, streamed: bool) -> None:
    stage = Stage(program)
    program.replies.append(())
    asking = asyncio.ensure_future(stage.ask(stage.call(Protocol.CHAT, "hi", stream=streamed)))
    async with asyncio.timeout(60):
        await program.started.wait()
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert program.log[-1] == "interrupt"
    await stage.provider.close()


async def test_one_who_leaves_behind_the_end_has_cancelled_nothing(program: FakeProgram) -> None:
    stage = Stage(program)
    parts = stage.provider.stream(stage.call(Protocol.MESSAGES, "one"))
    async with asyncio.timeout(60):
        while True:
            part = await anext(parts)
            if isinstance(part, Piece) and Finished() in part.seen:
                break
    await parts.aclose()
    assert program.log == ["find claude", "start"]
    assert await stage.reasons("one", HELLO, "two") == []
    await stage.provider.close()


async def test_a_session_that_says_nothing_is_given_up(program: FakeProgram) -> None:
    stage = Stage(program, patience={"silence_s": MOMENT_S})
    program.replies.append(())
    with pytest.raises(UpstreamTimeout):
        await stage.ask(stage.call(Protocol.MESSAGES, "hi"))
    assert program.log[-1] == "interrupt"
    await stage.provider.close()


# --- what cannot be answered ---


@pytest.mark.parametrize("said", [("one", "begun for you")])
async def test_what_a_session_cannot_do_is_refused_by_name(program: FakeProgram, said: tuple[str, ...]) -> None:
    stage = Stage(program)
    with pytest.raises(BadInput, match="last message is the assistant's"):
        await stage.ask(stage.call(Protocol.CHAT, *said))
    assert (stage.sent, program.log) == (0, [])
    await stage.provider.close()


async def test_what_cannot_be_answered_takes_no_place_and_no_reason(
    program: FakeProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(program, sessions_max=1)
    await stage.reasons("one")
    await stage.reasons("one", thread="t2")
    with monkeypatch.context() as patch:
        patch.setattr(module, "prompt_of", lambda *_: Prompt("up", "", (), {}, (), None, None, fast=False))
        with pytest.raises(BadInput, match="no message"):
            await stage.ask(stage.call(Protocol.CHAT, "hi"))
    assert await stage.reasons("one", HELLO, "two") == ["capacity"]
    await stage.provider.close()


async def test_a_program_that_cannot_begin_is_an_exception_and_gives_its_place_back(program: FakeProgram) -> None:
    stage = Stage(program, sessions_max=1)
    program.refuses = UpstreamError("no")
    with pytest.raises(UpstreamError):
        await stage.ask(stage.call(Protocol.CHAT, "hi"))
    program.refuses = None
    await stage.reasons("hi", thread="t2")
    await stage.provider.close()


# --- its life ---


async def test_everything_is_made_once_and_with_the_first_request(program: FakeProgram, tmp_path: Path) -> None:
    stage = Stage(program, sessions_max=4)
    assert folders(tmp_path) == []
    calls = (stage.call(Protocol.MESSAGES, "hi", thread=thread) for thread in ("t1", "t2", "t3"))
    await asyncio.gather(*map(stage.ask, calls))
    (root,) = folders(tmp_path)
    assert {process.home.path.parent for process in program.processes} == {root}
    assert (program.gate.upstream, program.gate.listens) == ("http://127.0.0.1:9/theirs", True)
    await stage.provider.close()
    assert folders(tmp_path) == []
    assert program.gate.listens is False


async def test_what_a_dead_gateway_left_is_removed(program: FakeProgram, tmp_path: Path) -> None:
    (left := tmp_path / "cachegate-claude-left").mkdir()
    (left / "lock").touch()
    (left / "session-1").mkdir()
    stage = Stage(program)
    await stage.reasons("hi")
    assert not left.exists()
    await stage.provider.close()


async def test_without_another_address_it_is_anthropics(program: FakeProgram) -> None:
    stage = Stage(program)
    stage.provider = ClaudeCliProvider(Account(api_key="k"), "claude", SessionSettings(warmup=Warmup.NEVER))
    await stage.reasons("hi")
    assert program.gate.upstream == ANTHROPIC
    await stage.provider.close()


async def test_the_end_ends_everything(program: FakeProgram) -> None:
    stage = Stage(program)
    await stage.provider.close()
    await stage.reasons("one")
    tasks = asyncio.all_tasks()
    await stage.provider.close()
    assert stage.live == 0
    assert all(task.done() for task in tasks if task is not asyncio.current_task())


# --- the rest of the seam ---


async def test_a_count_is_an_estimate_and_asks_nobody(program: FakeProgram, tmp_path: Path) -> None:
    stage = Stage(program)
    call = stage.call(Protocol.MESSAGES, "hello", operation=Operation.COUNT_TOKENS)
    head, pieces = await stage.ask(call)
    assert dict(head.headers)["x-cachegate-estimate"] == "true"
    assert json.loads(joined(pieces))["input_tokens"] == -(-call.request.facts.input_bytes // 4)
    assert (stage.sent, program.processes, folders(tmp_path)) == (0, [], [])
    await stage.provider.close()


async def test_what_it_speaks_and_lists(program: FakeProgram) -> None:
    stage = Stage(program, models=("claude-sonnet", "claude-opus"))
    assert all(stage.provider.speaks(protocol, operation) for protocol in Protocol for operation in Operation)
    assert stage.provider.models() == ("claude-sonnet", "claude-opus")
    await stage.provider.close()
