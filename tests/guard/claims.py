"""The claims C1 ... C5 about the guard, each as a watcher of steps (`exploration.py`)."""

from dataclasses import dataclass

from cachegate.guard.policy import Policy
from guard.exploration import BrokenError, Happened, OutOfScopeError


@dataclass(frozen=True, slots=True)
class AtMost:
    """C1: so many cold requests reach the provider between two reuses, and no more."""

    bound: int

    def begin(self) -> int:
        return 0

    def watch(self, memory: int, step: Happened, policy: Policy) -> int:  # noqa: ARG002 -- a claim has this shape
        cold = 0 if step.silent else memory
        if step.reuse:
            return 0
        cold += step.cold
        if cold > self.bound:
            raise BrokenError(f"{cold} cold requests ran without a reuse between them")
        return cold


@dataclass(frozen=True, slots=True)
class NeverStopped:
    """C2: a chat whose every large request reads 75 % of what the one right before it left is never stopped.

    Small ones in between may read nothing. The memory is the total of the last measured request, whatever the guard
    holds the read against; a read that is larger than that is none of what it left.
    """

    def begin(self) -> int:
        return 0

    def watch(self, memory: int, step: Happened, policy: Policy) -> int:  # noqa: ARG002 -- as above
        if step.decision is not None and not step.decision.runs:
            raise BrokenError("a chat that reuses its cache was stopped")
        end, left = step.move.end, 0 if step.silent else memory
        if end is None:
            return memory
        if end.total is None or end.read is None:
            if step.cold:
                raise OutOfScopeError
            return left
        if step.cold and left > 0 and not left * 3 <= step.read * 4 <= left * 4:
            raise OutOfScopeError
        return end.total


FollowUp = tuple[bool, bool, bool, int]
"""Whether a rebuild is owed to a cancellation, whether the last request was a cancellation or its rebuild, whether the
budget was below its limit when it ran, and how many requests in a row were cancelled or excused."""


@dataclass(frozen=True, slots=True)
class FollowUpsAreFree:
    """C3: a stop right after a cancellation or its rebuild happens only with no rebuild left, and only if more than
    four rebuilds in a row were cancelled or excused.

    "With no cache reuse between them" is a reuse that restores the allowance: a smaller read restores nothing (R16).
    It has one exception, which a test shows: a refused rebuild. And a cancelled request is one of the more than four
    also where it was too small to need a rebuild: the pass that it gives is as good.
    """

    refusals_are_follow_ups: bool = False
    """Whether a rebuild that the provider refused is held to be a follow-up; R17 counts it for the refusal."""
    small_ones_count: bool = True
    """Whether a request that was cancelled while it was small or warm is one of them."""
    free_min: int = 5
    """Cold requests in a row that must have been cancelled or excused before such a stop."""

    def begin(self) -> FollowUp:
        return (False, False, True, 0)

    def watch(self, memory: FollowUp, step: Happened, policy: Policy) -> FollowUp:
        owed, follow_up, below, free = self.begin() if step.silent else memory
        if step.decision is not None and not step.decision.runs:
            left = policy.rebuilds - step.before.entry.rebuilds_used
            if follow_up and below and (left > 0 or free < self.free_min):
                raise BrokenError(f"a follow-up was stopped with {left} rebuilds left, after {free} free ones")
            return (owed, follow_up, below, free)
        end, settled = step.move.end, step.settled
        if end is None or settled is None:
            return (owed, follow_up, below, free)
        if step.reuse:
            owed = False
            free = 0 if step.read >= policy.large_tokens else free
        cancelled = end.ending == "cancelled"
        own = self.refusals_are_follow_ups or end.ending != "refused"
        rebuild = step.cold and owed and own
        free += (cancelled and (step.cold or self.small_ones_count)) or settled.excused
        below = step.silent or step.before.entry.count < policy.limit
        return (cancelled or (owed and not rebuild), cancelled or rebuild, below, min(free, policy.rebuilds + 1))


@dataclass(frozen=True, slots=True)
class StopsHold:
    """C5, R9, R10, R13: what was counted stops exactly what it must, until silence or a reuse."""

    def begin(self) -> tuple[int, int, bool]:
        return (0, 0, False)

    def watch(self, memory: tuple[int, int, bool], step: Happened, policy: Policy) -> tuple[int, int, bool]:
        counted, failed_kb, unreported = self.begin() if step.silent else memory
        if step.after.entry.in_flight != len(step.after.running):
            raise BrokenError(f"{len(step.after.running)} requests run, the guard thinks {step.after.entry.in_flight}")
        asked_kb, decision = step.move.ask_kb, step.decision
        if asked_kb is not None and decision is not None:
            half = failed_kb > 0 and asked_kb * 2 <= failed_kb
            if decision.runs is not (counted < policy.limit or half):
                raise BrokenError(f"{counted} counted, {failed_kb} KB failed: {asked_kb} KB must be decided otherwise")
            if not decision.runs and (decision.reason.value == "unreported") is not unreported:
                raise BrokenError(f"the stop gives the reason {decision.reason}")
        settled = step.settled
        if step.reuse:
            return self.begin()
        if settled is None or settled.reason.value not in {"miss", "unreported"}:
            return (counted, failed_kb, unreported)
        known = unreported or settled.reason.value == "unreported"
        return (min(counted + 1, policy.limit), step.ended_kb, known)
