"""What a worker inherits from its supervisor: the listening sockets, and a line to it."""

import os
import socket
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass

LISTEN_VARIABLE = "CACHEGATE_LISTEN_FD"
"""The listening sockets, joined by commas."""
LINK_VARIABLE = "CACHEGATE_READY_FD"
"""The line: a worker says over it that it is ready, and gets its orders."""
WORKERS_VARIABLE = "CACHEGATE_WORKERS"
"""How many workers serve beside each other; what lives in one process only has to say so. It stays there."""


@dataclass(frozen=True, slots=True)
class Inherited:
    """What a supervisor handed to this process."""

    sockets: tuple[socket.socket, ...]
    link: socket.socket


def environment(listening: Sequence[int], link: int, workers: int) -> dict[str, str]:
    """Return the variables that tell a worker what it inherits."""
    return {
        LISTEN_VARIABLE: ",".join(map(str, listening)),
        LINK_VARIABLE: str(link),
        WORKERS_VARIABLE: str(workers),
    }


def inherit(environ: MutableMapping[str, str]) -> Inherited:
    """Take over the sockets. No program that this worker starts gets them. Raises KeyError without a supervisor."""
    listening = [int(number) for number in environ.pop(LISTEN_VARIABLE).split(",")]
    link = int(environ.pop(LINK_VARIABLE))
    pass_on(*listening, link, heirs=False)
    return Inherited(tuple(socket.socket(fileno=number) for number in listening), socket.socket(fileno=link))


def pass_on(*numbers: int, heirs: bool) -> None:
    """Let the programs that this process starts inherit these files, or not."""
    for number in numbers:
        os.set_inheritable(number, heirs)
