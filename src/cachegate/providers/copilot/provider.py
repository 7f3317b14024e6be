"""GitHub Copilot as a provider: requests of any protocol, answered by a live session of Copilot's runtime."""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import dataclass

from cachegate.errors import ErrorKind, UpstreamTimeout
from cachegate.providers.base import Call, Head, Piece
from cachegate.providers.copilot.conversation import Conversation, Turn
from cachegate.providers.copilot.native import Runtime
from cachegate.providers.copilot.pool import Key, Pool, Slot
from cachegate.providers.estimates import estimated
from cachegate.wire.affinity import thread_key
from cachegate.wire.codec import Codec
from cachegate.wire.codecs import CODECS
from cachegate.wire.copilot.event_reader import Heard, TurnReader
from cachegate.wire.copilot.setup import ask, tool_names
from cachegate.wire.facts import Operation, Protocol
from cachegate.wire.hub import Broken, Ended, Event, Request, Target
from cachegate.wire.protocols import DIALECTS
from cachegate.wire.seen import Failed, Seen
from cachegate.wire.sse import SseReader
from cachegate.wire.translation import broken

_SSE = (("content-type", "text/event-stream"), ("cache-control", "no-cache"))
_JSON = (("content-type", "application/json"),)
_SWEEPS_PER_LIFE = 4
_GONE = "Copilot's runtime said nothing for {:g} s. The request was not repeated; please send it again."


@dataclass(frozen=True, slots=True)
class CopilotSettings:
    """How sessions are kept."""

    sessions_max: int = 16
    idle_s: float = 1_800.0
    """A session that nobody used for so long ends; the next request rebuilds it."""
    silence_s: float = 600.0
    """Silence of the runtime before a request is given up."""
    keepalive_s: float = 25.0
    """Silence on a stream after which the client gets a frame that says nothing."""
    models: tuple[str, ...] = ()
    """Names to list."""


@dataclass(frozen=True, slots=True)
class _Exchange:
    """One request and its answer."""

    call: Call
    codec: Codec
    request: Request
    target: Target
    turn: Turn
    conversation: Conversation
    reseed: tuple[Seen, ...]
    """That the session was rebuilt; goes with the first piece."""


class CopilotProvider:
    """See the module's first lines."""

    def __init__(
        self, runtime: Runtime, settings: CopilotSettings, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._runtime = runtime
        self._settings = settings
        self._pool = Pool(self._conversation, settings.sessions_max, settings.idle_s, now_s)
        self._sweeper: asyncio.Task[None] | None = None

    def speaks(self, protocol: Protocol, operation: Operation) -> bool:
        """See `Provider.speaks`."""
        del operation
        return protocol in CODECS

    def models(self) -> tuple[str, ...]:
        """See `Provider.models`."""
        return self._settings.models

    async def stream(self, call: Call) -> AsyncGenerator[Head | Piece, None]:
        """See `Provider.stream`."""
        request = call.request
        if request.operation is Operation.COUNT_TOKENS:
            head, count = estimated(request)
            yield head
            yield count
            return
        codec = CODECS[request.protocol]
        parsed = codec.parse_request(request.body, request.operation)
        names = tool_names(parsed)
        setup, steps = ask(parsed, call.model, names)
        self._sweep_from_now_on()
        slot = await self._pool.claim(_key(call))
        try:
            turn, reseed = await slot.conversation.begin(setup, steps, TurnReader(names, call.model), call.on_sent)
            target = Target(call.model, call.binding)
            told = () if reseed is None else (reseed,)
            exchange = _Exchange(call, codec, parsed, target, turn, slot.conversation, told)
            first = await self._heard(turn, self._settings.silence_s)
            answer = self._streamed if request.facts.stream else self._whole
            async for part in answer(exchange, first):
                yield part
        finally:
            await asyncio.shield(self._release(slot))

    async def close(self) -> None:
        """See `Provider.close`."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._sweeper
        await self._pool.close()
        await self._runtime.close()

    async def _streamed(self, exchange: _Exchange, first: Heard) -> AsyncGenerator[Head | Piece, None]:
        if (failed := _failure(first)) is not None:
            async for part in _refused(exchange, failed, first.seen):
                yield part
            return
        writer = exchange.codec.stream_writer(exchange.request, exchange.target)
        yield Head(200, _SSE, lambda kind, message: writer.write(broken(kind, message)))
        told = DIALECTS[exchange.call.request.protocol].reader()
        heard = first
        while True:
            data = b"".join(writer.write(event) for event in heard.events)
            if heard is first:
                for event in SseReader().feed(data)[1]:
                    told.read(event)  # what a frame that says nothing looks like depends on whether the answer began
            self._note(exchange, heard)
            yield Piece(data, (*(exchange.reseed if heard is first else ()), *heard.seen))
            if _is_over(heard):
                return
            silent_s = 0.0
            while (said := await self._said(exchange.turn)) is None:
                silent_s += self._settings.keepalive_s
                if silent_s >= self._settings.silence_s:
                    last = writer.write(broken(ErrorKind.TIMEOUT, _GONE.format(silent_s)))
                    yield Piece(last, (Failed("idle", timed_out=True),))
                    return
                yield Piece(told.keepalive)
            heard = said

    async def _whole(self, exchange: _Exchange, first: Heard) -> AsyncGenerator[Head | Piece, None]:
        events: list[Event] = []
        seen: tuple[Seen, ...] = ()
        heard = first
        while True:
            events += heard.events
            seen += heard.seen
            self._note(exchange, heard)
            if (failed := _failure(heard)) is not None:
                async for part in _refused(exchange, failed, seen):
                    yield part
                return
            if _is_over(heard):
                break
            heard = await self._heard(exchange.turn, self._settings.silence_s)
        body = exchange.codec.write_body(exchange.request, exchange.target, tuple(events))
        yield Head(200, (*_JSON, ("content-length", str(len(body)))))
        yield Piece(body, (*exchange.reseed, *seen))

    def _note(self, exchange: _Exchange, heard: Heard) -> None:
        """Let the conversation know of an answer that ended well and can be gone on with."""
        if any(isinstance(event, Ended) for event in heard.events) and not exchange.turn.reader.why:
            exchange.conversation.finish()

    async def _release(self, slot: Slot) -> None:
        await slot.conversation.settle()
        await self._pool.release(slot)

    async def _heard(self, turn: Turn, within_s: float) -> Heard:
        try:
            async with asyncio.timeout(within_s):
                return await turn.heard.get()
        except TimeoutError:
            raise UpstreamTimeout(_GONE.format(within_s)) from None

    async def _said(self, turn: Turn) -> Heard | None:
        """Return what is heard next; None for a silence after which the client gets a frame."""
        try:
            return await self._heard(turn, self._settings.keepalive_s)
        except UpstreamTimeout:
            return None

    def _conversation(self) -> Conversation:
        return Conversation(self._runtime, lambda: str(uuid.uuid4()))

    def _sweep_from_now_on(self) -> None:
        if self._sweeper is None:
            self._sweeper = asyncio.ensure_future(self._sweep())

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._settings.idle_s / _SWEEPS_PER_LIFE)
            await self._pool.sweep()


def _key(call: Call) -> Key | None:
    facts = call.request.facts
    thread = thread_key(facts.caller, call.model)
    return None if thread is None else (thread, facts.request_class.value, call.model)


def _failure(heard: Heard) -> Broken | None:
    return next((event for event in heard.events if isinstance(event, Broken)), None)


def _is_over(heard: Heard) -> bool:
    return any(isinstance(event, Ended | Broken) for event in heard.events)


async def _refused(exchange: _Exchange, failed: Broken, seen: tuple[Seen, ...]) -> AsyncGenerator[Head | Piece, None]:
    """Answer with the provider's own error."""
    error = exchange.codec.write_error(failed, exchange.call.request_id)
    wait = (("retry-after", exchange.turn.retry_after),) if exchange.turn.retry_after else ()
    yield Head(error.status, (*_JSON, ("content-length", str(len(error.body))), *wait))
    yield Piece(error.body, (*exchange.reseed, *seen))
