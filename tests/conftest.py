"""Fixtures that every room's tests may use."""

from collections.abc import AsyncIterator

import pytest
from hypothesis import HealthCheck, settings

from cachegate.wire.facts import Protocol
from cachegate.wire.protocols import DIALECTS
from running_gateway import RunningGateway, config_for, running_gateway
from scripted_upstream import ScriptedUpstream, scripted_upstream

# How long an example takes is the machine's business, not the test's.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.fixture
async def upstream() -> AsyncIterator[ScriptedUpstream]:
    async with scripted_upstream() as running:
        yield running


@pytest.fixture
async def gateway(upstream: ScriptedUpstream) -> AsyncIterator[RunningGateway]:
    async with running_gateway(config_for(upstream.url)) as running:
        yield running


@pytest.fixture(params=list(DIALECTS), ids=[protocol.value for protocol in DIALECTS])
def protocol(request: pytest.FixtureRequest) -> Protocol:
    chosen: Protocol = request.param
    return chosen
