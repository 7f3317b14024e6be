"""The files of one session, in memory: what callers say never reaches a disk."""

from collections.abc import Sequence
from datetime import UTC, datetime
from errno import ENOENT

from copilot.generated.rpc import SessionFSReaddirWithTypesEntry
from copilot.session_fs_provider import SessionFsFileInfo, SessionFsProvider

STATE_PATH = "/state"
EVENTS_PATH = f"{STATE_PATH}/events.jsonl"
WORKING_PATH = "/nowhere"
_THEN = datetime(2020, 1, 1, tzinfo=UTC)


class SessionFiles(SessionFsProvider):
    """A file system for the runtime, which keeps a session's events in one file of it."""

    def __init__(self, events: bytes = b"") -> None:
        self._files: dict[str, list[str]] = {}
        self._folders: set[str] = set()
        if events:
            self._files[EVENTS_PATH] = [events.decode("utf-8", "surrogatepass")]

    def events(self) -> tuple[bytes, ...]:
        """Return the lines of the events so far."""
        text = "".join(self._files.get(EVENTS_PATH, ()))
        return tuple(line for line in text.encode("utf-8", "surrogatepass").split(b"\n") if line)

    async def read_file(self, path: str) -> str:
        """Return a whole file."""
        return "".join(self._found(path))

    async def write_file(self, path: str, content: str, mode: int | None = None) -> None:
        """Write a whole file."""
        del mode
        self._files[path] = [content]

    async def append_file(self, path: str, content: str, mode: int | None = None) -> None:
        """Append to a file."""
        del mode
        self._files.setdefault(path, []).append(content)

    async def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""
        return path in self._files or self._is_folder(path)

    async def stat(self, path: str) -> SessionFsFileInfo:
        """Return what is known of a file or folder."""
        if self._is_folder(path):
            return SessionFsFileInfo(is_file=False, is_directory=True, size=0, mtime=_THEN, birthtime=_THEN)
        size = sum(len(part.encode("utf-8", "surrogatepass")) for part in self._found(path))
        return SessionFsFileInfo(is_file=True, is_directory=False, size=size, mtime=_THEN, birthtime=_THEN)

    async def mkdir(self, path: str, recursive: bool, mode: int | None = None) -> None:  # noqa: FBT001 -- as inherited
        """Make a folder."""
        del recursive, mode
        self._folders.add(path.rstrip("/"))

    async def readdir(self, path: str) -> list[str]:
        """Return the names in a folder."""
        return sorted(self._children(path))

    async def readdir_with_types(self, path: str) -> Sequence[SessionFSReaddirWithTypesEntry]:
        """Return the names in a folder and what they are."""
        base = path.rstrip("/")
        kinds = {name: "directory" if self._is_folder(f"{base}/{name}") else "file" for name in self._children(path)}
        return [SessionFSReaddirWithTypesEntry.from_dict({"name": name, "type": kinds[name]}) for name in sorted(kinds)]

    async def rm(self, path: str, recursive: bool, force: bool) -> None:  # noqa: FBT001 -- as inherited
        """Remove a file, or a folder with all that is in it."""
        del recursive
        below = [name for name in (*self._files, *self._folders) if name == path or name.startswith(f"{path}/")]
        if not below and not force:
            raise FileNotFoundError(ENOENT, path)
        for name in below:
            self._files.pop(name, None)
            self._folders.discard(name)

    async def rename(self, src: str, dest: str) -> None:
        """Give a file another name."""
        self._files[dest] = self._found(src)
        del self._files[src]

    def _found(self, path: str) -> list[str]:
        if path not in self._files:
            raise FileNotFoundError(ENOENT, path)
        return self._files[path]

    def _is_folder(self, path: str) -> bool:
        base = path.rstrip("/")
        return base in self._folders or any(name.startswith(f"{base}/") for name in (*self._files, *self._folders))

    def _children(self, path: str) -> set[str]:
        base = f"{path.rstrip('/')}/"
        return {name[len(base) :].split("/")[0] for name in (*self._files, *self._folders) if name.startswith(base)}
