"""What one request measured, with *unknown* as a value of its own (R5, R6)."""

from dataclasses import dataclass
from enum import StrEnum

from cachegate.guard.policy import Policy


@dataclass(frozen=True, slots=True)
class Usage:
    """Input tokens of one model call. `None` means that the provider did not say; it is never 0."""

    input_total: int | None = None
    """The whole prompt, cached and written tokens included."""
    cached_read: int | None = None
    """Tokens of the prompt that came from the provider's cache."""
    cache_write: int | None = None
    """Tokens written to the cache; they were processed, so they are part of `uncached`."""

    @property
    def uncached(self) -> int | None:
        """Input tokens that had to be processed; unknown when either part is."""
        if self.input_total is None or self.cached_read is None:
            return None
        return self.input_total - self.cached_read

    @property
    def measured(self) -> bool:
        """Whether the request's cache reuse was reported at all (R7)."""
        return self.uncached is not None

    def updated(self, newer: "Usage") -> "Usage":
        """Return this observation overlaid by a newer one: known overrides unknown, never the reverse."""
        return Usage(
            input_total=self.input_total if newer.input_total is None else newer.input_total,
            cached_read=self.cached_read if newer.cached_read is None else newer.cached_read,
            cache_write=self.cache_write if newer.cache_write is None else newer.cache_write,
        )


class Kind(StrEnum):
    """What a request says about the cache (R6)."""

    REUSE = "reuse"
    MISS = "miss"
    UNREPORTED = "unreported"
    NEUTRAL = "neutral"

    @property
    def cold(self) -> bool:
        """Whether the request re-processed a large input, or may have (R8a)."""
        return self in {Kind.MISS, Kind.UNREPORTED}


def classify(usage: Usage, prefix: int, input_bytes: int, policy: Policy) -> Kind:
    """Return what `usage` says, given the tokens the preceding request left cached and the bytes sent (R6)."""
    read, total, uncached = usage.cached_read, usage.input_total, usage.uncached
    if read is not None and prefix > 0 and read * 100 >= prefix * policy.reuse_percent:
        return Kind.REUSE
    if uncached is None or read is None:
        large = input_bytes >= policy.large_bytes if total is None else total >= policy.large_tokens
        return Kind.UNREPORTED if large else Kind.NEUTRAL
    if read > 0 and read >= uncached:
        return Kind.REUSE
    if uncached >= policy.large_tokens and uncached > read:
        return Kind.MISS
    return Kind.NEUTRAL
