"""Claude Code itself, not our idea of it, meets the cache guard."""

import asyncio
from pathlib import Path

import pytest

from clients.claude_code import COMPACTION, TOKEN_COUNT, TURN, ClaudeCode, kind_of
from clients.cold_upstream import ColdUpstream, Received, Reply, always
from clients.gateway_in_front import gateway_before
from clients.provider_replies import COLD, WARM, ReportedUsage
from clients.wiretap import wiretap

pytestmark = pytest.mark.clients


async def test_two_cold_turns_stop_the_session_for_good(claude_program: Path, tmp_path: Path) -> None:
    async with (
        ColdUpstream(always(COLD)) as upstream,
        gateway_before(upstream, tmp_path) as gateway_url,
        wiretap(gateway_url) as tap,
        ClaudeCode.install(claude_program, tmp_path / "home", tap.url).session() as session,
    ):
        turns = [await session.turn(text) for text in ("one", "two", "three", "four")]
        told = [f"{event['subtype']} {event.get('status')}" for event in session.system_events()]

    assert [kind_of(received) for received in upstream.received] == [TURN, TURN]
    assert tap.requests == ["POST /v1/messages"] * 4, "each turn is one attempt: a stop is not retried"
    assert [turn.failed for turn in turns] == [False, False, True, True]
    assert {turn.session_id for turn in turns} == {upstream.received[0].headers["x-claude-code-session-id"]}
    for stopped in turns[2:]:
        assert stopped.text.startswith("API Error: 400 ")
        assert "5 minutes" in stopped.text
        assert "{" not in stopped.text, "the person should read words, not the body around them"
    assert set(told) == {"init None", "status requesting"}, "a stop must make Claude Code neither compact nor retry"


async def test_a_warm_session_is_never_stopped(claude_program: Path, tmp_path: Path) -> None:
    async with (
        ColdUpstream(always(WARM)) as upstream,
        gateway_before(upstream, tmp_path) as gateway_url,
        ClaudeCode.install(claude_program, tmp_path / "home", gateway_url).session() as session,
    ):
        turns = [await session.turn(text) for text in ("one", "two", "three", "four")]

    assert [(turn.failed, turn.text) for turn in turns] == [(False, f"Answer {n}.") for n in (1, 2, 3, 4)]
    assert [kind_of(received) for received in upstream.received] == [TURN] * 4
    assert {received.headers["x-api-key"] for received in upstream.received} == {"dummy-key"}


async def test_a_restarted_claude_code_finds_its_session_still_stopped(claude_program: Path, tmp_path: Path) -> None:
    async with ColdUpstream(always(COLD)) as upstream, gateway_before(upstream, tmp_path) as gateway_url:
        claude = ClaudeCode.install(claude_program, tmp_path / "home", gateway_url)
        async with claude.session() as session:
            cold = [await session.turn(text) for text in ("one", "two")]
        async with claude.session("--resume", cold[-1].session_id) as session:
            stopped = await session.turn("three")

    assert [kind_of(received) for received in upstream.received] == [TURN, TURN]
    assert [turn.failed for turn in [*cold, stopped]] == [False, False, True]


@pytest.mark.parametrize("labelled", [False, True])
async def test_a_stopped_session_recovers_by_a_compaction_its_person_asks_for(
    claude_program: Path, tmp_path: Path, *, labelled: bool
) -> None:
    def script(received: Received) -> Reply:
        if kind_of(received) == COMPACTION:
            return Reply(COLD, text="<summary>They counted to three.</summary>")
        recovered = "They counted to three." in received.body.decode()
        return Reply(ReportedUsage(total=9_000, cached=0)) if recovered else Reply(COLD, text="word " * 40_000)

    async with (
        ColdUpstream(script) as upstream,
        gateway_before(upstream, tmp_path) as gateway_url,
        ClaudeCode.install(claude_program, tmp_path / "home", gateway_url, labelled=labelled).session() as session,
    ):
        turns = [await session.turn(text) for text in ("one", "two", "three", "/compact", "four")]

    assert [turn.failed for turn in turns] == [False, False, True, False, False]
    assert [kind_of(received) for received in upstream.received] == [TURN, TURN, COMPACTION, TURN]
    assert turns[-1].text == "Answer 4."
    labels = [received.headers.get("x-claude-code-request-class") for received in upstream.received]
    assert labels == (["main", "main", "compaction", "main"] if labelled else [None] * 4)


async def test_interrupted_cold_turns_are_no_misses(claude_program: Path, tmp_path: Path) -> None:
    replies = iter([Reply(COLD), Reply(COLD, hangs=True), Reply(COLD, hangs=True), Reply(COLD), Reply(WARM)])
    async with (
        ColdUpstream(lambda _received: next(replies)) as upstream,
        gateway_before(upstream, tmp_path) as gateway_url,
        ClaudeCode.install(claude_program, tmp_path / "home", gateway_url).session() as session,
    ):
        turns = [await session.turn("one")]
        for text in ("two", "no, three"):
            await session.begin_turn(text)
            await session.see_first_text()
            await session.interrupt()
        turns += [await session.turn(text) for text in ("no, four", "five")]

    assert [(turn.failed, turn.text) for turn in turns] == [(False, f"Answer {n}.") for n in (1, 4, 5)]
    assert [kind_of(received) for received in upstream.received] == [TURN] * 5


async def test_counting_tokens_is_no_inference(claude_program: Path, tmp_path: Path) -> None:
    async with (
        ColdUpstream(always(COLD)) as upstream,
        gateway_before(upstream, tmp_path) as gateway_url,
        ClaudeCode.install(claude_program, tmp_path / "home", gateway_url).session() as session,
    ):
        turns = [await session.turn(text) for text in ("one", "two", "/context", "three")]

    kinds = [kind_of(received) for received in upstream.received]
    assert [turn.failed for turn in turns] == [False, False, False, True]
    assert kinds[:2] == [TURN, TURN]
    assert set(kinds[2:]) == {TOKEN_COUNT}, "they pass while a turn would be stopped"


async def test_a_killed_claude_code_closes_its_request_upstream(claude_program: Path, tmp_path: Path) -> None:
    async with (
        ColdUpstream(lambda _received: Reply(WARM, hangs=True)) as upstream,
        gateway_before(upstream, tmp_path) as gateway_url,
        ClaudeCode.install(claude_program, tmp_path / "home", gateway_url).session() as session,
    ):
        await session.begin_turn("one")
        await session.see_first_text()
        assert not upstream.hung_up.is_set()
        session.kill()
        await asyncio.wait_for(upstream.hung_up.wait(), timeout=1)

    assert [kind_of(received) for received in upstream.received] == [TURN]
