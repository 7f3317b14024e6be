import asyncio

import pytest

from cachegate.errors import Unavailable
from cachegate.providers.copilot.conversation import Conversation
from cachegate.providers.copilot.pool import Key, Pool, Slot
from copilot_runtime import ScriptedRuntime

A: Key = ("thread a", "chat", "model-x")
B: Key = ("thread b", "chat", "model-x")
C: Key = ("thread c", "chat", "model-x")


class Talk(Conversation):
    """A conversation that notes its end."""

    def __init__(self) -> None:
        super().__init__(ScriptedRuntime(), str)
        self.called = False
        self.ends = 0
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.ending = asyncio.Event()

    @property
    def waits(self) -> bool:
        return self.called

    async def close(self) -> None:
        self.ending.set()
        await self.may_end.wait()
        self.ends += 1


class Stage:
    def __init__(self, sessions_max: int = 2, idle_s: float = 100) -> None:
        self.now_s = 0.0
        self.talks: list[Talk] = []
        self.pool = Pool(self._begin, sessions_max, idle_s, lambda: self.now_s)

    def _begin(self) -> Talk:
        self.talks.append(Talk())
        return self.talks[-1]

    async def used(self, key: Key | None, *, at_s: float = 0, waits: bool = False) -> Talk:
        """A conversation that answered one request at this time."""
        self.now_s = at_s
        slot = await self.pool.claim(key)
        talk = slot.conversation
        assert isinstance(talk, Talk)
        talk.called = waits
        await self.pool.release(slot)
        return talk


async def test_a_thread_comes_back_to_its_conversation() -> None:
    stage = Stage()
    first = await stage.used(A)
    assert await stage.used(B) is not first
    assert await stage.used(A) is first
    assert (len(stage.pool), first.ends) == (2, 0)


@pytest.mark.parametrize("other", [B, ("thread a", "compaction", "model-x"), ("thread a", "chat", "model-y")])
async def test_another_thread_class_or_model_has_a_conversation_of_its_own(other: Key) -> None:
    stage = Stage()
    assert await stage.used(A) is not await stage.used(other)


async def test_a_conversation_serves_one_request_at_a_time() -> None:
    stage = Stage()
    running = await stage.pool.claim(A)
    beside = await stage.pool.claim(A)
    assert beside.conversation is not running.conversation
    assert beside.key is None
    await stage.pool.release(beside)
    assert isinstance(beside.conversation, Talk)
    assert beside.conversation.ends == 1, "a side session ends with its answer"
    await stage.pool.release(running)
    assert (await stage.pool.claim(A)).conversation is running.conversation


async def test_a_side_session_that_outlives_the_running_one_does_not_take_its_place() -> None:
    stage = Stage()
    running, beside = await stage.pool.claim(A), await stage.pool.claim(A)
    await stage.pool.release(running)
    again = await stage.pool.claim(A)
    assert again is running
    await stage.pool.release(beside)
    assert len(stage.pool) == 1


async def test_a_request_of_no_thread_has_a_conversation_for_itself() -> None:
    stage = Stage()
    first, second = await stage.used(None), await stage.used(None)
    assert first is not second
    assert (first.ends, second.ends, len(stage.pool)) == (1, 1, 0)


async def test_the_longest_unused_leaves_when_it_is_crowded() -> None:
    stage = Stage()
    old, new = await stage.used(A, at_s=1), await stage.used(B, at_s=2)
    await stage.used(A, at_s=3)
    await stage.used(C, at_s=4)
    assert (old.ends, new.ends, len(stage.pool)) == (0, 1, 2)


async def test_one_whose_calls_wait_leaves_last() -> None:
    stage = Stage()
    old, new = await stage.used(A, at_s=1, waits=True), await stage.used(B, at_s=2)
    await stage.used(C, at_s=3)
    assert (old.ends, new.ends) == (0, 1)
    third = stage.talks[-1]
    third.called = True
    await stage.used(B, at_s=4)
    assert (old.ends, third.ends) == (1, 0), "it leaves when all others wait, too"


async def test_when_all_are_busy_a_request_is_turned_away() -> None:
    stage = Stage()
    first = await stage.pool.claim(A)
    await stage.pool.claim(None)
    with pytest.raises(Unavailable, match="All 2 sessions"):
        await stage.pool.claim(B)
    with pytest.raises(Unavailable):
        await stage.pool.claim(A)
    assert len(stage.pool) == 2
    await stage.pool.release(first)
    assert (await stage.pool.claim(A)) is first, "no place is lost"


async def test_two_requests_never_take_the_same_place() -> None:
    stage = Stage(sessions_max=1)
    leaving = await stage.used(A)
    leaving.may_end.clear()
    claiming = asyncio.ensure_future(stage.pool.claim(B))
    async with asyncio.timeout(60):
        await leaving.ending.wait()
    with pytest.raises(Unavailable):
        await stage.pool.claim(C)
    leaving.may_end.set()
    assert (await claiming).key == B
    assert len(stage.pool) == 1


async def test_a_caller_who_leaves_while_a_place_is_made_takes_none() -> None:
    stage = Stage(sessions_max=1)
    leaving = await stage.used(A)
    leaving.may_end.clear()
    claiming = asyncio.ensure_future(stage.pool.claim(B))
    async with asyncio.timeout(60):
        await leaving.ending.wait()
    claiming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claiming
    assert len(stage.pool) == 0


async def test_what_nobody_used_for_too_long_ends() -> None:
    stage = Stage(sessions_max=4, idle_s=100)
    old, new = await stage.used(A, at_s=0), await stage.used(B, at_s=1)
    busy = await stage.pool.claim(C)
    stage.now_s = 99
    await stage.pool.sweep()
    assert (old.ends, new.ends) == (0, 0)
    stage.now_s = 100
    await stage.pool.sweep()
    assert (old.ends, new.ends) == (1, 0)
    stage.now_s = 1_000
    await stage.pool.sweep()
    assert (old.ends, new.ends, len(stage.pool)) == (1, 1, 1)
    await stage.pool.release(busy)
    stage.now_s = 1_050
    await stage.pool.sweep()
    assert len(stage.pool) == 1, "its age counts from its last use"


async def test_the_end_ends_all_and_once() -> None:
    stage = Stage()
    await stage.used(A)
    busy: Slot = await stage.pool.claim(B)
    await stage.pool.close()
    await stage.pool.release(busy)
    assert [talk.ends for talk in stage.talks] == [1, 1]
    assert len(stage.pool) == 0
