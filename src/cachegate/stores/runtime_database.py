"""The SQLite file that the workers of one machine share; each transaction has it for itself.

SQLite's own way of waiting lets two busy workers stall each other for a second. So every transaction stands under a
lock on a file beside the database, is as short as a few statements, and runs where it is called. Nothing is synced to
the disk: the file need not outlive the machine, only a process.
"""

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from cachegate.stores.base import StoreBeganAnew, StoreFailed
from cachegate.stores.file_lock import FileLock, is_at

DATABASE = "guard.db"
LOCK = "guard.lock"
ASIDE = "guard.db.corrupt"
"""What a damaged database is renamed to; one is kept, for whoever wants to look."""
_WITH_IT = ("-wal", "-shm")
_CORRUPT = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_PRIMARY_CODE = 0xFF
"""SQLite's extended error codes hold the primary one in the lowest byte."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (key TEXT PRIMARY KEY, row BLOB NOT NULL, turn INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS leases (id TEXT PRIMARY KEY, key TEXT NOT NULL, owner TEXT NOT NULL, fate BLOB);
CREATE TABLE IF NOT EXISTS marks (name TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS decisions (number INTEGER PRIMARY KEY AUTOINCREMENT, record BLOB NOT NULL);
"""
_ADDED_LATER = (("entries", "turn", "INTEGER NOT NULL DEFAULT 0"), ("leases", "fate", "BLOB"))
"""Columns that builds before the idle-aware policy did not have (R21)."""
_INDEXES = """
CREATE INDEX IF NOT EXISTS entries_by_turn ON entries (turn);
CREATE INDEX IF NOT EXISTS leases_by_key ON leases (key);
"""


class RuntimeDatabase:
    """One process's way to the shared file. It is opened by the first transaction, and again when it was replaced."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / DATABASE
        self._lock = FileLock(directory / LOCK)
        self._connection: sqlite3.Connection | None = None
        self._file: os.stat_result | None = None
        self.generation = 0
        """How often the file was opened: whoever prepared it once sees whether it is still the same."""

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Yield the database for one transaction, which is kept whole or not at all.

        Raises StoreFailed when that cannot be now, and StoreBeganAnew when the file is another one than before: then
        nothing was done, and the next transaction has the new file.
        """
        try:
            self._lock.acquire()
        except OSError as error:
            raise StoreFailed(f"{self._path.parent} cannot be used: {error.strerror}") from None
        try:
            connection = self._current()
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._explained(error) from None
        finally:
            self._undo()
            self._lock.release()

    def close(self) -> None:
        """Close the file; the next transaction would open it again."""
        with contextlib.suppress(StoreFailed, OSError):
            self._lock.acquire()  # the last one who closes tidies up, and must not be disturbed
        self._disconnect()
        self._lock.close()

    def _current(self) -> sqlite3.Connection:
        """Return the connection to the file that is at the path now."""
        if self._connection is not None and self._file is not None:
            if is_at(self._path, self._file):
                return self._connection
            self._disconnect()
            self._connect()
            raise StoreBeganAnew(f"{self._path} was replaced or removed")
        return self._connect()

    def _connect(self) -> sqlite3.Connection:
        with contextlib.ExitStack() as half_way:
            connection = sqlite3.connect(self._path, isolation_level=None, timeout=0.0)
            half_way.callback(connection.close)
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=OFF")
            _prepare(connection)
            self._file = self._path.lstat()
            half_way.pop_all()
        self._connection = connection
        self.generation += 1
        return connection

    def _disconnect(self) -> None:
        connection, self._connection, self._file = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def _undo(self) -> None:
        """Roll back what is neither committed nor rolled back by SQLite itself, as it does where a disk is full."""
        connection = self._connection
        if connection is not None and connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")

    def _explained(self, error: sqlite3.Error) -> StoreFailed:
        """Return what to raise for an error of SQLite's; a damaged file is put aside, for a fresh one."""
        code = getattr(error, "sqlite_errorcode", None)
        if code is None or code & _PRIMARY_CODE not in _CORRUPT:
            return StoreFailed(f"{self._path}: {error}")
        self._disconnect()
        try:
            for ending in ("", *_WITH_IT):
                with contextlib.suppress(FileNotFoundError):
                    self._path.with_name(f"{DATABASE}{ending}").replace(self._path.with_name(f"{ASIDE}{ending}"))
        except OSError as problem:
            return StoreFailed(f"{self._path} is damaged ({error}) and cannot be put aside: {problem.strerror}")
        return StoreBeganAnew(f"{self._path} was damaged ({error}), and is now {ASIDE}")


def _prepare(connection: sqlite3.Connection) -> None:
    """Make the tables, or add to those of an older build what they lack."""
    connection.executescript(_SCHEMA)
    for table, column, kind in _ADDED_LATER:
        if column not in {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}:
            connection.execute(f"ALTER TABLE {table} ADD COLUMN {column} {kind}")
    connection.executescript(_INDEXES)
