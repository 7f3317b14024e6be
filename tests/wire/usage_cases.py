"""Payloads of many providers with the usage that must be read from them, and the list of those that measure nothing.

The data is shared by all readers; `usage_cases.json` holds every case, and under `ids` the name of every case there is,
so that none is left out in silence. A case with several parts has one row for each: `FU03/timings`.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cachegate.guard.usage import Usage
from cachegate.wire import overflows
from cachegate.wire.body import encode
from cachegate.wire.chat.reader import ChatReader
from cachegate.wire.messages.reader import MessagesReader
from cachegate.wire.native_events import EVENT_READERS, Calls
from cachegate.wire.responses.reader import ResponsesReader
from cachegate.wire.seen import Failed, Finished, Refusal, Seen
from cachegate.wire.sse import SseReader, frame
from cachegate.wire.usage_readings import Format, reading_of

LATER = {
    "nothing is read: a matter of translation (what is sent to a provider, and where its cache is marked)": (
        "FU13", "FU15", "FU16",
    ),
    "nothing is read: a matter of the guard (FU10 doubts a number that was read, FS04 waits for 43 minutes)": (
        "FU10", "FS04",
    ),
}  # fmt: skip

AnyReader = MessagesReader | ResponsesReader | ChatReader
READERS: dict[Format, type[AnyReader]] = {
    Format.MESSAGES: MessagesReader,
    Format.RESPONSES: ResponsesReader,
    Format.CHAT: ChatReader,
}


@dataclass(frozen=True, slots=True)
class UsageCase:
    """One answer of a provider, streamed (`events`) or whole (`body`), and what it says."""

    name: str
    provider: str
    shape: Format
    body: dict[str, Any] | None
    events: tuple[dict[str, Any] | str, ...]
    """A text is a line of its own, such as a comment."""
    status: int
    usage: Usage
    uncached: int | None
    outcome: str
    """`error`, `context_overflow`, `refusal`, `incomplete`, or nothing of note."""
    inconsistent: bool
    calls: tuple[Usage, ...] | None
    subagent_calls: tuple[Usage, ...]
    side_calls: tuple[tuple[str, Usage], ...]
    switch: bool
    """The case asks for the provider's switch `zero_is_unknown`."""

    @property
    def data(self) -> bytes:
        """The stream as bytes."""
        return b"".join(_sent(self.shape, event) for event in self.events)


def _loaded() -> dict[str, Any]:
    data: dict[str, Any] = json.loads((Path(__file__).parent / "usage_cases.json").read_text("utf-8"))
    return data


def _usages(rows: list[list[int | None]]) -> tuple[Usage, ...]:
    return tuple(Usage(*row) for row in rows)


def _case(row: dict[str, Any]) -> UsageCase:
    return UsageCase(
        name=row["id"],
        provider=row["provider"],
        shape=Format(row["protocol"]),
        body=row.get("body"),
        events=tuple(row.get("events", ())),
        status=row.get("status", 200),
        usage=Usage(*row["usage"]),
        uncached=row["uncached"],
        outcome=row.get("outcome", ""),
        inconsistent=row.get("inconsistent", False),
        calls=_usages(row["calls"]) if "calls" in row else None,
        subagent_calls=_usages(row.get("subagent_calls", [])),
        side_calls=tuple((name, Usage(*counts)) for name, *counts in row.get("side_calls", [])),
        switch=row.get("options", {}).get("zero_is_unknown", False),
    )


IDS = frozenset(_loaded()["ids"])
CASES = tuple(_case(row) for row in _loaded()["cases"])


def cases(*shapes: Format) -> list[UsageCase]:
    return [case for case in CASES if case.shape in shapes]


def _sent(shape: Format, event: dict[str, Any] | str) -> bytes:
    if isinstance(event, str):
        return event.encode() + b"\n\n"
    return b"data: " + encode(event) + b"\n\n" if shape is Format.CHAT else frame(event["type"], encode(event))


def reader_of(case: UsageCase) -> AnyReader:
    return READERS[case.shape](case.provider)


def seen_by(reader: AnyReader, case: UsageCase) -> tuple[Seen, ...]:
    if case.body is not None:
        return reader.read_body(case.status, encode(case.body))
    _, events = SseReader().feed(case.data)
    return tuple(item for event in events for item in reader.read(event))


def seen_in(case: UsageCase) -> tuple[Seen, ...]:
    """Return everything the provider's reader observes."""
    return seen_by(reader_of(case), case)


def seen_natively(case: UsageCase) -> tuple[tuple[Seen, ...], Calls]:
    """Return everything observed in the events of a provider's own API, and its model calls."""
    reader = EVENT_READERS[case.shape](reading_of(case.provider, case.shape), calls := Calls())
    events = [case.body] if case.body is not None else case.events
    return tuple(item for event in events if isinstance(event, dict) for item in reader.read(event)), calls


def folded(seen: tuple[Seen, ...]) -> Usage:
    """Fold the observations as the road does."""
    usage = Usage()
    for item in seen:
        usage = usage.updated(item) if isinstance(item, Usage) else usage
    return usage


def outcome_of(case: UsageCase, seen: tuple[Seen, ...]) -> str:
    """Name the end. For a reader a `response.incomplete` is the protocol's own end; here it is what it says."""
    if Failed(overflows.CODE) in seen:
        return "context_overflow"
    if any(isinstance(item, Failed) for item in seen):
        return "error"
    if Refusal() in seen:
        return "refusal"
    last = case.events[-1] if case.events else {}
    cut_short = isinstance(last, dict) and last.get("type") == "response.incomplete"
    return "" if Finished() in seen and not cut_short else "incomplete"
