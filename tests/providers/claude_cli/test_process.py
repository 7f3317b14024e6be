import asyncio
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cachegate.errors import UpstreamError
from cachegate.providers.claude_cli import process as process_module
from cachegate.providers.claude_cli.launch import Launch
from cachegate.providers.claude_cli.process import EXITED, ClaudeProcess
from providers.claude_cli.heard import Heard

PROGRAM = Path(__file__).with_name("fake_program.py")
TOOL = {"name": "Read", "description": "reads", "inputSchema": {"type": "object"}, "_meta": {"most": 5}}
ANSWER = [{"type": "text", "text": "the result"}]


def told(beginning: str = "", folder: Path = PROGRAM.parent) -> Launch:
    return Launch(sys.executable, (str(PROGRAM), beginning), {"PATH": os.environ["PATH"]}, folder)


@asynccontextmanager
async def running() -> AsyncIterator[tuple[ClaudeProcess, Heard]]:
    heard = Heard()
    process = await ClaudeProcess.start(told(), (TOOL,), heard)
    try:
        yield process, heard
    finally:
        process.kill()
        await process.close()
    assert heard.all.count(EXITED) == 1
    assert heard.all[-1] is EXITED


async def do(process: ClaudeProcess, what: str) -> None:
    await process.say([{"type": "text", "text": what}], "m1")


def signals_sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the signals that will have been sent."""
    sent: list[int] = []
    killpg = os.killpg

    def send(group: int, number: int) -> None:
        sent.append(number)
        killpg(group, number)

    monkeypatch.setattr(os, "killpg", send)
    return sent


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def seen_from_outside(pid: int) -> tuple[Path, list[str]]:
    """Return a process's folder and its command line, as Linux tells everybody."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().removesuffix("\0")
    return Path(f"/proc/{pid}/cwd").resolve(), words.split("\0")


# --- to start ---


async def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    unfit = tmp_path / "unfit"
    unfit.touch()
    for program in ("no-such-program", str(tmp_path / "none"), str(unfit)):
        with pytest.raises(UpstreamError, match=rf"{Path(program).name}.*FileNotFoundError.*configure"):
            await ClaudeProcess.start(Launch(program, (), {}, tmp_path), (), Heard())


@pytest.mark.parametrize("beginning", ["exit", "refuse"])
async def test_a_program_that_begins_no_session_is_ended(beginning: str) -> None:
    heard = Heard()
    with pytest.raises(UpstreamError, match="began no session"):
        await ClaudeProcess.start(told(beginning), (), heard)
    assert heard.all == [EXITED]


async def test_a_program_that_stays_silent_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "START_S", 0.05)
    os.mkfifo(tmp_path / "pipe")
    heard = Heard()
    with pytest.raises(UpstreamError, match=r"did not answer `initialize` within 0\.05 s"):
        await ClaudeProcess.start(told(f"deaf-to:{tmp_path / 'pipe'}"), (), heard)
    assert heard.all == [EXITED]


async def test_a_start_that_is_cancelled_leaves_no_program_behind(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    starting = asyncio.create_task(ClaudeProcess.start(told(f"deaf-to:{pipe}"), (), Heard()))
    pid = int(await asyncio.to_thread(pipe.read_text))
    assert not is_gone(pid)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert is_gone(pid)


async def test_it_works_in_its_folder_and_signals_for_the_gateway_are_none_for_it(tmp_path: Path) -> None:
    process = await ClaudeProcess.start(told(folder=tmp_path), (), Heard())
    assert (process.alive, os.getpgid(process.pid)) == (True, process.pid)
    if sys.platform == "linux":
        folder, words = seen_from_outside(process.pid)
        assert folder == tmp_path
        assert words[1:] == [str(PROGRAM), ""]
    await process.close()


# --- to speak and to hear ---


async def test_what_is_said_arrives_and_every_event_is_heard_in_order() -> None:
    async with running() as (process, heard):
        await do(process, "repeat Ä\u2028")
        said = (await heard.until("result"))["said"]
        assert said["message"]["content"] == [{"type": "text", "text": "repeat Ä\u2028"}]
        assert said["uuid"] == "m1"
        await do(process, "count 2000")
        await heard.until("result")
        assert [each["number"] for each in heard.all if each["type"] == "counted"] == list(range(2000))


async def test_nothing_is_said_where_only_the_model_shall_go_on() -> None:
    async with running() as (process, heard):
        await process.say([], "m1")
        assert (await heard.until("result"))["blocks"] == []


async def test_lines_may_be_long_and_may_be_none() -> None:
    async with running() as (process, heard):
        await do(process, "garble")
        await heard.until("result")
        await do(process, f"grow {3_000_000}")
        assert len((await heard.until("result"))["text"]) == 3_000_000


async def test_a_line_without_an_end_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "LINE_BYTES_MAX", 1_000)
    monkeypatch.setattr(process_module, "FAREWELL_S", 3_600.0)
    async with running() as (process, heard):
        await do(process, "grow 100000")
        await heard.until("process.exited")
        assert not process.alive


async def test_what_it_complains_of_neither_stops_it_nor_is_kept(capfd: pytest.CaptureFixture[str]) -> None:
    async with running() as (process, heard):
        await do(process, "complain 1000000")
        await heard.until("result")
    assert capfd.readouterr() == ("", "")


async def test_a_control_request_is_answered_or_refused() -> None:
    async with running() as (process, _heard):
        thinking, flags = await asyncio.gather(
            process.control("set_max_thinking_tokens", max_thinking_tokens=None),
            process.control("apply_flag_settings", settings={"effortLevel": "low"}),
        )
        assert thinking == {"subtype": "set_max_thinking_tokens", "max_thinking_tokens": None}
        assert flags == {"subtype": "apply_flag_settings", "settings": {"effortLevel": "low"}}
        with pytest.raises(UpstreamError, match="refused `be_refused`: no such thing"):
            await process.control("be_refused")
        assert process.alive


async def test_who_waits_for_an_answer_learns_that_none_will_come() -> None:
    async with running() as (process, _heard):
        with pytest.raises(UpstreamError, match="has ended"):
            await process.control("end")
    async with running() as (process, heard):
        await do(process, "be-deaf")
        await heard.until("deaf")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(process.control("anything"), 0.01)
        assert process.alive, "who does not wait any longer has not ended it"


# --- the caller's tools ---


async def test_the_tools_are_offered_as_they_are() -> None:
    async with running() as (process, heard):
        await do(process, "ask-tools")
        greeting, notice, listed = (await heard.until("result"))["answers"]
        assert greeting["result"]["protocolVersion"] == "1"
        assert notice == {"jsonrpc": "2.0", "result": {}}
        assert listed == {"jsonrpc": "2.0", "id": 1, "result": {"tools": [TOOL]}}


async def test_a_call_waits_for_its_result() -> None:
    async with running() as (process, heard):
        await do(process, "call t1")
        await process.control("anything")  # its answer comes after the call
        assert [each["type"] for each in heard.all] == []
        await process.give("t1", ANSWER, is_error=False)
        assert (await heard.until("result"))["results"] == [{"content": ANSWER, "isError": False}]


@pytest.mark.parametrize("order", [("t1", "t2", "t3"), ("t3", "t2", "t1")])
@pytest.mark.parametrize("how", ["call", "call-all"])
async def test_results_come_in_any_order_also_before_their_calls(how: str, order: tuple[str, ...]) -> None:
    async with running() as (process, heard):
        await do(process, f"{how} t1 t2 t3")
        for call_id in order:
            await process.give(call_id, [{"type": "text", "text": call_id}], is_error=call_id == "t2")
        results = (await heard.until("result"))["results"]
        given = results if how == "call" else [results[call_id] for call_id in ("t1", "t2", "t3")]
        assert [(result["content"][0]["text"], result["isError"]) for result in given] == [
            ("t1", False),
            ("t2", True),
            ("t3", False),
        ]
        assert (process._calls, process._results) == ({}, {})


async def test_a_withdrawn_call_gets_no_result() -> None:
    async with running() as (process, heard):
        await do(process, "withdraw t1")
        await heard.until("result")
        await process.give("t1", ANSWER, is_error=False)
        await do(process, "repeat")
        await heard.until("result")
        assert "astray" not in [each["type"] for each in heard.all]


async def test_a_strange_question_is_refused() -> None:
    async with running() as (process, heard):
        await do(process, "ask-strangely")
        [answer] = (await heard.until("result"))["answers"]
        assert answer["subtype"] == "error"


# --- to end ---


async def test_an_interrupted_process_stays_usable() -> None:
    async with running() as (process, heard):
        await process.interrupt()
        await do(process, "repeat")
        await heard.until("result")
        assert process.alive


async def test_a_process_that_cannot_be_interrupted_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "INTERRUPT_S", 0.05)
    async with running() as (process, heard):
        await do(process, "be-deaf")
        await heard.until("deaf")
        await process.interrupt()
        assert not process.alive
        await heard.until("process.exited")
        assert is_gone(process.pid)


async def test_a_kill_is_sent_before_anything_else_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = signals_sent(monkeypatch)
    async with running() as (process, heard):
        process.kill()
        assert (sent, process.alive) == ([signal.SIGKILL], False)
        with pytest.raises(UpstreamError, match="has ended"):
            await process.say([], "m1")
        await heard.until("process.exited")
        process.kill()
        assert sent.count(signal.SIGKILL) == len(sent)


async def test_to_one_who_is_gone_nothing_can_be_said() -> None:
    async with running() as (process, heard):
        await do(process, "exit")
        await heard.until("process.exited")
        assert not process.alive
        for saying in (process.say([], "m2"), process.control("anything"), do(process, "repeat")):
            with pytest.raises(UpstreamError, match="has ended"):
                await saying
        await process.interrupt()


async def test_who_speaks_when_it_goes_learns_it() -> None:
    async with running() as (process, heard):
        await do(process, "be-deaf")
        await heard.until("deaf")
        saying = asyncio.create_task(do(process, "x" * 1_000_000))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(saying), 0)
        process.kill()
        with pytest.raises(UpstreamError, match="has ended"):
            await saying


async def test_a_closed_process_goes_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    signals = signals_sent(monkeypatch)
    heard = Heard()
    process = await ClaudeProcess.start(told(), (), heard)
    await process.close()
    assert heard.all == [EXITED]
    assert is_gone(process.pid)
    assert signals == []
    await process.close()
    assert heard.all == [EXITED]


@pytest.mark.parametrize("how", ["be-deaf", "be-deaf stubborn"])
async def test_a_process_that_does_not_go_is_told_to_and_made_to(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "FAREWELL_S", 0.05 if "stubborn" in how else 0.5)
    signals = signals_sent(monkeypatch)
    heard = Heard()
    process = await ClaudeProcess.start(told(), (), heard)
    await do(process, how)
    await heard.until("deaf")
    await process.close()
    assert is_gone(process.pid)
    assert signals[0] == signal.SIGTERM
    assert (signal.SIGKILL in signals) == ("stubborn" in how)


async def test_a_close_that_is_cancelled_ends_it_at_once() -> None:
    async with running() as (process, heard):
        await do(process, "be-deaf stubborn")
        await heard.until("deaf")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(process.close(), 0.01)
        await heard.until("process.exited")
        assert is_gone(process.pid)


_GATEWAY = """
import asyncio, sys
sys.path[:0] = sys.argv[1:]
from providers.claude_cli.test_process import ClaudeProcess, Heard, do, told
async def main():
    heard = Heard()
    process = await ClaudeProcess.start(told(), (), heard)
    await do(process, "be-deaf stubborn")
    await heard.until("deaf")
    print(process.pid, flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent has died")
def test_a_process_dies_with_its_gateway() -> None:
    gateway = subprocess.Popen(
        (sys.executable, "-c", _GATEWAY, str(PROGRAM.parents[2])), stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    assert gateway.stdout is not None
    child = os.pidfd_open(json.loads(gateway.stdout.readline()))
    try:
        gateway.kill()
        gateway.communicate()
        ended, _, _ = select.select([child], [], [], 30)
        assert ended == [child]
    finally:
        os.close(child)
