"""The stage on which presets are played: assembled once for all tests of a module."""

from collections.abc import AsyncIterator

import pytest_asyncio

from contract.preset_stage import Stage, presets_on_stage


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def stage() -> AsyncIterator[Stage]:
    async with presets_on_stage() as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def keyless_stage() -> AsyncIterator[Stage]:
    """The same without any provider's key, neither configured nor in the environment."""
    async with presets_on_stage(keys=False) as running:
        yield running
