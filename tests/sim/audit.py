"""Holds what the gateway does against what really happened: the rules' claims as invariants.

Every change of the guard's store passes here on its way, and every record. The first thing that must not be ends the
world, with the story of the budget where it happened.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from cachegate.guard.budget import Entry
from cachegate.guard.machine import Decision, Settled
from cachegate.guard.policy import Policy
from cachegate.observe.diagnostics import Diagnostics
from cachegate.observe.record import Record
from cachegate.stores.base import Answer, Change, Condition, Lease, Store
from sim.books import REBUILDS, Book, Run
from sim.callers import ENDS, ERRORS, OK, SimCaller
from sim.truth import CANARY, CURRENT, Ask, Budget

COLD_MAX = 11
"""C1: two counted, four rebuilds each behind a cancelled request, one behind a refusal."""


@dataclass(slots=True)
class Auditor:
    """Watches one world."""

    policy: Policy
    now_ms: Callable[[], int]
    self_hosted: frozenset[str]
    """Providers that are measured and never stopped."""
    forgetful: bool
    """The store holds fewer budgets than there are, so some are evicted."""
    spared: frozenset[str]
    """Clients whose cache works and who do nothing about it: no stop may ever meet them."""
    books: dict[Budget, Book] = field(default_factory=dict)
    keys: dict[str, Budget] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)
    """What happened how often."""
    broken: str = ""
    """The first thing that must not be."""
    diagnostics: Diagnostics = field(default_factory=lambda: Diagnostics(records_max=1))

    def fault(self, what: str, ask: Ask) -> None:
        """Note what must not be; only the first time counts, the rest may follow from it."""
        if not self.broken:
            story = self.books[ask.budget].story if ask.budget in self.books else ()
            self.broken = "\n".join((f"request {ask.number} of {ask.client} ({ask.act}): {what}", *story))

    def applied(self, key: str, before: Entry, after: Entry, answer: object) -> None:
        """Look at one change of the store."""
        ask = CURRENT.get().ask
        if isinstance(answer, Decision) and ask.settled is not None and ask.spare:
            ask = self._moved(ask)
        ask.applied += 1
        book = self.books.setdefault(ask.budget, Book())
        if self.keys.setdefault(key, ask.budget) != ask.budget:
            self.fault("two budgets share one key", ask)
        match answer:
            case Decision() if ask.applied == 1:
                self._admitted(book, ask, before, answer)
            case Settled() if ask.applied == 2 and not ask.stopped:
                self._settled(book, ask, answer)
            case _:
                self.fault(f"change number {ask.applied} of the store is {answer}", ask)
        book.active_ms = self.now_ms()
        if after.in_flight != len(book.running):
            self.fault(f"{len(book.running)} requests run, the guard thinks {after.in_flight}", ask)

    def _moved(self, before: Ask) -> Ask:
        """Another provider is asked, with a budget of its own."""
        if before.stopped or not before.never_began or before.presence.departure:
            self.fault("another provider was asked, and the first had begun or must not be asked", before)
        ask = before.go_elsewhere()
        CURRENT.get().ask = ask
        self.seen["asked elsewhere"] += 1
        return ask

    def _admitted(self, book: Book, ask: Ask, before: Entry, decision: Decision) -> None:
        ask.decision = decision
        now_ms = self.now_ms()
        if book.silent(now_ms, self.policy):
            self.seen["silence"] += bool(book.story)
            book.forget()
        elif before == Entry() and book.story:
            self._evicted(book, ask)
        must = book.decides(ask, self.policy, self_hosted=ask.budget.provider in self.self_hosted)
        book.tell(now_ms, f"#{ask.number} {ask.act}: {ask.conversation_bytes} bytes -> {decision.outcome}")
        if (decision.outcome.value, decision.reason.value) != must:
            self.fault(f"{book.run.counted} counted: it must be {must}, not {decision}", ask)
        if ask.stopped:
            self._stopped(book, ask)
            return
        for other in book.running.values():
            other.overlapped = ask.overlapped = True
        book.running[ask.number] = ask
        self.seen["overlapping"] += ask.overlapped
        self.seen["spared"] += ask.client in self.spared

    def _stopped(self, book: Book, ask: Ask) -> None:
        run = book.run
        if ask.client in self.spared and not run.shut:
            self.fault("a chat whose cache works was stopped", ask)
        if run.measured + run.unreported < self.policy.limit:
            self.fault(f"stopped after {run.measured} misses and {run.unreported} unreported requests (C2)", ask)

    def _evicted(self, book: Book, ask: Ask) -> None:
        self.seen["evicted"] += 1
        if not self.forgetful or book.running:
            self.fault(f"the store forgot a budget with {len(book.running)} requests running", ask)
        book.forget()

    def _settled(self, book: Book, ask: Ask, settled: Settled) -> None:
        ask.settled = settled
        if book.running.pop(ask.number, None) is None:
            self.fault("it was settled and did not run", ask)
        if ask.open and not (ask.finished and ask.usage.measured):
            self.fault("it was settled while the provider still worked on it", ask)
        usage = f"{ask.usage.input_total}/{ask.usage.cached_read}"
        book.tell(self.now_ms(), f"#{ask.number} {usage} {ask.ending} -> {settled.kind} {settled.reason}")
        self.seen[settled.reason.value] += 1
        if not ask.sent:
            if settled.reason.value != "not_sent":
                self.fault(f"nothing was sent, and it is settled as {settled.reason}", ask)
            return
        shown = book.shows(ask, self.policy)
        if settled.kind.value != shown:
            self.fault(f"it is {shown}, not {settled.kind}", ask)
        changed = book.changed(ask)
        if shown == "reuse":
            self._reused(book, ask)
        elif shown != "neutral":
            self._cold(book, ask, settled, changed=changed)
        run = book.run
        run.cancelled |= ask.ending == "cancelled"
        run.refused |= ask.ending == "refused"
        run.shut |= ask.ending == "shutdown"
        run.owed = ask.ending == "cancelled" and not ask.overlapped
        run.disturbed |= changed or ask.ending in {"cancelled", "refused"}
        book.remember(ask, shown)
        if settled.count != run.counted:
            self.fault(f"{run.counted} are counted, not {settled.count}", ask)
        self._claim_bounds(run, ask)

    def _reused(self, book: Book, ask: Ask) -> None:
        if (ask.usage.cached_read or 0) >= self.policy.large_tokens:
            book.rebuilds = 0
        book.run = Run()

    def _cold(self, book: Book, ask: Ask, settled: Settled, *, changed: bool) -> None:
        run, unreported = book.run, ask.usage.uncached is None
        run.unreported += unreported
        run.measured += not unreported
        alone = not ask.overlapped and ask.decision is not None and ask.decision.outcome.value == "allowed"
        run.cold += alone
        if settled.excused:
            self._excused(book, ask, settled.reason.value, changed=changed)
            return
        self._must_count(book, ask, changed=changed)
        run.counted += 1
        run.counted_unreported |= unreported
        run.failed_bytes = ask.conversation_bytes

    def _excused(self, book: Book, ask: Ask, reason: str, *, changed: bool) -> None:
        """Every excuse needs what it is an excuse for (R14 ... R18)."""
        run = book.run
        grounds = {
            "cancelled": ask.ending == "cancelled",
            "rebuild_after_cancel": run.cancelled,
            "client_change": changed,
            "rebuild_after_refusal": run.refused and not run.refusals_excused,
        }
        if not grounds[reason] or ask.ending == "refused":
            self.fault(f"nothing excuses it as {reason}", ask)
        if reason in REBUILDS | {"cancelled"} and book.rebuilds >= self.policy.rebuilds:
            self.fault(f"excused as {reason} after {book.rebuilds} rebuilds", ask)
        book.rebuilds += reason in REBUILDS
        run.refusals_excused += reason == "rebuild_after_refusal"

    def _must_count(self, book: Book, ask: Ask, *, changed: bool) -> None:
        """A caller's own follow-up or change is not counted while rebuilds are left (C3)."""
        follow_up = ask.ending == "cancelled" or book.run.owed or changed
        if follow_up and ask.ending != "refused" and book.rebuilds < self.policy.rebuilds:
            self.fault(f"it was counted, with {book.rebuilds} rebuilds used", ask)

    def _claim_bounds(self, run: Run, ask: Ask) -> None:
        if ask.budget.provider in self.self_hosted:
            return
        bound = COLD_MAX if run.disturbed else self.policy.limit
        if run.cold > bound:
            self.fault(f"{run.cold} cold requests ran one after the other, at most {bound} may (C1)", ask)
        self.seen[f"cold in a row: {run.cold}"] += 1

    def recorded(self, record: Record) -> None:
        """Look at one record, as an observer of the gateway."""
        ask = CURRENT.get().ask
        ask.records += 1
        if (record.request_id, record.provider) != (f"req_{ask.number}", ask.budget.provider):
            self.fault(f"it is recorded as {record.request_id} to {record.provider}", ask)
        self.diagnostics(record)
        shown = f"{record!r} {self.diagnostics.recent()!r}"
        if CANARY in shown:
            self.fault(f"what the gateway notes gives a text or an id away: {shown}", ask)
        ending = "stopped" if ask.stopped else ask.ending
        self.seen[ending] += 1
        if record.ending != ending:
            self.fault(f"it ended as {ending}, and is recorded as {record.ending}", ask)
        if record.usage != ask.usage:
            self.fault(f"it measured {ask.usage}, and {record.usage} is recorded", ask)
        if (record.guard is None) is ask.guarded:
            self.fault(f"its guard record is {record.guard}", ask)
        self.seen["unguarded"] += record.guard is None
        if record.guard is not None:
            self.seen[record.guard.outcome] += 1
            self._noted(ask, record.guard.key, record.guard.outcome, record.guard.count)

    def _noted(self, ask: Ask, key: str, outcome: str, count: int) -> None:
        if self.keys.get(key) != ask.budget:
            self.fault(f"it is noted under {key}, the key of {self.keys.get(key)}", ask)
        answer = ask.settled or ask.decision
        excused = ask.settled is not None and ask.settled.excused
        admitted = ask.decision.outcome.value if ask.decision is not None else ""
        if answer is None or (outcome, count) != ("excused" if excused else admitted, answer.count):
            self.fault(f"{outcome} with {count} counted is noted of {answer}", ask)

    def ended(self, sent: Ask, caller: SimCaller) -> None:
        """Look at a request that is over, store and all."""
        for ask in sent.attempts:
            if ask.decision is None and ask.guarded:
                if ask.reached or ask.records:
                    self.fault("it reached a provider and the guard was never asked", ask)
                return
            if ask.records != 1:
                self.fault(f"it has {ask.records} records", ask)
            if ask.guarded and not ask.stopped and ask.settled is None:
                self.fault("it was never settled", ask)
            if ask.stopped and (ask.reached or caller.status not in {0, 400}):
                self.fault(f"it was stopped, and answered with {caller.status}; provider reached: {ask.reached}", ask)
        last = sent.attempts[-1]
        self._answered(last, caller)
        if last.spare and last.never_began and not last.presence.departure:
            self.fault("no other provider was asked", last)

    def _answered(self, ask: Ask, caller: SimCaller) -> None:
        """Whoever is still there gets an end, and one that is no success only where it was none."""
        if ask.presence.departure in {"cancelled", "timeout"}:
            return
        if not caller.answered:
            self.fault("its caller was left without an end", ask)
        if caller.answered == "ended" and caller.status == OK and ask.streamed:
            if not caller.last.startswith(ENDS):
                self.fault(f"its stream ended with {caller.last[:80]!r}", ask)
            if ask.finished is caller.last.startswith(ERRORS):
                self.fault(f"finished: {ask.finished}, and its caller was told {caller.last[:80]!r}", ask)

    def at_rest(self, in_flight: int) -> None:
        """Look at the whole world when nothing runs any more."""
        for book in self.books.values():
            for ask in book.running.values():
                self.fault("it is still in flight when everything has ended", ask)
        if in_flight and not self.broken:
            self.broken = f"{in_flight} requests are in flight when everything has ended"


class WatchedStore:
    """Lets the auditor see every change of a store, and takes its time before each, as a shared store would."""

    late_s = 0.0
    """Seconds between a change and its answer."""

    def __init__(self, inner: Store, auditor: Auditor, delay_s: Callable[[], float]) -> None:
        self._inner = inner
        self._auditor = auditor
        self._delay_s = delay_s

    async def open(self) -> None:
        await self._inner.open()

    def condition(self) -> Condition:
        return self._inner.condition()

    async def apply(self, key: str, change: Change[Answer], lease: Lease | None = None) -> Answer:
        if delay_s := self._delay_s():
            await asyncio.sleep(delay_s)
        answer = await self._inner.apply(key, self._watched(key, change), lease)
        if self.late_s:
            await asyncio.sleep(self.late_s)
        return answer

    async def note(self, key: str, lease: Lease) -> None:
        await self._inner.note(key, lease)

    async def close(self) -> None:
        await self._inner.close()

    def _watched(self, key: str, change: Change[Answer]) -> Change[Answer]:
        def watched(before: Entry) -> tuple[Entry, Answer]:
            after, answer = change(before)
            self._auditor.applied(key, before, after, answer)
            return after, answer

        return watched
