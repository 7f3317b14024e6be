"""A runtime directory that one supervisor holds for its gateway."""

import contextlib
import os
import shutil
import sys
from pathlib import Path

from cachegate import runtime_directory
from cachegate.runtime_directory import SUPERVISOR_LOCK, RuntimeDirectoryRefused

if sys.platform != "win32":
    import fcntl

PID_FILE = "supervisor.pid"


class Claim:
    """The lock of a directory, and the files that lead others to its supervisor."""

    def __init__(self, directory: Path, lock: int) -> None:
        self.directory = directory
        self._lock = lock

    def release(self, *names: str) -> None:
        """Let a new gateway have the directory, while the answers of this one run to their end.

        `names` are files of this supervisor that nobody shall find any more.
        """
        if self._lock < 0:
            return
        for name in (*names, PID_FILE):
            (self.directory / name).unlink(missing_ok=True)
        os.close(self._lock)
        self._lock = -1

    def dissolve(self) -> None:
        """Remove the directory, unless it is another one's by now."""
        with contextlib.suppress(OSError, RuntimeDirectoryRefused):
            lock = _locked(self.directory)
            shutil.rmtree(self.directory)
            os.close(lock)


def claim(directory: Path) -> Claim:
    """Make the directory, take it, and empty it: this is a full start.

    Raises RuntimeDirectoryRefused, also when another supervisor holds it, and OSError.
    """
    runtime_directory.prepare(directory)
    lock = _locked(directory)
    runtime_directory.empty(directory)
    (directory / PID_FILE).write_text(f"{os.getpid()}\n")
    return Claim(directory, lock)


def _locked(directory: Path) -> int:
    """Return the held lock. Another supervisor may remove the file at its end, just before it is locked here."""
    path = directory / SUPERVISOR_LOCK
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise RuntimeDirectoryRefused(
                f"{directory} is in use by another gateway of this address. Stop that one; `cachegate status` shows it"
            ) from None
        if _is_at(path, lock):
            return lock
        os.close(lock)


def _is_at(path: Path, opened: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(path.lstat(), os.fstat(opened))
    return False
