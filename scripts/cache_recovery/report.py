"""The report that stays under the root: what was done, what was observed, and why it ended."""

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

FILE = "report.json"


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step of a scenario."""

    name: str
    seen: bool
    observed: str
    problem: str = ""
    """What was not seen; "" when all was."""


@dataclass(slots=True)
class ScenarioReport:
    """One scenario, growing with its steps."""

    name: str
    status: str = "running"
    """`running`, `seen`, `not seen` or `not in this build`."""
    seconds: float = 0.0
    steps: list[StepReport] = field(default_factory=list)


@dataclass(slots=True)
class Report:
    """The whole run, growing with its scenarios."""

    versions: dict[str, str] = field(default_factory=dict)
    """Of the gateway's package, the client and Python."""
    scenarios: list[ScenarioReport] = field(default_factory=list)
    exit_code: int = 1
    exit_reason: str = "the verification itself failed; its last words say where"
    started_at: str = field(default_factory=lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    seconds: float = 0.0

    def end(self, code: int, reason: str) -> int:
        """Note how the run ended, and return its exit code."""
        self.exit_code, self.exit_reason = code, reason
        return code

    def write(self, root: Path) -> None:
        """Write it under the root, whole or not at all."""
        _write(root, asdict(self))


def correct(root: Path, code: int, reason: str) -> None:
    """Put into a written report how the run ended as a whole: its second stage only knows its own end."""
    told = json.loads((root / FILE).read_text("utf-8"))
    _write(root, {**told, "exit_code": code, "exit_reason": reason})


def _write(root: Path, told: dict[str, object]) -> None:
    path = root / f"{FILE}.new"
    path.write_text(json.dumps(told, indent=2) + "\n", "utf-8")
    path.replace(root / FILE)
