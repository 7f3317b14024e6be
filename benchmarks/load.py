"""The load: closed-loop requests, many streams at once, idle streams, and a probe for the first byte.

Clients are bare sockets and asyncio protocols, so that the load costs little beside the server it loads. A `Meter` is
read at the two ends of the measured window; warm-up, connecting and checking the answers stay outside of it.
"""

import asyncio
import random
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from benchmarks.answers import END, Count, count, deltas
from benchmarks.bodies import head
from benchmarks.plan import Plan

Meter = Callable[[], int]
"""CPU nanoseconds the measured server has used so far."""

_ANSWER_S = 60.0
"""No single answer, and no set of streams, takes near this long; a hanging one must not hang the run."""
_FIRST_EVENT = b"event: response.created"


class LoadFailed(Exception):  # noqa: N818 -- it reads as what it is
    """An answer was wrong or never came: the figure would mean nothing."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The size of a closed loop."""

    connections: int
    seconds: float
    warm: int
    """Answers before the measured window."""


@dataclass(frozen=True, slots=True)
class Hammered:
    """A closed loop of small requests."""

    requests: int
    seconds: float
    cpu_ns: int


@dataclass(frozen=True, slots=True)
class Streamed:
    """Many streams at once, each received whole or not."""

    counts: tuple[Count, ...]
    seconds: float
    """From the first request to the end of the last stream."""
    window_events: int
    """Deltas received between the moment when all streams had begun and the end of the first."""
    window_cpu_ns: int
    cpu_ns: int
    """All of it, requests included."""

    @property
    def lost(self) -> int:
        """Events that did not arrive in their place."""
        return sum(count.lost for count in self.counts)

    @property
    def faults(self) -> list[str]:
        """What was wrong with the streams that were not whole."""
        return [count.fault for count in self.counts if count.fault]


class Probe:
    """One kept-alive connection that times the first event of an answer, one request after the other."""

    def __init__(self, port: int, body: bytes, thread: str) -> None:
        self._plan = Plan(events=1)
        self._request = head(len(body), self._plan, thread) + body
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_ANSWER_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self) -> int:
        """Send the request, and return the nanoseconds to the first event of its answer. Raises LoadFailed."""
        received = b""
        started = time.perf_counter_ns()
        self._socket.sendall(self._request)
        while _FIRST_EVENT not in received:
            received += self._receive(received)
        first = time.perf_counter_ns() - started
        while not received.endswith(END):
            received += self._receive(received)
        _check(received, self._plan)
        return first

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _receive(self, before: bytes) -> bytes:
        data = self._socket.recv(65_536)
        if not data or (before and not before.startswith(b"HTTP/1.1 200")):
            raise LoadFailed(f"no whole answer: {before[:300]!r}")
        return data


def first_events(probes: Sequence[Probe], rounds: int, dice: random.Random) -> list[list[int]]:
    """Time the probes in turn, in random order, so that a disturbance meets all of them alike."""
    times: list[list[int]] = [[] for _ in probes]
    order = list(range(len(probes)))
    for _ in range(rounds):
        dice.shuffle(order)
        for index in order:
            times[index].append(probes[index].ask())
    return times


async def hammer(port: int, plan: Plan, body: bytes, load: Closed, meter: Meter) -> Hammered:
    """Send small requests over kept-alive connections, each as soon as the last was answered."""
    loop = asyncio.get_running_loop()
    crew = _Crew(plan, load.warm, loop.create_future(), loop.create_future())
    try:
        async with asyncio.timeout(_ANSWER_S + load.seconds):
            for number in range(load.connections):
                request = head(len(body), plan, f"bench-{number}") + body
                await loop.create_connection(partial(_Worker, crew, request), "127.0.0.1", port)
            await crew.warmed
            before, cpu, started = crew.done, meter(), time.perf_counter()
            await asyncio.wait({crew.failed}, timeout=load.seconds)
            seconds, cpu, done = time.perf_counter() - started, meter() - cpu, crew.done - before
            if crew.failed.done():
                crew.failed.result()
    except TimeoutError:
        raise LoadFailed(f"{crew.done} answers, then none") from None
    finally:
        crew.stop()
    return Hammered(done, seconds, cpu)


@dataclass(slots=True)
class _Crew:
    """What the workers of one closed loop share."""

    plan: Plan
    warm: int
    warmed: "asyncio.Future[None]"
    failed: "asyncio.Future[None]"
    done: int = 0
    transports: list[asyncio.Transport] = field(default_factory=list)

    def answered(self, answer: bytes) -> bool:
        """Note an answer; return whether to go on."""
        if deltas(answer) != self.plan.events or not answer.startswith(b"HTTP/1.1 200"):
            self.fail(f"not the whole answer: {answer[:300]!r}")
            return False
        self.done += 1
        if self.done == self.warm:
            self.warmed.set_result(None)
        return True

    def fail(self, words: str) -> None:
        """End the load as failed."""
        for future in (self.warmed, self.failed):
            if not future.done():
                future.set_exception(LoadFailed(words))

    def stop(self) -> None:
        """Cut every connection."""
        for transport in self.transports:
            transport.abort()
        for future in (self.warmed, self.failed):
            future.cancel()
            if not future.cancelled():
                future.exception()


class _Worker(asyncio.Protocol):
    """One connection of a closed loop."""

    def __init__(self, crew: _Crew, request: bytes) -> None:
        self._crew = crew
        self._request = request
        self._parts: list[bytes] = []
        self._tail = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.BaseProtocol`."""
        self._transport = cast("asyncio.Transport", transport)
        self._crew.transports.append(self._transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._parts.append(data)
        self._tail = data[-7:] if len(data) >= len(END) else (self._tail + data)[-7:]
        if self._tail == END:
            answer = b"".join(self._parts)
            self._parts.clear()
            if self._crew.answered(answer) and self._transport is not None:
                self._transport.write(self._request)
        elif self._parts[0][:12] != b"HTTP/1.1 200":
            self._crew.fail(f"an error: {data[:300]!r}")

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.BaseProtocol`."""
        self._crew.fail(f"the connection was closed ({exc})")


class _Fleet:
    """What the streams of one measurement share: it reads the meter when all have begun and when the first ends."""

    def __init__(self, size: int, meter: Meter) -> None:
        loop = asyncio.get_running_loop()
        self.streams: list[_Stream] = []
        self.opened: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()
        self.cpu_opened = self.cpu_first_end = 0
        self._size = size
        self._meter = meter
        self._begun = self._over = 0

    def begun(self) -> None:
        """Note a stream's first bytes."""
        self._begun += 1
        if self._begun == self._size:
            self.cpu_opened = self._meter()
            for stream in self.streams:
                stream.parts_at_open = len(stream.parts)
            if not self.opened.done():
                self.opened.set_result(None)

    def over(self) -> None:
        """Note the end of a stream, whole or not."""
        self._over += 1
        if self._over == 1:
            self.cpu_first_end = self._meter()
            for stream in self.streams:
                stream.parts_at_first_end = len(stream.parts)
        if self._over == self._size:
            for future in (self.opened, self.ended):
                if not future.done():
                    future.set_result(None)


class _Stream(asyncio.Protocol):
    """One streamed answer on a connection of its own; keeps what it receives."""

    def __init__(self, fleet: _Fleet, request: bytes) -> None:
        self.parts: list[bytes] = []
        self.parts_at_open = self.parts_at_first_end = 0
        self.transport: asyncio.Transport | None = None
        self._fleet = fleet
        self._request = request
        self._tail = b""
        self._over = False
        fleet.streams.append(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.BaseProtocol`."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self.parts.append(data)
        if len(self.parts) == 1:
            self._fleet.begun()
        self._tail = data[-7:] if len(data) >= len(END) else (self._tail + data)[-7:]
        if self._tail == END:
            self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.BaseProtocol`."""
        del exc
        self.transport = None
        self._end()

    def window(self) -> int:
        """Count the deltas received in the measured window."""
        return deltas(b"".join(self.parts[self.parts_at_open : self.parts_at_first_end]))

    def _end(self) -> None:
        if not self._over:
            self._over = True
            self._fleet.over()


async def stream(port: int, plan: Plan, body: bytes, size: int, meter: Meter) -> Streamed:
    """Receive `size` streams at once, and count every event of every one."""
    fleet = _Fleet(size, meter)
    cpu, started = meter(), time.perf_counter()
    try:
        async with asyncio.timeout(_ANSWER_S):
            await _launch(fleet, port, plan, body, size)
            await fleet.ended
    except TimeoutError:
        pass  # what is missing is counted as lost
    finally:
        seconds, cpu = time.perf_counter() - started, meter() - cpu
        _cut(fleet)
    return Streamed(
        counts=tuple(count(b"".join(one.parts), plan) for one in fleet.streams),
        seconds=seconds,
        window_events=sum(one.window() for one in fleet.streams),
        window_cpu_ns=fleet.cpu_first_end - fleet.cpu_opened,
        cpu_ns=cpu,
    )


async def idle(port: int, body: bytes, size: int, meter: Meter) -> int:
    """Open `size` streams that fall silent after their first events; return what the meter says then."""
    fleet = _Fleet(size, lambda: 0)
    try:
        async with asyncio.timeout(_ANSWER_S):
            await _launch(fleet, port, Plan(hold=1), body, size)
            await fleet.opened
            if any(not one.parts or one.transport is None for one in fleet.streams):
                raise LoadFailed("a stream that should stay open was closed")
            return meter()
    except TimeoutError:
        raise LoadFailed(f"not all of {size} streams could be opened") from None
    finally:
        _cut(fleet)


async def quiet(upstream_port: int) -> None:
    """Wait until the upstream runs no stream any more: every proxy has passed the departure of its clients on."""
    try:
        async with asyncio.timeout(_ANSWER_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", upstream_port)
            writer.write(b"GET /quiet HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            await reader.readuntil(b"quiet\n")
            writer.close()
    except TimeoutError:
        raise LoadFailed("streams whose clients are gone are still running upstream") from None


async def _launch(fleet: _Fleet, port: int, plan: Plan, body: bytes, size: int) -> None:
    loop = asyncio.get_running_loop()
    for number in range(size):
        request = head(len(body), plan, f"bench-{number}") + body
        await loop.create_connection(partial(_Stream, fleet, request), "127.0.0.1", port)


def _cut(fleet: _Fleet) -> None:
    for one in fleet.streams:
        if one.transport is not None:
            one.transport.abort()


def _check(answer: bytes, plan: Plan) -> None:
    counted = count(answer, plan)
    if counted.fault:
        raise LoadFailed(counted.fault)
