"""Private folders: a root for each gateway, and in it a home for each session of Claude Code.

A session's transcript holds the conversation in clear, so it must not outlive its gateway. A root is held by a lock
that the system drops with the process, however that ends; the next gateway removes the roots that nobody holds.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from cachegate.errors import UpstreamError
from cachegate.wire.claude_cli.credentials import lent

try:
    import fcntl
except ImportError:  # Windows: nothing is held there, and nothing of a dead gateway's is removed
    fcntl = None  # type: ignore[assignment]

_PREFIX = "cachegate-claude-"
_LOCK = "lock"
_OWN_ROOTS: dict[Path, int] = {}
"""The open locks of this process."""
_PRIVATE = 0o700
_CREDENTIALS = ".credentials.json"


def private_root(base: Path | None) -> Path:
    """Make a root for the sessions of this process in `base`, or where the system has its own; it is held."""
    # It gets its name when it is already locked: nobody may find it without, and take it for a dead gateway's.
    unnamed = Path(tempfile.mkdtemp(prefix=".cachegate-", dir=_base(base)))
    lock = os.open(unnamed / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    if fcntl is not None:
        fcntl.flock(lock, fcntl.LOCK_EX)
    root = unnamed.rename(unnamed.with_name(_PREFIX + unnamed.name.removeprefix(".cachegate-")))
    _OWN_ROOTS[root] = lock
    return root


def remove_root(root: Path) -> None:
    """Remove a root of this process with all that is in it."""
    shutil.rmtree(root, ignore_errors=True)
    lock = _OWN_ROOTS.pop(root, None)
    if lock is not None:
        os.close(lock)


def remove_stale(base: Path | None) -> None:
    """Remove the roots of gateways that are gone; never those of others, of living ones or of other people."""
    if fcntl is None:
        return
    for root in _base(base).glob(f"{_PREFIX}*"):
        try:
            lock = os.open(root / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            if root.stat().st_uid != os.geteuid():
                continue
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(root, ignore_errors=True)
        except OSError:
            continue  # somebody holds it, or it has just gone
        finally:
            os.close(lock)


class SessionHome:
    """The folders of one session, each for the session's user only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.person = path / "home"
        """What the program takes for the person's home."""
        self.config = path / "config"
        self.temporary = path / "tmp"
        self.working_path = path / "work"
        self.system_path = path / "system.txt"
        """The file of the system prompt."""

    @classmethod
    def create(cls, root: Path) -> Self:
        """Make new folders in `root`."""
        home = cls(Path(tempfile.mkdtemp(prefix="session-", dir=root)))
        for folder in (home.person, home.config, home.temporary, home.working_path):
            folder.mkdir(mode=_PRIVATE)
        return home

    def write_system(self, text: str) -> None:
        """Write the system prompt."""
        _write(self.system_path, text.encode("utf-8", "replace"))

    def write_transcript(self, session_id: str, lines: Sequence[bytes]) -> None:
        """Write what a resumed session begins with, in place of what it had."""
        path = self._transcript(session_id)
        self.config.joinpath("projects").mkdir(mode=_PRIVATE, exist_ok=True)
        path.parent.mkdir(mode=_PRIVATE, exist_ok=True)
        _write(path, b"".join(line + b"\n" for line in lines))

    def read_transcript(self, session_id: str) -> tuple[bytes, ...]:
        """Return a session's lines, as far as they are whole; none when there is no such session."""
        try:
            text = self._transcript(session_id).read_bytes()
        except FileNotFoundError:
            return ()
        return tuple(line for line in text.split(b"\n")[:-1] if line)

    def lend_login(self) -> None:
        """Lend the session the sign-in of this machine. Raises UpstreamError when there is none in a file.

        It is a copy without the refresh token, good for as long as the person's own program renewed it last, some
        hours; CLAUDE_CODE_OAUTH_TOKEN, which `claude setup-token` makes, is the way that lasts.
        """
        theirs = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude") / _CREDENTIALS
        try:
            ours = lent(theirs.read_bytes())
        except OSError:
            ours = None
        if ours is None:
            raise UpstreamError(
                f"Nobody is signed in to Claude Code on this machine: {theirs} holds no sign-in. Run `claude` and sign "
                "in, or run `claude setup-token` and configure the token."
            )
        _write(self.config / _CREDENTIALS, ours)

    def remove(self) -> None:
        """Remove the folders. The program must be gone."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _transcript(self, session_id: str) -> Path:
        return self.config / "projects" / _project(self.working_path) / f"{session_id}.jsonl"


def _base(base: Path | None) -> Path:
    return (base or Path(tempfile.gettempdir())).resolve()


def _project(folder: Path) -> str:
    """Return the name under which the program keeps the sessions of a working directory."""
    return re.sub(r"[^a-zA-Z0-9]", "-", str(folder))


def _write(path: Path, data: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(file, "wb") as writing:
        writing.write(data)
