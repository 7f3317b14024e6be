"""The installed clients, and the server of llama.cpp.

Without them a test is skipped, but never where CI would take the silence for success.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

import pytest

from clients.llamacpp_server import StartLlamaCpp, llamacpp_server, missing_llamacpp
from clients.real_clients import claude_binary, codex_binary, copilot_binary


@pytest.fixture
def codex_program() -> Path:
    return codex_binary() or _missing("Codex is not installed: run `npm ci --prefix tests/clients/npm`")


@pytest.fixture
def claude_program() -> Path:
    return claude_binary() or _missing("Claude Code is not installed: run `npm ci --prefix tests/clients/npm`")


@pytest.fixture
def copilot_program() -> Path:
    return copilot_binary() or _missing("Copilot's CLI is not installed: run `npm ci --prefix tests/clients/npm`")


@pytest.fixture(scope="module")
def start_llamacpp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartLlamaCpp]:
    if why := missing_llamacpp():
        _missing(f"llama.cpp's server cannot be loaded ({why}): it is in the lock, and wants Debian's libgomp1")
    with ExitStack() as running:
        yield lambda setup: running.enter_context(llamacpp_server(tmp_path_factory.mktemp("llamacpp"), setup))


def _missing(reason: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
