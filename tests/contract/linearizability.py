"""Whether what callers were told at the same time can have happened one after the other.

Each caller does its steps in a row; steps of different callers overlap. The history is linearizable if all steps can be
put into one order that keeps every caller's own, never puts a step before one that was answered before it began, and in
which the pure machine, from a fresh entry per key, gives exactly the answers that were heard.

Checked are admissions and settlements with their number of requests in flight. Not checked are idleness (all steps have
one time), eviction, and what a process that dies leaves behind: those have tests of their own.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from cachegate.guard.budget import Entry
from cachegate.guard.machine import Ask, Ending, admit, settle
from cachegate.stores.base import Change, Lease, Store
from contract.store_subjects import COLD, POLICY, WARM, fate

NOW_MS = 1_000_000
_ENDS = {
    "cold": fate(COLD, Ending.COMPLETED),
    "warm": fate(WARM, Ending.COMPLETED),
    "cancelled": fate(COLD, Ending.CANCELLED),
    "refused": fate(COLD, Ending.REFUSED),
}
WHATS = ("begin", *_ENDS)


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that a caller does: begin a request, or end its oldest one in this way."""

    what: str
    key: str


@dataclass(frozen=True, slots=True)
class Heard:
    """A step, when it began and was answered, and the answer."""

    step: Step
    began: int
    answered: int
    answer: str


def change_of(what: str) -> Change[str]:
    """What a step does to an entry, and the words for it: the decision, and how many were in flight."""

    def change(entry: Entry) -> tuple[Entry, str]:
        if what == "begin":
            after, decision = admit(entry, Ask(800_000), NOW_MS, POLICY)
            return after, f"{decision.outcome} {decision.count} {entry.in_flight}"
        after, settled = settle(entry, _ENDS[what], NOW_MS, POLICY)
        return after, f"{settled.reason} {settled.count} {entry.in_flight}"

    return change


async def told(store: Store, steps: Sequence[Step], time: Callable[[], int], name: str) -> list[Heard]:
    """Do a caller's steps in a row; one that ends nothing is left out."""
    running: dict[str, list[Lease]] = {}
    history: list[Heard] = []
    for number, step in enumerate(steps):
        mine = running.setdefault(step.key, [])
        if step.what == "begin":
            held = Lease(f"{name}-{number}", fate())
        elif mine:
            held = mine.pop(0)
        else:
            continue
        await asyncio.sleep(0)
        began = time()
        answer = await store.apply(step.key, change_of(step.what), held)
        history.append(Heard(step, began, time(), answer))
        if step.what == "begin" and not answer.startswith("blocked"):
            mine.append(held)
    return history


def linearizable(histories: Sequence[Sequence[Heard]]) -> bool:
    """Tell whether there is such an order, by trying all that there can be."""
    tried: set[tuple[tuple[int, ...], tuple[tuple[str, Entry], ...]]] = set()
    start: tuple[tuple[int, ...], Mapping[str, Entry]] = (tuple(0 for _ in histories), {})
    open_ends = [start]
    while open_ends:
        at, entries = open_ends.pop()
        seen = (at, tuple(sorted(entries.items(), key=lambda item: item[0])))
        if seen in tried:
            continue
        tried.add(seen)
        waiting = [(caller, histories[caller][done]) for caller, done in enumerate(at) if done < len(histories[caller])]
        if not waiting:
            return True
        first_answer = min(heard.answered for _, heard in waiting)
        for caller, heard in waiting:
            after, answer = change_of(heard.step.what)(entries.get(heard.step.key, Entry()))
            if heard.began <= first_answer and answer == heard.answer:
                further = (*at[:caller], at[caller] + 1, *at[caller + 1 :])
                open_ends.append((further, {**entries, heard.step.key: after}))
    return False


def as_text(history: Sequence[Heard]) -> str:
    return json.dumps([asdict(heard) for heard in history])


def from_text(text: str) -> list[Heard]:
    return [Heard(**{**row, "step": Step(**row["step"])}) for row in json.loads(text)]
