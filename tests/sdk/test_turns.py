"""An interruption ends what it meets, and nothing else."""

import asyncio
import threading

import pytest

from cachegate.sdk import Answer, BrokenAnswer, Busy, Completed, Interrupted, TextDelta, Tokens
from cachegate.sdk.turns import Interruption, Turns, answer_of


async def waiting(turns: Turns, started: asyncio.Event) -> None:
    with turns.begin() as interruption, interruption:
        started.set()
        await asyncio.Event().wait()


@pytest.mark.parametrize("threaded", [False, True])
async def test_it_ends_the_await_that_it_meets(*, threaded: bool) -> None:
    turns, started = Turns(), asyncio.Event()
    task = asyncio.create_task(waiting(turns, started))
    await started.wait()
    if threaded:
        await asyncio.to_thread(turns.interrupt)
    else:
        assert turns.interrupt()
    with pytest.raises(Interrupted):
        await task
    assert not turns.interrupt()


async def test_it_waits_for_the_next_await_and_acts_at_once() -> None:
    turns, done = Turns(), threading.Event()
    with turns.begin() as interruption:
        interruption.then = done.set
        turns.interrupt()
        turns.interrupt()
        await asyncio.sleep(0)
        assert done.is_set()
        with pytest.raises(Interrupted):
            interruption.__enter__()


async def test_a_cancellation_by_others_stays_one() -> None:
    turns, started = Turns(), asyncio.Event()
    task = asyncio.create_task(waiting(turns, started))
    await started.wait()
    turns.interrupt()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_of_the_work_is_the_works() -> None:
    with pytest.raises(KeyError), Interruption():
        raise KeyError


async def test_one_turn_at_a_time() -> None:
    turns = Turns()
    with turns.begin(), pytest.raises(Busy):
        turns.begin().__enter__()
    with turns.begin():
        pass


async def test_the_last_event_is_the_answer() -> None:
    answer = Answer("x", Tokens())

    async def told(*events: TextDelta | Completed):  # type: ignore[no-untyped-def]  # noqa: ANN202
        for event in events:
            yield event

    assert await answer_of(told(TextDelta("x"), Completed(answer))) == answer
    with pytest.raises(BrokenAnswer):
        await answer_of(told(TextDelta("x")))
