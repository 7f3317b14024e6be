"""The seam to a store; `tests/contract/test_stores.py` holds every store against it."""

from collections.abc import Callable, Mapping
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


@dataclass(frozen=True, slots=True)
class Condition:
    """How a store fares, for `/health`."""

    kind: str
    degraded: bool = False
    """It cannot be reached, and the guard goes on with what this process knows."""
    failures: int = 0
    """How often it failed since this process began."""


class Store(Protocol):
    """Entries by key, and the requests that are in flight under each.

    `Entry.in_flight` is the store's to know: what a change gets is the number of living leases under the key. A change
    that raises it opens the lease that comes with it, and one that lowers it closes that lease.
    """

    async def open(self) -> None:
        """Begin what the store does by itself. Using it without that is allowed, and opens what is needed."""

    async def apply(self, key: str, change: Change[Answer], lease: Lease | None = None) -> Answer:
        """Replace the entry under `key` by what `change` makes of it, atomically, and return its answer.

        A key never seen, or evicted, has the entry `Entry()`. Without a lease nothing is opened or closed.
        """

    async def note(self, key: str, lease: Lease) -> None:
        """Keep the newest fate of an open lease. A store that cannot outlive the process has nothing to do."""

    async def close(self) -> None:
        """Release what the store holds."""

    def condition(self) -> Condition:
        """Say how the store fares."""


class StoreFailed(Exception):  # noqa: N818 -- it reads as what it is
    """The store could not do it now, and kept nothing of it; the message says why. No request may fail of it."""


class StateDown(Exception):  # noqa: N818 -- as above
    """A request is not to run while the shared state cannot be reached: its person wants it so."""


class StoreBeganAnew(StoreFailed):
    """What the store held is gone, and it is empty; asked again, it answers."""


class SharedStore(Protocol):
    """A store beyond this process. Every method may raise StoreFailed; `fallback.py` makes a `Store` of it."""

    kind: str
    """Its word in `Condition`."""
    tend_s: float
    """Seconds between two calls of `tend`."""

    async def apply(self, key: str, change: Change[Answer], lease: Lease | None = None) -> Answer:
        """See `Store.apply`. When it raises StoreFailed, nothing was changed as far as anybody can know."""

    async def note(self, key: str, lease: Lease) -> None:
        """See `Store.note`."""

    async def resume(self, leases: Mapping[str, tuple[str, Lease]]) -> None:
        """Hold exactly these leases of this process, by id with their keys: after a failure the two may differ."""

    async def tend(self) -> None:
        """Do what has to be done from time to time: free what died, refresh what expires."""

    async def close(self) -> None:
        """Release what is held. Raises nothing."""
