"""The guard's recent decisions in the runtime database, so that any worker can show those of all.

They are for people to look at: where the database fails, they are lost, and nobody else fails of it.
"""

from pathlib import Path

from cachegate.stores.base import StoreFailed
from cachegate.stores.runtime_database import RuntimeDatabase

_KEEP = "INSERT INTO decisions (record) VALUES (?)"
_FORGET = "DELETE FROM decisions WHERE number <= (SELECT max(number) FROM decisions) - ?"


class Decisions:
    """The newest `records_max` records, as bytes that are not looked into."""

    def __init__(self, directory: Path, records_max: int) -> None:
        self._database = RuntimeDatabase(directory)
        self._records_max = records_max

    def keep(self, record: bytes) -> None:
        """Add a record, and forget the oldest beyond the limit."""
        try:
            with self._database.transaction() as database:
                database.execute(_KEEP, (record,))
                database.execute(_FORGET, (self._records_max,))
        except StoreFailed:
            return

    def recent(self) -> list[bytes] | None:
        """Return the records, newest first; None where the database fails."""
        try:
            with self._database.transaction() as database:
                found = database.execute("SELECT record FROM decisions ORDER BY number DESC").fetchall()
        except StoreFailed:
            return None
        return [bytes(record) for (record,) in found]

    def close(self) -> None:
        """Close the database."""
        self._database.close()
