"""The entry of one budget: a dozen small numbers, so that any store can hold it (R1)."""

from dataclasses import dataclass

from cachegate.guard.fingerprint import UNKNOWN, Cause, Fingerprint


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
    prefix_high: int = 0
    """The same, but not lowered by requests that say nothing about the cache. A read larger than `prefix` cannot come
    from the last request alone, so it is held against this one: a side request of 1,000 tokens must not make a pinned
    system prompt of 20,000 look like full reuse ever after."""
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
    settled_ms: int = 0
    """Time of the last completion; 0 before the first. Outlives idleness, to say how long it was."""
    fingerprint: Fingerprint | None = None
    """Of the last request that the provider processed (R15)."""
    input_bytes: int = 0
    """Bytes of that request's whole input."""
    cause: Cause = UNKNOWN
    """Why the last counted request was cold, as far as the digests tell."""
