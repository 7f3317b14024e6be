"""Are upgrades in place free of loss? Twelve of them, or more, under 30,000 requests of every kind of client.

    python -m benchmarks.upgrades                                 # about a minute
    python -m benchmarks.upgrades --requests 5000 --upgrades 4    # less of it
    python -m benchmarks.upgrades --check                         # exit code 1 for a single lost request

The gateway is `cachegate serve` with two workers, each upgrade a `cachegate upgrade`. See `benchmarks/upgrade_load.py`.
"""

import argparse
import asyncio
import contextlib
import json
import re
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.servers import Program
from benchmarks.upgrade_load import CONFIG, Outcome, Plan, under_load

_GREETING = re.compile(r"listens on http://127\.0\.0\.1:(\d+)")


def main() -> int:
    """Run the load and print what came of it; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=Plan().requests_min)
    parser.add_argument("--upgrades", type=int, default=Plan().upgrades)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="the figures as JSON")
    parser.add_argument("--check", action="store_true", help="exit code 1 when anything was lost")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "cachegate.yaml"
        config.write_text(CONFIG, "utf-8")
        serve = ("serve", "--quiet", "--config", str(config), "--workers", str(asked.workers))
        with contextlib.closing(Program([sys.executable, "-m", "cachegate", *serve], _GREETING)) as gateway:
            port = int(gateway.match.group(1))
            plan = Plan(asked.requests, asked.upgrades)
            started_s = time.monotonic()
            outcome = asyncio.run(under_load(port, plan, lambda: _upgrade(port)))
    figures = _figures(outcome, time.monotonic() - started_s)
    print(json.dumps(figures, indent=2) if asked.json else "\n".join(f"{name:24}{figures[name]}" for name in figures))
    print(*outcome.problems, sep="\n", file=sys.stderr)
    lost = outcome.failed or outcome.stopped_late
    return 1 if asked.check and lost else 0


async def _upgrade(port: int) -> float:
    started_s = time.monotonic()
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "cachegate", "upgrade", "--listen", f"127.0.0.1:{port}", stdout=asyncio.subprocess.PIPE
    )
    said, _ = await program.communicate()
    if program.returncode != 0:
        raise AssertionError(f"the upgrade failed: {said.decode()}")
    return time.monotonic() - started_s


def _figures(outcome: Outcome, took_s: float) -> dict[str, object]:
    middle = sorted(outcome.upgrades_s)[len(outcome.upgrades_s) // 2]
    return {
        "requests": outcome.requests,
        "failed": outcome.failed,
        "answered": dict(outcome.answered),
        "upgrades": len(outcome.upgrades_s),
        "upgrade, median": f"{middle:.2f} s",
        "upgrade, slowest": f"{max(outcome.upgrades_s):.2f} s",
        "told to close": outcome.told_to_close,
        "misses not added up": outcome.stopped_late,
        "seconds": round(took_s),
    }


if __name__ == "__main__":
    sys.exit(main())
