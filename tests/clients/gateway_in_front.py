"""A gateway between a client and the scripted upstream."""

import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from clients.cold_upstream import ColdUpstream
from clients.provider_replies import JsonObject
from clients.tool_upstream import KEY, Loopback, ToolUpstream
from gateway_program import GatewayProgram, gateway_program

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

_SESSIONS = """\
listen: 127.0.0.1:0
providers:
  copilot:
    kind: copilot
    cliPath: "{program}"
    ownProvider: {{kind: {kind}, baseUrl: "{base_url}", apiKey: "{key}", wireApi: {wire_api}, promptTokensMax: 1000000}}
models: {{"*": copilot}}
"""


@asynccontextmanager
async def gateway_before(upstream: ColdUpstream | Loopback, tmp_path: Path) -> AsyncIterator[str]:
    """Run a gateway whose only providers are this upstream, and yield its URL."""
    async with gateway_program(_CONFIG.format(url=upstream.url), tmp_path) as gateway:
        yield gateway.url


@asynccontextmanager
async def gateway_translating(upstream: ToolUpstream, kind: str, tmp_path: Path) -> AsyncIterator[str]:
    """Run a gateway that asks this upstream for every model, as a provider of this kind, and yield its URL."""
    base_url = upstream.url if kind == "anthropic" else f"{upstream.url}/v1"
    async with gateway_program(_TRANSLATING.format(kind=kind, base_url=base_url, key=KEY), tmp_path) as gateway:
        yield gateway.url


@asynccontextmanager
async def gateway_of_sessions(
    upstream: ToolUpstream, program: Path, path: str, folder: Path
) -> AsyncIterator[GatewayProgram]:
    """Run a gateway that asks Copilot's runtime for every model, which asks this upstream at `path`.

    It serves in the process that is yielded, so that the runtime's parent is known.
    """
    kind, wire_api, base = SESSION_PATHS[path]
    base_url = f"{upstream.url}{base}"
    config = _SESSIONS.format(program=program, kind=kind, base_url=base_url, key=KEY, wire_api=wire_api)
    async with gateway_program(config, folder, "--log-json", "--workers", "0") as gateway:
        yield gateway


async def records_at_the_end(gateway: GatewayProgram) -> list[JsonObject]:
    """Stop a gateway that logs JSON, and return its records. A record comes after its answer; none is missed here."""
    _, _, log = await gateway.stop(signal.SIGTERM)
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == "request" and line["guard"] is not None]


SESSION_PATHS = {
    "/v1/messages": ("anthropic", "null", ""),
    "/v1/responses": ("openai", "responses", "/v1"),
    "/v1/chat/completions": ("openai", "completions", "/v1"),
}
"""How the runtime is told which API to ask: kind, wire API, and what stands in front of the path."""


async def recent_records(gateway_url: str) -> list[JsonObject]:
    """Return the gateway's diagnostics, oldest first."""
    async with aiohttp.ClientSession() as http, http.get(f"{gateway_url}/diagnostics/recent") as response:
        told = await response.json()
    records: list[JsonObject] = told["records"]
    return records[::-1]


_CLAUDE = """\
listen: 127.0.0.1:0
providers:
  claude:
    kind: claude-cli
    program: "{program}"
    {account}
    baseUrl: "{url}"
    claudeSessions: {sessions}
models: {{"*": claude}}
"""
WITH_KEY, WITH_TOKEN = f"apiKey: {KEY}", f"oauthToken: {KEY}"


@asynccontextmanager
async def gateway_of_claude(
    url: str, program: Path, folder: Path, sessions: str = "{warmup: never}", account: str = WITH_KEY
) -> AsyncIterator[GatewayProgram]:
    """Run a gateway that answers with live `claude` processes, which ask the upstream at `url`.

    It serves in the process that is yielded, so that their parent is known.
    """
    config = _CLAUDE.format(program=program, url=url, sessions=sessions, account=account)
    async with gateway_program(config, folder, "--log-json", "--workers", "0") as gateway:
        yield gateway
