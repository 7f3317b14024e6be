"""From figures to a table, to JSON, and to the three bars. Pure: nothing is measured here.

A ratio is the median of the rounds' own ratios: the two figures of one round were taken side by side, so what the
machine did besides drops out of it.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.scenarios import CACHEGATE, DIRECT, LOSS_EVENTS, LOSS_STREAMS, NGINX, SERVERS, Figures

Json = dict[str, object]

FIRST_BYTE_RATIO_MAX = 5.0
"""Times the first byte of nginx, at 1 MB."""
LARGE_BODY_CPU_MS_MAX = 20.0
"""CPU for a request of 4 MB."""
BUSY_PERCENT_MIN = 90.0
"""Of its core, in a closed loop of 16 connections; alone it is near 100."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    measure: str
    title: str
    digits: int


@dataclass(frozen=True, slots=True)
class Bar:
    """One of the figures to reach."""

    title: str
    reached: bool
    figure: str


ROWS = (
    *(Row(f"first:{size}", f"first byte, {size} body (ms)", 2) for size in ("4 KB", "256 KB", "1 MB", "4 MB")),
    *(Row(f"added:{size}", f"added to the first byte, {size} (ms)", 2) for size in ("4 KB", "256 KB", "1 MB", "4 MB")),
    Row("rate", "requests/s, 4 KB, 20 deltas", 0),
    Row("busy", "  server's core busy meanwhile (%)", 0),
    Row("request_cpu", "CPU per request, 4 KB (us)", 0),
    Row("body_cpu:1 MB", "CPU per request, 1 MB (ms)", 1),
    Row("body_cpu:4 MB", "CPU per request, 4 MB (ms)", 1),
    Row("event_cpu:50", "CPU per 1,000 events, 50 streams (ms)", 1),
    Row("event_cpu:500", "CPU per 1,000 events, 500 streams (ms)", 1),
    Row("burst_cpu", f"CPU per 1,000 events, {LOSS_STREAMS} unpaced (ms)", 1),
    Row("burst_rate", f"events/s, {LOSS_STREAMS} unpaced streams", 0),
    Row("lost", f"events lost of {LOSS_STREAMS} x {LOSS_EVENTS:,}, worst", 0),
    Row("idle_memory", "memory per idle stream at 1,000 (KB)", 1),
    Row("start_memory", "memory after the start (MB)", 1),
)


def middle(figures: Figures, measure: str, server: str) -> float | None:
    """Return the median of the rounds; of lost events the worst round. None when there is nothing."""
    values = figures.values.get(measure, {}).get(server)
    if not values:
        return None
    return max(values) if measure == "lost" else statistics.median(values)


def ratio(figures: Figures, measure: str, over: str) -> float | None:
    """Return how many times `over`'s figure Cachegate's is; None where that says nothing."""
    ours = figures.values.get(measure, {}).get(CACHEGATE, [])
    theirs = figures.values.get(measure, {}).get(over, [])
    if measure in {"lost", "busy"} or not ours or len(ours) != len(theirs) or min(theirs) <= 0:
        return None
    return statistics.median(our / their for our, their in zip(ours, theirs, strict=True))


def bars(figures: Figures) -> tuple[Bar, ...]:
    """Judge the three figures to reach. What could not be measured is not reached.

    The first byte is judged by what the gateway *adds*, which is stricter than by the whole time.
    """
    whole, added = ratio(figures, "first:1 MB", NGINX), ratio(figures, "added:1 MB", NGINX)
    cpu, lost = middle(figures, "body_cpu:4 MB", CACHEGATE), middle(figures, "lost", CACHEGATE)
    return (
        Bar(
            f"first byte of a 1 MB body: at most {FIRST_BYTE_RATIO_MAX:g} x nginx",
            added is not None and added <= FIRST_BYTE_RATIO_MAX,
            f"{_times(added)} added, {_times(whole)} in all" if added is not None else "not measured; it needs nginx",
        ),
        Bar(
            f"4 MB body: at most {LARGE_BODY_CPU_MS_MAX:g} ms CPU",
            cpu is not None and cpu <= LARGE_BODY_CPU_MS_MAX,
            "not measured" if cpu is None else f"{cpu:.1f} ms",
        ),
        Bar(
            f"{LOSS_STREAMS} streams x {LOSS_EVENTS:,} events: none lost",
            lost == 0,
            "not measured" if lost is None else f"{lost:.0f} lost in the worst round",
        ),
    )


def shared_core(figures: Figures) -> bool:
    """Whether something else ran on the server's core: alone, Cachegate keeps it busy in a closed loop."""
    busy = middle(figures, "busy", CACHEGATE)
    return busy is not None and busy < BUSY_PERCENT_MIN


def table(figures: Figures, servers: Sequence[str]) -> list[str]:
    """Return the table as lines."""
    named = [name for name in SERVERS if name in servers]
    lines = [f"{'':<43}" + "".join(f"{name:>11}" for name in named) + f"{'x nginx':>10}{'x direct':>10}"]
    for row in ROWS:
        if row.measure not in figures.values:
            continue
        cells = "".join(f"{_cell(middle(figures, row.measure, name), row.digits):>11}" for name in named)
        ratios = "".join(f"{_times(ratio(figures, row.measure, over)):>10}" for over in (NGINX, DIRECT))
        lines.append(f"{row.title:<43}{cells}{ratios}".rstrip())
    return lines


def as_json(figures: Figures, about: Mapping[str, object]) -> Json:
    """Return everything, every round included."""
    rows = [
        {
            "measure": row.measure,
            "title": row.title.strip(),
            "medians": {name: middle(figures, row.measure, name) for name in figures.values[row.measure]},
            "timesNginx": ratio(figures, row.measure, NGINX),
            "timesDirect": ratio(figures, row.measure, DIRECT),
            "rounds": figures.values[row.measure],
        }
        for row in ROWS
        if row.measure in figures.values
    ]
    judged = [{"bar": bar.title, "reached": bar.reached, "figure": bar.figure} for bar in bars(figures)]
    return {"about": dict(about), "rows": rows, "bars": judged, "faults": figures.faults}


def _cell(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g} x" if value < 100 else f"{value:.0f} x"
