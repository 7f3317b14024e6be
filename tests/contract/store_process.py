"""A process of its own that uses a store as a worker does: `python store_process.py KIND PLACE WHAT [NUMBER]`.

It says `ready` when it has begun, and what it has to say when it is done; it ends when its input ends, or when it is
killed.
"""

import asyncio
import sys
import time
from dataclasses import replace
from pathlib import Path
from random import Random

from cachegate.assembly import steady_clock
from cachegate.guard.budget import Entry
from cachegate.guard.machine import Ask, Ending, admit, settle
from cachegate.stores.base import Store
from contract.linearizability import WHATS, Step, as_text, told
from contract.store_subjects import COLD, POLICY, SUBJECTS, fate, lease

KEY = "shared"


def counted(entry: Entry) -> tuple[Entry, int]:
    return replace(entry, count=entry.count + 1), entry.count


async def count(store: Store, times: int) -> str:
    """Add 1 so many times, and say which numbers were found."""
    return " ".join([str(await store.apply(KEY, counted)) for _ in range(times)])


async def hold(store: Store, leases: int) -> str:
    """Begin so many requests and leave them in flight, with their usage observed."""
    for number in range(leases):
        held = lease(f"{KEY}-{number}", usage=type(COLD)())
        await store.apply(KEY, lambda entry: admit(entry, Ask(800_000), steady_clock()(), POLICY), held)
        await store.note(KEY, lease(held.id))
    return "held"


async def serve(store: Store, requests: int) -> str:
    """Let so many cold requests run from admission to settlement, and say how many were let through."""
    ran, ended = 0, fate(ending=Ending.COMPLETED)
    now_ms = steady_clock()
    for number in range(requests):
        key, held = f"key-{number % 5}", lease(f"{store!r}-{number}")
        decision = await store.apply(key, lambda entry: admit(entry, Ask(800_000), now_ms(), POLICY), held)
        if decision.runs:
            ran += 1
            await store.apply(key, lambda entry: settle(entry, ended, now_ms(), POLICY), held)
    return str(ran)


async def look(store: Store, times: int) -> str:
    """Say what stands in the entry, so many times."""
    entries = [await store.apply(KEY, lambda entry: (entry, entry)) for _ in range(times)]
    return " ".join(f"{entry.count}/{entry.in_flight}/{entry.active_ms}" for entry in entries)


async def history(store: Store, seed: int) -> str:
    """Do random steps, and say what was heard and when."""
    dice = Random(seed)
    steps = [Step(dice.choice(("begin", "warm", *WHATS)), dice.choice("abcd")) for _ in range(100)]
    return as_text(await told(store, steps, time.monotonic_ns, f"caller{seed}"))


def say(words: str) -> None:
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


ACTIONS = {"count": count, "hold": hold, "serve": serve, "look": look, "history": history}


async def main(kind: str, place: str, action: str, number: str) -> None:
    store = SUBJECTS[kind].make(Path(place), POLICY, steady_clock())
    await store.open()
    say("ready")
    await asyncio.to_thread(sys.stdin.readline)
    say(await ACTIONS[action](store, int(number)))
    await asyncio.to_thread(sys.stdin.readline)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
