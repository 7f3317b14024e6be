"""The scenarios alone must notice every wrong guard of `mutants.py`."""

from pathlib import Path

import pytest

from guard.mutants import MUTANTS, Mutant, StaleMutantError, guard_of
from guard.player import MismatchError, play
from guard.scenario import Scenario, read_tables
from guard.subject import MODULES, Guard, altered, source

SCENARIOS = read_tables(Path(__file__).parent / "scenarios")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.id)
def test_the_scenarios_notice(mutant: Mutant) -> None:
    assert _noticed_by(guard_of(mutant)) is not None, f"no scenario notices that {mutant.breaks}"


def test_an_unaltered_copy_passes() -> None:
    noticed = _noticed_by(altered({name: source(name) for name in MODULES}))
    assert noticed is None, "loading the source as another module must change nothing"


def test_a_mutant_whose_text_is_gone_is_an_error() -> None:
    with pytest.raises(StaleMutantError, match=r"stands 0 times in machine\.py, not once"):
        guard_of(Mutant("stale", "machine", "no such text", "", "R0: nothing"))


def test_every_mutant_names_its_rule_and_stands_once() -> None:
    assert len(MUTANTS) >= 25
    names = [mutant.id for mutant in MUTANTS]
    assert len(set(names)) == len(names)
    for mutant in MUTANTS:
        assert mutant.breaks[0] in "RC", mutant
        assert mutant.breaks.partition(":")[0][1:].rstrip("a").isdecimal(), mutant


def _noticed_by(guard: Guard) -> Scenario | None:
    for scenario in SCENARIOS:
        try:
            play(scenario, guard)
        except MismatchError:
            return scenario
    return None
