"""A host without a server: the embedded provider behind it, sessions without sockets."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from cachegate.assembly import assemble, dismantle
from cachegate.config import Config
from cachegate.control.history import History
from cachegate.control.host import Host, HostLimits
from cachegate.control.session import Session
from cachegate.observe.record import Record
from control.listening import Ear


@dataclass
class Life:
    """Implements `turn.Life`."""

    stopping: bool = False
    cutting: bool = False
    running: set["asyncio.Task[object]"] = field(default_factory=set)

    async def settled(self) -> None:
        """Wait until no turn runs."""
        while self.running:
            await asyncio.wait(set(self.running), timeout=20)


class Visitor(Ear):
    """A session and what it was told."""

    def __init__(self, host: Host, tenant: str = "t") -> None:
        super().__init__()
        self.session = Session(host, tenant, (), self, {"messageBytesMax": 1})
        self.tenant = tenant
        self.asked = 0

    async def frame(self, frame: Any) -> None:
        """Send a frame as it is."""
        await self.session.take(frame if isinstance(frame, str) else json.dumps(frame))

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Return the whole answer."""
        self.asked += 1
        await self.frame({"id": self.asked, "method": method, "params": params})
        answers = [each for each in self.frames if "method" not in each and each["id"] == self.asked]
        assert len(answers) == 1
        return answers[0]


@dataclass
class Hosting:
    """A host and what it stands on."""

    host: Host
    life: Life
    records: list[Record]

    async def visitor(self, tenant: str = "t") -> Visitor:
        """Return an initialized session."""
        visitor = Visitor(self.host, tenant)
        await visitor.ask("initialize", clientInfo={"name": "x"})
        return visitor


@asynccontextmanager
async def hosting(history: History | None = None, **limits: Any) -> AsyncIterator[Hosting]:
    """Open a host with the embedded provider."""
    config = Config.model_validate({"providers": {"synthetic": {"kind": "synthetic", "paceSeconds": 0}}})
    records: list[Record] = []
    gateway, life = assemble(config, (records.append,)), Life()
    given = {"threads_max": 64, "tool_s": 60, "rounds_max": 9, "body_bytes_max": 1 << 20, "in_flight_max": 99, **limits}
    host = Host(gateway, life, HostLimits(**given), history)
    try:
        yield Hosting(host, life, records)
    finally:
        life.cutting = True
        for task in tuple(life.running):
            task.cancel()
        await life.settled()
        await host.close()
        await dismantle(gateway)
