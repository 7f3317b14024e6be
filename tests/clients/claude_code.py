"""Claude Code in front of the gateway: one session of many turns by the stream-json form of `claude --print`."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from clients.cold_upstream import Received
from clients.real_clients import ClientHome, Command, Conversation, JsonObject

MODEL = "claude-opus-5-5"
"""A model whose window is far larger than the usage the tests report: a full window is a reason to compact."""

_QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
}


@dataclass(frozen=True, slots=True)
class ClaudeCode:
    """An installed Claude Code with a home that knows one address: the gateway."""

    binary: Path
    home: ClientHome
    environment: Mapping[str, str]

    @classmethod
    def install(cls, binary: Path, home: Path, gateway_url: str, *, labelled: bool = False) -> Self:
        """`labelled` makes it name the class of each request in headers; without, only the bodies tell."""
        folder = ClientHome.create(home)
        own = {
            "CLAUDE_CONFIG_DIR": str(home / "config"),
            "ANTHROPIC_BASE_URL": gateway_url,
            "ANTHROPIC_API_KEY": "dummy-key",
            **({"CLAUDE_CODE_GATEWAY_HINT_HEADERS": "1"} if labelled else {}),
            **_QUIET,
        }
        return cls(binary, folder, folder.environment(own))

    @asynccontextmanager
    async def session(self, *options: str) -> AsyncIterator["ClaudeSession"]:
        """Run Claude Code with one session: a new one, unless the options name an earlier one of this home."""
        formats = ("--input-format", "stream-json", "--output-format", "stream-json", "--include-partial-messages")
        words = (str(self.binary), "--print", "--verbose", "--model", MODEL, *formats, *options)
        async with Conversation.held(Command(words, self.home, self.environment)) as conversation:
            yield ClaudeSession(conversation)


def kind_of(received: Received) -> str:
    """Name a request by what tells Claude Code's kinds apart, so that an unexpected one is named in the failure."""
    where = f"{received.method} {received.path}"
    if where != "POST /v1/messages":
        return where
    fields = received.fields
    if "Your task is to create a detailed summary" in str(fields["messages"][-1]["content"]):
        return COMPACTION
    if "x-claude-code-agent-id" in received.headers:
        return f"{where} sub-agent"
    if not fields.get("tools"):
        return f"{where} auxiliary"
    return TURN if fields.get("stream") else f"{where} turn without stream"


TURN = "POST /v1/messages turn"
COMPACTION = "POST /v1/messages compaction"
TOKEN_COUNT = "POST /v1/messages/count_tokens"


@dataclass(frozen=True, slots=True)
class ClaudeTurn:
    """How a turn ended: `text` is what a person reads, the answer or the error (nothing after Esc)."""

    failed: bool
    text: str
    session_id: str


class ClaudeSession:
    """A running session: user messages in, events out, one `result` event at the end of each turn."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._since = 0

    async def turn(self, text: str) -> ClaudeTurn:
        await self.begin_turn(text)
        return await self._turn_end()

    async def interrupt(self) -> ClaudeTurn:
        """Stop the running turn, as Esc does."""
        stop = {"type": "control_request", "request_id": "interrupt", "request": {"subtype": "interrupt"}}
        await self._conversation.say(stop)
        return await self._turn_end()

    async def _turn_end(self) -> ClaudeTurn:
        result = await self._conversation.hear(lambda event: event["type"] == "result", self._since)
        return ClaudeTurn(result["is_error"], result.get("result", ""), result["session_id"])

    async def begin_turn(self, text: str) -> None:
        self._since = len(self._conversation.heard)
        content = [{"type": "text", "text": text}]
        await self._conversation.say({"type": "user", "message": {"role": "user", "content": content}})

    async def see_first_text(self) -> None:
        """Wait until a part of an answer has reached the client."""
        await self._conversation.hear(
            lambda event: event["type"] == "stream_event" and event["event"]["type"] == "content_block_delta",
            self._since,
        )

    def system_events(self) -> list[JsonObject]:
        """Return what the session says about itself; a compaction is told there."""
        return [event for event in self._conversation.heard if event["type"] == "system"]

    def tokens_shown(self) -> int | None:
        """Return the input of the newest answer as the session counts it; None before any. Stopped ones count 0."""
        said = [event["message"]["usage"] for event in self._conversation.heard if event["type"] == "assistant"]
        names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        return sum(said[-1].get(name) or 0 for name in names) if said else None

    def kill(self) -> None:
        self._conversation.kill()
