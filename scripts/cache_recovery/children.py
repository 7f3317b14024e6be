"""Programs that we start: each leads a process group, and the group is gone when we are done with it."""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_FAREWELL_S = 20.0
"""The second stage ends a client and a gateway in this time, each of which may take some seconds."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where programs run, and their whole environment: no login, no key and no folder of the person's."""

    root: Path

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables, and make the folders they name."""
        home, temporary = self.root / "home", self.root / "tmp"
        for folder in (home, temporary):
            folder.mkdir(exist_ok=True)
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(home),
            "TMPDIR": str(temporary),
            "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    async def run(
        self, *words: str | Path, more: Mapping[str, str] | None = None, output: int | IO[bytes] | None = None
    ) -> tuple[int, str]:
        """Run a program to its end and return its exit code, and its output where that is a pipe.

        `more` joins the environment. A cancellation ends the program first: politely, then with its whole group.
        """
        process = await asyncio.create_subprocess_exec(
            *words,
            cwd=self.root,
            env={**self.environment, **(more or {})},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT if output is not None else None,
            start_new_session=True,
        )
        try:
            told, _ = await process.communicate()
            return process.returncode or 0, (told or b"").decode(errors="replace")
        finally:
            if process.returncode is None:
                process.terminate()
                with suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), _FAREWELL_S)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


class Stopped(Exception):  # noqa: N818 -- it reads as what it is
    """The run was told to stop by a signal, and has cleaned up."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(f"stopped by {number.name}")
        self.exit_code = 128 + number


def until_stopped(work: Callable[[], Coroutine[None, None, int]]) -> int:
    """Run to the end, or to SIGINT or SIGTERM, which cancel the work once. Raises Stopped then."""
    heard: list[signal.Signals] = []

    async def live() -> int:
        task = asyncio.ensure_future(work())

        def stop(number: signal.Signals) -> None:
            if not heard:
                task.cancel()
            heard.append(number)

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop, number)
        return await task

    try:
        return asyncio.run(live())
    except asyncio.CancelledError:
        raise Stopped(heard[0]) from None
