"""The contract of a preset when something goes wrong: every row, in every protocol, in the provider's own words."""

from collections.abc import Mapping

import pytest

from cachegate.guard.usage import Usage
from cachegate.wire.facts import Protocol
from contract.preset_answers import (
    ONE_CALL,
    TEXT,
    Said,
    before_the_end,
    body,
    broken_body,
    broken_off,
    events,
    overflow_events,
)
from contract.preset_clients import asking, hear, hear_error
from contract.preset_departures import leave_a_stream, leave_before_the_first_byte, leave_half_an_answer
from contract.preset_facts import ROADS, C, M, R
from contract.preset_roads import roads
from contract.preset_stage import Stage, bound, sent
from contract.preset_troubles import (
    BUSY,
    LIMITED,
    MAXIMUM,
    OVERFLOWS,
    OVERFLOWS_ELSEWHERE,
    TOKENS,
    limited,
    overflow,
    overloaded,
)
from contract.preset_usage import TOTAL, usual
from scripted_upstream import Script, Step, chunk, stream_head, whole

pytestmark = pytest.mark.asyncio(loop_scope="module")

BOTH = (True, False)
"""Streamed, and not."""


EACH_ROAD = roads(*ROADS)


def request(kind: str, client: Protocol, spoken: Protocol, *, streamed: bool) -> bytes:
    return asking(client, f"{bound(kind, spoken)}/model-of-the-client", streamed=streamed)


# --- errors instead of an answer ---


@roads(
    *(road for road in ROADS if road[0] not in OVERFLOWS_ELSEWHERE),
)
async def test_a_full_context_is_told_so_that_the_client_compacts(
    stage: Stage, kind: str, client: Protocol, spoken: Protocol
) -> None:
    status, said = overflow(kind, spoken)
    for streamed in BOTH:
        stage.plays([whole(status, said)])
        heard = await stage.ask(client, request(kind, client, spoken, streamed=streamed))
        record = await stage.record()
        assert (record.ending, record.detail) == ("failed", "context_length_exceeded")
        assert record.usage == Usage()
        assert heard.status == 400
        if client is spoken:
            assert heard.body == said
            continue
        error, code, message = hear_error(client, heard.body)
        assert error == "invalid_request_error"
        if client is M:
            size = f": {TOKENS} tokens > {MAXIMUM} maximum" if OVERFLOWS[kind].sized else ""
            assert message == f"prompt is too long{size}"
        else:
            assert code == "context_length_exceeded"


FULL: Mapping[Protocol, str] = {M: "model_context_window_exceeded", R: "incomplete: max_output_tokens", C: "length"}
"""What each client hears of an answer that was cut short by a full context."""


@roads(*(road for road in ROADS if road[0] in OVERFLOWS_ELSEWHERE))
async def test_a_context_that_filled_up_is_told_as_the_reason_to_stop(
    stage: Stage, kind: str, client: Protocol, spoken: Protocol
) -> None:
    said, report = Said("Half a", full=True), usual(kind, spoken)
    for streamed in BOTH:
        came = events(kind, spoken, said, report) if streamed else body(kind, spoken, said, report)
        stage.plays(sent(came))
        heard = await stage.ask(client, request(kind, client, spoken, streamed=streamed))
        record = await stage.record()
        assert (record.detail, record.usage) == ("context_length_exceeded", report.means)
        if client is not spoken:
            told = hear(client, heard.body, streamed=streamed)
            assert told.text == "Half a"
            if client is R and streamed:  # Codex compacts after this code, and after no reason to be incomplete
                assert told.error is not None
                assert told.error[1] == "context_length_exceeded"
            else:
                assert (told.stop, told.error) == (FULL[client], None)


@roads(*((kind, client, R) for kind in ("openai", "codex", "azure") for client in (M, R, C)))
async def test_a_context_found_full_inside_a_stream_is_told_all_the_same(
    stage: Stage, kind: str, client: Protocol, spoken: Protocol
) -> None:
    came = overflow_events(usual(kind, spoken))
    stage.plays(sent(came))
    heard = await stage.ask(client, request(kind, client, spoken, streamed=True))
    record = await stage.record()
    assert (record.ending, record.detail) == ("failed", "context_length_exceeded")
    if client is spoken:
        assert heard.body == b"".join(came)
        return
    told = hear(client, heard.body, streamed=True)
    assert told.error is not None
    assert not told.complete
    if client is M:
        assert told.error[0] == "invalid_request_error"
        assert told.error[2].startswith("prompt is too long")
    else:
        assert told.error[1] == "context_length_exceeded"


@EACH_ROAD
async def test_a_rate_limit_keeps_its_status_and_its_retry_after(
    stage: Stage, kind: str, client: Protocol, spoken: Protocol
) -> None:
    said = limited(kind, spoken)
    for streamed in BOTH:
        stage.plays([whole(429, said, "retry-after: 7", "x-ratelimit-remaining-requests: 0")])
        heard = await stage.ask(client, request(kind, client, spoken, streamed=streamed))
        record = await stage.record()
        assert (heard.status, record.status, record.ending) == (429, 429, "failed")
        assert heard.headers["retry-after"] == "7"
        assert heard.headers["x-ratelimit-remaining-requests"] == "0"
        if client is spoken:
            assert heard.body == said
            continue
        error, code, message = hear_error(client, heard.body)
        assert LIMITED in message
        assert error == "rate_limit_error"
        if client is not M:
            assert code == ("usage_limit_reached" if kind == "codex" else "rate_limit_exceeded")


@EACH_ROAD
async def test_an_overload_stays_an_overload(stage: Stage, kind: str, client: Protocol, spoken: Protocol) -> None:
    for status, said in (overloaded(spoken), (529, overloaded(spoken)[1])):
        for streamed in BOTH:
            stage.plays([whole(status, said)])
            heard = await stage.ask(client, request(kind, client, spoken, streamed=streamed))
            assert (await stage.record()).ending == "failed"
            if client is spoken:
                assert (heard.status, heard.body) == (status, said)
                continue
            error, code, message = hear_error(client, heard.body)
            assert BUSY in message
            if client is M:
                assert (heard.status in {status, 529}, error) == (True, "overloaded_error")
            else:
                assert (heard.status, code) == (503, "server_is_overloaded")


# --- answers that begin well ---

ENDS = (b"message_stop", b"response.completed", b"response.incomplete", b"[DONE]", b'"finish_reason":"stop"')
RETRIED = {"server_error", "slow_down"}
"""Codes after which Codex asks again; it takes `server_is_overloaded` inside a stream for final."""


ENDED_BY_A_REASON = {"deepseek", "zai", "sglang"}
"""These break off with a reason to finish."""


@roads(*ROADS)
async def test_an_error_in_the_middle_of_a_stream_is_never_a_clean_end(
    stage: Stage, kind: str, client: Protocol, spoken: Protocol
) -> None:
    came = broken_off(kind, spoken, usual(kind, spoken))
    stage.plays(sent(came))
    heard = await stage.ask(client, request(kind, client, spoken, streamed=True))
    record = await stage.record()
    assert (heard.status, record.ending) == (200, "failed")
    if spoken is M:
        assert record.usage.input_total == (None if kind == "zai" else TOTAL), "what was told before the error counts"
    if client is spoken:
        assert heard.body == b"".join(came)
        return
    told = hear(client, heard.body, streamed=True)
    assert not told.complete
    assert told.error is not None
    assert not [end for end in ENDS if end in heard.body]
    assert TEXT.text.startswith(told.text)
    assert told.text
    if client is M:
        assert told.error[0] in {"overloaded_error", "api_error"}
    if client is R:
        assert told.error[1] in RETRIED


@roads(*ROADS)
async def test_an_error_inside_a_good_answer_is_an_error(
    stage: Stage, kind: str, client: Protocol, spoken: Protocol
) -> None:
    came = broken_body(kind, spoken)
    stage.plays([whole(200, came)])
    heard = await stage.ask(client, request(kind, client, spoken, streamed=False))
    assert (await stage.record()).ending == "failed"
    if client is spoken:
        assert (heard.status, heard.body) == (200, came)
        return
    assert heard.status >= 500
    hear_error(client, heard.body)


CUTS: Mapping[str, Script] = {
    "a clean end of file": [chunk(b"")],
    "a clean end inside an event": [chunk(b"event: x\nda"), chunk(b"")],
    "a closed connection": [Step.CLOSE],
}


@EACH_ROAD
@pytest.mark.parametrize("said", [TEXT, ONE_CALL], ids=["text", "call"])
async def test_a_stream_that_is_cut_is_never_a_clean_end(
    stage: Stage, kind: str, client: Protocol, spoken: Protocol, said: Said
) -> None:
    came = before_the_end(events(kind, spoken, said, usual(kind, spoken)), spoken)
    for how, end in CUTS.items():
        stage.plays([stream_head(), *(chunk(event) for event in came), *end])
        heard = await stage.ask(client, request(kind, client, spoken, streamed=True))
        assert ((await stage.record()).ending, heard.status) == ("failed", 200), how
        assert heard.body.endswith(b"\n\n")
        assert b"event: x" not in heard.body, "half an event would spoil the one that says what happened"
        begun = b"".join(came)
        assert client is not spoken or heard.body.startswith(begun)
        rest = heard.body[len(begun) :] if client is spoken else heard.body
        assert not [end for end in ENDS if end in rest]
        assert b'"error"' in rest
        if client is not spoken:
            told = hear(client, heard.body, streamed=True)
            assert not told.complete
            assert told.error is not None
            assert told.calls == (), "half a call is none"


@EACH_ROAD
async def test_half_an_answer_is_no_answer(stage: Stage, kind: str, client: Protocol, spoken: Protocol) -> None:
    came = body(kind, spoken, TEXT, usual(kind, spoken))
    stage.plays([whole(200, came)[:-10], Step.CLOSE])
    heard = await stage.ask(client, request(kind, client, spoken, streamed=False))
    assert ((await stage.record()).ending, heard.status) == ("failed", 502)
    assert "broke off" in hear_error(client, heard.body)[2]


# --- a caller who leaves ---


@EACH_ROAD
async def test_a_caller_who_leaves_before_the_first_byte_stops_the_provider(
    stage: Stage, kind: str, client: Protocol, spoken: Protocol
) -> None:
    for streamed in BOTH:
        await leave_before_the_first_byte(stage, client, request(kind, client, spoken, streamed=streamed))


@EACH_ROAD
async def test_a_caller_who_leaves_in_the_middle_stops_the_provider(
    stage: Stage, kind: str, client: Protocol, spoken: Protocol
) -> None:
    report = usual(kind, spoken)
    begun = before_the_end(events(kind, spoken, TEXT, report), spoken)
    await leave_a_stream(stage, client, request(kind, client, spoken, streamed=True), begun)
    half = whole(200, body(kind, spoken, TEXT, report))[:-10]
    await leave_half_an_answer(stage, client, request(kind, client, spoken, streamed=False), half)
