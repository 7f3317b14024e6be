"""How another process asks a supervisor: a line of JSON each way, over a socket in the runtime directory."""

import contextlib
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

NAME = "supervisor.sock"
PATH_BYTES_MAX = 100
"""The shortest limit of an address among the systems we run on is 104 bytes."""
LINE_BYTES_MAX = 65_536
"""A status of hundreds of workers fits."""
ANSWER_S = 150.0
"""A check and a start may each take a minute, and an upgrade may have to wait for the one before it."""
_WRITE_S = 1.0
"""Whoever asked and does not read must not hold up the supervisor."""


class NobodyThere(Exception):  # noqa: N818 -- it reads as what it is
    """No supervisor answers here."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a supervisor answered."""

    done: bool
    words: str
    status: dict[str, object]


def listen(directory: Path) -> socket.socket:
    """Open the socket in a runtime directory. Raises OSError where that cannot be."""
    path = directory / NAME
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with _address(directory) as address:
        listener.bind(address)
    path.chmod(0o600)
    listener.listen()
    listener.settimeout(0)
    return listener


@contextlib.contextmanager
def _address(directory: Path) -> Iterator[str]:
    """Give an address of the socket that is short enough: seen from its own directory, if it must be.

    The working directory belongs to the whole process; both who listens and who asks are programs of one thread.
    """
    path = str(directory / NAME)
    if len(path.encode()) <= PATH_BYTES_MAX:
        yield path
        return
    with contextlib.chdir(directory):
        yield NAME


def ask(directory: Path, question: str, answer_s: float = ANSWER_S) -> Reply:
    """Ask a supervisor to `upgrade`, or for its `status`. Raises NobodyThere, also when it goes before it answers."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asker:
        asker.settimeout(answer_s)
        try:
            with _address(directory) as address:
                asker.connect(address)
            asker.sendall(f"{question}\n".encode())
            with asker.makefile("rb") as answers:
                line = answers.readline(LINE_BYTES_MAX)
        except OSError as error:
            raise NobodyThere(str(error)) from None
    try:
        answer = json.loads(line)
        return Reply(answer["done"] is True, str(answer["words"]), dict(answer.get("status", {})))
    except (ValueError, KeyError, TypeError):
        raise NobodyThere("it went before it answered") from None


def reply(asker: socket.socket, answer: Reply) -> None:
    """Answer and hang up; whoever left meanwhile is none of our business."""
    line = {"done": answer.done, "words": answer.words, "status": answer.status}
    with contextlib.suppress(OSError), asker:
        asker.settimeout(_WRITE_S)
        asker.sendall(json.dumps(line).encode() + b"\n")
