"""The guard's recent decisions, newest first, in a bounded ring (R24)."""

from collections import deque
from datetime import UTC, datetime
from typing import Protocol

import msgspec

from cachegate.observe.record import EVENT, GuardRecord, Record

RECORDS_MAX = 512
"""Some hours of a person's work; about 100 KB."""


class Shelf(Protocol):
    """Where the decisions of several processes lie together. It raises nothing."""

    def keep(self, record: bytes) -> None:
        """Add a decision."""

    def recent(self) -> list[bytes] | None:
        """Return the decisions of all, newest first; None where they cannot be read."""

    def close(self) -> None:
        """Release what it holds."""


class Diagnostics:
    """An observer that keeps the last decisions, and shows those of all processes that share a shelf."""

    def __init__(self, records_max: int = RECORDS_MAX, shelf: Shelf | None = None) -> None:
        self._rows: deque[dict[str, object]] = deque(maxlen=records_max)
        self._shelf = shelf

    def __call__(self, record: Record) -> None:
        """Keep a finished request's decision."""
        if record.guard is not None:
            row = _row(record, record.guard)
            self._rows.appendleft(row)
            if self._shelf is not None:
                self._shelf.keep(msgspec.json.encode(row))

    def recent(self) -> list[dict[str, object]]:
        """Return the kept decisions, newest first."""
        shared = None if self._shelf is None else self._shelf.recent()
        return list(self._rows) if shared is None else [msgspec.json.decode(row) for row in shared]

    def close(self) -> None:
        """Release the shelf."""
        if self._shelf is not None:
            self._shelf.close()


def _row(record: Record, guard: GuardRecord) -> dict[str, object]:
    return {
        "event": EVENT,
        "at": datetime.fromtimestamp(record.at_s, UTC).isoformat(timespec="milliseconds"),
        "key": guard.key,
        "mode": guard.mode,
        "outcome": guard.outcome,
        "reason": guard.reason,
        "count": guard.count,
        "cause": guard.cause,
        "item": guard.item,
        "items": guard.items,
        "gapSeconds": guard.gap_s,
        "providerCause": guard.provider_cause or None,
        "rebuilt": record.rebuilt or None,
        "inputTokens": record.usage.input_total,
        "cachedTokens": record.usage.cached_read,
        "writtenTokens": record.usage.cache_write,
    }
