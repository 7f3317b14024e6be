"""The private directory of a gateway: where it is, whose it is, and what a full start leaves of it."""

import os
import stat
from pathlib import Path

import pytest

from cachegate.guard.scope import SECRET_BYTES
from cachegate.runtime_directory import (
    DIGEST_KEY,
    SUPERVISOR_LOCK,
    RuntimeDirectoryRefused,
    empty,
    location,
    prepare,
    shared_secret,
)

HERE = ("127.0.0.1", 4283)


@pytest.mark.parametrize(
    ("address", "environ", "expected"),
    [
        (HERE, {"XDG_RUNTIME_DIR": "/run/user/7", "TMPDIR": "/t"}, "/run/user/7/cachegate/127.0.0.1-4283"),
        (HERE, {"TMPDIR": "/t"}, f"/t/cachegate-{os.getuid()}/127.0.0.1-4283"),
        (("::1", 80), {"XDG_RUNTIME_DIR": "/r"}, "/r/cachegate/__1-80"),
    ],
)
def test_each_address_has_a_place_of_its_own(address: tuple[str, int], environ: dict[str, str], expected: str) -> None:
    assert location(address, environ) == Path(expected)


def test_it_is_for_one_user_alone(tmp_path: Path) -> None:
    directory = tmp_path / "cachegate" / "here"
    for _ in range(2):
        prepare(directory)
        for folder in (directory, directory.parent):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    directory.chmod(0o755)
    prepare(directory)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


@pytest.mark.parametrize("which", ["cachegate", "cachegate/here"])
def test_a_link_is_refused(tmp_path: Path, which: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / which
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RuntimeDirectoryRefused, match=f"{link} is no directory but a link or a file. Remove it"):
        prepare(tmp_path / "cachegate" / "here")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_what_belongs_to_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "cachegate" / "here"
    prepare(directory)
    monkeypatch.setattr(os, "getuid", lambda: directory.stat().st_uid + 1)
    with pytest.raises(RuntimeDirectoryRefused, match=r"belongs to user .* set XDG_RUNTIME_DIR"):
        prepare(directory)


def test_where_none_can_be_made_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RuntimeDirectoryRefused, match="cannot be made: Not a directory"):
        prepare(tmp_path / "file" / "cachegate" / "here")


def test_a_full_start_keeps_only_the_lock_that_it_holds(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("")
    (tmp_path / "link").symlink_to("/")
    for name in ("guard.db", "worker-1", "secret", SUPERVISOR_LOCK):
        (tmp_path / name).write_text("")
    empty(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [SUPERVISOR_LOCK]


def test_all_workers_have_one_secret_and_a_full_start_another(tmp_path: Path) -> None:
    first = shared_secret(tmp_path)
    assert (len(first), shared_secret(tmp_path)) == (SECRET_BYTES, first)
    assert stat.S_IMODE((tmp_path / DIGEST_KEY).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [DIGEST_KEY]
    empty(tmp_path)
    assert shared_secret(tmp_path) != first


def test_a_secret_that_was_cut_is_drawn_again(tmp_path: Path) -> None:
    (tmp_path / DIGEST_KEY).write_bytes(b"short")
    assert len(shared_secret(tmp_path)) == SECRET_BYTES


def test_without_a_directory_there_is_no_secret(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        shared_secret(tmp_path / "missing")
