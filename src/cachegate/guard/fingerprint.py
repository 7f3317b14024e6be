"""What can be told of two requests in a row without keeping either: keyed digests of their parts (R15).

A provider's cache holds a prompt from its beginning on: tools, instructions, then the conversation item by item.
Whoever knows which part differs from the request before knows why the cache was not reused, and whether the client did
it.
"""

from dataclasses import dataclass
from enum import StrEnum

ITEM_BYTES = 4
"""Bytes of one item's digest: two different items look alike once in four billion comparisons, and only an explanation
would be wrong then."""
ITEMS_MAX = 2_048
"""Items whose digests are kept, 8 KiB a budget; a change behind them is not located."""
SHRUNK_PERCENT = 80
"""A conversation below this share of the preceding input, with another opening, was compacted and not re-opened."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Digests of one request; equal digests mean equal parts."""

    tools: bytes
    """Of the set of tools: their order is no part of it."""
    instructions: bytes
    """Of the top-level instructions and the leading system or developer items."""
    opening: bytes
    """Of the first user item, where clients put project instructions and reminders."""
    thinking: bytes
    speed: bytes
    items: bytes
    """`ITEM_BYTES` for each of the first `ITEMS_MAX` items behind the leading instructions."""
    items_count: int
    """All items behind the leading instructions."""
    window: bytes = b""
    """Of the compaction window that the client names; empty when it names none."""
    compacted: bool = False
    """The client says that this request follows a compaction."""
    marked: bool = True
    """Whether the client asked for caching, where it has to be asked for."""


class Change(StrEnum):
    """Why a prompt was not found in the cache."""

    TOOLS = "tools_changed"
    INSTRUCTIONS = "instructions_changed"
    THINKING = "thinking_changed"
    SPEED = "speed_changed"
    HISTORY = "history_changed"
    IDLE = "idle_over_lifetime"
    UNMARKED = "no_cache_marks"
    UNCHANGED = "unchanged"
    """The same prefix was sent and not reused: the provider's side."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Cause:
    """A change, and where or how much."""

    change: Change = Change.UNKNOWN
    item: int = 0
    """For HISTORY: the first item that differs, from 1."""
    items: int = 0
    """For HISTORY: the items of the preceding request."""
    gap_s: int = 0
    """For IDLE: seconds since the preceding request ended."""


UNKNOWN = Cause()


@dataclass(frozen=True, slots=True)
class Sizes:
    """The whole inputs of two requests in a row, in bytes."""

    before: int
    now: int

    @property
    def shrunk(self) -> bool:
        """Whether the input fell below `SHRUNK_PERCENT`."""
        return self.now * 100 < self.before * SHRUNK_PERCENT


_PARTS = (
    (Change.TOOLS, "tools"),
    (Change.INSTRUCTIONS, "instructions"),
    (Change.THINKING, "thinking"),
    (Change.SPEED, "speed"),
)


def client_changed(before: Fingerprint | None, now: Fingerprint | None, sizes: Sizes) -> bool:
    """Tell whether the client itself changed what the cache is keyed by (R15).

    Edits of the history are no such change: a client that trims or rewrites its turns in a loop must be stopped.
    Neither is a compaction, even where it writes a new opening.
    """
    if before is None or now is None:
        return False
    if any(getattr(before, name) != getattr(now, name) for _, name in _PARTS):
        return True
    rewritten = before.opening != now.opening and not _dropped_front(before, now)
    return rewritten and not _compaction(before, now, sizes)


def cause(before: Fingerprint | None, now: Fingerprint | None, gap_ms: int, lifetime_ms: int) -> Cause:
    """Explain a cold request by what differs from the one before it."""
    if now is None:
        return UNKNOWN
    if before is not None:
        for change, name in _PARTS:
            if getattr(before, name) != getattr(now, name):
                return Cause(change)
        if at := _first_difference(before, now):
            return Cause(Change.HISTORY, item=at, items=before.items_count)
    if not now.marked:
        return Cause(Change.UNMARKED)
    if gap_ms >= lifetime_ms:
        return Cause(Change.IDLE, gap_s=gap_ms // 1000)
    return UNKNOWN if before is None else Cause(Change.UNCHANGED)


def _compaction(before: Fingerprint, now: Fingerprint, sizes: Sizes) -> bool:
    return sizes.shrunk or now.compacted or before.window != now.window


def _dropped_front(before: Fingerprint, now: Fingerprint) -> bool:
    """Whether the conversation begins where it went on before: its front was dropped, and not written anew."""
    starts = range(ITEM_BYTES, len(before.items), ITEM_BYTES)
    return any(before.items[at : at + ITEM_BYTES] == now.opening for at in starts)


def _first_difference(before: Fingerprint, now: Fingerprint) -> int:
    """Return the first item, from 1, that was replaced; 0 when one conversation begins with all of the other."""
    shared = min(len(before.items), len(now.items))
    if before.items[:shared] == now.items[:shared]:
        return 0
    differing = next(at for at in range(shared) if before.items[at] != now.items[at])
    return differing // ITEM_BYTES + 1
