"""A thread in memory: its value, its events and who listens to them."""

import asyncio
from collections.abc import Callable
from typing import Protocol as Interface

from cachegate.control import rpc
from cachegate.control.event_log import EventLog
from cachegate.control.thread import Json, Thread, Turn
from cachegate.control.tool_calls import Listener, ToolDesk
from cachegate.wire.hub import Message


class Running(Interface):
    """A turn under way; `turn.py` has it."""

    steerable: bool

    @property
    def turn(self) -> Turn:
        """The turn as it is now."""

    @property
    def crowded(self) -> bool:
        """Whether too much waits to be taken in."""

    def interrupt(self) -> None:
        """End it."""

    def steer(self, message: Message, content: tuple[Json, ...]) -> None:
        """Go on with more of the user's."""


class HostedThread:
    """Changed by the host and by its one running turn, both in the event loop's own thread."""

    def __init__(self, thread: Thread, tool_s: float, new_id: Callable[[str], str]) -> None:
        self.thread = thread
        self.running: Running | None = None
        self.task: asyncio.Task[None] | None = None
        """Runs it."""
        self.listeners: dict[Listener, None] = {}
        """In the order in which they came."""
        self.tools = ToolDesk(thread.id, tool_s, new_id)
        self.deleted = False
        """It is being deleted: nobody finds it any more."""
        self._log = EventLog(new_id("log"))

    @property
    def idle(self) -> bool:
        """Whether nothing runs and nobody listens."""
        return self.running is None and not self.listeners

    @property
    def cursor(self) -> str:
        """The place of the newest event."""
        return self._log.cursor

    def emit(self, method: str, params: Json) -> None:
        """Tell everybody who listens, and keep it for those who come back."""
        located = {"threadId": self.thread.id, **params, "cursor": self._log.next_cursor}
        frame = rpc.notification(method, located)
        self._log.append(frame)
        for listener in tuple(self.listeners):
            listener.tell(frame)

    def missed(self, cursor: str | None) -> tuple[str, list[bytes]]:
        """Return what a client that was told everything up to `cursor` missed: in a word, and as frames."""
        if cursor is None:
            return "none", []
        frames = self._log.after(cursor)
        if frames is None:
            return "lost", []
        return ("replayed" if frames else "none"), frames

    def leave(self, listener: Listener) -> None:
        """Let a client go; nothing that runs ends with it."""
        self.listeners.pop(listener, None)
        self.tools.leave(listener)

    def shown(self) -> Json:
        """Return the thread as a client is shown it in a list."""
        return self.thread.shown(self.cursor, active=self.running is not None)

    def shown_whole(self) -> Json:
        """Return the thread with its turns."""
        return self.thread.shown_whole(self.cursor, None if self.running is None else self.running.turn)
