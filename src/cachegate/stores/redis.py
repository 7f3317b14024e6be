"""Entries shared by the replicas of a gateway, in Redis or Valkey.

A change is computed here and put there by a compare-and-set. As the last value of a budget is kept, that is one trip in
the usual case, and two when another replica was there in between. Times are kept on the server's clock: a
replica's own clock says nothing to another machine. `redis_scripts.py` says how a budget lies there.
"""

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakValueDictionary

from cachegate.guard.budget import Entry
from cachegate.guard.machine import Result, settle
from cachegate.guard.policy import Policy
from cachegate.guard.reunion import reunited
from cachegate.state_address import StateAddress
from cachegate.stores.base import Answer, Change, Lease, StoreFailed
from cachegate.stores.redis_link import DEADLINE_S, Arguments, RedisLink, Run, agreed
from cachegate.stores.redis_scripts import BEAT, COMPARE_AND_SET
from cachegate.stores.rows import Row, decode, decode_fate, encode, encode_fate

PREFIX = "cachegate:1:"
"""Of every key; the number is raised when the layout changes so that builds could not share it."""
SECRET_KEY = f"{PREFIX}secret"
TEND_S = 15.0
"""Seconds between two beats, each of which says that the requests of this replica are still in flight."""
LEASE_MS = 60_000
"""A replica that missed four beats is gone, and so are its requests."""
GAP_KEPT_MS = 3_600_000
"""A budget that went idle is kept for so long, to say how long the pause was. No provider's cache lives longer."""
TRIES_MAX = 64
"""Compare-and-sets of one change. For each lost one another replica made progress; the deadline comes sooner."""
BEAT_DEADLINE_S = 1.0
"""For one batch of beats: no request waits for it."""
BATCH = 256
"""Beats in one pipeline: 30 KiB, and a millisecond of the server's time."""
NOTE_S = 0.25
"""What is observed of an answer waits so long for more of it; most answers that are short end before it is sent."""
_OPERATION_BYTES = 9


@dataclass(frozen=True, slots=True)
class Dead:
    """A lease that expired: its replica is gone."""

    id: str
    expired_ms: int
    """On the server's clock."""
    fate: Result | None
    """What is settled for it; None for one whose request was never sent."""


@dataclass(frozen=True, slots=True)
class Held:
    """A budget as Redis held it when it last said so."""

    revision: str = ""
    row: Row = field(default_factory=Row)
    """Its entry, with times on the server's clock."""
    living: int = 0
    dead: tuple["Dead", ...] = ()

    @property
    def number(self) -> int:
        """How many changes the budget has seen; only a server that lost some says less than before."""
        return _number(self.revision)

    def next(self) -> str:
        """Name the revision that a change of this one makes."""
        return f"{self.number + 1}.{secrets.token_urlsafe(_OPERATION_BYTES)}"


class RedisStore:
    """Entries and leases in one Redis, or one cluster; a `SharedStore`."""

    kind = "redis"
    tend_s = TEND_S

    def __init__(
        self, link: RedisLink, policy: Policy, now_ms: Callable[[], int], deadline_s: float = DEADLINE_S
    ) -> None:
        self._link = link
        self._policy = policy
        self._now_ms = now_ms
        self._deadline_s = deadline_s
        self._seen: OrderedDict[str, Held] = OrderedDict()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._ahead_ms: int | None = None
        """What the server's clock shows more than ours; None before it was asked."""
        self._open: dict[str, tuple[str, Lease]] = {}
        """Our leases in Redis, by id, with their keys."""
        self._unsure: dict[str, str] = {}
        """Leases whose opening or closing was not confirmed, with their keys."""
        self._due: set[str] = set()
        """Open leases of which Redis has to be told."""
        self._telling: asyncio.Task[None] | None = None

    async def apply(self, key: str, change: Change[Answer], lease: Lease | None = None) -> Answer:
        """See `Store.apply`. Raises StoreFailed, after `deadline_s` at the latest."""
        try:
            async with asyncio.timeout(self._deadline_s), self._lock(key):
                return await self._apply(key, change, lease)
        except (StoreFailed, TimeoutError) as failure:
            if lease is not None:
                self._unsure[lease.id] = key
            if isinstance(failure, StoreFailed):
                raise
            raise StoreFailed(f"Redis did not answer within {round(self._deadline_s * 1000)} ms") from None

    async def note(self, key: str, lease: Lease) -> None:
        """See `Store.note`. It is sent a moment later, in the background: nobody but a dead process needs it."""
        if lease.id in self._open:
            self._open[lease.id] = (key, lease)
            self._tell((lease.id,), after_s=NOTE_S)

    async def resume(self, leases: Mapping[str, tuple[str, Lease]]) -> None:
        """See `SharedStore.resume`. It is done in the background: no request has to wait for all the others."""
        for identity, (key, _) in self._open.items():
            if identity not in leases:
                self._unsure[identity] = key
        self._open = dict(leases)
        for identity in leases:
            self._unsure.pop(identity, None)
        self._tell(leases, after_s=0)

    async def tend(self) -> None:
        """Say that our requests are still in flight, and ask for the time. Raises StoreFailed."""
        reply = await self._link.run(Run(COMPARE_AND_SET, f"{PREFIX}{{beat}}", ("", "", "", 0, 0, "", "", 0, "")))
        self._hear_time(reply)
        self._due.update(self._open)
        await self._tell_now()

    async def close(self) -> None:
        """Close the connections. What is still in flight expires at once, and is settled by whoever comes next."""
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.wait({self._telling})
        left = [self._beat("keep", identity, *held, lease_ms=0) for identity, held in self._open.items()]
        with suppress(StoreFailed):  # then they expire a little later
            for start in range(0, len(left), BATCH):
                await self._link.run_all(left[start : start + BATCH], BEAT_DEADLINE_S)
        self._open.clear()
        await self._link.close()

    async def _apply(self, key: str, change: Change[Answer], lease: Lease | None) -> Answer:
        remembered = self._seen.get(key)
        held = remembered or Held()
        if self._ahead_ms is None:
            held = await self._read(key)
        operation = secrets.token_urlsafe(_OPERATION_BYTES)
        for _ in range(TRIES_MAX):
            ahead_ms = self._ahead_ms or 0
            before = self._entry(held, remembered, ahead_ms, None if lease is None else lease.id)
            after, answer = change(before)
            phase = "" if lease is None else "open" if after.in_flight > before.in_flight else "close"
            data = encode(_shifted(after, ahead_ms), held.row)
            reply, revision = await self._set(key, held, data, (phase, lease, operation))
            if reply[0] == 1:
                self._remember(key, Held(revision, decode(data), int(reply[2])))
                self._account(key, lease, phase)
                return answer
            held = _heard(reply)  # and the next turn is ours, or was given to another
        raise StoreFailed(f"{TRIES_MAX} changes of one budget in a row were overtaken by other replicas")

    async def _read(self, key: str) -> Held:
        reply = await self._link.run(Run(COMPARE_AND_SET, _place(key), ("", "", "", 0, 0, "", "", 0, "")))
        self._hear_time(reply)
        return _heard(reply)

    async def _set(
        self, key: str, held: Held, data: bytes, why: tuple[str, Lease | None, str]
    ) -> tuple[list[Any], str]:
        """Put an entry where `held` is expected; return the reply, and the revision that it wrote."""
        phase, lease, operation = why
        revision, about_ms = held.next(), self._now_ms() + (self._ahead_ms or 0)
        identity = "" if lease is None else lease.id
        dead = (lease.id for lease in held.dead)
        arguments: Arguments = (
            held.revision,
            revision,
            data,
            self._keep_ms,
            about_ms,
            phase,
            identity,
            self._lease_ms,
            operation,
            *dead,
        )
        reply = await self._link.run(Run(COMPARE_AND_SET, _place(key), arguments))
        self._hear_time(reply)
        return reply, revision

    def _entry(self, held: Held, remembered: Held | None, ahead_ms: int, own: str | None) -> Entry:
        """Return the entry on our own clock, with what dead replicas left settled.

        A server that was emptied, or has failed over to one that was behind, has lost changes that we remember.
        """
        now_ms = self._now_ms()
        entry = _shifted(held.row.entry, -ahead_ms)
        if held.row.legacy:
            entry = replace(entry, active_ms=now_ms)
        if remembered is not None and held.number < remembered.number:
            before = _shifted(remembered.row.entry, -ahead_ms)
            entry = reunited(entry, before, now_ms, self._policy.idle_ms)
        living = max(held.living, 1 if own in self._open else 0)  # a lease that Redis lost is to be closed all the same
        for number, dead in enumerate(held.dead):
            if dead.id != own:
                left = len(held.dead) - number
                entry = self._settled(replace(entry, in_flight=living + left), dead, ahead_ms)
        return replace(entry, in_flight=living)

    def _settled(self, entry: Entry, dead: Dead, ahead_ms: int) -> Entry:
        """Settle a lease that expired, as of the last beat of its replica."""
        beat_ms = max(entry.active_ms, dead.expired_ms - self._lease_ms - ahead_ms)
        if dead.fate is None:
            return replace(entry, active_ms=beat_ms)
        fate = replace(dead.fate, started_ms=dead.fate.started_ms - ahead_ms)
        return settle(entry, fate, beat_ms, self._policy)[0]

    @property
    def _lease_ms(self) -> int:
        return min(LEASE_MS, self._policy.idle_ms)

    @property
    def _keep_ms(self) -> int:
        return self._policy.idle_ms + GAP_KEPT_MS

    def _hear_time(self, reply: list[Any]) -> None:
        self._ahead_ms = int(reply[1]) - self._now_ms()

    def _remember(self, key: str, held: Held) -> None:
        self._seen[key] = held
        self._seen.move_to_end(key)
        if len(self._seen) > self._policy.entries_max:
            self._seen.popitem(last=False)

    def _lock(self, key: str) -> asyncio.Lock:
        """Return the lock of a key: requests of one process need not race each other over the network."""
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        return lock

    def _account(self, key: str, lease: Lease | None, phase: str) -> None:
        if lease is None:
            return
        if phase == "open":
            self._open[lease.id] = (key, lease)
        else:
            self._open.pop(lease.id, None)
            self._due.discard(lease.id)

    def _tell(self, identities: Iterable[str], after_s: float) -> None:
        """Tell Redis of leases soon; a telling that is under way or waits takes them along."""
        self._due.update(identities)
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._tell_later(after_s))

    async def _tell_later(self, after_s: float) -> None:
        await asyncio.sleep(after_s)
        with suppress(StoreFailed):  # the next beat says it again
            await self._tell_now()
            while self._due:
                await self._tell_now()

    async def _tell_now(self) -> None:
        """Send what is due: leases that go on, and the end of those that were not heard to end."""
        due = [identity for identity in self._due if identity in self._open]
        self._due.clear()
        for start in range(0, len(due), BATCH):
            batch = due[start : start + BATCH]
            beats = [
                self._beat("keep", identity, *self._open[identity]) for identity in batch if identity in self._open
            ]
            replies = await self._link.run_all(beats, BEAT_DEADLINE_S)
            for beat, reply in zip(beats, replies, strict=True):
                if reply[0] == 0:
                    await self._reopen(str(beat.arguments[2]))
        for identity, key in tuple(self._unsure.items()):
            if identity not in self._open:
                await self._link.run(self._beat("close", identity, key, None))
            self._unsure.pop(identity, None)

    async def _reopen(self, identity: str) -> None:
        """Open a lease that Redis lost, unless its request has ended meanwhile."""
        key, _ = self._open.get(identity, ("", None))
        async with self._lock(key):
            if identity in self._open:
                await self._link.run(self._beat("open", identity, *self._open[identity]))

    def _beat(self, phase: str, identity: str, key: str, lease: Lease | None, lease_ms: int | None = None) -> Run:
        fate: str | bytes = ""
        if lease is not None and lease.fate.sent:  # one that was never sent would settle nothing
            fate = encode_fate(replace(lease.fate, started_ms=lease.fate.started_ms + (self._ahead_ms or 0)))
        lasting_ms = self._lease_ms if lease_ms is None else lease_ms
        return Run(BEAT, _place(key), (self._keep_ms, phase, identity, lasting_ms, fate))


def shared_store(address: StateAddress, policy: Policy, now_ms: Callable[[], int]) -> RedisStore:
    """Return the store at an address. Nothing is opened before the first question."""
    return RedisStore(RedisLink(address), policy, now_ms)


def agreed_secret(address: StateAddress, proposal: bytes) -> bytes:
    """Return the secret of all who share a server: what the first of them proposed. Raises StoreFailed."""
    return agreed(address, SECRET_KEY, proposal)


def _place(key: str) -> str:
    """Name the hash of a budget; what stands in braces decides on its node in a cluster."""
    return f"{PREFIX}{{{key}}}"


def _number(revision: str) -> int:
    number = revision.partition(".")[0]
    return int(number) if number.isdecimal() else 0


def _heard(reply: list[Any]) -> Held:
    """Read what a compare-and-set found instead of what it expected."""
    _, _, living, revision, entry, *dead = reply
    leases = tuple(
        Dead(bytes(name).decode(), int(expired_ms), decode_fate(bytes(fate) or None))
        for name, expired_ms, fate in zip(dead[::3], dead[1::3], dead[2::3], strict=True)
    )
    return Held(bytes(revision).decode(), decode(bytes(entry)) if entry else Row(), int(living), leases)


def _shifted(entry: Entry, by_ms: int) -> Entry:
    """Move an entry's times to another clock; 0 says "never" on every clock."""
    active_ms, settled_ms = (stamp and (stamp + by_ms or 1) for stamp in (entry.active_ms, entry.settled_ms))
    return replace(entry, active_ms=active_ms, settled_ms=settled_ms)
