"""Every row of every table, each table by its rules; and the tables themselves are held to be complete and strict."""

import re
from pathlib import Path

import pytest

from cachegate.guard.machine import Ending
from guard.player import MismatchError, play
from guard.scenario import DECISIONS, FLAGS, SETTLEMENTS, Scenario, TableError, parse, read_tables

SCENARIOS = read_tables(Path(__file__).parent / "scenarios")
ROW = "+0s chat 200k/0 -> allowed miss count=1"


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.id)
def test_scenario(scenario: Scenario) -> None:
    play(scenario)


def test_every_rule_that_the_machine_can_show_has_a_scenario() -> None:
    told = {label for scenario in SCENARIOS for label in scenario.labels}
    rules = {f"R{number}" for number in (1, 2, *range(4, 20), 22)} | {"R8a"}
    timelines = {f"T{number}" for number in range(1, 13)} | {"T5a"}
    assert told >= rules | timelines, f"without a scenario: {sorted((rules | timelines) - told)}"


def test_no_two_scenarios_have_one_name() -> None:
    names = [scenario.id for scenario in SCENARIOS]
    assert len(set(names)) == len(names)


def test_every_word_that_a_table_can_say_is_said() -> None:
    rows = [row for scenario in SCENARIOS for row in scenario.rows]
    said = {row.expect.decision for row in rows} | {row.expect.settlement for row in rows}
    assert said - {None} == DECISIONS | SETTLEMENTS
    finishes = [row.finish for row in rows if row.finish is not None]
    assert {finish.ending for finish in finishes} == {ending.value for ending in Ending}
    assert {flag for finish in finishes for flag in finish.flags} == FLAGS


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (ROW, "header"),
        (f"== R1: a story\n{ROW} often", "no expectation"),
        ("== R1: a story", "checks nothing"),
        (f'== R1: a story\n"a quote without end\n{ROW}', "checks nothing"),
        ("== R1: a story\n+0s chat 200k/0", "needs an expectation"),
        ("== R1: a story\n+0s chat 200k/0 -> allowed miss", "must say the count"),
        ("== R1: a story\n+0s chat 200k/0 -> allowed count=1", "what it measured"),
        ("== R1: a story\n+0s chat 200k/0 -> miss count=1", "expects a decision"),
        ("== R1: a story\n+0s chat 200k/0 -> stopped:measured miss count=1", "what it measured"),
        ("== R1: a story\n+0s chat 200k/0 lost -> allowed miss count=1", "'lost'"),
        ("== R1: a story\n+0s chat 200k/0 refused cancelled -> allowed miss count=1", "'cancelled'"),
        ("== R1: a story\n+0s chat 200k/0 800KB 800KB -> allowed miss count=1", "'800KB'"),
        ("== R1: a story\n+0s chat 200k 800KB -> stopped:measured count=2", "'800KB'"),
        ("== R1: a story\n+0s chat ? -> allowed neutral count=0", "needs its bytes"),
        ("== R1: a story\n+0s chat much/0 -> allowed miss count=1", "no number of tokens"),
        ("== R1: a story\nlater chat 200k/0 -> allowed miss count=1", "no time"),
        ("== R1: a story\n+0s talk 200k/0 -> allowed miss count=1", "no budget"),
        ("== R1: a story\n+0s chat -> allowed miss count=1", "the row ends"),
        ("== R1: a story\n+0s end a 200k/0 -> miss count=1", "not running"),
        ("== R1: a story\n+0s start a chat 200k -> allowed count=0\n+0s end a 1k/0 4KB -> neutral count=0", "size"),
        ("== R1: a story\n+0s x2 start a chat 200k -> allowed count=0", "once"),
        (
            "== R1: a story\n+0s start a chat 200k -> allowed count=0\n+0s start a chat 200k -> allowed count=0",
            "running already",
        ),
        (f"== R1: a story\nwith patience=3\n{ROW}", "no number of the policy"),
        (f"== no rule: a story\n{ROW}", "header"),
    ],
)
def test_a_table_that_says_too_little_or_too_much_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(TableError, match=re.escape(complaint)):
        parse(text, "table.txt")


@pytest.mark.parametrize(
    ("row", "difference"),
    [
        ("+0s chat 200k/0 -> stopped:measured count=0", None),
        ("+0s chat 200k/0 -> recovered miss count=1", "decision: allowed, not recovered"),
        ("+0s chat 200k/0 -> allowed neutral count=1", "end: miss, not neutral"),
        ("+0s chat 200k/0 -> allowed miss count=2", "count: 1, not 2"),
        ("+0s chat 200k/0 -> allowed miss count=1 left=3", "left: 4, not 3"),
        ("+0s chat 200k/0 -> allowed miss count=1 running=1", "running: 0, not 1"),
        ("+0s chat 200k -> stopped:measured count=0", "decision: allowed, not stopped:measured"),
    ],
)
def test_a_guard_that_does_something_else_is_noticed(row: str, difference: str | None) -> None:
    text = f"== R1: a story\n{row}"
    if difference is None:
        with pytest.raises(TableError):
            parse(text, "table.txt")
        return
    with pytest.raises(MismatchError, match=re.escape(difference)):
        play(parse(text, "table.txt")[0])
