"""A prompt cache with marks, as Anthropic's documents describe theirs: entries at marks, found up to 20 blocks back."""

from dataclasses import dataclass, field

from cachegate.wire.facts import Protocol
from contract.prompt_blocks import Blocks, blocks_of, bytes_of, marked_blocks

LOOK_BACK = 20


@dataclass(slots=True)
class PromptCache:
    """What one account has cached."""

    protocol: Protocol = Protocol.MESSAGES
    bytes_min: int = 0
    """A mark that stands earlier in the prompt is passed over: providers keep nothing that is small."""
    _entries: set[Blocks] = field(default_factory=set)

    def serve(self, body: bytes) -> int:
        """Serve a request: return how many of its blocks come from the cache, and keep what it marks."""
        blocks = blocks_of(self.protocol, body)
        marked = marked_blocks(self.protocol, body)
        marks = [mark for mark in marked if bytes_of(blocks[: mark + 1]) >= self.bytes_min]
        read = 0
        for mark in marks:
            for end in range(mark + 1, max(mark + 1 - LOOK_BACK, 0), -1):
                if blocks[:end] in self._entries:
                    read = max(read, end)
                    break
        self._entries |= {blocks[: mark + 1] for mark in marks}
        return read
