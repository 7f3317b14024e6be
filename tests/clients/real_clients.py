"""The real coding agents: where npm put them, and how to run one so that it meets nothing but the gateway.

Every run gets a home of its own, dummy keys and a proxy that refuses every connection, because a test that reaches
for a vendor's host, or for the settings of the person who runs it, tests something else each time.
"""

import asyncio
import json
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self

JsonObject = dict[str, Any]

_MODULES = Path(__file__).with_name("npm") / "node_modules"
_REFUSING_PROXY = "http://127.0.0.1:1"
_LINE_BYTES_MAX = 64 * 1024 * 1024
DEADLINE_S = 30.0
"""How long one step of a client may take. They need one or two seconds; the rest is for a busy machine."""
_FAREWELL_S = 10.0


def codex_binary() -> Path | None:
    """Return the native program: Node's wrapper would sit between the test and the process it wants to kill."""
    return _only_file("@openai/codex-*/vendor/*/bin/codex")


def claude_binary() -> Path | None:
    """Return the native program, which runs without Node (the npm wrapper wants a newer one than many have)."""
    return _only_file("@anthropic-ai/claude-code-*/claude")


def copilot_binary() -> Path | None:
    """Return the native program; the package without a platform in its name only finds it."""
    return _only_file("@github/copilot-*/copilot")


def _only_file(pattern: str) -> Path | None:
    """Npm installs the package of this platform only, so the pattern names one file or none."""
    return next((found for found in sorted(_MODULES.glob(pattern)) if os.access(found, os.X_OK)), None)


@dataclass(frozen=True, slots=True)
class ClientHome:
    """The folder that a client takes for its user's home, with a `project` to work in."""

    path: Path

    @classmethod
    def create(cls, path: Path) -> Self:
        (path / "project").mkdir(parents=True)
        return cls(path)

    @property
    def project(self) -> Path:
        return self.path / "project"

    def environment(self, own: Mapping[str, str]) -> dict[str, str]:
        """Return the whole environment of a client. Nothing is inherited but the way to the system's programs."""
        loopback = "127.0.0.1,localhost"
        proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), _REFUSING_PROXY)
        everywhere = {**proxies, "NO_PROXY": loopback}
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.path),
            "TMPDIR": str(self.path),
            "LANG": "C.UTF-8",
            "TERM": "xterm",
            **everywhere,
            **{name.lower(): value for name, value in everywhere.items()},
            **own,
        }


@dataclass(frozen=True, slots=True)
class Command:
    """A client's command line with all that decides how it runs."""

    words: tuple[str, ...]
    home: ClientHome
    environment: Mapping[str, str] = field(repr=False)

    async def spawn(self, *, stdin: int, stdout: int, stderr: int | IO[bytes]) -> Process:
        """Start it as the leader of a process group, so that its own children can be ended with it."""
        return await asyncio.create_subprocess_exec(
            *self.words,
            cwd=self.home.project,
            env=dict(self.environment),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            limit=_LINE_BYTES_MAX,
            start_new_session=True,
        )


@dataclass(frozen=True, slots=True)
class Finished:
    """A client that ran to its end."""

    exit_code: int
    stdout: str
    stderr: str


async def run_to_end(command: Command) -> Finished:
    """Run a client that asks nothing, and return what it printed."""
    process = await command.spawn(stdin=asyncio.subprocess.DEVNULL, stdout=PIPE, stderr=PIPE)
    try:
        async with asyncio.timeout(DEADLINE_S):
            stdout, stderr = await process.communicate()
    finally:
        end_group(process)
        await process.wait()
    assert process.returncode is not None
    return Finished(process.returncode, stdout.decode(), stderr.decode())


def end_group(process: Process) -> None:
    """Kill what is left of a client and of the programs it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


class Conversation:
    """A running client that speaks one JSON object per line, both ways. `held` runs it."""

    def __init__(self, process: Process, stderr: IO[bytes]) -> None:
        self.heard: list[JsonObject] = []
        self._process = process
        self._stderr = stderr
        self._news = asyncio.Condition()
        self._ended = False
        self._listener = asyncio.create_task(self._listen())

    @classmethod
    @asynccontextmanager
    async def held(cls, command: Command) -> AsyncIterator[Self]:
        """Run the client, and end it whatever happens."""
        with (command.home.path / "stderr.txt").open("w+b") as stderr:
            process = await command.spawn(stdin=PIPE, stdout=PIPE, stderr=stderr)
            conversation = cls(process, stderr)
            try:
                yield conversation
            finally:
                await conversation._end()

    async def say(self, message: JsonObject) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        await self._process.stdin.drain()

    async def hear(self, wanted: Callable[[JsonObject], bool], since: int = 0) -> JsonObject:
        """Return the first message after position `since` that is wanted, as soon as there is one."""

        def found() -> JsonObject | None:
            return next((message for message in self.heard[since:] if wanted(message)), None)

        try:
            async with asyncio.timeout(DEADLINE_S), self._news:
                await self._news.wait_for(lambda: self._ended or found() is not None)
        except TimeoutError:
            raise AssertionError(f"the client did not say it in time; {self._last_words()}") from None
        message = found()
        assert message is not None, f"the client ended without saying it; {self._last_words()}"
        return message

    def kill(self) -> None:
        """SIGKILL the client itself, as an impatient person or the kernel would."""
        self._process.kill()

    async def _end(self) -> None:
        """Close the client's input, which asks it to go; kill what does not."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), _FAREWELL_S)
        end_group(self._process)
        await self._process.wait()
        await self._listener

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if line.startswith(b"{"):
                self.heard.append(json.loads(line))
            async with self._news:
                self._news.notify_all()
        async with self._news:
            self._ended = True
            self._news.notify_all()

    def _last_words(self) -> str:
        self._stderr.seek(0)
        return f"last messages: {self.heard[-5:]}; stderr: {self._stderr.read()[-2000:].decode(errors='replace')}"
