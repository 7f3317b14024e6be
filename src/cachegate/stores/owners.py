"""Who owns a lease: a worker holds a lock on a file of its own, and the kernel takes it from a worker that died."""

import secrets
from pathlib import Path

from cachegate.stores.base import StoreFailed
from cachegate.stores.file_lock import FileLock

PREFIX = "worker-"
_NAME_BYTES = 8


class Owners:
    """This worker among the others of the directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.own = f"{PREFIX}{secrets.token_hex(_NAME_BYTES)}"
        self._lock = FileLock(directory / self.own)
        self._dying: dict[str, FileLock] = {}

    def hold(self) -> None:
        """Be alive for the others, again when somebody removed our file. Raises StoreFailed."""
        try:
            self._lock.acquire()
        except OSError as error:
            raise StoreFailed(f"{self._directory} cannot be used: {error.strerror}") from None

    def present(self) -> set[str]:
        """Return the names of all workers that have a file, dead or alive. Raises StoreFailed."""
        try:
            return {path.name for path in self._directory.iterdir() if path.name.startswith(PREFIX)}
        except OSError as error:
            raise StoreFailed(f"{self._directory} cannot be read: {error.strerror}") from None

    def died(self, name: str) -> bool:
        """Tell whether a worker is gone. If so, nobody else is told so until `bury` or `spare`."""
        if name == self.own:
            return False
        lock = self._dying.get(name) or FileLock(self._directory / name)
        try:
            gone = lock.try_acquire()
        except OSError:
            gone = False
        if gone:
            self._dying[name] = lock
        else:
            lock.close()
        return gone

    def bury(self, name: str) -> None:
        """Remove the file of a worker that died, when its leases are settled."""
        (self._directory / name).unlink(missing_ok=True)
        self.spare(name)

    def spare(self, name: str) -> None:
        """Let others see to a worker that died."""
        lock = self._dying.pop(name, None)
        if lock is not None:
            lock.close()

    def close(self) -> None:
        """Leave: remove our file while we still hold it."""
        (self._directory / self.own).unlink(missing_ok=True)
        self._lock.close()
        for name in tuple(self._dying):
            self.spare(name)
