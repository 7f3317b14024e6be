"""The way in: a client for one gateway, and chats made by it."""

import uuid
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from cachegate.sdk.chat import AsyncChat
from cachegate.sdk.control import Control
from cachegate.sdk.conversation import Setup
from cachegate.sdk.hosted_chat import AsyncHostedChat, declared
from cachegate.sdk.http import CONNECT_S, IDLE_S, Http, address
from cachegate.sdk.threads import Thread, thread_of
from cachegate.sdk.tools import Tool, checked

BASE_URL = "http://127.0.0.1:4283"
"""Where a gateway listens unless it is told otherwise."""
ID_CHARS_MAX = 256
"""Longer than any id that somebody makes up, and short enough for a header."""
THREADS_OF_A_PAGE = 100
THREAD_PAGES_MAX = 100
"""More threads than the gateway keeps."""


class AsyncClient:
    """A gateway and who asks it. Close it when done, or use it in `async with`."""

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
        """`key` is the gateway's, `api_key` the provider's; neither is ever shown.

        `connect_s` and `idle_s` are seconds: to connect, and of silence before an answer is given up. Raises ValueError
        for an address that is no http or https URL.
        """
        self._gateway = address(base_url, key=key, api_key=api_key, headers=headers, connect_s=connect_s, idle_s=idle_s)
        self._http = Http(self._gateway)
        self._control = Control(self._http)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._gateway}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection. Chats of this client raise Closed from now on."""
        await self._control.close()
        await self._http.close()

    def chat(
        self,
        model: str,
        *,
        instructions: str | None = None,
        tools: Sequence[Tool] = (),
        effort: str | None = None,
        max_output_tokens: int | None = None,
        id: str | None = None,  # noqa: A002 -- it is the chat's id, and nobody needs the built-in here
    ) -> AsyncChat:
        """Begin a chat whose history lives in this program.

        `id` names it to the gateway and to the provider's cache; without one it gets its own. Raises ValueError for an
        id that no header can hold, or tools of one name.
        """
        return AsyncChat(self._http, Setup(model, chat_id(id), instructions, checked(tools), effort, max_output_tokens))

    async def hosted_chat(
        self,
        model: str,
        *,
        instructions: str | None = None,
        tools: Sequence[Tool] = (),
        effort: str | None = None,
        max_output_tokens: int | None = None,
        name: str | None = None,
    ) -> AsyncHostedChat:
        """Begin a chat whose history and turns live in the gateway; `name` is shown in lists. Raises as `send` does."""
        own = checked(tools)
        started = await self._control.call(
            "thread/start",
            model=model,
            instructions=instructions,
            dynamicTools=declared(own),
            effort=effort,
            maxOutputTokens=max_output_tokens,
            name=name,
        )
        return AsyncHostedChat(self._control, started["thread"], own)

    async def resume(self, thread_id: str, *, cursor: str | None = None, tools: Sequence[Tool] = ()) -> AsyncHostedChat:
        """Return a hosted chat that was begun before, also by another program.

        With the `cursor` of the chat that was listened to last, `follow` tells what happened since then. `tools`
        replace those that the chat had. Raises ProviderError when there is no such thread.
        """
        chat = AsyncHostedChat(self._control, {"id": thread_id}, checked(tools), cursor)
        await chat.attach()
        return chat

    async def threads(self) -> tuple[Thread, ...]:
        """Return the hosted chats of whoever asks, newest first."""
        found: list[Thread] = []
        cursor: str | None = None
        for _ in range(THREAD_PAGES_MAX):
            page = await self._control.call("thread/list", cursor=cursor, limit=THREADS_OF_A_PAGE)
            found += [thread_of(thread) for thread in page.get("data") or ()]
            cursor = page.get("nextCursor")
            if cursor is None:
                break
        return tuple(found)

    async def delete(self, thread_id: str) -> None:
        """Forget a hosted chat; a turn of it is interrupted. Raises ProviderError when there is no such thread."""
        await self._control.call("thread/delete", threadId=thread_id)


def chat_id(given: str | None) -> str:
    """Return a chat's id, or a new one. Raises ValueError for one that no header can hold."""
    if given is None:
        return f"chat_{uuid.uuid4().hex}"
    if not 0 < len(given) <= ID_CHARS_MAX or not given.isascii() or not given.isprintable() or given != given.strip():
        raise ValueError(f"id is {given[:80]!r}. Give 1 to {ID_CHARS_MAX} printable ASCII characters.")
    return given
