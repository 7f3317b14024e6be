"""One process that serves: by itself, or as a worker of a supervisor (`python -m cachegate.serving`).

A supervisor of an older version starts workers of a newer one, so the arguments of this module only ever grow.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from cachegate.assembly import assemble, diagnostics_in, dismantle
from cachegate.config import Config, find, load
from cachegate.errors import ConfigError
from cachegate.observe.log import RequestLog, configure
from cachegate.runtime_directory import VARIABLE
from cachegate.server.app import App
from cachegate.server.inheritance import WORKERS_VARIABLE, inherit
from cachegate.server.run import loop_factory, serve_for_supervisor, tune_allocator
from cachegate.server.worker_link import say_failed


@dataclass(frozen=True, slots=True)
class Serving:
    """What serves, and how it logs."""

    config: Config
    log_json: bool
    quiet: bool
    runtime: Path | None = None
    """Where the workers of this gateway meet; None for a process by itself."""
    workers: int = 1


def serve(serving: Serving, life: Callable[[App], Awaitable[None]]) -> None:
    """Assemble the gateway, let it live, and dismantle it. Raises OSError and ConfigError as its parts do."""
    configure(as_json=serving.log_json, quiet=serving.quiet)
    diagnostics = diagnostics_in(serving.runtime)
    observers = (diagnostics, RequestLog(as_json=serving.log_json))
    gateway = assemble(serving.config, observers, runtime=serving.runtime)
    app = App(serving.config, gateway, diagnostics, workers=serving.workers)

    async def live() -> None:
        try:
            await life(app)
        finally:
            await dismantle(app.gateway)
            diagnostics.close()

    tune_allocator()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(live())


def main(arguments: list[str]) -> int:
    """Serve as a worker; returns the exit code."""
    asked = _parser().parse_args(arguments)
    inherited = inherit(os.environ)
    given = {} if asked.listen is None else {"listen": asked.listen}
    try:
        config = load(find(asked.config, os.environ), os.environ, given).config
        workers = int(os.environ.get(WORKERS_VARIABLE, "1"))
        serving = Serving(config, asked.log_json, asked.quiet, Path(os.environ[VARIABLE]), workers)
        serve(serving, lambda app: serve_for_supervisor(app, inherited))
    except ConfigError as error:
        say_failed(inherited.link, str(error))
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m cachegate.serving", description=__doc__)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--listen")
    parser.add_argument("--log-json", action="store_true")
    parser.add_argument("--quiet", action="store_true")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
