"""What a request is made of, in letters: two requests have a part in common where they have the same letter.

This is how tables, the model check and the oracle speak of what a client sends. The guard never sees a letter, only
digests of it (`subject.digested`).
"""

from dataclasses import dataclass

ITEMS = 9
"""Items of a conversation, where nothing else is said."""


@dataclass(frozen=True, slots=True)
class Letters:
    """One request. An edited item reads otherwise than it does everywhere else, and so does another opening."""

    tools: str = "A"
    instructions: str = "A"
    opening: str = "A"
    """The first item that is there; where the oldest are gone, A is what always stood in its place."""
    thinking: str = "A"
    speed: str = "A"
    window: str = ""
    """The compaction window that the client names."""
    items: int = ITEMS
    edited: tuple[int, ...] = ()
    """Items, from 1, that were rewritten."""
    dropped: int = 0
    """So many of the oldest items are gone."""
    compacted: bool = False
    """The client says that this request follows a compaction."""
    unmarked: bool = False
    """The client does not ask for caching where it has to."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The conversation, item by item."""
        return tuple(f"{at:03}{self._letter(at)}" for at in range(1 + self.dropped, 1 + self.items))

    def _letter(self, at: int) -> str:
        if at == 1 + self.dropped and (at == 1 or self.opening != "A"):
            return self.opening
        return "B" if at in self.edited else "A"
