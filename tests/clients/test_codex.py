"""Codex itself, not our idea of it, meets the cache guard."""

import asyncio
from pathlib import Path

import pytest

from clients.codex import BUILT_IN, COMPACTION, CUSTOM, CUSTOM_WITH_WEBSOCKET, TURN, Codex, CodexSetup, kind_of
from clients.cold_upstream import ColdUpstream, Received, Reply, always
from clients.gateway_in_front import gateway_before
from clients.provider_replies import COLD, WARM, ReportedUsage
from clients.wiretap import wiretap

pytestmark = pytest.mark.clients
either_setup = pytest.mark.parametrize("setup", [CUSTOM, BUILT_IN], ids=str)


@either_setup
async def test_two_cold_turns_stop_the_thread_for_good(codex_program: Path, tmp_path: Path, setup: CodexSetup) -> None:
    async with (
        ColdUpstream(always(COLD)) as upstream,
        gateway_before(upstream, tmp_path) as gateway_url,
        wiretap(gateway_url) as tap,
        Codex.install(codex_program, tmp_path / "home", tap.url, setup).thread() as thread,
    ):
        turns = [await thread.turn(text) for text in ("one", "two", "three", "four")]
        errors = [notice["params"] for notice in thread.notices("error")]
        tokens_shown = thread.notices("thread/tokenUsage/updated")[-1]["params"]["tokenUsage"]["last"]["totalTokens"]
        item_types = thread.item_types()

    assert [kind_of(received) for received in upstream.received] == [TURN, TURN]
    upgrades = ["GET /v1/responses"] if setup.tries_websocket else []
    assert tap.requests == upgrades + ["POST /v1/responses"] * 4, "each turn is one attempt: a stop is not retried"
    assert [turn.status for turn in turns] == ["completed", "completed", "failed", "failed"]
    for stopped in turns[2:]:
        assert stopped.error is not None
        assert "5 minutes" in stopped.error["message"]
        assert "{" not in stopped.error["message"], "the person should read words, not the body around them"
        assert stopped.error["codexErrorInfo"] != "contextWindowExceeded"
    assert [error["willRetry"] for error in errors] == [False, False]
    assert item_types == {"userMessage", "agentMessage"}, "a stop must not make Codex compact"
    assert tokens_shown == COLD.total + COLD.output, "a stop must not make Codex believe that its window is full"


async def test_a_warm_thread_is_never_stopped(codex_program: Path, tmp_path: Path) -> None:
    async with (
        ColdUpstream(always(WARM)) as upstream,
        gateway_before(upstream, tmp_path) as gateway_url,
        Codex.install(codex_program, tmp_path / "home", gateway_url).thread() as thread,
    ):
        turns = [await thread.turn(text) for text in ("one", "two", "three", "four")]

    assert [(turn.status, turn.answer) for turn in turns] == [("completed", f"Answer {n}.") for n in (1, 2, 3, 4)]
    assert [kind_of(received) for received in upstream.received] == [TURN] * 4
    assert {received.headers["authorization"] for received in upstream.received} == {"Bearer dummy-key"}


async def test_a_restarted_codex_finds_its_thread_still_stopped(codex_program: Path, tmp_path: Path) -> None:
    async with ColdUpstream(always(COLD)) as upstream, gateway_before(upstream, tmp_path) as gateway_url:
        codex = Codex.install(codex_program, tmp_path / "home", gateway_url)
        async with codex.thread() as thread:
            cold = [await thread.turn(text) for text in ("one", "two")]
        async with codex.thread(resumed_id=thread.id) as thread:
            stopped = await thread.turn("three")

    assert [kind_of(received) for received in upstream.received] == [TURN, TURN]
    assert [turn.status for turn in [*cold, stopped]] == ["completed", "completed", "failed"]


@either_setup
async def test_a_stopped_thread_recovers_by_a_compaction_its_person_asks_for(
    codex_program: Path, tmp_path: Path, setup: CodexSetup
) -> None:
    def script(received: Received) -> Reply:
        if kind_of(received) == COMPACTION:
            return Reply(COLD, text="They counted to three.")
        recovered = "They counted to three." in received.body.decode()
        return Reply(ReportedUsage(total=9_000, cached=0)) if recovered else Reply(COLD, text="word " * 40_000)

    async with (
        ColdUpstream(script) as upstream,
        gateway_before(upstream, tmp_path) as gateway_url,
        Codex.install(codex_program, tmp_path / "home", gateway_url, setup).thread() as thread,
    ):
        turns = [await thread.turn(text) for text in ("one", "two", "three")]
        turns += [await thread.compact(), await thread.turn("four")]

    assert [turn.status for turn in turns] == ["completed", "completed", "failed", "completed", "completed"]
    assert [kind_of(received) for received in upstream.received] == [TURN, TURN, COMPACTION, TURN]
    assert turns[-1].answer == "Answer 4."


async def test_follow_ups_that_cancel_a_large_turn_are_no_misses(codex_program: Path, tmp_path: Path) -> None:
    # Responses reports usage at its end only: of a cancelled turn nothing but the size is known, so it must be large.
    large = Reply(COLD, text="word " * 60_000)
    replies = iter([large, Reply(COLD, hangs=True), Reply(COLD, hangs=True), Reply(COLD), Reply(WARM)])
    async with (
        ColdUpstream(lambda _received: next(replies)) as upstream,
        gateway_before(upstream, tmp_path) as gateway_url,
        Codex.install(codex_program, tmp_path / "home", gateway_url).thread() as thread,
    ):
        turns = [await thread.turn("one")]
        for follow_up in ("two", "no, three"):
            await thread.begin_turn(follow_up)
            await thread.see_first_text()
        turns += [await thread.turn("no, four"), await thread.turn("five")]

    assert [turn.status for turn in turns] == ["completed"] * 3
    assert turns[-1].answer == "Answer 5."
    assert [kind_of(received) for received in upstream.received] == [TURN] * 5


async def test_a_refused_websocket_makes_codex_fall_back_without_a_word(codex_program: Path, tmp_path: Path) -> None:
    async with (
        ColdUpstream(always(WARM)) as upstream,
        gateway_before(upstream, tmp_path) as gateway_url,
        wiretap(gateway_url) as tap,
    ):
        codex = Codex.install(codex_program, tmp_path / "home", tap.url, CUSTOM_WITH_WEBSOCKET)
        finished = await codex.exec("one")

    assert finished.exit_code == 0, finished.stderr
    assert finished.stdout.strip() == "Answer 1."
    assert tap.requests == ["GET /v1/responses", "POST /v1/responses"]
    assert [kind_of(received) for received in upstream.received] == [TURN]
    assert "Reconnecting" not in finished.stderr
    assert "Falling back" not in finished.stderr


async def test_a_killed_codex_closes_its_request_upstream(codex_program: Path, tmp_path: Path) -> None:
    async with (
        ColdUpstream(lambda _received: Reply(WARM, hangs=True)) as upstream,
        gateway_before(upstream, tmp_path) as gateway_url,
        Codex.install(codex_program, tmp_path / "home", gateway_url).thread() as thread,
    ):
        await thread.begin_turn("one")
        await thread.see_first_text()
        assert not upstream.hung_up.is_set()
        thread.kill()
        await asyncio.wait_for(upstream.hung_up.wait(), timeout=1)

    assert [kind_of(received) for received in upstream.received] == [TURN]
