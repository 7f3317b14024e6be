"""Conversations as agents have them, drawn by hypothesis: requests of the hub, and what they grow into.

A conversation is an opening and rounds. A round is one answer of the model and what the client adds to it: results, the
next question, a system note. So a conversation of any number of whole rounds is a request somebody may send, and
the same conversation with more rounds is its continuation.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest

from hypothesis import strategies as st

from cachegate.wire.facts import Protocol
from cachegate.wire.hub import (
    Choice,
    Compacted,
    Document,
    HostedTool,
    Image,
    Item,
    Message,
    OutputFormat,
    Part,
    Reasoning,
    Request,
    Role,
    Sampling,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolRef,
    ToolResult,
)
from cachegate.wire.responses.tool_parser import CLIENT_SEARCH
from cachegate.wire.tool_names import found_tool
from contract.codec_subjects import BINDING

FOREIGN = "account-two"

# --- words, names and ids, nice and nasty ---

_NASTY_TEXTS = (
    "", " ", "\n", "a\r\nb", "\n\nevent: message_stop\ndata: {}\n\n", "</user>", '"\\', "\x00\u2028", "\U0001f642é",
    "data: [DONE]", "cachegate1.AAAA", "  led and trailed  ",
)  # fmt: skip
words = st.sampled_from(("Fix the build.", "It fails in `make`.", "Done.", "Look again, please."))
texts = words | st.sampled_from(_NASTY_TEXTS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
said = texts.filter(str.strip)
"""Text that a provider takes: more than blanks."""

_NASTY_NAMES = (
    "a__b__c", "b__c", "c", "A__B__C", "x" * 64, "x" * 65, "x" * 66, "x" * 128, "functions.shell", "functions:shell",
    "shell tool", "größe", "_", "__", "mcp__fs__read", "\U0001f642",
)  # fmt: skip
tool_names = st.sampled_from(("shell", "Read", "apply_patch", "grep")) | st.sampled_from(_NASTY_NAMES)
namespaces = st.none() | st.sampled_from(("functions", "a", "a__b", "mcp__fs", "n" * 60, "ns.with.dots"))
tool_refs = st.builds(ToolRef, tool_names, namespaces, custom=st.just(value=False))

_NASTY_IDS = (
    "a.b", "a:b", "a_b", "a b", "functions.Read:0", "call|1", "é", "\U0001f642", "i" * 64, "i" * 65, "i" * 200, "-",
)  # fmt: skip
call_ids = st.from_regex(r"(call_|toolu_|fc_)[A-Za-z0-9]{4,12}", fullmatch=True) | st.sampled_from(_NASTY_IDS)

# --- parts ---

_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
marks = st.booleans()
text_parts = st.builds(Text, texts, marked=marks)
images = st.builds(Image, data=st.just(_PIXEL), media_type=st.sampled_from(("image/png", "image/webp")), marked=marks)
image_addresses = st.builds(Image, url=st.just("https://example.test/a.png"), marked=marks)
documents = st.builds(
    Document, data=st.just("JVBERi0xLjQ="), media_type=st.just("application/pdf"), name=st.just("a.pdf"), marked=marks
)
notes = st.builds(Document, text=said, media_type=st.just("text/plain"), name=st.just("a.txt"), marked=marks)
user_parts = st.one_of(text_parts, text_parts, images, image_addresses, documents, notes)
result_parts = st.one_of(text_parts, text_parts, text_parts, images)


def _parts(part: st.SearchStrategy[Part], least: int = 0, most: int = 3) -> st.SearchStrategy[tuple[Part, ...]]:
    return st.lists(part, min_size=least, max_size=most).map(tuple)


def _spoken(role: Role, part: st.SearchStrategy[Part], least: int = 0) -> st.SearchStrategy[Message]:
    """Draw a message that says something, among whatever else."""
    return st.builds(lambda said_, more: Message(role, (*more, Text(said_))), said, _parts(part, least, 2))


questions = _spoken(Role.USER, user_parts)
refusals = st.builds(lambda text: Message(Role.ASSISTANT, (Text(text, refusal=True),)), said)
answers = _spoken(Role.ASSISTANT, st.builds(Text, texts))
system_notes = _spoken(Role.SYSTEM, text_parts) | _spoken(Role.DEVELOPER, text_parts)

# --- thoughts ---

bindings = st.sampled_from((None, BINDING, FOREIGN))
opaques = st.from_regex(r"[A-Za-z0-9+/]{8,20}={0,2}", fullmatch=True)


@st.composite
def thoughts(draw: st.DrawFn) -> Reasoning:
    """Draw a thought of any provider, of this account or another, readable or not."""
    origin = draw(st.sampled_from((None, *Protocol)))
    if origin is None:
        return Reasoning(draw(texts))
    redacted = origin is Protocol.MESSAGES and draw(st.booleans())
    return Reasoning(
        "" if redacted else draw(texts),
        draw(opaques) if redacted else draw(opaques | st.none()),
        origin,
        draw(st.none() | st.just("rs_0d2f7a61")),
        redacted,
        draw(bindings),
    )


# --- tools ---

_SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
_GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": 'start: "*** Begin Patch" LF'}
schemas = st.sampled_from((_SCHEMA, {"type": "object", "properties": {}}, {"type": "object", **_SCHEMA, "$defs": {}}))
plain_tools = st.builds(
    Tool,
    tool_refs,
    st.none() | said,
    schemas,
    st.sampled_from((None, True, False)),
    deferred=st.just(value=False),
    marked=marks,
)
custom_tools = st.builds(
    Tool, tool_refs.map(lambda ref: replace(ref, custom=True)), said, grammar=st.sampled_from((None, _GRAMMAR))
)
hosted_tools = st.sampled_from(
    (
        HostedTool("web_search", Protocol.RESPONSES, {"type": "web_search"}),
        HostedTool("web_search_20250305", Protocol.MESSAGES, {"type": "web_search_20250305", "name": "web_search"}),
    )
)


def _name(tool: Tool | HostedTool) -> tuple[str, str | None]:
    return (tool.ref.name, tool.ref.namespace) if isinstance(tool, Tool) else (tool.kind, None)


def _together(tools: list[Tool | HostedTool]) -> list[Tool | HostedTool]:
    """Put the tools of one namespace next to each other, as Codex lists them."""
    spaces = [tool.ref.namespace if isinstance(tool, Tool) else None for tool in tools]
    first: dict[str | None, int] = {}
    for place, space in enumerate(spaces):
        if space is not None:
            first.setdefault(space, place)
    order = sorted(range(len(tools)), key=lambda place: first.get(spaces[place], place))
    return [tools[place] for place in order]


toolboxes: st.SearchStrategy[list[Tool | HostedTool]] = st.lists(
    st.one_of(plain_tools, plain_tools, custom_tools, hosted_tools), max_size=5, unique_by=_name
).map(_together)

# --- rounds ---


@dataclass(frozen=True, slots=True)
class Conversation:
    """An opening and whole rounds."""

    opening: tuple[Item, ...]
    before: tuple[tuple[Item, ...], ...]
    after: tuple[tuple[Item, ...], ...] = ()

    @property
    def earlier(self) -> tuple[Item, ...]:
        return (*self.opening, *(item for one in self.before for item in one))

    @property
    def items(self) -> tuple[Item, ...]:
        return (*self.earlier, *(item for one in self.after for item in one))


@st.composite
def openings(draw: st.DrawFn) -> tuple[Item, ...]:
    before = draw(st.lists(system_notes, max_size=2))
    compacted = draw(st.lists(summaries, max_size=1))
    return (*before, *compacted, draw(questions), *draw(st.lists(system_notes, max_size=1)))


summaries = st.builds(Compacted, said) | st.builds(
    Compacted, opaque=opaques, origin=st.just(Protocol.RESPONSES), binding=bindings
)


@st.composite
def said_rounds(draw: st.DrawFn) -> tuple[Item, ...]:
    """Draw an answer in words, and the next question."""
    thought = draw(st.lists(thoughts(), max_size=1))
    return (*thought, draw(answers | refusals), draw(questions), *draw(st.lists(system_notes, max_size=1)))


@st.composite
def called_rounds(draw: st.DrawFn, refs: Sequence[ToolRef], new_id: Callable[[], str]) -> tuple[Item, ...]:
    """Draw one call or several at once, and what came back: each result, or none after an abort."""
    calls = [draw(_calls(refs, new_id)) for _ in range(draw(st.integers(1, 3)))]
    given = draw(st.permutations(calls))
    aborted = draw(st.integers(0, 3)) == 0
    if aborted:
        given = given[: draw(st.integers(0, len(calls) - 1))]
    results: list[Item] = [draw(_results(call)) for call in given]
    before: list[Item] = [*draw(st.lists(thoughts(), max_size=2)), *draw(st.lists(answers, max_size=1))]
    between = draw(st.lists(st.one_of(thoughts(), answers), max_size=len(calls) - 1))
    after = draw(st.lists(questions, min_size=1 if aborted else 0, max_size=1))
    notes = draw(st.lists(system_notes, max_size=1))
    if draw(st.booleans()):  # a client's note may come while the tools run
        return (*before, *_woven(calls, between), *notes, *results, *after)
    return (*before, *_woven(calls, between), *results, *after, *notes)


def _woven(calls: Sequence[Item], between: Sequence[Item]) -> Iterator[Item]:
    """Put thoughts and words between the calls of one answer."""
    for call, more in zip_longest(calls, between):
        yield from (item for item in (call, more) if item is not None)


@st.composite
def _calls(draw: st.DrawFn, refs: Sequence[ToolRef], new_id: Callable[[], str]) -> ToolCall:
    ref = draw(st.sampled_from(refs))
    return ToolCall(new_id(), ref, draw(said if ref.custom else st.sampled_from(_ARGUMENTS)))


_ARGUMENTS = ('{"path":"a"}', '{ "path" : "é\\u00e9" }', "{}", '{"n":[1,2.50]}')


def _results(call: ToolCall) -> st.SearchStrategy[ToolResult]:
    return st.builds(
        ToolResult,
        st.just(call.call_id),
        _parts(result_parts),
        is_error=st.booleans(),
        custom=st.just(call.tool.custom),
    )


_BEFORE_ANY = (ToolRef("shell"), ToolRef("spawn", "multi_agent_v1"), ToolRef("apply_patch", custom=True))
"""Tools that are called in a history although the request has them no more."""


def _ids(size: int) -> st.SearchStrategy[list[str]]:
    """Draw ids of calls: Ollama and others begin anew with every answer."""
    unique = st.lists(call_ids, unique=True, min_size=size, max_size=size)
    return st.one_of(unique, unique, st.just([f"call_{number % 3}" for number in range(size)]))


@st.composite
def conversations(draw: st.DrawFn, tools: Sequence[Tool | HostedTool], before: int = 3, after: int = 0) -> Conversation:
    """Draw a conversation: at first with tools that are gone by now, and `after` rounds with those that there are."""
    named = {_name(tool) for tool in tools}
    there = _callable(tools)
    refs = [*there, *(ref for ref in _BEFORE_ANY if (ref.name, ref.namespace) not in named)]
    ids = iter(draw(_ids(3 * (before + after))))
    new_id = partial(next, ids)
    first = draw(st.lists(said_rounds() | called_rounds(refs, new_id), max_size=before))
    now = said_rounds() | called_rounds(there, new_id) if there else said_rounds()
    return Conversation(draw(openings()), tuple(first), tuple(draw(st.lists(now, max_size=after))))


# --- requests ---

efforts = st.sampled_from((None, "none", "minimal", "low", "medium", "high", "xhigh", "max"))
thinkings = st.builds(
    Thinking,
    st.sampled_from((None, True, False)),
    efforts,
    st.none() | st.integers(1024, 20_000),
    st.sampled_from((None, True, False)),
)
formats = st.none() | st.builds(
    OutputFormat, st.sampled_from((None, _SCHEMA)), st.none() | st.just("title"), st.sampled_from((None, True))
)
samplings = st.builds(
    Sampling,
    st.none() | st.integers(1, 64_000),
    st.none() | st.sampled_from((0.0, 0.5, 1.0)),
    st.none() | st.sampled_from((0.1, 1.0)),
    st.none() | st.integers(1, 40),
    st.lists(said, max_size=2).map(tuple),
)


@st.composite
def _asked(draw: st.DrawFn, tools: Sequence[Tool | HostedTool]) -> Request:
    """Draw everything of a request but its conversation; all of it can be said in every protocol."""
    return Request(
        "model-here",
        draw(st.booleans()),
        instructions=draw(st.lists(st.builds(Text, said, marked=marks), max_size=2).map(tuple)),
        tools=tuple(tools),
        choice=draw(st.sampled_from((None, Choice.AUTO, Choice.NONE))) if _callable(tools) else None,
        parallel_tools=draw(st.sampled_from((None, True, False))) if _callable(tools) else None,
        thinking=draw(st.sampled_from((Thinking(), Thinking(effort="high"), Thinking(enabled=True, show=True)))),
        cache_key=draw(st.none() | st.just("key-of-the-client")),
    )


def _callable(tools: Sequence[Tool | HostedTool]) -> list[ToolRef]:
    return [tool.ref for tool in tools if isinstance(tool, Tool)]


@dataclass(frozen=True, slots=True)
class Growing:
    """A request and the same conversation later on."""

    earlier: Request
    later: Request


@st.composite
def growing(draw: st.DrawFn) -> Growing:
    """Draw a conversation that goes on: nothing before changes, but what the client marks for the cache."""
    tools = draw(toolboxes)
    whole = draw(conversations(tools, before=2, after=2))
    asked = draw(_asked(tools))
    earlier, later = (replace(asked, items=items) for items in (whole.earlier, whole.items))
    return Growing(earlier, draw(_remarked(later)))


# --- searches for tools ---

SEARCH = Tool(CLIENT_SEARCH, "Finds tools.", _SCHEMA)
found_tools = st.lists(plain_tools | custom_tools, min_size=1, max_size=6, unique_by=_name)


@st.composite
def searching(draw: st.DrawFn, *, wordy: bool = True) -> Growing:
    """Draw a conversation in which searches find further tools, which are declared from then on, anywhere in the list.

    A tool may be found again. What is found is called, or not. Wordy searches say more than what they
    found.
    """
    box = draw(toolboxes)
    tools: list[Tool | HostedTool] = [SEARCH, *box]
    declared = {_name(tool) for tool in tools}
    late = [replace(tool, deferred=True, marked=False) for tool in draw(found_tools) if _name(tool) not in declared]
    whole, asked = draw(conversations(box, before=2, after=2)), draw(_asked(tools))
    items, known, stages = list(whole.opening), list[Tool](), list[Request]()
    for number, once in enumerate((*whole.before, None, *whole.after, None)):
        if once is None:
            stages.append(replace(asked, items=tuple(items), tools=tuple(draw(_mixed(tools, known)))))
            continue
        items += once
        found = draw(st.lists(st.sampled_from(late), max_size=3, unique_by=_name)) if late else []
        items += draw(_searches(number, found, wordy=wordy)) if found else ()
        known += [tool for tool in found if tool not in known]
    return Growing(stages[0], draw(_remarked(stages[1])))


@st.composite
def _searches(draw: st.DrawFn, number: int, found: Sequence[Tool], *, wordy: bool) -> tuple[Item, ...]:
    """Draw a search that finds these tools, and what is made of it."""
    beside = draw(st.lists(st.builds(Text, texts), max_size=int(wordy)))
    parts = (*beside, *(found_tool(tool.ref) for tool in found))
    search: tuple[Item, ...] = (ToolCall(f"search_{number}", SEARCH.ref, "{}"), ToolResult(f"search_{number}", parts))
    ref = draw(st.none() | st.sampled_from([tool.ref for tool in found]))
    if ref is None:
        return search
    called = ToolCall(f"found_{number}", ref, "as it is" if ref.custom else "{}")
    return (*search, called, ToolResult(called.call_id, (Text("ok"),), custom=ref.custom))


@st.composite
def _mixed(draw: st.DrawFn, tools: Sequence[Tool | HostedTool], known: Sequence[Tool]) -> list[Tool | HostedTool]:
    """Put the found tools anywhere among the others, whose order stays."""
    mixed = list(tools)
    for tool in known:
        mixed.insert(draw(st.integers(0, len(mixed))), tool)
    return mixed


@st.composite
def _remarked(draw: st.DrawFn, request: Request) -> Request:
    """Move the marks of the last two items about: clients mark the tail, which moves."""
    moved = [_marked(item, mark=draw(marks)) for item in request.items[-2:]]
    return replace(request, items=(*request.items[:-2], *moved))


def _marked(item: Item, *, mark: bool) -> Item:
    match item:
        case Message(role=Role.USER) | ToolResult():
            return replace(item, parts=tuple(replace(part, marked=mark) for part in item.parts))
        case _:
            return item


@st.composite
def plain_requests(draw: st.DrawFn) -> Request:
    """Draw a request that every protocol can say."""
    tools = draw(toolboxes)
    return replace(draw(_asked(tools)), items=draw(conversations(tools)).items)


@st.composite
def any_requests(draw: st.DrawFn) -> Request:
    """Draw a request with settings of which some protocol has to refuse some."""
    plain = draw(plain_requests())
    refs = _callable(plain.tools)
    choice = draw(st.sampled_from((None, *Choice))) if refs else None
    return replace(
        plain,
        choice=choice,
        chosen_tool=draw(st.sampled_from(refs)) if choice is Choice.ONE else None,
        sampling=draw(samplings),
        thinking=draw(thinkings),
        output_format=draw(formats),
        verbosity=draw(st.sampled_from((None, "low", "high"))),
        fast=draw(st.sampled_from((None, True, False))),
        wants_usage=draw(st.booleans()),
    )
