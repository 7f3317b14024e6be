"""The store of one machine: who died, mixed versions, and every fault of a file; its contract is in tests/contract."""

import contextlib
import os
import resource
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cachegate.guard.budget import Entry
from cachegate.guard.machine import Ask, Ending, admit, settle
from cachegate.guard.policy import Policy
from cachegate.guard.usage import Usage
from cachegate.runtime_directory import empty
from cachegate.stores.base import Change, StoreFailed
from cachegate.stores.fallback import FallbackStore, Pauses
from cachegate.stores.local import LocalStore
from cachegate.stores.owners import PREFIX
from cachegate.stores.rows import VERSION
from cachegate.stores.runtime_database import ASIDE, DATABASE, RuntimeDatabase
from contract.store_subjects import COLD, WARM, Clock, lease

POLICY = Policy(entries_max=8)
PAUSES = Pauses(failures_max=1, pause_ms=1_000, pause_ms_max=1_000)
NOBODY = 65_534


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def local(tmp_path: Path, clock: Clock) -> AsyncIterator[LocalStore]:
    store = LocalStore(tmp_path, POLICY, clock)
    yield store
    await store.close()


@pytest.fixture
async def guarded(tmp_path: Path, clock: Clock) -> AsyncIterator[FallbackStore]:
    """As a worker has it."""
    store = FallbackStore(LocalStore(tmp_path, POLICY, clock), POLICY, clock, PAUSES)
    yield store
    await store.close()


def another(tmp_path: Path, clock: Clock) -> FallbackStore:
    return FallbackStore(LocalStore(tmp_path, POLICY, clock), POLICY, clock, PAUSES)


def seen(entry: Entry) -> tuple[Entry, Entry]:
    return entry, entry


def counted_at(clock: Clock) -> Change[int]:
    return lambda entry: (replace(entry, count=entry.count + 1, active_ms=clock.ms), entry.count)


async def begin(store: LocalStore | FallbackStore, key: str, identity: str, clock: Clock) -> None:
    await store.apply(key, lambda entry: admit(entry, Ask(800_000), clock(), POLICY), lease(identity, Usage()))


def killed(store: LocalStore) -> None:
    """Let a worker vanish as the kernel lets it: its locks are free and its connection is gone."""
    store._owners._lock.close()
    store._database._disconnect()
    store._database._lock.close()


def workers_of(directory: Path) -> list[Path]:
    return list(directory.glob(f"{PREFIX}*"))


# --- who died ---


@pytest.mark.parametrize(
    ("noted", "count"), [(None, 1), (COLD, 1), (WARM, 0)], ids=["nothing observed", "a miss", "a reuse"]
)
async def test_what_was_noted_last_is_settled_once_for_a_worker_that_died(
    tmp_path: Path, clock: Clock, local: LocalStore, noted: Usage | None, count: int
) -> None:
    dead = LocalStore(tmp_path, POLICY, clock)
    await begin(dead, "a", "one", clock)
    if noted is not None:
        await dead.note("a", lease("one", noted))
    await local.tend()
    assert (await local.apply("a", seen)).in_flight == 1, "it lives"
    killed(dead)
    clock.ms += 250
    for _ in range(3):
        await local.tend()
    entry = await local.apply("a", seen)
    assert (entry.in_flight, entry.count, entry.active_ms) == (0, count, clock.ms)
    assert entry.unreported == (noted is None), "800,000 bytes, and nobody said what they read"


async def test_several_that_died_are_settled_by_whoever_comes(tmp_path: Path, clock: Clock) -> None:
    dead = [LocalStore(tmp_path, POLICY, clock) for _ in range(3)]
    for number, store in enumerate(dead):
        await begin(store, "a", f"lease{number}", clock)
        await store.note("a", lease(f"lease{number}", COLD))
    for store in dead:
        killed(store)
    stores = [LocalStore(tmp_path, POLICY, clock) for _ in range(2)]
    for store in stores:
        await store.tend()
    assert (await stores[1].apply("a", seen)).count == 3
    for store in stores:
        await store.close()
    assert workers_of(tmp_path) == []


async def test_a_lease_without_an_owner_is_settled_when_it_is_missed_twice(
    tmp_path: Path, clock: Clock, local: LocalStore
) -> None:
    """Somebody removed the files of the workers: one that lives makes its own again, one that does not is settled."""
    lives, dead = LocalStore(tmp_path, POLICY, clock), LocalStore(tmp_path, POLICY, clock)
    await begin(lives, "a", "lives", clock)
    await begin(dead, "b", "dead", clock)
    killed(dead)
    for path in workers_of(tmp_path):
        path.unlink()
    await local.tend()
    assert (await local.apply("b", seen)).in_flight == 1
    await lives.tend()
    await local.tend()
    assert [(await local.apply(key, seen)).in_flight for key in "ab"] == [1, 0]
    await lives.close()


async def test_a_lease_that_cannot_be_read_is_released_and_counts_nothing(
    tmp_path: Path, clock: Clock, local: LocalStore
) -> None:
    dead = LocalStore(tmp_path, POLICY, clock)
    await begin(dead, "a", "one", clock)
    with dead._database.transaction() as database:
        database.execute("UPDATE leases SET fate = ?", (b"\xff",))
    killed(dead)
    await local.tend()
    entry = await local.apply("a", seen)
    assert (entry.in_flight, entry.count) == (0, 0)


async def test_who_settles_for_the_dead_and_fails_tries_again(
    tmp_path: Path, clock: Clock, local: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = LocalStore(tmp_path, POLICY, clock)
    await begin(dead, "a", "one", clock)
    killed(dead)
    await local.apply("a", seen)
    with monkeypatch.context() as patched:

        def full(self: LocalStore, *_: object) -> None:
            raise StoreFailed(f"{self.kind}: no room")

        patched.setattr(LocalStore, "_settle", full)
        with pytest.raises(StoreFailed, match="no room"):
            await local.tend()
    assert (await local.apply("a", seen)).in_flight == 1
    other = LocalStore(tmp_path, POLICY, clock)
    await other.tend()
    assert (await local.apply("a", seen)).in_flight == 0, "or lets another one try"
    await other.close()


# --- mixed versions ---


async def test_old_and_new_code_share_a_row_and_the_newer_one_loses_nothing(
    tmp_path: Path, clock: Clock, local: LocalStore
) -> None:
    """The newer build is played: it writes fields that this one does not know, and reads them again afterwards."""
    await local.apply("a", counted_at(clock))
    database = RuntimeDatabase(tmp_path)

    def stored() -> dict[str, Any]:
        with database.transaction() as inside:
            (data,) = inside.execute("SELECT row FROM entries WHERE key = 'a'").fetchone()
        fields = msgspec.json.decode(data)
        assert isinstance(fields, dict)
        return fields

    def newer_writes(**more: object) -> None:
        data = msgspec.json.encode({**stored(), "v": VERSION + 3, **more})
        with database.transaction() as inside:
            inside.execute("UPDATE entries SET row = ? WHERE key = 'a'", (data,))

    newer_writes(patience={"left": 2}, count=2)
    assert (await local.apply("a", seen)).count == 2
    clock.ms += 5
    assert await local.apply("a", counted_at(clock)) == 2
    row = stored()
    assert (row["v"], row["patience"], row["count"], row["active_ms"]) == (VERSION + 3, {"left": 2}, 3, clock.ms)
    newer_writes(patience={"left": 1}, count=0)
    await begin(local, "a", "one", clock)
    row = stored()
    assert (row["v"], row["patience"], row["count"]) == (VERSION + 3, {"left": 1}, 0)
    database.close()


async def test_a_row_that_is_damaged_is_a_fresh_entry(tmp_path: Path, clock: Clock, local: LocalStore) -> None:
    await local.apply("a", counted_at(clock))
    database = RuntimeDatabase(tmp_path)
    with database.transaction() as inside:
        inside.execute("UPDATE entries SET row = ?", (b"\xff\x00",))
    database.close()
    assert await local.apply("a", counted_at(clock)) == 0
    assert await local.apply("a", counted_at(clock)) == 1


# --- faults of the file ---


async def test_a_file_that_was_removed_is_replaced_by_what_this_process_knows(
    tmp_path: Path, clock: Clock, guarded: FallbackStore
) -> None:
    await guarded.apply("a", counted_at(clock))
    await begin(guarded, "a", "running", clock)
    (tmp_path / DATABASE).unlink()
    assert await guarded.apply("a", counted_at(clock)) == 1
    assert not guarded.condition().degraded
    assert guarded.condition().failures == 1
    other = another(tmp_path, clock)
    assert (await other.apply("a", seen)).count == 2
    assert (await other.apply("a", seen)).in_flight == 1, "the lease went with it"
    await other.close()


async def test_a_file_that_another_worker_replaced_is_noticed(
    tmp_path: Path, clock: Clock, guarded: FallbackStore
) -> None:
    other = another(tmp_path, clock)
    assert [await guarded.apply("a", counted_at(clock)), await other.apply("b", counted_at(clock))] == [0, 0]
    (tmp_path / DATABASE).unlink()
    clock.ms += 1
    assert await guarded.apply("a", counted_at(clock)) == 1, "makes a new one"
    assert await other.apply("a", counted_at(clock)) == 2, "and the other goes on with it"
    assert await guarded.apply("b", counted_at(clock)) == 0
    assert await other.apply("b", counted_at(clock)) == 1
    await other.close()


async def test_a_damaged_file_is_put_aside_and_the_guard_goes_on(
    tmp_path: Path, clock: Clock, guarded: FallbackStore
) -> None:
    await guarded.apply("a", counted_at(clock))
    await guarded.close()
    (tmp_path / DATABASE).write_bytes(b"no database at all" * 1_000)
    assert [await guarded.apply("a", counted_at(clock)) for _ in range(2)] == [1, 2]
    assert (tmp_path / ASIDE).exists()
    assert guarded.condition().failures == 1
    assert not guarded.condition().degraded


@contextlib.contextmanager
def file_bytes_max(most: int) -> Iterator[None]:
    """Let no file of this process grow beyond so many bytes, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_full_disk_stops_no_request_and_room_mends_it(
    tmp_path: Path, clock: Clock, guarded: FallbackStore
) -> None:
    assert await guarded.apply("a", counted_at(clock)) == 0
    held = lease("ends meanwhile", WARM)
    await begin(guarded, "b", held.id, clock)
    with file_bytes_max(1):
        await guarded.apply("b", lambda entry: settle(entry, held.fate, clock(), POLICY), held)
        assert [await guarded.apply("a", counted_at(clock)) for _ in range(3)] == [1, 2, 3]
        assert guarded.condition().degraded
        clock.ms += 1_000
        assert await guarded.apply("a", counted_at(clock)) == 4, "tried again in vain"
        assert guarded.condition().failures == 2
    clock.ms += 1_000
    assert await guarded.apply("a", counted_at(clock)) == 5
    assert not guarded.condition().degraded
    other = another(tmp_path, clock)
    assert (await other.apply("a", seen)).count == 6
    assert (await other.apply("b", seen)).in_flight == 0, "nothing is left of a request that ended meanwhile"
    await other.close()


@contextlib.contextmanager
def read_only(directory: Path) -> Iterator[None]:
    """Take the right to write from a directory; the one who may everything becomes nobody meanwhile."""
    user, mode = os.geteuid(), directory.stat().st_mode
    directory.chmod(0o500)
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)
        directory.chmod(mode)


async def test_a_read_only_directory_stops_no_request_and_a_right_mends_it(
    tmp_path: Path, clock: Clock, guarded: FallbackStore
) -> None:
    with read_only(tmp_path):
        assert [await guarded.apply("a", counted_at(clock)) for _ in range(3)] == [0, 1, 2]
        await begin(guarded, "b", "one", clock)
        await guarded.note("b", lease("one", COLD))
        await guarded.open()
        assert guarded.condition().degraded
    clock.ms += 1_000
    assert await guarded.apply("a", counted_at(clock)) == 3
    assert (await guarded.apply("b", seen)).in_flight == 1
    assert not guarded.condition().degraded


async def test_a_directory_that_is_gone_stops_no_request(tmp_path: Path, clock: Clock) -> None:
    store = another(tmp_path / "gone", clock)
    assert [await store.apply("a", counted_at(clock)) for _ in range(2)] == [0, 1]
    (tmp_path / "gone").mkdir()
    clock.ms += 1_000
    assert await store.apply("a", counted_at(clock)) == 2
    assert not store.condition().degraded
    await store.close()


async def test_a_worker_without_a_word_for_its_requests_still_lets_the_next_one_run(
    tmp_path: Path, clock: Clock, guarded: FallbackStore
) -> None:
    """Whole requests in every fault, one after the other: each is admitted, noted and settled."""

    async def request(number: int) -> None:
        key, held = f"key{number}", lease(f"lease{number}", WARM)
        await begin(guarded, key, held.id, clock)
        await guarded.note(key, held)
        ended = replace(held.fate, ending=Ending.COMPLETED)
        await guarded.apply(key, lambda entry: settle(entry, ended, clock(), POLICY), held)
        clock.ms += 1_000

    await request(0)
    for number, fault in enumerate((file_bytes_max(1), read_only(tmp_path)), start=1):
        with fault:
            await request(number)
        await request(number + 10)
    (tmp_path / DATABASE).unlink()
    await request(20)
    (tmp_path / DATABASE).write_bytes(b"\0" * 10_000)
    await request(30)
    assert guarded.in_flight == 0
    assert not guarded.condition().degraded
    local = guarded._shared
    assert isinstance(local, LocalStore)
    with local._database.transaction() as database:
        assert database.execute("SELECT count(*) FROM leases").fetchone() == (0,)


async def test_a_full_start_begins_empty_for_workers_that_come_then(tmp_path: Path, clock: Clock) -> None:
    store = another(tmp_path, clock)
    await store.apply("a", counted_at(clock))
    await store.close()
    empty(tmp_path)
    after = another(tmp_path, clock)
    assert await after.apply("a", counted_at(clock)) == 0
    await after.close()
