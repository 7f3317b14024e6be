"""`cachegate doctor` with the real Claude Code: what it sees, and that it sees a program that goes wrong."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from cachegate.errors import UpstreamError
from cachegate.providers.claude_cli import self_test
from cachegate.providers.claude_cli.launch import Launch, launch


def test_it_sees_everything_that_live_sessions_rest_on(claude_program: Path, tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "cachegate", "doctor", "--program", str(claude_program)]

    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    first, *steps, last = done.stdout.splitlines()
    assert first.startswith("Claude Code 2.")
    assert first.endswith(f", {claude_program}")
    assert len(steps) == 10
    assert all(step.startswith("  ok  ") for step in steps)
    assert last == "Live sessions work with this program."
    assert list(tmp_path.iterdir()) == [], "nothing stays behind"


Change = Callable[[Launch], Launch]


def without(*names: str) -> Change:
    return lambda started: replace(
        started, environ={name: value for name, value in started.environ.items() if name not in names}
    )


def with_arguments(*words: str) -> Change:
    return lambda started: replace(started, arguments=(*started.arguments, *words))


LOUD = without("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_TELEMETRY")
WITH_KEY, WITH_SUBSCRIPTION, WITH_HISTORY = 1, 2, 3
"""The processes that are started, in order; one of them is started in another way than it should be."""
CHANGES: dict[str, tuple[int, Change, str]] = {
    "hidden call": (
        WITH_KEY,
        without("CLAUDE_CODE_DISABLE_REFUSAL_FALLBACK", "CLAUDE_CODE_DISABLE_REFUSAL_RETRY"),
        "with a key: one model call for each request: 3 requests made 4 model calls",
    ),
    "other addresses": (WITH_SUBSCRIPTION, LOUD, "the program asked for CONNECT api.anthropic.com:443"),
    "other addresses later": (WITH_HISTORY, LOUD, "the program asked for CONNECT api.anthropic.com:443"),
    "other tools": (
        WITH_SUBSCRIPTION,
        without("CLAUDE_AGENT_SDK_MCP_NO_PREFIX"),
        "with a subscription: nothing is added to a tool's result: a turn should be ",
    ),
    "no going on": (
        WITH_HISTORY,
        lambda started: replace(started, environ={**started.environ, "CLAUDE_CODE_RESUME_INTERRUPTED_TURN": "0"}),
        "the program did not end its turn within 2 s",
    ),
    "no process": (WITH_KEY, with_arguments("--no-such-option"), "began no session"),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_it_sees_a_program_that_goes_wrong(
    claude_program: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    changed_one, change, words = CHANGES[name]
    numbers = count(1)

    def changed(*arguments: Any) -> Launch:
        started = launch(*arguments)
        return change(started) if next(numbers) == changed_one else started

    monkeypatch.setattr(self_test, "launch", changed)
    if name == "no going on":
        monkeypatch.setattr(self_test, "TURN_S", 2.0)
    said: list[str] = []

    with pytest.raises((self_test.SelfTestFailed, UpstreamError)) as failed:
        await self_test.self_test(str(claude_program), said.append)

    assert words in str(failed.value), said
