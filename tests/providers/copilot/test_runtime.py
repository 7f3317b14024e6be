"""The gate and the SDK's side of the seam; what needs the real runtime is in `tests/clients/test_copilot.py`."""

import asyncio
import json
import logging
import re
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from copilot._jsonrpc import JsonRpcError, ProcessExitedError
from copilot.copilot_request_handler import CopilotRequestContext, CopilotRequestHandler
from copilot.tools import ToolInvocation, ToolResult

from cachegate.errors import UpstreamError
from cachegate.providers.copilot import runtime as module
from cachegate.providers.copilot.native import EXITED, Opening, Permit
from cachegate.providers.copilot.runtime import (
    OwnProvider,
    RuntimeSettings,
    SdkRuntime,
    SdkSession,
    _environment,
    _Gate,
    _provider,
)
from cachegate.providers.copilot.session_files import EVENTS_PATH
from cachegate.wire.copilot.history import Attachment, Returned, Said
from cachegate.wire.copilot.setup import DeclaredTool, Setup
from cachegate.wire.usage_readings import Fields
from copilot_runtime import event

PROGRAM = sys.executable
"""Any program that is there: none is started here."""
OWN = OwnProvider("anthropic", "http://127.0.0.1:1", "sk-own")
SETUP = Setup("up", "Be brief.", (DeclaredTool("Read", "Reads.", {"type": "object"}),), "high", None)

# --- the gate ---


class Notes:
    def __init__(self) -> None:
        self.sent = 0
        self.waits: list[str] = []
        self.permit = Permit(self._send, self.waits.append)

    def _send(self) -> None:
        self.sent += 1


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[httpx.Request]:
    """The requests that the gate let through; each is answered with a rate limit."""
    requests: list[httpx.Request] = []

    async def send(self: object, request: httpx.Request, ctx: CopilotRequestContext) -> httpx.Response:
        del self, ctx
        requests.append(request)
        headers = {} if request.url.path == "/plain" else {"Retry-After": "7"}
        return httpx.Response(429, headers=headers, request=request)

    monkeypatch.setattr(CopilotRequestHandler, "send_request", send)
    return requests


async def called(
    gate: _Gate, session_id: str | None = "s1", kind: str | None = "conversation-agent", path: str = "/"
) -> int:
    url = f"http://127.0.0.1:1{path}"
    context = CopilotRequestContext("r1", "http", url, {}, asyncio.Event(), session_id, interaction_type=kind)
    return (await gate.send_request(httpx.Request("POST", url), context)).status_code


@pytest.mark.parametrize("kind", ["conversation-agent", None])
async def test_a_permit_is_for_one_call(passed: list[httpx.Request], kind: str | None) -> None:
    gate, notes = _Gate(), Notes()
    gate.allow("s1", notes.permit)
    assert await called(gate, kind=kind) == 429
    assert (len(passed), notes.sent, notes.waits) == (1, 1, ["7"])
    assert await called(gate, kind=kind) == 400, "the runtime repeats what failed"
    assert (len(passed), notes.sent) == (1, 1)


async def test_without_a_permit_no_call_is_made_and_the_runtime_is_told_why(passed: list[httpx.Request]) -> None:
    context = CopilotRequestContext("r1", "http", "http://127.0.0.1:1", {}, asyncio.Event(), "s1")
    refused = await _Gate().send_request(httpx.Request("POST", "http://127.0.0.1:1"), context)
    assert refused.status_code == 400
    assert "one model call" in refused.json()["error"]["message"]
    assert passed == []


@pytest.mark.parametrize("kind", ["conversation-compaction", "conversation-subagent", "title"])
async def test_a_call_for_the_runtimes_own_ends_is_refused_and_uses_up_no_permit(
    passed: list[httpx.Request], kind: str
) -> None:
    gate, notes = _Gate(), Notes()
    gate.allow("s1", notes.permit)
    assert await called(gate, kind=kind) == 400
    assert (passed, notes.sent) == ([], 0)
    assert await called(gate) == 429
    assert notes.sent == 1


async def test_a_permit_is_for_its_own_session(passed: list[httpx.Request]) -> None:
    gate, one, other = _Gate(), Notes(), Notes()
    gate.allow("s1", one.permit)
    assert await called(gate, "s2") == 400
    gate.allow("s2", other.permit)
    assert await called(gate, "s2") == 429
    assert (one.sent, other.sent, len(passed)) == (0, 1, 1)


async def test_a_closed_gate_lets_nothing_through(passed: list[httpx.Request]) -> None:
    gate, notes = _Gate(), Notes()
    gate.allow("s1", notes.permit)
    gate.close("s1")
    gate.close("never opened")
    assert await called(gate) == 400
    assert passed == []


async def test_a_request_of_no_session_is_no_model_call(passed: list[httpx.Request]) -> None:
    gate, notes = _Gate(), Notes()
    gate.allow("s1", notes.permit)
    assert await called(gate, session_id=None) == 429
    assert (len(passed), notes.sent) == (1, 0)


async def test_an_answer_without_a_time_to_wait_names_none(passed: list[httpx.Request]) -> None:
    gate, notes = _Gate(), Notes()
    gate.allow("s1", notes.permit)
    await called(gate, path="/plain")
    assert (len(passed), notes.waits) == (1, [])


async def test_calls_that_could_not_be_counted_are_refused() -> None:
    context = CopilotRequestContext("r1", "websocket", "ws://127.0.0.1:1", {}, asyncio.Event(), "s1")
    with pytest.raises(ConnectionRefusedError):
        await _Gate().open_websocket(context)


# --- how the runtime is started ---


def test_the_runtime_gets_none_of_our_keys() -> None:
    places = (
        "PATH", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE",
        "NODE_EXTRA_CA_CERTS", "LANG", "SYSTEMROOT",
    )  # fmt: skip
    keys = (
        "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GITHUB_TOKEN", "GH_TOKEN", "COPILOT_GITHUB_TOKEN", "CACHEGATE_TOKEN",
        "NODE_OPTIONS", "HOME",
    )  # fmt: skip
    environ = {name: f"our {name}" for name in (*places, *keys)}
    kept = {name: environ[name] for name in places} | {"HOME": "/own"}
    assert _environment(RuntimeSettings(environ=environ), "/own") == kept
    assert _environment(RuntimeSettings(environ=environ, own_provider=OWN), "/own") == kept | {
        "COPILOT_OFFLINE": "true",
        "COPILOT_MODEL": "default",
        "COPILOT_PROVIDER_TYPE": "anthropic",
        "COPILOT_PROVIDER_BASE_URL": "http://127.0.0.1:1",
    }


@pytest.mark.parametrize(
    ("own", "told"),
    [
        (None, None),
        (OWN, {"type": "anthropic", "base_url": "http://127.0.0.1:1", "api_key": "sk-own"}),
        (OwnProvider("openai", "http://a"), {"type": "openai", "base_url": "http://a"}),
        (
            OwnProvider("openai", "http://a", wire_api="responses", prompt_tokens_max=9),
            {"type": "openai", "base_url": "http://a", "wire_api": "responses", "max_prompt_tokens": 9},
        ),
    ],
)
def test_a_provider_of_the_persons_own(own: OwnProvider | None, told: object) -> None:
    assert _provider(own) == told


def test_settings_never_show_their_secrets() -> None:
    settings = RuntimeSettings(github_token="gh-secret", own_provider=OWN, environ={"A": "env-secret"})
    assert "secret" not in repr(settings)
    assert "sk-own" not in repr(settings)


# --- the SDK's side, with an SDK in memory ---


class SdkTalk:
    """The SDK's session."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.efforts: list[tuple[str, str]] = []
        self.fails: Exception | None = None
        self.hears: Callable[[object], None] = print
        self.run = asyncio.Event()
        self.ends: list[str] = []
        self.rpc = SimpleNamespace(send_messages=self._send)

    def on(self, listener: Callable[[object], None]) -> None:
        self.hears = listener

    async def _send(self, request: Any) -> None:
        self.messages.append(request.to_dict())
        if self.fails is not None:
            raise self.fails
        if request.to_dict().get("wait"):
            await self.run.wait()

    async def set_model(self, model: str, *, reasoning_effort: str) -> None:
        self.efforts.append((model, reasoning_effort))
        if self.fails is not None:
            raise self.fails

    async def abort(self) -> None:
        self.ends.append("abort")
        if self.fails is not None:
            raise self.fails

    async def disconnect(self) -> None:
        self.ends.append("disconnect")
        if self.fails is not None:
            raise self.fails


class SdkClient:
    """The SDK's client; all that were made are in `made`."""

    made: list["SdkClient"]
    starting: asyncio.Event
    fails: Exception | None = None

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.starts = 0
        self.stopped = False
        self.begun: list[tuple[str, dict[str, Any]]] = []
        self.talk = SdkTalk()
        self.made.append(self)

    async def start(self) -> None:
        self.starts += 1
        self.starting.set()
        await asyncio.sleep(0)  # others may come
        if self.fails is not None:
            raise self.fails

    async def ping(self) -> None:
        if self.fails is not None:
            raise self.fails

    async def force_stop(self) -> None:
        self.stopped = True

    async def create_session(self, **options: Any) -> SdkTalk:
        return await self._begin("create", options)

    async def resume_session(self, **options: Any) -> SdkTalk:
        return await self._begin("resume", options)

    async def _begin(self, how: str, options: dict[str, Any]) -> SdkTalk:
        self.begun.append((how, options))
        if self.talk.fails is not None:
            raise self.talk.fails
        return self.talk


def has_home(client: SdkClient) -> bool:
    return Path(client.options["working_directory"]).is_dir()


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> list[SdkClient]:
    monkeypatch.setattr(SdkClient, "made", [], raising=False)
    monkeypatch.setattr(SdkClient, "starting", asyncio.Event(), raising=False)
    monkeypatch.setattr(SdkClient, "fails", None)
    monkeypatch.setattr(module, "CopilotClient", SdkClient)
    return SdkClient.made


class Stage:
    def __init__(self, settings: RuntimeSettings | None = None) -> None:
        self.runtime = SdkRuntime(settings or RuntimeSettings(cli_path=PROGRAM, own_provider=OWN))
        self.heard: list[Fields] = []

    async def open(self, events: bytes = b"") -> SdkSession:
        return await self.runtime.open(Opening("s1", SETUP, events), self.heard.append)


async def test_the_runtime_starts_once_for_all_its_sessions(clients: list[SdkClient]) -> None:
    stage = Stage()
    await asyncio.gather(stage.open(), stage.open())
    (client,) = clients
    assert (client.starts, len(client.begun)) == (1, 2)
    assert has_home(client)
    await stage.runtime.close()
    assert client.stopped
    assert not has_home(client)
    await stage.runtime.close()


@pytest.mark.parametrize(
    ("settings", "signed_in"),
    [
        (RuntimeSettings(cli_path=PROGRAM), True),
        (RuntimeSettings(cli_path=PROGRAM, github_token="gh"), False),
        (RuntimeSettings(cli_path=PROGRAM, own_provider=OWN), False),
    ],
    ids=["who is signed in", "a token", "a provider of one's own"],
)
async def test_only_who_signed_in_gives_the_runtime_their_home(
    clients: list[SdkClient], settings: RuntimeSettings, signed_in: bool
) -> None:
    stage = Stage(settings)
    await stage.open()
    options = clients[0].options
    home = options["working_directory"]
    assert options["use_logged_in_user"] is signed_in
    assert options["github_token"] == settings.github_token
    assert options["base_directory"] == (None if signed_in else home)
    assert options["env"]["HOME"] == (str(Path.home()) if signed_in else home)
    await stage.runtime.close()


async def test_a_session_has_the_callers_tools_and_instructions_and_nothing_of_the_runtimes(
    clients: list[SdkClient],
) -> None:
    stage = Stage()
    await stage.open()
    await stage.open(b'{"id":"1"}\n')
    (first, options), (second, resumed) = clients[0].begun
    assert (first, second) == ("create", "resume")
    assert options["session_id"] == resumed["session_id"] == "s1"
    assert options["system_message"] == {"mode": "replace", "content": "Be brief."}
    assert options["available_tools"] == ["custom:*"]
    assert (options["model"], options["reasoning_effort"], options["streaming"]) == ("up", "high", True)
    assert options["infinite_sessions"] == options["large_output"] == {"enabled": False}
    assert options["provider"]["base_url"] == "http://127.0.0.1:1"
    assert options["capi"] == {"enable_web_socket_responses": False}
    (tool,) = options["tools"]
    assert (tool.name, tool.description, tool.parameters) == ("Read", "Reads.", {"type": "object"})
    assert (tool.skip_permission, tool.overrides_built_in_tool, tool.defer) == (True, True, "never")
    assert resumed["create_session_fs_handler"](None).events() == (b'{"id":"1"}',)
    await stage.runtime.close()


async def test_events_are_heard_decoded(clients: list[SdkClient]) -> None:
    stage = Stage()
    await stage.open()
    clients[0].talk.hears(SimpleNamespace(to_dict=lambda: event("session.idle")))
    assert stage.heard == [event("session.idle")]
    await stage.runtime.close()


async def test_what_is_said_runs_while_the_caller_listens(clients: list[SdkClient]) -> None:
    stage = Stage()
    session = await stage.open()
    picture = Attachment("iVBO", "image/png")
    await session.say((Said("one"), Said("two", (picture,))), {"type": "array"}, steering=False)
    await asyncio.sleep(0)
    (sent,) = clients[0].talk.messages
    assert [message["prompt"] for message in sent["messages"]] == ["one", "two"]
    assert sent["messages"][1]["attachments"] == [{"type": "blob", "data": "iVBO", "mimeType": "image/png"}]
    assert sent["wait"] is True
    assert "mode" not in sent
    assert sent["responseFormat"]["jsonSchema"]["schema"] == {"type": "array"}
    assert await session.close() == ()
    assert clients[0].talk.ends == ["disconnect"]
    await stage.runtime.close()


async def test_what_is_said_while_calls_wait_is_put_between_and_has_no_form(clients: list[SdkClient]) -> None:
    stage = Stage()
    session = await stage.open()
    await session.say((Said("also"),), {"type": "array"}, steering=True)
    (sent,) = clients[0].talk.messages
    assert (sent["mode"], sent["wait"]) == ("immediate", False)
    assert "responseFormat" not in sent
    clients[0].talk.fails = JsonRpcError(1, "no")
    with pytest.raises(UpstreamError, match="did not take the message"):
        await session.say((Said("also"),), None, steering=True)
    await stage.runtime.close()


async def test_a_run_that_breaks_off_says_that_the_runtime_is_gone(clients: list[SdkClient]) -> None:
    stage = Stage()
    gone = asyncio.Event()
    heard: list[Fields] = []

    def hear(told: Fields) -> None:
        heard.append(told)
        gone.set()

    session = await stage.runtime.open(Opening("s1", SETUP), hear)
    clients[0].talk.fails = ProcessExitedError("gone")
    await session.say((Said("one"),), None, steering=False)
    async with asyncio.timeout(60):
        await gone.wait()
    assert heard == [EXITED]
    await stage.runtime.close()


async def test_a_call_waits_for_its_result(clients: list[SdkClient]) -> None:
    stage = Stage()
    session = await stage.open()
    handler: Callable[[ToolInvocation], Awaitable[ToolResult]] = clients[0].begun[0][1]["tools"][0].handler

    async def answered(call_id: str) -> ToolResult:
        return await handler(ToolInvocation("s1", call_id, "Read", {}))

    picture, paper = Attachment("iVBO", "image/png"), Attachment("JVBE", "application/pdf")
    first = asyncio.ensure_future(answered("c1"))
    await asyncio.sleep(0)
    assert not first.done()
    session.give(Returned("c2", "bad", (picture, paper), is_error=True))
    session.give(Returned("c1", "one"))
    session.give(Returned("c1", "another"))
    one, two = await first, await answered("c2")
    assert (one.text_result_for_llm, one.result_type, one.error, one.binary_results_for_llm) == (
        "one", "success", None, None,
    )  # fmt: skip
    assert (two.text_result_for_llm, two.result_type, two.error) == ("bad", "failure", "bad")
    assert two.binary_results_for_llm is not None
    assert [(each.data, each.mime_type, each.type) for each in two.binary_results_for_llm] == [
        ("iVBO", "image/png", "image"),
        ("JVBE", "application/pdf", "resource"),
    ]
    await stage.runtime.close()


async def test_the_effort_is_changed_for_the_same_model(clients: list[SdkClient]) -> None:
    stage = Stage()
    session = await stage.open()
    await session.set_effort("low")
    assert clients[0].talk.efforts == [("up", "low")]
    clients[0].talk.fails = JsonRpcError(1, "no")
    with pytest.raises(UpstreamError, match="did not change the effort"):
        await session.set_effort("low")
    await stage.runtime.close()


async def test_an_interrupted_session_gets_no_more_calls(clients: list[SdkClient], passed: list[httpx.Request]) -> None:
    stage = Stage()
    session, notes = await stage.open(), Notes()
    session.allow(notes.permit)
    await session.abort()
    assert clients[0].talk.ends == ["abort"]
    assert await called(stage.runtime._gate) == 400
    assert passed == []
    assert not clients[0].stopped
    await stage.runtime.close()


async def test_a_runtime_that_cannot_be_interrupted_is_ended(clients: list[SdkClient]) -> None:
    stage = Stage()
    session = await stage.open()
    clients[0].talk.fails = JsonRpcError(1, "no")
    await session.abort()
    assert clients[0].stopped
    assert not await session.alive()


async def test_a_session_that_ends_hands_over_its_events_even_from_a_dead_runtime(clients: list[SdkClient]) -> None:
    stage = Stage()
    session, notes = await stage.open(b'{"id":"1"}\n'), Notes()
    session.allow(notes.permit)
    await clients[0].begun[0][1]["create_session_fs_handler"](None).append_file(EVENTS_PATH, '{"id":"2"}\n')
    SdkClient.fails = clients[0].talk.fails = ProcessExitedError("gone")
    assert [json.loads(line)["id"] for line in await session.close()] == ["1", "2"]
    assert await called(stage.runtime._gate) == 400
    assert clients[0].stopped


async def test_a_dead_runtime_is_noticed_and_the_next_session_starts_another(clients: list[SdkClient]) -> None:
    stage = Stage()
    session = await stage.open()
    assert await session.alive()
    SdkClient.fails = ProcessExitedError("gone")
    assert not await session.alive()
    assert clients[0].stopped
    SdkClient.fails = None
    again = await stage.open()
    assert len(clients) == 2
    assert not await session.alive(), "it lived in the first one"
    assert await again.alive()
    await stage.runtime.close()


async def test_a_runtime_that_does_not_start_is_ended_and_started_again(clients: list[SdkClient]) -> None:
    stage = Stage()
    SdkClient.fails = OSError("no such program")
    with pytest.raises(UpstreamError, match="did not start"):
        await stage.open()
    assert clients[0].stopped
    assert not has_home(clients[0])
    SdkClient.fails = None
    await stage.open()
    assert len(clients) == 2
    await stage.runtime.close()


async def test_a_caller_who_leaves_while_it_starts_leaves_no_process(clients: list[SdkClient]) -> None:
    stage = Stage()
    opening = asyncio.ensure_future(stage.open())
    async with asyncio.timeout(60):
        await SdkClient.starting.wait()
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert clients[0].stopped
    assert not has_home(clients[0])


async def test_a_session_that_cannot_begin_is_an_error_of_the_runtime(clients: list[SdkClient]) -> None:
    stage = Stage()
    await stage.open()
    clients[0].talk.fails = JsonRpcError(1, "no")
    with pytest.raises(UpstreamError, match="could not begin a session"):
        await stage.open()
    assert not clients[0].stopped, "other sessions live in it"
    await stage.runtime.close()


async def test_a_session_that_never_began_says_so() -> None:
    session = SdkSession(SdkRuntime(RuntimeSettings()), Opening("s1", SETUP), print, _Gate())
    assert not await session.alive()
    with pytest.raises(UpstreamError, match="never begun"):
        await session.say((), None, steering=True)
    assert await session.close() == ()


@pytest.mark.parametrize(("configured", "where"), [("/nope/copilot", "at '/nope/copilot'"), (None, "on the PATH")])
async def test_a_program_that_is_not_there_is_named_and_never_fetched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, configured: str | None, where: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    runtime = SdkRuntime(RuntimeSettings(cli_path=configured, own_provider=OWN))
    with pytest.raises(UpstreamError, match=re.escape(f"was not found {where}")):
        await runtime.open(Opening("s1", SETUP), print)
    await runtime.close()


def test_the_sdk_logs_nothing() -> None:
    logger = logging.getLogger("copilot.client").parent
    assert logger is not None
    assert (logger.name, logger.propagate) == ("copilot", False)
    # pytest listens to every logger, so that others cannot be told apart from its own.
    assert any(isinstance(handler, logging.NullHandler) for handler in logger.handlers), (
        "else it goes to standard error"
    )
