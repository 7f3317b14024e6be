"""Plays a scenario against a guard, row by row, and says where it went another way."""

from dataclasses import dataclass, field

from cachegate.guard.budget import Entry
from cachegate.guard.fingerprint import Cause
from cachegate.guard.machine import Decision, Settled
from cachegate.guard.policy import Policy
from cachegate.guard.scope import SECRET_BYTES, Mode, Scope, budget_key
from guard.scenario import Asking, Budget, Finish, Row, Scenario, Size
from guard.subject import REAL, Guard, digested

_SECRET = bytes(SECRET_BYTES)
_START_MS = 1_000_000_000
"""Far from zero, so that no test leans on where the steady clock of a machine begins."""

_DECISION_WORDS = {
    ("allowed", "clear"): "allowed",
    ("recovered", "smaller_input"): "recovered",
    ("blocked", "measured"): "stopped:measured",
    ("blocked", "unreported"): "stopped:unreported",
    ("observed", "measured"): "observed:measured",
    ("observed", "unreported"): "observed:unreported",
}
_SETTLEMENT_WORDS = {
    ("reuse", "reuse", False): "reuse",
    ("miss", "miss", False): "miss",
    ("unreported", "unreported", False): "unreported",
    ("neutral", "neutral", False): "neutral",
    ("neutral", "not_sent", False): "not-sent",
    **{
        (kind, reason, True): f"excused:{word}"
        for kind in ("miss", "unreported")
        for reason, word in (
            ("cancelled", "cancelled"),
            ("rebuild_after_cancel", "after-cancel"),
            ("client_change", "client-change"),
            ("rebuild_after_refusal", "after-refusal"),
        )
    },
}


_Found = tuple[str, object, object]
"""What was looked at, what it is, and what it should be; None where the table does not say."""


class MismatchError(AssertionError):
    """The guard did something else than the table says."""


def decision_word(decision: Decision) -> str:
    """Return a decision as a table writes it; what no table can say is spelled out."""
    key = (decision.outcome.value, decision.reason.value)
    return _DECISION_WORDS.get(key, "/".join(key))


def settlement_word(settled: Settled) -> str:
    """Return a settlement as a table writes it; what no table can say is spelled out."""
    key = (settled.kind.value, settled.reason.value, settled.excused)
    return _SETTLEMENT_WORDS.get(key, "/".join(map(str, key)))


def cause_word(cause: Cause) -> str:
    """Return a cause as a table writes it."""
    word = cause.change.value
    details = {"history_changed": f" {cause.item}/{cause.items}", "idle_over_lifetime": f" {cause.gap_s}s"}
    return word + details.get(word, "")


def play(scenario: Scenario, guard: Guard = REAL) -> None:
    """Play every row. Raises MismatchError naming file, line, row and what happened instead."""
    stage = _Stage(guard, scenario.policy)
    for row in scenario.rows:
        for _ in range(row.times):
            differences = stage.perform(row)
            if differences:
                raise MismatchError(f"{scenario.file}:{row.line}: {row.text}\n  {scenario.id}\n  {differences}")


@dataclass(slots=True)
class _Stage:
    guard: Guard
    policy: Policy
    now_ms: int = _START_MS
    entries: dict[str, Entry] = field(default_factory=dict)
    running: dict[str, tuple[Asking, int]] = field(default_factory=dict)
    """How a request asked, and when."""

    def perform(self, row: Row) -> str:
        """Do what a row says; return what differs from its expectation."""
        self.now_ms += row.wait_ms
        asking, started_ms = (row.asking, self.now_ms) if row.asking else self.running.pop(row.request)
        found: list[_Found] = []
        runs = True
        if row.asking is not None:
            decision = self._ask(asking)
            runs = decision.runs
            found.append(("decision", decision_word(decision), row.expect.decision))
            if row.finish is None:
                found.append(("count of the decision", decision.count, row.expect.count))
                found.append(("cause", cause_word(decision.cause), row.expect.because))
                self.running[row.request] = (asking, started_ms)
        if row.finish is not None and runs:
            settled = self._finish(asking, started_ms, row.finish)
            found.append(("end", settlement_word(settled), row.expect.settlement))
            found.append(("count of the end", settled.count, row.expect.count))
            found.append(("cause", cause_word(settled.cause), row.expect.because))
        entry = self.entries[_key(asking.budget)]
        found.append(("count", entry.count, row.expect.count))
        found.append(("left", self.policy.rebuilds - entry.rebuilds_used, row.expect.left))
        found.append(("running", entry.in_flight, row.expect.running))
        return _different(found)

    def _ask(self, asking: Asking) -> Decision:
        key = _key(asking.budget)
        ask = self.guard.ask(asking.size.conversation, asking.self_hosted)
        entry = self.entries.get(key, Entry())
        self.entries[key], decision = self.guard.admit(entry, ask, self.now_ms, self.policy)
        return decision

    def _finish(self, asking: Asking, started_ms: int, finish: Finish) -> Settled:
        key = _key(asking.budget)
        result = self.guard.result(
            usage=self.guard.usage(finish.total, finish.read),
            ending=self.guard.ending(finish.ending),
            conversation_bytes=asking.size.conversation,
            input_bytes=_whole(asking.size),
            sent="not-sent" not in finish.flags,
            began="never-began" not in finish.flags,
            client_changed="client-change" in finish.flags,
            fingerprint=digested(asking.letters),
            started_ms=started_ms,
        )
        self.entries[key], settled = self.guard.settle(self.entries[key], result, self.now_ms, self.policy)
        return settled


def _different(found: list[_Found]) -> str:
    wrong = [f"{what}: {got}, not {wanted}" for what, got, wanted in found if wanted is not None and got != wanted]
    return "; ".join(wrong)


def _key(budget: Budget) -> str:
    caller = None if budget.caller == "anonymous" else budget.caller
    return budget_key(Scope(Mode(budget.mode), "", "provider", budget.model, caller), _SECRET)


def _whole(size: Size) -> int:
    return size.conversation + size.fixed
