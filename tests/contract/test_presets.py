"""The contract of a preset, held by every row in every protocol: where it is asked, what is told, what is observed."""

import json
from collections.abc import Mapping

import pytest

from cachegate.wire.facts import Protocol
from contract.preset_answers import (
    EXPLANATION,
    ONE_CALL,
    PARALLEL,
    REFUSAL,
    TEXT,
    THOUGHTS,
    Said,
    body,
    call_id,
    events,
    shows_thoughts,
)
from contract.preset_clients import Call, Told, asking, hear, hear_error
from contract.preset_facts import FACTS, ROADS, VERSION, C, M, R
from contract.preset_roads import roads
from contract.preset_stage import (
    CREDENTIALS,
    FOREIGN,
    GATEWAY_KEY,
    THREAD,
    THREAD_HEADER,
    Stage,
    bound,
    decoded,
    sent,
)
from contract.preset_usage import OUTPUT, REPORTS, Report, usual

pytestmark = pytest.mark.asyncio(loop_scope="module")

EACH_KIND = pytest.mark.parametrize("kind", FACTS)
EACH_ROAD = roads(*ROADS)
EACH_CLIENT = pytest.mark.parametrize("client", Protocol, ids=[protocol.value for protocol in Protocol])
BOTH = (True, False)
"""Streamed, and not."""


def model_of(kind: str, spoken: Protocol | None = None) -> str:
    return f"{bound(kind, spoken)}/model-of-the-client"


def answering(kind: str, spoken: Protocol, said: Said, report: Report, *, streamed: bool) -> bytes | list[bytes]:
    return events(kind, spoken, said, report) if streamed else body(kind, spoken, said, report)


# --- where a provider is asked ---


@EACH_KIND
@EACH_CLIENT
async def test_a_provider_is_asked_at_its_own_place_with_its_own_key(stage: Stage, kind: str, client: Protocol) -> None:
    facts = FACTS[kind]
    spoken = facts.asked_in(client)
    for streamed in BOTH:
        stage.plays(sent(answering(kind, spoken, TEXT, usual(kind, spoken), streamed=streamed)))
        named = {**CREDENTIALS, "anthropic-beta": "a-beta-2026", THREAD_HEADER[client]: THREAD}
        heard = await stage.ask(client, asking(client, model_of(kind), streamed=streamed), named)
        assert (heard.status, (await stage.record()).ending) == (200, "completed")
        asked = stage.asked
        assert (asked.method, asked.target) == ("POST", f"/{kind}{facts.path(spoken)}")
        assert decoded(asked)["model"] == "model-of-the-client"
        headers = {name.lower(): value for name, value in asked.headers}
        assert len(headers) == len(asked.headers), "no header twice"
        assert {name for name in headers if name in CREDENTIALS} == {facts.signed[0]}
        assert headers[facts.signed[0]] == facts.signed[1]
        assert not [name for name, value in asked.headers if FOREIGN in value or GATEWAY_KEY in value]
        assert ("anthropic-beta" in headers) == (kind == "anthropic" and client is M), "others refuse unknown betas"
        if client is not spoken:
            assert headers.items() >= (facts.fixed or {}).items()
            assert THREAD not in headers.values(), "another protocol's header means nothing there"
            assert not headers.keys() & VERSION.keys() - (facts.fixed or {}).keys()
        assert {name for name in ("x-session-id", "x-grok-conv-id") if name in headers} == {facts.affinity} - {""}


@EACH_KIND
@EACH_CLIENT
async def test_without_a_key_a_clients_own_goes_to_nobody_who_speaks_another_protocol(
    keyless_stage: Stage, kind: str, client: Protocol
) -> None:
    facts, stage = FACTS[kind], keyless_stage
    spoken = facts.asked_in(client)
    stage.plays(sent(body(kind, spoken, TEXT, usual(kind, spoken))))
    heard = await stage.ask(client, asking(client, model_of(kind), streamed=False))
    await stage.record()
    if client is not spoken and facts.variable:
        assert (heard.status, stage.upstream.requests) == (400, [])
        assert facts.variable in hear_error(client, heard.body)[2], "the remedy"
        return
    assert heard.status == 200
    sent_up = {name.lower(): value for name, value in stage.asked.headers}
    keys = {"authorization": f"Bearer {FOREIGN}", "x-api-key": FOREIGN, "api-key": FOREIGN, "x-goog-api-key": FOREIGN}
    assert {name: value for name, value in sent_up.items() if FOREIGN in value} == (keys if client is spoken else {})
    assert GATEWAY_KEY not in sent_up.values()


@EACH_KIND
@pytest.mark.parametrize("name", ["authorization", "x-api-key", "x-cachegate-key"])
async def test_the_key_of_this_gateway_never_goes_up(keyless_stage: Stage, kind: str, name: str) -> None:
    stage = keyless_stage
    for spoken in FACTS[kind].paths:
        stage.plays(sent(body(kind, spoken, TEXT, usual(kind, spoken))))
        key = f"Bearer {GATEWAY_KEY}" if name == "authorization" else GATEWAY_KEY
        heard = await stage.ask(spoken, asking(spoken, model_of(kind, spoken), streamed=False), {name: key})
        await stage.record()
        assert heard.status == 200
        assert not [value for _, value in stage.asked.headers if GATEWAY_KEY in value]


# --- what is told and observed ---

STOPS: Mapping[Protocol, tuple[str, str]] = {
    M: ("end_turn", "tool_use"),
    R: ("completed", "completed"),
    C: ("stop", "tool_calls"),
}
"""In the words of each protocol: a plain end, and one with calls."""
SAID = {"text": TEXT, "one call": ONE_CALL, "parallel calls": PARALLEL, "thoughts": THOUGHTS}


@EACH_ROAD
@pytest.mark.parametrize("name", SAID)
async def test_what_the_model_says_is_told_in_the_clients_protocol(
    stage: Stage, kind: str, client: Protocol, spoken: Protocol, name: str
) -> None:
    said, report = SAID[name], usual(kind, spoken)
    for streamed in BOTH:
        came = answering(kind, spoken, said, report, streamed=streamed)
        stage.plays(sent(came))
        heard = await stage.ask(client, asking(client, model_of(kind, spoken), streamed=streamed))
        record = await stage.record()
        assert (heard.status, record.status, record.ending, record.detail) == (200, 200, "completed", "")
        assert (record.provider, record.usage) == (bound(kind, spoken), report.means)
        assert decoded(stage.asked).get("stream", False) is streamed
        if client is spoken:
            assert heard.body == (b"".join(came) if isinstance(came, list) else came)
            continue
        told = hear(client, heard.body, streamed=streamed)
        assert told == expected(kind, client, spoken, said, told)
        assert (told.usage, told.output_tokens) == (report.means, OUTPUT)


def expected(kind: str, client: Protocol, spoken: Protocol, said: Said, told: Told) -> Told:
    """What a client must make of the answer; `told` lends what is checked elsewhere."""
    ids = [call_id(kind, spoken, number) for number in range(len(said.calls))]
    calls = tuple(
        Call(known, name, json.loads(arguments)) for known, (name, arguments) in zip(ids, said.calls, strict=True)
    )
    thought = said.thought if shows_thoughts(kind, spoken) else ""
    stop = STOPS[client][1 if calls else 0]
    return Told(said.text, thought, "", calls, stop, told.usage, told.output_tokens)


@EACH_ROAD
async def test_a_refusal_is_told_and_observed(stage: Stage, kind: str, client: Protocol, spoken: Protocol) -> None:
    report = usual(kind, spoken)
    for streamed in BOTH:
        stage.plays(sent(answering(kind, spoken, REFUSAL, report, streamed=streamed)))
        heard = await stage.ask(client, asking(client, model_of(kind, spoken), streamed=streamed))
        record = await stage.record()
        assert (heard.status, record.ending, record.usage) == (200, "refused", report.means)
        if client is not spoken:
            told = hear(client, heard.body, streamed=streamed)
            assert told.refused, told
            assert told.text + told.refusal in {REFUSAL.text, REFUSAL.text + EXPLANATION}
            assert told.usage == report.means


@roads(*ROADS)
async def test_usage_is_read_in_the_providers_own_spelling(
    stage: Stage, kind: str, client: Protocol, spoken: Protocol
) -> None:
    for report in REPORTS[spoken][kind].values():
        for streamed in BOTH:
            stage.plays(sent(answering(kind, spoken, TEXT, report, streamed=streamed)))
            heard = await stage.ask(client, asking(client, model_of(kind, spoken), streamed=streamed))
            assert (await stage.record()).usage == report.means
            if client is not spoken:
                assert hear(client, heard.body, streamed=streamed).usage == report.means
