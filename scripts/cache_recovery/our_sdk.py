"""Our own SDK as a client: the history is in the program, or at the gateway's control socket."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol as Interface

from cache_recovery.client import MODEL, Opened, Way, Ways
from cache_recovery.steps import Heard
from cachegate.sdk import Answer, AsyncClient, CachegateError, Compacted, Completed, ContextFull, Event, Usage


class Talk(Interface):
    """What a chat of the SDK's can do, wherever its history is."""

    @property
    def usage(self) -> Usage:
        """What it took so far."""

    @property
    def context_full(self) -> bool:
        """Whether the newest request no longer fitted."""

    @property
    def history(self) -> tuple[object, ...]:
        """The conversation, oldest first."""

    async def send(self, said: str) -> Answer:
        """Say something and return the answer."""

    def stream(self, said: str) -> AsyncGenerator[Event, None]:
        """Say something and tell everything as it happens."""

    async def compact(self) -> Compacted:
        """Replace the conversation by a summary."""


class SdkChat:
    """A chat of the SDK's."""

    def __init__(self, chat: Talk, *, streamed: bool) -> None:
        self._chat = chat
        self._streamed = streamed

    async def say(self, text: str) -> Heard:
        """See `client.Chat.say`. A history that begins otherwise than before was compacted."""
        begun = self._chat.history[:1]
        try:
            words = await (self._stream(text) if self._streamed else self._send(text))
        except CachegateError as error:
            return self._failed(error)
        return self._heard(words, compactions=int(bool(begun) and begun != self._chat.history[:1]))

    async def compact(self) -> Heard:
        """See `client.Chat.compact`."""
        try:
            return self._heard((await self._chat.compact()).summary, compactions=1)
        except CachegateError as error:
            return self._failed(error)

    async def _send(self, text: str) -> str:
        return (await self._chat.send(text)).text

    async def _stream(self, text: str) -> str:
        events = [event async for event in self._chat.stream(text)]
        assert isinstance(events[-1], Completed), "a stream ends with Completed, or raises"
        return events[-1].answer.text

    def _heard(self, words: str, compactions: int) -> Heard:
        return Heard(
            completed=True,
            words=words,
            context_full=self._chat.context_full,
            compactions=compactions,
            tokens=self._chat.usage.last.input,
        )

    def _failed(self, error: CachegateError) -> Heard:
        full = self._chat.context_full or isinstance(error, ContextFull)
        return Heard(completed=False, words=str(error), context_full=full, tokens=self._chat.usage.last.input)


@asynccontextmanager
async def _unstreamed(url: str, _home: Path) -> Opened:
    async with AsyncClient(url) as client:
        yield SdkChat(client.chat(MODEL), streamed=False)


@asynccontextmanager
async def _streamed(url: str, _home: Path) -> Opened:
    async with AsyncClient(url) as client:
        yield SdkChat(client.chat(MODEL), streamed=True)


@asynccontextmanager
async def _hosted(url: str, _home: Path) -> Opened:
    async with AsyncClient(url) as client:
        try:
            assert _HOST is not None, "this SDK hosts no chats"
            chat = await _HOST(client, MODEL)
        except CachegateError as error:
            raise AssertionError(f"no chat could be begun over the control socket: {error}") from error
        yield SdkChat(chat, streamed=True)


_HOST: Callable[[AsyncClient, str], Awaitable[Talk]] | None = getattr(AsyncClient, "hosted_chat", None)
"""An SDK of an older build has none."""

WAYS: Ways = {
    Way.UNSTREAMED: _unstreamed,
    Way.STREAMED: _streamed,
    **({} if _HOST is None else {Way.HOSTED: _hosted}),
}
