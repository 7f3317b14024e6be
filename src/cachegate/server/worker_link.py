"""A worker's end of the line to its supervisor: orders come down, and what a worker has to say goes up.

Old and new code speak over it during an upgrade. So a word or a field that one side does not know is left out, none
changes its meaning, and the end of the line means that the supervisor is gone.
"""

import asyncio
import contextlib
import json
import socket

from cachegate import __version__


def say_failed(link: socket.socket, words: str) -> None:
    """Tell the supervisor why this worker does not start; one that is gone needs to know nothing."""
    with contextlib.suppress(OSError):
        link.sendall(_line({"failed": words}))


class Line:
    """The line while the worker serves."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def say_ready(self, drain_s: float) -> None:
        """Say that this worker serves, what it is, and how long it may take to leave."""
        self._writer.write(_line({"ready": {"version": __version__, "drainSeconds": drain_s}}))

    def say_running(self, running: int) -> None:
        """Say how many answers run."""
        self._writer.write(_line({"running": running}))

    async def next_order(self) -> str:
        """Return the next order; an empty one when the supervisor is gone."""
        try:
            line = await self._reader.readline()
        except (ConnectionError, ValueError):
            return ""
        return line.decode("ascii", "replace").strip()

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


async def line_over(link: socket.socket) -> Line:
    """Return the line over an inherited link."""
    link.settimeout(0)
    return Line(*await asyncio.open_connection(sock=link))


def _line(what: dict[str, object]) -> bytes:
    return json.dumps(what).encode() + b"\n"
