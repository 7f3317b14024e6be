"""Serve until told to stop: the first Ctrl-C or SIGTERM drains, a second one ends what still runs.

A worker is told by its supervisor too, and retires when a new generation has taken its place.
"""

import asyncio
import contextlib
import ctypes
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass

from cachegate.server.app import App
from cachegate.server.inheritance import Inherited
from cachegate.server.supervision import waiting
from cachegate.server.supervision_values import Order
from cachegate.server.worker_link import Line, line_over

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
    if app.lifecycle.running:
        say(waiting(len(app.lifecycle.running)))
    await app.drain(app.config.limits.drain_seconds, hurry)
    await app.close()


async def serve_for_supervisor(app: App, inherited: Inherited) -> None:
    """Serve on inherited sockets as the supervisor orders; when it is gone, leave as if it had ordered a drain."""
    drain_s = app.config.limits.drain_seconds
    stop, hurry, retire = asyncio.Event(), asyncio.Event(), asyncio.Event()
    _on_signals(stop, hurry)
    await app.open(inherited.sockets)
    line = await line_over(inherited.link)
    line.say_ready(drain_s)
    following = asyncio.create_task(_follow(line, app, Told(stop, hurry, retire)))
    try:
        await _first_of(stop, retire)
        if not stop.is_set():
            await app.retire(drain_s, stop)
        if stop.is_set():
            await app.drain(drain_s, hurry)
        await app.close()
    finally:
        following.cancel()
        line.close()


@dataclass(frozen=True, slots=True)
class Told:
    """What a worker can be told to do."""

    stop: asyncio.Event
    hurry: asyncio.Event
    retire: asyncio.Event


async def _follow(line: Line, app: App, told: Told) -> None:
    """Carry out the orders of the supervisor. A word of a later version is left out."""
    while order := await line.next_order():
        match order:
            case Order.RETIRE:
                told.retire.set()
            case Order.DRAIN:
                told.stop.set()
            case Order.CUT:
                told.stop.set()
                told.hurry.set()
        if order in {Order.COUNT, Order.DRAIN}:
            line.say_running(len(app.lifecycle.running))
    told.stop.set()


async def _first_of(*events: asyncio.Event) -> None:
    waiting_for = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waiting_for, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting_for:
        task.cancel()


def loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    """Return uvloop's loop where it exists: a fifth less CPU on streams."""
    try:
        import uvloop  # noqa: PLC0415 -- not on Windows
    except ModuleNotFoundError:
        return None
    return uvloop.Loop


def _on_signals(stop: asyncio.Event, hurry: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()

    def signalled() -> None:
        (hurry if stop.is_set() else stop).set()

    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C ends the process there
            loop.add_signal_handler(number, signalled)
