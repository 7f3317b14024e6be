"""The ring of recent decisions (R24)."""

import dataclasses

from cachegate.guard.usage import Usage
from cachegate.observe.diagnostics import Diagnostics
from cachegate.observe.record import GuardRecord, Record

RECORD = Record(
    request_id="req_1",
    at_s=1_700_000_000.5,
    path="/v1/messages",
    status=200,
    ending="completed",
    duration_ms=12,
    provider="anthropic",
    model="claude-x",
    usage=Usage(100, 40),
    guard=GuardRecord("abcd", "chat", "allowed", "miss", 1, "history_changed", 3, 9),
)


def test_a_decision_is_shown_with_its_numbers_and_nothing_else() -> None:
    ring = Diagnostics()
    ring(RECORD)
    assert ring.recent() == [
        {
            "event": "context_cache_guard",
            "at": "2023-11-14T22:13:20.500+00:00",
            "key": "abcd",
            "mode": "chat",
            "outcome": "allowed",
            "reason": "miss",
            "count": 1,
            "cause": "history_changed",
            "item": 3,
            "items": 9,
            "gapSeconds": 0,
            "providerCause": None,
            "rebuilt": None,
            "inputTokens": 100,
            "cachedTokens": 40,
            "writtenTokens": None,
        }
    ]


def test_the_newest_comes_first_and_the_ring_is_bounded() -> None:
    ring = Diagnostics(records_max=3)
    for count in range(5):
        ring(dataclasses.replace(RECORD, guard=GuardRecord("k", "chat", "allowed", "miss", count)))
    assert [row["count"] for row in ring.recent()] == [4, 3, 2]


def test_what_the_guard_does_not_watch_is_no_decision() -> None:
    ring = Diagnostics()
    ring(dataclasses.replace(RECORD, guard=None))
    assert ring.recent() == []


class Shared:
    """A shelf in memory."""

    def __init__(self) -> None:
        self.records: list[bytes] | None = []
        self.closed = False

    def keep(self, record: bytes) -> None:
        if self.records is not None:
            self.records.insert(0, record)

    def recent(self) -> list[bytes] | None:
        return self.records

    def close(self) -> None:
        self.closed = True


def test_the_decisions_of_all_who_share_a_shelf_are_shown_alike() -> None:
    shelf = Shared()
    one, other = Diagnostics(shelf=shelf), Diagnostics(shelf=shelf)
    one(RECORD)
    other(dataclasses.replace(RECORD, guard=GuardRecord("other", "chat", "blocked", "measured", 2)))
    assert [row["key"] for row in one.recent()] == ["other", "abcd"]
    assert one.recent() == other.recent()
    alone = Diagnostics()
    alone(RECORD)
    assert one.recent()[1] == alone.recent()[0], "shelved or not, it is the same"
    one.close()
    assert shelf.closed


def test_where_the_shelf_cannot_be_read_ones_own_decisions_are_shown() -> None:
    shelf = Shared()
    ring = Diagnostics(shelf=shelf)
    ring(RECORD)
    shelf.records = None
    assert [row["key"] for row in ring.recent()] == ["abcd"]
