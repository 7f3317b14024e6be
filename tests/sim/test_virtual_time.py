"""Virtual time: the order of a long wait is kept, its length is not."""

import asyncio
import time

import pytest

from sim.virtual_time import START_S, StandstillError, run


def test_hours_pass_at_once_and_in_order() -> None:
    seen: list[tuple[str, float]] = []

    async def wait(name: str, hours: float) -> None:
        await asyncio.sleep(hours * 3_600)
        seen.append((name, asyncio.get_running_loop().time() - START_S))

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for name, hours in (("last", 30.0), ("first", 0.5), ("second", 7.0)):
                group.create_task(wait(name, hours))

    began_s = time.monotonic()
    run(main())
    assert seen == [("first", 1_800.0), ("second", 25_200.0), ("last", 108_000.0)]
    assert time.monotonic() - began_s < 5


def test_a_deadline_holds() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(600):
                await asyncio.Event().wait()
        return loop.time() - START_S

    assert run(main()) == 600.0


def test_what_was_left_running_ends_first() -> None:
    ended: list[str] = []

    async def linger() -> None:
        await asyncio.sleep(100)
        ended.append("lingered")

    async def main() -> asyncio.Task[None]:
        return asyncio.create_task(linger())

    assert run(main()).done()
    assert ended == ["lingered"]


def test_waiting_for_nothing_is_an_error_and_no_hang() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(StandstillError):
        run(main())
