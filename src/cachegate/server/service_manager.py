"""What systemd and we say to each other: the sockets that it opened for us, and how we stand."""

import contextlib
import socket
import time
from collections.abc import Mapping, MutableMapping

_FIRST_FD = 3
"""Where the inherited sockets begin, by its convention."""
_VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC")


def inherited_sockets(environ: Mapping[str, str], pid: int) -> tuple[int, ...]:
    """Return the listening sockets that were opened for this process; none when they were meant for another one."""
    count = environ.get("LISTEN_FDS", "")
    if environ.get("LISTEN_PID") != str(pid) or not count.isdecimal():
        return ()
    return tuple(range(_FIRST_FD, _FIRST_FD + int(count)))


def forget(environ: MutableMapping[str, str]) -> str | None:
    """Take out what is meant for this process alone, so that none it starts takes it for its own.

    Returns where notices go, for `notify`.
    """
    where = environ.get("NOTIFY_SOCKET")
    for variable in _VARIABLES:
        environ.pop(variable, None)
    return where


def notify(where: str | None, word: str) -> None:
    """Say READY, RELOADING or STOPPING; without anybody who listens, nothing happens."""
    if not where:
        return
    address = f"\0{where[1:]}" if where.startswith("@") else where
    lines = [f"{word}=1"]
    if word == "RELOADING":
        lines.append(f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto("\n".join(lines).encode(), address)
