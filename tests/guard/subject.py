"""The guard as a test holds it: the real one, or one built from altered source.

Whoever tests through a `Guard` can be turned against a broken one. That is how we know that a test would notice.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from cachegate.guard import fingerprint, machine, usage
from cachegate.guard.budget import Entry
from cachegate.guard.fingerprint import Fingerprint
from cachegate.guard.machine import Ask, Decision, Ending, Result, Settled
from cachegate.guard.policy import Policy
from cachegate.guard.usage import Usage
from guard.letters import Letters


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

_SOURCES = {"fingerprint": fingerprint, "usage": usage, "machine": machine}
"""What can be altered; the machine imports the others."""
MODULES = tuple(_SOURCES)


def digested(letters: Letters | None) -> Fingerprint | None:
    """Return what the guard gets to see of the letters: bytes that are equal where the letters are."""
    if letters is None:
        return None
    items = [text.encode() for text in letters.texts]
    return Fingerprint(
        tools=letters.tools.encode(),
        instructions=letters.instructions.encode(),
        opening=items[0] if items else b"",
        thinking=letters.thinking.encode(),
        speed=letters.speed.encode(),
        items=b"".join(items),
        items_count=len(items),
        window=letters.window.encode(),
        compacted=letters.compacted,
        marked=not letters.unmarked,
    )


def source(name: str) -> str:
    """Return the source of one of `MODULES`."""
    return Path(str(_SOURCES[name].__file__)).read_text(encoding="utf-8")


def altered(sources: Mapping[str, str]) -> Guard:
    """Build a guard from other source, beside the real one and without touching it."""
    machine_source = sources["machine"]
    for name in MODULES[:-1]:
        imported = f"from cachegate.guard.{name} import"
        if machine_source.count(imported) != 1:
            raise ValueError(f"machine.py must say {imported!r} exactly once")
        machine_source = machine_source.replace(imported, f"from {_copy(name)} import")
    with _modules(*map(_copy, MODULES)) as (altered_fingerprint, altered_usage, altered_machine):
        _fill(altered_fingerprint, sources["fingerprint"])
        _fill(altered_usage, sources["usage"])
        _fill(altered_machine, machine_source)
    return Guard(
        admit=altered_machine.admit,
        settle=altered_machine.settle,
        ask=altered_machine.Ask,
        result=altered_machine.Result,
        ending=altered_machine.Ending,
        usage=altered_usage.Usage,
    )


def _copy(name: str) -> str:
    return f"altered_guard_{name}"


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
