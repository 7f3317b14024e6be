"""The guard's recent decisions, newest first, in a bounded ring (R24)."""

from collections import deque
from datetime import UTC, datetime

from cachegate.observe.record import EVENT, GuardRecord, Record

RECORDS_MAX = 512
"""Some hours of a person's work; about 100 KB."""


class Diagnostics:
    """An observer that keeps the last decisions."""

    def __init__(self, records_max: int = RECORDS_MAX) -> None:
        self._records: deque[Record] = deque(maxlen=records_max)

    def __call__(self, record: Record) -> None:
        """Keep a finished request's decision."""
        if record.guard is not None:
            self._records.appendleft(record)

    def recent(self) -> list[dict[str, object]]:
        """Return the kept decisions, newest first."""
        return [_row(record, record.guard) for record in self._records if record.guard is not None]


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
