"""The second stage, in the isolated environment: every scenario is played step by step, until one step is not seen."""

import importlib
import importlib.util
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol as Interface

from cache_recovery.agents import claude_code, codex
from cache_recovery.candidate import Kind, Plan
from cache_recovery.children import Stopped, until_stopped
from cache_recovery.client import Chat, Way, Ways
from cache_recovery.gateway import Build, running
from cache_recovery.report import Report, ScenarioReport, StepReport
from cache_recovery.steps import LARGE_BYTES, Act, Blame, Decided, Heard, Played, Step, Story, steps

NOT_SEEN = 1
_SHOWN_CHARS = 500
_BROKEN = (AssertionError, OSError, TimeoutError)
"""What the drivers of the clients and of the gateway raise when one of them does not do its part."""

Told = Callable[[StepReport], None]


@dataclass(frozen=True, slots=True)
class Scenario:
    """The table of steps, played in one way."""

    name: str
    way: Way
    blame: Blame = Blame.MEASURED
    reloaded: bool = False


SCENARIOS = (
    Scenario("unstreamed", Way.UNSTREAMED),
    Scenario("streamed", Way.STREAMED),
    Scenario("over the control socket", Way.HOSTED),
    Scenario("after a reload in place", Way.STREAMED, reloaded=True),
    Scenario("usage not reported", Way.STREAMED, Blame.UNREPORTED),
)
_WAYS_OF_AGENTS = frozenset({Way.STREAMED})


class Gateway(Interface):
    """What the steps need of a gateway; `gateway.Running` is the real one."""

    async def decided(self, *, some: bool) -> tuple[Decided, ...]:
        """Return the gateway's records since the last look."""

    async def reload(self) -> Heard:
        """Reload it in place."""


async def play(chat: Chat, gateway: Gateway, table: tuple[Step, ...], blame: Blame, told: Told) -> bool:
    """Do the steps and tell what was observed of each, up to the first that is not seen; return whether all were."""
    before: tuple[Played, ...] = ()
    text = ""
    for number, step in enumerate(table, start=1):
        text = _text(step.act, number, text)
        try:
            heard = await _do(step.act, text, chat, gateway)
            now = Played(step.act, heard, await gateway.decided(some=step.act is not Act.RELOAD))
        except _BROKEN as error:
            told(_broken(step.name, error))
            return False
        problem = step.problem(Story(now, before, blame))
        told(StepReport(step.name, seen=not problem, observed=str(now), problem=_short(problem)))
        if problem:
            return False
        before = (*before, now)
    return True


def _text(act: Act, number: int, last: str) -> str:
    """Return what the person says: a large text, the last one again, or a few words."""
    match act:
        case Act.LARGE:
            return f"This is part {number}. " + "word " * (LARGE_BYTES // 5)
        case Act.SMALL:
            return "Please go on."
        case Act.AGAIN | Act.COMPACT | Act.RELOAD:
            return last


def _do(act: Act, text: str, chat: Chat, gateway: Gateway) -> Awaitable[Heard]:
    match act:
        case Act.LARGE | Act.AGAIN | Act.SMALL:
            return chat.say(text)
        case Act.COMPACT:
            return chat.compact()
        case Act.RELOAD:
            return gateway.reload()


@dataclass(frozen=True, slots=True)
class Stage:
    """Where scenarios are played."""

    root: Path
    build: Build
    ways: Ways
    tell: Callable[[str], None]

    async def missing(self, scenario: Scenario) -> str:
        """Say what this build lacks for a scenario; "" when it has all."""
        if scenario.way not in self.ways:
            return f"the SDK holds no chat {scenario.way}"
        if scenario.way is Way.HOSTED and not await self.build.has("cachegate.control"):
            return "the gateway has no control socket"
        if scenario.reloaded and not await self.build.knows("upgrade"):
            return "the command line has no `cachegate upgrade`"
        return ""

    async def run(self, scenario: Scenario, report: ScenarioReport) -> bool:
        """Play a scenario in a gateway of its own, and return whether all was seen."""
        lacks = await self.missing(scenario)
        if lacks:
            report.status = "not in this build"
            self.tell(f"{scenario.name}: not in this build: {lacks}")
            return True
        began_s = time.monotonic()
        report.status = "not seen"

        def told(step: StepReport) -> None:
            report.steps.append(step)
            self.tell(f"{scenario.name}: {_line(step)}")

        try:
            if await self._play(scenario, told):
                report.status = "seen"
        except _BROKEN as error:
            told(_broken("the gateway and the client begin and end", error))
        finally:
            report.seconds = round(time.monotonic() - began_s, 1)
        return report.status == "seen"

    async def _play(self, scenario: Scenario, told: Told) -> bool:
        folder = self.root / scenario.name.replace(" ", "-")
        folder.mkdir()
        async with (
            running(self.build, scenario.blame, folder) as gateway,
            self.ways[scenario.way](gateway.url, folder / "client") as chat,
        ):
            return await play(chat, gateway, steps(reloaded=scenario.reloaded), scenario.blame, told)


def ways_of(plan: Plan) -> Ways:
    """Return the ways in which the candidate can hold a chat: none where the package has no SDK yet."""
    match Kind(plan.kind):
        case Kind.CODEX:
            return codex(Path(plan.program))
        case Kind.CLAUDE:
            return claude_code(Path(plan.program))
        case Kind.SDK:
            if plan.source:
                sys.path.insert(0, plan.source)
            if importlib.util.find_spec("cachegate.sdk") is None:
                return {}
            ours: Ways = importlib.import_module("cache_recovery.our_sdk").WAYS
            return ours


async def verify(plan: Plan, report: Report, tell: Callable[[str], None]) -> int:
    """Play every scenario that is one of the candidate's, up to the first that is not seen; return the exit code."""
    ways = ways_of(plan)
    if not ways:
        return report.end(NOT_SEEN, "this package has no cachegate.sdk, so there is nothing to drive")
    stage = Stage(Path(plan.root), Build(Path(plan.gateway_python)), ways, tell)
    for scenario in SCENARIOS:
        if plan.kind != Kind.SDK and scenario.way not in _WAYS_OF_AGENTS:
            continue
        report.scenarios.append(ScenarioReport(scenario.name))
        if not await stage.run(scenario, report.scenarios[-1]):
            return report.end(NOT_SEEN, f"{scenario.name}: {report.scenarios[-1].steps[-1].problem}")
    return report.end(0, "every step was seen")


def main() -> int:
    """Play what the plan on the command line says, and leave the report."""
    plan = Plan.read(sys.argv[1])
    report, began_s = Report(versions=plan.versions), time.monotonic()
    try:
        code = until_stopped(lambda: verify(plan, report, _tell))
    except Stopped as stopped:
        code = report.end(stopped.exit_code, str(stopped))
    finally:
        report.seconds = round(time.monotonic() - began_s, 1)
        report.write(Path(plan.root))
    _tell(report.exit_reason)
    return code


def _tell(words: str) -> None:
    print(words, flush=True)


def _broken(name: str, error: Exception) -> StepReport:
    return StepReport(name, seen=False, observed="", problem=_short(f"{type(error).__name__}: {error}"))


def _line(step: StepReport) -> str:
    return f"seen: {step.name} [{step.observed}]" if step.seen else f"NOT SEEN: {step.name}: {step.problem}"


def _short(words: str) -> str:
    return words if len(words) <= _SHOWN_CHARS else f"{words[:_SHOWN_CHARS]} ..."


if __name__ == "__main__":
    sys.exit(main())
