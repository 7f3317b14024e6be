"""`cachegate doctor`: see whether live sessions work with the Claude Code on this machine, without an account.

The real program speaks to a stand-in for Anthropic in this process. Much of what a live session rests on stands in no
document, so each version has to show it: one model call for a request, a prompt that only grows, a history taken as it
was written, and nobody else spoken to.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import TypeVar

from cachegate.errors import BadInput, UpstreamError
from cachegate.providers.claude_cli.discovery import find_program, spelled
from cachegate.providers.claude_cli.fake_upstream import FakeUpstream
from cachegate.providers.claude_cli.home import SessionHome, private_root, remove_root
from cachegate.providers.claude_cli.launch import Account, Resume, launch
from cachegate.providers.claude_cli.process import EXITED, ClaudeProcess
from cachegate.wire.claude_cli.prompt import Prompt, Turn, given, prompt_of, results_of
from cachegate.wire.claude_cli.transcript import transcript
from cachegate.wire.codecs import CODECS
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import (
    Delta,
    Ended,
    Event,
    Item,
    Message,
    PartEnded,
    PartKind,
    PartStarted,
    Reasoning,
    Request,
    Role,
    Started,
    Stop,
    Text,
    Tool,
    ToolCall,
    ToolRef,
    ToolResult,
)
from cachegate.wire.usage_readings import Fields

TURN_S = 30.0
"""For the program to end a turn; the stand-in answers at once."""
MODEL = "claude-opus-5"
_WITH_KEY = "with a key"
_ACCOUNTS = {
    _WITH_KEY: Account(api_key="doctor"),
    "with a subscription": Account(oauth_token="doctor"),  # noqa: S106 -- the stand-in asks for none
}
"""The program puts reminders into the prompt of a subscription; so only with a key is a history taken as it is."""
_SYSTEM = "You look at things."
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
_NO_PROXY = ("NO_PROXY", "no_proxy")
_SHOWN_CHARS = 300


_Seen = TypeVar("_Seen")


class SelfTestFailed(Exception):  # noqa: N818 -- it reads as what it is
    """Something that live sessions rest on was not seen; the message says what."""


def _says(role: Role, text: str) -> Message:
    return Message(role, (Text(text),))


_TOOL = Tool(ToolRef("look"), "Look at something.", {"type": "object", "properties": {"at": {"type": "string"}}})
_FIRST = _says(Role.USER, "Look at @/etc/hostname, please.")
_CALLS: tuple[Item, ...] = (
    Reasoning("I have to look.", "c2lnbmF0dXJl", Protocol.MESSAGES),
    _says(Role.ASSISTANT, "Let me look."),
    ToolCall("toolu_doctor", _TOOL.ref, '{"at":"here"}'),
)
_RESULT = ToolResult("toolu_doctor", (Text("It is a file.\n"),))
_ANSWER = _says(Role.ASSISTANT, "There is a file.")
_SECOND = _says(Role.USER, "/help me with @/etc/hostname.")
"""A program that takes words for commands and paths gives itself away."""
_REFUSAL = _says(Role.ASSISTANT, "I can't do that.")
STEPPED: tuple[Item, ...] = (_FIRST, *_CALLS, _RESULT)
"""The conversation when a tool's result has come."""
WHOLE: tuple[Item, ...] = (*STEPPED, _ANSWER, _SECOND)
_REQUESTS = 3
"""In the whole conversation. The model refuses the last one."""


async def self_test(program: str | None, say: Callable[[str], None]) -> None:
    """Test the configured program, or the one that is found.

    Raises SelfTestFailed at the first step that is not seen, UpstreamError for a program that cannot be used.
    """
    found = await find_program(program)
    say(f"Claude Code {spelled(found.version)}, {found.path}")
    if found.warning:
        say(f"Warning: {found.warning}")
    root = private_root(None)
    others: list[str] = []
    try:
        for name, account in _ACCOUNTS.items():
            live = await _live(_Stage(found.path, root, account))
            others += live.others
            step = partial(_step, say, name, live.asked)
            step("one model call for each request", one_call_each)
            step("the prompt only grows", only_grows)
            step("nothing is added to a tool's result", adds_nothing)
            step("commands and paths stay words", passed_on)
        resumed = await _resumed(_Stage(found.path, root, _ACCOUNTS[_WITH_KEY]))
        _step(say, _WITH_KEY, resumed.asked, "a history is taken as it was written", as_written)
        _step(say, "always", [*others, *resumed.others], "nobody but the model is spoken to", nobody_else)
    finally:
        remove_root(root)


def one_call_each(asked: Sequence[bytes]) -> str:
    """See that each request made one call, also the one that the model refused."""
    _see(len(asked) == _REQUESTS, f"{_REQUESTS} requests made {len(asked)} model calls")
    return f"{_REQUESTS} requests, {len(asked)} calls"


def only_grows(asked: Sequence[bytes]) -> str:
    """See that each prompt begins with the whole one before it."""
    prompts = [_read(body) for body in asked]
    for number, (earlier, later) in enumerate(pairwise(prompts), start=2):
        _see(earlier.digest == later.digest, f"call {number} has other instructions or tools than the call before")
        _see_turns(earlier.turns, later.turns[: len(earlier.turns)])
        _see(len(later.turns) > len(earlier.turns), f"call {number} says nothing new")
    return f"{' < '.join(str(len(prompt.turns)) for prompt in prompts)} turns"


def adds_nothing(asked: Sequence[bytes]) -> str:
    """See that the call after a tool's result brings the answer and the result, and nothing that nobody said."""
    return _see_growth(asked[0], asked[1], STEPPED)


def passed_on(asked: Sequence[bytes]) -> str:
    """See that nothing of what is said is taken for a command or a path."""
    return _see_growth(asked[1], asked[2], WHOLE)


def as_written(asked: Sequence[bytes]) -> str:
    """See that a history came as it was written, and that the model was called without another word."""
    _see(len(asked) == 1, f"the program made {len(asked)} model calls instead of going on by itself once")
    wanted, seen = _prompt(STEPPED), _read(asked[0])
    _see_turns(wanted.turns, seen.turns)
    _see(wanted.tools == seen.tools, f"the tools should be {_shown(wanted.tools)}, and are {_shown(seen.tools)}")
    _see(seen.system.endswith(_SYSTEM), f"the instructions should end with ours, and are {_shown(seen.system)}")
    return f"{len(seen.turns)} turns, with thoughts, a call and its result"


def nobody_else(others: Sequence[str]) -> str:
    """See that nothing but the model was asked for."""
    _see(not others, f"the program asked for {', '.join(dict.fromkeys(others))}")
    return "no other address was asked for"


def _step(
    say: Callable[[str], None], account: str, seen: Sequence[_Seen], name: str, see: Callable[[Sequence[_Seen]], str]
) -> None:
    """Say whether a step was seen. Raises SelfTestFailed when it was not."""
    try:
        say(f"  ok  {account}: {name} ({see(seen)})")
    except SelfTestFailed as error:
        raise SelfTestFailed(f"{account}: {name}: {error}") from None


@dataclass(frozen=True, slots=True)
class _Stage:
    """Which program is tried, where, and how it is signed in."""

    program: str
    root: Path
    account: Account


async def _live(stage: _Stage) -> FakeUpstream:
    """Hold the conversation as the gateway does: begun from a transcript, gone on with in the process."""
    answers = (answer(*_CALLS), answer(_ANSWER), answer(_REFUSAL, stop=Stop.REFUSAL))
    async with FakeUpstream(answers) as upstream, _session(stage, upstream, (_FIRST,)) as session:
        await session.give(_RESULT)
        await session.say()
        await session.say(_SECOND)
    return upstream


async def _resumed(stage: _Stage) -> FakeUpstream:
    """Begin from a transcript that ends with a tool's result."""
    async with FakeUpstream([answer(_ANSWER)]) as upstream, _session(stage, upstream, STEPPED) as session:
        await session.ends_its_turn()
    return upstream


class _Session:
    """A process, spoken to turn by turn."""

    def __init__(self, process: ClaudeProcess, ends: "asyncio.Queue[Fields]") -> None:
        self._process = process
        self._ends = ends

    async def say(self, *items: Item) -> None:
        """Say what the user says, or nothing at all, and wait for the end of the turn."""
        content = _prompt(items).turns[0].blocks if items else ()
        await self._process.say(content, str(uuid.uuid4()))
        await self.ends_its_turn()

    async def give(self, result: ToolResult) -> None:
        """Give a call its result, and wait for the end of the turn."""
        (block,) = results_of(_prompt((*STEPPED[:-1], result)).turns[-1])
        content, is_error = given(block)
        await self._process.give(result.call_id, content, is_error=is_error)
        await self.ends_its_turn()

    async def ends_its_turn(self) -> None:
        """Wait for it."""
        try:
            async with asyncio.timeout(TURN_S):
                end = await self._ends.get()
        except TimeoutError:
            raise SelfTestFailed(f"the program did not end its turn within {TURN_S:g} s") from None
        _see(end is not EXITED, "the program ended in the midst of the conversation")


@asynccontextmanager
async def _session(stage: _Stage, upstream: FakeUpstream, past: tuple[Item, ...]) -> AsyncIterator[_Session]:
    prompt, session_id = _prompt(past), str(uuid.uuid4())
    home = SessionHome.create(stage.root)
    home.write_system(prompt.system)
    lines = transcript(session_id, str(home.working_path), MODEL, (), prompt.turns)
    home.write_transcript(session_id, lines)
    account = replace(stage.account, base_url=upstream.url)
    started = launch(stage.program, account, home, MODEL, Resume(session_id, goes_on=True))
    # A person's own exceptions from the proxy would be addresses that nobody learns of.
    proxies = {**dict.fromkeys(_PROXIES, upstream.url), **dict.fromkeys(_NO_PROXY, "127.0.0.1")}
    ends: asyncio.Queue[Fields] = asyncio.Queue()

    def hear(frame: Fields) -> None:
        if frame is EXITED or frame.get("type") == "result":
            ends.put_nowait(frame)

    started = replace(started, environ={**started.environ, **proxies})
    process = await ClaudeProcess.start(started, prompt.tools, hear)
    try:
        yield _Session(process, ends)
    except UpstreamError as error:
        raise SelfTestFailed(error.message) from error
    finally:
        await process.close()


def answer(*items: Item, stop: Stop = Stop.END) -> tuple[Event, ...]:
    """Return what the model says as an answer."""
    events: list[Event] = [Started(uuid.uuid4().hex, MODEL)]  # the program takes answers of one id for one
    for number, item in enumerate(items):
        match item:
            case Reasoning(text, opaque):
                kind, call = PartKind.THINKING, None
            case ToolCall(arguments=text):
                kind, call, opaque = PartKind.TOOL_CALL, replace(item, arguments=""), None
            case Message(parts=(Text(text),)):
                kind, call, opaque = PartKind.TEXT, None, None
            case _:
                raise AssertionError(f"no part of an answer: {item}")
        events += [PartStarted(number, kind, call), Delta(number, text), PartEnded(number, opaque)]
    return (*events, Ended(stop))


def request(items: tuple[Item, ...]) -> Request:
    """Return a request of the conversation."""
    return Request(MODEL, stream=True, instructions=(Text(_SYSTEM),), items=items, tools=(_TOOL,))


def _prompt(items: tuple[Item, ...]) -> Prompt:
    return prompt_of(request(items), MODEL, "doctor")


def _see(holds: bool, words: str) -> None:  # noqa: FBT001 -- as an assert
    if not holds:
        raise SelfTestFailed(words)


def _see_growth(before: bytes, after: bytes, items: tuple[Item, ...]) -> str:
    """See that a call ends with the last two of the conversation's turns, and brings no others."""
    grown = _read(after).turns[len(_read(before).turns) :]
    _see_turns(_prompt(items).turns[-2:], grown)
    return "an answer and a message, nothing else"


def _see_turns(wanted: tuple[Turn, ...], seen: tuple[Turn, ...]) -> None:
    for one, other in zip_longest(wanted, seen):
        _see(one == other, f"a turn should be {_shown(one)}, and is {_shown(other)}")


def _read(body: bytes) -> Prompt:
    try:
        return prompt_of(CODECS[Protocol.MESSAGES].parse_request(body), MODEL, "doctor")
    except BadInput as error:
        raise SelfTestFailed(f"a call is none that we can read: {error.message}") from error


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]} …"
