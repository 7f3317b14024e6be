"""The auxiliary classifier on the gateway's own road: its own budget, nothing invented, and nothing of it kept."""

import asyncio
import gzip
import json
import logging
from typing import Any

import aiohttp
import pytest

from cachegate.auxiliary import ANSWER_BYTES_MAX, Collected
from cachegate.guard.machine import Ending
from cachegate.guard.usage import Usage
from cachegate.wire.answer import Answer
from cachegate.wire.facts import Protocol
from cachegate.wire.protocols import DIALECTS
from provider_streams import COLD, SILENT, WARM, request
from running_gateway import RunningGateway, config_for, running_gateway
from scripted_upstream import Script, ScriptedUpstream, Step, chunk, stream, stream_head, whole
from wire.recordings.claude_code import CLAUDE_CODE
from wire.recordings.recorded import Recorded

PATH = "/v1/auxiliary/classify"
ANTHROPIC = {"anthropic-version": "2023-06-01", "x-api-key": "mine"}
SUBJECT = {"tool": {"name": "Bash", "input": {"command": "make"}}}
LARGE = [{"role": "tool", "text": "x" * 150_000}] * 2
"""Together more than 262,144 bytes, and for the embedded provider more than 65,536 tokens."""
NATIVE = next(recorded for recorded in CLAUDE_CODE if recorded.name == "claude classifier")


def question(**fields: Any) -> dict[str, Any]:
    return {"model": "model-x", "subject": SUBJECT, **fields}


COLD_BODY, WARM_BODY = (
    DIALECTS[Protocol.MESSAGES].writer.whole(Answer("a1", "model-x", 1, ("<block>no",), usage, 7))
    for usage in (COLD, WARM)
)


async def _send(gateway: RunningGateway, recorded: Recorded) -> int:
    body = {**recorded.body, "stream": False}
    async with gateway.client.post(f"{gateway.url}/v1/messages", json=body, headers=recorded.headers) as response:
        return response.status


async def ask(
    gateway: RunningGateway, asked: dict[str, Any] | bytes, path: str = PATH, **headers: str
) -> tuple[int, dict[str, Any], aiohttp.ClientResponse]:
    data = asked if isinstance(asked, bytes) else json.dumps(asked).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with gateway.client.post(gateway.url + path, data=data, headers=named) as response:
        return response.status, json.loads(await response.read()), response


def events(text: str = "ALLOW\nIt only builds.", usage: Usage = COLD, *, refused: bool = False) -> list[bytes]:
    told = Answer("a1", "model-x", 1_700_000_000, (text,), usage, 7, refused)
    return DIALECTS[Protocol.MESSAGES].writer.stream(told)


def answers(text: str = "ALLOW\nIt only builds.", usage: Usage = COLD, *, refused: bool = False) -> Script:
    return stream(b"".join(events(text, usage, refused=refused)))


async def test_a_question_is_one_streamed_request_and_its_answer_a_decision(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.answer = lambda _: answers(usage=WARM)
    status, told, response = await ask(gateway, question(policy="Build freely.", transcript=LARGE), **ANTHROPIC)
    counts = {"inputTokens": 201_000, "cachedTokens": 200_000, "cacheWriteTokens": 1_000, "uncachedTokens": 1_000}
    assert (status, told) == (200, {"decision": "allow", "reason": "It only builds.", "usage": counts})
    assert response.headers["content-type"] == "application/json"
    assert len(upstream.requests) == 1
    sent = upstream.requests[0]
    assert (sent.method, sent.target) == ("POST", "/v1/messages")
    fields = json.loads(sent.body)
    assert (fields["model"], fields["stream"]) == ("model-x", True)
    assert '"command": "make"' in fields["messages"][-1]["content"][-1]["text"]
    record = gateway.records[0]
    assert (record.path, record.status, record.ending, record.usage) == (PATH, 200, "completed", WARM)
    assert record.guard is not None
    assert (record.guard.mode, record.guard.outcome, record.guard.reason) == ("auxiliary", "allowed", "reuse")


async def test_the_callers_own_credentials_pass_and_nothing_of_its_conversation(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.answer = lambda _: answers()
    zipped = gzip.compress(json.dumps(question()).encode())
    await ask(
        gateway, zipped, f"{PATH}?beta=true", content_encoding="gzip", authorization="Bearer mine",
        user_agent="agent/1", x_claude_code_session_id="s1", x_claude_code_request_class="main",
        anthropic_beta="a,b", content_type="text/x",
    )  # fmt: skip
    sent = upstream.requests[0]
    passed = {name: sent.header(name) for name in ("authorization", "user-agent", "anthropic-beta")}
    assert passed == {"authorization": "Bearer mine", "user-agent": "agent/1", "anthropic-beta": "a,b"}
    assert (sent.header("content-type"), sent.header("accept")) == ("application/json", "text/event-stream")
    assert sent.header("anthropic-version") == "2023-06-01"
    assert not [
        name for name, _ in sent.headers if name.lower().startswith("x-claude") or "content-enc" in name.lower()
    ]
    assert sent.target == "/v1/messages"
    assert json.loads(sent.body)["model"] == "model-x"


async def test_the_version_that_a_caller_names_is_kept(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    upstream.answer = lambda _: answers()
    await ask(gateway, question(), Anthropic_Version="2024-01-01")
    assert [value for name, value in upstream.requests[0].headers if name.lower() == "anthropic-version"] == [
        "2024-01-01"
    ]


async def test_the_configured_model_is_asked_where_the_question_names_none(upstream: ScriptedUpstream) -> None:
    upstream.answer = lambda _: answers()
    asked = {"subject": SUBJECT}
    async with running_gateway(config_for(upstream.url, auxiliary={"model": "anthropic/small"})) as gateway:
        assert (await ask(gateway, asked))[0] == 200
        assert (await ask(gateway, question()))[0] == 200
    assert [json.loads(sent.body)["model"] for sent in upstream.requests] == ["small", "model-x"]
    async with running_gateway(config_for(upstream.url)) as gateway:
        status, told, _ = await ask(gateway, asked)
    assert (status, told["error"]["code"]) == (400, None)
    assert told["error"]["message"].startswith("model: the question names no model")


@pytest.mark.parametrize("anthropic", [True, False])
async def test_an_error_names_the_field_in_the_askers_shape(
    gateway: RunningGateway, upstream: ScriptedUpstream, *, anthropic: bool
) -> None:
    for asked, words in (
        (question(subject={"tool": {"name": "Bash"}}), "subject.tool.input: is missing"),
        (question(model="m" * 300), "model: the name has 300 characters"),
        (question(model="nowhere/x", verdict="allow"), "verdict: there is no such field"),
        (b"[1]", "The request body is JSON, but not an object"),
    ):
        status, told, _ = await ask(gateway, asked, **(ANTHROPIC if anthropic else {}))
        assert (status, told["error"]["type"]) == (400, "invalid_request_error")
        assert words in told["error"]["message"]
        assert ("type" in told, "param" in told["error"]) == (anthropic, not anthropic)
    assert upstream.requests == []
    assert {(record.ending, record.detail) for record in gateway.records} == {("rejected", "invalid")}


async def test_a_model_that_nobody_has_is_a_clear_error(upstream: ScriptedUpstream) -> None:
    async with running_gateway(config_for(upstream.url, providers={"synthetic": {"kind": "synthetic"}})) as gateway:
        status, told, _ = await ask(gateway, question())
    assert status == 400
    assert told["error"]["message"].startswith("model: nothing is configured for 'model-x'")
    assert [record.ending for record in gateway.records] == ["rejected"]


# --- budgets (R4) ---


def chat(model: str, **headers: str) -> tuple[dict[str, Any], dict[str, str]]:
    body = {"model": model, "max_tokens": 9, "messages": [{"role": "user", "content": "x" * 300_000}]}
    return body, {"x_claude_code_session_id": "s1", **headers}


async def test_the_third_cold_question_is_stopped_and_no_chat_with_it_r4(gateway: RunningGateway) -> None:
    cold = question(model="synthetic/cold", transcript=LARGE)
    body, headers = chat("synthetic/cold")
    for command in ("make", "make test"):
        asked = {**cold, "subject": {"tool": {"name": "Bash", "input": command}}}
        asked["transcript"] = [{"role": "user", "text": command}, *LARGE]
        status, told, _ = await ask(gateway, asked, x_claude_code_session_id="s1")
        assert (status, told["decision"]) == (200, "ask"), "the embedded provider says no clear word"
        assert told["usage"]["cachedTokens"] == 0
    status, told, response = await ask(gateway, {**cold, "subject": {"turn": "A third one."}})
    assert status == 400
    assert "decision" not in told
    assert told["error"]["code"] == "invalid_prompt"
    assert "Please wait 5 minutes" in told["error"]["message"]
    assert response.headers["x-should-retry"] == "false"
    assert (gateway.records[-1].ending, gateway.records[-1].status) == ("stopped", 400)
    status, _, _ = await ask(gateway, body, "/v1/messages", **headers)
    assert status == 200
    status, _, _ = await ask(gateway, body, "/v1/messages", **{**headers, "x_claude_code_request_class": "compaction"})
    assert status == 200
    assert gateway.decisions == [
        ("allowed", "miss", 1), ("allowed", "miss", 2), ("blocked", "measured", 2),
        ("allowed", "miss", 1), ("allowed", "miss", 1),
    ]  # fmt: skip


async def test_a_stop_has_the_askers_shape(gateway: RunningGateway) -> None:
    for _ in range(3):
        status, told, _ = await ask(gateway, question(model="synthetic/cold", transcript=LARGE), **ANTHROPIC)
    assert (status, told["type"], told["error"]["type"]) == (400, "error", "billing_error")


async def test_a_stopped_chat_stops_no_question_and_a_warm_question_clears_no_chat_r4(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    body, headers = chat("model-x")
    upstream.answer = lambda _: answers(usage=COLD)
    for expected in (200, 200, 400):
        async with gateway.client.post(
            f"{gateway.url}/v1/messages", json={**body, "stream": True}, headers={"x-session-id": "s1"}
        ) as response:
            assert response.status == expected
    upstream.answer = lambda _: answers(usage=WARM)
    for headers in ({"x_session_id": "s1"}, {"x_session_id": "s1", "x_claude_code_request_class": "compaction"}):
        assert (await ask(gateway, question(transcript=LARGE), **headers))[0] == 200
    async with gateway.client.post(
        f"{gateway.url}/v1/messages", json={**body, "stream": True}, headers={"x-session-id": "s1"}
    ) as response:
        assert response.status == 400
    assert gateway.decisions == [
        ("allowed", "miss", 1), ("allowed", "miss", 2), ("blocked", "measured", 2),
        ("allowed", "reuse", 0), ("allowed", "reuse", 0), ("blocked", "measured", 2),
    ]  # fmt: skip
    assert len(gateway.store) == 2


@pytest.mark.parametrize(
    "headers",
    [{"x_claude_code_request_class": "compaction"}, {"x_claude_code_compaction": "auto"}, {"session_id": "s"}],
)
async def test_no_header_takes_a_question_out_of_its_budget_r4(
    gateway: RunningGateway, headers: dict[str, str]
) -> None:
    cold = question(model="synthetic/cold", transcript=LARGE)
    for _ in range(2):
        await ask(gateway, cold)
    assert (await ask(gateway, cold, **headers))[0] == 400
    assert {record.guard.mode for record in gateway.records if record.guard} == {"auxiliary"}


async def test_claude_codes_own_classifier_has_the_same_budget_r4(gateway: RunningGateway) -> None:
    """Two questions here and the third from Claude Code, whose request is recognised on `/v1/messages`."""
    for _ in range(2):
        await ask(gateway, question(model="synthetic/cold", transcript=LARGE))
    native = {**NATIVE.body, "model": "synthetic/cold"}
    native["messages"] = [{"role": "user", "content": "<transcript>" + "x" * 300_000}]
    headers = {name.replace("-", "_"): value for name, value in NATIVE.headers.items()}
    assert (await ask(gateway, native, "/v1/messages", **headers))[0] == 400
    assert (await ask(gateway, {**native, "model": "synthetic/warm"}, "/v1/messages", **headers))[0] == 200
    assert len(gateway.store) == 2, "one budget per provider and model"


@pytest.mark.parametrize(
    "name",
    [
        "claude classifier",
        "claude classifier, the transcript in messages of its own",
        "claude classifier in other words, told by its beta",
        "claude review of a sub-agent",
    ],
)
async def test_claude_codes_classifier_and_its_chat_never_stop_each_other_r4(
    gateway: RunningGateway, upstream: ScriptedUpstream, name: str
) -> None:
    upstream.answer = lambda _: [whole(200, COLD_BODY)]
    recorded = {recorded.name: recorded for recorded in CLAUDE_CODE}
    kinds = [name] * 3 + ["claude main"] * 3 + ["claude compaction"]
    statuses = [await _send(gateway, recorded[kind]) for kind in kinds]
    assert statuses == [200, 200, 400, 200, 200, 400, 200]
    upstream.answer = lambda _: [whole(200, WARM_BODY)]
    assert await _send(gateway, recorded["claude sub-agent"]) == 200
    assert [await _send(gateway, recorded[kind]) for kind in (name, "claude main")] == [400, 400]
    modes = [record.guard.mode for record in gateway.records if record.guard]
    assert modes == ["auxiliary"] * 3 + ["chat"] * 3 + ["compaction", "chat", "auxiliary", "chat"]


async def test_a_small_question_is_no_concern_of_the_guards(gateway: RunningGateway) -> None:
    for _ in range(4):
        assert (await ask(gateway, question(model="synthetic/cold")))[0] == 200
    assert {decision[1] for decision in gateway.decisions} == {"neutral"}


# --- failures are told as failures ---


async def test_a_stream_that_fails_later_has_counted_r5(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    """The provider's count comes first; that the answer broke loses nothing of it."""
    begun = events()[:2]
    error = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"busy"}}\n\n'
    ways: list[tuple[Script, int]] = [
        ([stream_head(), chunk(b"".join(begun)), Step.RESET], 502),
        (stream(b"".join(begun) + error), 529),
    ]
    for script, expected in ways:
        upstream.answer = lambda _, script=script: script  # type: ignore[misc]
        status, told, _ = await ask(gateway, question(), **ANTHROPIC)
        assert status == expected
        assert "decision" not in told
        assert (gateway.records[-1].usage, gateway.records[-1].status) == (COLD, expected)
    assert (await ask(gateway, question()))[0] == 400
    assert gateway.decisions == [("allowed", "miss", 1), ("allowed", "miss", 2), ("blocked", "measured", 2)]
    assert len(upstream.requests) == 2


async def test_what_the_provider_does_not_report_stays_unknown_r5(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.answer = lambda _: answers(usage=SILENT)
    _, told, _ = await ask(gateway, question())
    assert told["usage"] == {
        "inputTokens": 200_000, "cachedTokens": None, "cacheWriteTokens": None, "uncachedTokens": None,
    }  # fmt: skip
    await ask(gateway, question())
    assert (await ask(gateway, question()))[0] == 400
    assert gateway.decisions[-1] == ("blocked", "unreported", 2)
    upstream.answer = lambda _: answers(usage=Usage())
    _, told, _ = await ask(gateway, question(model="another"))
    assert set(told["usage"].values()) == {None}


async def test_a_refusal_is_told_as_one_r17(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    upstream.answer = lambda _: answers("ALLOW", refused=True)
    status, told, _ = await ask(gateway, question())
    assert (status, told["error"]["code"]) == (400, "content_filter")
    assert told["error"]["message"].startswith("The model refused to classify this")
    assert "decision" not in told
    assert (gateway.records[0].ending, gateway.records[0].status) == ("refused", 400)
    assert gateway.decisions == [("allowed", "miss", 1)]


async def test_a_providers_error_keeps_its_status_and_when_to_come_back(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    error = b'{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}'
    upstream.answer = lambda _: [whole(429, error, "retry-after: 7", "x-secret: 1")]
    status, told, response = await ask(gateway, question())
    assert (status, told["error"]["message"]) == (429, "slow down")
    assert response.headers["retry-after"] == "7"
    assert "x-secret" not in response.headers
    status, told, _ = await ask(gateway, question(), **ANTHROPIC)
    assert (status, told["error"]["type"]) == (429, "rate_limit_error")
    assert [record.status for record in gateway.records] == [429, 429]


async def test_an_upstream_that_nobody_runs_is_a_502_and_counts_nothing_r19() -> None:
    async with running_gateway(config_for("http://127.0.0.1:9")) as gateway:
        status, told, _ = await ask(gateway, question(transcript=LARGE))
    assert status == 502
    assert "could not be reached" in told["error"]["message"]
    assert gateway.decisions == [("allowed", "not_sent", 0)]


async def test_an_answer_that_is_not_streamed_is_read_all_the_same(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    told = Answer("a1", "model-x", 1, ("DENY\nNo.",), WARM, 7)
    upstream.answer = lambda _: [whole(200, DIALECTS[Protocol.MESSAGES].writer.whole(told))]
    status, said, _ = await ask(gateway, question())
    assert (status, said["decision"], said["usage"]["cachedTokens"]) == (200, "deny", 200_000)


async def test_another_protocols_provider_is_asked_through_the_translation(upstream: ScriptedUpstream) -> None:
    told = Answer("a1", "model-x", 1, ("ASK\nPerhaps.",), Usage(200_000, 150_000), 7)
    upstream.answer = lambda _: stream(b"".join(DIALECTS[Protocol.RESPONSES].writer.stream(told)))
    openai = {"kind": "openai", "baseUrl": f"{upstream.url}/v1", "apiKey": "sk-1"}
    async with running_gateway(config_for(upstream.url, providers={"openai": openai})) as gateway:
        status, said, _ = await ask(gateway, question(model="openai/gpt-x"), authorization="Bearer mine")
    assert (status, said["decision"], said["usage"]["cachedTokens"]) == (200, "ask", 150_000)
    assert said["usage"]["cacheWriteTokens"] is None
    assert upstream.requests[0].target == "/v1/responses"
    assert upstream.requests[0].header("authorization") == "Bearer sk-1"


async def test_the_next_provider_is_asked_when_the_first_did_not_begin(upstream: ScriptedUpstream) -> None:
    upstream.answer = lambda sent: [whole(503, b"{}")] if b'"one"' in sent.body else answers()
    config = config_for(upstream.url, models={"model-x": ["anthropic/one", "anthropic/two"]})
    async with running_gateway(config) as gateway:
        status, told, _ = await ask(gateway, question())
    assert (status, told["decision"]) == (200, "allow")
    assert [(record.model, record.ending, record.status) for record in gateway.records] == [
        ("one", "failed", 0), ("two", "completed", 200),
    ]  # fmt: skip


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set when something of an answer has arrived; the caller itself hears nothing before the end."""
    event, send = asyncio.Event(), Collected.send

    async def watched(collected: Collected, data: bytes) -> None:
        await send(collected, data)
        event.set()

    monkeypatch.setattr(Collected, "send", watched)
    return event


async def test_a_caller_who_leaves_stops_the_upstream_r14(
    gateway: RunningGateway, upstream: ScriptedUpstream, begun: asyncio.Event
) -> None:
    upstream.answer = lambda _: [stream_head(), chunk(b"".join(events()[:2])), Step.HANG]
    asking = asyncio.create_task(ask(gateway, question()))
    await asyncio.wait_for(begun.wait(), 5)
    running = tuple(gateway.app.lifecycle.running)
    asking.cancel()
    await asyncio.wait_for(upstream.requests[0].closed.wait(), 5)
    await asyncio.wait(running, timeout=5)
    assert [(record.ending, record.status, record.usage) for record in gateway.records] == [("cancelled", 0, COLD)]
    assert gateway.decisions == [("excused", "cancelled", 0)]


@pytest.mark.parametrize("begins", [True, False])
async def test_a_shutdown_is_told_and_no_cancellation_of_the_callers_r14(
    upstream: ScriptedUpstream, begun: asyncio.Event, *, begins: bool
) -> None:
    first = [stream_head(), chunk(b"".join(events()[:2]))] if begins else []
    upstream.answer = lambda _: [*first, Step.HANG]
    async with running_gateway(config_for(upstream.url)) as gateway:
        asking = asyncio.create_task(ask(gateway, question(transcript=LARGE)))
        await (asyncio.wait_for(begun.wait(), 5) if begins else upstream.count(1))
        await gateway.app.close()
        status, told, _ = await asking
    assert status == 503
    assert "shutting down" in told["error"]["message"]
    assert [(record.ending, record.status) for record in gateway.records] == [("shutdown", 503)]
    assert gateway.decisions == [("allowed", "miss" if begins else "unreported", 1)]


# --- at the door ---


async def test_the_door_is_that_of_every_other_path(upstream: ScriptedUpstream) -> None:
    config = config_for(upstream.url, limits={"bodyBytesMax": 2_000})
    async with running_gateway(config) as gateway:
        url = gateway.url + PATH
        async with gateway.client.get(url) as response:
            assert response.status == 405
            assert response.headers["allow"] == "POST"
        async with gateway.client.head(url) as response:
            assert response.status == 200
        upgrade = {"connection": "Upgrade", "upgrade": "websocket"}
        async with gateway.client.get(url, headers=upgrade) as response:
            assert response.status == 426
        for headers in ({"host": "evil.example"}, {"origin": "https://evil.example"}):
            async with gateway.client.post(url, json=question(), headers=headers) as response:
                assert response.status == 403
        assert (await ask(gateway, question(policy="x" * 2_000)))[0] == 413
        assert (await ask(gateway, question(), content_encoding="br"))[0] == 415
        async with gateway.client.post(f"{url}/", json=question()) as response:
            assert response.status == 404
    assert upstream.connections == 0


async def test_a_key_is_needed_and_separates_budgets(upstream: ScriptedUpstream) -> None:
    upstream.answer = lambda _: answers()
    clients = [{"name": name, "key": name * 16} for name in ("a", "b")]
    async with running_gateway(config_for(upstream.url, clients=clients)) as gateway:
        assert (await ask(gateway, question()))[0] == 401
        for _ in range(2):
            assert (await ask(gateway, question(), x_api_key="a" * 16))[0] == 200
        status, told, _ = await ask(gateway, question(), x_api_key="a" * 16)
        assert (status, told["error"]["type"]) == (400, "billing_error"), "the shape of whoever has such a header"
        assert (await ask(gateway, question(), x_cachegate_key="b" * 16))[0] == 200
    assert all("a" * 16 not in str(sent.headers) for sent in upstream.requests)


async def test_a_full_gateway_says_so(upstream: ScriptedUpstream) -> None:
    upstream.answer = lambda _: [stream_head(), Step.HANG]
    async with (
        running_gateway(config_for(upstream.url, limits={"inFlightMax": 1})) as gateway,
        gateway.client.post(f"{gateway.url}/v1/messages", data=request(Protocol.MESSAGES)) as hanging,
    ):
        assert hanging.status == 200
        assert (await ask(gateway, question()))[0] == 503


async def test_nothing_of_a_question_is_kept(
    gateway: RunningGateway, upstream: ScriptedUpstream, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    upstream.answer = lambda _: answers("DENY\nconfidential reason")
    confidential = question(
        subject={"turn": "confidential"}, policy="confidential", transcript=[{"role": "user", "text": "confidential"}]
    )
    await ask(gateway, confidential)
    await ask(gateway, {**confidential, "transcript": "confidential"})
    async with gateway.client.get(f"{gateway.url}/diagnostics/recent") as response:
        shown = await response.text()
    assert len(gateway.records) == 2
    assert "confidential" not in shown + repr(gateway.records) + caplog.text


class Nobody:
    """A caller who is not there."""

    request_id, tenant, path, status = "req_1", "t", PATH, 0

    def cancelled_by(self) -> Ending:
        return Ending.SHUTDOWN


async def test_an_endless_answer_is_not_kept() -> None:
    collected = Collected(Nobody())  # type: ignore[arg-type]
    await collected.begin(200, (("content-type", "text/event-stream"),))
    for _ in range(3):
        await collected.send(b"x" * (ANSWER_BYTES_MAX - 1))
    await collected.end()
    collected.abort()
    assert len(collected.body) == ANSWER_BYTES_MAX
    assert (collected.status, collected.cancelled_by()) == (200, Ending.SHUTDOWN)
    assert (collected.request_id, collected.tenant, collected.path) == ("req_1", "t", PATH)
