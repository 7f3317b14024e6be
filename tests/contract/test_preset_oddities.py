"""What providers do now and then beside their documents, held by every preset: nobody gets lost over it."""

import pytest

from cachegate.guard.usage import Usage
from cachegate.wire.facts import Protocol
from contract.preset_answers import MANNERS, TEXT, body, events
from contract.preset_clients import asking, hear, hear_error
from contract.preset_facts import FACTS, ROADS, C, M
from contract.preset_roads import roads
from contract.preset_stage import Stage, bound, sent
from contract.preset_troubles import (
    LIMITED,
    OVERFLOWS_ELSEWHERE,
    REFUSALS,
    limited,
    overflow,
    refusal,
)
from contract.preset_usage import usual
from scripted_upstream import chunk, stream_head, whole

pytestmark = pytest.mark.asyncio(loop_scope="module")

EACH_ROAD = roads(*ROADS)
BOTH = (True, False)
"""Streamed, and not."""


def request(kind: str, client: Protocol, spoken: Protocol, *, streamed: bool, **more: object) -> bytes:
    return asking(client, f"{bound(kind, spoken)}/model-of-the-client", streamed=streamed, **more)


@roads(*(road for road in ROADS if road[0] in REFUSALS))
async def test_a_refusal_that_comes_as_an_error_is_observed_as_a_refusal(
    stage: Stage, kind: str, client: Protocol, spoken: Protocol
) -> None:
    status, said = refusal(kind, spoken)
    stage.plays([whole(status, said)])
    heard = await stage.ask(client, request(kind, client, spoken, streamed=True))
    record = await stage.record()
    assert (heard.status, record.ending, record.usage) == (status, "refused", Usage())
    if client is not spoken:
        assert REFUSALS[kind][1]["message"] in hear_error(client, heard.body)[2]


@EACH_ROAD
@pytest.mark.parametrize("status", [400, 413, 500])
async def test_an_error_without_a_body_is_an_error(
    stage: Stage, kind: str, client: Protocol, spoken: Protocol, status: int
) -> None:
    stage.plays([whole(status, b"", content_type="text/plain")])
    heard = await stage.ask(client, request(kind, client, spoken, streamed=True))
    record = await stage.record()
    assert (heard.status, record.ending) == (status, "failed")
    if client is not spoken:
        assert hear_error(client, heard.body)[2]


@EACH_ROAD
async def test_an_error_under_the_content_type_of_a_stream_is_told_as_an_error(
    stage: Stage, kind: str, client: Protocol, spoken: Protocol
) -> None:
    said = limited(kind, spoken)
    stage.plays([whole(429, said, content_type="text/event-stream")])
    heard = await stage.ask(client, request(kind, client, spoken, streamed=True))
    record = await stage.record()
    assert (heard.status, record.status, record.ending) == (429, 429, "failed")
    if client is spoken:
        assert heard.body == said
    else:
        assert LIMITED in hear_error(client, heard.body)[2]


@roads(*(road for road in ROADS if road[0] not in {*OVERFLOWS_ELSEWHERE, "qwen"}))
async def test_a_full_context_under_the_content_type_of_a_stream_is_found(
    stage: Stage, kind: str, client: Protocol, spoken: Protocol
) -> None:
    status, said = overflow(kind, spoken)
    stage.plays([whole(status, said, content_type="text/event-stream")])
    heard = await stage.ask(client, request(kind, client, spoken, streamed=True))
    assert ((await stage.record()).detail, heard.status) == ("context_length_exceeded", 400)
    if client is not spoken:
        _, code, message = hear_error(client, heard.body)
        assert "prompt is too long" in message if client is M else code == "context_length_exceeded"


@roads(
    *((kind, C, C) for kind, facts in FACTS.items() if C in facts.paths),
)
async def test_a_chat_client_that_asked_for_no_usage_is_told_the_rest(
    stage: Stage, kind: str, client: Protocol, spoken: Protocol
) -> None:
    report = usual(kind, spoken)
    came = events(kind, spoken, TEXT, report)
    data = request(kind, client, spoken, streamed=True, stream_options={"include_usage": False})
    stage.plays(sent(came))
    heard = await stage.ask(client, data)
    assert (await stage.record()).usage == report.means
    assert heard.body == b"".join(event for event in came if event not in usage_of(came, kind))


def usage_of(came: list[bytes], kind: str) -> list[bytes]:
    """The event of a Chat stream that says nothing but its usage, where there is one."""
    if MANNERS[kind].usage != "behind":
        return []
    return came[-2:-1] if MANNERS[kind].done else came[-1:]


@roads(
    *((kind, client, C) for kind, facts in FACTS.items() if C in facts.paths for client in Protocol),
)
async def test_lines_may_end_in_both_ways(stage: Stage, kind: str, client: Protocol, spoken: Protocol) -> None:
    report = usual(kind, spoken)
    came = [event.replace(b"\n", b"\r\n") for event in events(kind, spoken, TEXT, report)]
    stage.plays([stream_head(), chunk(b"".join(came)), chunk(b"")])
    unasked = {"stream_options": None} if client is C else {}
    heard = await stage.ask(client, request(kind, client, spoken, streamed=True, **unasked))
    record = await stage.record()
    assert (record.ending, record.usage) == ("completed", report.means)
    if client is spoken:
        assert heard.body == b"".join(event for event in came if event not in usage_of(came, kind))
    else:
        assert hear(client, heard.body, streamed=True).text == TEXT.text


@roads(*(road for road in ROADS if road[1] is not road[2]))
async def test_a_whole_answer_to_a_request_for_a_stream(
    stage: Stage, kind: str, client: Protocol, spoken: Protocol
) -> None:
    report = usual(kind, spoken)
    stage.plays(sent(body(kind, spoken, TEXT, report)))
    heard = await stage.ask(client, request(kind, client, spoken, streamed=True))
    assert ((await stage.record()).usage, heard.status) == (report.means, 200)
    assert heard.headers["content-type"] == "application/json"
    assert hear(client, heard.body, streamed=False).text == TEXT.text
