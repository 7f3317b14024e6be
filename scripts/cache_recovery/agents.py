"""Codex and Claude Code as clients, by the drivers that the tests have for them."""

from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from cache_recovery.client import Opened, Way, Ways
from cache_recovery.steps import Heard
from clients.claude_code import ClaudeCode, ClaudeSession
from clients.codex import CUSTOM, Codex, CodexThread, CodexTurn

_LARGE_WINDOW = replace(CUSTOM, config=f"model_context_window = 1000000\n{CUSTOM.config}")
"""Codex compacts on its own account where the window it believes in becomes full, which is not what is verified."""


class CodexChat:
    """A thread of Codex's app server."""

    def __init__(self, thread: CodexThread) -> None:
        self._thread = thread

    async def say(self, text: str) -> Heard:
        """See `client.Chat.say`."""
        told = self._compactions()
        return self._heard(await self._thread.turn(text), told)

    async def compact(self) -> Heard:
        """See `client.Chat.compact`."""
        told = self._compactions()
        return self._heard(await self._thread.compact(), told)

    def _heard(self, turn: CodexTurn, told_before: int) -> Heard:
        error = turn.error or {}
        shown = [notice["params"]["tokenUsage"] for notice in self._thread.notices("thread/tokenUsage/updated")]
        tokens = shown[-1]["last"]["totalTokens"] if shown else None
        window = shown[-1].get("modelContextWindow") if shown else None
        full = error.get("codexErrorInfo") == "contextWindowExceeded" or (
            tokens is not None and window is not None and tokens >= window
        )
        words = error.get("message", turn.answer)
        return Heard(turn.status == "completed", words, full, self._compactions() - told_before, tokens)

    def _compactions(self) -> int:
        started = [notice["params"]["item"]["type"] for notice in self._thread.notices("item/started")]
        return started.count("contextCompaction")


class ClaudeChat:
    """A session of Claude Code's."""

    def __init__(self, session: ClaudeSession) -> None:
        self._session = session

    async def say(self, text: str) -> Heard:
        """See `client.Chat.say`."""
        told = self._compactions()
        turn = await self._session.turn(text)
        return Heard(
            completed=not turn.failed,
            words=turn.text,
            compactions=self._compactions() - told,
            tokens=self._session.tokens_shown(),
        )

    async def compact(self) -> Heard:
        """See `client.Chat.compact`."""
        return await self.say("/compact")

    def _compactions(self) -> int:
        return [event["subtype"] for event in self._session.system_events()].count("compact_boundary")


def codex(program: Path) -> Ways:
    """Return the ways of Codex."""

    @asynccontextmanager
    async def streamed(url: str, home: Path) -> Opened:
        async with Codex.install(program, home, url, _LARGE_WINDOW).thread() as thread:
            yield CodexChat(thread)

    return {Way.STREAMED: streamed}


def claude_code(program: Path) -> Ways:
    """Return the ways of Claude Code."""

    @asynccontextmanager
    async def streamed(url: str, home: Path) -> Opened:
        async with ClaudeCode.install(program, home, url).session() as session:
            yield ClaudeChat(session)

    return {Way.STREAMED: streamed}
