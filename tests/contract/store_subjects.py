"""Every store that the contract is held against: how it is made, and what it can do."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cachegate.guard.machine import Ending, Result
from cachegate.guard.policy import Policy
from cachegate.guard.usage import Usage
from cachegate.state_address import parse_state_address
from cachegate.stores.base import Answer, Change, Lease, Store
from cachegate.stores.fallback import FallbackStore
from cachegate.stores.local import LocalStore
from cachegate.stores.memory import MemoryStore
from cachegate.stores.redis import RedisStore
from cachegate.stores.redis_link import RedisLink
from redis_servers import PROGRAMS, lasting_server
from timed_redis import TimedLink

POLICY = Policy(entries_max=8)
COLD = Usage(input_total=200_000, cached_read=0)
WARM = Usage(input_total=200_000, cached_read=199_000)


@dataclass(slots=True)
class Clock:
    """A steady clock that only the test moves."""

    ms: int = 1_000_000

    def __call__(self) -> int:
        return self.ms


Make = Callable[[Path, Policy, Callable[[], int]], Store]


@dataclass(frozen=True, slots=True)
class Subject:
    """A kind of store."""

    make: Make
    """Of a place, a policy and a clock; two stores of one place are one to those who ask, where `shared` holds."""
    shared: bool
    """Whether several processes, and several stores of one place, share what they know."""
    expires: bool = False
    """Whether what is old, and what died, goes by expiring, and not when the limit is reached or the death is seen."""
    served: bool = False
    """Whether its time is that of a server, and not of the machine that asks."""


def _memory(place: Path, policy: Policy, now_ms: Callable[[], int]) -> Store:
    del place, now_ms
    return MemoryStore(policy.entries_max)


def _local(place: Path, policy: Policy, now_ms: Callable[[], int]) -> Store:
    return FallbackStore(LocalStore(place, policy, now_ms), policy, now_ms)


class Placed(FallbackStore):
    """Many places on one server: a key here is another one there."""

    place = ""

    async def apply(self, key: str, change: Change[Answer], lease: Lease | None = None) -> Answer:
        return await super().apply(self.place + key, change, lease)

    async def note(self, key: str, lease: Lease) -> None:
        await super().note(self.place + key, lease)


def _redis(kind: str) -> Make:
    def make(place: Path, policy: Policy, now_ms: Callable[[], int]) -> Store:
        address = parse_state_address(lasting_server(kind))
        link = TimedLink(address, now_ms) if isinstance(now_ms, Clock) else RedisLink(address, deadline_s=5.0)
        store = Placed(RedisStore(link, policy, now_ms, deadline_s=5.0), policy, now_ms)
        store.place = f"{place}:"
        return store

    return make


SUBJECTS = {
    "memory": Subject(_memory, shared=False),
    "local": Subject(_local, shared=True),
    **{
        kind: Subject(_redis(kind), shared=True, expires=True, served=True)
        for kind, program in PROGRAMS.items()
        if program
    },
}
SHARED = [name for name, subject in SUBJECTS.items() if subject.shared]


def fate(usage: Usage = COLD, ending: Ending = Ending.SHUTDOWN) -> Result:
    """What a large request comes to."""
    return Result(usage=usage, ending=ending, conversation_bytes=800_000, input_bytes=800_000)


def lease(identity: str, usage: Usage = COLD) -> Lease:
    return Lease(identity, fate(usage))
