"""Providers without a network: their caches work, are broken, come and go or say nothing, and their answers fail.

Each writes down in the request's own `Ask` what it did: that is the truth which the gateway's records are held against.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from random import Random

from cachegate.errors import ErrorKind, UpstreamError, UpstreamTimeout
from cachegate.guard.usage import Usage
from cachegate.providers.base import Call, Head, Piece
from cachegate.providers.synthetic import SyntheticCache, SyntheticSettings, tokens
from cachegate.wire.answer import Answer
from cachegate.wire.body import encode
from cachegate.wire.facts import Operation, Protocol
from cachegate.wire.protocols import DIALECTS, Reader
from cachegate.wire.seen import Failed, Reseed, Seen
from cachegate.wire.sse import SseReader, frame
from sim.truth import CANARY, CURRENT, Ask, Parts

SILENCE_S = 600.0
"""After so much silence a provider is given up."""
CHANGED = Reseed("fingerprint_changed")
_SSE = (("content-type", "text/event-stream"),)
_JSON = (("content-type", "application/json"),)


class Cache(Enum):
    """What a provider's cache does."""

    WORKS = auto()
    BROKEN = auto()
    """Never reads."""
    PINNED = auto()
    """Reads tools and instructions, and never the conversation."""
    FLAPS = auto()
    """Works and is broken by turns."""


class Says(Enum):
    """What a provider reports of its cache."""

    ALL = auto()
    NO_CACHE = auto()
    """The input, and nothing of the cache."""
    NOTHING = auto()
    ZERO_READ = auto()
    """That nothing was read, whatever was."""
    PLACEHOLDER = auto()
    """Zeros for everything, which measures nothing."""


class Fault(Enum):
    """What goes wrong with one answer."""

    NONE = auto()
    SLOW = auto()
    """Longer than a cache lives."""
    CONNECT = auto()
    RESET = auto()
    """Broken off before an answer."""
    NO_ANSWER = auto()
    STATUS = auto()
    POLICY = auto()
    """A refusal, as an error status."""
    REFUSAL = auto()
    """A refusal, as an answer."""
    CUT = auto()
    HANG = auto()
    ERROR_EVENT = auto()
    BUG = auto()


Weights = Mapping[Fault, int]
FAULTLESS: Weights = {Fault.NONE: 1}
USUAL: Weights = {
    Fault.NONE: 40, Fault.SLOW: 2, Fault.CONNECT: 1, Fault.RESET: 1, Fault.NO_ANSWER: 1, Fault.STATUS: 3,
    Fault.POLICY: 1, Fault.REFUSAL: 2, Fault.CUT: 2, Fault.HANG: 1, Fault.ERROR_EVENT: 1, Fault.BUG: 1,
}  # fmt: skip
REFUSING: Weights = {Fault.NONE: 2, Fault.REFUSAL: 3, Fault.POLICY: 1}
FAILING: Weights = {Fault.NONE: 2, Fault.STATUS: 3, Fault.CUT: 2, Fault.HANG: 1, Fault.NO_ANSWER: 1, Fault.RESET: 1}


@dataclass(frozen=True, slots=True)
class Nature:
    """A kind of provider."""

    name: str
    cache: Cache
    faults: Weights
    says: Says = Says.ALL
    reseeds: bool = False
    """It holds sessions, and says why it rebuilt one."""
    self_hosted: bool = False

    @property
    def flawless(self) -> bool:
        """Whether its cache works, it says so, and nothing ever fails."""
        return (self.cache, self.says, self.faults) == (Cache.WORKS, Says.ALL, FAULTLESS)


NATURES = (
    Nature("honest", Cache.WORKS, FAULTLESS),
    Nature("usual", Cache.WORKS, USUAL),
    Nature("broken", Cache.BROKEN, FAULTLESS),
    Nature("brokenusual", Cache.BROKEN, USUAL),
    Nature("pinned", Cache.PINNED, USUAL),
    Nature("flapping", Cache.FLAPS, USUAL),
    Nature("silent", Cache.WORKS, FAULTLESS, Says.NO_CACHE),
    Nature("mute", Cache.WORKS, USUAL, Says.NOTHING),
    Nature("lying", Cache.WORKS, FAULTLESS, Says.ZERO_READ),
    Nature("placeholding", Cache.WORKS, FAULTLESS, Says.PLACEHOLDER),
    Nature("refusing", Cache.BROKEN, REFUSING),
    Nature("failing", Cache.FLAPS, FAILING),
    Nature("session", Cache.WORKS, USUAL, reseeds=True),
    Nature("own", Cache.BROKEN, USUAL, self_hosted=True),
)


@dataclass(frozen=True, slots=True)
class Weather:
    """When a flapping cache works."""

    period_s: float
    now_s: Callable[[], float]

    @property
    def fair(self) -> bool:
        """Whether it works now."""
        return int(self.now_s() / self.period_s) % 2 == 0


class SimProvider:
    """Implements `providers.base.Provider`."""

    def __init__(self, nature: Nature, settings: SyntheticSettings, weather: Weather) -> None:
        self.nature = nature
        self._weather = weather
        self._cache = SyntheticCache(settings, weather.now_s)
        self._sessions: dict[object, Parts] = {}

    def speaks(self, protocol: Protocol, operation: Operation) -> bool:
        return protocol in DIALECTS and operation in Operation

    def models(self) -> tuple[str, ...]:
        return ()

    async def close(self) -> None:
        """Nothing to release."""

    async def stream(self, call: Call) -> AsyncGenerator[Head | Piece, None]:
        ask = CURRENT.get().ask
        ask.reached = ask.open = True
        try:
            fault = _chosen(self.nature.faults, ask.dice)
            await self._reach(call, ask, fault)
            if call.request.operation is Operation.COUNT_TOKENS:
                ask.began = ask.finished = True
                yield Head(200, _JSON)
                yield Piece(DIALECTS[call.request.protocol].writer.count(1))
            elif fault in {Fault.STATUS, Fault.POLICY}:
                async for part in _error_answer(call, ask, fault):
                    yield part
            else:
                answer = self._answer(ask, fault)
                more = self._reseed(ask)
                await asyncio.sleep(ask.dice.uniform(0.2, 4.0))
                parts = _streamed if call.request.facts.stream else _whole
                async for part in parts(call, ask, answer, fault, more):
                    yield part
        finally:
            ask.open = False

    async def _reach(self, call: Call, ask: Ask, fault: Fault) -> None:
        """Connect and send, as far as that goes well."""
        if call.request.body is not ask.received.body or call.model != ask.budget.model:
            raise AssertionError("the provider was given another request than was asked")
        await asyncio.sleep(ask.dice.uniform(0.01, 0.5))
        if fault is Fault.CONNECT:
            ask.failed = True
            raise UpstreamError(f"{CANARY}: cannot connect")
        call.on_sent()
        ask.sent = True
        await asyncio.sleep(ask.dice.uniform(0.01, 2.0))
        if fault is Fault.RESET:
            ask.failed = True
            raise UpstreamError(f"{CANARY}: reset")
        if fault is Fault.NO_ANSWER:
            await asyncio.sleep(SILENCE_S)
            ask.failed = ask.timed_out = True
            raise UpstreamTimeout(f"{CANARY}: no answer")

    def _answer(self, ask: Ask, fault: Fault) -> Answer:
        """Process the prompt, and say what this provider says of it."""
        parts = ask.parts
        static = [parts.tools + parts.instructions]
        model = f"{ask.budget.model} {parts.thinking} {parts.speed}"
        read, total = self._cache.read(model, [*static, *ask.items])
        match self.nature.cache:
            case Cache.BROKEN:
                read = 0
            case Cache.PINNED:
                read = min(read, tokens(len(static[0])))
            case Cache.FLAPS:
                read = read if self._weather.fair else 0
            case Cache.WORKS:
                pass
        refused = fault is Fault.REFUSAL
        silent = refused and ask.dice.random() < 1 / 2
        usage = Usage() if silent else _said(self.nature.says, total, read)
        deltas = (CANARY, " refuses") if refused else (CANARY, " answers", ".")
        return Answer(f"a{ask.number}", ask.budget.model, 1, deltas, usage, 3, refused)

    def _reseed(self, ask: Ask) -> tuple[Seen, ...]:
        """Report why the session of this budget was built anew, if it was."""
        if not self.nature.reseeds:
            return ()
        before = self._sessions.get(ask.budget)
        self._sessions[ask.budget] = ask.parts
        if before is None or before == ask.parts:
            return (Reseed("session_lost"),) if ask.dice.random() < 1 / 10 else ()
        return (CHANGED,)


def _said(says: Says, total: int, read: int) -> Usage:
    match says:
        case Says.ALL:
            return Usage(total, read, total - read)
        case Says.NO_CACHE:
            return Usage(total)
        case Says.NOTHING:
            return Usage()
        case Says.ZERO_READ:
            return Usage(total, 0, total)
        case Says.PLACEHOLDER:
            return Usage(0, 0, 0)


def _measured(usage: Usage) -> Usage:
    """Return what such a report measures: a prompt of no tokens is a placeholder."""
    return Usage() if usage.input_total == 0 else usage


async def _error_answer(call: Call, ask: Ask, fault: Fault) -> AsyncGenerator[Head | Piece, None]:
    """Yield an error status, or a refusal in the form of one."""
    messages = call.request.protocol is Protocol.MESSAGES
    status = 400 if fault is Fault.POLICY else ask.dice.choice((429, 500, 503, 529))
    error = {"type": "api_error", "code": "server_error", "message": f"{CANARY} error"}
    if fault is Fault.POLICY:
        error["message" if messages else "code"] = (
            f"{CANARY}: Output blocked by content filtering policy" if messages else "invalid_prompt"
        )
    body = encode({"type": "error", "error": error})
    reader = DIALECTS[call.request.protocol].reader()
    ask.failed, ask.status = True, status
    yield Head(status, _JSON)
    ask.refused = fault is Fault.POLICY
    yield Piece(body, reader.read_body(status, body))


async def _whole(
    call: Call, ask: Ask, answer: Answer, fault: Fault, more: tuple[Seen, ...]
) -> AsyncGenerator[Head | Piece, None]:
    """Yield an unstreamed answer; one that breaks off never gets so far."""
    dialect = DIALECTS[call.request.protocol]
    if fault in {Fault.CUT, Fault.ERROR_EVENT}:
        ask.failed = True
        raise UpstreamError(f"{CANARY}: cut")
    if fault is Fault.HANG:
        await asyncio.sleep(SILENCE_S)
        ask.failed = ask.timed_out = True
        raise UpstreamTimeout(f"{CANARY}: hangs")
    if fault is Fault.BUG:
        ask.failed = True
        raise ValueError(f"{CANARY}: bug")
    await asyncio.sleep(400.0 if fault is Fault.SLOW else ask.dice.uniform(0.5, 20.0))
    body = dialect.writer.whole(answer)
    ask.began = True
    yield Head(200, _JSON)
    ask.usage, ask.refused, ask.finished = _measured(answer.usage), answer.refused, True
    ask.reseeded_by_client = CHANGED in more
    yield Piece(body, (*more, *dialect.reader().read_body(200, body)))


async def _streamed(
    call: Call, ask: Ask, answer: Answer, fault: Fault, more: tuple[Seen, ...]
) -> AsyncGenerator[Head | Piece, None]:
    """Yield a streamed answer, event by event, up to where it breaks."""
    dialect, dice = DIALECTS[call.request.protocol], ask.dice
    reader = dialect.reader()
    events = dialect.writer.stream(answer)
    breaks = fault in {Fault.CUT, Fault.HANG, Fault.ERROR_EVENT, Fault.BUG}
    events = events[: dice.randrange(len(events))] if breaks else events
    ask.began = True
    yield Head(200, _SSE, reader.terminal_error)
    for number, event in enumerate(events):
        slow = fault is Fault.SLOW and number == 1
        await asyncio.sleep(400.0 if slow else dice.choice((0.0, 0.05, 0.4, 3.0)))
        _note(ask, event, answer)
        ask.reseeded_by_client |= number == 0 and CHANGED in more
        yield _piece(event, reader, more if number == 0 else ())
    if breaks:
        yield await _broken(call, ask, answer, fault, reader)
    elif dice.random() < 1 / 4:
        await asyncio.sleep(0.2)


async def _broken(call: Call, ask: Ask, answer: Answer, fault: Fault, reader: Reader) -> Piece:
    """Return the last piece of an answer that broke. Raises where the provider's own code broke."""
    if fault is Fault.BUG:
        ask.failed = True
        raise ValueError(f"{CANARY}: bug")
    if fault is Fault.ERROR_EVENT:
        event = _error_event(call.request.protocol, answer.usage)
        ask.failed = True
        if call.request.protocol is Protocol.RESPONSES:
            ask.usage = _measured(Usage(answer.usage.input_total, answer.usage.cached_read))
        return _piece(event, reader, ())
    if fault is Fault.HANG:
        await asyncio.sleep(SILENCE_S)
    ask.failed, ask.timed_out = True, fault is Fault.HANG
    data = reader.terminal_error(ErrorKind.UPSTREAM, f"{CANARY}: broken")
    return Piece(data, (Failed("broken", timed_out=ask.timed_out),))


def _note(ask: Ask, event: bytes, answer: Answer) -> None:
    """Write down what an event tells, right before it is told."""
    name = event.partition(b"\n")[0].removeprefix(b"event: ").decode()
    if name in {"message_start", "response.completed"}:
        ask.usage = _measured(answer.usage)
    if answer.refused and name in {"message_delta", "response.content_part.added"}:
        ask.refused = True
    if name in {"message_stop", "response.completed"}:
        ask.finished = True


def _error_event(protocol: Protocol, usage: Usage) -> bytes:
    """Return an error in the stream; in Responses it comes with the usage."""
    if protocol is Protocol.MESSAGES:
        return frame("error", encode({"type": "error", "error": {"type": "api_error", "message": CANARY}}))
    details = {} if usage.cached_read is None else {"input_tokens_details": {"cached_tokens": usage.cached_read}}
    counts = None if usage.input_total is None else {"input_tokens": usage.input_total, **details}
    error = {"code": "server_error", "message": CANARY}
    return frame(
        "response.failed",
        encode({"type": "response.failed", "response": {"status": "failed", "error": error, "usage": counts}}),
    )


def _piece(event: bytes, reader: Reader, more: tuple[Seen, ...]) -> Piece:
    whole, events = SseReader().feed(event)
    return Piece(whole, (*more, *(seen for item in events for seen in reader.read(item))))


def _chosen(weights: Weights, dice: Random) -> Fault:
    return dice.choices(list(weights), list(weights.values()))[0]
