"""What the self-test concludes from the calls that a program made; `tests/clients/test_doctor.py` runs a real one."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

import pytest

from cachegate.errors import UpstreamError
from cachegate.providers.claude_cli import self_test
from cachegate.providers.claude_cli.process import EXITED
from cachegate.providers.claude_cli.self_test import (
    MODEL,
    STEPPED,
    WHOLE,
    SelfTestFailed,
    adds_nothing,
    as_written,
    nobody_else,
    one_call_each,
    only_grows,
    passed_on,
    request,
)
from cachegate.wire.codecs import CODECS
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import Item, Message, Role, Target, Text
from cachegate.wire.usage_readings import Fields

REMINDER = Message(Role.USER, (Text("<system-reminder>Today is Monday.</system-reminder>"),))
FIRST = STEPPED[:1]


def call(*items: Item, tools: bool = True, stamp: str = "") -> bytes:
    """The body of a call as a program makes it."""
    asked = replace(request(items), tools=request(items).tools if tools else ())
    asked = replace(
        asked, instructions=(Text("I am an agent."), *asked.instructions, *((Text(stamp),) if stamp else ()))
    )
    return CODECS[Protocol.MESSAGES].render_request(asked, Target(MODEL, "doctor"))


GOOD = (call(*FIRST), call(*STEPPED), call(*WHOLE))
WITH_REMINDERS = tuple(call(REMINDER, *items) for items in (FIRST, STEPPED, WHOLE))
Step = Callable[[Sequence[bytes]], str]
LIVE: tuple[Step, ...] = (one_call_each, only_grows, adds_nothing, passed_on)


@pytest.mark.parametrize("asked", [GOOD, WITH_REMINDERS])
def test_a_good_program_passes(asked: Sequence[bytes]) -> None:
    assert [step(asked) for step in LIVE] == [
        "3 requests, 3 calls",
        "1 < 3 < 5 turns",
        "an answer and a message, nothing else",
        "an answer and a message, nothing else",
    ]
    assert as_written(GOOD[1:2]) == "3 turns, with thoughts, a call and its result"
    assert nobody_else([])


@pytest.mark.parametrize(
    ("step", "asked", "words"),
    [
        pytest.param(one_call_each, (*GOOD, GOOD[2]), "3 requests made 4 model calls", id="a call of its own"),
        pytest.param(one_call_each, GOOD[:2], "3 requests made 2 model calls", id="no call"),
        pytest.param(only_grows, (GOOD[0], call(REMINDER, *STEPPED)), "a turn should be ", id="a word in front"),
        pytest.param(only_grows, (GOOD[1], GOOD[0]), "a turn should be .*, and is None", id="a shorter prompt"),
        pytest.param(only_grows, (GOOD[0], GOOD[0]), "call 2 says nothing new", id="the same again"),
        pytest.param(
            only_grows, (GOOD[0], call(*STEPPED, stamp="12:00")), "call 2 has other instructions", id="instructions"
        ),
        pytest.param(only_grows, (GOOD[0], call(*STEPPED, tools=False)), "call 2 has other instr", id="tools"),
        pytest.param(only_grows, (GOOD[0], b"{}"), "a call is none that we can read", id="unreadable"),
        pytest.param(adds_nothing, (GOOD[0], call(*STEPPED, REMINDER)), "Today is Monday", id="a word behind"),
        pytest.param(
            passed_on, (*GOOD[:2], call(*WHOLE[:-1], REMINDER)), "a turn should be .*/help me", id="a command"
        ),
        pytest.param(as_written, GOOD[1:], "2 model calls instead of going on", id="going on twice"),
        pytest.param(as_written, (), "0 model calls instead of going on", id="not going on"),
        pytest.param(as_written, WITH_REMINDERS[1:2], "Today is Monday", id="a history with more"),
        pytest.param(as_written, (call(*STEPPED, tools=False),), "the tools should be .*look", id="without tools"),
        pytest.param(
            as_written, (call(*STEPPED, stamp="12:00"),), "the instructions should end with ours.*12:00", id="a stamp"
        ),
    ],
)
def test_what_differs_is_told(step: Step, asked: Sequence[bytes], words: str) -> None:
    with pytest.raises(SelfTestFailed, match=words):
        step(asked)


def test_other_addresses_are_named() -> None:
    with pytest.raises(SelfTestFailed, match=r"asked for HEAD /api/hello, CONNECT api\.example\.com:443"):
        nobody_else(["HEAD /api/hello", "CONNECT api.example.com:443"])


def test_what_is_shown_stays_short() -> None:
    long = Message(Role.USER, (Text("x" * 5_000),))
    with pytest.raises(SelfTestFailed) as failed:
        adds_nothing((GOOD[0], call(*STEPPED, long)))
    assert len(str(failed.value)) < 1_000


def test_thoughts_belong_to_what_is_compared() -> None:
    body = json.loads(GOOD[1])
    body["messages"][1]["content"][0]["signature"] = "b3RoZXI="
    with pytest.raises(SelfTestFailed, match="a turn should be"):
        as_written((json.dumps(body).encode(),))


async def test_a_program_that_is_missing_is_said_to_be(tmp_path: Path) -> None:
    said: list[str] = []
    with pytest.raises(UpstreamError, match="was not found at"):
        await self_test.self_test(str(tmp_path / "claude"), said.append)
    assert said == []


@pytest.fixture
def program(tmp_path: Path) -> str:
    """It says a version, and nothing else."""
    path = tmp_path / "claude"
    path.write_text('#!/bin/sh\n[ "$1" = --version ] && echo 9.8.7\n')
    path.chmod(0o755)
    return str(path)


async def test_a_version_that_was_never_tried_is_named(program: str) -> None:
    said: list[str] = []
    with pytest.raises(UpstreamError, match="began no session"):
        await self_test.self_test(program, said.append)
    assert said[0] == f"Claude Code 9.8.7, {program}"
    assert said[1].startswith("Warning: Claude Code 9.8.7 has not been tried")


class Mortal:
    """A process that is gone before it has answered; it says so itself, or when it is spoken to."""

    def __init__(self, *, spoken_to: bool) -> None:
        self.spoken_to = spoken_to
        self.closed = False

    async def start(self, _launch: object, _tools: object, listener: Callable[[Fields], None]) -> Self:
        listener({"type": "system"})
        listener(EXITED)
        return self

    async def give(self, call_id: str, _content: object, *, is_error: bool) -> None:
        assert not is_error
        if self.spoken_to:
            raise UpstreamError(f"{call_id} came too late")

    async def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(("spoken_to", "words"), [(False, "ended in the midst"), (True, "toolu_doctor came too late")])
async def test_a_process_that_dies_is_a_failure(
    program: str, monkeypatch: pytest.MonkeyPatch, spoken_to: bool, words: str
) -> None:
    process = Mortal(spoken_to=spoken_to)
    monkeypatch.setattr(self_test, "ClaudeProcess", process)
    with pytest.raises(SelfTestFailed, match=words):
        await self_test.self_test(program, print)
    assert process.closed
