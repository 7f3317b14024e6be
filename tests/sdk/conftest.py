"""A client of the running gateway."""

from collections.abc import AsyncIterator

import pytest

from cachegate.sdk import AsyncClient
from running_gateway import RunningGateway


@pytest.fixture
async def client(gateway: RunningGateway) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(gateway.url) as opened:
        yield opened
