"""Serve until told to stop: the first Ctrl-C or SIGTERM drains, a second one ends what still runs."""

import asyncio
import contextlib
import ctypes
import signal
import sys
from collections.abc import Callable

from cachegate.server.app import App

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MMAP_BYTES, _TRIM_BYTES = 33_554_432, 67_108_864
"""glibc gives a freed 4 MB body back to the kernel and faults it in again for the next one. Keeping up to 64 MiB halves
the cost of large bodies in every server measured."""


def tune_allocator() -> None:
    """Let glibc keep the memory of large bodies; elsewhere do nothing."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)


async def serve(app: App, announce: Callable[[str, int], None], say: Callable[[str], None]) -> None:
    """Open, announce the address, serve, drain and close. Raises OSError when the address is taken."""
    stop, hurry = asyncio.Event(), asyncio.Event()
    _on_signals(stop, hurry)
    announce(*await app.open())
    await stop.wait()
    running = len(app.lifecycle.running)
    if running:
        say(f"Waiting for {running} running request{'s' if running > 1 else ''}; press Ctrl-C again to end them now.")
    await app.drain(app.config.limits.drain_seconds, hurry)
    await app.close()


def _on_signals(stop: asyncio.Event, hurry: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()

    def signalled() -> None:
        (hurry if stop.is_set() else stop).set()

    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C ends the process there
            loop.add_signal_handler(number, signalled)
