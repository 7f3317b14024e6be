"""A listener that remembers what a process told it."""

import asyncio
from typing import Any

from cachegate.providers.claude_cli.process import EXITED
from cachegate.wire.usage_readings import Fields


class Heard:
    """Everything that a listener was told."""

    def __init__(self) -> None:
        self.all: list[Fields] = []
        self._news: asyncio.Queue[Fields] = asyncio.Queue()

    def __call__(self, fields: Fields) -> None:
        self.all.append(fields)
        self._news.put_nowait(fields)

    async def until(self, kind: str) -> Any:
        """Return the next event of a kind."""
        while (fields := await self._news.get()).get("type") != kind:
            assert fields is not EXITED, f"it ended without a {kind}"
        return fields

    def forget(self) -> None:
        """Hear nothing more of what has come so far."""
        self._news = asyncio.Queue()
