"""A `claude` program that says what a test wants, for tests of what stands in front of it."""

import asyncio
import json
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cachegate.errors import UpstreamError
from cachegate.providers.claude_cli.gate import Gate
from cachegate.providers.claude_cli.home import SessionHome
from cachegate.providers.claude_cli.launch import Launch
from cachegate.providers.claude_cli.process import EXITED
from cachegate.wire.claude_cli.turn_reader import TurnReader
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import Json, Request, Target
from cachegate.wire.usage_readings import Fields
from claude_frames import STEPPED, answers


@dataclass(frozen=True, slots=True)
class Refused:
    """The provider answers with an error, and the program says what it makes of it."""

    status: int
    body: bytes
    retry_after: str = ""
    frames: Sequence[Fields] = ()


Reply = Sequence[Fields] | Refused
_NOBODY = Request("m", stream=True)
_TARGET = Target("up", "p", origin=Protocol.MESSAGES)


class FakeGate(Gate):
    """A gate without a server: the program's calls are told to it."""

    def __init__(self, upstream: str = "http://127.0.0.1:9") -> None:
        super().__init__(upstream)
        self.upstream = upstream
        self.listens: bool | None = None

    async def start(self) -> None:
        self.listens = True

    async def stop(self) -> None:
        self.listens = False

    def url(self, key: str) -> str:
        return f"http://127.0.0.1:9/{key}"

    def call(self, key: str, reply: Reply) -> bool:
        """Let a model call through; whether it was permitted."""
        permit = self._permits.pop(key, None)
        if permit is None:
            return False
        permit.on_sent()
        if isinstance(reply, Refused):
            permit.on_failure(reply.status, reply.body, reply.retry_after)
        return True


class FakeProcess:
    """One process; it keeps its transcript as the real one does, an answer when it is complete."""

    def __init__(self, program: "FakeProgram", launch: Launch, tools: Sequence[Json]) -> None:
        self.program = program
        self.launch = launch
        self.tools = tools
        self.home = SessionHome(launch.folder.parent)
        self.listener: Callable[[Fields], None] = lambda _: None
        self.said: list[Sequence[Json]] = []
        self.given: list[tuple[str, Sequence[Json], bool]] = []
        self.controls: list[tuple[str, dict[str, object]]] = []
        self.alive = True
        self.ended = asyncio.Event()
        self._waiting: list[str] = []

    @property
    def session_id(self) -> str:
        return self.option("--resume") or ""

    def option(self, name: str) -> str | None:
        arguments = self.launch.arguments
        return arguments[arguments.index(name) + 1] if name in arguments else None

    def play(self, frames: Sequence[Fields]) -> None:
        """Say this."""
        for frame in frames:
            self.listener(frame)

    def answer(self) -> None:
        """Ask the model, whose reply is the next one of the script."""
        reply = self.program.replies.popleft() if self.program.replies else answers("Hello", " world")
        assert self.program.gate.call(self.session_id, reply), "the gate must be open before the model is asked"
        frames = reply.frames if isinstance(reply, Refused) else reply
        reader = TurnReader(_NOBODY, _TARGET)
        for frame in frames:
            reader.read(frame)
        blocks = reader.turn().blocks
        if any(frame.get("event", {}) == {"type": "message_stop"} for frame in frames):
            for block in blocks:
                self._keep("assistant", [block])
        self._waiting = [str(block.get("id")) for block in blocks if block.get("type") == "tool_use"]
        self.play(frames)

    async def say(self, content: Sequence[Json], message_id: str) -> None:
        self._log("say")
        self._must_live()
        self.program.ids.append(message_id)
        self.said.append(content)
        if content:
            self._keep("user", content)
        self.answer()

    async def give(self, call_id: str, content: Sequence[Json], *, is_error: bool) -> None:
        self._log("give")
        self._must_live()
        self.given.append((call_id, content, is_error))
        self._keep("user", [{"type": "tool_result", "tool_use_id": call_id, "content": content}])
        self._waiting.remove(call_id)
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self.play, self.program.step)

    async def control(self, subtype: str, **fields: object) -> Fields:
        self._log("control")
        self._must_live()
        self.controls.append((subtype, fields))
        if self.program.refuses_control:
            raise UpstreamError("no")
        return {}

    async def interrupt(self) -> None:
        self._log("interrupt")
        if self.program.deaf:
            await asyncio.Event().wait()
        self._must_live()

    def kill(self) -> None:
        self._log("kill")
        self.alive = False

    def exit(self) -> None:
        """Be gone of its own accord."""
        self.alive = False
        self.play([EXITED])

    async def close(self) -> None:
        self._log("close")
        self.alive = False
        self.ended.set()
        self.play([EXITED])

    def _must_live(self) -> None:
        if not self.alive:
            raise UpstreamError("gone")

    def _log(self, what: str) -> None:
        self.program.log.append(what)

    def _keep(self, role: str, content: Sequence[Json]) -> None:
        lines = self.home.read_transcript(self.session_id)
        line = {"type": role, "message": {"role": role, "content": list(content)}, "uuid": f"native-{len(lines)}"}
        self.home.write_transcript(
            self.session_id, (*lines, json.dumps({**line, "sessionId": self.session_id, "thought": "kept"}).encode())
        )


class FakeProgram:
    """Stands where `ClaudeProcess` does, and starts processes. Without a script each answer is "Hello world"."""

    def __init__(self, *replies: Reply) -> None:
        self.gate = FakeGate()
        self.replies = deque(replies)
        self.processes: list[FakeProcess] = []
        self.log: list[str] = []
        self.ids: list[str] = []
        self.refuses: UpstreamError | None = None
        self.refuses_control = False
        self.deaf = False
        """An interrupt is never acknowledged."""
        self.step: Sequence[Fields] = [STEPPED]
        """What is said when all results have been given."""
        self.started = asyncio.Event()
        self.may_listen = asyncio.Event()
        """Set while a process that starts may say that it listens."""
        self.may_listen.set()

    @property
    def last(self) -> FakeProcess:
        return self.processes[-1]

    async def start(self, launch: Launch, tools: Sequence[Json], listener: Callable[[Fields], None]) -> FakeProcess:
        self.log.append("start")
        if self.refuses is not None:
            raise self.refuses
        process = FakeProcess(self, launch, tools)
        process.listener = listener
        self.processes.append(process)
        if launch.environ["CLAUDE_CODE_RESUME_INTERRUPTED_TURN"] == "1":
            process.answer()
        self.started.set()
        await self.may_listen.wait()
        return process

    def lines(self, process: FakeProcess | None = None) -> list[Json]:
        """Return a process's transcript."""
        of = process or self.last
        return [json.loads(line) for line in of.home.read_transcript(of.session_id)]
