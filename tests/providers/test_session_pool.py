import asyncio
import json
from collections.abc import Callable

import pytest

from cachegate.errors import Unavailable
from cachegate.providers import session_pool as module
from cachegate.providers.base import Call
from cachegate.providers.session_pool import PATIENCE_S, Key, Pool, Slot, key_of
from cachegate.wire.facts import Operation, Protocol
from cachegate.wire.parse import Received, parse
from cachegate.wire.seen import Reseed

A: Key = ("thread a", "model-x")
B: Key = ("thread b", "model-x")
C: Key = ("thread c", "model-x")


class Talk:
    """A conversation that notes its end."""

    def __init__(self) -> None:
        self.waits = False
        self.ends = 0
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.ending = asyncio.Event()
        self.sleeps_well = False
        self.naps = 0
        self.settled = 0
        self.was_busy = False
        self.busy_at_its_end: Callable[[], bool] = bool

    async def settle(self) -> None:
        self.settled += 1
        self.was_busy = self.busy_at_its_end()

    async def sleep(self) -> bool:
        if self.sleeps_well:
            self.naps += 1
            return True
        await self.close()
        return False

    async def close(self) -> None:
        self.ending.set()
        await self.may_end.wait()
        self.ends += 1


class Stage:
    def __init__(self, sessions_max: int = 2, idle_s: float = 100) -> None:
        self.now_s = 0.0
        self.talks: list[Talk] = []
        self.pool: Pool[Talk] = Pool(self._begin, sessions_max, idle_s, lambda: self.now_s)

    def _begin(self) -> Talk:
        self.talks.append(Talk())
        return self.talks[-1]

    async def used(self, key: Key | None, *, at_s: float = 0, waits: bool = False) -> Talk:
        """A conversation that answered one request at this time."""
        self.now_s = at_s
        slot = await self.pool.claim(key)
        slot.conversation.waits = waits
        await self.pool.release(slot)
        return slot.conversation


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request beside a running one does not wait for it."""
    monkeypatch.setattr(module, "PATIENCE_S", 0)


# --- whose conversation it is ---


async def test_a_thread_comes_back_to_its_conversation() -> None:
    stage = Stage()
    assert not stage.pool.has(A)
    first = await stage.used(A)
    assert await stage.used(B) is not first
    assert await stage.used(A) is first
    assert (len(stage.pool), first.ends) == (2, 0)
    assert stage.pool.has(A)
    assert not stage.pool.has(C)


@pytest.mark.parametrize("other", [B, ("thread a", "model-y")])
async def test_another_thread_or_model_has_a_conversation_of_its_own(other: Key) -> None:
    stage = Stage()
    assert await stage.used(A) is not await stage.used(other)


async def test_a_request_of_no_thread_has_a_conversation_for_itself() -> None:
    stage = Stage()
    first, second = await stage.used(None), await stage.used(None)
    assert first is not second
    assert (first.ends, second.ends, len(stage.pool)) == (1, 1, 0)


# --- one request at a time ---


@pytest.mark.usefixtures("impatient")
async def test_a_conversation_serves_one_request_at_a_time() -> None:
    stage = Stage()
    running = await stage.pool.claim(A)
    beside = await stage.pool.claim(A)
    assert beside.conversation is not running.conversation
    assert beside.key is None
    await stage.pool.release(beside)
    assert beside.conversation.ends == 1, "a side session ends with its answer"
    await stage.pool.release(running)
    assert (await stage.pool.claim(A)).conversation is running.conversation


@pytest.mark.usefixtures("impatient")
async def test_a_side_session_that_outlives_the_running_one_does_not_take_its_place() -> None:
    stage = Stage()
    running, beside = await stage.pool.claim(A), await stage.pool.claim(A)
    await stage.pool.release(running)
    again = await stage.pool.claim(A)
    assert again is running
    await stage.pool.release(beside)
    assert len(stage.pool) == 1


async def test_one_who_broke_off_gets_the_same_conversation_again_as_soon_as_it_is_at_rest() -> None:
    assert 0 < PATIENCE_S < 1
    stage = Stage()
    running = await stage.pool.claim(A)
    claiming = asyncio.ensure_future(stage.pool.claim(A))
    await asyncio.sleep(0)
    assert not claiming.done()
    await stage.pool.release(running)
    assert await claiming is running
    assert running.busy
    assert len(stage.talks) == 1


async def test_while_one_waits_another_thread_does_not() -> None:
    stage = Stage()
    running = await stage.pool.claim(A)
    claiming = asyncio.ensure_future(stage.pool.claim(A))
    await asyncio.sleep(0)
    assert (await stage.pool.claim(B)) is not running
    assert not claiming.done()
    await stage.pool.release(running)
    assert await claiming is running


async def test_of_two_who_wait_one_gets_it_and_one_a_side_session(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(sessions_max=3)
    running = await stage.pool.claim(A)
    claiming = [asyncio.ensure_future(stage.pool.claim(A)) for _ in range(2)]
    await asyncio.sleep(0)
    monkeypatch.setattr(module, "PATIENCE_S", 0)
    await stage.pool.release(running)
    slots = [await each for each in claiming]
    assert {slot.key for slot in slots} == {A, None}
    assert len({id(slot.conversation) for slot in slots}) == 2


async def test_one_who_waits_for_a_conversation_that_ends_gets_a_new_one() -> None:
    stage = Stage()
    running = await stage.pool.claim(A)
    claiming = asyncio.ensure_future(stage.pool.claim(A))
    await asyncio.sleep(0)
    await stage.pool.close()
    running.free.set()
    fresh = await claiming
    assert fresh is not running
    assert fresh.key == A


# --- room for so many ---


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
    third.waits = True
    await stage.used(B, at_s=4)
    assert (old.ends, third.ends) == (1, 0), "it leaves when all others wait, too"


@pytest.mark.usefixtures("impatient")
async def test_when_all_are_busy_a_request_is_turned_away() -> None:
    stage = Stage()
    first = await stage.pool.claim(A)
    await stage.pool.claim(None)
    with pytest.raises(Unavailable, match="All 2 live sessions"):
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
    assert (len(stage.pool), leaving.ends) == (0, 0)
    leaving.may_end.set()
    await stage.pool.close()
    assert leaving.ends == 1, "who had to leave leaves all the same"


# --- why a conversation is missing ---


async def test_who_had_to_leave_learns_it_with_the_next_request_and_once() -> None:
    stage = Stage(sessions_max=1)
    await stage.used(A)
    fresh = await stage.pool.claim(B)
    assert fresh.missing == ""
    await stage.pool.release(fresh)
    again = await stage.pool.claim(A)
    assert again.missing == "capacity"
    await stage.pool.release(again)
    assert (await stage.pool.claim(A)).missing == ""


async def test_the_guard_is_told_of_a_rebuilt_session_and_why() -> None:
    stage = Stage(sessions_max=1)
    slot = await stage.pool.claim(A)
    assert slot.told(None) == ()
    assert slot.told(Reseed("no_session")) == (Reseed("no_session"),)
    await stage.pool.release(slot)
    await stage.used(B)
    slot = await stage.pool.claim(A)
    assert slot.told(None) == ()
    assert slot.told(Reseed("no_session")) == (Reseed("capacity"),)


async def test_what_was_unused_for_too_long_is_missed_for_that() -> None:
    stage = Stage()
    await stage.used(A)
    stage.now_s = 1_000
    await stage.pool.sweep()
    assert (await stage.pool.claim(A)).missing == "idle_expired"


async def test_a_request_that_was_not_answered_does_not_use_up_the_reason() -> None:
    stage = Stage(sessions_max=1)
    await stage.used(A)
    await stage.used(B)
    slot = await stage.pool.claim(A)
    await stage.pool.release(slot, used=False)
    assert (await stage.pool.claim(A)).missing == "capacity"


@pytest.mark.usefixtures("impatient")
async def test_a_side_session_misses_nothing() -> None:
    stage = Stage(sessions_max=3)
    await stage.used(A)
    stage.now_s = 1_000
    await stage.pool.sweep()
    assert (await stage.pool.claim(None)).missing == ""
    running = await stage.pool.claim(A)
    assert (running.missing, (await stage.pool.claim(A)).missing) == ("idle_expired", "")


async def test_reasons_are_forgotten_when_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ENDED_MAX", 1)
    stage = Stage()
    await stage.used(A)
    await stage.used(B)
    stage.now_s = 1_000
    await stage.pool.sweep()
    assert [(await stage.pool.claim(key)).missing for key in (A, B)] == ["", "idle_expired"]


# --- each while it is used ---


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


async def test_a_request_that_left_it_alone_was_no_use() -> None:
    stage = Stage(idle_s=100)
    preserved = await stage.used(A, waits=True)
    stage.now_s = 99
    await stage.pool.release(await stage.pool.claim(A), used=False)
    stage.now_s = 100
    await stage.pool.sweep()
    assert preserved.ends == 1


async def test_one_that_is_claimed_while_others_end_stays() -> None:
    stage = Stage()
    first, second = await stage.used(A), await stage.used(B)
    stage.now_s = 1_000
    first.may_end.clear()
    sweeping = asyncio.ensure_future(stage.pool.sweep())
    async with asyncio.timeout(60):
        await first.ending.wait()
    claimed = await stage.pool.claim(B)
    first.may_end.set()
    await sweeping
    assert claimed.conversation is second
    assert (first.ends, second.ends) == (1, 0)


async def test_the_pool_looks_by_itself_who_is_unused() -> None:
    stage = Stage(idle_s=0.004)
    talk = await stage.used(A)
    stage.now_s = 1
    async with asyncio.timeout(60):
        await talk.ending.wait()
    tasks = asyncio.all_tasks()
    await stage.pool.close()
    assert all(task.done() for task in tasks if task is not asyncio.current_task())


async def test_the_end_ends_all_and_once() -> None:
    stage = Stage()
    await stage.used(A)
    busy: Slot[Talk] = await stage.pool.claim(B)
    await stage.pool.close()
    await stage.pool.release(busy)
    assert [talk.ends for talk in stage.talks] == [1, 1]
    assert len(stage.pool) == 0


async def test_the_end_waits_for_those_that_are_ending() -> None:
    stage = Stage(idle_s=0)
    talk = await stage.used(A)
    talk.may_end.clear()
    async with asyncio.timeout(60):
        await talk.ending.wait()  # nobody swept but the pool itself
    closing = asyncio.ensure_future(stage.pool.close())
    for _ in range(9):
        await asyncio.sleep(0)
    assert not closing.done()
    talk.may_end.set()
    await closing
    assert talk.ends == 1


async def test_behind_the_end_nothing_sweeps_on() -> None:
    stage = Stage()
    before = asyncio.all_tasks()
    await stage.used(A)
    swept = asyncio.all_tasks() - before
    assert len(swept) == 1
    await stage.pool.close()
    assert asyncio.all_tasks() == before
    await stage.pool.close()
    await stage.used(A)
    assert len(asyncio.all_tasks() - before) == 1, "a request behind it begins anew"
    await stage.pool.close()


async def test_a_request_that_was_asked_is_ended_before_the_next_may_begin() -> None:
    stage = Stage()
    slot = await stage.pool.claim(A)
    talk = slot.conversation
    await stage.pool.release(slot, used=False)
    assert talk.settled == 0
    assert await stage.pool.claim(A) is slot
    talk.busy_at_its_end = lambda: slot.busy
    await stage.pool.release(slot)
    assert (talk.settled, talk.was_busy, slot.busy) == (1, True, False)
    await stage.pool.close()


# --- under which key ---


def call(
    *,
    thread: str = "t1",
    model: str = "up",
    tenant: str = "",
    operation: Operation = Operation.GENERATE,
    **more: object,
) -> Call:
    data = json.dumps({"model": "m", "input": [{"role": "user", "content": "hi"}], **more}).encode()
    headers = (("x-session-id", thread),) if thread else ()
    received = parse(Received(Protocol.RESPONSES, operation, headers, "", data, data), bytes(32))
    return Call(received, "req_1", "p", model, lambda: None, tenant=tenant)


def test_requests_of_a_thread_to_a_model_continue_each_other() -> None:
    keys = [key_of(each) for each in (call(), call(input=[]), call(thread="t2"), call(model="other"))]
    assert None not in keys
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


def test_tenants_that_name_a_thread_alike_never_meet_in_one_conversation() -> None:
    keys = [key_of(each) for each in (call(tenant="alice"), call(tenant="bob"), call(), call(tenant="alice"))]
    assert len(set(keys)) == 3
    assert keys[0] == keys[3]


@pytest.mark.parametrize(
    "alone",
    [call(thread=""), call(operation=Operation.COMPACT), call(max_tokens=1)],
    ids=["nobody", "compact", "aside"],
)
def test_a_request_that_nothing_continues_has_none(alone: Call) -> None:
    assert key_of(alone) is None


# --- what is left of who had to leave ---


async def asleep(stage: Stage, key: Key, *, at_s: float = 0) -> Talk:
    """A conversation that was put to sleep for its idleness."""
    talk = await stage.used(key, at_s=at_s)
    talk.sleeps_well = True
    stage.now_s = at_s + 100
    await stage.pool.sweep()
    assert (talk.naps, talk.ends) == (1, 0)
    return talk


async def test_who_sleeps_is_woken_by_its_thread_and_is_told_why_it_slept() -> None:
    stage = Stage()
    talk = await asleep(stage, A)
    assert not stage.pool.has(A)
    assert await stage.used(B, at_s=101) is not talk
    slot = await stage.pool.claim(A)
    assert slot.conversation is talk
    assert slot.told(Reseed("process_exited")) == (Reseed("idle_expired"),)
    await stage.pool.close()
    assert talk.ends == 1


async def test_who_leaves_for_another_sleeps_as_well() -> None:
    stage = Stage(sessions_max=1)
    first = await stage.used(A)
    first.sleeps_well = True
    second = await stage.used(B, at_s=1)
    second.sleeps_well = True
    assert first.naps == 1
    slot = await stage.pool.claim(A)
    assert (slot.conversation, second.naps) == (first, 1)
    await stage.pool.close()
    assert (first.ends, second.ends) == (1, 1)


async def test_no_sleep_lasts_for_ever() -> None:
    stage = Stage()
    talk = await asleep(stage, A)
    stage.now_s = 100 + module.ASLEEP_S - 1
    await stage.pool.sweep()
    assert talk.ends == 0
    stage.now_s = 100 + module.ASLEEP_S
    await stage.pool.sweep()
    assert talk.ends == 1
    assert await stage.used(A, at_s=stage.now_s) is not talk


async def test_the_longest_asleep_is_forgotten_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ASLEEP_MAX", 2)
    stage = Stage()
    talks = [await asleep(stage, key, at_s=at_s) for key, at_s in ((A, 0), (B, 200), (C, 400))]
    assert [talk.ends for talk in talks] == [1, 0, 0]
    await stage.pool.close()


async def test_where_there_is_no_place_who_sleeps_sleeps_on() -> None:
    stage = Stage(sessions_max=1)
    talk = await asleep(stage, A)
    busy = await stage.pool.claim(B)
    with pytest.raises(Unavailable):
        await stage.pool.claim(A)
    await stage.pool.release(busy)
    assert (await stage.pool.claim(A)).conversation is talk
    await stage.pool.close()
