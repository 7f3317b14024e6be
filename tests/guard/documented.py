"""What `docs/guard.md` shows of the scenarios and of the reports; `generated_docs.py` writes it there."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from guard.scenario import Row, Scenario, read_tables

_HERE = Path(__file__).parent
_LONG_MS = 60_000
"""A pause from here on is told."""


def worked_timelines() -> str:
    """The worked timelines T1 ... T12, one line each."""
    lines = ["| | what it shows | what happened, and what the guard did |", "|---|---|---|"]
    for scenario in _tables("timelines.txt"):
        steps = "; ".join(_step(row) for row in scenario.rows)
        lines.append(f"| {scenario.labels[0]} | {scenario.title} | {steps} |")
    return "\n".join([*lines, ""])


def wanted_otherwise() -> str:
    """Where a person would want something else than the letter of the rules gives."""
    lines = ["| | what was reported | what the guard does | what a person would want |", "|---|---|---|---|"]
    for case in json.loads((_HERE / "timelines.json").read_text("utf-8"))["cases"]:
        wishes = [event for event in case["events"] if "desired" in event]
        if wishes:
            wanted = "; ".join(f"at {event['t_seconds']} s, {event['desired_because']}" for event in wishes)
            done = "; ".join(_done(event) for event in case["events"])
            lines.append(f"| {case['id']} | {case['title']} | {done} | that it runs: {wanted} |")
    lines += ["", "And, each in a table of `tests/guard/scenarios/letter.txt`:", ""]
    lines += [f"- {scenario.title}" for scenario in _tables("letter.txt")]
    return "\n".join([*lines, ""])


def _tables(file: str) -> Iterable[Scenario]:
    return (scenario for scenario in read_tables(_HERE / "scenarios") if scenario.file == file)


def _step(row: Row) -> str:
    """Say in a few words what happened, and what the guard did."""
    left = row.text.partition("->")[0].split()
    wait, request = left[0].lstrip("+"), " ".join(word for word in left[1:] if word not in {"chat", f"x{row.times}"})
    often = f"{row.times} times, every {wait}: " if row.times > 1 else ""
    pause = f"after {wait}: " if row.wait_ms >= _LONG_MS and not often else ""
    return f"{often}{pause}`{request}` {_answer(row)}"


def _answer(row: Row) -> str:
    expect = row.expect
    decision, settlement = expect.decision or "", expect.settlement or ""
    if decision.startswith("stopped"):
        return f"**stopped**{' as unreported' if decision.endswith('unreported') else ''}"
    runs = "small enough to run, " if decision == "recovered" else ""
    said = {
        "miss": f"counts ({expect.count})",
        "unreported": f"counts as unreported ({expect.count})",
        "excused": f"excused, {expect.left} left",
        "reuse": "reuse",
        "neutral": "neutral",
    }
    return runs + said[settlement.partition(":")[0]]


def _done(event: dict[str, Any]) -> str:
    counted = f"counts ({event.get('count_after')})"
    return f"{event['t_seconds']} s: {'**stopped**' if event['expect'] == 'stop' else counted}"
