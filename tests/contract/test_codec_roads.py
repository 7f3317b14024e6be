"""Whole conversations on the road: a client's request up through two codecs, a scripted answer down again.

After every turn the upstream's request must extend the one before, block by block; thoughts come back unchanged to
whom they belong; the client understands every call with its own tool's name; and nobody refuses anything.
"""

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from cachegate.wire.facts import Operation, Protocol
from cachegate.wire.hub import Target
from cachegate.wire.quirks import Quirk
from contract.codec_subjects import CODECS, read, target, write
from contract.conversations import BILLING, ClaudeCode, Client, Codex, OpenCode, Result, events_of
from contract.prompt_blocks import Blocks, assert_extends, blocks_of, marked_blocks, settings_of
from contract.prompt_caches import PromptCache
from contract.scenarios import FIRST_QUESTION, SCENARIOS, Step
from contract.scripts_played import Answer, Call, Called, Spoken, calls_of, played
from contract.upstream_rules import check

CLIENTS: Mapping[str, Callable[[bool], Client]] = {
    "codex": Codex,
    "codex-lite": lambda streamed: Codex(streamed, lite=True),
    "claude-code": ClaudeCode,
    "opencode": OpenCode,
}


@dataclass(frozen=True, slots=True)
class Turn:
    """What the upstream got, and what it answered."""

    step: Step
    body: bytes
    upstream: Protocol

    @property
    def request(self) -> Mapping[str, Any]:
        decoded: Mapping[str, Any] = json.loads(self.body)
        return decoded

    @property
    def blocks(self) -> Blocks:
        return blocks_of(self.upstream, self.body)

    @property
    def calls(self) -> list[Call]:
        return calls_of(self.upstream, self.step.answer, self.request)


def drive(client: Client, there: Target, steps: tuple[Step, ...], *, streamed: bool) -> Iterator[Turn]:
    """Have the conversation, and yield each turn when the client has understood it."""
    upstream, codec = there.origin, CODECS[client.protocol]
    assert upstream is not None
    for step in steps:
        request = codec.parse_request(client.body())
        turn = Turn(step, CODECS[upstream].render_request(request, there), upstream)
        answer = played(upstream, step.answer, turn.request, streamed=streamed)
        if streamed:
            told = write(client.protocol, read(upstream, answer, request, there), request, there)
        else:
            told = codec.write_body(request, there, CODECS[upstream].read_body(request, there, answer))
        understood = client.hear(told)
        assert [(call.tool, call.namespace, call.arguments) for call in understood] == [
            (*_own_name(client, called.tool), _decoded(called.arguments)) for called in step.answer.calls
        ]
        yield turn
        client.reply(step.results)
        if step.question:
            client.ask(step.question)
        if step.note:
            client.note(step.note)


def _own_name(client: Client, tool: str) -> tuple[str, str | None]:
    """Return what the client calls its tool, which scripts name by its last word."""
    match client.protocol, tool:
        case Protocol.RESPONSES, "read_file":
            return tool, "mcp__fs"
        case Protocol.RESPONSES, "create_issue":
            return tool, "mcp__github"
        case Protocol.RESPONSES, "spawn_agent" | "wait":
            return tool, "multi_agent_v1"
        case Protocol.MESSAGES, "create_issue":
            return "mcp__github__create_issue", None
        case _:
            return tool, None


def _decoded(arguments: str) -> object:
    return json.loads(arguments) if arguments.startswith("{") else arguments


def talk(name: str, there: Target, *, streamed: bool = True) -> list[Turn]:
    client = CLIENTS[name](streamed)
    client.ask(FIRST_QUESTION)
    return list(drive(client, there, SCENARIOS[client.protocol], streamed=streamed))


EACH_CLIENT = pytest.mark.parametrize("name", CLIENTS)
EACH_UPSTREAM = pytest.mark.parametrize("upstream", CODECS, ids=[protocol.value for protocol in CODECS])
EITHER_WAY = pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])


@EACH_CLIENT
@EACH_UPSTREAM
@EITHER_WAY
def test_each_request_of_a_conversation_extends_the_one_before(name: str, upstream: Protocol, streamed: bool) -> None:
    turns = talk(name, target(upstream), streamed=streamed)
    assert len(turns) == 10
    for earlier, later in itertools.pairwise(turns):
        check(upstream, later.body)
        assert_extends(later.blocks, earlier.blocks)
        assert len(later.blocks) >= len(earlier.blocks) + 2, "an answer and what the client added"
        assert settings_of(upstream, later.body) == settings_of(upstream, earlier.body)


PRESETS: Mapping[str, Target] = {
    "anthropic": target(Protocol.MESSAGES, Quirk.SYSTEM_TURNS),
    "anthropic's older models": target(Protocol.MESSAGES, Quirk.NO_ADAPTIVE_THINKING),
    "z.ai": target(Protocol.MESSAGES, Quirk.NO_ADAPTIVE_THINKING, Quirk.NO_CACHE_MARKS),
    "deepseek": target(
        Protocol.CHAT,
        Quirk.MAX_TOKENS,
        Quirk.NO_DEVELOPER,
        Quirk.REASONING_CONTENT,
        Quirk.NEEDS_THOUGHTS,
        Quirk.NO_JSON_SCHEMA,
    ),
    "openrouter": target(Protocol.CHAT, Quirk.CHAT_CACHE_MARKS, Quirk.CHAT_CACHE_KEY, Quirk.REASONING_OBJECT),
    "a strict server": target(
        Protocol.CHAT, Quirk.ONE_SYSTEM_IN_FRONT, Quirk.NO_STRICT, Quirk.NO_PARALLEL, Quirk.NO_STREAM_USAGE
    ),
    "codex's own backend": target(Protocol.RESPONSES, Quirk.NO_STORE, Quirk.NO_SAMPLING),
}


@EACH_CLIENT
@pytest.mark.parametrize("preset", PRESETS)
def test_providers_with_quirks_are_no_exception(name: str, preset: str) -> None:
    there = PRESETS[preset]
    for earlier, later in itertools.pairwise(talk(name, there)):
        check(later.upstream, later.body, there.quirks)
        assert_extends(later.blocks, earlier.blocks)
        assert settings_of(later.upstream, later.body) == settings_of(later.upstream, earlier.body)


@EACH_UPSTREAM
def test_tools_that_codex_found_are_appended_and_can_be_called(upstream: Protocol) -> None:
    steps = (
        Step(Answer(1, (Called("tool_search", '{"query":"issue"}'),)), (Result("found"),)),
        Step(Answer(2, (Called("create_issue", '{"title":"é"}'),)), (Result("done"),)),
        Step(Answer(3, (Spoken("Done."),)), question="Thanks."),
    )
    client = Codex(searching=True)
    client.ask(FIRST_QUESTION)
    turns = list(drive(client, target(upstream), steps, streamed=True))
    for earlier, later in itertools.pairwise(turns):
        check(upstream, later.body)
        was, now = ([block for block in turn.blocks if block.startswith('["tool"')] for turn in (earlier, later))
        assert now[: len(was)] == was, "tools that were there stay in their places"
        assert_extends(later.blocks[len(now) :], earlier.blocks[len(was) :])


@EACH_CLIENT
@EACH_UPSTREAM
def test_calls_come_back_to_the_upstream_with_its_own_ids_and_arguments(name: str, upstream: Protocol) -> None:
    turns = talk(name, target(upstream))
    made = [call for turn in turns[:-1] for call in turn.calls]
    sent = _sent_calls(upstream, turns[-1].request)
    assert [(call_id, tool) for call_id, tool, _ in sent] == [(call.call_id, call.tool.name) for call in made]
    for (_, _, arguments), call in zip(sent, made, strict=True):
        assert _decoded(arguments) == _decoded(call.arguments)
        if name.startswith("codex") and upstream is Protocol.RESPONSES:
            assert arguments == call.arguments, "a client that keeps the model's own spelling gets it back"


def _sent_calls(upstream: Protocol, body: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return id, name and arguments of each call that the upstream is told of."""
    match upstream:
        case Protocol.MESSAGES:
            lists = (message["content"] for message in body["messages"] if isinstance(message["content"], list))
            blocks = [block for blocks in lists for block in blocks if block["type"] == "tool_use"]
            return [(block["id"], block["name"], json.dumps(block["input"])) for block in blocks]
        case Protocol.RESPONSES:
            items = [item for item in body["input"] if item.get("type") in {"function_call", "custom_tool_call"}]
            return [(item["call_id"], item["name"], item.get("arguments") or item["input"]) for item in items]
        case Protocol.CHAT:
            calls = [call for message in body["messages"] for call in message.get("tool_calls", [])]
            return [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls]


@pytest.mark.parametrize("name", ["codex", "codex-lite", "claude-code"])
@EITHER_WAY
def test_claudes_thoughts_come_back_signed_and_in_their_place(name: str, streamed: bool) -> None:
    turns = talk(name, target(Protocol.MESSAGES), streamed=streamed)
    sent = [
        block
        for message in turns[-1].request["messages"]
        if message["role"] == "assistant"
        for block in message["content"]
    ]
    expected = list[object]()
    for turn in turns[:-1]:
        answer = json.loads(played(Protocol.MESSAGES, turn.step.answer, turn.request, streamed=False))
        expected += answer["content"]
    kinds = {"thinking", "redacted_thinking"}
    assert [block for block in sent if block["type"] in kinds] == [
        block for block in expected if isinstance(block, dict) and block["type"] in kinds
    ]
    assert [block["type"] for block in sent] == [block["type"] for block in expected if isinstance(block, dict)]


@pytest.mark.parametrize("name", ["codex", "codex-lite", "claude-code"])
@EITHER_WAY
def test_openais_encrypted_thoughts_come_back_in_their_place(name: str, streamed: bool) -> None:
    turns = talk(name, target(Protocol.RESPONSES), streamed=streamed)
    sent = [item for item in turns[-1].request["input"] if item.get("role") not in {"user", "developer", "system"}]
    kinds = [item.get("type", "message") for item in sent]
    expected = list[Any]()
    for turn in turns[:-1]:
        answer = json.loads(played(Protocol.RESPONSES, turn.step.answer, turn.request, streamed=False))
        expected += answer["output"]
    sealed = [
        ("".join(part["text"] for part in item["summary"]), item["encrypted_content"])
        for item in sent
        if item.get("type") == "reasoning"
    ]
    assert sealed == [
        ("".join(part["text"] for part in item["summary"]), item["encrypted_content"])
        for item in expected
        if item["type"] == "reasoning"
    ]
    outputs = {"function_call_output", "custom_tool_call_output", "additional_tools"}
    assert [kind for kind in kinds if kind not in outputs] == [item["type"] for item in expected]


@EACH_CLIENT
def test_a_chat_upstream_that_wants_its_own_thoughts_back_gets_them(name: str) -> None:
    turns = talk(name, target(Protocol.CHAT, Quirk.REASONING_CONTENT))
    for earlier, later in itertools.pairwise(turns):
        check(Protocol.CHAT, later.body)
        assert_extends(later.blocks, earlier.blocks)
    sent = [message for message in turns[-1].request["messages"] if message.get("tool_calls")]
    wanted = [
        "".join(thought.text for thought in turn.step.answer.thoughts) for turn in turns[:-1] if turn.step.answer.calls
    ]
    assert [message.get("reasoning_content", "").strip() for message in sent] == wanted


@EACH_CLIENT
@EACH_UPSTREAM
def test_after_a_change_of_provider_nobody_gets_the_others_thoughts(name: str, upstream: Protocol) -> None:
    client = CLIENTS[name](True)  # noqa: FBT003 -- streamed
    steps = SCENARIOS[client.protocol]
    client.ask(FIRST_QUESTION)
    here, there = target(upstream), target(upstream, binding="account-two")
    list(drive(client, here, steps[:4], streamed=True))
    changed = [*drive(client, there, steps[4:8], streamed=True)]
    back = [*drive(client, here, steps[8:], streamed=True)]
    foreign = [thought.sealed for step in steps[:4] for thought in step.answer.thoughts]
    if client.protocol is not upstream:  # its own history says nothing of the account
        assert [value for value in foreign for turn in changed if value.encode() in turn.body] == []
    assert all(b"cachegate1." not in turn.body for turn in (*changed, *back))
    for turn in (*changed, *back):
        check(upstream, turn.body)
    for stretch in (changed, back):
        for earlier, later in itertools.pairwise(stretch):
            assert_extends(later.blocks, earlier.blocks)


@pytest.mark.parametrize("upstream", [Protocol.RESPONSES, Protocol.CHAT])
def test_noise_that_changes_with_every_request_is_kept_from_other_upstreams(upstream: Protocol) -> None:
    client = ClaudeCode(hashed=True)
    client.ask(FIRST_QUESTION)
    turns = list(drive(client, target(upstream), SCENARIOS[Protocol.MESSAGES], streamed=True))
    assert all(BILLING.split(":")[0].encode() not in turn.body for turn in turns)
    for earlier, later in itertools.pairwise(turns):
        assert_extends(later.blocks, earlier.blocks)


# --- marks, as Anthropic's cache sees them ---

MARKING = pytest.mark.parametrize(
    "there",
    [target(Protocol.MESSAGES), target(Protocol.CHAT, Quirk.CHAT_CACHE_MARKS)],
    ids=["anthropic", "openrouter"],
)


@EACH_CLIENT
@MARKING
def test_a_cache_with_marks_serves_all_of_the_request_before(name: str, there: Target) -> None:
    upstream = there.origin
    assert upstream is not None
    cache, before = PromptCache(upstream), 0
    for number, turn in enumerate(talk(name, there)):
        marks = marked_blocks(upstream, turn.body)
        assert marks[-1] == len(turn.blocks) - 1, "the tail is marked, so that the next request can read it"
        assert len(marks) <= 4
        assert cache.serve(turn.body) == before, f"turn {number + 1} reads what turn {number} left"
        before = len(turn.blocks)


@pytest.mark.parametrize("name", ["codex", "opencode"])  # Claude Code marks for itself, and marks one tail only
@MARKING
def test_a_turn_of_more_blocks_than_anthropic_looks_back_loses_nothing(name: str, there: Target) -> None:
    client, upstream = CLIENTS[name](True), there.origin  # noqa: FBT003 -- streamed
    assert upstream is not None
    client.ask(FIRST_QUESTION)
    step = SCENARIOS[client.protocol][0]
    many = Step(Answer(11, (Spoken("All at once."), *step.answer.calls * 30)), step.results * 30)
    cache, before = PromptCache(upstream), 0
    for turn in drive(client, there, (step, many, *SCENARIOS[client.protocol][1:4]), streamed=True):
        assert cache.serve(turn.body) == before
        before = len(turn.blocks)


def test_the_marks_of_claude_code_are_kept_where_it_set_them() -> None:
    client = ClaudeCode()
    client.ask(FIRST_QUESTION)
    for turn in drive(client, target(Protocol.MESSAGES), SCENARIOS[Protocol.MESSAGES], streamed=True):
        wished, sent = client.body(), turn.body
        blocks = blocks_of(Protocol.MESSAGES, wished), turn.blocks
        marked = [blocks[0][number] for number in marked_blocks(Protocol.MESSAGES, wished)]
        assert [blocks[1][number] for number in marked_blocks(Protocol.MESSAGES, sent)][: len(marked) - 1] == marked[
            :-1
        ]


@EACH_CLIENT
def test_an_upstream_that_takes_no_marks_gets_none(name: str) -> None:
    for there in (target(Protocol.MESSAGES, Quirk.NO_CACHE_MARKS), target(Protocol.RESPONSES), target(Protocol.CHAT)):
        for turn in talk(name, there):
            assert b"cache_control" not in turn.body


# --- compaction ---


@EACH_UPSTREAM
@pytest.mark.parametrize("lite", [False, True], ids=["codex", "codex-lite"])
def test_codex_can_compact_with_every_upstream_and_goes_on_from_the_summary(upstream: Protocol, lite: bool) -> None:
    client = Codex(lite=lite)
    client.ask(FIRST_QUESTION)
    there = target(upstream)
    before = list(drive(client, there, SCENARIOS[Protocol.RESPONSES][:3], streamed=True))[-1]
    opening = client.history[: 3 if lite else 2]
    client.history.append({"type": "compaction_trigger"})
    request = CODECS[Protocol.RESPONSES].parse_request(client.body())
    turn = Turn(Step(Answer(90, (Spoken("SUMMARY: all is well."),))), _up(upstream, request, there), upstream)
    check(upstream, turn.body)
    assert_extends(turn.blocks, before.blocks)
    assert settings_of(upstream, turn.body) == settings_of(upstream, before.body), "or the conversation is read anew"
    answer = played(upstream, turn.step.answer, turn.request, streamed=True)
    told = write(Protocol.RESPONSES, read(upstream, answer, request, there), request, there)
    items = [event["item"] for event in events_of(told) if event["type"] == "response.output_item.done"]
    assert [item["type"] for item in items] == ["compaction"]
    assert [event["type"] for event in events_of(told)][-1] == "response.completed"
    client.history = [*opening, {name: value for name, value in items[0].items() if name != "id"}]
    client.ask("Go on.")
    after = list(drive(client, there, SCENARIOS[Protocol.RESPONSES][4:], streamed=True))
    assert "SUMMARY: all is well." in json.dumps(after[0].request)
    for earlier, later in itertools.pairwise(after):
        check(upstream, later.body)
        assert_extends(later.blocks, earlier.blocks)


def _up(upstream: Protocol, request: Any, there: Target) -> bytes:
    return CODECS[upstream].render_request(request, there)


@EACH_UPSTREAM
def test_the_older_way_to_compact_answers_with_an_object(upstream: Protocol) -> None:
    client = Codex(streamed=False)
    client.ask(FIRST_QUESTION)
    there = target(upstream)
    list(drive(client, there, SCENARIOS[Protocol.RESPONSES][:2], streamed=False))
    body = {name: value for name, value in json.loads(client.body()).items() if name in {"model", "input", "tools"}}
    request = CODECS[Protocol.RESPONSES].parse_request(json.dumps(body).encode(), Operation.COMPACT)
    up = _up(upstream, request, there)
    check(upstream, up)
    answer = played(upstream, Answer(91, (Spoken("SUMMARY"),)), json.loads(up), streamed=False)
    told = json.loads(
        CODECS[Protocol.RESPONSES].write_body(request, there, CODECS[upstream].read_body(request, there, answer))
    )
    assert told["object"] == "response.compaction"
    assert [item["type"] for item in told["output"]][-1] == "compaction"
    client.history = [*told["output"]]
    client.ask("Go on.")
    again = CODECS[Protocol.RESPONSES].parse_request(client.body())
    assert b"SUMMARY" in _up(upstream, again, there)
