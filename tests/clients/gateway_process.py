"""A gateway as a process of its own, the way people run it."""

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

_START_S = 30.0
_FAREWELL_S = 10.0
_LISTENS = re.compile(r"Cachegate listens on (http://\S+)")


@dataclass(frozen=True, slots=True)
class GatewayProcess:
    """A running gateway; `stop` ends it and waits until it has gone."""

    url: str
    _process: "subprocess.Popen[bytes]" = field(repr=False)

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(_FAREWELL_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def start_gateway(config_text: str, tmp_path: Path) -> GatewayProcess:
    """Start `cachegate serve` with this configuration and return it once it listens."""
    config, output = tmp_path / "cachegate.yaml", tmp_path / "gateway.log"
    config.write_text(config_text)
    with output.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "cachegate", "serve", "--config", str(config)],
            env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    deadline = time.monotonic() + _START_S
    while (listens := _LISTENS.search(output.read_text())) is None:
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            process.wait()
            raise AssertionError(f"the gateway did not start: {output.read_text()}")
        time.sleep(0.02)
    return GatewayProcess(listens.group(1), process)
