"""One caller's conversation, and the live `claude` process that it lives in."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from cachegate.errors import UpstreamError
from cachegate.providers.claude_cli.gate import Gate, Permit
from cachegate.providers.claude_cli.home import SessionHome
from cachegate.providers.claude_cli.launch import Account, Manner, Resume, launch
from cachegate.providers.claude_cli.process import ClaudeProcess
from cachegate.wire.claude_cli.plan import Continue, Rebuild, plan, stands_aside
from cachegate.wire.claude_cli.prompt import Prompt, given, mark
from cachegate.wire.claude_cli.transcript import kept_lines, transcript
from cachegate.wire.claude_cli.turn_reader import Heard, TurnReader
from cachegate.wire.seen import Reseed
from cachegate.wire.sessions import Known, Reason
from cachegate.wire.usage_readings import Fields

STEP_S = 30.0
"""For the CLI to end a step that needs no model."""
REST_S = 5.0
"""For a process to come to rest after an answer."""
INTERRUPT_S = 0.9
"""A caller who leaves must not go on paying: a process that is not interrupted by then is killed."""

_OWN_THINKING_TOKENS = 31_999
"""The program's own setting. Asked to forget ours, it goes back to what it was started with."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How processes are started."""

    program: str
    account: Account
    root: Path
    """Private folder of this gateway, where the sessions have theirs."""
    gate: Gate
    """The only way to the provider."""


class Exchange:
    """One request while it is answered."""

    __slots__ = ("heard", "prompt", "reader", "retry_after")

    def __init__(self, prompt: Prompt, reader: TurnReader) -> None:
        self.prompt = prompt
        self.reader = reader
        self.heard: asyncio.Queue[Heard] = asyncio.Queue()
        self.retry_after = ""
        """The time to wait that the provider named."""

    def refused(self, status: int, body: bytes, retry_after: str) -> None:
        """Take in the provider's own error, before the program has made its own of it."""
        self.retry_after = retry_after
        self.heard.put_nowait(self.reader.refused(status, body))


class Conversation:
    """A live process, and what it has of the conversation."""

    def __init__(self, settings: Settings, new_id: Callable[[], str]) -> None:
        self._settings = settings
        self._new_id = new_id
        self._home: SessionHome | None = None
        self._process: ClaudeProcess | None = None
        self._voice: object = None
        """Of the process that is heard."""
        self._session_id = ""
        self._known: Known | None = None
        self._exchange: Exchange | None = None
        self._reader: TurnReader | None = None
        """Of the last request: it hears, too, that the model is called when nobody asked."""
        self._results = asyncio.Event()
        """The CLI has ended the step in which it was."""
        self._manner = Manner()
        """As the process has it."""

    @property
    def waits(self) -> bool:
        """Whether calls of the model wait for their results."""
        return self._known is not None and bool(self._known.pending) and not self._known.broken

    def must_not_be_replaced_by(self, prompt: Prompt) -> bool:
        """Whether a request is about something else, while calls of this conversation wait for their results."""
        return stands_aside(self._known, plan(self._known, prompt))

    async def begin(
        self, prompt: Prompt, reader: TurnReader, on_sent: Callable[[], None]
    ) -> tuple[Exchange, Reseed | None]:
        """Let the model answer: with what is new in the request, or from a transcript.

        Raises BadInput for a conversation that cannot be answered, and then nothing has changed; UpstreamError when the
        process fails.
        """
        decided = plan(self._known, prompt)
        if isinstance(decided, Continue) and (why := await self._hindrance()):
            decided = plan(replace(self._known or Known(), broken=why), prompt)
        if isinstance(decided, Continue):
            known = self._known or Known()
            try:
                return await self._go_on(decided, prompt, reader, on_sent), None
            except UpstreamError:
                if self._live.alive or reader.over:
                    raise
            # It was gone before it was told anything: the model knows nothing of this request.
            unasked = self._known is not None and self._known.broken == Reason.HIDDEN_INFERENCE
            why = Reason.HIDDEN_INFERENCE if unasked else Reason.PROCESS_EXITED
            decided = plan(replace(known, broken=why), prompt)
        assert isinstance(decided, Rebuild)  # noqa: S101 -- what is broken is never gone on with
        return await self._rebuild(decided, prompt, reader, on_sent), Reseed(decided.reason)

    def finish(self) -> None:
        """Note what the process has now: the request's turns and the answer, which ended well."""
        exchange, known, self._exchange = self._exchange, self._known, None
        if exchange is None or known is None:
            return
        answer = exchange.reader.turn()
        called = [block for block in answer.blocks if block.get("type") == "tool_use"]
        declared = {tool["name"] for tool in exchange.prompt.tools}
        # The CLI answers a call of a tool that nobody declared by itself.
        strange = any(block.get("name") not in declared for block in called)
        self._known = replace(
            known,
            marks=(*exchange.prompt.marks, mark(answer)),
            pending=frozenset(str(block.get("id")) for block in called),
            broken=exchange.reader.why or (Reason.UNKNOWN_TOOL if strange else ""),
            window=exchange.prompt.window,
        )

    async def settle(self) -> None:
        """End a request, however it ended. An answer that did not end well is stopped; what was before it is kept."""
        exchange, self._exchange = self._exchange, None
        self._settings.gate.close(self._session_id)
        if exchange is None:
            return
        if self._known is not None:
            self._known = replace(self._known, pending=frozenset(), broken=exchange.reader.why or Reason.CANCELLED)
        process = self._process
        if process is None or exchange.reader.over:
            return
        try:
            async with asyncio.timeout(INTERRUPT_S):
                await process.interrupt()
        except (TimeoutError, UpstreamError):
            process.kill()

    async def sleep(self) -> bool:
        """End the process. Its transcript stays, so that another one goes on with all that only it knows."""
        await self._end_process(at_once=self.waits)
        if self._known is None:
            await self.close()
            return False
        broken = self._known.broken or Reason.PROCESS_EXITED
        self._known = replace(self._known, pending=frozenset(), broken=broken)
        return True

    async def close(self) -> None:
        """End the process and remove what it kept."""
        await self._end_process(at_once=self.waits)
        self._known = None
        home, self._home = self._home, None
        if home is not None:
            await asyncio.to_thread(home.remove)

    @property
    def _live(self) -> ClaudeProcess:
        assert self._process is not None  # noqa: S101 -- a plan goes on with a process only where there is one
        return self._process

    async def _hindrance(self) -> str:
        """Return why the process cannot be gone on with right now; "" when it can."""
        if not self._live.alive:
            return Reason.PROCESS_EXITED
        return "" if self.waits or await self._ended(REST_S) else Reason.BUSY

    async def _ended(self, within_s: float) -> bool:
        try:
            async with asyncio.timeout(within_s):
                await self._results.wait()
        except TimeoutError:
            return False
        return True

    async def _go_on(
        self, decided: Continue, prompt: Prompt, reader: TurnReader, on_sent: Callable[[], None]
    ) -> Exchange:
        process = self._live
        await self._change(process, prompt)
        if decided.results:
            self._results.clear()
            # Whoever leaves in the midst has given the results, and they cannot be given again.
            self._known = replace(self._known or Known(), pending=frozenset(), broken=Reason.CANCELLED)
            for result in decided.results:
                content, is_error = given(result)
                await process.give(str(result.get("tool_use_id")), content, is_error=is_error)
            if not await self._ended(STEP_S):
                raise UpstreamError("The live session did not take the results of the tools. Please send this again.")
        exchange = self._answering(prompt, reader)
        self._results.clear()
        self._settings.gate.allow(self._session_id, Permit(on_sent, exchange.refused))
        await process.say(decided.said, self._new_id())
        return exchange

    async def _rebuild(
        self, decided: Rebuild, prompt: Prompt, reader: TurnReader, on_sent: Callable[[], None]
    ) -> Exchange:
        waited = self.waits
        if self._known is not None:  # whoever leaves from here on leaves no process, but its transcript
            self._known = replace(self._known, pending=frozenset(), broken=self._known.broken or Reason.CANCELLED)
        await self._end_process(at_once=waited)
        if self._home is None:
            self._home = await asyncio.to_thread(SessionHome.create, self._settings.root)
        home = self._home
        old = await asyncio.to_thread(home.read_transcript, self._session_id) if self._session_id else ()
        native, kept = kept_lines(old, decided.kept)
        session_id = self._new_id()
        lines = transcript(session_id, str(home.working_path), prompt.model, native, prompt.turns[kept:])
        await asyncio.to_thread(home.write_system, prompt.system)
        await asyncio.to_thread(home.write_transcript, session_id, lines)
        self._session_id = session_id
        resume = Resume(session_id, goes_on=True)
        manner = self._manner = _manner(prompt)
        account = replace(self._settings.account, base_url=self._settings.gate.url(session_id))
        started = launch(self._settings.program, account, home, prompt.model, resume, manner)
        exchange = self._answering(prompt, reader)
        self._known = Known(prompt.marks[:kept], setup=prompt.digest, window=prompt.window)
        self._results.clear()
        self._settings.gate.allow(session_id, Permit(on_sent, exchange.refused))
        self._process = await ClaudeProcess.start(started, prompt.tools, self._listener())
        if reader.must_die:
            self._process.kill()  # it was heard while it started
        return exchange

    def _answering(self, prompt: Prompt, reader: TurnReader) -> Exchange:
        self._reader = reader
        self._exchange = Exchange(prompt, reader)
        return self._exchange

    async def _end_process(self, *, at_once: bool) -> None:
        process, self._process, self._voice = self._process, None, None
        self._settings.gate.close(self._session_id)
        if process is None:
            return
        if at_once:
            process.kill()  # it would wait with its calls for a while; what was said is written down already
        await process.close()

    async def _change(self, process: ClaudeProcess, prompt: Prompt) -> None:
        """Change in place what is no part of the prompt's beginning."""
        had, wanted = self._manner, _manner(prompt)
        if wanted.thinking_tokens != had.thinking_tokens:
            tokens = _OWN_THINKING_TOKENS if wanted.thinking_tokens is None else wanted.thinking_tokens
            await process.control("set_max_thinking_tokens", max_thinking_tokens=tokens)
        if (wanted.effort, wanted.fast) != (had.effort, had.fast):
            flags = {"effortLevel": wanted.effort, "fastMode": wanted.fast}
            await process.control("apply_flag_settings", settings=flags)
        self._manner = wanted

    def _listener(self) -> Callable[[Fields], None]:
        voice = self._voice = object()

        def hear(frame: Fields) -> None:
            if voice is self._voice:  # an old process's last words are not heard
                self._hear(frame)

        return hear

    def _hear(self, frame: Fields) -> None:
        kind = frame.get("type")
        if kind in _ENDS:
            self._results.set()
        if self._reader is None:
            return
        heard = self._reader.read(frame)
        if self._reader.must_die and self._process is not None:
            self._process.kill()
        if self._exchange is not None and (heard.events or heard.seen):
            self._exchange.heard.put_nowait(heard)
        elif self._reader.why == Reason.HIDDEN_INFERENCE and self._known is not None:
            self._known = replace(self._known, broken=Reason.HIDDEN_INFERENCE)


def _manner(prompt: Prompt) -> Manner:
    return Manner(prompt.thinking_tokens, prompt.effort, prompt.fast, prompt.extra)


_ENDS = frozenset({"result", "process.exited"})
