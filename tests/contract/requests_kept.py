"""What a request must still say when a protocol has rendered it and read it again.

Both requests are reduced to what that protocol can say; in that, they must be the same.
"""

import itertools
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cachegate.wire.compaction import SUMMARY_PREFACE, UNREADABLE
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import (
    Compacted,
    Document,
    HostedTool,
    Image,
    Message,
    Part,
    Reasoning,
    Request,
    Role,
    Text,
    Tool,
    ToolCall,
    ToolResult,
)
from cachegate.wire.messages.conversation_renderer import INTERRUPTED
from cachegate.wire.tool_names import MESSAGES_CHARS_MAX, OPENAI_CHARS_MAX, ToolNames
from contract.codec_subjects import BINDING

_CHARS_MAX = {
    Protocol.MESSAGES: MESSAGES_CHARS_MAX,
    Protocol.RESPONSES: OPENAI_CHARS_MAX,
    Protocol.CHAT: OPENAI_CHARS_MAX,
}

_DOCUMENT = re.compile(r"<document[^>]*>\n(.*)\n</document>", re.DOTALL)
"""A document of text, where a protocol knows none: its text is what counts."""

_PLAIN_NAME = re.compile(r"[a-zA-Z0-9_-]{1,32}")

Fact = tuple[object, ...]
_ANSWERED: Fact = ("answered",)
"""A result, where only its place counts: it ends what the assistant says."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool answered: its texts, and its pictures."""

    texts: tuple[str, ...]
    """Without those that name a found tool."""
    found: tuple[str, ...]
    """Names of found tools, as far as every protocol takes them as they are; the order of finds says nothing."""
    told: str
    """All texts."""
    pictures: tuple[Fact, ...]
    is_error: bool


@dataclass(frozen=True, slots=True)
class Told:
    """What a request says."""

    preface: tuple[str, ...]
    """Instructions, and the system's messages in front of the conversation: where they stand differs."""
    said: tuple[Fact, ...]
    """Messages part by part, thoughts and calls, in their order."""
    results: tuple[Result | None, ...]
    """Of each call, in the order of the calls."""
    tools: tuple[Fact, ...]


def told(protocol: Protocol, request: Request) -> Told:
    """Reduce a request to what the protocol can say."""
    names = ToolNames(request, _CHARS_MAX[protocol])
    lead = 0
    while lead < len(request.items) and _is_system(request.items[lead]):
        lead += 1
    before = [item for item in request.items[:lead] if isinstance(item, Message)]
    preface = [*request.instructions, *(part for message in before for part in message.parts)]
    said = [fact for item in request.items[lead:] for fact in _facts(protocol, item, names)]
    return Told(
        tuple(part.text for part in preface if isinstance(part, Text) and part.text.strip()),
        tuple(said),
        tuple(_results(request)),
        tuple(fact for tool in request.tools for fact in _tool(protocol, tool, names)),
    )


def _is_system(item: object) -> bool:
    return isinstance(item, Message) and item.role in {Role.SYSTEM, Role.DEVELOPER}


def _facts(protocol: Protocol, item: object, names: ToolNames) -> Iterator[Fact]:
    match item:
        case Message(role=role, parts=parts):
            for part in parts:
                yield from _part(protocol, role, part)
        case ToolCall(tool=ref, arguments=arguments):
            yield ("call", names.wire(ref), _arguments(protocol, arguments, custom=ref.custom))
        case Reasoning(text=text, opaque=opaque, redacted=redacted) if opaque and _is_home(protocol, item):
            yield ("thought", text, opaque, redacted)
        case Compacted(text=str(text)):
            yield from _part(protocol, Role.USER, Text(SUMMARY_PREFACE + text))
        case Compacted(opaque=opaque) if protocol is Protocol.RESPONSES and _is_home(protocol, item):
            yield ("compacted", opaque)
        case Compacted():
            yield from _part(protocol, Role.USER, Text(UNREADABLE))
        case ToolResult() if protocol is Protocol.CHAT:
            yield _ANSWERED
        case _:
            return


def _is_home(protocol: Protocol, item: Reasoning | Compacted) -> bool:
    return protocol is not Protocol.CHAT and item.origin is protocol and item.binding in {None, BINDING}


def _part(protocol: Protocol, role: Role, part: Part) -> Iterator[Fact]:
    speaker = Role.SYSTEM if role is Role.DEVELOPER and protocol is Protocol.MESSAGES else role
    match part:
        case Text(text=text, refusal=refusal):
            if text.strip():
                kind = "refusal" if refusal and protocol is not Protocol.MESSAGES else "text"
                yield (speaker, kind, _DOCUMENT.sub(r"\1", text))
        case Image():
            yield (speaker, *picture(part))
        case Document(text=str(text)):
            yield (speaker, "text", text)
        case Document():
            yield (speaker, "file", part.url or part.data, part.media_type)


def picture(image: Image) -> Fact:
    return ("image", image.url or image.data, None if image.url else image.media_type)


def _arguments(protocol: Protocol, arguments: str, *, custom: bool) -> object:
    """Messages has objects and no text; only there may the spelling change."""
    if protocol is Protocol.RESPONSES:
        return arguments
    if custom:
        return {"input": arguments}
    return json.loads(arguments) if protocol is Protocol.MESSAGES or arguments.startswith('{"input"') else arguments


def _results(request: Request) -> list[Result | None]:
    """Return the result of each call. An id may come again: a result belongs to the last call of its id."""
    found, calls = list[Result | None](), dict[str, int]()
    for item in request.items:
        match item:
            case ToolCall(call_id=call_id):
                calls[call_id] = len(found)
                found.append(None)
            case ToolResult(call_id=call_id):
                found[calls[call_id]] = _result(item)
            case _:
                pass
    return found


def _result(result: ToolResult) -> Result:
    said = [part for part in result.parts if isinstance(part, Text) and part.text.strip()]
    refs = [part.found for part in said if part.found is not None]
    return Result(
        tuple(part.text for part in said if part.found is None),
        tuple(ref.name for ref in refs if _PLAIN_NAME.fullmatch(f"{ref.namespace or ''}{ref.name}")),
        "\n".join(part.text for part in said),
        tuple(picture(part) for part in result.parts if isinstance(part, Image)),
        result.is_error,
    )


def _tool(protocol: Protocol, tool: Tool | HostedTool, names: ToolNames) -> Iterator[Fact]:
    if isinstance(tool, Tool):
        yield (names.wire(tool.ref), json.dumps(tool.schema) if tool.schema else "text")
    elif tool.origin is protocol:
        yield (tool.kind, json.dumps(dict(tool.definition)))


def assert_in_order(expected: Iterable[str], found: str) -> None:
    """See that texts are there, in their order, whatever stands between them."""
    at = 0
    for text in expected:
        place = found.find(text, at)
        assert place >= 0, f"{text!r} is missing"
        at = place + len(text)


def assert_kept(protocol: Protocol, request: Request, again: Request) -> None:
    """See that `again` says everything that `request` says and the protocol can say."""
    before, after = told(protocol, request), told(protocol, again)
    assert_in_order(before.preface, "\n".join(after.preface))
    if before.tools or not before.results:  # Anthropic wants tools where there were calls
        # A namespace of OpenAI's stands once, so that its tools may move to each other.
        tools_before, tools_after = (sorted(one.tools, key=repr) for one in (before, after))
        assert [tool[0] for tool in tools_before] == [tool[0] for tool in tools_after]
        for was, now in zip(tools_before, tools_after, strict=True):
            assert was[1] in {now[1], "text"}
    assert len(before.results) == len(after.results)
    for given, kept in zip(before.results, after.results, strict=True):
        assert kept is not None, "a call without a result is an error upstream"
        if given is not None:
            _assert_result_kept(protocol, given, kept)
    if protocol is not Protocol.CHAT:
        assert tuple(fact for fact in after.said if fact[2:] != (INTERRUPTED,)) == before.said
        return
    # Chat's tools cannot answer with pictures: these follow in a message of the user.
    said, again_said = _chat_order(before.said), _chat_order(after.said)
    rest = iter(again_said)
    assert [fact for fact in said if fact not in rest] == []
    moved = [("user", *shown) for given in before.results if given for shown in given.pictures]
    assert [shown for shown in moved if shown not in after.said] == []
    if not moved:
        assert again_said == said


def _chat_order(said: tuple[Fact, ...]) -> list[Fact]:
    """Put what an answer says in the order of Chat's message: its text, its refusal, its calls."""
    turns = itertools.groupby(said, key=lambda fact: fact[0] in {Role.ASSISTANT, "call"})
    ordered = [fact for speaks, facts in turns for fact in sorted(facts, key=_place if speaks else lambda _: 0)]
    return [fact for fact in ordered if fact is not _ANSWERED]


def _place(fact: Fact) -> int:
    return 2 if fact[0] == "call" else int(fact[1] == "refusal")


def _assert_result_kept(protocol: Protocol, given: Result, kept: Result) -> None:
    assert_in_order(given.texts, kept.told)
    assert [name for name in given.found if name not in kept.told] == []
    if protocol is not Protocol.CHAT:
        assert kept.pictures == given.pictures
    if protocol is Protocol.MESSAGES:
        assert kept.is_error == given.is_error
