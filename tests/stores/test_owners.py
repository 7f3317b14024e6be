"""Who lives and who is dead, by the locks on their files."""

from pathlib import Path

import pytest

from cachegate.stores.base import StoreFailed
from cachegate.stores.owners import Owners


def test_a_worker_that_holds_its_file_lives(tmp_path: Path) -> None:
    one, other = Owners(tmp_path), Owners(tmp_path)
    one.hold()
    other.hold()
    assert one.present() == other.present() == {one.own, other.own}
    assert one.own != other.own
    assert not any(who.died(name) for who in (one, other) for name in (one.own, other.own))
    one.close()
    other.close()
    assert list(tmp_path.iterdir()) == []


def test_a_dead_one_is_told_to_one_only_until_it_is_buried(tmp_path: Path) -> None:
    one, other, dead = Owners(tmp_path), Owners(tmp_path), Owners(tmp_path)
    dead.hold()
    dead._lock.close()  # as the kernel does it
    assert one.died(dead.own)
    assert one.died(dead.own), "asked again"
    assert not other.died(dead.own), "one is enough"
    one.spare(dead.own)
    assert other.died(dead.own)
    other.bury(dead.own)
    assert other.present() == set()


def test_a_file_that_somebody_removed_is_made_again(tmp_path: Path) -> None:
    one, other = Owners(tmp_path), Owners(tmp_path)
    one.hold()
    (tmp_path / one.own).unlink()
    assert not one.died(one.own), "nobody is dead to itself"
    assert one.present() == set()
    one.hold()
    assert not other.died(one.own)
    one.close()


def test_a_directory_that_cannot_be_used_is_a_failure_of_the_store(tmp_path: Path) -> None:
    lost = Owners(tmp_path / "missing")
    with pytest.raises(StoreFailed, match="No such file"):
        lost.hold()
    with pytest.raises(StoreFailed, match="No such file"):
        lost.present()
    lost.close()
