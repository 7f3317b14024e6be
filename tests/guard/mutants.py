"""Hand-made wrong guards. Each breaks one rule by changing one place; the scenarios must notice every one.

A text that is no longer in the source is an error: a mutant that changes nothing proves nothing.
"""

from dataclasses import dataclass

from guard.subject import Guard, altered, source


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of the source."""

    name: str
    file: str
    old: str
    new: str
    breaks: str
    """The rule, and how it is broken."""

    @property
    def id(self) -> str:
        """What pytest calls it."""
        return f"{self.breaks.partition(':')[0]} {self.name}"


class StaleMutantError(ValueError):
    """The text that a mutant changes does not stand in the source exactly once."""


def guard_of(mutant: Mutant) -> Guard:
    """Build the wrong guard. Raises StaleMutantError when the source has moved on."""
    sources = {name: source(name) for name in ("machine", "usage")}
    found = sources[mutant.file].count(mutant.old)
    if found != 1:
        raise StaleMutantError(f"{mutant.name}: {mutant.old!r} stands {found} times in {mutant.file}.py, not once")
    sources[mutant.file] = sources[mutant.file].replace(mutant.old, mutant.new)
    return altered(sources["machine"], sources["usage"])


def _machine(name: str, old: str, new: str, breaks: str) -> Mutant:
    return Mutant(name, "machine", old, new, breaks)


def _usage(name: str, old: str, new: str, breaks: str) -> Mutant:
    return Mutant(name, "usage", old, new, breaks)


_RESTORED = "rebuilds_used=0 if large else entry.rebuilds_used"
_RELEASE = "in_flight=max(0, entry.in_flight - 1)"
_USES_REFUSAL = "replace(entry, refusal_pass=False, refusal_pass_spent=True), Reason.REFUSAL_REBUILD"
_USES_REBUILD = "replace(entry, cancel_pass=False, rebuilds_used=entry.rebuilds_used + 1), reason"
_MEASURED_PREFIX = "if result.usage.measured and result.usage.input_total is not None:"

MUTANTS = (
    # admit
    _machine("one miss more", "entry.count < policy.limit", "entry.count <= policy.limit", "R9: stops one late"),
    _machine("limit in the code", "entry.count < policy.limit", "entry.count < 2", "R9: ignores the policy's limit"),
    _machine(
        "less than half",
        "ask.conversation_bytes * 2 <= entry",
        "ask.conversation_bytes * 2 < entry",
        "R10: exactly half is refused",
    ),
    _machine(
        "any smaller input",
        "ask.conversation_bytes * 2 <= entry",
        "ask.conversation_bytes < entry",
        "R10: a little less than the failed input is admitted",
    ),
    _machine("half of nothing", "entry.failed_bytes > 0 and ", "", "R10: an empty conversation is always admitted"),
    _machine(
        "self-hosted is stopped",
        "Outcome.OBSERVED if ask.self_hosted else Outcome.BLOCKED",
        "Outcome.BLOCKED",
        "R11: a model of one's own is stopped",
    ),
    _machine(
        "nobody is stopped",
        "Outcome.OBSERVED if ask.self_hosted else Outcome.BLOCKED",
        "Outcome.OBSERVED",
        "R9: the limit only observes",
    ),
    _machine(
        "always measured",
        "Reason.UNREPORTED if entry.unreported else Reason.MEASURED",
        "Reason.MEASURED",
        "R9: unknown usage is told as measured",
    ),
    _machine(
        "last kind decides the words",
        "unreported=entry.unreported or kind is Kind.UNREPORTED",
        "unreported=kind is Kind.UNREPORTED",
        "R9: one measured request hides an unreported one",
    ),
    _machine(
        "unreported for ever",
        "count=0,\n        unreported=False,",
        "count=0,",
        "R9: an unreported request before a reuse still decides the words",
    ),
    _machine(
        "stopped attempts are no activity",
        "active_ms=now_ms)\n    if entry.count",
        "active_ms=entry.active_ms if entry.count >= policy.limit else now_ms)\n    if entry.count",
        "R12: a retry loop ages its own stop away",
    ),
    _machine(
        "stopped attempts run",
        "    if decision.runs:\n        entry = replace(entry, in_flight=entry.in_flight + 1)",
        "    entry = replace(entry, in_flight=entry.in_flight + 1)",
        "R13: a stopped request stays in flight for ever",
    ),
    _machine(
        "nothing runs",
        "in_flight=entry.in_flight + 1",
        "in_flight=entry.in_flight",
        "R13: a running request does not keep the history",
    ),
    _machine("never released", _RELEASE, "in_flight=entry.in_flight", "R13: the entry never goes idle again"),
    _machine("all released", _RELEASE, "in_flight=0", "R13: the first end releases every other request"),
    _machine(
        "idle while running",
        "entry.in_flight == 0 and now_ms - entry.active_ms",
        "now_ms - entry.active_ms",
        "R13: a long inference is taken for silence",
    ),
    _machine(
        "idle a moment late",
        "now_ms - entry.active_ms >= policy.idle_ms",
        "now_ms - entry.active_ms > policy.idle_ms",
        "R12: exactly five minutes are not enough",
    ),
    _machine("never idle", "return Entry() if idle else entry", "return entry", "R12: silence forgets nothing"),
    _machine(
        "silence keeps the rebuilds used",
        "return Entry() if idle else entry",
        "return Entry(rebuilds_used=entry.rebuilds_used) if idle else entry",
        "R16: silence does not restore the allowance",
    ),
    _machine(
        "silence keeps the passes",
        "return Entry() if idle else entry",
        "return Entry(cancel_pass=entry.cancel_pass, refusal_pass=entry.refusal_pass) if idle else entry",
        "R12: a pass outlives the silence",
    ),
    _machine(
        "silence keeps the prefix",
        "return Entry() if idle else entry",
        "return Entry(prefix=entry.prefix) if idle else entry",
        "R12: a read is compared with what was there before the silence",
    ),
    # settle
    _machine("ends are no activity", f"{_RELEASE}, active_ms=now_ms", _RELEASE, "R12: a completion is no activity"),
    _machine(
        "unsent gives a pass",
        "        return entry, Settled(Kind.NEUTRAL, Reason.NOT_SENT",
        "        entry = _with_passes(entry, result.ending)\n"
        "        return entry, Settled(Kind.NEUTRAL, Reason.NOT_SENT",
        "R19: a request that never left gives a pass",
    ),
    _machine("unsent counts", "if not result.sent:", "if False:", "R19: a request that never left is accounted for"),
    _machine("prefix never set", _MEASURED_PREFIX, "if False:", "R7: nothing is compared with the request before"),
    _machine(
        "prefix of unmeasured requests",
        _MEASURED_PREFIX,
        "if result.usage.input_total is not None:",
        "R7: a request that measured no cache sets the prefix",
    ),
    _machine(
        "prefix is the read",
        "prefix=result.usage.input_total)",
        "prefix=result.usage.cached_read or 0)",
        "R6: a pinned system prompt passes for reuse",
    ),
    _machine(
        "prefix only grows",
        "prefix=result.usage.input_total)",
        "prefix=max(entry.prefix, result.usage.input_total))",
        "R7: the largest request, not the last, is compared with",
    ),
    _machine(
        "small requests clear",
        "        reason = Reason.NEUTRAL",
        "        entry, reason = replace(entry, count=0), Reason.NEUTRAL",
        "R8: a small request erases a counted one",
    ),
    _machine(
        "small requests count",
        "        reason = Reason.NEUTRAL",
        "        entry, reason = replace(entry, count=entry.count + 1), Reason.NEUTRAL",
        "R8: a small request counts",
    ),
    _machine(
        "small requests take the pass",
        "        reason = Reason.NEUTRAL",
        "        entry, reason = replace(entry, cancel_pass=False, refusal_pass=False), Reason.NEUTRAL",
        "R18: a pass does not wait",
    ),
    _machine(
        "small cancelled requests give no pass",
        "entry = _with_passes(entry, result.ending)",
        "entry = entry if kind is Kind.NEUTRAL else _with_passes(entry, result.ending)",
        "R14: a follow-up to a small request is not followed by a pass",
    ),
    _machine(
        "warm cancelled requests give no pass",
        "entry = _with_passes(entry, result.ending)",
        "entry = entry if kind is Kind.REUSE else _with_passes(entry, result.ending)",
        "R14: a cancellation after a read, or a warm refusal, gives no pass",
    ),
    _machine(
        "errors before a response count",
        "Kind.NEUTRAL if kind is Kind.UNREPORTED and nothing_ran else kind",
        "kind",
        "R19: a 429 counts as unreported",
    ),
    _machine(
        "errors before a response measure nothing",
        "Kind.NEUTRAL if kind is Kind.UNREPORTED and nothing_ran else kind",
        "Kind.NEUTRAL if nothing_ran else kind",
        "R19: usage that came with an error is lost",
    ),
    _machine(
        "broken responses are nothing",
        "result.ending is Ending.FAILED and not result.began",
        "result.ending is Ending.FAILED",
        "R19: a response that began and broke is not unreported",
    ),
    _machine(
        "timeouts before a response are nothing",
        "result.ending is Ending.FAILED and not result.began",
        "result.ending in {Ending.FAILED, Ending.TIMEOUT} and not result.began",
        "R19: a timeout without usage is not unreported",
    ),
    _machine(
        "refusals before a response are nothing",
        "result.ending is Ending.FAILED and not result.began",
        "result.ending in {Ending.FAILED, Ending.REFUSED} and not result.began",
        "R17: a refusal by error status does not count",
    ),
    # reuse
    _machine("reuse does not clear", "        count=0,\n", "", "R8: a reuse does not clear the count"),
    _machine("reuse keeps the pass", "        cancel_pass=False,\n", "", "R18: a pass outlives a reuse"),
    _machine("reuse keeps the refusal's pass", "        refusal_pass=False,\n", "", "R18: a pass outlives a reuse"),
    _machine(
        "one refusal pass for ever",
        "        refusal_pass_spent=False,\n",
        "",
        "R17: after a reuse the next refusal gives no pass",
    ),
    _machine("any reuse restores", _RESTORED, "rebuilds_used=0", "R16: a small read restores the allowance"),
    _machine("no reuse restores", _RESTORED, "rebuilds_used=entry.rebuilds_used", "R16: nothing restores rebuilds"),
    _machine(
        "more than 65,536 restores",
        "(result.usage.cached_read or 0) >= policy.large_tokens",
        "(result.usage.cached_read or 0) > policy.large_tokens",
        "R16: a read of exactly 65,536 does not restore",
    ),
    _machine(
        "a large input restores",
        "(result.usage.cached_read or 0) >= policy.large_tokens",
        "(result.usage.input_total or 0) >= policy.large_tokens",
        "R16: the input, not the read, restores",
    ),
    # cold
    _machine(
        "refusals are excused",
        "    if result.ending is Ending.REFUSED:\n        return _counted(entry, kind, result)\n",
        "",
        "R17: a refusal is excused by a pass or a client change",
    ),
    _machine(
        "cancel pass before refusal pass",
        "if entry.refusal_pass:",
        "if entry.refusal_pass and not entry.cancel_pass:",
        "R18: the refusal's pass is used last",
    ),
    _machine(
        "refusal pass is kept", _USES_REFUSAL, "entry, Reason.REFUSAL_REBUILD", "R17: a pass covers every rebuild"
    ),
    _machine(
        "refusal pass costs a rebuild",
        _USES_REFUSAL,
        "replace(entry, refusal_pass=False, refusal_pass_spent=True, rebuilds_used=entry.rebuilds_used + 1), "
        "Reason.REFUSAL_REBUILD",
        "R17: the pass is outside the allowance",
    ),
    _machine(
        "refusal pass needs a rebuild left",
        "if entry.refusal_pass:",
        "if entry.refusal_pass and entry.rebuilds_used < policy.rebuilds:",
        "R17: the pass is outside the allowance",
    ),
    _machine(
        "unlimited refusal passes",
        "refusal_pass=not entry.refusal_pass_spent",
        "refusal_pass=True",
        "C4: refusals too small to count hand out passes for ever",
    ),
    _machine(
        "one rebuild more",
        "entry.rebuilds_used < policy.rebuilds",
        "entry.rebuilds_used <= policy.rebuilds",
        "R16: five rebuilds are excused",
    ),
    _machine(
        "unlimited rebuilds",
        "if entry.rebuilds_used < policy.rebuilds:",
        "if True:",
        "R16: a loop of cancellations is never stopped",
    ),
    _machine(
        "rebuilds cost nothing",
        _USES_REBUILD,
        "replace(entry, cancel_pass=False), reason",
        "R16: excused rebuilds use no allowance",
    ),
    _machine(
        "cancel pass is kept",
        _USES_REBUILD,
        "replace(entry, rebuilds_used=entry.rebuilds_used + 1), reason",
        "R14: one cancellation excuses every later rebuild",
    ),
    _machine(
        "client changes count",
        "entry.cancel_pass or result.client_changed",
        "entry.cancel_pass",
        "R15: a rebuild after a client change counts",
    ),
    _machine(
        "cancel passes do not help",
        "entry.cancel_pass or result.client_changed",
        "result.client_changed",
        "R14: the rebuild after a cancellation counts",
    ),
    _machine(
        "first cancelled request costs a rebuild",
        "return entry, Reason.CANCELLED",
        "return replace(entry, rebuilds_used=entry.rebuilds_used + 1), Reason.CANCELLED",
        "R16: the first cancelled request uses none",
    ),
    _machine(
        "cancelled requests count",
        "        if result.ending is Ending.CANCELLED:\n            return entry, Reason.CANCELLED\n",
        "",
        "R14: a cancelled request counts",
    ),
    _machine(
        "cancelled requests are free for ever",
        "        if result.ending is Ending.CANCELLED:\n            return entry, Reason.CANCELLED\n",
        "    if result.ending is Ending.CANCELLED:\n        return entry, Reason.CANCELLED\n",
        "R16: with no rebuild left a cancelled request is still not counted",
    ),
    _machine(
        "timeouts are cancellations",
        "if result.ending is Ending.CANCELLED:",
        "if result.ending in {Ending.CANCELLED, Ending.TIMEOUT}:",
        "R14: a timeout is excused",
    ),
    _machine(
        "shutdowns are cancellations",
        "if result.ending is Ending.CANCELLED:",
        "if result.ending in {Ending.CANCELLED, Ending.SHUTDOWN}:",
        "R14: a shutdown is excused",
    ),
    _machine("nothing counts", "count=entry.count + 1", "count=entry.count", "R8: a miss does not count"),
    _machine(
        "first failed size is kept",
        "failed_bytes=result.conversation_bytes",
        "failed_bytes=entry.failed_bytes or result.conversation_bytes",
        "R10: a failed recovery need not halve again",
    ),
    _machine(
        "smallest failed size is kept",
        "failed_bytes=result.conversation_bytes",
        "failed_bytes=min(entry.failed_bytes or result.conversation_bytes, result.conversation_bytes)",
        "R10: the last counted request is the one to halve",
    ),
    _machine(
        "tools count as conversation",
        "failed_bytes=result.conversation_bytes",
        "failed_bytes=result.input_bytes",
        "R10: top-level tools and instructions count in the comparison",
    ),
    _machine(
        "timeouts give a pass",
        "        case Ending.CANCELLED:\n            return replace(entry, cancel_pass=True)",
        "        case Ending.CANCELLED | Ending.TIMEOUT:\n            return replace(entry, cancel_pass=True)",
        "R14: a timeout gives a pass",
    ),
    _machine("cancellations give no pass", "cancel_pass=True", "cancel_pass=False", "R14: no rebuild is excused"),
    _machine(
        "refusals give no pass",
        "refusal_pass=not entry.refusal_pass_spent",
        "refusal_pass=False",
        "R17: a chat that recovers from a refusal is stopped on its warm message",
    ),
    # usage
    _usage(
        "a known total is a measurement",
        "return self.uncached is not None",
        "return self.input_total is not None",
        "R7: a request of unknown cache use sets the prefix",
    ),
    _usage(
        "uncached is the whole input",
        "return self.input_total - self.cached_read",
        "return self.input_total",
        "R5: what was read from the cache counts as processed",
    ),
    _usage("no 75 percent rule", "prefix > 0 and read * 100", "False and read * 100", "R6: a tool result is an alarm"),
    _usage(
        "more than 75 percent",
        "read * 100 >= prefix * policy.reuse_percent",
        "read * 100 > prefix * policy.reuse_percent",
        "R6: exactly 75 % is not reuse",
    ),
    _usage("no request before is reuse", "prefix > 0 and read", "read", "R6: a first cold request passes for reuse"),
    _usage(
        "reads without a total show nothing",
        "if read is not None and prefix > 0",
        "if uncached is not None and read is not None and prefix > 0",
        "R6: a covering read is lost where the total is unknown",
    ),
    _usage(
        "more than 262,144 bytes",
        "input_bytes >= policy.large_bytes",
        "input_bytes > policy.large_bytes",
        "R6: exactly 262,144 bytes are small",
    ),
    _usage(
        "bytes before tokens",
        "input_bytes >= policy.large_bytes if total is None else total >= policy.large_tokens",
        "input_bytes >= policy.large_bytes",
        "R6: bytes decide where tokens are known",
    ),
    _usage(
        "more than 65,536 unreported",
        "else total >= policy.large_tokens",
        "else total > policy.large_tokens",
        "R6: exactly 65,536 tokens of unknown cache use are small",
    ),
    _usage(
        "unreported is a miss",
        "Kind.UNREPORTED if large else Kind.NEUTRAL",
        "Kind.MISS if large else Kind.NEUTRAL",
        "R6: unknown is presented as a measured miss",
    ),
    _usage(
        "unreported is nothing",
        "Kind.UNREPORTED if large else Kind.NEUTRAL",
        "Kind.NEUTRAL",
        "R9: unknown cache use never stops",
    ),
    _usage("any read is reuse", "if read > 0 and read >= uncached:", "if read > 0:", "R8a: a static read clears"),
    _usage(
        "an even split is no reuse",
        "if read > 0 and read >= uncached:",
        "if read > 0 and read > uncached:",
        "R6: as much cached as uncached is reuse",
    ),
    _usage(
        "nothing read is reuse",
        "if read > 0 and read >= uncached:",
        "if read >= 0 and uncached < policy.large_tokens:",
        "R8: a small request without a read clears",
    ),
    _usage(
        "more than 65,536 uncached",
        "uncached >= policy.large_tokens and",
        "uncached > policy.large_tokens and",
        "R6: exactly 65,536 uncached tokens are no miss",
    ),
    _usage(
        "the whole input makes a miss",
        "uncached >= policy.large_tokens and",
        "total is not None and total >= policy.large_tokens and",
        "R6: the total, not the uncached part, makes a miss",
    ),
)
