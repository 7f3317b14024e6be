"""Codex in front of the gateway: one turn by `codex exec`, many turns of one thread by `codex app-server`."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from clients.cold_upstream import Received
from clients.real_clients import ClientHome, Command, Conversation, Finished, JsonObject, run_to_end

_COMMON = """\
model = "gpt-5.5"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
analytics.enabled = false
"""


@dataclass(frozen=True, slots=True)
class CodexSetup:
    """One way to lead Codex to a gateway, as people write it in its configuration."""

    name: str
    config: str
    tries_websocket: bool

    def __str__(self) -> str:
        return self.name


BUILT_IN = CodexSetup("built-in", 'openai_base_url = "{gateway_url}/v1"\n', tries_websocket=True)
"""The vendor's own provider, moved to another address. It compacts by a request only that vendor answers."""

CUSTOM = CodexSetup(
    "custom",
    """\
model_provider = "gateway"

[model_providers.gateway]
name = "gateway"
base_url = "{gateway_url}/v1"
wire_api = "responses"
requires_openai_auth = false
env_key = "GATEWAY_KEY"
""",
    tries_websocket=False,
)
"""A provider of the person's own. Codex compacts through it by an ordinary request that asks for a summary."""

CUSTOM_WITH_WEBSOCKET = CodexSetup("custom-ws", f"{CUSTOM.config}supports_websockets = true\n", tries_websocket=True)


@dataclass(frozen=True, slots=True)
class Codex:
    """An installed Codex with a home that knows one provider: the gateway."""

    binary: Path
    home: ClientHome

    @classmethod
    def install(cls, binary: Path, home: Path, gateway_url: str, setup: CodexSetup = CUSTOM) -> Self:
        codex = cls(binary, ClientHome.create(home))
        (home / "config.toml").write_text(_COMMON + setup.config.format(gateway_url=gateway_url))
        (home / "auth.json").write_text(json.dumps({"OPENAI_API_KEY": "dummy-key"}))
        return codex

    async def exec(self, prompt: str) -> Finished:
        return await run_to_end(self._command("exec", "--skip-git-repo-check", prompt))

    @asynccontextmanager
    async def thread(self, resumed_id: str | None = None) -> AsyncIterator["CodexThread"]:
        """Run an app server with one thread: a new one, or an earlier one of this home."""
        async with Conversation.held(self._command("app-server")) as conversation:
            thread = CodexThread(conversation)
            await thread.begin(self.home.project, resumed_id)
            yield thread

    def _command(self, *arguments: str) -> Command:
        own = {"CODEX_HOME": str(self.home.path), "GATEWAY_KEY": "dummy-key", "RUST_LOG": "error"}
        return Command((str(self.binary), *arguments), self.home, self.home.environment(own))


def kind_of(received: Received) -> str:
    """Name a request by Codex's own account of it, so that an unexpected one is named in the failure."""
    account = json.loads(received.headers.get("x-codex-turn-metadata", "{}"))
    agent = received.headers.get("x-openai-subagent", "main")
    return f"{received.method} {received.path} {agent} {account.get('request_kind')}"


TURN = "POST /v1/responses main turn"
COMPACTION = "POST /v1/responses main compaction"


@dataclass(frozen=True, slots=True)
class CodexTurn:
    """How a turn ended: `status` is Codex's own word, `answer` what it shows, `error` what it says went wrong."""

    status: str
    answer: str
    error: JsonObject | None


class CodexThread:
    """One thread of a running app server, driven by its JSON-RPC over stdio."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._calls = 0
        self._since = 0
        self.id = ""

    async def begin(self, project: Path, resumed_id: str | None) -> None:
        client = {"name": "cachegate-tests", "version": "1"}
        await self._call("initialize", {"clientInfo": client, "capabilities": {"experimentalApi": True}})
        await self._conversation.say({"method": "initialized"})
        if resumed_id is None:
            opened = await self._call("thread/start", {"cwd": str(project)})
        else:
            opened = await self._call("thread/resume", {"threadId": resumed_id})
        self.id = opened["thread"]["id"]

    async def turn(self, text: str) -> CodexTurn:
        """Send one message and wait for the end of the turn."""
        await self.begin_turn(text)
        return await self.turn_end()

    async def compact(self) -> CodexTurn:
        """Let the person ask for a compaction, and wait for its end."""
        self._since = len(self._conversation.heard)
        await self._call("thread/compact/start", {"threadId": self.id})
        return await self.turn_end()

    async def turn_end(self) -> CodexTurn:
        ended = await self._conversation.hear(_is_notice("turn/completed"), self._since)
        items = [notice["params"]["item"] for notice in self.notices("item/completed", self._since)]
        answer = "".join(item["text"] for item in items if item["type"] == "agentMessage")
        return CodexTurn(ended["params"]["turn"]["status"], answer, ended["params"]["turn"]["error"])

    async def begin_turn(self, text: str) -> None:
        """Send one message; during a turn it is a follow-up, for which Codex cancels the request it waits for."""
        self._since = len(self._conversation.heard)
        await self._call("turn/start", {"threadId": self.id, "input": [{"type": "text", "text": text}]})

    async def see_first_text(self) -> None:
        """Wait until a part of an answer is on the person's screen."""
        await self._conversation.hear(_is_notice("item/agentMessage/delta"), self._since)

    def notices(self, method: str, since: int = 0) -> list[JsonObject]:
        return [message for message in self._conversation.heard[since:] if _is_notice(method)(message)]

    def item_types(self) -> set[str]:
        """Return every kind of item the thread ever started; a compaction is one of them."""
        return {notice["params"]["item"]["type"] for notice in self.notices("item/started")}

    def kill(self) -> None:
        self._conversation.kill()

    async def _call(self, method: str, parameters: JsonObject) -> Any:
        self._calls += 1
        number = self._calls
        await self._conversation.say({"id": number, "method": method, "params": parameters})
        reply = await self._conversation.hear(lambda message: message.get("id") == number and "method" not in message)
        assert "error" not in reply, f"{method} failed: {reply}"
        return reply["result"]


def _is_notice(method: str) -> Callable[[JsonObject], bool]:
    return lambda message: message.get("method") == method
