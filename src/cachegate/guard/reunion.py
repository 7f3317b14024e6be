"""Two memories of one budget become one: after a store was away, those who went on without it know things too.

Never forget a stop: whatever either of them counted stays counted. The rest is as the more recent one says.
"""

from dataclasses import replace

from cachegate.guard.budget import Entry


def reunited(kept: Entry, other: Entry, now_ms: int, idle_ms: int) -> Entry:
    """Return what is known of a budget from both memories; `in_flight` is the kept one's, who counts it.

    A memory that has gone idle says nothing any more (R12).
    """
    if now_ms - other.active_ms >= idle_ms and other.in_flight == 0:
        return kept
    recent, older = (kept, other) if _later(kept.active_ms, other.active_ms) == kept.active_ms else (other, kept)
    worse = older if older.count > recent.count else recent
    return replace(
        recent,
        count=worse.count,
        unreported=worse.unreported,
        failed_bytes=worse.failed_bytes,
        cause=worse.cause,
        rebuilds_used=max(kept.rebuilds_used, other.rebuilds_used),
        refusal_pass_spent=kept.refusal_pass_spent or other.refusal_pass_spent,
        in_flight=kept.in_flight,
        active_ms=recent.active_ms,
        settled_ms=_later(kept.settled_ms, other.settled_ms),
    )


def _later(one_ms: int, other_ms: int) -> int:
    """Return the later of two stamps; 0 is "never", also on a clock that began after the other stamp."""
    return max(one_ms, other_ms, key=lambda stamp: (stamp != 0, stamp))
