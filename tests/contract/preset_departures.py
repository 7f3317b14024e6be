"""Callers who leave. Nobody waits for a clock: each step is an event."""

import asyncio
from collections.abc import Iterator, Sequence

from cachegate.wire.facts import Protocol
from contract.preset_stage import Stage
from scripted_upstream import Step, chunk, stream_head


async def leave_before_the_first_byte(stage: Stage, client: Protocol, data: bytes) -> None:
    """Leave when the request has arrived and the provider is still thinking."""
    stage.plays([Step.HANG])
    leaving = asyncio.create_task(stage.ask(client, data))
    await stage.upstream.count(1)
    leaving.cancel()
    await _stopped(stage)


async def leave_a_stream(stage: Stage, client: Protocol, data: bytes, begun: Sequence[bytes]) -> None:
    """Leave when the first words of a stream were heard."""
    stage.plays([stream_head(), *(chunk(event) for event in begun), Step.HANG])
    async with stage.open(client, data) as response:
        assert await response.content.readany()
        response.close()
    await _stopped(stage)


async def leave_half_an_answer(stage: Stage, client: Protocol, data: bytes, half: bytes) -> None:
    """Leave when half of an unstreamed answer has come from the provider."""
    told = asyncio.Event()

    def hanging() -> Iterator[bytes | Step]:
        yield half
        told.set()
        yield Step.HANG

    stage.plays(hanging())
    leaving = asyncio.create_task(stage.ask(client, data))
    await asyncio.wait_for(told.wait(), 10)
    leaving.cancel()
    await _stopped(stage)


async def _stopped(stage: Stage) -> None:
    """The provider's connection is closed, and the record says why."""
    await asyncio.wait_for(stage.asked.closed.wait(), 10)
    assert (await stage.record()).ending == "cancelled"
