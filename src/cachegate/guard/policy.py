"""The numbers of the policy, each with its reason. Nothing here decides; `machine.py` applies them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Policy:
    """The constants of the cache guard; the defaults are the policy as documented.

    Raises ValueError naming the field, the value and the allowed range when a number makes no sense.
    """

    large_tokens: int = 65_536
    """Tokens. A request is a miss from this many uncached input tokens on: below it a miss is cheap."""
    large_bytes: int = 262_144
    """Bytes. Stands for `large_tokens` where a provider reports no counts (about four bytes a token)."""
    limit: int = 2
    """Counted requests in a row after which the next one stops: one miss can be bad luck, two are a pattern."""
    rebuilds: int = 4
    """Rebuilds of a cache, caused by the caller, that may be excused between two restorations."""
    idle_ms: int = 300_000
    """Milliseconds of silence after which a budget starts anew: the shortest cache lifetime of the big providers."""
    entries_max: int = 4_096
    """Budgets kept; the least recently active goes first, never one with a request in flight."""
    reuse_percent: int = 75
    """Percent of the preceding prefix that a read must cover to count as reuse whatever was added behind it."""

    def __post_init__(self) -> None:
        for name, low, high in _RANGES:
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"{name} is {value}; it must be between {low} and {high}")


_RANGES = (
    ("large_tokens", 1, 100_000_000),
    ("large_bytes", 1, 1_000_000_000),
    ("limit", 1, 1_000),
    ("rebuilds", 0, 1_000),
    ("idle_ms", 1, 86_400_000),
    ("entries_max", 1, 1_000_000),
    ("reuse_percent", 1, 100),
)
