"""The gateway as its own process, the way a person starts it."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

START_S = 30.0


@dataclass(slots=True)
class GatewayProgram:
    """A started gateway and what it printed so far."""

    process: asyncio.subprocess.Process
    url: str
    greeting: list[str]

    async def stop(self, signal_number: int) -> tuple[int, str, str]:
        """Send a signal and return exit code, the rest of standard output, and standard error."""
        self.process.send_signal(signal_number)
        out, err = await asyncio.wait_for(self.process.communicate(), START_S)
        return self.process.returncode or 0, out.decode(), err.decode()


@asynccontextmanager
async def gateway_program(
    config: str, folder: Path, *flags: str, python: str = sys.executable, environment: Mapping[str, str] | None = None
) -> AsyncIterator[GatewayProgram]:
    """Start `cachegate serve` with a configuration and wait for its address; without an environment, with our own."""
    path = folder / "gateway.yaml"
    path.write_text(config)
    process = await asyncio.create_subprocess_exec(
        python, "-m", "cachegate", "serve", "--config", str(path), *flags, env=environment,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, limit=1 << 20,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        greeting: list[str] = []
        while not greeting or not greeting[-1].startswith("  SDKs"):
            line = (await asyncio.wait_for(process.stdout.readline(), START_S)).decode().rstrip()
            if not line:
                _, said = await asyncio.wait_for(process.communicate(), START_S)
                raise AssertionError(f"the gateway ended before it listened: {said.decode()}")
            greeting.append(line)
        found = re.search(r"http://\S+", greeting[0])
        assert found is not None
        yield GatewayProgram(process, found.group(), greeting)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
