"""One process of Claude Code's program, spoken to by the lines of `wire.claude_cli.frames`."""

import asyncio
import itertools
import os
import shutil
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Self

from cachegate.errors import UpstreamError, UpstreamTimeout
from cachegate.providers.claude_cli.launch import Launch
from cachegate.wire.claude_cli import frames
from cachegate.wire.claude_cli.frames import Acknowledged, Asked, Frame, McpAsked, Told, ToolCalled, Withdrawn
from cachegate.wire.hub import Json
from cachegate.wire.usage_readings import Fields

EXITED: Fields = {"type": "process.exited"}
"""Our own event: the process is gone. None of the program's has this name."""
LINE_BYTES_MAX = 256 * 1024 * 1024
"""A line repeats a whole answer or a whole result, pictures included; more than this is no line."""
START_S = 60.0
"""For the program to start, and for any answer of it that needs no model."""
INTERRUPT_S = 0.9
"""A caller who leaves must not go on paying: what is not interrupted by then is killed."""
FAREWELL_S = 5.0
"""For the program to go after its input has ended, and once more after SIGTERM."""

_DYING_WITH_US = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""
"""Asks for a SIGKILL when the parent dies (PR_SET_PDEATHSIG), sees that it still lives, and becomes the program.

The end of its input is not enough: the program ends its answer first, which nobody hears and somebody pays. To ask in
between fork and exec would run Python in a copy of a process with threads, which is not safe.
"""

_DRAINED_BYTES = 65536
_Answer = tuple[Sequence[Json], bool]


class ClaudeProcess:
    """See the module's first lines. The listener hears every event in order, and EXITED once at the end."""

    def __init__(self, process: Process, tools: tuple[Json, ...], listener: Callable[[Fields], None]) -> None:
        assert process.stdin is not None  # noqa: S101 -- both are pipes
        assert process.stdout is not None  # noqa: S101
        self._process = process
        self._in = process.stdin
        self._out = process.stdout
        self._tools = tools
        self._listener = listener
        self._ids = itertools.count(1)
        self._controls: dict[str, asyncio.Future[Acknowledged]] = {}
        self._calls: dict[str, ToolCalled] = {}
        self._results: dict[str, _Answer] = {}
        """Results that came before their calls: the program makes one call after the other."""
        self._killed = False
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, launch: Launch, tools: tuple[Json, ...], listener: Callable[[Fields], None]) -> Self:
        """Start the program and wait until it listens. Raises UpstreamError."""
        try:
            process = await asyncio.create_subprocess_exec(
                *_words(launch),
                cwd=launch.folder,
                env=dict(launch.environ),
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,  # it may hold what was said
                limit=LINE_BYTES_MAX,
                start_new_session=True,  # a Ctrl-C for the gateway is none for its sessions: they are closed
            )
        except OSError as error:
            raise UpstreamError(
                f"Claude Code's program {launch.program!r} could not be started ({type(error).__name__}). Install "
                "it, or configure where it is."
            ) from error
        started = cls(process, tools, listener)
        try:
            await started.control("initialize", hooks=None, skills=[])
        except (UpstreamError, asyncio.CancelledError) as error:
            started.kill()
            await started._reading
            if isinstance(error, UpstreamError):
                raise UpstreamError(
                    f"Claude Code's program {launch.program!r} began no session ({error}). See that it is of a version "
                    "that this gateway is tested with."
                ) from error
            raise
        return started

    @property
    def alive(self) -> bool:
        """Whether it can still be spoken to."""
        return not self._killed and self._process.returncode is None and not self._reading.done()

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    async def say(self, content: Sequence[Json], message_id: str) -> None:
        """Say what the user said; without content, let the model go on. Raises UpstreamError when it is gone."""
        await self._send(frames.user(content, message_id))

    async def give(self, call_id: str, content: Sequence[Json], *, is_error: bool) -> None:
        """Give a call its result, also before the call has come. Raises UpstreamError when the process is gone."""
        called = self._calls.pop(call_id, None)
        if called is None:
            self._results[call_id] = (content, is_error)
        else:
            await self._send(_result(called, (content, is_error)))

    async def control(self, subtype: str, **fields: object) -> Fields:
        """Ask the program itself something, and return its answer. Raises UpstreamError when it refuses or is gone."""
        return await self._control(subtype, fields, START_S)

    async def interrupt(self) -> None:
        """Stop the turn. The process stays usable, unless it does not stop in time: then it is killed."""
        try:
            await self._control("interrupt", {}, INTERRUPT_S)
        except UpstreamError:
            self.kill()

    def kill(self) -> None:
        """End it at once, in the midst of whatever it does."""
        self._killed = True
        self._signal(signal.SIGKILL)

    async def close(self) -> None:
        """End it: it is asked to go, then told to, then made to. When this returns, it is gone."""
        try:
            self._in.close()
            for farewell in (None, signal.SIGTERM):
                if farewell is not None:
                    self._signal(farewell)
                with suppress(TimeoutError):
                    async with asyncio.timeout(FAREWELL_S):
                        await self._process.wait()
                        break
        finally:
            self.kill()
        await self._reading

    def _signal(self, number: signal.Signals) -> None:
        """Signal the process and what it may have started."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    async def _control(self, subtype: str, fields: Fields, limit_s: float) -> Fields:
        request_id = f"req_{next(self._ids)}"
        answered: asyncio.Future[Acknowledged] = asyncio.get_running_loop().create_future()
        self._controls[request_id] = answered
        try:
            async with asyncio.timeout(limit_s):
                await self._send(frames.control(request_id, {"subtype": subtype, **fields}))
                acknowledged = await answered
        except TimeoutError:
            raise UpstreamTimeout(f"Claude Code's program did not answer `{subtype}` within {limit_s:g} s.") from None
        finally:
            self._controls.pop(request_id, None)
        if acknowledged.error is not None:
            raise UpstreamError(f"Claude Code's program refused `{subtype}`: {acknowledged.error}")
        return acknowledged.response

    async def _send(self, line: bytes) -> None:
        if not self.alive:
            raise _gone()
        try:
            self._in.write(line)
            await self._in.drain()
        except (OSError, RuntimeError) as error:  # it went meanwhile; uvloop says it with the latter
            raise _gone() from error

    def _answer(self, line: bytes) -> None:
        """Write without waiting: whoever reads must not wait until it is read."""
        if self.alive and not self._in.is_closing():
            self._in.write(line)

    async def _read(self) -> None:
        """Read to the end, whatever comes, and tell that it has come."""
        try:
            while line := await self._line():
                frame = frames.read_frame(line)
                if frame is not None:
                    self._take(frame)
            with suppress(TimeoutError):  # it may still write down what was said
                async with asyncio.timeout(FAREWELL_S):
                    await self._ended()
        finally:
            self.kill()
            await self._ended()
            for waiting in self._controls.values():
                if not waiting.done():
                    waiting.set_exception(_gone())
            self._listener(EXITED)

    async def _line(self) -> bytes:
        """Return the next line; none at the end, and none of one that has no end."""
        try:
            return await self._out.readline()
        except ValueError:
            self.kill()
            return b""

    async def _ended(self) -> None:
        """Wait for the end. asyncio takes a process for running as long as there is something to read."""
        while await self._out.read(_DRAINED_BYTES):
            pass
        await self._process.wait()

    def _take(self, frame: Frame) -> None:
        match frame:
            case Told(fields):
                self._listener(fields)
            case Acknowledged(request_id):
                waiting = self._controls.get(request_id)
                if waiting is not None and not waiting.done():
                    waiting.set_result(frame)
            case ToolCalled(call_id=call_id):
                if call_id in self._results:
                    self._answer(_result(frame, self._results.pop(call_id)))
                else:
                    self._calls[call_id] = frame
            case McpAsked():
                self._answer(frames.mcp_answer(frame, self._tools))
            case Withdrawn(control_id):
                self._calls = {key: call for key, call in self._calls.items() if call.control_id != control_id}
            case Asked():
                self._answer(frames.refused(frame))


def _words(launch: Launch) -> tuple[str, ...]:
    """Return the command line. Raises FileNotFoundError."""
    program = shutil.which(launch.program)
    if program is None:
        raise FileNotFoundError(launch.program)
    own = (program, *launch.arguments)
    if sys.platform != "linux" or not sys.executable:
        return own
    return (sys.executable, "-I", "-S", "-c", _DYING_WITH_US, str(os.getpid()), *own)


def _result(called: ToolCalled, answer: _Answer) -> bytes:
    content, is_error = answer
    return frames.tool_result(called.control_id, called.rpc_id, content, is_error=is_error)


def _gone() -> UpstreamError:
    return UpstreamError("Claude Code's program has ended. The request was not repeated; please send it again.")
