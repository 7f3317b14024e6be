"""What happened to real people, replayed: reports of broken caches, and of chats that were stopped for nothing.

`timelines.json` holds the requests of each report with what the rules must do, and, where a person would want something
else, what and why. Where a number of it is not what the rules give, it stands in `DIFFERENCES` with the reason. Every
report is replayed twice: with client changes as a provider reports them, and as digests show them.
"""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from cachegate.guard.budget import Entry
from cachegate.guard.machine import Ask, Decision, Ending, Outcome, Reason, Result, admit, settle
from cachegate.guard.policy import Policy
from cachegate.guard.scope import SECRET_BYTES, Mode, Scope, budget_key
from cachegate.guard.usage import Usage
from guard.letters import Letters
from guard.subject import digested

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "timelines.json").read_text(encoding="utf-8"))[
    "cases"
]
POLICY = Policy()
BYTES_PER_TOKEN = 4

_OPENING = "the count was noted before a changed opening became an excuse (R15); its own `why` says excused"
_LAST_CANCEL = "with no rebuild left a cancelled request counts (R16); the next row's own `why` says so"
DIFFERENCES = {
    ("FC20", 1): (1, _OPENING),
    ("FC21", 2): (1, _OPENING),
    ("FC22", 1): (1, _OPENING),
    ("FC30", 8): (1, _LAST_CANCEL),
    ("FC30", 9): (2, _LAST_CANCEL),
}
"""The count that the rules give after an event, where the report's is another."""

_NOTHING_BEFORE = (
    "digests of a first request have nothing to be compared with, so it counts where a provider excuses it"
)
DIFFERENCES_BY_DIGESTS = DIFFERENCES | {("FC02", index): (1, _NOTHING_BEFORE) for index in (0, 1, 2, 3, 4)}
"""The same, where client changes are told by digests."""

WANTED_OTHERWISE = {("FC39", 2), ("FC39", 3)}
"""Events that the rules stop and a person would want to run; `docs/guard.md` lists them."""

ENDINGS = {
    "completed": Ending.COMPLETED,
    "cancelled": Ending.CANCELLED,
    "refused": Ending.REFUSED,
    "error": Ending.FAILED,
}
OUTCOMES = {"allow": Outcome.ALLOWED, "stop": Outcome.BLOCKED, "observe": Outcome.OBSERVED}


@dataclass(slots=True)
class Replay:
    """One report on its way through the machine, one entry per budget."""

    self_hosted: bool
    by_digests: bool = False
    """Whether client changes are told by digests, and not by the provider."""
    letters: dict[str, Letters] = field(default_factory=dict)
    entries: dict[str, Entry] = field(default_factory=dict)
    now_ms: int = 0
    last_bytes: int = 0

    def play(self, event: dict[str, Any]) -> tuple[Decision, Entry]:
        """Ask for the request and, when it runs, end it."""
        at_ms = round(event["t_seconds"] * 1000)
        assert at_ms >= self.now_ms, "the reports hold no overlapping requests; this replay knows none"
        key = self._key(event)
        size = self._size(event)
        ask = Ask(size, self.self_hosted)
        entry, decision = admit(self.entries.get(key, Entry()), ask, at_ms, POLICY)
        self.now_ms = at_ms + round(event.get("duration_s", 0) * 1000)
        if decision.runs:
            result = Result(
                usage=Usage(event["input_tokens"], event["cached_tokens"]),
                ending=ENDINGS[event["outcome"]],
                conversation_bytes=size,
                input_bytes=size,
                began=event["outcome"] != "error",
                client_changed="client_change" in event and not self.by_digests,
                fingerprint=digested(self._letters(key, event)),
                started_ms=at_ms,
            )
            entry, _ = settle(entry, result, self.now_ms, POLICY)
        self.entries[key] = entry
        return decision, entry

    def _letters(self, key: str, event: dict[str, Any]) -> Letters:
        """Return what a budget's request is made of: what the client changes is new, and stays."""
        letters = self.letters.get(key, Letters())
        part: str = event.get("client_change", "")
        if part and self.by_digests:
            changed: dict[str, Any] = {part: chr(ord(getattr(letters, part)) + 1)}
            letters = replace(letters, **changed)
        self.letters[key] = letters
        return letters

    def _key(self, event: dict[str, Any]) -> str:
        mode = Mode(event["kind"])
        scope = Scope(mode, "", "provider", event.get("model", "model"), f"session/{event.get('agent', '')}")
        return budget_key(scope, bytes(SECRET_BYTES))

    def _size(self, event: dict[str, Any]) -> int:
        """Return the bytes where noted, else four a token, else as many as the request before had."""
        tokens = event["input_tokens"]
        noted: int | None = event.get("bytes", None if tokens is None else tokens * BYTES_PER_TOKEN)
        self.last_bytes = self.last_bytes if noted is None else noted
        return self.last_bytes


@pytest.mark.parametrize("by_digests", [False, True], ids=["reported", "by digests"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['id']} {case['title']}")
def test_timeline(case: dict[str, Any], by_digests: bool) -> None:
    replay = Replay(case.get("self_hosted", False), by_digests)
    differences = DIFFERENCES_BY_DIGESTS if by_digests else DIFFERENCES
    for index, event in enumerate(case["events"]):
        decision, entry = replay.play(event)
        where = f"{case['id']} event {index} at {event['t_seconds']} s ({case['source']})"
        assert decision.outcome is OUTCOMES[event["expect"]], where
        if "count_after" in event:
            noted: int = event["count_after"]
            count, reason = differences.get((case["id"], index), (noted, ""))
            assert entry.count == count, where
            assert not reason or count != noted, f"{where} is a difference no more; strike it from the list"


def test_a_truncating_client_is_stopped_with_unknown_usage_too() -> None:
    """FC04 without cache fields: the same stop, with the other explanation (R9)."""
    case = next(case for case in CASES if case["id"] == "FC04")
    replay = Replay(self_hosted=False)
    decisions = [replay.play({**event, "cached_tokens": None})[0] for event in case["events"]]
    assert [decision.runs for decision in decisions] == [True, True, False, False]
    assert decisions[2].reason is Reason.UNREPORTED


def test_every_event_that_a_person_would_want_to_run_is_known_and_explained() -> None:
    wanted = {
        (case["id"], index): event.get("desired_because", "")
        for case in CASES
        for index, event in enumerate(case["events"])
        if event.get("desired", event["expect"]) != event["expect"]
    }
    assert wanted.keys() == WANTED_OTHERWISE
    assert all(wanted.values())


def test_every_listed_difference_names_an_event() -> None:
    events = {
        (case["id"], index) for case in CASES for index, event in enumerate(case["events"]) if "count_after" in event
    }
    assert events >= DIFFERENCES_BY_DIGESTS.keys()
    assert len(CASES) == 36
