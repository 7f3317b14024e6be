"""Locks on files: held by one process of the machine, and freed by the kernel when it dies, however it dies."""

import os
import sys
import time
from pathlib import Path

from cachegate.stores.base import StoreFailed

if sys.platform != "win32":
    import fcntl

WAIT_S = 0.25
"""How long a lock is waited for. Transactions last some 50 microseconds; who holds it longer was stopped or hangs, and
the requests of this process must not hang with it."""
_PAUSE_S = 0.000_05
"""Between two attempts: about as long as a transaction."""


class FileLock:
    """A lock on a file, which is made when it is not there and made again when somebody removed it.

    Every method raises OSError where the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1
        self._status: os.stat_result | None = None
        """Of the file that the descriptor leads to."""

    def acquire(self) -> None:
        """Wait for the lock. Raises StoreFailed after `WAIT_S`."""
        until_s = 0.0
        while not self.try_acquire():
            until_s = until_s or time.monotonic() + WAIT_S
            if time.monotonic() > until_s:
                raise StoreFailed(f"{self._path} was held for {WAIT_S} s by another process that hangs or was stopped")
            time.sleep(_PAUSE_S)

    def try_acquire(self) -> bool:
        """Take the lock if nobody has it; taking it twice is taking it once."""
        while True:
            if self._descriptor < 0 or self._status is None:
                self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
                self._status = os.fstat(self._descriptor)
            if not _flocked(self._descriptor):
                return False
            if is_at(self._path, self._status):
                return True
            self.close()  # ours is the lock of a file that is gone: nobody else would heed it

    def release(self) -> None:
        """Give the lock back and keep the file open."""
        if self._descriptor >= 0:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Give the lock back."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def is_at(path: Path, status: os.stat_result) -> bool:
    """Tell whether a path still leads to the file with this status."""
    try:
        return os.path.samestat(path.lstat(), status)
    except OSError:
        return False


def _flocked(descriptor: int) -> bool:
    if sys.platform == "win32":
        raise StoreFailed("this system has no locks that a dying process gives back")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
