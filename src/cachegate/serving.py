"""One process that serves: by itself, or as a worker of a supervisor (`python -m cachegate.serving`).

A supervisor of an older version starts workers of a newer one, so the arguments of this module only ever grow.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from cachegate.assembly import assemble, dismantle
from cachegate.config import Config, find, load
from cachegate.errors import ConfigError
from cachegate.observe.diagnostics import Diagnostics
from cachegate.observe.log import RequestLog, configure
from cachegate.server.app import App
from cachegate.server.inheritance import inherit
from cachegate.server.run import loop_factory, serve_for_supervisor, tune_allocator
from cachegate.server.worker_link import say_failed


def serve(config: Config, life: Callable[[App], Awaitable[None]], *, log_json: bool, quiet: bool) -> None:
    """Assemble the gateway, let it live, and dismantle it. Raises OSError and ConfigError as its parts do."""
    configure(as_json=log_json, quiet=quiet)
    diagnostics = Diagnostics()
    app = App(config, assemble(config, (diagnostics, RequestLog(as_json=log_json))), diagnostics)

    async def live() -> None:
        try:
            await life(app)
        finally:
            await dismantle(app.gateway)

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
        serve(config, lambda app: serve_for_supervisor(app, inherited), log_json=asked.log_json, quiet=asked.quiet)
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
