"""Which worlds are played: a few dozen by default, one by its seed, or as many as somebody has time for.

    pytest tests/sim                       # the default seeds
    pytest tests/sim --sim-seed 17         # one world alone, as a failure asks for
    pytest tests/sim --sim-seeds 5000      # a long run

The options exist only where `tests/sim` is named on the command line.
"""

import pytest

from sim.world import SEEDS


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("simulation")
    group.addoption("--sim-seed", type=int, metavar="N", help="play only the world of this seed")
    group.addoption("--sim-seeds", type=int, metavar="N", help="play the worlds of the seeds below N")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        one, many = (metafunc.config.getoption(name, default=None) for name in ("--sim-seed", "--sim-seeds"))
        metafunc.parametrize("seed", range(many or SEEDS) if one is None else [one])
