"""The first stage, in any Python 3.11 or newer: it prepares an isolated environment and runs the second one there."""

import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from cache_recovery.asked import Asked, Refused, asked
from cache_recovery.candidate import Plan, recognised
from cache_recovery.children import Stopped, Surroundings, until_stopped
from cache_recovery.environment import gateway_python, version_of
from cache_recovery.report import FILE, Report, correct

_SCRIPTS = Path(__file__).parent.parent
_REFUSED = 2
_SIGNALS = 128
"""An exit code above it is a signal's."""


def main(arguments: Sequence[str]) -> int:
    """Verify what the command line asks for, and return the exit code: 0 only when every step was seen."""
    try:
        wanted = asked(arguments)
    except Refused as refused:
        print(refused, file=sys.stderr)
        return _REFUSED
    report, began_s = Report(), time.monotonic()
    try:
        return until_stopped(lambda: _verify(wanted, report))
    except Refused as refused:
        print(refused, file=sys.stderr)
        return report.end(_REFUSED, str(refused))
    except Stopped as stopped:
        print(stopped, file=sys.stderr)
        return report.end(stopped.exit_code, str(stopped))
    finally:
        if not (wanted.root / FILE).exists():
            report.seconds = round(time.monotonic() - began_s, 1)
            report.write(wanted.root)
        elif report.exit_code > _SIGNALS:
            correct(wanted.root, report.exit_code, report.exit_reason)


async def _verify(wanted: Asked, report: Report) -> int:
    around = Surroundings(wanted.root)
    python = await gateway_python(wanted, around, _tell)
    candidate = await recognised(wanted, python, around)
    report.versions |= {
        "gateway": await version_of(python, around),
        candidate.kind: candidate.version,
        "python": platform.python_version(),
    }
    plan = Plan(
        root=str(wanted.root),
        gateway_python=str(python),
        kind=candidate.kind,
        program=str(candidate.program or ""),
        source=str(candidate.source or ""),
        versions=report.versions,
    )
    paths = os.pathsep.join(map(str, (_SCRIPTS, wanted.code / "tests")))
    words = (candidate.python, "-P", "-m", "cache_recovery.play", plan.written())
    code, _ = await around.run(*words, more={"PYTHONPATH": paths})
    return report.end(code, "the second stage ended without a report")


def _tell(words: str) -> None:
    print(words, flush=True)
