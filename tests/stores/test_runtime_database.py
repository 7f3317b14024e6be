"""The shared file: whole transactions or none, and a fresh file where the old one is gone or damaged."""

import sqlite3
from pathlib import Path

import pytest

from cachegate.stores.base import StoreBeganAnew, StoreFailed
from cachegate.stores.runtime_database import ASIDE, DATABASE, RuntimeDatabase

MARK = "INSERT INTO marks (name) VALUES (?)"


def marks(database: RuntimeDatabase) -> list[str]:
    with database.transaction() as inside:
        return [str(name) for (name,) in inside.execute("SELECT name FROM marks ORDER BY name")]


def mark(database: RuntimeDatabase, name: str) -> None:
    with database.transaction() as inside:
        inside.execute(MARK, (name,))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / DATABASE


def test_what_one_writes_the_other_reads(tmp_path: Path) -> None:
    one, other = RuntimeDatabase(tmp_path), RuntimeDatabase(tmp_path)
    assert (one.generation, list(tmp_path.iterdir())) == (0, []), "opened by the first transaction"
    mark(one, "a")
    mark(other, "b")
    assert (marks(one), marks(other)) == (["a", "b"], ["a", "b"])
    assert (one.generation, other.generation) == (1, 1)
    one.close()
    other.close()
    assert marks(one) == ["a", "b"]
    one.close()


def test_a_transaction_that_fails_leaves_nothing(tmp_path: Path) -> None:
    database = RuntimeDatabase(tmp_path)

    def half() -> None:
        with database.transaction() as inside:
            inside.execute(MARK, ("half",))
            raise ValueError("the rest")

    with pytest.raises(ValueError, match="the rest"):
        half()
    mark(database, "once")
    with pytest.raises(StoreFailed, match="UNIQUE"):
        mark(database, "once")
    assert marks(database) == ["once"]
    database.close()


def test_a_full_disk_fails_and_room_mends_it(tmp_path: Path) -> None:
    database = RuntimeDatabase(tmp_path)
    mark(database, "before")
    assert database._connection is not None
    (pages,) = database._connection.execute("PRAGMA page_count").fetchone()
    database._connection.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(StoreFailed, match="full"):
        mark(database, "x" * 100_000)
    with pytest.raises(StoreFailed, match="full"):
        mark(database, "x" * 100_000)
    database._connection.execute("PRAGMA max_page_count=100000")
    mark(database, "after")
    assert marks(database) == ["after", "before"]
    database.close()


def test_a_file_that_is_gone_is_made_again_and_told(tmp_path: Path, path: Path) -> None:
    one, other = RuntimeDatabase(tmp_path), RuntimeDatabase(tmp_path)
    mark(one, "a")
    mark(other, "b")
    path.unlink()
    with pytest.raises(StoreBeganAnew, match="replaced or removed"):
        mark(one, "lost")
    mark(one, "c")
    with pytest.raises(StoreBeganAnew, match="replaced or removed"):
        marks(other)
    assert marks(other) == ["c"], "the new file is everybody's"
    mark(other, "d")
    one.close()
    assert marks(other) == ["c", "d"], "whoever closes an old file leaves the new one alone"
    assert other.generation == 2
    other.close()


@pytest.mark.parametrize("damage", [b"this is no database", b"\0"])
def test_a_damaged_file_is_put_aside(tmp_path: Path, path: Path, damage: bytes) -> None:
    path.write_bytes(damage * 8_192)
    database = RuntimeDatabase(tmp_path)
    with pytest.raises(StoreBeganAnew, match=f"is now {ASIDE}"):
        marks(database)
    assert (tmp_path / ASIDE).read_bytes() == damage * 8_192
    assert marks(database) == []
    database.close()


def test_damage_under_an_open_file_is_noticed(tmp_path: Path, path: Path) -> None:
    database = RuntimeDatabase(tmp_path)
    for number in range(200):
        mark(database, f"{number}" * 100)
    assert database._connection is not None
    database._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with path.open("r+b") as file:
        file.seek(4_096)
        file.write(b"\xff" * 100_000)
    other = RuntimeDatabase(tmp_path)
    with pytest.raises(StoreBeganAnew, match="damaged"):
        marks(other)
    assert marks(other) == []
    with pytest.raises(StoreBeganAnew, match="replaced"):
        marks(database)
    assert marks(database) == []
    assert (tmp_path / ASIDE).exists()
    database.close()
    other.close()


def test_where_nothing_can_be_made_it_fails_and_says_where(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match="missing cannot be used: No such file"):
        marks(RuntimeDatabase(tmp_path / "missing"))
    (tmp_path / DATABASE).mkdir()
    with pytest.raises(StoreFailed, match="unable to open"):
        marks(RuntimeDatabase(tmp_path))


def test_the_tables_of_an_older_build_get_what_they_lack(tmp_path: Path, path: Path) -> None:
    old = sqlite3.connect(path)
    old.execute("CREATE TABLE entries (key TEXT PRIMARY KEY, row BLOB NOT NULL)")
    old.execute("INSERT INTO entries VALUES ('a', '{}')")
    old.commit()
    old.close()
    database = RuntimeDatabase(tmp_path)
    with database.transaction() as inside:
        assert inside.execute("SELECT key, turn FROM entries").fetchall() == [("a", 0)]
        assert inside.execute("SELECT fate FROM leases").fetchall() == []
    database.close()
