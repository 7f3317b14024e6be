"""Hand-made wrong guards. Each breaks one rule by changing one place; the scenarios must notice every one.

A text that is no longer in the source is an error: a mutant that changes nothing proves nothing.
"""

from dataclasses import dataclass

from guard.subject import MODULES, Guard, altered, source


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
    sources = {name: source(name) for name in MODULES}
    found = sources[mutant.file].count(mutant.old)
    if found != 1:
        raise StaleMutantError(f"{mutant.name}: {mutant.old!r} stands {found} times in {mutant.file}.py, not once")
    sources[mutant.file] = sources[mutant.file].replace(mutant.old, mutant.new)
    return altered(sources)


def _machine(name: str, old: str, new: str, breaks: str) -> Mutant:
    return Mutant(name, "machine", old, new, breaks)


def _usage(name: str, old: str, new: str, breaks: str) -> Mutant:
    return Mutant(name, "usage", old, new, breaks)


def _fingerprint(name: str, old: str, new: str, breaks: str) -> Mutant:
    return Mutant(name, "fingerprint", old, new, breaks)


_RESTORED = "rebuilds_used=0 if large else entry.rebuilds_used"
_RELEASE = "in_flight=max(0, entry.in_flight - 1)"
_USES_REFUSAL = "replace(entry, refusal_pass=False, refusal_pass_spent=True), Reason.REFUSAL_REBUILD"
_USES_REBUILD = "replace(entry, cancel_pass=False, rebuilds_used=entry.rebuilds_used + 1)"
_MEASURED_PREFIX = "if result.usage.measured and total is not None:"
_PREFIX = "replace(entry, prefix=total, prefix_high=high)"
_HIGH = "high = max(entry.prefix_high, total) if kind is Kind.NEUTRAL else total"
_HELD_AGAINST = "prefix = entry.prefix if read <= entry.prefix else entry.prefix_high"
_FREE_CANCELLATION = "        if result.ending is Ending.CANCELLED:\n            return entry, Reason.CANCELLED\n"
_CANCEL_PASS = "        if entry.cancel_pass:\n            return rebuilt, Reason.CANCEL_REBUILD\n"
_CHANGED = "        if _changed_by_client(entry, result):\n            return rebuilt, Reason.CLIENT_CHANGE\n"
_SILENCE = "return Entry(settled_ms=entry.settled_ms) if idle else entry"
_PASSES = "entry = _with_passes(_remembered(entry, kind, result, now_ms), result.ending)"
_NOT_BEGUN = "Kind.NEUTRAL if kind is Kind.UNREPORTED and _nothing_ran(result) else kind"
_SKIPS_WHAT_NEVER_RAN = "    if _nothing_ran(result):\n        return entry\n"
_REMEMBERS = "fingerprint=result.fingerprint, input_bytes=result.input_bytes)"
_ASIDE = "if kind is Kind.NEUTRAL and entry.fingerprint is not None:"
_LEFT_ALONE = "conversation continues.\n        return entry\n"
_STAMPS = "    entry = replace(entry, settled_ms=now_ms)\n"
_DROPPED = " and not _dropped_front(before, now)"
_REWRITTEN = "return rewritten and not _compaction(before, now, sizes)"
_STARTS = "range(ITEM_BYTES, len(before.items), ITEM_BYTES)"
_RUNS = "    if decision.runs:\n        entry = replace(entry, in_flight=entry.in_flight + 1)"
_GAP = "gap_ms = result.started_ms - entry.settled_ms if entry.settled_ms else 0"
_KEEPS_CAUSE = "entry = entry if reason in _EXCUSES else replace(entry, cause=why)"
_UNSENT = "        return entry, Settled(Kind.NEUTRAL, Reason.NOT_SENT"

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
        _RUNS,
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
    _machine("never idle", _SILENCE, "return entry", "R12: silence forgets nothing"),
    _machine(
        "silence keeps the rebuilds used",
        _SILENCE,
        "return Entry(rebuilds_used=entry.rebuilds_used) if idle else entry",
        "R16: silence does not restore the allowance",
    ),
    _machine(
        "silence keeps the passes",
        _SILENCE,
        "return Entry(cancel_pass=entry.cancel_pass, refusal_pass=entry.refusal_pass) if idle else entry",
        "R12: a pass outlives the silence",
    ),
    _machine(
        "silence keeps the prefix",
        _SILENCE,
        "return Entry(prefix=entry.prefix) if idle else entry",
        "R12: a read is compared with what was there before the silence",
    ),
    _machine(
        "silence keeps the high prefix",
        _SILENCE,
        "return Entry(prefix_high=entry.prefix_high) if idle else entry",
        "R12: a read is compared with what was there before the silence",
    ),
    _machine(
        "silence keeps the digests",
        _SILENCE,
        "return Entry(settled_ms=entry.settled_ms, fingerprint=entry.fingerprint) if idle else entry",
        "R15: after the silence a change is still an excuse",
    ),
    _machine("silence is not measured", _SILENCE, "return Entry() if idle else entry", "R24: nobody knows how long"),
    # settle
    _machine("ends are no activity", f"{_RELEASE}, active_ms=now_ms", _RELEASE, "R12: a completion is no activity"),
    _machine(
        "unsent gives a pass",
        _UNSENT,
        f"        entry = _with_passes(entry, result.ending)\n{_UNSENT}",
        "R19: a request that never left gives a pass",
    ),
    _machine("unsent counts", "if not result.sent:", "if False:", "R19: a request that never left is accounted for"),
    _machine("prefix never set", _MEASURED_PREFIX, "if False:", "R7: nothing is compared with the request before"),
    _machine(
        "prefix of unmeasured requests",
        _MEASURED_PREFIX,
        "if total is not None:",
        "R7: a request that measured no cache sets the prefix",
    ),
    _machine(
        "prefix is the read",
        _PREFIX,
        "replace(entry, prefix=result.usage.cached_read or 0, prefix_high=result.usage.cached_read or 0)",
        "R6: a pinned system prompt passes for reuse",
    ),
    _machine(
        "prefix only grows",
        _PREFIX,
        _PREFIX.replace("prefix=total", "prefix=max(entry.prefix, total)"),
        "R7: the largest request, not the last, is compared with",
    ),
    _machine(
        "a small request leaves the prefix",
        _PREFIX,
        _PREFIX.replace("prefix=total", "prefix=entry.prefix if kind is Kind.NEUTRAL else total"),
        "R7: what a small request left is not compared with",
    ),
    _machine(
        "a small request only raises the prefix",
        _PREFIX,
        _PREFIX.replace("prefix=total", "prefix=high"),
        "R7: a tool result after a small new beginning is an alarm",
    ),
    _machine(
        "only a miss sets the prefix",
        _PREFIX,
        _PREFIX.replace("prefix=total", "prefix=total if kind is Kind.MISS else max(entry.prefix, total)"),
        "R7: a reuse does not lower the prefix",
    ),
    _machine(
        "only a reuse sets the prefix",
        _PREFIX,
        _PREFIX.replace("prefix=total", "prefix=total if kind is Kind.REUSE else max(entry.prefix, total)"),
        "R7: a miss does not lower the prefix",
    ),
    _machine(
        "a small request sets the high prefix",
        _HIGH,
        "high = total",
        "R7: a side request makes a pinned system prompt look like full reuse",
    ),
    _machine(
        "a small request leaves the high prefix",
        _HIGH,
        "high = entry.prefix_high if kind is Kind.NEUTRAL else total",
        "R7: after two small requests what the larger one left is forgotten",
    ),
    _machine(
        "the high prefix only grows",
        _HIGH,
        "high = max(entry.prefix_high, total)",
        "R7: what was left before a miss or a reuse is still asked for",
    ),
    _machine(
        "only a miss sets the high prefix",
        _HIGH,
        "high = total if kind is Kind.MISS else max(entry.prefix_high, total)",
        "R7: a reuse does not lower the high prefix",
    ),
    _machine(
        "only a reuse sets the high prefix",
        _HIGH,
        "high = total if kind is Kind.REUSE else max(entry.prefix_high, total)",
        "R7: a miss does not lower the high prefix",
    ),
    _machine(
        "only the high prefix",
        _HELD_AGAINST,
        "prefix = entry.prefix_high",
        "R7: a tool result after a small new beginning is an alarm",
    ),
    _machine(
        "no high prefix",
        _HELD_AGAINST,
        "prefix = entry.prefix",
        "R7: a side request makes a pinned system prompt look like full reuse",
    ),
    _machine(
        "all of the prefix is held against the high one",
        _HELD_AGAINST,
        _HELD_AGAINST.replace("<=", "<"),
        "R7: a read of all that the last request left is not held against it",
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
        _PASSES,
        "entry = _with_passes(_remembered(entry, kind, result, now_ms), "
        "Ending.COMPLETED if kind is Kind.NEUTRAL else result.ending)",
        "R14: a follow-up to a small request is not followed by a pass",
    ),
    _machine(
        "warm cancelled requests give no pass",
        _PASSES,
        "entry = _with_passes(_remembered(entry, kind, result, now_ms), "
        "Ending.COMPLETED if kind is Kind.REUSE else result.ending)",
        "R14: a cancellation after a read, or a warm refusal, gives no pass",
    ),
    _machine(
        "errors before a response count",
        _NOT_BEGUN,
        "kind",
        "R19: a 429 counts as unreported",
    ),
    _machine(
        "errors before a response measure nothing",
        _NOT_BEGUN,
        "Kind.NEUTRAL if _nothing_ran(result) else kind",
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
        "replace(entry, cancel_pass=False)",
        "R16: excused rebuilds use no allowance",
    ),
    _machine(
        "cancel pass is kept",
        _USES_REBUILD,
        "replace(entry, rebuilds_used=entry.rebuilds_used + 1)",
        "R14: one cancellation excuses every later rebuild",
    ),
    _machine(
        "client changes count",
        _CHANGED,
        "",
        "R15: a rebuild after a client change counts",
    ),
    _machine(
        "cancel passes do not help",
        "if entry.cancel_pass:",
        "if False:",
        "R14: the rebuild after a cancellation counts",
    ),
    _machine(
        "cancelled changes cost a rebuild",
        f"{_FREE_CANCELLATION}{_CHANGED}",
        f"{_CHANGED}{_FREE_CANCELLATION}",
        "R16: a client change that is cancelled uses a rebuild, and its own rebuild another",
    ),
    _machine(
        "a change before the pass",
        "if entry.cancel_pass:",
        "if entry.cancel_pass and not _changed_by_client(entry, result):",
        "R16: of two excuses the client change is told",
    ),
    _machine(
        "cancelled rebuilds are free",
        f"{_CANCEL_PASS}{_FREE_CANCELLATION}",
        f"{_FREE_CANCELLATION}{_CANCEL_PASS}",
        "R16: only the first cancelled request of a run is free",
    ),
    _machine(
        "the provider's word is nothing",
        "result.client_changed or client_changed(",
        "client_changed(",
        "R15: what the provider reports excuses nothing",
    ),
    _machine(
        "only the provider's word",
        "return result.client_changed or client_changed(entry.fingerprint, result.fingerprint, sizes)",
        "return result.client_changed",
        "R15: digests excuse nothing",
    ),
    _machine(
        "the conversation shrank",
        "now=result.input_bytes)",
        "now=result.conversation_bytes)",
        "R15: tools and instructions are no part of the size",
    ),
    _machine(
        "warm changes use the excuse",
        "        entry, reason = _reused(entry, result, policy), Reason.REUSE",
        "        changed = _changed_by_client(entry, result)\n"
        "        entry, reason = _reused(entry, result, policy), Reason.REUSE\n"
        "        entry = replace(entry, rebuilds_used=entry.rebuilds_used + changed)",
        "R16: an excuse is used by a request that was warm",
    ),
    _machine(
        "small changes use the excuse",
        "        reason = Reason.NEUTRAL",
        "        changed = _changed_by_client(entry, result)\n"
        "        entry, reason = replace(entry, rebuilds_used=entry.rebuilds_used + changed), Reason.NEUTRAL",
        "R16: an excuse is used by a small request",
    ),
    _machine(
        "first cancelled request costs a rebuild",
        "return entry, Reason.CANCELLED",
        "return replace(entry, rebuilds_used=entry.rebuilds_used + 1), Reason.CANCELLED",
        "R16: the first cancelled request uses none",
    ),
    _machine(
        "cancelled requests count",
        _FREE_CANCELLATION,
        "",
        "R14: a cancelled request counts",
    ),
    _machine(
        "cancelled requests are free for ever",
        _CHANGED,
        f"{_CHANGED}    if result.ending is Ending.CANCELLED:\n        return entry, Reason.CANCELLED\n",
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
    # what is remembered
    _machine(
        "what never ran is compared with",
        _SKIPS_WHAT_NEVER_RAN,
        "",
        "R15: a request that failed before it began hides the change that its repetition brings",
    ),
    _machine(
        "digests of what never ran",
        _SKIPS_WHAT_NEVER_RAN,
        "    if _nothing_ran(result):\n        return replace(entry, fingerprint=result.fingerprint)\n",
        "R15: only the size and the time of what never ran are left out",
    ),
    _machine(
        "size of what never ran",
        _SKIPS_WHAT_NEVER_RAN,
        "    if _nothing_ran(result):\n        return replace(entry, input_bytes=result.input_bytes)\n",
        "R15: a conversation is held against the size of what never ran",
    ),
    _machine(
        "time of what never ran",
        _SKIPS_WHAT_NEVER_RAN,
        "    if _nothing_ran(result):\n        return replace(entry, settled_ms=now_ms)\n",
        "R24: a request that never ran makes the pause shorter",
    ),
    _machine(
        "what broke is not compared with",
        _SKIPS_WHAT_NEVER_RAN,
        "    if result.ending is Ending.FAILED:\n        return entry\n",
        "R15: a response that began and broke is not remembered",
    ),
    _machine(
        "what was cancelled is not compared with",
        _SKIPS_WHAT_NEVER_RAN,
        "    if _nothing_ran(result) or result.ending is Ending.CANCELLED:\n        return entry\n",
        "R15: a cancelled request is not remembered",
    ),
    _machine(
        "time of small requests",
        _SKIPS_WHAT_NEVER_RAN,
        "    if _nothing_ran(result) or kind is Kind.NEUTRAL:\n        return entry\n",
        "R24: a small request makes the pause no shorter",
    ),
    _machine("no time is kept", _STAMPS, "", "R24: nobody knows how long"),
    _machine(
        "small requests are compared with",
        _ASIDE,
        "if False:",
        "R15: a side request with other tools makes a change of every turn",
    ),
    _machine(
        "digests of small requests",
        _LEFT_ALONE,
        _LEFT_ALONE.replace("entry", "replace(entry, fingerprint=result.fingerprint)"),
        "R15: only the size of a small request is left out",
    ),
    _machine(
        "size of small requests",
        _LEFT_ALONE,
        _LEFT_ALONE.replace("entry", "replace(entry, input_bytes=result.input_bytes)"),
        "R15: a conversation is held against the size of a side request",
    ),
    _machine(
        "a small first request is not compared with",
        _ASIDE,
        "if kind is Kind.NEUTRAL:",
        "R15: what changes after a small beginning is not told",
    ),
    _machine(
        "warm requests are not compared with",
        _ASIDE,
        "if not kind.cold and entry.fingerprint is not None:",
        "R15: a change that cost nothing excuses the next rebuild",
    ),
    _machine(
        "excused requests are not compared with",
        _ASIDE,
        "if (kind is Kind.NEUTRAL or entry.count == 0 and kind.cold) and entry.fingerprint is not None:",
        "R15: going back is no change",
    ),
    _machine(
        "unsent requests are compared with",
        _UNSENT,
        f"        entry = replace(entry, fingerprint=result.fingerprint)\n{_UNSENT}",
        "R15: a request that never left hides the change that its repetition brings",
    ),
    _machine(
        "size of unsent requests",
        _UNSENT,
        f"        entry = replace(entry, input_bytes=result.input_bytes)\n{_UNSENT}",
        "R15: a conversation is held against the size of what never left",
    ),
    _machine(
        "time of unsent requests",
        _UNSENT,
        f"        entry = replace(entry, settled_ms=now_ms)\n{_UNSENT}",
        "R24: a request that never left makes the pause shorter",
    ),
    _machine(
        "stopped requests are compared with",
        _RUNS,
        f"{_RUNS}\n    else:\n        entry = replace(entry, fingerprint=None)",
        "R15: what was stopped, and sent nowhere, takes the place of the request before",
    ),
    _machine(
        "digests of the first request are kept",
        _REMEMBERS,
        _REMEMBERS.replace("result.fingerprint", "entry.fingerprint or result.fingerprint"),
        "R15: one change excuses every later rebuild",
    ),
    _machine(
        "missing digests are not noticed",
        _REMEMBERS,
        _REMEMBERS.replace("result.fingerprint", "result.fingerprint or entry.fingerprint"),
        "R15: a request is compared with one before the one before",
    ),
    _machine(
        "size of the first request is kept",
        _REMEMBERS,
        _REMEMBERS.replace("result.input_bytes", "entry.input_bytes or result.input_bytes"),
        "R15: a conversation is held against the size of the first",
    ),
    # causes
    _machine(
        "the pause ends with the request",
        _GAP,
        _GAP.replace("result.started_ms", "now_ms"),
        "R24: a long answer is told as a pause",
    ),
    _machine(
        "time of stopped attempts",
        _RUNS,
        f"{_RUNS}\n    else:\n        entry = replace(entry, settled_ms=now_ms)",
        "R24: an attempt that was stopped makes the pause shorter",
    ),
    _machine(
        "excused requests explain the stop",
        _KEEPS_CAUSE,
        "entry = replace(entry, cause=why)",
        "R23: a stop names the cause of a request that did not count",
    ),
    _machine("stops have no cause", _KEEPS_CAUSE, "", "R23: a stop does not say why"),
    _machine(
        "the first cause is kept",
        _KEEPS_CAUSE,
        "entry = entry if reason in _EXCUSES or entry.count > 1 else replace(entry, cause=why)",
        "R23: a stop names the cause of the first request that counted",
    ),
    # fingerprint
    *(
        _fingerprint(f"{part} do not matter", f'    (Change.{part.upper()}, "{part}"),\n', "", f"R15: other {part}")
        for part in ("tools", "instructions", "thinking", "speed")
    ),
    _fingerprint(
        "openings do not matter",
        _REWRITTEN,
        "return False",
        "R15: a rewritten opening is not excused, and a chat that is cold twice at its beginning is stopped",
    ),
    _fingerprint(
        "compactions are excused",
        _REWRITTEN,
        "return rewritten",
        "R15: a compaction is taken for a client change",
    ),
    _fingerprint(
        "every edit is excused",
        f"rewritten = before.opening != now.opening{_DROPPED}",
        "rewritten = _first_difference(before, now) > 0",
        "R15: a client that trims its history in a loop is not stopped",
    ),
    _fingerprint(
        "every longer conversation is excused",
        "rewritten = before.opening != now.opening",
        "rewritten = before.items != now.items",
        "R15: whatever is said next is taken for a change",
    ),
    _fingerprint(
        "a window is a change",
        _REWRITTEN,
        "return before.window != now.window or rewritten and not _compaction(before, now, sizes)",
        "R15: a new compaction window is excused",
    ),
    _fingerprint(
        "a compaction hides other tools",
        "    if any(getattr(before",
        "    if _compaction(before, now, sizes):\n        return False\n    if any(getattr(before",
        "R15: tools that changed with a compaction are not excused",
    ),
    _fingerprint(
        "a dropped front is a change",
        _DROPPED,
        "",
        "R15: a client that drops its oldest turns in a loop is excused four times",
    ),
    _fingerprint(
        "only one dropped item",
        _STARTS,
        "range(ITEM_BYTES, 2 * ITEM_BYTES, ITEM_BYTES)",
        "R15: a client that drops two items at a time is excused four times",
    ),
    _fingerprint(
        "all but one dropped item",
        _STARTS,
        "range(ITEM_BYTES, len(before.items) - ITEM_BYTES, ITEM_BYTES)",
        "R15: a client that keeps only its last item is excused",
    ),
    _fingerprint(
        "a dropped item is looked for in this request",
        "before.items[at : at + ITEM_BYTES] == now.opening",
        "now.items[at : at + ITEM_BYTES] == before.opening",
        "R15: it is not noticed that the front was dropped",
    ),
    _fingerprint(
        "whoever drops a front rewrote it",
        "any(before.items[at",
        "all(before.items[at",
        "R15: it is not noticed that the front was dropped",
    ),
    _fingerprint(
        "a dropped front hides other tools",
        "    if any(getattr(before",
        "    if before.opening != now.opening and _dropped_front(before, now):\n        return False\n"
        "    if any(getattr(before",
        "R15: tools that changed while the oldest turns were dropped are not excused",
    ),
    _fingerprint(
        "80 percent are a compaction",
        "self.now * 100 < self.before * SHRUNK_PERCENT",
        "self.now * 100 <= self.before * SHRUNK_PERCENT",
        "R15: exactly 80 percent are taken for a compaction",
    ),
    _fingerprint(
        "a compaction halves",
        "SHRUNK_PERCENT = 80",
        "SHRUNK_PERCENT = 50",
        "R15: a conversation of less than 80 percent is not taken for compacted",
    ),
    _fingerprint(
        "what grew was compacted",
        "return self.now * 100 < self.before * SHRUNK_PERCENT",
        "return self.before * 100 < self.now * SHRUNK_PERCENT or self.now * 100 < self.before * SHRUNK_PERCENT",
        "R15: an opening in front of a longer conversation is not excused",
    ),
    _fingerprint("sizes do not matter", "sizes.shrunk or ", "", "R15: a compaction is not told by its size"),
    _fingerprint(
        "the client's word does not matter",
        "now.compacted or ",
        "",
        "R15: a compaction that the client names is not believed",
    ),
    _fingerprint(
        "once compacted is always compacted",
        "now.compacted or ",
        "now.compacted or before.compacted or ",
        "R15: after a compaction a rewritten opening is not excused",
    ),
    _fingerprint(
        "windows do not matter",
        " or before.window != now.window",
        "",
        "R15: a new compaction window is not noticed",
    ),
    _fingerprint(
        "a named window is a compaction",
        " or before.window != now.window",
        ' or now.window != b""',
        "R15: a client that names its window is never excused for its opening",
    ),
    _fingerprint(
        "the first request is a change",
        "    if before is None or now is None:\n        return False",
        "    if before is None or now is None:\n        return now is not None",
        "R15: a request with none before it is excused",
    ),
    _fingerprint(
        "no digests are a change",
        "    if before is None or now is None:\n        return False",
        "    if before is None or now is None:\n        return before is not None",
        "R15: a request without digests is excused",
    ),
    _fingerprint(
        "items are counted from nought",
        "return differing // ITEM_BYTES + 1",
        "return differing // ITEM_BYTES or 1",
        "R24: the item before the edited one is named",
    ),
    _fingerprint(
        "items of this request",
        "items=before.items_count",
        "items=now.items_count",
        "R24: it is not said out of how many items the edited one was",
    ),
    _fingerprint(
        "more items are another history",
        "    if before.items[:shared] == now.items[:shared]:\n        return 0\n",
        "    if before.items == now.items:\n        return 0\n    if before.items[:shared] == now.items[:shared]:\n"
        "        return shared // ITEM_BYTES + 1\n",
        "R24: a conversation that goes on is told as an edited one",
    ),
    _fingerprint(
        "exactly the lifetime is no pause", "gap_ms >= lifetime_ms", "gap_ms > lifetime_ms", "R24: five minutes"
    ),
    _fingerprint("every rest is a pause", "gap_ms >= lifetime_ms", "gap_ms > 0", "R24: nine seconds are a pause"),
    _fingerprint("pauses in milliseconds", "gap_s=gap_ms // 1000", "gap_s=gap_ms", "R24: a pause is told too long"),
    _fingerprint("marks do not matter", "if not now.marked:", "if False:", "R24: nobody is told to ask for caching"),
    _fingerprint(
        "a pause explains missing marks",
        "    if not now.marked:\n        return Cause(Change.UNMARKED)\n    if gap_ms >= lifetime_ms:\n"
        "        return Cause(Change.IDLE, gap_s=gap_ms // 1000)\n",
        "    if gap_ms >= lifetime_ms:\n        return Cause(Change.IDLE, gap_s=gap_ms // 1000)\n"
        "    if not now.marked:\n        return Cause(Change.UNMARKED)\n",
        "R24: who asks for no caching is told to wait less",
    ),
    _fingerprint(
        "missing marks explain every change",
        "    if before is not None:\n        for change",
        "    if not now.marked:\n        return Cause(Change.UNMARKED)\n    if before is not None:\n        for change",
        "R24: a change is not told where marks are missing",
    ),
    _fingerprint(
        "the first request is unchanged",
        "return UNKNOWN if before is None else Cause(Change.UNCHANGED)",
        "return Cause(Change.UNCHANGED)",
        "R24: the provider is blamed for a first request",
    ),
    _fingerprint(
        "nobody is to blame",
        "return UNKNOWN if before is None else Cause(Change.UNCHANGED)",
        "return UNKNOWN",
        "R24: it is not said that the client changed nothing",
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
