"""Decides how a session goes on with a request: by what is new in it, or from a rebuilt history. Pure."""

from dataclasses import dataclass

from cachegate.errors import BadInput
from cachegate.wire.copilot.history import Answered, Returned, Said, Step, mark
from cachegate.wire.sessions import Known, Reason


@dataclass(frozen=True, slots=True)
class Continue:
    """Go on: hand the waiting calls their results, then say what the user said."""

    returned: tuple[Returned, ...]
    said: tuple[Said, ...]


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Begin a new session from the conversation's history."""

    reason: str
    kept: int
    """Steps at the front that the old session's own history has, with everything that only it knows."""
    past: tuple[Step, ...]
    """Steps after those, to be written as history."""
    said: tuple[Said, ...]
    """What to say then; without any, the model just goes on."""


Plan = Continue | Rebuild


def plan(known: Known | None, setup: bytes, steps: tuple[Step, ...], window: bytes = b"") -> Plan:
    """Return how to serve the conversation. Raises BadInput where it ends with the model's own words."""
    if steps and isinstance(steps[-1], Answered):
        raise BadInput(
            "The last message is the assistant's: Copilot cannot go on with an answer that was begun for it."
        )
    if not steps:
        raise BadInput("There is no message. Send at least one of the user.")
    if known is None:
        return _rebuilt(Reason.NO_SESSION, 0, steps)
    common = known.common(tuple(map(mark, steps)))
    if known.setup != setup:
        return _rebuilt(Reason.FINGERPRINT_CHANGED, common, steps)
    if known.broken:
        return _rebuilt(known.broken, common, steps)
    going_on = _continued(known, steps[common:]) if common == len(known.marks) else None
    return going_on or _rebuilt(known.departure(window), common, steps)


def _continued(known: Known, new: tuple[Step, ...]) -> Continue | None:
    """Return how to go on with what is new; None when it is not all results that are waited for, then the user."""
    returned = tuple(step for step in new if isinstance(step, Returned))
    said = tuple(step for step in new if isinstance(step, Said))
    in_order = (*returned, *said) == new
    answers = known.awaits(tuple(step.call_id for step in returned))
    return Continue(returned, said) if new and in_order and answers else None


def _rebuilt(reason: str, common: int, steps: tuple[Step, ...]) -> Rebuild:
    """Return the rebuild: what the user says last is said, all that stands before it is history."""
    last = len(steps)
    while last and isinstance(steps[last - 1], Said):
        last -= 1
    kept = min(common, last)
    # Results of one answer are kept together: the session may have heard them in another order.
    while kept and isinstance(steps[kept - 1], Returned) and kept < last and isinstance(steps[kept], Returned):
        kept -= 1
    said = tuple(step for step in steps[last:] if isinstance(step, Said))
    return Rebuild(reason, kept, steps[kept:last], said)
