"""The private directory in which the workers of one gateway meet: state, locks and the secret of the digests.

It belongs to one gateway of one user, and lives as long as that gateway: a full start empties it, a worker or a reload
never does.
"""

import contextlib
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from cachegate.guard.scope import SECRET_BYTES

VARIABLE = "CACHEGATE_RUNTIME"
"""Names the directory to a worker."""
DIGEST_KEY = "secret"
"""Holds the secret of the digests."""
SUPERVISOR_LOCK = "supervisor.lock"
_PRIVATE = 0o700


class RuntimeDirectoryRefused(Exception):  # noqa: N818 -- it reads as what it is
    """The directory cannot be trusted with state; the message says why and what to do."""


def location(address: tuple[str, int], environ: Mapping[str, str]) -> Path:
    """Return where a gateway that listens on `address` has its directory; nothing is made or read."""
    host, port = address
    name = f"{host.replace(':', '_')}-{port}"
    own = environ.get("XDG_RUNTIME_DIR")
    if own:
        return Path(own) / "cachegate" / name
    return Path(environ.get("TMPDIR") or tempfile.gettempdir()) / f"cachegate-{_user()}" / name


def prepare(directory: Path) -> None:
    """Make the directory and the one above it, for this user alone.

    Raises RuntimeDirectoryRefused where one of the two is a link, somebody else's, or cannot be made.
    """
    for folder in (directory.parent, directory):
        try:
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=_PRIVATE, parents=folder is directory.parent)
            status = folder.lstat()
        except OSError as error:
            raise RuntimeDirectoryRefused(f"{folder} cannot be made: {error.strerror}. {_REMEDY}") from None
        if not stat.S_ISDIR(status.st_mode):
            raise RuntimeDirectoryRefused(f"{folder} is no directory but a link or a file. Remove it, or {_OTHER}")
        if os.name == "posix" and status.st_uid != os.getuid():
            raise RuntimeDirectoryRefused(
                f"{folder} belongs to user {status.st_uid}, not to you. Remove it, or {_OTHER}"
            )
        if stat.S_IMODE(status.st_mode) & 0o077:
            folder.chmod(_PRIVATE)


_OTHER = "set XDG_RUNTIME_DIR to a directory of your own."
_REMEDY = f"Make room for it, or {_OTHER}"


def empty(directory: Path) -> None:
    """Forget everything: for a full start, by the supervisor that holds `SUPERVISOR_LOCK`, which stays."""
    for path in directory.iterdir():
        if path.name == SUPERVISOR_LOCK:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def shared_secret(directory: Path) -> bytes:
    """Return the secret of this gateway's digests, which all of its workers share; the first one draws it.

    Raises OSError where it can be neither read nor written.
    """
    path = directory / DIGEST_KEY
    while True:
        with contextlib.suppress(FileNotFoundError):
            drawn = path.read_bytes()
            if len(drawn) == SECRET_BYTES:
                return drawn
            path.unlink(missing_ok=True)
        fresh = directory / f"{DIGEST_KEY}-{secrets.token_hex(8)}"
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(SECRET_BYTES))
        with contextlib.suppress(FileExistsError):
            os.link(fresh, path)  # whole or not at all, and the first one wins
        fresh.unlink()


def _user() -> str:
    return str(os.getuid()) if os.name == "posix" else "user"
