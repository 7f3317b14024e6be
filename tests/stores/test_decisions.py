"""Recent decisions of all workers."""

from pathlib import Path

from cachegate.stores.decisions import Decisions


def test_any_worker_shows_those_of_all_newest_first_and_no_more_than_the_limit(tmp_path: Path) -> None:
    one, other = Decisions(tmp_path, 3), Decisions(tmp_path, 3)
    for number in range(3):
        one.keep(b"one%d" % number)
        other.keep(b"other%d" % number)
    assert one.recent() == other.recent() == [b"other2", b"one2", b"other1"]
    one.close()
    other.close()


def test_nobody_fails_of_a_database_that_fails(tmp_path: Path) -> None:
    lost = Decisions(tmp_path / "missing", 3)
    lost.keep(b"gone")
    assert lost.recent() is None
    lost.close()
