"""GitHub Copilot as a provider: requests of any protocol, answered by a live session of Copilot's runtime."""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field, replace

from cachegate.providers.base import Call, Head, Piece
from cachegate.providers.copilot.conversation import Conversation
from cachegate.providers.copilot.native import Runtime
from cachegate.providers.estimates import estimated
from cachegate.providers.session_answer import Patience, SessionAnswer
from cachegate.providers.session_pool import Pool, key_of, window_of
from cachegate.wire.codecs import CODECS
from cachegate.wire.copilot.event_reader import TurnReader
from cachegate.wire.copilot.setup import ask, tool_names
from cachegate.wire.facts import Operation, Protocol
from cachegate.wire.hub import Target


@dataclass(frozen=True, slots=True)
class CopilotSettings:
    """How sessions are kept."""

    sessions_max: int = 16
    idle_s: float = 1_800.0
    """A session that nobody used for so long ends; the next request rebuilds it."""
    patience: Patience = field(default_factory=Patience)
    models: tuple[str, ...] = ()
    """Names to list."""


class CopilotProvider:
    """See the module's first lines."""

    def __init__(
        self, runtime: Runtime, settings: CopilotSettings, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._runtime = runtime
        self._settings = settings
        self._pool: Pool[Conversation] = Pool(self._conversation, settings.sessions_max, settings.idle_s, now_s)

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
        asked, steps = ask(parsed, call.model, names)
        setup = replace(asked, window=window_of(call))
        slot = await self._pool.claim(key_of(call))
        conversation = slot.conversation
        try:
            turn, reseed = await conversation.begin(setup, steps, TurnReader(names, call.model), call.on_sent)
            answer = SessionAnswer(
                call, codec, parsed, Target(call.model, call.binding), turn.heard.get, conversation.finish,
                lambda: turn.retry_after, self._settings.patience, slot.told(reseed),
            )  # fmt: skip
            async for part in answer.stream():
                yield part
        finally:
            await asyncio.shield(self._pool.release(slot))

    async def close(self) -> None:
        """See `Provider.close`."""
        await self._pool.close()
        await self._runtime.close()

    def _conversation(self) -> Conversation:
        return Conversation(self._runtime, lambda: str(uuid.uuid4()))
