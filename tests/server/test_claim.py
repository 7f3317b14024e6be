"""Who holds a runtime directory, and what happens to it when it changes hands."""

import os
from pathlib import Path

import pytest

from cachegate.runtime_directory import SUPERVISOR_LOCK, RuntimeDirectoryRefused
from cachegate.server.claim import PID_FILE, claim

pytestmark = pytest.mark.skipif(os.name != "posix", reason="locks of files are POSIX")


def test_a_claim_empties_the_directory_and_holds_it(tmp_path: Path) -> None:
    directory = tmp_path / "gateways" / "one"
    directory.mkdir(parents=True)
    (directory / "guard.db").write_text("of the last start")
    held = claim(directory)
    assert sorted(path.name for path in directory.iterdir()) == sorted([PID_FILE, SUPERVISOR_LOCK])
    assert (directory / PID_FILE).read_text() == f"{os.getpid()}\n"
    with pytest.raises(RuntimeDirectoryRefused, match="in use by another gateway"):
        claim(directory)
    held.release()


def test_a_released_directory_may_be_claimed_and_is_left_to_the_new_one(tmp_path: Path) -> None:
    directory = tmp_path / "gateways" / "one"
    old = claim(directory)
    (directory / "its.sock").write_text("")
    old.release("its.sock")
    assert [path.name for path in directory.iterdir()] == [SUPERVISOR_LOCK]
    new = claim(directory)
    (directory / "its.sock").write_text("of the new one")
    old.release("its.sock")
    old.dissolve()
    assert (directory / "its.sock").exists(), "what is another one's by now is not touched"
    new.release()
    new.dissolve()
    assert not directory.exists()


def test_a_lock_that_was_removed_meanwhile_is_made_anew(tmp_path: Path) -> None:
    """The end of one gateway and the start of the next may meet; a lock on a file that is gone protects nothing."""
    directory = tmp_path / "gateways" / "one"
    first = claim(directory)
    (directory / SUPERVISOR_LOCK).unlink()
    second = claim(directory)
    assert (directory / SUPERVISOR_LOCK).exists()
    first.release()
    second.release()
