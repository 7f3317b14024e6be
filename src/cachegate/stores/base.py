"""The seam to a store; `tests/contract/test_stores.py` holds every store against it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from cachegate.guard.budget import Entry
from cachegate.guard.machine import Result

Answer = TypeVar("Answer")
Change = Callable[[Entry], tuple[Entry, Answer]]
"""What happens to an entry. It is pure, and may be asked twice about one happening."""


@dataclass(frozen=True, slots=True)
class Lease:
    """One request in flight, as far as others must know it in case that its process ends without a word (R13)."""

    id: str
    """Drawn at random; says nothing of the request."""
    fate: Result
    """What is settled if its process is gone: what was observed until now, as ended by a shutdown."""


class Store(Protocol):
    """Entries by key, and the requests that are in flight under each.

    `Entry.in_flight` is the store's to know: what a change gets is the number of living leases under the key. A change
    that raises it opens the lease that comes with it, and one that lowers it closes that lease.
    """

    async def apply(self, key: str, change: Change[Answer], lease: Lease | None = None) -> Answer:
        """Replace the entry under `key` by what `change` makes of it, atomically, and return its answer.

        A key never seen, or evicted, has the entry `Entry()`. Without a lease nothing is opened or closed.
        """

    async def note(self, key: str, lease: Lease) -> None:
        """Keep the newest fate of an open lease. A store that cannot outlive the process has nothing to do."""

    async def close(self) -> None:
        """Release what the store holds."""
