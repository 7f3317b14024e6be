"""One gateway with every preset in front of one scripted provider, and what a test needs to play a case on it."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from cachegate.assembly import assemble, dismantle
from cachegate.config import Config
from cachegate.observe.diagnostics import Diagnostics
from cachegate.observe.record import Record
from cachegate.server.app import App
from cachegate.wire.facts import Protocol
from contract.preset_facts import FACTS, KEY
from provider_streams import PATH
from scripted_upstream import Recorded, Script, ScriptedUpstream, Step, chunk, scripted_upstream, stream_head, whole

GATEWAY_KEY = "key-of-this-gateway-0001"
FOREIGN = "of-the-client"
CREDENTIALS = {
    "authorization": f"Bearer {FOREIGN}",
    "x-api-key": FOREIGN,
    "api-key": FOREIGN,
    "x-goog-api-key": FOREIGN,
    "cookie": f"session={FOREIGN}",
    "x-cachegate-key": GATEWAY_KEY,
}
"""All that a client could have at hand, whatever its protocol."""
THREAD = "thread-7f3a00b1"
THREAD_HEADER = {
    Protocol.MESSAGES: "x-claude-code-session-id",
    Protocol.RESPONSES: "thread-id",
    Protocol.CHAT: "x-session-affinity",
}
"""How a client of each protocol names its thread."""


@dataclass(frozen=True, slots=True)
class Heard:
    """An answer as it came down."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Stage:
    """The running parts."""

    upstream: ScriptedUpstream
    url: str
    client: aiohttp.ClientSession
    records: asyncio.Queue[Record]

    async def ask(self, client: Protocol, data: bytes, headers: Mapping[str, str] = CREDENTIALS) -> Heard:
        async with self.open(client, data, headers) as response:
            lower = {name.lower(): value for name, value in response.headers.items()}
            return Heard(response.status, lower, await response.read())

    def open(
        self, client: Protocol, data: bytes, headers: Mapping[str, str] = CREDENTIALS
    ) -> "aiohttp.client._RequestContextManager":
        named = {"content-type": "application/json", **headers}
        return self.client.post(self.url + PATH[client], data=data, headers=named)

    async def record(self) -> Record:
        """The record of the one request that was asked."""
        record = await asyncio.wait_for(self.records.get(), 10)
        assert self.records.empty(), "one record for one request"
        return record

    def plays(self, script: Iterable[bytes | Step]) -> None:
        """Answer the next request so. An iterator may note on its way how far it came."""
        self.upstream.requests.clear()
        self.upstream.answer = lambda _: script  # type: ignore[assignment,return-value]

    def answers(self, streamed: Script, unstreamed: Script) -> None:
        """Answer the next request as it wants to be answered."""
        self.upstream.requests.clear()
        self.upstream.answer = lambda recorded: streamed if decoded(recorded).get("stream") else unstreamed

    @property
    def asked(self) -> Recorded:
        """The one request that went up."""
        (recorded,) = self.upstream.requests
        return recorded


def bound(kind: str, spoken: Protocol | None = None) -> str:
    """Name of the configured provider: as it is, or to be asked in one of its protocols only."""
    return kind if spoken is None else f"{kind}-in-{spoken.value}"


def sent(data: bytes | list[bytes], *headers: str) -> Script:
    """A good answer: a body, or the events of a stream, each in a piece of its own."""
    if isinstance(data, bytes):
        return [whole(200, data, *headers)]
    return [stream_head(*headers), *(chunk(event) for event in data), chunk(b"")]


@asynccontextmanager
async def presets_on_stage(*, keys: bool = True) -> AsyncIterator[Stage]:
    """Assemble a gateway from a configuration that names every kind, whole and for each of its protocols alone."""
    async with scripted_upstream() as upstream:
        providers: dict[str, Any] = {}
        for kind, facts in FACTS.items():
            for spoken in (None, *facts.paths):
                name = bound(kind, spoken)
                asked = {} if spoken is None else {"protocols": [spoken.value]}
                key = {"apiKey": KEY} if keys else {}
                providers[name] = {"kind": kind, "baseUrl": f"{upstream.url}/{name}{facts.base}", **key, **asked}
        config = Config.model_validate(
            {
                "listen": "127.0.0.1:0",
                "providers": providers,
                "clients": [{"name": "tests", "key": GATEWAY_KEY}],
                "cacheGuard": {"enabled": False},
            }
        )
        records: asyncio.Queue[Record] = asyncio.Queue()
        diagnostics = Diagnostics()
        app = App(config, assemble(config, (diagnostics, records.put_nowait), {}), diagnostics)
        host, port = await app.open()
        async with aiohttp.ClientSession(auto_decompress=False) as client:
            try:
                yield Stage(upstream, f"http://{host}:{port}", client, records)
            finally:
                await app.close()
                await dismantle(app.gateway)


def decoded(recorded: Recorded) -> dict[str, Any]:
    """The request as the provider read it."""
    request: dict[str, Any] = json.loads(recorded.body)
    return request
