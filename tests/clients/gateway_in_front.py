"""A gateway between a client and the scripted upstream."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from clients.cold_upstream import ColdUpstream
from clients.gateway_process import start_gateway

_CONFIG = """\
listen: 127.0.0.1:0
providers:
  anthropic: {{kind: anthropic, baseUrl: "{url}"}}
  openai: {{kind: openai, baseUrl: "{url}/v1"}}
"""


@asynccontextmanager
async def gateway_before(upstream: ColdUpstream, tmp_path: Path) -> AsyncIterator[str]:
    """Run a gateway whose only providers are this upstream, and yield its URL.

    It starts and stops beside the event loop: the upstream lives in the loop and must be able to answer meanwhile.
    """
    gateway = await asyncio.to_thread(start_gateway, _CONFIG.format(url=upstream.url), tmp_path)
    try:
        yield gateway.url
    finally:
        await asyncio.to_thread(gateway.stop)
