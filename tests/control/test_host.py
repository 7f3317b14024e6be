"""The hosted threads: who finds which, what makes room, and what is kept."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cachegate.control.history import History
from control.hosting import hosting

SAID = [{"type": "text", "text": "hi"}]


def code(answer: dict[str, Any]) -> int | None:
    found: int | None = answer.get("error", {}).get("code")
    return found


async def test_as_many_turns_as_requests_may_run() -> None:
    async with hosting(in_flight_max=1) as stage:
        visitor = await stage.visitor()
        ids = [(await visitor.ask("thread/start", model="synthetic/hang"))["result"]["thread"]["id"] for _ in "ab"]
        assert code(await visitor.ask("turn/start", threadId=ids[0], input=SAID)) is None
        assert code(await visitor.ask("turn/start", threadId=ids[1], input=SAID)) == -32003


async def test_a_turn_that_is_cut_before_it_begins_ends_all_the_same() -> None:
    async with hosting() as stage:
        visitor = await stage.visitor()
        thread_id = (await visitor.ask("thread/start", model="synthetic/cache"))["result"]["thread"]["id"]
        await visitor.ask("turn/start", threadId=thread_id, input=SAID)
        for task in stage.life.running:
            task.cancel()
        await stage.life.settled()
        await asyncio.sleep(0)
        assert visitor.methods[-1] == "turn/completed"
        assert visitor.frames[-1]["params"]["turn"]["status"] == "interrupted"
        assert stage.records == []
        assert code(await visitor.ask("turn/start", threadId=thread_id, input=SAID)) is None


@pytest.mark.parametrize("kept", [True, False])
async def test_a_thread_that_made_room_is_on_disk_or_gone(tmp_path: Path, *, kept: bool) -> None:
    history = History(tmp_path / "threads.sqlite") if kept else None
    async with hosting(history, threads_max=1) as stage:
        visitor = await stage.visitor()
        first = (await visitor.ask("thread/start", model="synthetic/cache", name="first"))["result"]["thread"]["id"]
        await visitor.ask("turn/start", threadId=first, input=SAID)
        await stage.life.settled()
        await visitor.ask("thread/unsubscribe", threadId=first)
        second = (await visitor.ask("thread/start", model="synthetic/cache"))["result"]["thread"]["id"]
        assert code(await visitor.ask("thread/read", threadId=first)) == (-32003 if kept else -32001)
        await visitor.ask("thread/unsubscribe", threadId=second)
        answer = await visitor.ask("thread/read", threadId=first)
        assert code(answer) == (None if kept else -32001)
        if kept:
            assert len(answer["result"]["thread"]["turns"]) == 1
            assert len((await visitor.ask("thread/list"))["result"]["data"]) == 2


async def test_two_who_ask_for_a_kept_thread_at_once_get_the_same(tmp_path: Path) -> None:
    path = tmp_path / "threads.sqlite"
    async with hosting(History(path)) as stage:
        visitor = await stage.visitor()
        thread_id = (await visitor.ask("thread/start", model="synthetic/cache"))["result"]["thread"]["id"]
    async with hosting(History(path)) as stage:
        found = await asyncio.gather(*(stage.host.find("t", thread_id) for _ in range(3)))
        assert len(set(map(id, found))) == 1
        other = await stage.visitor("u")
        assert code(await other.ask("thread/read", threadId=thread_id)) == -32001


async def test_a_model_that_nobody_has_fails_the_turn_and_takes_the_message_back() -> None:
    async with hosting() as stage:
        visitor = await stage.visitor()
        thread_id = (await visitor.ask("thread/start", model="nobody/has"))["result"]["thread"]["id"]
        await visitor.ask("turn/start", threadId=thread_id, input=SAID)
        await stage.life.settled()
        turn = visitor.frames[-1]["params"]["turn"]
        assert (turn["status"], turn["error"]["status"]) == ("failed", 400)
        assert code(await visitor.ask("thread/compact/start", threadId=thread_id)) == -32000
