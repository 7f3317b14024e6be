"""An embedded provider: no account, no network, and a strict simulated prompt cache.

The name of the model says how it behaves, in words joined by `+`, for example `synthetic/cold+slow`:

    cache        reads what an earlier request left in the simulated cache (the honest one)
    cold         reads nothing from the cache, ever
    warm         reads everything but the last block
    unreported   says nothing about the cache
    refusal      refuses to answer
    slow         pauses between events
    hang         begins its answer and never ends it
    cut          ends its stream without the terminal event
    error, 429 ... 599    answers with that error status (529 for `error`)

A request for a compaction is answered with a summary.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from blake3 import blake3

from cachegate.errors import BadInput, ErrorKind
from cachegate.guard.usage import Usage
from cachegate.providers.base import Call, Head, Piece
from cachegate.wire.answer import Answer
from cachegate.wire.blocks import canonical_blocks
from cachegate.wire.facts import InferenceRequest, Operation, Protocol, RequestClass
from cachegate.wire.protocols import DIALECTS, Reader
from cachegate.wire.seen import Failed
from cachegate.wire.sse import SseReader

WORDS = ("cache", "cold", "warm", "unreported", "refusal", "slow", "hang", "cut", "error")
BYTES_PER_TOKEN = 4
_ENTRIES_MAX = 65_536
_LISTED = ("cache", "cold", "warm", "unreported", "refusal", "slow", "error")
_SSE = (("content-type", "text/event-stream"), ("cache-control", "no-cache"))
_JSON = (("content-type", "application/json"),)
_FIRST_ERROR, _LAST_ERROR, _OVERLOADED = 400, 599, 529


@dataclass(frozen=True, slots=True)
class SyntheticSettings:
    """How the simulated cache behaves."""

    minimum_tokens: int = 1_024
    """A shorter prefix is not cached."""
    lifetime_s: float = 300.0
    """Seconds that a prefix lives after it was last read."""
    pace_s: float = 0.5
    """Pause of a `slow` model between two events."""


class SyntheticCache:
    """Which prefixes are cached, per model. A prefix is the chained digest of the blocks it is made of."""

    def __init__(self, settings: SyntheticSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._expiry: dict[bytes, float] = {}

    def read(self, model: str, blocks: list[bytes]) -> tuple[int, int]:
        """Return the tokens of the longest living prefix and of the whole prompt, and cache every prefix of it."""
        now = self._clock()
        link, size, hit = model.encode(), 0, 0
        links: list[tuple[bytes, int]] = []
        for block in blocks:
            link, size = blake3(link + block).digest(), size + len(block)
            links.append((link, tokens(size)))
        for at, total in links:
            if self._expiry.get(at, 0.0) > now:
                hit = total
        for at, total in links:
            if total >= self._settings.minimum_tokens:
                self._expiry.pop(at, None)
                self._expiry[at] = now + self._settings.lifetime_s
        while len(self._expiry) > _ENTRIES_MAX:
            del self._expiry[next(iter(self._expiry))]
        return hit, tokens(size)


class SyntheticProvider:
    """See the module's first lines."""

    def __init__(self, settings: SyntheticSettings = SyntheticSettings()) -> None:
        self._settings = settings
        self._cache = SyntheticCache(settings)

    def speaks(self, protocol: Protocol, operation: Operation) -> bool:
        """Return True: it speaks whatever the gateway does."""
        return protocol in DIALECTS and operation in Operation

    def models(self) -> tuple[str, ...]:
        """Return the behaviours worth trying."""
        return _LISTED

    async def stream(self, call: Call) -> AsyncGenerator[Head | Piece, None]:
        """See `Provider.stream`."""
        request, words = call.request, _words(call.model)
        dialect = DIALECTS[request.protocol]
        reader = dialect.reader()
        call.on_sent()
        blocks = canonical_blocks(request)
        if request.operation is Operation.COUNT_TOKENS:
            yield Head(200, _JSON)
            yield Piece(dialect.writer.count(tokens(sum(map(len, blocks)))))
            return
        if status := _error_status(words):
            body = dialect.error_body(ErrorKind.UNAVAILABLE, f"Synthetic error {status}.", "req_synthetic")
            yield Head(status, _JSON)
            yield Piece(body, reader.read_body(status, body))
            return
        usage = self._usage(call.model, words, blocks)
        answer = _answer(call.model, _deltas(request, words, usage), usage, refused="refusal" in words)
        if not request.facts.stream:
            body = dialect.writer.whole(answer)
            await self._pause(words)
            yield Head(200, (*_JSON, ("content-length", str(len(body)))))
            yield Piece(body, reader.read_body(200, body))
            return
        yield Head(200, _SSE, reader.terminal_error)
        for event in _cut(dialect.writer.stream(answer), words):
            await self._pause(words)
            yield _piece(event, reader)
        if "hang" in words:
            await asyncio.Event().wait()
        if not reader.terminal:
            yield Piece(reader.terminal_error(ErrorKind.UPSTREAM, "Synthetic cut."), (Failed("cut"),))

    async def close(self) -> None:
        """Nothing to release."""

    async def _pause(self, words: frozenset[str]) -> None:
        await asyncio.sleep(self._settings.pace_s if "slow" in words else 0)

    def _usage(self, model: str, words: frozenset[str], blocks: list[bytes]) -> Usage:
        hit, total = self._cache.read(model, blocks)
        if "unreported" in words:
            return Usage(input_total=total)
        if "cold" in words:
            hit = 0
        if "warm" in words:
            hit = total - tokens(len(blocks[-1])) if blocks else 0
        return Usage(total, hit, total - hit)


def tokens(size_bytes: int) -> int:
    """Return what a text of this size counts as: a fixed rate, so that anybody can predict it."""
    return -(-size_bytes // BYTES_PER_TOKEN)


def _words(model: str) -> frozenset[str]:
    words = frozenset(model.split("+"))
    unknown = sorted(word for word in words if word not in WORDS and not _is_status(word))
    if unknown:
        raise BadInput(
            f"model: synthetic/{model} has the unknown word {unknown[0]!r}. Join any of {', '.join(WORDS)} "
            "or an error status with '+', for example synthetic/cold+slow.",
            ErrorKind.NOT_FOUND,
        )
    return words


def _is_status(word: str) -> bool:
    return word.isascii() and word.isdigit() and _FIRST_ERROR <= int(word) <= _LAST_ERROR


def _error_status(words: frozenset[str]) -> int | None:
    numbers = [int(word) for word in words if _is_status(word)]
    return numbers[0] if numbers else _OVERLOADED if "error" in words else None


def _deltas(request: InferenceRequest, words: frozenset[str], usage: Usage) -> tuple[str, ...]:
    if "refusal" in words:
        return ("I ", "can't ", "help ", "with that.")
    if request.facts.request_class is RequestClass.COMPACTION:
        summary = ("This is ", "a synthetic summary.")
        # Claude Code asks for this element, and asks again where it is missing: one compaction would be two calls.
        return ("<summary>", *summary, "</summary>") if b"<summary>" in request.body else summary
    read = "not reported" if usage.cached_read is None else f"{usage.cached_read:,}"
    return ("This is ", "a synthetic answer. ", f"Input tokens: {usage.input_total or 0:,}, ", f"cached: {read}.")


def _answer(model: str, deltas: tuple[str, ...], usage: Usage, *, refused: bool) -> Answer:
    return Answer(uuid.uuid4().hex, model, int(time.time()), deltas, usage, len(deltas), refused)


def _cut(events: list[bytes], words: frozenset[str]) -> list[bytes]:
    """Leave out the end of a stream that is to hang or to be cut."""
    return events[: len(events) // 2] if words & {"hang", "cut"} else events


def _piece(event: bytes, reader: Reader) -> Piece:
    whole, events = SseReader().feed(event)
    return Piece(whole, tuple(seen for item in events for seen in reader.read(item)))
