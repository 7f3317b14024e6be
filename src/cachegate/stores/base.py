"""The seam to a store; `tests/contract/test_stores.py` holds every store against it."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from cachegate.guard.budget import Entry

Answer = TypeVar("Answer")


class Store(Protocol):
    """Entries by key."""

    async def apply(self, key: str, change: Callable[[Entry], tuple[Entry, Answer]]) -> Answer:
        """Replace the entry under `key` by what `change` makes of it, atomically, and return its answer.

        A key never seen, or evicted, has the entry `Entry()`.
        """

    async def close(self) -> None:
        """Release what the store holds."""
