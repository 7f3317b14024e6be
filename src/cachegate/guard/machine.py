"""The state machine of the guard: `admit` before a request, `settle` exactly once after it.

Both are pure: `(entry, event, now) -> (entry, answer)`. Every rule stands here once; `docs/guard.md` numbers them.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from cachegate.guard.budget import Entry
from cachegate.guard.fingerprint import UNKNOWN, Cause, Fingerprint, Sizes, cause, client_changed
from cachegate.guard.policy import Policy
from cachegate.guard.usage import Kind, Usage, classify


class Outcome(StrEnum):
    """What became of a request (R24)."""

    ALLOWED = "allowed"
    BLOCKED = "blocked"
    OBSERVED = "observed"
    RECOVERED = "recovered"
    EXCUSED = "excused"


class Reason(StrEnum):
    """The fixed word that explains an outcome."""

    CLEAR = "clear"
    """Admitted below the limit."""
    MEASURED = "measured"
    """At the limit, and every counted request measured a miss."""
    UNREPORTED = "unreported"
    """At the limit, and a counted request reported no cache usage; or, settled, this one did not."""
    SMALLER_INPUT = "smaller_input"
    """At the limit, but the conversation is at most half of the failed one."""
    REUSE = "reuse"
    MISS = "miss"
    NEUTRAL = "neutral"
    NOT_SENT = "not_sent"
    """The caller left before anything was sent: nothing happened (R19)."""
    CANCELLED = "cancelled"
    """Cold, but cancelled by the caller (R14)."""
    CANCEL_REBUILD = "rebuild_after_cancel"
    CLIENT_CHANGE = "client_change"
    REFUSAL_REBUILD = "rebuild_after_refusal"


class Ending(StrEnum):
    """Why a request ended; named once, at the end of the road."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"
    REFUSED = "refused"
    FAILED = "failed"
    TIMEOUT = "timeout"
    SHUTDOWN = "shutdown"


@dataclass(frozen=True, slots=True)
class Ask:
    """A request that wants to run."""

    conversation_bytes: int
    """Bytes of the conversation, without top-level tools, instructions and metadata (R10)."""
    self_hosted: bool = False
    """Measured, never stopped (R11)."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to an `Ask`."""

    outcome: Outcome
    reason: Reason
    count: int
    cause: Cause = UNKNOWN
    """Of a stop: why the last counted request was cold."""

    @property
    def runs(self) -> bool:
        """Whether the provider may be called."""
        return self.outcome is not Outcome.BLOCKED


@dataclass(frozen=True, slots=True)
class Result:
    """How an admitted request ended."""

    usage: Usage
    ending: Ending
    conversation_bytes: int
    input_bytes: int
    """Bytes of the whole input: conversation, tools and instructions; stands for tokens where none are known."""
    sent: bool = True
    """Whether anything of the request left for the provider."""
    began: bool = True
    """Whether the provider began a successful response."""
    client_changed: bool = False
    """The provider reported a rebuild that the client caused: other tools, instructions, thinking or speed (R15)."""
    fingerprint: Fingerprint | None = None
    """Digests of the request, from which the same is told where the provider reports nothing."""
    started_ms: int = 0
    """When it was admitted, on the clock of `now_ms`."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What the end of a request did to its budget."""

    kind: Kind
    reason: Reason
    excused: bool
    count: int
    cause: Cause = UNKNOWN
    """Of a cold request: what differs from the one before it."""


def admit(entry: Entry, ask: Ask, now_ms: int, policy: Policy) -> tuple[Entry, Decision]:
    """Decide whether a request may run (R9-R13). Every attempt, stopped ones included, is activity."""
    entry = replace(_woken(entry, now_ms, policy), active_ms=now_ms)
    if entry.count < policy.limit:
        outcome, reason = Outcome.ALLOWED, Reason.CLEAR
    elif entry.failed_bytes > 0 and ask.conversation_bytes * 2 <= entry.failed_bytes:
        outcome, reason = Outcome.RECOVERED, Reason.SMALLER_INPUT
    else:
        outcome = Outcome.OBSERVED if ask.self_hosted else Outcome.BLOCKED
        reason = Reason.UNREPORTED if entry.unreported else Reason.MEASURED
    decision = Decision(outcome, reason, entry.count, entry.cause)
    if decision.runs:
        entry = replace(entry, in_flight=entry.in_flight + 1)
    return entry, decision


def settle(entry: Entry, result: Result, now_ms: int, policy: Policy) -> tuple[Entry, Settled]:
    """Account for an admitted request that ended (R5-R8, R14-R19); the order of the steps is the policy's."""
    entry = replace(entry, in_flight=max(0, entry.in_flight - 1), active_ms=now_ms)
    if not result.sent:
        return entry, Settled(Kind.NEUTRAL, Reason.NOT_SENT, excused=False, count=entry.count)
    kind = _kind(entry, result, policy)
    why = UNKNOWN
    if kind is Kind.REUSE:
        entry, reason = _reused(entry, result, policy), Reason.REUSE
    elif kind is Kind.NEUTRAL:
        reason = Reason.NEUTRAL
    else:
        gap_ms = result.started_ms - entry.settled_ms if entry.settled_ms else 0
        why = cause(entry.fingerprint, result.fingerprint, gap_ms, policy.idle_ms)
        entry, reason = _cold(entry, kind, result, policy)
        entry = entry if reason in _EXCUSES else replace(entry, cause=why)
    entry = _with_passes(_remembered(entry, kind, result, now_ms), result.ending)
    return entry, Settled(kind, reason, excused=reason in _EXCUSES, count=entry.count, cause=why)


_EXCUSES = frozenset({Reason.CANCELLED, Reason.CANCEL_REBUILD, Reason.CLIENT_CHANGE, Reason.REFUSAL_REBUILD})


def _woken(entry: Entry, now_ms: int, policy: Policy) -> Entry:
    """Forget everything after real silence (R12)."""
    idle = entry.in_flight == 0 and now_ms - entry.active_ms >= policy.idle_ms
    return Entry(settled_ms=entry.settled_ms) if idle else entry


def _kind(entry: Entry, result: Result, policy: Policy) -> Kind:
    """Classify the request, and drop what an error before any response cannot have measured (R19)."""
    read = result.usage.cached_read or 0
    prefix = entry.prefix if read <= entry.prefix else entry.prefix_high
    kind = classify(result.usage, prefix, result.input_bytes, policy)
    return Kind.NEUTRAL if kind is Kind.UNREPORTED and _nothing_ran(result) else kind


def _nothing_ran(result: Result) -> bool:
    """Whether the provider failed before it began to answer (R19)."""
    return result.ending is Ending.FAILED and not result.began


def _remembered(entry: Entry, kind: Kind, result: Result, now_ms: int) -> Entry:
    """Keep what the next request is compared with: the measured prefix (R7) and the digests (R15)."""
    total = result.usage.input_total
    if result.usage.measured and total is not None:
        high = max(entry.prefix_high, total) if kind is Kind.NEUTRAL else total
        entry = replace(entry, prefix=total, prefix_high=high)
    if _nothing_ran(result):
        return entry
    entry = replace(entry, settled_ms=now_ms)
    if kind is Kind.NEUTRAL and entry.fingerprint is not None:
        # A small side request with tools of its own is not what the next turn of the conversation continues.
        return entry
    return replace(entry, fingerprint=result.fingerprint, input_bytes=result.input_bytes)


def _reused(entry: Entry, result: Result, policy: Policy) -> Entry:
    """Clear the count; a large read also restores the rebuilds (R8, R16, R18)."""
    large = (result.usage.cached_read or 0) >= policy.large_tokens
    return replace(
        entry,
        count=0,
        unreported=False,
        failed_bytes=0,
        cancel_pass=False,
        refusal_pass=False,
        refusal_pass_spent=False,
        cause=UNKNOWN,
        rebuilds_used=0 if large else entry.rebuilds_used,
    )


def _cold(entry: Entry, kind: Kind, result: Result, policy: Policy) -> tuple[Entry, Reason]:
    """Count a cold request, or excuse it (R14-R18). A refusal is never excused; its pass is used first.

    The first cancelled request of a run is free, also where it brought other tools: the rebuild after it pays for both.
    """
    if result.ending is Ending.REFUSED:
        return _counted(entry, kind, result)
    if entry.refusal_pass:
        return replace(entry, refusal_pass=False, refusal_pass_spent=True), Reason.REFUSAL_REBUILD
    if entry.rebuilds_used < policy.rebuilds:
        rebuilt = replace(entry, cancel_pass=False, rebuilds_used=entry.rebuilds_used + 1)
        if entry.cancel_pass:
            return rebuilt, Reason.CANCEL_REBUILD
        if result.ending is Ending.CANCELLED:
            return entry, Reason.CANCELLED
        if _changed_by_client(entry, result):
            return rebuilt, Reason.CLIENT_CHANGE
    return _counted(entry, kind, result)


def _changed_by_client(entry: Entry, result: Result) -> bool:
    """Whether the client caused the rebuild, by the provider's word or by the digests (R15)."""
    sizes = Sizes(before=entry.input_bytes, now=result.input_bytes)
    return result.client_changed or client_changed(entry.fingerprint, result.fingerprint, sizes)


def _counted(entry: Entry, kind: Kind, result: Result) -> tuple[Entry, Reason]:
    counted = replace(
        entry,
        count=entry.count + 1,
        unreported=entry.unreported or kind is Kind.UNREPORTED,
        failed_bytes=result.conversation_bytes,
    )
    return counted, Reason.UNREPORTED if kind is Kind.UNREPORTED else Reason.MISS


def _with_passes(entry: Entry, ending: Ending) -> Entry:
    """Give the pass that this ending earns for the next rebuild (R14, R17)."""
    match ending:
        case Ending.CANCELLED:
            return replace(entry, cancel_pass=True)
        case Ending.REFUSED:
            return replace(entry, refusal_pass=not entry.refusal_pass_spent)
        case Ending.COMPLETED | Ending.FAILED | Ending.TIMEOUT | Ending.SHUTDOWN:
            return entry
