"""The one frozen record of a request, made when it is over."""

from collections.abc import Callable
from dataclasses import dataclass

from cachegate.guard.usage import Usage

EVENT = "context_cache_guard"


@dataclass(frozen=True, slots=True)
class GuardRecord:
    """What the guard made of a request (R24)."""

    key: str
    """Keyed hash of the budget."""
    mode: str
    outcome: str
    reason: str
    count: int
    """Counted requests of the budget, after this one."""
    cause: str = "unknown"
    """Why a cold request was cold, as far as the digests of its parts tell."""
    item: int = 0
    """For `history_changed`: the first item that differs, from 1."""
    items: int = 0
    """For `history_changed`: the items of the request before."""
    gap_s: int = 0
    """For `idle_over_lifetime`: seconds since the request before ended."""
    provider_cause: str = ""
    """The provider's own word, where it gives one because the client asked."""


@dataclass(frozen=True, slots=True)
class Record:
    """One finished request."""

    request_id: str
    at_s: float
    """Unix time of its end."""
    path: str
    status: int
    """HTTP status the caller got; 0 when it left before any."""
    ending: str
    duration_ms: int
    provider: str
    """Configured name; "" when none was reached."""
    model: str
    """Name of the model as the provider knows it."""
    usage: Usage
    detail: str = ""
    """A fixed word about a failure, or the provider's error code."""
    rebuilt: str = ""
    """Why the provider rebuilt its live session for this request; "" where it did not, or has none."""
    guard: GuardRecord | None = None
    """None for requests that the guard does not see, such as token counts."""


Observer = Callable[[Record], None]
