"""The same client and chats for programs without an event loop: each client has a thread of its own that runs one.

Ctrl-C while a call waits ends what it waited for, as a caller's cancellation, and the chat can be used afterwards.
"""

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from cachegate.sdk.chat import AsyncChat
from cachegate.sdk.client import BASE_URL, AsyncClient
from cachegate.sdk.conversation import SUMMARY_REQUEST, Input, Json
from cachegate.sdk.errors import Closed
from cachegate.sdk.events import Answer, Compacted, Event, Usage
from cachegate.sdk.hosted_chat import AsyncHostedChat
from cachegate.sdk.http import CONNECT_S, IDLE_S
from cachegate.sdk.threads import Thread
from cachegate.sdk.tools import Tool

END_S = 10.0
"""Seconds for something cancelled to end before nobody waits for it any more."""
_CLOSED = "This client was closed. Open a new one."

T = TypeVar("T")
Chatting = TypeVar("Chatting", bound=AsyncChat | AsyncHostedChat)


class LoopThread:
    """An event loop in a thread of its own, until it is closed."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cachegate-sdk", daemon=True)
        self._thread.start()
        self._closing = threading.Lock()
        self.closed = False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something and return what it returns. Raises what it raises, and Closed."""
        if self.closed:
            work.close()
            raise Closed(_CLOSED)
        running = _Running(work)
        try:
            self._loop.call_soon_threadsafe(running.begin)
            return running.outcome.result()
        except concurrent.futures.CancelledError:
            raise Closed(_CLOSED) from None
        except KeyboardInterrupt:
            self._loop.call_soon_threadsafe(running.cancel)
            running.ended.wait(END_S)
            raise

    def iterate(self, events: AsyncGenerator[T, None]) -> Iterator[T]:
        """Iterate from here; leaving early closes the generator there."""
        try:
            while True:
                found = self.run(_next(events))
                if not found:
                    return
                yield found[0]
        finally:
            with contextlib.suppress(Closed):
                self.run(events.aclose())

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        """End whatever runs, run `last`, and end the thread; closing twice changes nothing."""
        with self._closing:
            if self.closed:
                last.close()
                return
            self.closed = True
        asyncio.run_coroutine_threadsafe(_wind_up(last), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _Running(Generic[T]):
    """Something that runs in the loop's thread, known to the waiting one before it begins: Ctrl-C comes at any time."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self.outcome: concurrent.futures.Future[T] = concurrent.futures.Future()
        self.ended = threading.Event()
        self._work = work
        self._task: asyncio.Task[T] | None = None

    def begin(self) -> None:
        """Begin, in the loop's thread."""
        self._task = asyncio.ensure_future(self._work)
        self._task.add_done_callback(self._end)

    def cancel(self) -> None:
        """End early, in the loop's thread; what did not begin will not."""
        if self._task is None:
            self._work.close()
            self.ended.set()
        else:
            self._task.cancel()

    def _end(self, task: asyncio.Task[T]) -> None:
        self.ended.set()
        if task.cancelled():
            self.outcome.cancel()
        elif (error := task.exception()) is not None:
            self.outcome.set_exception(error)
        else:
            self.outcome.set_result(task.result())


async def _next(events: AsyncGenerator[T, None]) -> tuple[T, ...]:
    """Return the next event alone, or nothing at the end."""
    try:
        return (await anext(events),)
    except StopAsyncIteration:
        return ()


async def _wind_up(last: Coroutine[Any, Any, None]) -> None:
    loop = asyncio.get_running_loop()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=END_S)
    await last
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()


class _Chat(Generic[Chatting]):
    """What both kinds of chats have."""

    def __init__(self, loop: LoopThread, chat: Chatting) -> None:
        self._loop = loop
        self._chat = chat

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self.model}>"

    @property
    def id(self) -> str:
        """See `AsyncChat.id` and `AsyncHostedChat.id`; so in the others."""
        return self._chat.id

    @property
    def model(self) -> str:
        """See `AsyncChat.model`."""
        return self._chat.model

    @property
    def usage(self) -> Usage:
        """See `AsyncChat.usage`."""
        return self._chat.usage

    @property
    def context_full(self) -> bool:
        """See `AsyncChat.context_full`."""
        return self._chat.context_full

    @property
    def history(self) -> tuple[Json, ...]:
        """See `AsyncChat.history`."""
        return self._chat.history

    def send(self, said: Input) -> Answer:
        """See `AsyncChat.send`."""
        return self._loop.run(self._chat.send(said))

    def stream(self, said: Input) -> Iterator[Event]:
        """See `AsyncChat.stream`."""
        return self._loop.iterate(self._chat.stream(said))

    def interrupt(self) -> bool:
        """See `AsyncChat.interrupt`: meant for another thread than the one that waits."""
        return not self._loop.closed and self._chat.interrupt()


class Chat(_Chat[AsyncChat]):
    """See `AsyncChat`."""

    def compact(self, request: str = SUMMARY_REQUEST) -> Compacted:
        """See `AsyncChat.compact`."""
        return self._loop.run(self._chat.compact(request))


class HostedChat(_Chat[AsyncHostedChat]):
    """See `AsyncHostedChat`."""

    @property
    def cursor(self) -> str | None:
        """See `AsyncHostedChat.cursor`."""
        return self._chat.cursor

    def follow(self) -> Iterator[Event]:
        """See `AsyncHostedChat.follow`."""
        return self._loop.iterate(self._chat.follow())

    def steer(self, said: Input) -> None:
        """See `AsyncHostedChat.steer`."""
        self._loop.run(self._chat.steer(said))

    def compact(self) -> Compacted:
        """See `AsyncHostedChat.compact`."""
        return self._loop.run(self._chat.compact())


class Client:
    """See `AsyncClient`. Close it when done, or use it in `with`."""

    def __init__(
        self,
        base_url: str = BASE_URL,
        *,
        key: str | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        connect_s: float = CONNECT_S,
        idle_s: float = IDLE_S,
    ) -> None:
        """See `AsyncClient`."""
        self._client = AsyncClient(
            base_url, key=key, api_key=api_key, headers=headers, connect_s=connect_s, idle_s=idle_s
        )
        self._loop = LoopThread()

    def __repr__(self) -> str:
        return repr(self._client).replace("Async", "", 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection and end the thread; calls that wait raise Closed."""
        self._loop.close(self._client.close())

    def chat(
        self,
        model: str,
        *,
        instructions: str | None = None,
        tools: Sequence[Tool] = (),
        effort: str | None = None,
        max_output_tokens: int | None = None,
        id: str | None = None,  # noqa: A002 -- as in AsyncClient
    ) -> Chat:
        """See `AsyncClient.chat`."""
        chat = self._client.chat(
            model, instructions=instructions, tools=tools, effort=effort, max_output_tokens=max_output_tokens, id=id
        )
        return Chat(self._loop, chat)

    def hosted_chat(
        self,
        model: str,
        *,
        instructions: str | None = None,
        tools: Sequence[Tool] = (),
        effort: str | None = None,
        max_output_tokens: int | None = None,
        name: str | None = None,
    ) -> HostedChat:
        """See `AsyncClient.hosted_chat`."""
        beginning = self._client.hosted_chat(
            model,
            instructions=instructions,
            tools=tools,
            effort=effort,
            max_output_tokens=max_output_tokens,
            name=name,
        )
        return HostedChat(self._loop, self._loop.run(beginning))

    def resume(self, thread_id: str, *, cursor: str | None = None, tools: Sequence[Tool] = ()) -> HostedChat:
        """See `AsyncClient.resume`."""
        return HostedChat(self._loop, self._loop.run(self._client.resume(thread_id, cursor=cursor, tools=tools)))

    def threads(self) -> tuple[Thread, ...]:
        """See `AsyncClient.threads`."""
        return self._loop.run(self._client.threads())

    def delete(self, thread_id: str) -> None:
        """See `AsyncClient.delete`."""
        self._loop.run(self._client.delete(thread_id))
