"""Decides how a live process goes on with a request: by what is new in it, or from a transcript. Pure."""

from dataclasses import dataclass

from cachegate.errors import BadInput
from cachegate.wire.claude_cli.prompt import Prompt, Turn, can_be_said, rest_of, results_of
from cachegate.wire.sessions import Known, Reason
from cachegate.wire.usage_readings import Fields


@dataclass(frozen=True, slots=True)
class Continue:
    """Hand the waiting calls their results, then say the rest, which may be nothing."""

    results: tuple[Fields, ...]
    said: tuple[Fields, ...]


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Begin a new process from a transcript."""

    reason: str
    kept: int
    """Turns at the front that the old transcript has, with everything that only it knows. The rest is to be written;
    the last one is the user's, and the model answers it."""


def plan(known: Known | None, prompt: Prompt) -> Continue | Rebuild:
    """Return how to serve a request. Raises BadInput for one without any turn."""
    turns = prompt.turns
    if not turns:
        raise BadInput("There is no message. Send at least one of the user.")
    if known is None:
        return Rebuild(Reason.NO_SESSION, 0)
    common = known.common(prompt.marks)
    new = turns[common:]
    reason = known.broken
    if known.setup != prompt.digest:
        # Nothing of the provider's cache is left, but the thoughts are still the model's.
        reason = Reason.FINGERPRINT_CHANGED
    elif not reason and (common < len(known.marks) or not _follows(known, new)):
        reason = known.departure(prompt.window)
    elif not reason and not can_be_said(new[0]):
        reason = Reason.NOT_PLAIN
    if not reason:
        return Continue(results_of(new[0]), rest_of(new[0]))
    # The model answers the last turn, so that one is always new.
    return Rebuild(reason, min(common, len(turns) - 1))


def _follows(known: Known, new: tuple[Turn, ...]) -> bool:
    """Whether what is new is one turn of the user, with the results that are waited for."""
    if len(new) != 1:
        return False
    return known.awaits(tuple(str(result.get("tool_use_id")) for result in results_of(new[0])))


def stands_aside(known: Known | None, decided: Continue | Rebuild) -> bool:
    """Whether a request must not replace a session that waits for results: it is about something else."""
    if known is None or not known.pending or known.broken or isinstance(decided, Continue):
        return False
    return decided.kept < len(known.marks)
