"""What a live session has of its caller's conversation, and why one is begun anew: the same for every runtime. Pure."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile


class Reason(StrEnum):
    """Why a session was rebuilt from the conversation's history."""

    NO_SESSION = "no_session"
    """The first request of a thread, or the gateway was restarted."""
    CAPACITY = "capacity"
    """The session had to leave for another one."""
    IDLE_EXPIRED = "idle_expired"
    """Nobody had used the session for too long."""
    FINGERPRINT_CHANGED = "fingerprint_changed"
    """The caller changed its instructions or tools, so nothing of the provider's cache is left."""
    HISTORY_DIVERGED = "history_diverged"
    """The caller edited its history, or went back."""
    COMPACTION_WINDOW = "compaction_window"
    """The caller put a summary in its history's place, and says so."""
    NOT_PLAIN = "not_plain"
    """The runtime would change what is new on its way to the model, or cannot be told it."""
    CANCELLED = "cancelled"
    """The answer before was broken off by the caller."""
    PROVIDER_ERROR = "provider_error"
    """The answer before failed."""
    REFUSAL = "refusal"
    """The model refused."""
    OUTPUT_LIMIT = "output_limit"
    """The model stopped at its output limit."""
    UNKNOWN_TOOL = "unknown_tool"
    """The model called a tool that nobody declared, and the runtime answers that by itself."""
    HIDDEN_INFERENCE = "hidden_inference"
    """The runtime called the model when nobody asked."""
    HIDDEN_CONTINUATION = "hidden_continuation"
    """The runtime would have let the model go on by itself behind an end that the caller was told."""
    PROCESS_EXITED = "process_exited"
    """The runtime was gone."""
    BUSY = "busy"
    """The session did not come to rest."""


@dataclass(frozen=True, slots=True)
class Known:
    """What a live session holds of the conversation, as its caller was told it."""

    marks: tuple[bytes, ...] = ()
    """Of its parts, in order."""
    pending: AbstractSet[str] = frozenset()
    """Calls that wait for their results."""
    setup: bytes = b""
    """Digest of what stands in front of them: instructions and tools."""
    broken: str = ""
    """The reason why its own history cannot be gone on with; "" while it can."""
    window: bytes = b""
    """Of the compaction window that the caller named with it; empty where it names none."""

    def common(self, marks: tuple[bytes, ...]) -> int:
        """Return how many parts at the front are those of another conversation."""
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(self.marks, marks, strict=False)))

    def departure(self, window: bytes) -> Reason:
        """Return why a conversation of a compaction window goes on with something else than this."""
        return Reason.HISTORY_DIVERGED if window == self.window else Reason.COMPACTION_WINDOW

    def awaits(self, call_ids: tuple[str, ...]) -> bool:
        """Whether these are the calls that wait for their results, each of them once."""
        return frozenset(call_ids) == self.pending and len(call_ids) == len(self.pending)
