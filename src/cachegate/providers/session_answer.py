"""Tells a caller the answer of a live session: events of the hub in, the caller's own protocol out."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol as Interface

from cachegate.errors import ErrorKind, UpstreamTimeout
from cachegate.providers.base import Call, Head, Piece
from cachegate.wire.codec import Codec
from cachegate.wire.hub import Broken, Ended, Event, Request, Target
from cachegate.wire.seen import Failed, Seen
from cachegate.wire.silence import Silence
from cachegate.wire.translation import broken

_SSE = (("content-type", "text/event-stream"), ("cache-control", "no-cache"))
_JSON = (("content-type", "application/json"),)
_GONE = "The live session said nothing for {:g} s. The request was not repeated; please send it again."


class Heard(Interface):
    """What a session said at once."""

    @property
    def events(self) -> tuple[Event, ...]:
        """For the caller."""

    @property
    def seen(self) -> tuple[Seen, ...]:
        """For the guard."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a session may be silent."""

    silence_s: float = 600.0
    """Before a request is given up."""
    keepalive_s: float = 25.0
    """Before a streaming client gets a frame that says nothing."""


@dataclass(frozen=True, slots=True)
class SessionAnswer:
    """One answer on its way to the caller."""

    call: Call
    codec: Codec
    """The caller's."""
    request: Request
    target: Target
    hear: Callable[[], Awaitable[Heard]]
    """Waits for what the session says next."""
    ended: Callable[[], None]
    """Called when the answer has ended, before the caller is told so."""
    retry_after: Callable[[], str]
    """The time to wait that came with a failure, or ""."""
    patience: Patience
    first_seen: tuple[Seen, ...] = ()
    """What goes with the first piece: that the session was rebuilt."""

    async def stream(self) -> AsyncGenerator[Head | Piece, None]:
        """Yield the answer as a provider does; see `Provider.stream`."""
        first = await self._heard(self.patience.silence_s)
        parts = self._streamed(first) if self.call.request.facts.stream else self._whole(first)
        async for part in parts:
            yield part

    async def _streamed(self, first: Heard) -> AsyncGenerator[Head | Piece, None]:
        if (failed := _failure(first)) is not None:
            for part in self._refused(failed, (*self.first_seen, *first.seen)):
                yield part
            return
        writer = self.codec.stream_writer(self.request, self.target)
        yield Head(200, _SSE, lambda kind, message: writer.write(broken(kind, message)))
        silence = Silence(self.call.request.protocol)
        heard, seen = first, self.first_seen
        while True:
            data = b"".join(writer.write(event) for event in heard.events)
            silence.told(data)
            self._note(heard)
            yield Piece(data, (*seen, *heard.seen))
            if _is_over(heard):
                return
            seen, silent_s = (), 0.0
            while (said := await self._said()) is None:
                silent_s += self.patience.keepalive_s
                if silent_s >= self.patience.silence_s:
                    last = writer.write(broken(ErrorKind.TIMEOUT, _GONE.format(silent_s)))
                    yield Piece(last, (Failed("idle", timed_out=True),))
                    return
                yield Piece(silence.frame)
            heard = said

    async def _whole(self, first: Heard) -> AsyncGenerator[Head | Piece, None]:
        events: list[Event] = []
        seen = self.first_seen
        heard = first
        while True:
            events += heard.events
            seen += heard.seen
            self._note(heard)
            if (failed := _failure(heard)) is not None:
                for part in self._refused(failed, seen):
                    yield part
                return
            if _is_over(heard):
                break
            heard = await self._heard(self.patience.silence_s)
        body = self.codec.write_body(self.request, self.target, tuple(events))
        yield Head(200, (*_JSON, ("content-length", str(len(body)))))
        yield Piece(body, seen)

    def _refused(self, failed: Broken, seen: tuple[Seen, ...]) -> tuple[Head, Piece]:
        """Answer with the provider's own error."""
        error = self.codec.write_error(failed, self.call.request_id)
        wait = self.retry_after()
        headers = (*_JSON, ("content-length", str(len(error.body))), *((("retry-after", wait),) if wait else ()))
        return Head(error.status, headers), Piece(error.body, seen)

    def _note(self, heard: Heard) -> None:
        if any(isinstance(event, Ended) for event in heard.events):
            self.ended()

    async def _heard(self, within_s: float) -> Heard:
        try:
            async with asyncio.timeout(within_s):
                return await self.hear()
        except TimeoutError:
            raise UpstreamTimeout(_GONE.format(within_s)) from None

    async def _said(self) -> Heard | None:
        """Return what is heard next; None for a silence after which the client gets a frame."""
        try:
            return await self._heard(self.patience.keepalive_s)
        except UpstreamTimeout:
            return None


def _failure(heard: Heard) -> Broken | None:
    return next((event for event in heard.events if isinstance(event, Broken)), None)


def _is_over(heard: Heard) -> bool:
    return any(isinstance(event, Ended | Broken) for event in heard.events)
