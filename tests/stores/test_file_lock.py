"""Locks on files, which the kernel takes from the dead."""

import subprocess
import sys
from pathlib import Path

import pytest

from cachegate.stores import file_lock
from cachegate.stores.base import StoreFailed
from cachegate.stores.file_lock import FileLock, is_at

HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lock"


def test_one_has_it_and_the_other_gets_it_afterwards(path: Path) -> None:
    one, other = FileLock(path), FileLock(path)
    assert one.try_acquire()
    assert one.try_acquire(), "taking it twice is taking it once"
    assert not other.try_acquire()
    one.release()
    assert other.try_acquire()
    assert not one.try_acquire()
    other.close()
    assert one.try_acquire()
    one.close()


def test_a_killed_process_gives_it_back(path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        lock = FileLock(path)
        assert not lock.try_acquire()
        process.kill()
    assert lock.try_acquire()
    lock.close()


def test_who_hangs_with_it_is_not_waited_for_for_ever(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_lock, "WAIT_S", 0.01)
    one, other = FileLock(path), FileLock(path)
    one.acquire()
    with pytest.raises(StoreFailed, match="held for"):
        other.acquire()
    one.release()
    other.acquire()
    one.close()
    other.close()


def test_the_lock_of_a_file_that_is_gone_is_no_lock(path: Path) -> None:
    one, other = FileLock(path), FileLock(path)
    assert one.try_acquire()
    path.unlink()
    assert other.try_acquire(), "a new file"
    assert not one.try_acquire(), "which has the lock that counts now"
    other.close()
    assert one.try_acquire()
    one.close()


def test_a_link_is_not_followed(path: Path, tmp_path: Path) -> None:
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        FileLock(path).try_acquire()
    assert not (tmp_path / "elsewhere").exists()


def test_a_file_is_known_by_itself_and_not_by_its_name(path: Path, tmp_path: Path) -> None:
    path.write_text("a")
    status = path.stat()
    assert is_at(path, status)
    path.rename(tmp_path / "aside")
    assert not is_at(path, status)
    path.write_text("a")
    assert not is_at(path, status)
