"""Threads in a file that only its owner may read, tenant by tenant."""

import logging
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from cachegate.control import history as histories
from cachegate.control.history import History
from cachegate.control.thread import Settings, Thread


def thread(number: int, tenant: str = "t", updated_s: int | None = None) -> Thread:
    return Thread(f"thread_{number}", tenant, Settings("model-x"), 1, number if updated_s is None else updated_s)


@pytest.fixture
async def history(tmp_path: Path) -> AsyncIterator[History]:
    opened = History(tmp_path / "a" / "threads.sqlite")
    yield opened
    await opened.close()


async def test_what_was_saved_is_found_by_its_own_tenant_only(history: History) -> None:
    history.save(thread(1))
    history.save(replace(thread(1), name="later"))
    assert await history.load("t", "thread_1") == replace(thread(1), name="later")
    assert await history.load("u", "thread_1") is None
    assert await history.load("t", "thread_2") is None
    assert await history.page("u", None, 9) == []
    history.delete("thread_1")
    assert await history.load("t", "thread_1") is None


async def test_pages_are_in_order_also_within_one_second(history: History) -> None:
    for number in range(6):
        history.save(thread(number, updated_s=number // 3))
    found, after = list[str](), None
    while page := await history.page("t", after, 2):
        found += [each.id for each in page]
        after = (page[-1].updated_s, page[-1].id)
    assert found == [f"thread_{number}" for number in range(5, -1, -1)]


async def test_the_file_is_its_owners_also_where_it_was_there_before(tmp_path: Path) -> None:
    path = tmp_path / "threads.sqlite"
    path.touch(mode=0o644)
    await History(path).close()
    assert path.stat().st_mode & 0o777 == 0o600


async def test_the_longest_unused_goes_where_there_are_too_many(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(histories, "KEPT_MAX", 3)
    for number in range(5):
        history.save(thread(number))
    assert [each.id for each in await history.page("t", None, 9)] == ["thread_4", "thread_3", "thread_2"]


async def test_what_cannot_be_written_is_said_without_saying_what(
    history: History, caplog: pytest.LogCaptureFixture
) -> None:
    history._later(lambda: history._database.execute("DROP TABLE threads"))
    history.save(replace(thread(1), name="confidential"))
    with pytest.raises(sqlite3.Error):
        await history.load("t", "thread_1")
    assert "could not be written" in caplog.text
    assert "confidential" not in caplog.text
    assert {record.levelno for record in caplog.records} == {logging.ERROR}


async def test_a_damaged_thread_is_none(history: History) -> None:
    history.save(thread(1))
    history._later(lambda: history._database.execute("UPDATE threads SET thread = x'00'"))
    assert await history.load("t", "thread_1") is None


async def test_a_place_where_no_file_can_be_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="directory"):
        History(tmp_path)
