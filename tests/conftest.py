"""Fixtures that every room's tests may use."""

from collections.abc import AsyncIterator

import pytest

from cachegate.wire.facts import Protocol
from running_gateway import RunningGateway, config_for, running_gateway
from scripted_upstream import ScriptedUpstream, scripted_upstream


@pytest.fixture
async def upstream() -> AsyncIterator[ScriptedUpstream]:
    async with scripted_upstream() as running:
        yield running


@pytest.fixture
async def gateway(upstream: ScriptedUpstream) -> AsyncIterator[RunningGateway]:
    async with running_gateway(config_for(upstream.url)) as running:
        yield running


@pytest.fixture(params=list(Protocol), ids=[protocol.value for protocol in Protocol])
def protocol(request: pytest.FixtureRequest) -> Protocol:
    chosen: Protocol = request.param
    return chosen
