"""What the simulator knows of each budget: its past since the last reuse or silence, told from what really happened."""

from collections import deque
from dataclasses import dataclass, field

from cachegate.guard.policy import Policy
from sim.truth import Ask, Parts

STORY_ROWS = 40
REBUILDS = {"rebuild_after_cancel", "client_change"}
"""Reasons that use one of the rebuilds (R16)."""


@dataclass(slots=True)
class Run:
    """What happened since the last reuse, or since real silence."""

    cold: int = 0
    """Large cold requests that reached a metered provider one after the other (C1)."""
    unreported: int = 0
    measured: int = 0
    """Large cold requests of either kind, whoever excused them."""
    counted: int = 0
    """Those that the guard did not excuse."""
    counted_unreported: bool = False
    failed_bytes: int = 0
    """Conversation of the last counted one."""
    disturbed: bool = False
    """Something was cancelled, changed or refused: not two but eleven may run (C1)."""
    cancelled: bool = False
    refused: bool = False
    shut: bool = False
    """The gateway itself cut one off; that counts (R19), whatever the cache does."""
    refusals_excused: int = 0
    owed: bool = False
    """The newest request of those that ran was cancelled, and none ran beside it (C3)."""


@dataclass(slots=True)
class Book:
    """One budget."""

    running: dict[int, Ask] = field(default_factory=dict)
    active_ms: int = 0
    previous: int = 0
    """Tokens that the last measured request should have left cached (R6, R7)."""
    previous_high: int = 0
    """The same, not lowered by requests that say nothing of the cache: a read beyond `previous` comes from this one."""
    parts: Parts | None = None
    opening: bytes = b""
    items: tuple[bytes, ...] = ()
    input_bytes: int = 0
    """Of the last request that the provider processed and that says something of the cache (R15)."""
    rebuilds: int = 0
    """Excused since the last large reuse or silence (R16)."""
    run: Run = field(default_factory=Run)
    story: deque[str] = field(default_factory=lambda: deque(maxlen=STORY_ROWS))

    def silent(self, now_ms: int, policy: Policy) -> bool:
        """Whether five minutes passed without anything running or asking (R12)."""
        return not self.running and now_ms - self.active_ms >= policy.idle_ms

    def forget(self) -> None:
        """Start anew, as after silence or an eviction."""
        self.previous, self.previous_high, self.rebuilds, self.run = 0, 0, 0, Run()
        self.parts, self.opening, self.items, self.input_bytes = None, b"", (), 0

    def decides(self, ask: Ask, policy: Policy, *, self_hosted: bool) -> tuple[str, str]:
        """Return what must become of a request that asks: outcome and reason (R9, R10, R11)."""
        run = self.run
        if run.counted < policy.limit:
            return "allowed", "clear"
        if run.failed_bytes > 0 and ask.conversation_bytes * 2 <= run.failed_bytes:
            return "recovered", "smaller_input"
        return "observed" if self_hosted else "blocked", "unreported" if run.counted_unreported else "measured"

    def shows(self, ask: Ask, policy: Policy) -> str:
        """Return what the tokens of a request that ended say about the cache (R6, R19)."""
        total, read = ask.usage.input_total, ask.usage.cached_read
        left = self.previous_high if read is not None and read > self.previous else self.previous
        if read is not None and left and read * 4 >= left * 3:
            return "reuse"
        if total is not None and read is not None:
            if read > 0 and read * 2 >= total:
                return "reuse"
            return "miss" if total - read >= policy.large_tokens else "neutral"
        if ask.ending == "failed" and not ask.began:
            return "neutral"
        large = total >= policy.large_tokens if total is not None else ask.input_bytes >= policy.large_bytes
        return "unreported" if large else "neutral"

    def changed(self, ask: Ask) -> bool:
        """Whether the client sent other tools, instructions, thinking, speed or another opening than before (R15).

        No new opening is one that came with a compaction, or that stood further back before.
        """
        if self.parts is None or ask.reseeded_by_client:
            return ask.reseeded_by_client
        compacted = ask.input_bytes * 5 < self.input_bytes * 4
        reopened = ask.opening != self.opening and ask.opening not in self.items[1:]
        return self.parts != ask.parts or (reopened and not compacted)

    def remember(self, ask: Ask, shown: str) -> None:
        """Keep what the next request is compared with."""
        total, neutral = ask.usage.input_total, shown == "neutral"
        if ask.usage.measured and total is not None:
            self.previous = total
            self.previous_high = max(self.previous_high, total) if neutral else total
        processed = ask.began or ask.ending != "failed"
        if processed and not (neutral and self.parts is not None):
            self.parts, self.opening, self.items = ask.parts, ask.opening, ask.items
            self.input_bytes = ask.input_bytes

    def tell(self, now_ms: int, words: str) -> None:
        """Add a row to the story."""
        self.story.append(f"{now_ms / 1000:>12.3f}  {words}")
