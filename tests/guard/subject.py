"""The guard as a test holds it: the real one, or one built from altered source.

Whoever tests through a `Guard` can be turned against a broken one. That is how we know that a test would notice.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from cachegate.guard import machine, usage
from cachegate.guard.budget import Entry
from cachegate.guard.machine import Ask, Decision, Ending, Result, Settled
from cachegate.guard.policy import Policy
from cachegate.guard.usage import Usage


@dataclass(frozen=True, slots=True)
class Guard:
    """The two functions of the machine, and the types that belong to them."""

    admit: Callable[[Entry, Ask, int, Policy], tuple[Entry, Decision]]
    settle: Callable[[Entry, Result, int, Policy], tuple[Entry, Settled]]
    ask: type[Ask]
    result: type[Result]
    ending: type[Ending]
    usage: type[Usage]


REAL = Guard(machine.admit, machine.settle, Ask, Result, Ending, Usage)

_SOURCES = {"machine": Path(machine.__file__), "usage": Path(usage.__file__)}
_IMPORT_OF_USAGE = "from cachegate.guard.usage import"
_USAGE, _MACHINE = "altered_guard_usage", "altered_guard_machine"


def source(name: str) -> str:
    """Return the source of `machine` or `usage`."""
    return _SOURCES[name].read_text(encoding="utf-8")


def altered(machine_source: str, usage_source: str) -> Guard:
    """Build a guard from other source, beside the real one and without touching it."""
    if machine_source.count(_IMPORT_OF_USAGE) != 1:
        raise ValueError(f"machine.py must say {_IMPORT_OF_USAGE!r} exactly once")
    machine_source = machine_source.replace(_IMPORT_OF_USAGE, f"from {_USAGE} import")
    with _modules(_USAGE, _MACHINE) as (altered_usage, altered_machine):
        _fill(altered_usage, usage_source)
        _fill(altered_machine, machine_source)
    return Guard(
        admit=altered_machine.admit,
        settle=altered_machine.settle,
        ask=altered_machine.Ask,
        result=altered_machine.Result,
        ending=altered_machine.Ending,
        usage=altered_usage.Usage,
    )


@contextmanager
def _modules(*names: str) -> Iterator[tuple[ModuleType, ...]]:
    """Register modules while their source runs: dataclasses and imports look them up by name."""
    modules = tuple(ModuleType(name) for name in names)
    sys.modules.update(zip(names, modules, strict=True))
    try:
        yield modules
    finally:
        for name in names:
            del sys.modules[name]


def _fill(module: ModuleType, text: str) -> None:
    exec(compile(text, module.__name__, "exec"), module.__dict__)  # noqa: S102 -- our own source, one word altered
