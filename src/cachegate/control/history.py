"""Threads on disk, for those who opted in: one SQLite file that only its owner may read.

All access goes through one thread, so that what was saved first is read afterwards, and the event loop never waits for
a disk. Conversations stand in it in plain text.
"""

import asyncio
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cachegate.control.stored import restored, stored
from cachegate.control.thread import Thread
from cachegate.observe.log import LOGGER
from cachegate.wire.body import encode

KEPT_MAX = 10_000
"""Threads kept; beyond, the one that was longest unused goes."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS threads (
    id TEXT PRIMARY KEY, tenant TEXT NOT NULL, updated INTEGER NOT NULL, shown BLOB NOT NULL,
    thread BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_time ON threads (tenant, updated DESC, id DESC);
CREATE INDEX IF NOT EXISTS by_age ON threads (updated DESC, id DESC);
"""
_OWNER_ONLY = 0o600


@dataclass(frozen=True, slots=True)
class Listed:
    """A thread in a list."""

    id: str
    updated_s: int
    shown: bytes
    """As JSON, without its turns and without a place in a log."""

    @classmethod
    def of(cls, thread: Thread) -> "Listed":
        """Return a thread that nobody works with just now."""
        return cls(thread.id, thread.updated_s, encode(thread.shown("", active=False)))


class History:
    """Threads in a file. Raises OSError or sqlite3.Error where it cannot be opened."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, _OWNER_ONLY))
        path.chmod(_OWNER_ONLY)
        self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA secure_delete=ON")
        self._database.executescript(_SCHEMA)
        self._worker = ThreadPoolExecutor(1, "history")

    def save(self, thread: Thread) -> None:
        """Keep a thread as it is now, in its turn."""
        self._later(lambda: self._save(thread))

    def delete(self, thread_id: str) -> None:
        """Forget a thread, in its turn."""
        self._later(lambda: self._database.execute("DELETE FROM threads WHERE id = ?", (thread_id,)))

    async def load(self, tenant: str, thread_id: str) -> Thread | None:
        """Return a thread of this tenant."""
        rows = await self._rows("SELECT thread FROM threads WHERE id = ? AND tenant = ?", (thread_id, tenant))
        return restored(rows[0][0]) if rows else None

    async def page(self, tenant: str, after: tuple[int, str] | None, limit: int) -> list[Listed]:
        """Return the newest threads of a tenant that stand behind a place, newest first."""
        updated, thread_id = after or (1 << 62, "")
        rows = await self._rows(
            "SELECT id, updated, shown FROM threads WHERE tenant = ? AND (updated, id) < (?, ?)"
            " ORDER BY updated DESC, id DESC LIMIT ?",
            (tenant, updated, thread_id, limit),
        )
        return [Listed(*row) for row in rows]

    async def written(self) -> None:
        """Wait until everything saved so far is on disk, where another process finds it."""
        await asyncio.wrap_future(self._worker.submit(lambda: None))

    async def close(self) -> None:
        """Write what is still to be written, and close the file."""
        await asyncio.wrap_future(self._worker.submit(self._database.close))
        self._worker.shutdown()

    def _save(self, thread: Thread) -> None:
        self._database.execute(
            "INSERT OR REPLACE INTO threads VALUES (?, ?, ?, ?, ?)",
            (thread.id, thread.tenant, thread.updated_s, Listed.of(thread).shown, stored(thread)),
        )
        self._database.execute(
            "DELETE FROM threads WHERE id IN (SELECT id FROM threads ORDER BY updated DESC, id DESC LIMIT -1 OFFSET ?)",
            (KEPT_MAX,),
        )

    def _later(self, work: Callable[[], object]) -> None:
        self._worker.submit(work).add_done_callback(_note)

    async def _rows(self, query: str, values: tuple[object, ...]) -> list[Any]:
        work: Future[list[Any]] = self._worker.submit(lambda: self._database.execute(query, values).fetchall())
        return await asyncio.wrap_future(work)


def _note(work: Future[object]) -> None:
    """Say that something was not kept; never what."""
    error = work.exception()
    if error is not None:
        LOGGER.error("the threads' history could not be written: %s", error)
