"""A worker of a build before the idle-aware policy, as far as its state goes; it shares no code with the gateway.

What such a build left, and what R21 takes over:

- `guard.db`, SQLite in WAL mode, every transaction under `flock` of `guard.lock`;
- `entries (key TEXT PRIMARY KEY, row BLOB)`: the row is JSON with `count`, `unreported` and `failed_bytes`, no version,
  and no time (or, with `--times`, one from a clock that means nothing to anybody else);
- `leases (id TEXT PRIMARY KEY, key TEXT, owner TEXT)`: requests in flight, without any usage; the owner is the name of
  a file `worker-*` that the worker keeps locked while it lives.

Run as `python legacy_writer.py DIRECTORY [--times]`, it obeys one command a line and answers each with `done`:
`write KEY COUNT`, `begin KEY` (a request is in flight), `end KEY COUNT` (it ended, and the entry says so).
"""

import fcntl
import json
import os
import sqlite3
import sys
from pathlib import Path

OLD_TIME_MS = 10**15
"""From a clock of its own: far in the future of every other."""


class LegacyWorker:
    """One worker of the old build."""

    def __init__(self, directory: Path, *, times: bool) -> None:
        self._times = times
        self._lock = os.open(directory / "guard.lock", os.O_RDWR | os.O_CREAT, 0o600)
        self._owner = f"worker-legacy{os.getpid()}"
        fcntl.flock(os.open(directory / self._owner, os.O_RDWR | os.O_CREAT, 0o600), fcntl.LOCK_EX)
        self._database = sqlite3.connect(directory / "guard.db", isolation_level=None)
        self._transaction(
            ("PRAGMA journal_mode=WAL", ()),
            ("CREATE TABLE IF NOT EXISTS entries (key TEXT PRIMARY KEY, row BLOB NOT NULL)", ()),
            ("CREATE TABLE IF NOT EXISTS leases (id TEXT PRIMARY KEY, key TEXT NOT NULL, owner TEXT NOT NULL)", ()),
        )

    def write(self, key: str, count: str) -> None:
        self._transaction(self._entry(key, count))

    def begin(self, key: str) -> None:
        self._transaction(("INSERT INTO leases (id, key, owner) VALUES (?, ?, ?)", (f"legacy-{key}", key, self._owner)))

    def end(self, key: str, count: str) -> None:
        self._transaction(("DELETE FROM leases WHERE id = ?", (f"legacy-{key}",)), self._entry(key, count))

    def _entry(self, key: str, count: str) -> tuple[str, tuple[object, ...]]:
        row = {"count": int(count), "unreported": False, "failed_bytes": 800_000}
        if self._times:
            row["active_ms"] = OLD_TIME_MS
        statement = "INSERT INTO entries (key, row) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET row = excluded.row"
        return statement, (key, json.dumps(row).encode())

    def _transaction(self, *statements: tuple[str, tuple[object, ...]]) -> None:
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            for statement, values in statements:
                self._database.execute(statement, values)
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)


def main() -> None:
    worker = LegacyWorker(Path(sys.argv[1]), times="--times" in sys.argv)
    for line in sys.stdin:
        command, *arguments = line.split()
        getattr(worker, command)(*arguments)
        sys.stdout.write("done\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
