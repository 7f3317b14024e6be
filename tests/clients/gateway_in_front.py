"""A gateway between a client and the scripted upstream."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from clients.cold_upstream import ColdUpstream
from clients.provider_replies import JsonObject
from clients.tool_upstream import KEY, ToolUpstream
from gateway_program import gateway_program

_CONFIG = """\
listen: 127.0.0.1:0
providers:
  anthropic: {{kind: anthropic, baseUrl: "{url}"}}
  openai: {{kind: openai, baseUrl: "{url}/v1"}}
"""

_TRANSLATING = """\
listen: 127.0.0.1:0
providers:
  elsewhere: {{kind: {kind}, baseUrl: "{base_url}", apiKey: "{key}"}}
models: {{"*": elsewhere}}
"""


@asynccontextmanager
async def gateway_before(upstream: ColdUpstream, tmp_path: Path) -> AsyncIterator[str]:
    """Run a gateway whose only providers are this upstream, and yield its URL."""
    async with gateway_program(_CONFIG.format(url=upstream.url), tmp_path) as gateway:
        yield gateway.url


@asynccontextmanager
async def gateway_translating(upstream: ToolUpstream, kind: str, tmp_path: Path) -> AsyncIterator[str]:
    """Run a gateway that asks this upstream for every model, as a provider of this kind, and yield its URL."""
    base_url = upstream.url if kind == "anthropic" else f"{upstream.url}/v1"
    async with gateway_program(_TRANSLATING.format(kind=kind, base_url=base_url, key=KEY), tmp_path) as gateway:
        yield gateway.url


async def recent_records(gateway_url: str) -> list[JsonObject]:
    """Return the gateway's diagnostics, oldest first."""
    async with aiohttp.ClientSession() as http, http.get(f"{gateway_url}/diagnostics/recent") as response:
        told = await response.json()
    records: list[JsonObject] = told["records"]
    return records[::-1]
