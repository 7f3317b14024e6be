import fcntl
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cachegate.errors import UpstreamError
from cachegate.providers.claude_cli.home import SessionHome, private_root, remove_root, remove_stale

_HOLDS_A_ROOT = """
import sys
from pathlib import Path
from cachegate.providers.claude_cli.home import SessionHome, private_root
root = private_root(Path(sys.argv[1]))
SessionHome.create(root).write_system("what a caller says")
print(root, flush=True)
sys.stdin.read()
"""


def modes_below(folder: Path) -> set[tuple[str, int]]:
    return {("folder" if path.is_dir() else "file", stat.S_IMODE(path.stat().st_mode)) for path in folder.rglob("*")}


# --- one session ---


def test_all_that_a_session_has_is_for_its_user_only(tmp_path: Path) -> None:
    root = private_root(tmp_path)
    previous = os.umask(0)
    try:
        home = SessionHome.create(root)
        home.write_system("system")
        home.write_transcript("s1", [b"{}"])
    finally:
        os.umask(previous)
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    assert modes_below(root) == {("folder", 0o700), ("file", 0o600)}
    remove_root(root)


def test_sessions_share_no_folder(tmp_path: Path) -> None:
    one, two = SessionHome.create(tmp_path), SessionHome.create(tmp_path)
    folders = [
        folder for home in (one, two) for folder in (home.person, home.config, home.temporary, home.working_path)
    ]
    assert len({folder.resolve() for folder in folders}) == 8
    assert all(folder.is_dir() for folder in folders)


def test_what_is_written_again_replaces_what_was(tmp_path: Path) -> None:
    home = SessionHome.create(tmp_path)
    home.write_system("a long text")
    home.write_system("näher")
    assert home.system_path.read_text("utf-8") == "näher"
    home.write_transcript("s1", [b'{"n":1}', b'{"n":2}'])
    home.write_transcript("s1", [b'{"n":3}'])
    assert home.read_transcript("s1") == (b'{"n":3}',)


def test_a_transcript_stands_where_the_program_looks_for_it(tmp_path: Path) -> None:
    base = tmp_path / "a_b.c d"
    base.mkdir()
    home = SessionHome.create(base)
    home.write_transcript("s1", [b"{}"])
    project = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in str(home.working_path))
    assert (home.config / "projects" / project / "s1.jsonl").read_bytes() == b"{}\n"


def test_a_line_that_is_not_whole_is_not_read(tmp_path: Path) -> None:
    home = SessionHome.create(tmp_path)
    home.write_transcript("s1", [b'{"n":1}'])
    [path] = home.config.rglob("s1.jsonl")
    path.write_bytes(b'{"n":1}\n\n{"n":2}\n{"n":')
    assert home.read_transcript("s1") == (b'{"n":1}', b'{"n":2}')


def test_a_session_that_was_never_written_has_no_lines(tmp_path: Path) -> None:
    assert SessionHome.create(tmp_path).read_transcript("s1") == ()


def test_a_removed_session_leaves_nothing_and_can_be_removed_again(tmp_path: Path) -> None:
    home = SessionHome.create(tmp_path)
    home.write_transcript("s1", [b"{}"])
    home.remove()
    home.remove()
    assert list(tmp_path.iterdir()) == []


# --- the sign-in of this machine ---


def signed_in(folder: Path) -> Path:
    folder.mkdir()
    (folder / ".credentials.json").write_text(json.dumps({"claudeAiOauth": {"accessToken": "a", "refreshToken": "r"}}))
    return folder


def test_a_lent_sign_in_cannot_be_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(signed_in(tmp_path / "theirs")))
    home = SessionHome.create(tmp_path)
    home.lend_login()
    ours = home.config / ".credentials.json"
    assert json.loads(ours.read_bytes()) == {"claudeAiOauth": {"accessToken": "a"}}
    assert stat.S_IMODE(ours.stat().st_mode) == 0o600


def test_the_sign_in_is_looked_for_in_the_persons_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    home = SessionHome.create(tmp_path)
    with pytest.raises(UpstreamError, match="claude setup-token"):
        home.lend_login()
    signed_in(tmp_path / ".claude")
    home.lend_login()
    assert (home.config / ".credentials.json").exists()


# --- the gateways' roots ---


def test_a_root_is_removed_with_all_that_is_in_it(tmp_path: Path) -> None:
    root = private_root(tmp_path)
    SessionHome.create(root).write_transcript("s1", [b"{}"])
    remove_root(root)
    assert list(tmp_path.iterdir()) == []


def test_roots_of_the_dead_go_and_those_of_the_living_stay(tmp_path: Path) -> None:
    ours = private_root(tmp_path)
    other = subprocess.Popen(
        (sys.executable, "-c", _HOLDS_A_ROOT, str(tmp_path)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    theirs = Path(other.stdout.readline().strip())
    remove_stale(tmp_path)
    assert (ours.is_dir(), theirs.is_dir()) == (True, True)
    other.kill()
    other.communicate()
    assert list(theirs.glob("session-*/system.txt"))
    remove_stale(tmp_path)
    assert (ours.is_dir(), theirs.exists()) == (True, False)
    remove_root(ours)


def test_a_root_is_never_found_without_its_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another gateway, which starts just when this one locks, must not take it for a dead one's."""
    lock = fcntl.flock

    def others_start_just_then(file: int, how: int) -> None:
        monkeypatch.undo()
        remove_stale(tmp_path)
        lock(file, how)
        remove_stale(tmp_path)

    monkeypatch.setattr(fcntl, "flock", others_start_just_then)
    root = private_root(tmp_path)
    assert root.is_dir()
    remove_root(root)


def test_nothing_else_is_ever_removed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "lock").touch()
    base = tmp_path / "base"
    base.mkdir()
    (base / "cachegate-claude-link").symlink_to(elsewhere)
    (base / "cachegate-claude-nolock").mkdir()
    (base / "cachegate-claude-file").touch()
    (base / "other").mkdir()
    (base / "other" / "lock").touch()
    linked = base / "cachegate-claude-linked-lock"
    linked.mkdir()
    (linked / "lock").symlink_to(elsewhere / "lock")
    remove_stale(base)
    assert len(list(base.iterdir())) == 5
    assert (elsewhere / "lock").exists()


def test_a_root_of_somebody_else_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "cachegate-claude-x"
    root.mkdir()
    (root / "lock").touch()
    with monkeypatch.context() as somebody:
        somebody.setattr(os, "geteuid", lambda: root.stat().st_uid + 1)
        remove_stale(tmp_path)
    assert root.is_dir()
    remove_stale(tmp_path)
    assert not root.exists()
