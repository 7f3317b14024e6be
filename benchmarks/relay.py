"""How much the gateway costs: direct, nginx and Cachegate in one run, taking turns, as ratios.

    python -m benchmarks.relay --quick         # about a minute
    python -m benchmarks.relay                 # the figures that are published
    python -m benchmarks.relay --check --json out.json

Measured are the time that is added to the first byte (bodies of 4 KB to 4 MB), requests/s and CPU per small request,
CPU per 1,000 streamed events, memory per idle stream, and whether 60 streams of 1,000 events arrive without a loss.
nginx passes through with `proxy_buffering off` and one worker: what a proxy costs that reads nothing. The server under
test has the first core to itself; load and fake upstream share the second. Everything stays on 127.0.0.1.
"""

import argparse
import asyncio
import contextlib
import json
import os
import platform
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.fake_upstream import loop_factory
from benchmarks.load import LoadFailed
from benchmarks.report import as_json, bars, shared_core, table
from benchmarks.scenarios import CACHEGATE, DIRECT, FULL, NGINX, QUICK, Bench, Figures, Scale, memory, one_round
from benchmarks.servers import NGINX_REMEDY, Cores, NotStarted, nginx_program, raise_file_limit, server, upstream


def main() -> int:
    """Measure and print; return the exit code."""
    options = _options()
    if not Path("/proc/self/task").is_dir():
        print("CPU time and memory are read from Linux's /proc, which this system does not have.", file=sys.stderr)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    names = [DIRECT, NGINX, CACHEGATE]
    if nginx_program() is None:
        print(f"Compared with the direct way only: {NGINX_REMEDY}", file=sys.stderr)
        names.remove(NGINX)
    cores, started_s = Cores.here(), time.monotonic()
    if not cores.apart:
        print("One core only: load and server share it, so the figures say little.", file=sys.stderr)
    scale = QUICK if options.quick else FULL
    figures = Figures()
    try:
        _measure(figures, names, cores, scale, options)
    except (LoadFailed, NotStarted, OSError) as failed:
        print(f"The measurement failed: {failed}", file=sys.stderr)
        return 1 if options.check else 0
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        return 130
    about = _about(options, cores, round(time.monotonic() - started_s))
    text = json.dumps(as_json(figures, about), indent=2) + "\n"
    if options.json == "-":
        sys.stdout.write(text)
    else:
        _print(figures, names, about)
    if options.json not in {None, "-"}:
        Path(options.json).write_text(text, "utf-8")
    missed = any(not bar.reached for bar in bars(figures))
    return 1 if options.check and missed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.relay", description="What the gateway costs, as ratios."
    )
    parser.add_argument("--quick", action="store_true", help="about a minute instead of several")
    parser.add_argument("--check", action="store_true", help="exit 1 when one of the three bars is missed")
    parser.add_argument(
        "--json", metavar="FILE", help="also write every figure as JSON; - prints it instead of the table"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the random order of the servers")
    return parser.parse_args()


def _measure(
    figures: Figures,
    names: list[str],
    cores: Cores,
    scale: Scale,
    options: argparse.Namespace,
) -> None:
    """Start the programs, run the rounds, and end the programs whatever happens."""
    raise_file_limit()
    dice = random.Random(options.seed)  # noqa: S311 -- an order, no secret
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cachegate-bench-")))
        upstream_port = stack.enter_context(upstream(cores))
        os.sched_setaffinity(0, cores.load)
        runner = stack.enter_context(asyncio.Runner(loop_factory=loop_factory()))
        bench = Bench(runner, upstream_port, scale, dice, figures, _say)
        for _ in range(scale.memory_rounds):
            for name in dice.sample(names, len(names)):
                with server(name, upstream_port, cores, folder) as fresh:
                    memory(bench, fresh)
        running = [stack.enter_context(server(name, upstream_port, cores, folder)) for name in names]
        for number in range(scale.rounds):
            _say(f"round {number + 1} of {scale.rounds}")
            one_round(bench, running)
        _say("")


def _about(options: argparse.Namespace, cores: Cores, seconds: int) -> dict[str, object]:
    return {
        "date": time.strftime("%Y-%m-%d"),
        "scale": "quick" if options.quick else "full",
        "seconds": seconds,
        "cores": os.cpu_count(),
        "serverAndLoadApart": cores.apart,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _print(figures: Figures, names: list[str], about: dict[str, object]) -> None:
    print(", ".join(f"{name}: {value}" for name, value in about.items()))
    for line in table(figures, names):
        print(line)
    for fault in figures.faults[:10]:
        print(f"fault: {fault}")
    if shared_core(figures):
        print("note: other programs used the server's core too; trust CPU and ratios, not times and rates")
    for bar in bars(figures):
        print(f"{'reached' if bar.reached else 'MISSED ':<8} {bar.title}: {bar.figure}")


def _say(words: str) -> None:
    """Tell where the run is, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r\033[K{words}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
