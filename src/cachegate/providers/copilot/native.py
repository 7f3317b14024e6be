"""The seam between a conversation's life and the runtime that it lives in."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol as Interface

from cachegate.wire.copilot.history import Returned, Said
from cachegate.wire.copilot.setup import Setup
from cachegate.wire.hub import Json
from cachegate.wire.usage_readings import Fields

Listener = Callable[[Fields], None]
"""Takes a session's events, decoded; called in the event loop, and must not wait."""

EXITED: Fields = {"type": "runtime.exited"}
"""Our own event: the runtime is gone. None of its own has this name."""


@dataclass(frozen=True, slots=True)
class Permit:
    """Permission for one model call, and what is to be told of it."""

    on_sent: Callable[[], None]
    """It leaves."""
    on_retry_after: Callable[[str], None]
    """The provider named a time to wait, in its header `retry-after`."""


@dataclass(frozen=True, slots=True)
class Opening:
    """What a session begins with."""

    session_id: str
    setup: Setup
    events: bytes = field(default=b"", repr=False)
    """Its history, as the runtime keeps it; empty for a new conversation."""


class NativeSession(Interface):
    """One conversation inside the runtime."""

    def allow(self, permit: Permit) -> None:
        """Permit one model call. Without a permit none is made."""

    async def alive(self) -> bool:
        """Whether the session can still be gone on with."""

    def give(self, returned: Returned) -> None:
        """Hand a waiting call its result."""

    async def say(self, said: tuple[Said, ...], schema: Json | None, *, steering: bool) -> None:
        """Say what the user said; with nothing to say, let the model go on. `steering` while calls wait."""

    async def set_effort(self, effort: str) -> None:
        """Change how much the model thinks."""

    async def abort(self) -> None:
        """Interrupt the model or the waiting calls. The session's own history is of no use after it."""

    async def close(self) -> tuple[bytes, ...]:
        """End the session; return the events it kept."""


class Runtime(Interface):
    """Where sessions live. All methods raise UpstreamError when it is gone or refuses."""

    async def open(self, opening: Opening, listener: Listener) -> NativeSession:
        """Begin a session; starts the runtime when it does not run."""

    async def close(self) -> None:
        """End the runtime with all its sessions."""
