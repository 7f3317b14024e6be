"""Entries shared by the workers of one machine: what a reload or a killed worker must not forget (R13, R20, R21)."""

import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from cachegate.guard.budget import Entry
from cachegate.guard.machine import settle
from cachegate.guard.policy import Policy
from cachegate.stores.base import Answer, Change, Lease, StoreFailed
from cachegate.stores.owners import Owners
from cachegate.stores.rows import Row, decode, decode_fate, encode, encode_fate
from cachegate.stores.runtime_database import RuntimeDatabase

TEND_S = 0.25
"""A killed worker's requests are free after that at the latest; four looks into a directory a second cost nothing."""
ADOPTED = "adopted"
"""The mark of a database whose inherited entries were taken over (R21)."""

_READ = """
SELECT (SELECT row FROM entries WHERE key = ?1), (SELECT count(*) FROM leases WHERE key = ?1)
"""
_WRITE = """
INSERT INTO entries (key, row, turn) VALUES (?1, ?2, (SELECT coalesce(max(turn), 0) + 1 FROM entries))
ON CONFLICT (key) DO UPDATE SET row = excluded.row, turn = excluded.turn
"""
_OPEN = "INSERT OR REPLACE INTO leases (id, key, owner, fate) VALUES (?, ?, ?, ?)"
_CLOSE = "DELETE FROM leases WHERE id = ?"
_EVICT = """
DELETE FROM entries WHERE key IN (
    SELECT key FROM entries WHERE key NOT IN (SELECT key FROM leases) ORDER BY turn
    LIMIT max(0, (SELECT count(*) FROM entries) - ?)
)
"""


class LocalStore:
    """Entries and leases in the runtime database; a `SharedStore`.

    `settle` is asked here for the leases of a worker that died, so the store needs the policy and the clock, which
    must be the same for all workers.
    """

    kind = "local"
    tend_s = TEND_S

    def __init__(self, directory: Path, policy: Policy, now_ms: Callable[[], int]) -> None:
        self._database = RuntimeDatabase(directory)
        self._owners = Owners(directory)
        self._policy = policy
        self._now_ms = now_ms
        self._ready = 0
        """The generation of the database that was adopted."""
        self._missed: frozenset[str] = frozenset()
        """Owners of leases that had no file when they were last looked for."""

    async def apply(self, key: str, change: Change[Answer], lease: Lease | None = None) -> Answer:
        """See `Store.apply`. Raises StoreFailed."""
        self._adopt_once()
        with self._database.transaction() as database:
            row, in_flight = _read(database, key)
            before = self._trusted(row, in_flight)
            after, answer = change(before)
            self._write(database, key, after, row)
            if lease is not None and after.in_flight > in_flight:
                self._open(database, key, lease)
            elif lease is not None and after.in_flight < in_flight:
                database.execute(_CLOSE, (lease.id,))
        return answer

    async def note(self, key: str, lease: Lease) -> None:
        """See `Store.note`. Raises StoreFailed."""
        del key
        with self._database.transaction() as database:
            database.execute("UPDATE leases SET fate = ? WHERE id = ?", (encode_fate(lease.fate), lease.id))

    async def resume(self, leases: Mapping[str, tuple[str, Lease]]) -> None:
        """See `SharedStore.resume`. Raises StoreFailed."""
        self._adopt_once()
        with self._database.transaction() as database:
            database.execute("DELETE FROM leases WHERE owner = ?", (self._owners.own,))
            for key, lease in leases.values():
                self._open(database, key, lease)

    async def tend(self) -> None:
        """Settle and free what dead workers left in flight. Raises StoreFailed."""
        self._adopt_once()
        self._owners.hold()
        present = self._owners.present()
        for name in present:
            if self._owners.died(name):
                self._settle_for(name)
        with self._database.transaction() as database:
            owning = {str(owner) for (owner,) in database.execute("SELECT DISTINCT owner FROM leases")}
        missing = frozenset(owning - present - {self._owners.own})
        for name in missing & self._missed:  # twice: a living worker makes its file again in between
            self._settle_for(name)
        self._missed = missing

    async def close(self) -> None:
        """Close the database and leave the others."""
        self._database.close()
        self._owners.close()

    def _trusted(self, row: Row, in_flight: int) -> Entry:
        """Return the entry of a row; what a legacy build wrote late counts, as active when it is first seen (R21)."""
        if row.legacy:
            return replace(row.entry, active_ms=self._now_ms(), in_flight=in_flight)
        return replace(row.entry, in_flight=in_flight) if in_flight else row.entry

    def _write(self, database: sqlite3.Connection, key: str, entry: Entry, over: Row) -> None:
        database.execute(_WRITE, (key, encode(entry, over)))
        if not over.fields:
            database.execute(_EVICT, (self._policy.entries_max,))

    def _open(self, database: sqlite3.Connection, key: str, lease: Lease) -> None:
        database.execute(_OPEN, (lease.id, key, self._owners.own, encode_fate(lease.fate)))

    def _settle_for(self, owner: str) -> None:
        """Settle every lease of a worker that died with what was last noted, exactly once."""
        try:
            with self._database.transaction() as database:
                query = "SELECT id, key, fate FROM leases WHERE owner = ?"
                for identity, key, fate in database.execute(query, (owner,)).fetchall():
                    self._settle(database, key, fate)
                    database.execute(_CLOSE, (identity,))
        except StoreFailed:
            self._owners.spare(owner)
            raise
        self._owners.bury(owner)

    def _settle(self, database: sqlite3.Connection, key: str, fate: bytes | None) -> None:
        row, in_flight = _read(database, key)
        entry, now_ms = self._trusted(row, in_flight), self._now_ms()
        result = decode_fate(fate)
        if result is None:
            settled = replace(entry, active_ms=now_ms)
        else:
            settled, _ = settle(entry, result, now_ms, self._policy)
        self._write(database, key, settled, row)

    def _adopt_once(self) -> None:
        """Take over what an older build left, once in the life of a database, and be known as its worker (R21)."""
        if self._ready == self._database.generation != 0:
            return
        self._owners.hold()
        with self._database.transaction() as database:
            if database.execute("SELECT 1 FROM marks WHERE name = ?", (ADOPTED,)).fetchone() is None:
                self._adopt(database)
                database.execute("INSERT INTO marks (name) VALUES (?)", (ADOPTED,))
        self._ready = self._database.generation

    def _adopt(self, database: sqlite3.Connection) -> None:
        """Give inherited entries a fresh warm-up; those in flight keep their history, as active now."""
        owning = {str(owner) for (owner,) in database.execute("SELECT DISTINCT owner FROM leases")}
        dead = {name for name in owning if self._owners.died(name)}
        for key, data in database.execute("SELECT key, row FROM entries").fetchall():
            row = decode(data)
            if not row.legacy:
                continue
            owners = {str(owner) for (owner,) in database.execute("SELECT owner FROM leases WHERE key = ?", (key,))}
            if owners - dead:
                self._write(database, key, self._trusted(row, in_flight=0), row)
            else:
                database.execute("DELETE FROM entries WHERE key = ?", (key,))
        for name in dead:
            self._owners.spare(name)


def _read(database: sqlite3.Connection, key: str) -> tuple[Row, int]:
    data, in_flight = database.execute(_READ, (key,)).fetchone()
    return (Row() if data is None else decode(data)), int(in_flight)
