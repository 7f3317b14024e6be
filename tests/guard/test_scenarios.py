"""Every row of every table, each table by its rules; and the tables themselves are held to be complete and strict."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from cachegate.guard.fingerprint import Change
from cachegate.guard.machine import Ending
from guard.letters import Letters
from guard.player import MismatchError, play
from guard.scenario import CAUSES, DECISIONS, FLAGS, SETTLEMENTS, Scenario, TableError, parse, read_tables

SCENARIOS = read_tables(Path(__file__).parent / "scenarios")
ROW = "+0s chat 200k/0 -> allowed miss count=1"


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.id)
def test_scenario(scenario: Scenario) -> None:
    play(scenario)


def test_every_rule_that_the_machine_can_show_has_a_scenario() -> None:
    told = {label for scenario in SCENARIOS for label in scenario.labels}
    rules = {f"R{number}" for number in (1, 2, *range(4, 20), 22, 23, 24)} | {"R8a"}
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
    causes = {row.expect.because.split()[0] for row in rows if row.expect.because is not None}
    assert causes == CAUSES == {change.value for change in Change}


def test_every_part_that_a_table_can_change_is_changed() -> None:
    rows = [row for scenario in SCENARIOS for row in scenario.rows]
    made = [row.asking.letters for row in rows if row.asking is not None]
    assert None in made
    for part in fields(Letters):
        values = {getattr(letters, part.name) for letters in made if letters is not None}
        assert len(values) > 1, part.name


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
        ("== R1: a story\n+0s chat 200k -> allowed count=0", "needs a name, or its end"),
        ("== R1: a story\n+0s chat 200k/0 tools=b -> allowed miss count=1", "nothing that tools can be"),
        ("== R1: a story\n+0s chat 200k/0 tools= -> allowed miss count=1", "nothing that tools can be"),
        ("== R1: a story\n+0s chat 200k/0 tools -> allowed miss count=1", "'tools'"),
        ("== R1: a story\n+0s chat 200k/0 colour=B -> allowed miss count=1", "'colour=B'"),
        ("== R1: a story\n+0s chat 200k/0 tools=B tools=B -> allowed miss count=1", "stands twice"),
        ("== R1: a story\n+0s chat 200k/0 unmarked unmarked -> allowed miss count=1", "stands twice"),
        ("== R1: a story\n+0s chat 200k/0 no digests no digests -> allowed miss count=1", "stands twice"),
        ("== R1: a story\n+0s chat 200k/0 no digests tools=B -> allowed miss count=1", "no letters"),
        ("== R1: a story\n+0s chat 200k/0 edited=1 -> allowed miss count=1", "the first is the opening"),
        ("== R1: a story\n+0s chat 200k/0 edited=10 -> allowed miss count=1", "there are 9 items"),
        ("== R1: a story\n+0s chat 200k/0 edited=2, -> allowed miss count=1", "nothing that edited can be"),
        ("== R1: a story\n+0s chat 200k/0 items=3 dropped=3 -> allowed miss count=1", "there are 3 items"),
        ("== R1: a story\n+0s chat 200k/0 items=0 -> allowed miss count=1", "nothing that items can be"),
        ("== R1: a story\n+0s chat 200k/0 window=B -> allowed miss count=1", "nothing that window can be"),
        ("== R1: a story\n+0s chat 200k tools=B lost -> stopped:measured count=2", "'lost'"),
        (
            "== R1: a story\n+0s start a chat 8KB -> allowed count=0\n+0s end a 1k/0 tools=B -> neutral count=0",
            "'tools=B'",
        ),
        ("== R1: a story\n+0s start a chat 8KB tools=B lost -> allowed count=0", "'lost'"),
        ("== R1: a story\n+0s start a chat 8KB -> allowed count=0 because unchanged", "there is a cause when"),
        ("== R1: a story\n+0s chat 200k/0 -> allowed miss count=1 because", "no cause"),
        ("== R1: a story\n+0s chat 200k/0 -> allowed miss count=1 because magic", "no cause"),
        ("== R1: a story\n+0s chat 200k/0 -> allowed miss count=1 because unchanged 3/9", "no cause"),
        ("== R1: a story\n+0s chat 200k/0 -> allowed miss count=1 because history_changed", "where or how long"),
        ("== R1: a story\n+0s chat 200k/0 -> allowed miss count=1 because history_changed 0/9", "where or how long"),
        ("== R1: a story\n+0s chat 200k/0 -> allowed miss count=1 because idle_over_lifetime 5m", "where or how long"),
        ("== R1: a story\n+0s chat 200k/0 -> allowed miss because unknown", "must say the count"),
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
        ("+0s chat 200k/0 -> allowed miss count=1 because unchanged", "cause: unknown, not unchanged"),
        ("+0s chat 200k -> stopped:measured count=0 because unchanged", "cause: unknown, not unchanged"),
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
