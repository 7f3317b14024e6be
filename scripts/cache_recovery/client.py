"""The seam to the clients: a chat that a person could have, and the ways in which a client can hold one."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from pathlib import Path
from typing import Protocol as Interface

from cache_recovery.steps import Heard

MODEL = "gpt-5.5"
"""A name that the gateway of a run maps to its embedded provider."""


class Way(StrEnum):
    """How a chat reaches the gateway."""

    UNSTREAMED = "unstreamed"
    STREAMED = "streamed"
    HOSTED = "over the control socket"


class Chat(Interface):
    """One chat in a running client. Whatever the client says is told, and never raised."""

    async def say(self, text: str) -> Heard:
        """Send a message of the person's, and wait for the end of the turn."""

    async def compact(self) -> Heard:
        """Ask for a compaction, as a person does."""


Open = Callable[[str, Path], AbstractAsyncContextManager[Chat]]
"""Runs a client with a chat; it gets the gateway's URL and a folder of its own that does not exist yet."""

Ways = Mapping[Way, Open]
Opened = AsyncIterator[Chat]
