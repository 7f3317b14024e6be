"""A gateway between a client and the scripted upstream."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from clients.cold_upstream import ColdUpstream
from gateway_program import gateway_program

_CONFIG = """\
listen: 127.0.0.1:0
providers:
  anthropic: {{kind: anthropic, baseUrl: "{url}"}}
  openai: {{kind: openai, baseUrl: "{url}/v1"}}
"""


@asynccontextmanager
async def gateway_before(upstream: ColdUpstream, tmp_path: Path) -> AsyncIterator[str]:
    """Run a gateway whose only providers are this upstream, and yield its URL."""
    async with gateway_program(_CONFIG.format(url=upstream.url), tmp_path) as gateway:
        yield gateway.url
