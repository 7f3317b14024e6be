"""A supervised gateway as its own processes, with what a test asks of it within reach."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from cachegate.server.supervisor_socket import ask
from gateway_program import START_S

WAIT_S = 30.0
"""How long anything is waited for before the test fails: a busy machine, and no figure of ours."""
CONFIG = "listen: 127.0.0.1:0\nproviders: {synthetic: {kind: synthetic, paceSeconds: 0.2}}\n"

Found = TypeVar("Found")


@dataclass(slots=True)
class SupervisedProgram:
    """A started gateway, its configuration on disk and its log so far."""

    process: asyncio.subprocess.Process
    port: int
    config: Path
    environ: dict[str, str]
    log: list[str] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def listen(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def directory(self) -> Path:
        return Path(self.environ["XDG_RUNTIME_DIR"]) / "cachegate" / f"127.0.0.1-{self.port}"

    async def command(self, *words: str) -> tuple[int, str, str]:
        """Run another command of the gateway; returns its exit code and what it printed."""
        program = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "cachegate", *words, "--listen", self.listen,
            env=self.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        out, err = await asyncio.wait_for(program.communicate(), 2 * WAIT_S)
        return program.returncode or 0, out.decode(), err.decode()

    async def upgrade(self) -> tuple[bool, str]:
        """Ask as `cachegate upgrade` does, without the half second that its own start takes."""
        answer = await asyncio.to_thread(ask, self.directory, "upgrade")
        return answer.done, answer.words

    async def status(self) -> dict[str, Any]:
        """Ask as `cachegate status` does."""
        return (await asyncio.to_thread(ask, self.directory, "status")).status

    async def workers(self, phase: str = "serving") -> list[int]:
        """Process ids of the workers in a phase."""
        return [worker["pid"] for worker in (await self.status())["workers"] if worker["phase"] == phase]

    async def stop(self, signal_number: int = signal.SIGTERM) -> int:
        self.process.send_signal(signal_number)
        return await asyncio.wait_for(self.process.wait(), WAIT_S)

    async def logged(self, *words: str) -> str:
        """Wait for a line of the log that holds all the words."""

        async def found() -> str | None:
            return next((line for line in self.log if all(word in line for word in words)), None)

        return await until(found, f"{words} in the log {self.log}")


async def until(ask: Callable[[], Awaitable[Found | None]], what: str) -> Found:
    """Ask until there is an answer; fail after `WAIT_S`."""
    try:
        async with asyncio.timeout(WAIT_S):
            while not (answer := await ask()):  # noqa: ASYNC110 -- other processes set no event
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"waited {WAIT_S} s in vain for {what}") from None
    return answer


@contextmanager
def short_runtime_directory() -> Iterator[str]:
    """A socket's address has some hundred bytes; the folders that pytest makes are longer."""
    with tempfile.TemporaryDirectory(prefix="cg-") as folder:
        yield folder


@asynccontextmanager
async def supervised_program(
    folder: Path, config: str = CONFIG, *flags: str, **environ: str
) -> AsyncIterator[SupervisedProgram]:
    """Start `cachegate serve` and wait until it serves; afterwards nothing of it runs any more."""
    path = folder / "gateway.yaml"
    path.write_text(config)
    with short_runtime_directory() as runtime:
        environment = {**os.environ, "XDG_RUNTIME_DIR": runtime, **environ}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "cachegate", "serve", "--config", str(path), *flags,
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, limit=1 << 20, start_new_session=True,
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        program = SupervisedProgram(process, 0, path, environment)
        readers = [
            asyncio.create_task(_keep(process.stdout, program.printed)),
            asyncio.create_task(_keep(process.stderr, program.log)),
        ]
        try:
            program.port = await asyncio.wait_for(_port(program), START_S)
            yield program
        finally:
            with suppress(ProcessLookupError):
                process.kill()  # the workers see that their supervisor is gone
            await process.wait()
            await asyncio.wait_for(asyncio.gather(*readers), WAIT_S)


async def _port(program: SupervisedProgram) -> int:
    async def found() -> str | None:
        assert program.process.returncode is None, program.log
        greeted = any(line.startswith("  SDKs") for line in program.printed)
        return program.printed[0].split("//", 1)[1].split()[0] if greeted else None

    return int((await until(found, "the greeting")).rpartition(":")[2])


async def _keep(stream: asyncio.StreamReader, lines: list[str]) -> None:
    """Keep what is written until the last process that could write is gone."""
    while line := await stream.readline():
        lines.append(line.decode().rstrip("\n"))
