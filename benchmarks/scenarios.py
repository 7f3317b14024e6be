"""What is measured, and how much of it: each scenario measures every server once, in random order.

The servers take turns within every scenario, so whatever else the machine does meets all of them alike; of several
rounds the medians count.
"""

import asyncio
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.bodies import SIZES, body_of
from benchmarks.load import Closed, Probe, Streamed, first_events, hammer, idle, quiet, stream
from benchmarks.plan import Plan
from benchmarks.servers import Server

DIRECT, NGINX, CACHEGATE = "direct", "nginx", "cachegate"
SERVERS = (DIRECT, NGINX, CACHEGATE)

LOSS_STREAMS, LOSS_EVENTS = 60, 1_000
PACED = {50: 10_000, 500: 100_000}
"""Streams at once, and microseconds between two events of each: 5,000 events a second both times."""
IDLE_STREAMS = 1_000
_REQUEST_PLAN = Plan(events=20)


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured; the figures mean the same at any scale, only their noise differs."""

    rounds: int
    probes: Mapping[str, int]
    """Requests per round and size for the first byte."""
    closed: Closed
    paced_s: float
    memory_rounds: int


QUICK = Scale(3, {"4 KB": 60, "256 KB": 40, "1 MB": 25, "4 MB": 10}, Closed(16, 1.5, 200), 2.5, 1)
FULL = Scale(7, {"4 KB": 200, "256 KB": 100, "1 MB": 60, "4 MB": 25}, Closed(16, 4.0, 400), 5.0, 3)


@dataclass(slots=True)
class Figures:
    """What was measured: a list of rounds by measure and server."""

    values: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def add(self, measure: str, server: str, value: float) -> None:
        """Note one round's value."""
        self.values.setdefault(measure, {}).setdefault(server, []).append(value)


@dataclass(frozen=True, slots=True)
class Bench:
    """The means of a run."""

    runner: asyncio.Runner
    upstream_port: int
    scale: Scale
    dice: random.Random
    figures: Figures
    say: Callable[[str], None]

    def turns(self, servers: Sequence[Server]) -> Iterator[Server]:
        """Yield the servers in random order; between two, every stream must have ended."""
        order = list(servers)
        self.dice.shuffle(order)
        for one in order:
            yield one
            self.runner.run(quiet(self.upstream_port))


def one_round(bench: Bench, servers: Sequence[Server]) -> None:
    """Run every scenario on running servers once."""
    for size in SIZES:
        bench.say(f"first byte, {size}")
        first_byte(bench, servers, size)
    bench.say("requests, 4 KB")
    requests(bench, servers)
    for streams in PACED:
        bench.say(f"{streams} streams")
        paced(bench, [one for one in servers if one.name != DIRECT], streams)
    bench.say(f"{LOSS_STREAMS} streams without pause")
    burst(bench, servers)


def first_byte(bench: Bench, servers: Sequence[Server], size: str) -> None:
    """Time the first event of an answer, one request at a time, and the CPU of one request of that size."""
    body, rounds = body_of(SIZES[size]), bench.scale.probes[size]
    probes = [Probe(one.port, body, f"probe-{size}") for one in servers]
    try:
        first_events(probes, 3, bench.dice)
        before = [one.cpu_ns() for one in servers]
        times = first_events(probes, rounds, bench.dice)
        bench.runner.run(quiet(bench.upstream_port))
        after = [one.cpu_ns() for one in servers]
    finally:
        for probe in probes:
            probe.close()
    middle = {one.name: statistics.median(taken) for one, taken in zip(servers, times, strict=True)}
    for one, used, upto in zip(servers, before, after, strict=True):
        bench.figures.add(f"first:{size}", one.name, middle[one.name] / 1e6)
        if one.name != DIRECT:
            bench.figures.add(f"added:{size}", one.name, (middle[one.name] - middle[DIRECT]) / 1e6)
            bench.figures.add(f"body_cpu:{size}", one.name, (upto - used) / rounds / 1e6)


def requests(bench: Bench, servers: Sequence[Server]) -> None:
    """Send small requests as fast as they are answered, over 16 connections, with 20 deltas in each answer."""
    body, closed = body_of(SIZES["4 KB"]), bench.scale.closed
    for one in bench.turns(servers):
        done = bench.runner.run(hammer(one.port, _REQUEST_PLAN, body, closed, one.cpu_ns))
        bench.figures.add("rate", one.name, done.requests / done.seconds)
        if one.name != DIRECT:
            bench.figures.add("request_cpu", one.name, done.cpu_ns / done.requests / 1e3)
            bench.figures.add("busy", one.name, 100 * done.cpu_ns / 1e9 / done.seconds)


def paced(bench: Bench, servers: Sequence[Server], streams: int) -> None:
    """Relay paced events, and divide the CPU by those that came while all streams ran."""
    gap_us = PACED[streams]
    plan = Plan(events=round(bench.scale.paced_s * 1e6 / gap_us), gap_us=gap_us)
    body = body_of(SIZES["4 KB"])
    for one in bench.turns(servers):
        got = bench.runner.run(stream(one.port, plan, body, streams, one.cpu_ns))
        _note_faults(bench, one, got)
        if got.window_events > 0:
            value = got.window_cpu_ns / got.window_events / 1e3
            bench.figures.add(f"event_cpu:{streams}", one.name, value)


def burst(bench: Bench, servers: Sequence[Server]) -> None:
    """Relay 60 streams of 1,000 events as fast as they come; every event is counted in its order."""
    plan = Plan(events=LOSS_EVENTS, batch=10)
    body = body_of(SIZES["4 KB"])
    for one in bench.turns(servers):
        got = bench.runner.run(stream(one.port, plan, body, LOSS_STREAMS, one.cpu_ns))
        _note_faults(bench, one, got)
        bench.figures.add("lost", one.name, got.lost)
        bench.figures.add("burst_rate", one.name, LOSS_STREAMS * LOSS_EVENTS / got.seconds)
        if one.name != DIRECT:
            bench.figures.add("burst_cpu", one.name, got.cpu_ns / (LOSS_STREAMS * LOSS_EVENTS) / 1e3)


def memory(bench: Bench, fresh: Server) -> None:
    """Measure what 1,000 silent streams take in a server that has only just started."""
    if fresh.name == DIRECT:
        return
    bench.say(f"memory of {fresh.name}")
    body = body_of(SIZES["4 KB"])
    bench.runner.run(stream(fresh.port, Plan(), body, 8, fresh.cpu_ns))
    before = fresh.rss()
    during = bench.runner.run(idle(fresh.port, body, IDLE_STREAMS, fresh.rss))
    bench.runner.run(quiet(bench.upstream_port))
    bench.figures.add("idle_memory", fresh.name, (during - before) / IDLE_STREAMS / 1_024)
    bench.figures.add("start_memory", fresh.name, before / 1_048_576)


def _note_faults(bench: Bench, server: Server, got: Streamed) -> None:
    """Keep the first faults of a measurement; one says what the others would."""
    bench.figures.faults.extend(f"{server.name}: {fault}" for fault in got.faults[:3])
