"""The entry of one budget: a dozen small numbers, so that any store can hold it (R1)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """What the guard remembers of one budget. A fresh one is `Entry()`."""

    count: int = 0
    """Counted requests (miss or unreported) since the last reuse."""
    unreported: bool = False
    """Whether any counted request was unreported: the stop must then not claim a measured miss (R9)."""
    failed_bytes: int = 0
    """Conversation bytes of the last counted request; recovery needs half of it (R10)."""
    prefix: int = 0
    """Input tokens of the last measured request: what it should have left cached (R6, R7)."""
    rebuilds_used: int = 0
    """Rebuilds excused since the last restoration (R16)."""
    cancel_pass: bool = False
    """The next rebuild follows a caller's cancellation (R14)."""
    refusal_pass: bool = False
    """The next rebuild follows a provider's refusal (R17)."""
    refusal_pass_spent: bool = False
    """A refusal pass was used since the last reuse. Only one is: a refusal that was too small to count would
    otherwise hand out passes for ever (claims C1 and C4)."""
    in_flight: int = 0
    """Requests admitted and not yet settled; above 0 the entry never goes idle (R13)."""
    active_ms: int = 0
    """Time of the last admission attempt or completion, on the steady clock of the caller (R12)."""
