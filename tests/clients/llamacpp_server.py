"""A real llama.cpp server with a tiny model, and what its slots say of themselves."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from clients.tiny_model import BABBLES, CONTEXT_TOKENS, Script, write_tiny_model

PROGRAM = Path(__file__).with_name("llamacpp_program.py")
PATIENCE_S = 60.0
"""Far beyond what anything here takes; a condition that does not come is a failure, not a hang."""


def missing_llamacpp() -> str:
    """Return why there is no server here; "" where there is one."""
    tried = subprocess.run([sys.executable, "-c", "import xllamacpp"], capture_output=True, text=True, check=False)
    return tried.stderr.strip().rpartition("\n")[2]


@dataclass(frozen=True, slots=True)
class Setup:
    """What kind of server a test wants."""

    slots: int = 1
    """How many requests it works on at once. Several share one context."""
    context_tokens: int = CONTEXT_TOKENS
    script: Script = field(default_factory=lambda: BABBLES)
    """How its model goes on."""


@dataclass(frozen=True, slots=True)
class LlamaCpp:
    """A running server."""

    url: str
    context_tokens: int

    async def forget(self) -> None:
        """Use its slot for a prompt that begins otherwise, past any gateway; where there is one, once it is free."""
        body = {"prompt": "Something else altogether.", "n_predict": 1}
        async with (
            asyncio.timeout(PATIENCE_S),
            aiohttp.ClientSession() as http,
            http.post(f"{self.url}/completion", json=body) as response,
        ):
            assert response.status == 200, await response.text()

    async def busy(self) -> None:
        """Wait until a slot has begun to answer."""
        async with asyncio.timeout(PATIENCE_S), aiohttp.ClientSession() as http:
            while True:
                async with http.get(f"{self.url}/slots") as response:
                    if any(_answering(slot) for slot in await response.json()):
                        return

    async def decoded(self) -> int:
        """Return how often the model ran so far."""
        async with aiohttp.ClientSession() as http, http.get(f"{self.url}/metrics") as response:
            (line,) = [line for line in (await response.text()).splitlines() if line.startswith("llamacpp:n_decode_")]
        return int(line.split()[-1])


def _answering(slot: Any) -> bool:
    return bool(slot["is_processing"] and slot["next_token"][0]["n_decoded"])


StartLlamaCpp = Callable[[Setup], LlamaCpp]
"""Starts a server that runs as long as the tests of a module."""


@contextmanager
def llamacpp_server(folder: Path, setup: Setup) -> Iterator[LlamaCpp]:
    """Write the model, start the server on a free port and end it again. Its log is left in `folder`."""
    model, log = folder / "tiny.gguf", folder / "llamacpp.log"
    write_tiny_model(model, setup.script)
    settings = json.dumps({"model": str(model), "context_tokens": setup.context_tokens, "slots": setup.slots})
    command = [sys.executable, str(PROGRAM), settings]
    with (
        log.open("wb") as errors,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        assert process.stdout is not None
        try:
            url = process.stdout.readline().decode().strip()
            assert url, log.read_text("utf-8", "replace")
            yield LlamaCpp(url, setup.context_tokens)
        finally:
            process.kill()
