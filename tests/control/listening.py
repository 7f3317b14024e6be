"""A client without a socket: it keeps the frames it is told."""

import asyncio
import json
from typing import Any


class Ear:
    """Implements `Listener`."""

    def __init__(self) -> None:
        self.frames: list[dict[str, Any]] = []
        self._told = asyncio.Event()

    def tell(self, frame: bytes) -> None:
        self.frames.append(json.loads(frame))
        self._told.set()

    async def until(self, method: str) -> None:
        """Wait until it was told this."""
        async with asyncio.timeout(20):
            while method not in self.methods:
                self._told.clear()
                await self._told.wait()

    @property
    def methods(self) -> list[str]:
        return [frame["method"] for frame in self.frames if "method" in frame]
