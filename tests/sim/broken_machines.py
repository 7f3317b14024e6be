"""Gateways with one mistake each. A simulation that does not find them proves nothing."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

from cachegate import road
from cachegate.guard.budget import Entry
from cachegate.guard.fingerprint import Fingerprint
from cachegate.guard.machine import Ask, Decision, Ending, Outcome, Reason, Result, Settled, admit, settle
from cachegate.guard.policy import Policy
from cachegate.guard.scope import Scope, budget_key
from cachegate.guard.usage import Kind, Usage
from cachegate.road import Gateway, Journey, Tally
from cachegate.stores.memory import MemoryStore
from cachegate.wire.digests import Digester
from cachegate.wire.seen import Finished, Reseed, Seen

Admitting = Callable[[Entry, Ask, int, Policy], tuple[Entry, Decision]]
Settling = Callable[[Entry, Result, int, Policy], tuple[Entry, Settled]]


@dataclass(frozen=True, slots=True)
class Mistake:
    """One name of the gateway, replaced."""

    title: str
    owner: Any
    name: str
    instead: Any


def _asked(change: Callable[[Entry, Ask], tuple[Entry, Ask]]) -> Admitting:
    """Admit with something else than what is true."""
    return lambda entry, ask, now_ms, policy: admit(*change(entry, ask), now_ms, policy)


def _ended(change: Callable[[Result], Result]) -> Settling:
    """Settle something else than what happened."""
    return lambda entry, result, now_ms, policy: settle(entry, change(result), now_ms, policy)


def _afterwards(change: Callable[[Entry, Entry, Result, Settled], Entry]) -> Settling:
    """Settle, and then spoil the entry: the one before, the one after, what happened, what was made of it."""

    def settling(entry: Entry, result: Result, now_ms: int, policy: Policy) -> tuple[Entry, Settled]:
        after, settled = settle(entry, result, now_ms, policy)
        return change(entry, after, result, settled), settled

    return settling


def _ending_as(ending: Ending, taken_for: Ending) -> Settling:
    return _ended(lambda result: replace(result, ending=taken_for) if result.ending is ending else result)


def _never_cleared(before: Entry, after: Entry, result: Result, settled: Settled) -> Entry:
    del result
    return replace(after, count=before.count) if settled.kind is Kind.REUSE else after


def _leaked(before: Entry, after: Entry, result: Result, settled: Settled) -> Entry:
    del settled
    return replace(after, in_flight=before.in_flight) if result.ending is Ending.CANCELLED else after


def _never_used_up(before: Entry, after: Entry, result: Result, settled: Settled) -> Entry:
    del result, settled
    return replace(after, rebuilds_used=min(before.rebuilds_used, after.rebuilds_used))


def _one_kind_of_stop(before: Entry, after: Entry, result: Result, settled: Settled) -> Entry:
    del before, result, settled
    return replace(after, unreported=False)


def _small_requests_clear(before: Entry, after: Entry, result: Result, settled: Settled) -> Entry:
    del before, result
    return replace(after, count=0) if settled.kind is Kind.NEUTRAL else after


def _all_run(entry: Entry, ask: Ask, now_ms: int, policy: Policy) -> tuple[Entry, Decision]:
    """Answer as if no limit had been reached."""
    after, decision = admit(entry, ask, now_ms, policy)
    if decision.runs:
        return after, decision
    return replace(after, in_flight=after.in_flight + 1), replace(
        decision, outcome=Outcome.ALLOWED, reason=Reason.CLEAR
    )


def _stops_age(entry: Entry, ask: Ask, now_ms: int, policy: Policy) -> tuple[Entry, Decision]:
    """A stopped attempt is no activity, so a retry loop waits its own stop out."""
    after, decision = admit(entry, ask, now_ms, policy)
    return (after if decision.runs else replace(after, active_ms=entry.active_ms)), decision


def _unknown_is_zero(result: Result) -> Result:
    usage = result.usage
    return replace(result, usage=Usage(usage.input_total or result.input_bytes // 4, usage.cached_read or 0))


async def _loses_what_was_seen(gateway: Gateway, journey: Journey) -> None:
    """A cancelled request forgets what the provider had reported before."""
    if journey.tally.ending(otherwise=journey.ending) is Ending.CANCELLED:
        journey.tally = replace(journey.tally, usage=Usage())
    await _finish(gateway, journey)


async def _settles_twice(gateway: Gateway, journey: Journey) -> None:
    await _finish(gateway, journey)
    await _finish(gateway, journey)


async def _unshielded(work: Coroutine[None, None, None]) -> None:
    await work


def _deaf(self: Tally, seen: Seen) -> Tally:
    """The end of an answer is never noticed."""
    return self if isinstance(seen, Finished) else _add(self, seen)


def _anybody_reseeded(self: Tally, seen: Seen) -> Tally:
    """Every rebuild of the provider's counts as the client's doing."""
    return replace(self, client_changed=True) if isinstance(seen, Reseed) else _add(self, seen)


def _same_fingerprint(self: Digester, *parts: object) -> Fingerprint:
    del self, parts
    return Fingerprint(b"", b"", b"", b"", b"", b"", 0)


def _evicts_what_runs(self: MemoryStore) -> None:
    del self._entries[next(iter(self._entries))]


def _shared_key(scope: Scope, secret: bytes) -> str:
    return budget_key(replace(scope, caller=None), secret)


def _key_of_all_models(scope: Scope, secret: bytes) -> str:
    return budget_key(replace(scope, model=""), secret)


def _open_key(scope: Scope, secret: bytes) -> str:
    return f"{scope.caller} {budget_key(scope, secret)}"


_finish, _add = road._finish, Tally.add

MISTAKES = (
    Mistake("a reuse clears nothing", road, "settle", _afterwards(_never_cleared)),
    Mistake("a cancelled request stays in flight", road, "settle", _afterwards(_leaked)),
    Mistake("rebuilds are never used up", road, "settle", _afterwards(_never_used_up)),
    Mistake("every stop claims to be measured", road, "settle", _afterwards(_one_kind_of_stop)),
    Mistake("a small request clears the count", road, "settle", _afterwards(_small_requests_clear)),
    Mistake("unknown usage is a measured zero", road, "settle", _ended(_unknown_is_zero)),
    Mistake("a cancelled request counts", road, "settle", _ending_as(Ending.CANCELLED, Ending.COMPLETED)),
    Mistake("a refusal is excused", road, "settle", _ending_as(Ending.REFUSED, Ending.CANCELLED)),
    Mistake("a timeout is a cancellation", road, "settle", _ending_as(Ending.TIMEOUT, Ending.CANCELLED)),
    Mistake("a shutdown is a cancellation", road, "settle", _ending_as(Ending.SHUTDOWN, Ending.CANCELLED)),
    Mistake("every failure began", road, "settle", _ended(lambda result: replace(result, began=True))),
    Mistake("what was never sent counts", road, "settle", _ended(lambda result: replace(result, sent=True))),
    Mistake("sizes are forgotten", road, "settle", _ended(lambda result: replace(result, conversation_bytes=10**9))),
    Mistake("nothing is ever stopped", road, "admit", _all_run),
    Mistake("a retry loop ages its own stop away", road, "admit", _stops_age),
    Mistake(
        "every conversation is small enough",
        road,
        "admit",
        _asked(lambda entry, ask: (entry, replace(ask, conversation_bytes=1))),
    ),
    Mistake(
        "every provider is self-hosted",
        road,
        "admit",
        _asked(lambda entry, ask: (entry, replace(ask, self_hosted=True))),
    ),
    Mistake(
        "a new request starts anew",
        road,
        "admit",
        _asked(lambda entry, ask: (Entry(in_flight=entry.in_flight, active_ms=entry.active_ms), ask)),
    ),
    Mistake("a stop is not obeyed", Decision, "runs", property(lambda _: True)),
    Mistake("a cancelled request forgets what it measured", road, "_finish", _loses_what_was_seen),
    Mistake("a request is settled twice", road, "_finish", _settles_twice),
    Mistake("a departure interrupts the settlement", road, "_exactly_once", _unshielded),
    Mistake("the end of an answer is not noticed", Tally, "add", _deaf),
    Mistake("every reseed is the client's", Tally, "add", _anybody_reseeded),
    Mistake("a change is not noticed", Digester, "fingerprint", _same_fingerprint),
    Mistake("a budget in flight is evicted", MemoryStore, "_evict", _evicts_what_runs),
    Mistake("all callers share one budget", road, "budget_key", _shared_key),
    Mistake("models share one budget", road, "budget_key", _key_of_all_models),
    Mistake("a key shows the caller", road, "budget_key", _open_key),
)
