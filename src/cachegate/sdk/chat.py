"""A chat whose history lives here: each turn is a request to `/v1/responses`, and one more for each round of tools.

What a turn does to the history is decided by how it ends. Answered: everything joins. Failed: what was before, so that
the same again is the same request, and the tool rounds that were completed. Interrupted, or left by its caller: also
the user's message and what the model had said.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, aclosing
from types import MappingProxyType

from cachegate.sdk import tools
from cachegate.sdk.answer_stream import AnswerReader, Heard, Told
from cachegate.sdk.conversation import SUMMARY_REQUEST, Conversation, Input, Json, Setup, begun
from cachegate.sdk.errors import (
    CacheStop,
    Closed,
    ContextFull,
    Interrupted,
    ProviderError,
    ToolRoundsExceeded,
    Unreachable,
)
from cachegate.sdk.events import NO_TOKENS, Answer, Compacted, Completed, Event, TextDelta, Usage, UsageUpdated
from cachegate.sdk.http import Http, Received
from cachegate.sdk.turns import Interruption, Turns, answer_of

_PATH = "/v1/responses"
_THREAD_HEADER = "x-cachegate-thread-id"
_COMPACTION = {"x-cachegate-request-class": "compaction"}


class AsyncChat:
    """One conversation; made by `AsyncClient.chat`."""

    def __init__(self, http: Http, setup: Setup) -> None:
        self._http = http
        self._setup = setup
        self._conversation = begun(setup)
        self._turns = Turns()
        self._usage = Usage()
        self._context_full = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self.model}>"

    @property
    def id(self) -> str:
        """The id under which the gateway keeps this chat's budget, and the provider its cache."""
        return self._setup.chat_id

    @property
    def model(self) -> str:
        """The model that answers."""
        return self._setup.model

    @property
    def usage(self) -> Usage:
        """What the chat took so far."""
        return self._usage

    @property
    def context_full(self) -> bool:
        """Whether the newest request no longer fitted. An answer or a compaction clears it; no cache stop sets it."""
        return self._context_full

    @property
    def history(self) -> tuple[Json, ...]:
        """The items of the conversation in the Responses protocol's form, oldest first; copies."""
        return self._conversation.history()

    async def send(self, said: Input) -> Answer:
        """Say something, run the tools that the model calls, and return its answer.

        An empty sequence says nothing more: it goes on where a failed turn left off. Raises what errors.py shows, and
        ValueError when there is nothing to answer. Nothing is ever sent twice.
        """
        return await answer_of(self._turn(said, stream=False))

    def stream(self, said: Input) -> AsyncGenerator[Event, None]:
        """Do the same as `send`, and tell everything as it happens; the last event is Completed.

        A caller that stops listening interrupts the turn: leave with `contextlib.aclosing` to have that happen at once.
        """
        return self._turn(said, stream=True)

    def interrupt(self) -> bool:
        """End the running turn, from any task or thread: its connection is closed at once, and it raises Interrupted.

        Return whether a turn was running.
        """
        return self._turns.interrupt()

    async def compact(self, request: str = SUMMARY_REQUEST) -> Compacted:
        """Replace the conversation by a summary that the model writes. `request` asks for it.

        It is one request with a budget of its own, so a stopped chat can be compacted. When it fails, the history is
        what it was. Raises as `send` does, and ProviderError when the answer is no complete summary.
        """
        with self._turns.begin() as interruption:
            if not self._conversation.items:
                raise ValueError("There is nothing to compact: this conversation has not begun.")
            asking = self._ask(self._conversation.with_user(request), interruption, headers=_COMPACTION)
            async with aclosing(asking) as telling:
                heard = [told async for told in telling if isinstance(told, Heard)][-1]
            if heard.refused or heard.incomplete or heard.calls or not heard.text.strip():
                why = "was refused" if heard.refused else f"brought no whole summary ({heard.incomplete or 'no text'})"
                raise ProviderError(f"The compaction {why}. The history is as it was.", code="no_summary")
            self._conversation = self._conversation.summarised(heard.text)
            self._context_full = False
            return Compacted(heard.text, heard.tokens)

    async def _turn(self, said: Input, *, stream: bool) -> AsyncGenerator[Event, None]:
        """Run one turn; see the module's first lines for what becomes of the history."""
        with self._turns.begin() as interruption:
            now, said_so_far, tokens = self._conversation.with_user(said), "", NO_TOKENS
            try:
                for _ in range(tools.ROUNDS_MAX):
                    async with aclosing(self._ask(now, interruption, stream=stream)) as telling:
                        async for told in telling:
                            if isinstance(told, Heard):
                                heard = told
                                break
                            said_so_far += told.text if isinstance(told, TextDelta) else ""
                            yield told
                    tokens += heard.tokens
                    after = now.with_items(heard.items)
                    if not heard.calls:
                        self._conversation, now, said_so_far = after, after, ""
                        self._context_full = False
                        yield UsageUpdated(self._usage)
                        yield Completed(Answer(heard.text, tokens, heard.incomplete, heard.refused))
                        return
                    yield UsageUpdated(self._usage)
                    for call in heard.calls:
                        yield call
                        with interruption:
                            answered = await tools.answered(self._setup.tools, call)
                        after = after.with_output(call.call_id, answered.output)
                        yield answered
                    self._conversation, now, said_so_far = after, after, ""
                raise ToolRoundsExceeded(f"The model called tools in {tools.ROUNDS_MAX} rounds of one turn.")
            except Interrupted:
                self._conversation = now.with_partial(said_so_far)
                raise Interrupted(said_so_far) from None
            except (asyncio.CancelledError, GeneratorExit):
                self._conversation = now.with_partial(said_so_far)
                raise

    async def _ask(
        self,
        conversation: Conversation,
        interruption: Interruption,
        *,
        stream: bool = True,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> AsyncGenerator[Told | Heard, None]:
        """Send one request and tell its answer; the whole of it comes last."""
        body, sent = conversation.body(stream=stream), {_THREAD_HEADER: self.id, **headers}
        reader, processed = AnswerReader(), True
        try:
            async with AsyncExitStack() as stack:
                try:
                    with interruption:
                        received = await stack.enter_async_context(self._http.post(_PATH, body, sent))
                except (Unreachable, Closed, CacheStop, ContextFull, ProviderError):
                    processed = False
                    raise
                interruption.then = received.response.close
                reader.streamed = received.streamed
                piece = await _next(received, interruption)
                while piece:
                    for told in reader.feed(piece):
                        yield told
                    piece = await _next(received, interruption)
            for last in reader.end():
                yield last
        except ContextFull:
            self._context_full = True
            raise
        finally:
            # Of a request whose end was not heard nobody knows what it took.
            if processed:
                self._usage = self._usage.plus(reader.tokens)


async def _next(received: Received, interruption: Interruption) -> bytes:
    with interruption:
        return await received.piece()
