"""Would the guard have stopped real chats whose cache works? Replays public session traces through its real machine.

    python -m benchmarks.replay_traces --traces requests_compact.jsonl.gz           # meta.json stands beside it
    python -m benchmarks.replay_traces --traces requests_compact.jsonl.gz --check   # exit 1 when a figure got worse

A trace holds no text, only how many tokens a request shared with the one before it, so three things are supposed:

*A perfect cache* reads everything that a request shares with the preceding one of the same session, agent and model, if
that ended no longer ago than the cache lives. Nothing is ever lost, late or evicted: what it does not read, no provider
would. Against it stands a broken cache that reads nothing: the guard must stop there.

*A changed opening.* What a request shares with the preceding one is no more than tools, instructions and
`OPENING_TOKENS`: the client rewrote the first user item, where it puts project instructions and reminders. Whether that
was a compaction the machine tells by itself, from the sizes. Replayed with this rule and without it.

*After a stop* the person does as the notice says. The trace knows no pause there, so the budget starts anew and the
stopped request runs: every stop is counted once, and none hides the next.
"""

import argparse
import gzip
import heapq
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cachegate.guard.budget import Entry
from cachegate.guard.fingerprint import Fingerprint
from cachegate.guard.machine import Ask, Decision, Ending, Result, admit, settle
from cachegate.guard.policy import Policy
from cachegate.guard.usage import Kind, Usage

BYTES_PER_TOKEN = 4
OPENING_TOKENS = 2_048
"""Tokens behind tools and instructions up to which a shared beginning still ends inside the opening."""
WARM_PERCENT = 75
"""A stopped request was warm when the cache would have served this share of its input."""
STOPS_MAX, WARM_MAX = 1, 0
"""What the guard may do to all public sessions, with a perfect cache of any lifetime and the opening rule."""

Key = tuple[str, str, str]
"""Session, agent, model: one conversation, as the guard sees it."""


@dataclass(frozen=True, slots=True)
class Cache:
    """A cache to replay with."""

    title: str
    lifetime_s: float
    """Seconds that it keeps what it read or wrote; below 0 it never keeps anything."""

    @property
    def perfect(self) -> bool:
        """Whether it ever reads anything."""
        return self.lifetime_s >= 0


CACHES = (Cache("5 minutes", 300), Cache("1 hour", 3_600), Cache("broken", -1))


@dataclass(frozen=True, slots=True)
class Row:
    """One request of a trace."""

    key: Key
    begin_ms: int
    end_ms: int
    """Equal to `begin_ms` where the trace does not know how long it took."""
    tokens: int
    shared: int
    """Tokens shared with the preceding request of the same key."""
    static: int
    """Tokens of the session's tools and instructions."""

    @property
    def size(self) -> int:
        """The input's bytes."""
        return self.tokens * BYTES_PER_TOKEN

    @property
    def reopened(self) -> bool:
        """Whether the client seems to have rewritten its opening."""
        return self.shared <= self.static + OPENING_TOKENS


@dataclass(frozen=True, slots=True)
class Stop:
    """A stopped request."""

    row: Row
    decision: Decision
    read: int

    @property
    def warm(self) -> bool:
        """Whether the cache would have served it, so that it was stopped for nothing."""
        return self.read * 100 >= self.row.tokens * WARM_PERCENT


@dataclass(slots=True)
class Chat:
    """One conversation under way."""

    entry: Entry = field(default_factory=Entry)
    begun: bool = False
    """Whether there is a preceding request."""
    warm_ms: int = 0
    """Until when the cache keeps what the preceding request left."""
    opening: int = 0
    cold_run: int = 0
    """Cold requests that ran since the last reuse, stop or silence."""


@dataclass(slots=True)
class Replay:
    """What one run through all traces came to."""

    cache: Cache
    opening_rule: bool
    policy: Policy = field(default_factory=Policy)
    stops: list[Stop] = field(default_factory=list)
    cold_run_max: int = 0
    """Most cold requests of one conversation that ran in a row; those running already at the limit are among them."""
    chats: dict[Key, Chat] = field(default_factory=lambda: defaultdict(Chat))

    def run(self, rows: list[Row]) -> "Replay":
        """Let every request begin and end in the order of time."""
        running: list[tuple[int, int, Result]] = []
        for number, row in enumerate(rows):
            while running and running[0][0] <= row.begin_ms:
                self._end(rows, heapq.heappop(running))
            heapq.heappush(running, (row.end_ms, number, self._begin(row)))
        while running:
            self._end(rows, heapq.heappop(running))
        return self

    @property
    def warm(self) -> int:
        """Stops of requests that the cache would have served."""
        return sum(stop.warm for stop in self.stops)

    @property
    def passes(self) -> bool:
        """Whether the guard did as well as it must."""
        if not self.opening_rule:
            return True
        if self.cache.perfect:
            return len(self.stops) <= STOPS_MAX and self.warm <= WARM_MAX
        return self.cold_run_max <= self.policy.limit + self.policy.rebuilds

    def _begin(self, row: Row) -> Result:
        """Admit a request; return what will be settled at its end."""
        chat = self.chats[row.key]
        kept = self.cache.perfect and chat.begun and row.begin_ms <= chat.warm_ms
        read = min(row.shared, row.tokens) if kept else 0
        chat.opening += chat.begun and row.reopened and self.opening_rule
        chat.begun, chat.warm_ms = True, row.end_ms + round(self.cache.lifetime_s * 1_000)
        if chat.entry.in_flight == 0 and row.begin_ms - chat.entry.active_ms >= self.policy.idle_ms:
            chat.cold_run = 0
        ask = Ask(row.size)
        chat.entry, decision = admit(chat.entry, ask, row.begin_ms, self.policy)
        if not decision.runs:
            self.stops.append(Stop(row, decision, read))
            chat.cold_run = 0
            chat.entry, _ = admit(Entry(in_flight=chat.entry.in_flight), ask, row.begin_ms, self.policy)
        return Result(
            usage=Usage(row.tokens, read, row.tokens - read),
            ending=Ending.COMPLETED,
            conversation_bytes=row.size,
            input_bytes=row.size,
            fingerprint=_fingerprint(chat.opening),
            started_ms=row.begin_ms,
        )

    def _end(self, rows: list[Row], ended: tuple[int, int, Result]) -> None:
        end_ms, number, result = ended
        chat = self.chats[rows[number].key]
        chat.entry, settled = settle(chat.entry, result, end_ms, self.policy)
        if settled.kind is Kind.REUSE:
            chat.cold_run = 0
        elif settled.kind.cold:
            chat.cold_run += 1
            self.cold_run_max = max(self.cold_run_max, chat.cold_run)


def main(arguments: list[str] | None = None) -> int:
    """Replay and print; return the exit code."""
    options = _options(arguments)
    try:
        rows = read_rows(options.traces)
    except (OSError, ValueError, KeyError) as error:
        print(f"The traces cannot be read: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    replays = [Replay(cache, rule).run(rows) for cache in CACHES for rule in (False, True)]
    for line in (*table(rows, replays), "", *listing(replays, every=options.every_stop)):
        print(line)
    missed = [replay for replay in replays if not replay.passes]
    for replay in missed:
        figures = f"{len(replay.stops):,} stops, {replay.warm:,} of them warm, {replay.cold_run_max} cold in a row"
        print(f"MISSED: {replay.cache.title} cache: {figures}")
    return 1 if options.check and missed else 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.replay_traces", description="Public session traces through the guard's machine."
    )
    parser.add_argument("--traces", type=Path, required=True, metavar="FILE", help="a .jsonl.gz, meta.json beside it")
    parser.add_argument("--check", action="store_true", help="exit 1 when the guard does worse than it must")
    parser.add_argument("--every-stop", action="store_true", help="list also the stops without the opening rule")
    return parser.parse_args(arguments)


def read_rows(traces: Path) -> list[Row]:
    """Return the requests of all traces in the order of their beginnings."""
    meta = json.loads((traces.parent / "meta.json").read_text("utf-8"))
    static = {trace["id"]: trace["tool_tokens"] + trace["system_tokens"] for trace in meta}
    with gzip.open(traces, "rt", encoding="utf-8") as lines:
        rows = list(_rows((json.loads(line) for line in lines), static))
    return sorted(rows, key=lambda row: row.begin_ms)


def _rows(records: Iterator[dict[str, Any]], static: dict[str, int]) -> Iterator[Row]:
    """Read each request; `common_prev` counts from the agent's preceding one, whatever its model.

    What two requests of one model share across others between them is at least the least of the steps.
    """
    shared: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for record in records:
        agent, model = (record["trace"], record["agent"]), record["model"]
        steps = shared[agent]
        for other in steps:
            steps[other] = min(steps[other], record["common_prev"])
        begin_ms = round(record["t"] * 1_000)
        yield Row(
            key=(*agent, model),
            begin_ms=begin_ms,
            end_ms=begin_ms + round((record["api_s"] or 0) * 1_000),
            tokens=record["in"],
            shared=steps.get(model, 0),
            static=static[record["trace"]],
        )
        steps[model] = record["in"]


def table(rows: list[Row], replays: list[Replay]) -> list[str]:
    """Return the table as lines."""
    sessions = len({row.key[0] for row in rows})
    lines = [
        f"{sessions:,} sessions, {len({row.key for row in rows}):,} conversations, {len(rows):,} requests",
        "",
        f"{'cache':<12}{'opening rule':<14}{'stops':>7}{'sessions':>10}{'warm':>7}{'cold in a row':>15}",
    ]
    for replay in replays:
        stopped = len({stop.row.key[0] for stop in replay.stops})
        rule = "yes" if replay.opening_rule else "no"
        counts = f"{len(replay.stops):>7,}{stopped:>10,}{replay.warm:>7,}{replay.cold_run_max:>15}"
        lines.append(f"{replay.cache.title:<12}{rule:<14}{counts}")
    return lines


def listing(replays: list[Replay], *, every: bool) -> list[str]:
    """Return the stops with a perfect cache, a line each; those without the opening rule only where asked for."""
    lines = []
    for replay in replays:
        if replay.cache.perfect and (replay.opening_rule or every):
            rule = "with" if replay.opening_rule else "without"
            lines.append(f"stops with a cache of {replay.cache.title}, {rule} the opening rule: {len(replay.stops)}")
            lines.extend(f"  {_stop_line(stop)}" for stop in replay.stops)
    return lines


def _stop_line(stop: Stop) -> str:
    row, decision = stop.row, stop.decision
    warm = "warm" if stop.warm else "cold"
    at = f"{' '.join(row.key)} at {row.begin_ms // 1_000} s"
    return f"{at}: {row.tokens:,} tokens, would have read {stop.read:,} ({warm}); {decision.reason}, {decision.count}"


def _fingerprint(opening: int) -> Fingerprint:
    """Return digests of which only the opening ever differs."""
    return Fingerprint(
        tools=b"t",
        instructions=b"i",
        opening=opening.to_bytes(4, "big"),
        thinking=b"",
        speed=b"",
        items=b"",
        items_count=0,
    )


if __name__ == "__main__":
    sys.exit(main())
