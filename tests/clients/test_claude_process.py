"""One process of the real Claude Code program, driven as the gateway does, before a provider of ours."""

import asyncio
import json
import stat
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from cachegate.errors import UpstreamError
from cachegate.providers.claude_cli.home import SessionHome, private_root, remove_root
from cachegate.providers.claude_cli.launch import Account, Resume, launch
from cachegate.providers.claude_cli.process import ClaudeProcess
from cachegate.wire.hub import Json
from clients.provider_replies import JsonObject
from clients.real_clients import DEADLINE_S
from clients.strict_upstream import Midst, StrictUpstream, Turn
from clients.tool_upstream import Call, Words
from providers.claude_cli.heard import Heard

pytestmark = pytest.mark.clients

MODEL = "claude-opus-5"
SYSTEM = "the caller's own instructions"
KEY = "the-key-that-nobody-sees"
PROMPT = "@/etc/hostname /help go on\u2028and on"
SESSION = "0f0e0d0c-0b0a-4908-8706-050403020100"
TOOLS: tuple[Json, ...] = tuple(
    {"name": name, "description": f"The {name} tool", "inputSchema": {"type": "object", "properties": {}}}
    for name in ("Read", "bash")
)
AT_ONCE: tuple[Json, ...] = tuple({**tool, "annotations": {"readOnlyHint": True}} for tool in TOOLS)
TWO_CALLS = Turn((Call("toolu_1", "Read", '{"path":"a"}'), Call("toolu_2", "bash", "{}")))
DONE = Turn((Words("done"),))
HANGS = Turn((Words("some words of many"),), midst=Midst.HANGS)


def with_key(url: str) -> Account:
    return Account(api_key=KEY, base_url=url)


def with_token(url: str) -> Account:
    return Account(oauth_token=KEY, base_url=url)


class Session:
    """A process with its home and what it told, and the provider that it asks."""

    def __init__(self, home: SessionHome, upstream: StrictUpstream) -> None:
        self.home = home
        self.upstream = upstream
        self.heard = Heard()
        self.process: ClaudeProcess

    async def say(self, *texts: str) -> None:
        await self.process.say([{"type": "text", "text": text} for text in texts], str(uuid4()))

    async def ask(self, *texts: str) -> JsonObject:
        await self.say(*texts)
        return await self.result()

    async def result(self) -> JsonObject:
        async with asyncio.timeout(DEADLINE_S):
            result: JsonObject = await self.heard.until("result")
        return result

    async def give(self, call_id: str, *, is_error: bool = False) -> None:
        await self.process.give(call_id, [{"type": "text", "text": f"of {call_id}"}], is_error=is_error)

    def prompt(self, number: int = -1) -> list[tuple[str, JsonObject]]:
        """Return the blocks of a prompt with their roles, without what marks the cache."""
        messages = self.upstream.inferences[number].fields["messages"]
        return [
            (message["role"], {name: value for name, value in block.items() if name != "cache_control"})
            for message in messages
            for block in message["content"]
        ]


@pytest.fixture(autouse=True)
async def asked_proxy(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[bytes]]:
    """Everything that wanted to leave the machine: the only way out is a proxy that lets nobody through."""
    asked: list[bytes] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readline())
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()[:2]
        for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
            monkeypatch.setenv(name, f"http://{host}:{port}")
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        yield asked


@asynccontextmanager
async def session(
    program: Path,
    script: Sequence[Turn],
    folder: Path,
    *,
    tools: tuple[Json, ...] = TOOLS,
    account: Callable[[str], Account] = with_key,
    seed: Sequence[JsonObject] = (),
) -> AsyncIterator[Session]:
    """Run a process from its beginning, or from a transcript that it goes on with by itself."""
    root = private_root(folder)
    async with StrictUpstream(script, tokens_min=0) as upstream:
        one = Session(SessionHome.create(root), upstream)
        one.home.write_system(SYSTEM)
        resume = None
        if seed:
            one.home.write_transcript(SESSION, seeded(seed, one.home.working_path))
            resume = Resume(SESSION, goes_on=True)
        started = launch(str(program), account(upstream.url), one.home, MODEL, resume)
        one.process = await ClaudeProcess.start(started, tools, one.heard)
        try:
            yield one
        finally:
            one.process.kill()
            await one.process.close()
    remove_root(root)
    assert not root.exists()


def seeded(messages: Sequence[JsonObject], folder: Path) -> list[bytes]:
    """Return messages as the lines of a transcript."""
    lines: list[bytes] = []
    before = None
    for number, message in enumerate(messages):
        own = {"id": f"msg_{number}", "type": "message", "model": MODEL, "stop_sequence": None, "usage": NOTHING}
        line = {
            "parentUuid": before,
            "isSidechain": False,
            "type": message["role"],
            "message": message if message["role"] == "user" else {**own, **message},
            "uuid": (before := str(uuid4())),
            "timestamp": "2026-01-01T00:00:00.000Z",
            "sessionId": SESSION,
            "cwd": str(folder),
        }
        lines.append(json.dumps(line).encode())
    return lines


NOTHING = {"input_tokens": 0, "output_tokens": 0}


def text(words: str) -> JsonObject:
    return {"type": "text", "text": words}


# --- to answer ---


async def test_a_turn_is_one_model_call_of_the_callers_prompt(claude_program: Path, tmp_path: Path) -> None:
    async with session(claude_program, [DONE], tmp_path) as one:
        assert (await one.ask(PROMPT))["subtype"] == "success"
        one.upstream.assert_inferences(1)
        fields = one.upstream.inferences[0].fields
        assert one.prompt() == [("user", text(PROMPT))]
        assert fields["system"][-1]["text"] == SYSTEM
        assert [tool["name"] for tool in fields["tools"]] == ["bash", "Read"]


async def test_calls_wait_one_after_the_other_and_nothing_said_lets_the_model_go_on(
    claude_program: Path, tmp_path: Path
) -> None:
    async with session(claude_program, [TWO_CALLS, DONE], tmp_path) as one:
        await one.say("go")
        await one.heard.until("assistant")
        await one.give("toolu_2", is_error=True)  # its call has not come: the first one waits
        await one.give("toolu_1")
        assert (await one.result())["subtype"] == "error_max_turns"
        one.upstream.assert_inferences(1)
        assert (await one.ask())["subtype"] == "success"
        one.upstream.assert_inferences(2)
        one.upstream.assert_each_extends_the_one_before()
        results = [block for _, block in one.prompt() if block["type"] == "tool_result"]
        assert [(each["tool_use_id"], each.get("is_error", False)) for each in results] == [
            ("toolu_1", False),
            ("toolu_2", True),
        ]
        assert one.prompt()[-1][1] == results[-1], "nothing stands behind the results"


async def test_calls_of_tools_that_only_read_wait_together(claude_program: Path, tmp_path: Path) -> None:
    async with session(claude_program, [TWO_CALLS, DONE], tmp_path, tools=AT_ONCE) as one:
        await one.say("go")
        await one.heard.until("assistant")
        await one.heard.until("assistant")
        await one.give("toolu_2")
        await one.give("toolu_1")
        await one.result()
        await one.ask("and this beside")
        results = [block for _, block in one.prompt() if block["type"] == "tool_result"]
        assert {each["tool_use_id"] for each in results} == {"toolu_1", "toolu_2"}
        assert one.prompt()[-1] == ("user", text("and this beside"))
        one.upstream.assert_inferences(2)


async def test_what_is_soft_is_changed_without_a_model_call(claude_program: Path, tmp_path: Path) -> None:
    async with session(claude_program, [DONE, DONE], tmp_path) as one:
        await one.ask("one")
        await one.process.control("apply_flag_settings", settings={"effortLevel": "low"})
        await one.process.control("set_max_thinking_tokens", max_thinking_tokens=0)
        await one.ask("two")
        one.upstream.assert_inferences(2)
        one.upstream.assert_each_extends_the_one_before()
        assert one.upstream.inferences[1].fields["output_config"]["effort"] == "low"
        with pytest.raises(UpstreamError, match="no_such_request"):
            await one.process.control("no_such_request")


# --- to go on with a transcript ---

PAST: tuple[JsonObject, ...] = (
    {"role": "user", "content": [text("one")]},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_7", "name": "Read", "input": {"path": "a"}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_7", "content": "seven"}]},
)


@pytest.mark.parametrize(
    "end",
    [
        ({"role": "user", "content": []},),
        ({"role": "assistant", "content": [text("so")]}, {"role": "user", "content": [text("two")]}),
    ],
    ids=["result", "text"],
)
async def test_a_seeded_session_goes_on_by_itself(
    claude_program: Path, tmp_path: Path, end: tuple[JsonObject, ...]
) -> None:
    seed = (*PAST, *end)
    async with session(claude_program, [DONE, DONE], tmp_path, seed=seed) as one:
        assert (await one.result())["subtype"] == "success"
        assert one.prompt() == [(message["role"], block) for message in seed for block in message["content"]]
        assert one.upstream.inferences[0].fields["tools"]
        await one.ask("three")
        one.upstream.assert_inferences(2)
        one.upstream.assert_each_extends_the_one_before()


async def test_a_session_goes_back_to_where_all_was_well(claude_program: Path, tmp_path: Path) -> None:
    async with session(claude_program, [DONE, HANGS, DONE], tmp_path) as one:
        first = await one.ask("one")
        await one.say("two")
        await one.upstream.hanging.wait()
        one.process.kill()
        await one.process.close()
        lines = [json.loads(line) for line in one.home.read_transcript(first["session_id"])]
        good = next(line["uuid"] for line in lines if line["type"] == "assistant")
        resume = Resume(first["session_id"], at=good)
        started = launch(str(claude_program), with_key(one.upstream.url), one.home, MODEL, resume)
        one.process = await ClaudeProcess.start(started, TOOLS, one.heard)
        one.heard.forget()
        await one.ask("another")
        one.upstream.assert_inferences(3)
        assert one.prompt() == [("user", text("one")), ("assistant", text("done")), ("user", text("another"))]
        one.upstream.assert_each_extends_the_one_before([one.upstream.inferences[0], one.upstream.inferences[2]])


# --- to end ---


async def test_an_interrupted_answer_is_paid_no_longer_and_the_process_stays(
    claude_program: Path, tmp_path: Path
) -> None:
    async with session(claude_program, [HANGS, DONE], tmp_path) as one:
        await one.say("go")
        await one.upstream.hanging.wait()
        await one.process.interrupt()
        assert one.process.alive, "it is killed when it does not answer within a second"
        async with asyncio.timeout(1):
            await one.upstream.hung_up.wait()
        await one.result()
        await one.ask("again")
        one.upstream.assert_inferences(2)


async def test_an_interrupted_call_is_withdrawn(claude_program: Path, tmp_path: Path) -> None:
    async with session(claude_program, [TWO_CALLS, DONE], tmp_path) as one:
        await one.say("go")
        await one.heard.until("assistant")
        await one.process.control("set_max_thinking_tokens", max_thinking_tokens=0)
        await one.process.interrupt()
        await one.result()
        await one.give("toolu_1")
        one.upstream.assert_inferences(1)
        assert one.process.alive


async def test_a_kill_ends_the_answer_at_once(claude_program: Path, tmp_path: Path) -> None:
    async with session(claude_program, [HANGS], tmp_path) as one:
        await one.say("go")
        await one.upstream.hanging.wait()
        one.process.kill()
        async with asyncio.timeout(1):
            await one.upstream.hung_up.wait()
        await one.heard.until("process.exited")


_GATEWAY = """
import asyncio, sys
from pathlib import Path
sys.path[:0] = sys.argv[1:2]
from clients.test_claude_process import *
async def main(program, url, folder):
    home = SessionHome.create(private_root(Path(folder)))
    home.write_system(SYSTEM)
    process = await ClaudeProcess.start(launch(program, with_key(url), home, MODEL, None), TOOLS, Heard())
    await process.say([text("go")], str(uuid4()))
    await asyncio.Event().wait()
asyncio.run(main(*sys.argv[2:]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent has died")
async def test_an_answer_does_not_outlive_the_gateway(claude_program: Path, tmp_path: Path) -> None:
    async with StrictUpstream([HANGS], tokens_min=0) as upstream:
        tests = str(Path(__file__).parents[1])
        words = (sys.executable, "-c", _GATEWAY, tests, str(claude_program), upstream.url, str(tmp_path))
        gateway = await asyncio.create_subprocess_exec(*words, stdin=DEVNULL, stdout=PIPE)
        async with asyncio.timeout(DEADLINE_S):
            await upstream.hanging.wait()
            gateway.kill()
            await upstream.hung_up.wait()
            await gateway.communicate()


# --- nothing gets out ---


@pytest.mark.parametrize("account", [with_key, with_token])
async def test_no_other_host_is_asked(
    claude_program: Path, tmp_path: Path, asked_proxy: list[bytes], account: Callable[[str], Account]
) -> None:
    async with session(claude_program, [DONE, TWO_CALLS, DONE], tmp_path, account=account) as one:
        await one.ask("one")
        await one.say("two")
        for call_id in ("toolu_1", "toolu_2"):
            await one.give(call_id)
        await one.result()
        await one.ask()
        one.upstream.assert_inferences(3)
        one.upstream.assert_each_extends_the_one_before()
        headers = one.upstream.inferences[0].received.headers
        assert KEY in (headers.get("x-api-key", ""), headers.get("authorization", "").removeprefix("Bearer "))
    assert asked_proxy == []


def command_line(pid: int) -> str:
    """Return what everybody on the machine can read of a process."""
    return Path(f"/proc/{pid}/cmdline").read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
@pytest.mark.parametrize("account", [with_key, with_token])
async def test_neither_key_nor_prompt_can_be_seen_from_outside(
    claude_program: Path, tmp_path: Path, account: Callable[[str], Account]
) -> None:
    async with session(claude_program, [DONE], tmp_path, account=account) as one:
        await one.ask(PROMPT)
        words = command_line(one.process.pid)
        assert MODEL in words
        assert not any(secret in words for secret in (KEY, PROMPT, SYSTEM))
        folders = [one.home.path, one.home.path.parent, *one.home.path.glob("*/")]
        assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}
        written = [path for path in one.home.path.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
        assert written == []
        await one.process.close()
        one.home.remove()
        assert not one.home.path.exists()
