"""The gateway under verification: an isolated one with embedded inference, asked for its own records."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from cache_recovery.steps import Blame, Decided, Heard
from clients.gateway_in_front import recent_records
from gateway_program import GatewayProgram, gateway_program

_CONFIG = """\
listen: 127.0.0.1:{port}
providers: {{synthetic: {{kind: synthetic}}}}
models: {{"claude-*": synthetic/{model}, "gpt-*": synthetic/{model}}}
"""
_MODELS = {Blame.MEASURED: "cold", Blame.UNREPORTED: "unreported"}
_RECORD_S = 10.0
"""A record is made when the answer has ended, a moment after the client has it."""
_LOOK_S = 0.02
_COMMAND_S = 60.0


@dataclass(frozen=True, slots=True)
class Build:
    """An installed package of the gateway."""

    python: Path

    async def knows(self, command: str) -> bool:
        """Whether its command line has a command."""
        _, told = await self.run("--help")
        return any(word == command for word in told.replace("│", " ").split())

    async def has(self, module: str) -> bool:
        """Whether it holds a module."""
        code, _ = await self._run("-c", f"import {module}")
        return code == 0

    async def run(self, *words: str) -> tuple[int, str]:
        """Run a command of it that ends by itself, and return its exit code and what it said."""
        return await self._run("-m", "cachegate", *words)

    async def _run(self, *words: str) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            str(self.python), "-P", *words,
            env=gateway_environment(), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        try:
            told, _ = await asyncio.wait_for(process.communicate(), _COMMAND_S)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return process.returncode or 0, told.decode(errors="replace")


class Running:
    """A started gateway; every look at its records tells the new ones."""

    def __init__(self, build: Build, program: GatewayProgram, config: Path) -> None:
        self._build = build
        self._config = config
        self._told = 0
        self.url = program.url

    async def decided(self, *, some: bool) -> tuple[Decided, ...]:
        """Return the records since the last look; where there must be `some`, wait for one."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + (_RECORD_S if some else 0)
        records = await recent_records(self.url)
        while len(records) <= self._told and loop.time() < deadline_s:
            await asyncio.sleep(_LOOK_S)
            records = await recent_records(self.url)
        new, self._told = records[self._told :], len(records)
        names = ("key", "mode", "outcome", "reason", "inputTokens")
        return tuple(Decided(*(record[name] for name in names)) for record in new)

    async def reload(self) -> Heard:
        """Reload it in place, as a person does after an upgrade of the package."""
        code, told = await self._build.run("upgrade", "--config", str(self._config))
        return Heard(code == 0, told.strip())


@asynccontextmanager
async def running(build: Build, blame: Blame, folder: Path) -> AsyncIterator[Running]:
    """Run a gateway whose only provider is embedded and never reads its cache, or says nothing of it."""
    config = _CONFIG.format(port=_free_port(), model=_MODELS[blame])
    environment = gateway_environment()
    async with gateway_program(config, folder, python=str(build.python), environment=environment) as program:
        try:
            yield Running(build, program, folder / "gateway.yaml")
        finally:
            _, out, err = await program.stop(signal.SIGTERM)
            (folder / "gateway.log").write_text(out + err, "utf-8")


def gateway_environment() -> dict[str, str]:
    """Return our own environment without what leads to the verification's modules."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def _free_port() -> int:
    """Return a port that is free now: to be found by its other commands, a gateway has to have one of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
