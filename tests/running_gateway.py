"""A gateway inside the test's own event loop, with what it decided within reach."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import aiohttp

from cachegate.assembly import assemble, dismantle
from cachegate.config import Config
from cachegate.observe.diagnostics import Diagnostics
from cachegate.observe.record import Record
from cachegate.server.app import App
from cachegate.stores.base import Store
from cachegate.stores.memory import MemoryStore


@dataclass(slots=True)
class RunningGateway:
    """An open gateway, a client for it, and the records it made."""

    app: App
    url: str
    client: aiohttp.ClientSession
    records: list[Record] = field(default_factory=list)

    @property
    def store(self) -> MemoryStore:
        assert isinstance(self.app.gateway.store, MemoryStore)
        return self.app.gateway.store

    @property
    def decisions(self) -> list[tuple[str, str, int]]:
        """(outcome, reason, count) of each guarded request, oldest first."""
        guards = [record.guard for record in self.records if record.guard is not None]
        return [(guard.outcome, guard.reason, guard.count) for guard in guards]


@asynccontextmanager
async def running_gateway(
    config: Config, store: Store | None = None, workers: int = 1
) -> AsyncIterator[RunningGateway]:
    """Open a gateway on a free port and close it again. It shares no directory, so its state is in memory."""
    diagnostics, records = Diagnostics(), list[Record]()
    gateway = assemble(config, (diagnostics, records.append))
    app = App(config, gateway if store is None else replace(gateway, store=store), diagnostics, workers=workers)
    host, port = await app.open()
    async with aiohttp.ClientSession(auto_decompress=False) as client:
        try:
            yield RunningGateway(app, f"http://{host}:{port}", client, records)
        finally:
            await app.close()
            await dismantle(app.gateway)


def config_for(upstream_url: str, **more: object) -> Config:
    """Both big providers at one scripted upstream; `more` holds camelCase keys of the configuration."""
    return Config.model_validate(
        {
            "listen": "127.0.0.1:0",
            "providers": {
                "anthropic": {"kind": "anthropic", "baseUrl": upstream_url},
                "openai": {"kind": "openai", "baseUrl": f"{upstream_url}/v1"},
                "synthetic": {"kind": "synthetic", "paceSeconds": 0},
            },
            **more,
        }
    )
