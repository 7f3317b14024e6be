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
    """C2: a chat whose every request reads 75 % of what the one before left is never stopped."""

    def begin(self) -> bool:
        return True

    def watch(self, memory: bool, step: Happened, policy: Policy) -> bool:  # noqa: ARG002 -- as above
        if step.decision is not None and not step.decision.runs:
            raise BrokenError("a chat that reuses its cache was stopped")
        end, previous = step.move.end, 0 if step.silent else step.before.previous
        if end is None:
            return memory
        measured = end.total is not None and end.read is not None
        covers = previous > 0 and step.read * 4 >= previous * 3
        first = previous == 0
        if (measured and (covers or first)) or not (measured or step.cold):
            return memory
        raise OutOfScopeError


FollowUp = tuple[bool, bool, bool, int]
"""Whether a rebuild is owed to a cancellation, whether the last request was a cancellation or its rebuild, whether the
budget was below its limit when it ran, and how many cold requests in a row were cancelled or excused."""


@dataclass(frozen=True, slots=True)
class FollowUpsAreFree:
    """C3: a stop right after a cancellation or its rebuild happens only with no rebuild left.

    By its letter ("only if more than four rebuilds in a row were cancelled or excused") it has two exceptions, which
    the tests show: a refused rebuild, and a client change that is cancelled, which is one request with two excuses.
    """

    refusals_are_follow_ups: bool = False
    """Whether a rebuild that the provider refused is held to be a follow-up; R17 counts it for the refusal."""
    free_min: int = 4
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
        free += step.cold and (cancelled or settled.excused)
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
