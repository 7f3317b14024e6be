"""Codex itself holds a conversation with a provider that speaks Messages only."""

import asyncio
import json
import struct
import zlib
from pathlib import Path

import pytest

from clients.codex import BUILT_IN, CUSTOM, Codex, CodexSetup, CodexThread
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
    blocks,
    script_of,
)

pytestmark = pytest.mark.clients

HEADERS = {
    "accept",
    "accept-encoding",
    "anthropic-version",
    "content-length",
    "content-type",
    "host",
    "user-agent",
    "x-api-key",
}
"""All that Anthropic is told in headers, and nothing that Codex tells OpenAI."""
PATCH = '*** Begin Patch\n*** Add File: made.txt\n+"Zwölf" \\ 😀\n*** End Patch\n'


def _echo(number: int) -> Call:
    return Call(f"toolu_01Echo{number:016}", "exec_command", f'{{"cmd": "echo said-{number}",  "login": false}}')


def _seal(number: int) -> str:
    """A signature of the length and letters that real ones have."""
    return f"ErUBCkYI{number:04}" + "aB3+/xYz" * 60 + "=="


CONVERSATION: tuple[tuple[Parts, ...], ...] = (
    ((Thought("They say one.", _seal(1)), Words("Answer 1.")),),
    ((Thought("Let me echo.", _seal(2)), _echo(2)), (Words("Answer 2."),)),
    ((Words("Two at once."), _echo(30), _echo(31)), (Thought("Both came.", _seal(3)), Words("Answer 3."))),
    (
        (Thought("A patch.", _seal(4)), Call("toolu_patch", "apply_patch", json.dumps({"input": PATCH}))),
        (Words("Answer 4."),),
    ),
    ((Thought("", _seal(5)), Words("Answer 5.")),),
    ((Thought("No arguments.", _seal(6)), Call("toolu_goal", "get_goal", "")), (Words("Answer 6."),)),
    (
        (Thought("It will fail.", _seal(70)), Call("toolu_fail", "exec_command", '{"cmd":"echo \\u00fc; exit 3"}')),
        (Thought("It failed.", _seal(71)), Thought("", _seal(72)), _echo(7)),
        (Words("Answer 7."),),
    ),
    ((Call("toolu_image", "view_image", '{"path": "dot.png"}'),), (Words("Answer 8."),)),
    ((Call("toolu_nobody", "made_up_tool", '{"why": "models do"}'),), (Words("Answer 9."),)),
    ((Thought("The end.", _seal(10)), Words("Answer "), Words("10.")),),
)
"""What the provider answers in ten turns: some answers to each message, all but the last of them with calls."""


@pytest.mark.parametrize("setup", [CUSTOM, BUILT_IN], ids=str)
async def test_ten_turns_with_tools_extend_each_other(codex_program: Path, tmp_path: Path, setup: CodexSetup) -> None:
    script = script_of(CONVERSATION)
    async with (
        ToolUpstream(script) as upstream,
        gateway_translating(upstream, "anthropic", tmp_path) as gateway_url,
    ):
        codex = Codex.install(codex_program, tmp_path / "home", gateway_url, setup)
        (codex.home.project / "dot.png").write_bytes(_png())
        async with codex.thread() as thread:
            turns = [await thread.turn(f"message {number}") for number in range(1, len(CONVERSATION) + 1)]
            tokens_shown = thread.notices("thread/tokenUsage/updated")[-1]["params"]["tokenUsage"]["last"]
            shown = json.dumps(thread.notices("item/completed"))
        records = await recent_records(gateway_url)

    assert [(turn.status, turn.error) for turn in turns] == [("completed", None)] * 10
    assert [turn.answer.removeprefix("Two at once.") for turn in turns] == [f"Answer {n}." for n in range(1, 11)]
    assert [str(received.path) for received in upstream.received] == ["/v1/messages"] * len(script)
    assert_each_extends_the_one_before(upstream.received)
    assert (codex.home.project / "made.txt").read_text() == '"Zwölf" \\ 😀\n'
    results = _results(upstream)
    assert "said-30" in results["toolu_01Echo0000000000000030"]
    assert "said-31" in results["toolu_01Echo0000000000000031"]
    assert "code 3" in results["toolu_fail"]
    assert "unsupported call" in results["toolu_nobody"]
    assert '"image"' in results["toolu_image"]
    counted = [(record["inputTokens"], record["cachedTokens"], record["writtenTokens"]) for record in records]
    assert counted == [(answer.usage.total, answer.usage.cached, 990) for answer in script]
    assert {record["outcome"] for record in records} == {"allowed"}
    assert (tokens_shown["inputTokens"], tokens_shown["cachedInputTokens"]) == (
        script[-1].usage.total,
        script[-1].usage.cached,
    )
    assert "They say one." in shown, "the person reads what the model thought"
    assert "cachegate1." not in shown


async def test_thoughts_come_back_as_they_were_signed(codex_program: Path, tmp_path: Path) -> None:
    script = script_of(CONVERSATION)
    async with (
        ToolUpstream(script) as upstream,
        gateway_translating(upstream, "anthropic", tmp_path) as gateway_url,
        Codex.install(codex_program, tmp_path / "home", gateway_url).thread() as thread,
    ):
        for number in range(1, len(CONVERSATION) + 1):
            await thread.turn(f"message {number}")

    for number, received in enumerate(upstream.received):
        said = [block for turn in received.fields["messages"] for block in turn["content"]]
        thoughts = [_unmarked(block) for block in said if block["type"] in {"thinking", "redacted_thinking"}]
        assert thoughts == [_block(thought) for answer in script[:number] for thought in answer.thoughts]


async def test_the_provider_gets_its_own_key_and_nothing_of_the_gateway(codex_program: Path, tmp_path: Path) -> None:
    async with (
        ToolUpstream(script_of(CONVERSATION)) as upstream,
        gateway_translating(upstream, "anthropic", tmp_path) as gateway_url,
        Codex.install(codex_program, tmp_path / "home", gateway_url).thread() as thread,
    ):
        for number in range(1, 4):
            await thread.turn(f"message {number}")

    assert len(upstream.received) == 5
    for received in upstream.received:
        assert set(received.headers) == HEADERS
        assert received.headers["x-api-key"] == KEY
        for word in (b"dummy-key", KEY.encode(), b"cachegate1.", b"elsewhere", b"encrypted_content"):
            assert word not in received.body
        marks = received.body.count(b'"cache_control":{"type":"ephemeral"}')
        assert 1 <= marks <= 4, "without a mark Anthropic caches nothing"
        last = received.fields["messages"][-1]["content"][-1]
        assert "cache_control" in last


async def test_two_cold_turns_stop_the_thread_for_good(codex_program: Path, tmp_path: Path) -> None:
    script = (
        Answer((_echo(1),), COLD),
        Answer((Words("Answer 1."),), COLD),
    )
    async with (
        ToolUpstream(script) as upstream,
        gateway_translating(upstream, "anthropic", tmp_path) as gateway_url,
        Codex.install(codex_program, tmp_path / "home", gateway_url).thread() as thread,
    ):
        turns = [await thread.turn(text) for text in ("one", "two", "three")]
        records = await recent_records(gateway_url)

    assert [turn.status for turn in turns] == ["completed", "failed", "failed"]
    assert len(upstream.received) == 2, "nothing more is sent, and no stop is retried"
    for stopped in turns[1:]:
        assert stopped.error is not None
        assert "5 minutes" in stopped.error["message"]
        assert "{" not in stopped.error["message"]
    assert [(record["outcome"], record["count"]) for record in records] == [
        ("allowed", 1),
        ("allowed", 2),
        ("blocked", 2),
        ("blocked", 2),
    ]


async def test_an_interrupted_turn_closes_its_request_upstream(codex_program: Path, tmp_path: Path) -> None:
    script = (
        Answer((_echo(1),), WARM),
        Answer((Thought("A long one.", _seal(1)), Words("It never ends.")), WARM, hangs=True),
        Answer((Words("Answer 2."),), WARM),
    )
    async with (
        ToolUpstream(script) as upstream,
        gateway_translating(upstream, "anthropic", tmp_path) as gateway_url,
        Codex.install(codex_program, tmp_path / "home", gateway_url).thread() as thread,
    ):
        await thread.begin_turn("one")
        await thread.see_first_text()
        assert not upstream.hung_up.is_set()
        await _interrupt(thread)
        await asyncio.wait_for(upstream.hung_up.wait(), timeout=1)
        interrupted = await thread.turn_end()
        after = await thread.turn("two")

    assert interrupted.status == "interrupted"
    assert (after.status, after.answer) == ("completed", "Answer 2.")
    assert len(upstream.received) == len(script)
    assert_each_extends_the_one_before(upstream.received)


@pytest.mark.parametrize("setup", [CUSTOM, BUILT_IN], ids=str)
async def test_a_compaction_reads_the_cache_and_its_summary_replaces_the_conversation(
    codex_program: Path, tmp_path: Path, setup: CodexSetup
) -> None:
    script = (
        Answer((Thought("Let me echo.", _seal(1)), _echo(1)), WARM),
        Answer((Words("Answer 1."),), WARM),
        Answer((Thought("A summary.", _seal(2)), Words("They echoed something.")), WARM),
        Answer((Words("Answer 2."),), WARM),
    )
    async with (
        ToolUpstream(script) as upstream,
        gateway_translating(upstream, "anthropic", tmp_path) as gateway_url,
        Codex.install(codex_program, tmp_path / "home", gateway_url, setup).thread() as thread,
    ):
        turns = [await thread.turn("one"), await thread.compact(), await thread.turn("two")]
        records = await recent_records(gateway_url)

    assert [turn.status for turn in turns] == ["completed"] * 3
    assert turns[-1].answer == "Answer 2."
    assert len(upstream.received) == len(script)
    if setup is BUILT_IN:
        assert_each_extends_the_one_before(upstream.received[:3])
    else:
        # Codex itself leaves its tools out, and Anthropic refuses calls where no tool is declared.
        compaction = upstream.received[2].fields
        assert [tool["name"] for tool in compaction["tools"]] == ["exec_command"]
        assert compaction["tool_choice"] == {"type": "none"}
        said, summed_up = (blocks(each)[len(each.fields["tools"]) :] for each in upstream.received[1:3])
        assert summed_up[: len(said)] == said
    assert [record["mode"] for record in records] == ["chat", "chat", "compaction", "chat"]
    after = upstream.received[-1].body.decode()
    assert "They echoed something." in after
    assert "said-1" not in after


async def test_a_thread_goes_on_through_another_gateway(codex_program: Path, tmp_path: Path) -> None:
    script = tuple(Answer(parts, WARM) for turn in CONVERSATION[:3] for parts in turn)
    async with ToolUpstream(script) as upstream:
        async with gateway_translating(upstream, "anthropic", tmp_path) as gateway_url:
            codex = Codex.install(codex_program, tmp_path / "home", gateway_url)
            async with codex.thread() as thread:
                turns = [await thread.turn("one"), await thread.turn("two")]
        async with gateway_translating(upstream, "anthropic", tmp_path) as another_url:
            config = codex.home.path / "config.toml"
            config.write_text(config.read_text().replace(gateway_url, another_url))
            async with codex.thread(resumed_id=thread.id) as thread:
                turns.append(await thread.turn("three"))

    assert [turn.status for turn in turns] == ["completed"] * 3
    assert len(upstream.received) == len(script)
    assert_each_extends_the_one_before(upstream.received)


async def test_a_model_that_gets_its_tools_in_namespaces_calls_them(codex_program: Path, tmp_path: Path) -> None:
    first, second = ('text("said-" + (40 + 1))', 'text(await tools.exec_command({cmd: "echo said-42"}))')
    script = (
        Answer((Words("Answer 1."),), WARM),
        Answer(
            (Thought("In code.", _seal(1)), *(_exec(number, text) for number, text in enumerate((first, second)))), WARM
        ),
        Answer((Words("Answer 2."),), WARM),
        Answer((Words("Answer 3."),), WARM),
    )
    async with (
        ToolUpstream(script) as upstream,
        gateway_translating(upstream, "anthropic", tmp_path) as gateway_url,
    ):
        codex = Codex.install(codex_program, tmp_path / "home", gateway_url)
        config = codex.home.path / "config.toml"
        config.write_text(config.read_text().replace("gpt-5.5", "gpt-6.2-sol"))
        async with codex.thread() as thread:
            turns = [await thread.turn(f"message {number}") for number in (1, 2, 3)]

    assert [(turn.status, turn.answer) for turn in turns] == [("completed", f"Answer {n}.") for n in (1, 2, 3)]
    assert len(upstream.received) == len(script)
    assert_each_extends_the_one_before(upstream.received)
    results = _results(upstream)
    assert "said-41" in results["toolu_exec0"]
    assert "said-42" in results["toolu_exec1"]


async def test_a_full_context_at_the_provider_is_one_for_codex(codex_program: Path, tmp_path: Path) -> None:
    full = Failure(
        400, {"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000 maximum"}
    )
    async with (
        ToolUpstream((Answer((Words("Answer 1."),), WARM), full)) as upstream,
        gateway_translating(upstream, "anthropic", tmp_path) as gateway_url,
        Codex.install(codex_program, tmp_path / "home", gateway_url).thread() as thread,
    ):
        turns = [await thread.turn("one"), await thread.turn("two")]

    assert [turn.status for turn in turns] == ["completed", "failed"]
    assert turns[1].error is not None
    assert turns[1].error["codexErrorInfo"] == "contextWindowExceeded"
    assert len(upstream.received) == 2


def _exec(number: int, code: str) -> Call:
    """A freeform tool in a namespace, as the provider knows it: one name, one argument."""
    return Call(f"toolu_exec{number}", "functions__exec", json.dumps({"input": code}))


async def _interrupt(thread: CodexThread) -> None:
    """Stop the running turn, as Esc does."""
    turn = thread.notices("turn/started")[-1]["params"]["turn"]
    await thread._call("turn/interrupt", {"threadId": thread.id, "turnId": turn["id"]})


def _results(upstream: ToolUpstream) -> dict[str, str]:
    said = [block for turn in upstream.received[-1].fields["messages"] for block in turn["content"]]
    return {block["tool_use_id"]: json.dumps(block["content"]) for block in said if block["type"] == "tool_result"}


def _block(thought: Thought) -> JsonObject:
    if not thought.text:
        return {"type": "redacted_thinking", "data": thought.seal}
    return {"type": "thinking", "thinking": thought.text, "signature": thought.seal}


def _unmarked(block: JsonObject) -> JsonObject:
    return {name: value for name, value in block.items() if name != "cache_control"}


def _png() -> bytes:
    """One white dot."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    dot = zlib.compress(b"\0\xff\xff\xff")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", dot) + chunk(b"IEND", b"")
