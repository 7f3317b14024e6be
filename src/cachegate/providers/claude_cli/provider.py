"""Claude through live `claude` processes, one for each conversation, on a person's own account or key."""

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from enum import StrEnum

from cachegate.errors import BadInput
from cachegate.providers.base import Call, Head, Piece
from cachegate.providers.claude_cli.conversation import Conversation, Settings
from cachegate.providers.claude_cli.discovery import find_program
from cachegate.providers.claude_cli.gate import ANTHROPIC, Gate
from cachegate.providers.claude_cli.home import private_root, remove_root, remove_stale
from cachegate.providers.claude_cli.launch import Account
from cachegate.providers.estimates import estimated
from cachegate.providers.session_answer import Patience, SessionAnswer
from cachegate.providers.session_pool import Key, Pool, Slot, key_of, window_of
from cachegate.wire.claude_cli.prompt import Prompt, prompt_of
from cachegate.wire.claude_cli.turn_reader import TurnReader
from cachegate.wire.codecs import CODECS
from cachegate.wire.facts import Operation, Protocol
from cachegate.wire.hub import Target

LOGGER = logging.getLogger("cachegate")
_THREADS_MAX = 4_096
"""Threads that have been answered once are remembered; the longest unused one is forgotten first."""


class Mode(StrEnum):
    """Whether processes outlive their request."""

    LIVE = "live"
    REPLAY = "replay"
    """Each request has a process of its own, and a transcript."""


class Warmup(StrEnum):
    """Whether a conversation is answered once by a process of its own before it goes live."""

    AUTO = "auto"
    """Unless it is large already."""
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """How long processes live."""

    mode: Mode = Mode.LIVE
    warmup: Warmup = Warmup.AUTO
    large_bytes: int = 262_144
    """A conversation of this size goes live at once under `auto`: a size of transport, no count of tokens."""
    sessions_max: int = 8
    idle_s: float = 900.0
    patience: Patience = field(default_factory=Patience)
    models: tuple[str, ...] = ()
    """Names to list."""


class ClaudeCliProvider:
    """See the module's first lines. `now_s` is a steady clock."""

    def __init__(
        self,
        account: Account,
        program: str | None = None,
        sessions: SessionSettings = SessionSettings(),
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._account = account
        self._program = program
        self._settings: Settings | None = None
        """Once the program has been found and the private folder made, with the first request."""
        self._sessions = sessions
        self._pool: Pool[Conversation] = Pool(self._conversation, sessions.sessions_max, sessions.idle_s, now_s)
        self._answered: dict[Key, None] = {}
        """Threads whose first request has been answered."""
        self._preparing = asyncio.Lock()

    def speaks(self, protocol: Protocol, operation: Operation) -> bool:
        """See `Provider.speaks`."""
        del operation
        return protocol in CODECS

    def models(self) -> tuple[str, ...]:
        """See `Provider.models`."""
        return self._sessions.models

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
        prompt = prompt_of(parsed, call.model, call.binding, window_of(call))
        await self._prepare()
        slot = await self._claim(call, prompt)
        conversation = slot.conversation
        try:
            target = Target(call.model, call.binding, origin=Protocol.MESSAGES)
            exchange, reseed = await conversation.begin(prompt, TurnReader(parsed, target), call.on_sent)
            answer = SessionAnswer(
                call, codec, parsed, target, exchange.heard.get, conversation.finish,
                lambda: exchange.retry_after,
                self._sessions.patience, slot.told(reseed),
            )  # fmt: skip
            async for part in answer.stream():
                yield part
        finally:
            await asyncio.shield(self._pool.release(slot))

    async def close(self) -> None:
        """See `Provider.close`."""
        await self._pool.close()
        if self._settings is not None:
            await self._settings.gate.stop()
            await asyncio.to_thread(remove_root, self._settings.root)

    async def _prepare(self) -> None:
        """Find the program and make a private folder, once. Raises UpstreamError without a usable program."""
        async with self._preparing:
            if self._settings is not None:
                return
            found = await find_program(self._program)
            if found.warning:
                LOGGER.warning("%s", found.warning)
            await asyncio.to_thread(remove_stale, None)
            root = await asyncio.to_thread(private_root, None)
            gate = Gate(self._account.base_url or ANTHROPIC)
            await gate.start()
            self._settings = Settings(found.path, self._account, root, gate)

    async def _claim(self, call: Call, prompt: Prompt) -> Slot[Conversation]:
        """Return the conversation for a request: its thread's live one, or one that ends with its answer."""
        key = self._key(call)
        slot = await self._pool.claim(key)
        try:
            preserved = slot.conversation.must_not_be_replaced_by(prompt)
        except BadInput:
            await self._pool.release(slot, used=False)
            raise
        if not preserved:
            return slot
        await self._pool.release(slot, used=False)
        return await self._pool.claim(None)

    def _key(self, call: Call) -> Key | None:
        """Return under which key the conversation lives; None for one that ends with its answer."""
        key = key_of(call)
        if key is None or self._sessions.mode is Mode.REPLAY:
            return None
        known = key in self._answered or self._pool.has(key)
        self._answered.pop(key, None)
        self._answered[key] = None
        while len(self._answered) > _THREADS_MAX:
            del self._answered[next(iter(self._answered))]
        if known or self._sessions.warmup is Warmup.NEVER:
            return key
        large = call.request.facts.conversation_bytes >= self._sessions.large_bytes
        return key if large and self._sessions.warmup is Warmup.AUTO else None

    def _conversation(self) -> Conversation:
        assert self._settings is not None  # noqa: S101 -- nothing is claimed before it is prepared
        return Conversation(self._settings, lambda: str(uuid.uuid4()))
