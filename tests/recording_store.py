"""A store in memory that remembers what became of every lease, in order."""

from dataclasses import dataclass, field

from cachegate.guard.budget import Entry
from cachegate.guard.machine import Result
from cachegate.stores.base import Answer, Change, Lease
from cachegate.stores.memory import MemoryStore


@dataclass(slots=True)
class LeaseStory:
    """What happened to one lease."""

    key: str
    opened: int = 0
    closed: int = 0
    notes: list[Result] = field(default_factory=list)
    """The fates that were noted while it was open."""
    late: int = 0
    """Notes while it was not open."""
    settled: Result | None = None
    """What it was closed with."""


class RecordingStore(MemoryStore):
    """Tells a lease's opening and closing by the number of requests in flight, as every store does."""

    def __init__(self) -> None:
        super().__init__(64)
        self.stories: dict[str, LeaseStory] = {}
        self.asked_without_opening = 0

    async def apply(self, key: str, change: Change[Answer], lease: Lease | None = None) -> Answer:
        def watched(before: Entry) -> tuple[Entry, Answer]:
            after, answer = change(before)
            self._remember(key, after.in_flight - before.in_flight, lease)
            return after, answer

        return await super().apply(key, watched, lease)

    async def note(self, key: str, lease: Lease) -> None:
        story = self.stories.get(lease.id)
        assert story is not None, "a note for a lease that was never opened"
        assert story.key == key
        if story.opened > story.closed:
            story.notes.append(lease.fate)
        else:
            story.late += 1

    def _remember(self, key: str, more: int, lease: Lease | None) -> None:
        assert lease is not None, "the road always names a lease"
        if more == 0:
            self.asked_without_opening += 1
            return
        story = self.stories.setdefault(lease.id, LeaseStory(key))
        assert story.key == key
        story.opened += more > 0
        story.closed += more < 0
        story.settled = lease.fate if more < 0 else None
