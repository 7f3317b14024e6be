"""The installed clients. Without them a test is skipped, but never where CI would take the silence for success."""

import os
from pathlib import Path

import pytest

from clients.real_clients import claude_binary, codex_binary


@pytest.fixture
def codex_program() -> Path:
    return _installed(codex_binary(), "Codex")


@pytest.fixture
def claude_program() -> Path:
    return _installed(claude_binary(), "Claude Code")


def _installed(program: Path | None, name: str) -> Path:
    if program is not None:
        return program
    reason = f"{name} is not installed: run `npm ci --prefix tests/clients/npm`"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
