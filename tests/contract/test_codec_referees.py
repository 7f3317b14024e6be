"""The referees of the codec suite are held as well: what is wrong must be seen as wrong."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from cachegate.guard.usage import Usage
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import (
    Counted,
    Delta,
    Ended,
    Event,
    Message,
    PartEnded,
    PartKind,
    PartStarted,
    Role,
    Started,
    Stop,
    Text,
    ToolCall,
    ToolRef,
    ToolResult,
)
from cachegate.wire.hub import Request as Asked
from contract.answers_heard import listen
from contract.codec_subjects import CODECS, target
from contract.prompt_blocks import assert_extends, blocks_of, marked_blocks
from contract.prompt_caches import PromptCache
from contract.requests_kept import assert_kept
from contract.upstream_rules import check

Json = dict[str, Any]

_MARK = {"cache_control": {"type": "ephemeral"}}


def _said(role: str, *texts: str) -> Json:
    return {"role": role, "content": [{"type": "text", "text": text} for text in texts]}


def _use(call_id: str, name: str = "shell") -> Json:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {}}


def _result(call_id: str) -> Json:
    return {"type": "tool_result", "tool_use_id": call_id, "content": "ok"}


def _messages(*messages: Json, **more: Any) -> bytes:
    tool = {"name": "shell", "input_schema": {"type": "object"}}
    return json.dumps({"model": "m", "max_tokens": 9, "tools": [tool], "messages": messages, **more}).encode()


_ASKED = _said("user", "hi")
_CALLED = {"role": "assistant", "content": [_use("c1"), _use("c2")]}
_ANSWERED = {"role": "user", "content": [_result("c1"), _result("c2")]}
GOOD = _messages(_ASKED, _CALLED, _ANSWERED)
BAD: Mapping[str, bytes] = {
    "no max_tokens": GOOD.replace(b'"max_tokens": 9', b'"max_tokens": 0'),
    "empty text": _messages(_said("user", " ")),
    "assistant first": _messages(_said("assistant", "hi"), _ASKED),
    "a system turn": _messages(_ASKED, _said("system", "be brief")),
    "a result missing": _messages(_ASKED, _CALLED, {"role": "user", "content": [_result("c1")]}),
    "a result too many": _messages(_ASKED, {"role": "user", "content": [_result("c1")]}),
    "text before results": _messages(
        _ASKED, _CALLED, {"role": "user", "content": [{"type": "text", "text": "x"}, *_ANSWERED["content"]]}
    ),
    "a call at the end": _messages(_ASKED, _CALLED),
    "an id twice": _messages(_ASKED, _CALLED, _ANSWERED, _CALLED, _ANSWERED),
    "an id of other letters": GOOD.replace(b'"c1"', b'"c:1"'),
    "a name of other letters": _messages(
        _ASKED, {"role": "assistant", "content": [_use("c1", "a.b")]}, {"role": "user", "content": [_result("c1")]}
    ),
    "five marks": _messages({"role": "user", "content": [{"type": "text", "text": "x", **_MARK}] * 5}),
    "a thought without signature": _messages(
        _ASKED, {"role": "assistant", "content": [{"type": "thinking", "thinking": "x", "signature": ""}]}, _ASKED
    ),
    "thinking and a forced tool": _messages(_ASKED, thinking={"type": "adaptive"}, tool_choice={"type": "any"}),
    "thinking and temperature": _messages(_ASKED, thinking={"type": "adaptive"}, temperature=0),
}


def test_a_good_request_passes() -> None:
    check(Protocol.MESSAGES, GOOD)


@pytest.mark.parametrize("name", BAD)
def test_what_anthropic_refuses_is_seen(name: str) -> None:
    with pytest.raises((AssertionError, KeyError)):
        check(Protocol.MESSAGES, BAD[name])


def _chat(*messages: Json) -> bytes:
    tool = {"type": "function", "function": {"name": "shell", "parameters": {}}}
    return json.dumps({"model": "m", "tools": [tool], "messages": messages}).encode()


def _chat_call(*ids: str) -> Json:
    function = {"name": "shell", "arguments": "{}"}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function} for call_id in ids],
    }


@pytest.mark.parametrize(
    "messages",
    [
        [_chat_call("c1"), _said("user", "x")],
        [{"role": "tool", "tool_call_id": "c1", "content": "x"}],
        [_chat_call("c1", "c2"), {"role": "tool", "tool_call_id": "c1", "content": "x"}, _said("user", "x")],
        [_chat_call("c" * 41), {"role": "tool", "tool_call_id": "c" * 41, "content": "x"}],
        [{"role": "assistant", "content": None}],
        [{"role": "user", "content": ""}],
    ],
)
def test_what_chat_servers_refuse_is_seen(messages: list[Json]) -> None:
    with pytest.raises(AssertionError):
        check(Protocol.CHAT, _chat(*messages))


_CALL: Json = {"type": "function_call", "call_id": "c1", "name": "shell", "arguments": "{}"}
_OUTPUT: Json = {"type": "function_call_output", "call_id": "c1", "output": ""}


@pytest.mark.parametrize(
    "items",
    [
        [_CALL],
        [_OUTPUT],
        [_CALL, _CALL, _OUTPUT],
        [{**_CALL, "name": "a.b"}, _OUTPUT],
        [{"type": "reasoning", "summary": [], "encrypted_content": None}],
        [{"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}],
        [{"role": "developer", "content": [{"type": "input_image", "image_url": "x"}]}],
    ],
)
def test_what_openai_refuses_is_seen(items: list[Json]) -> None:
    with pytest.raises(AssertionError):
        check(Protocol.RESPONSES, json.dumps({"model": "m", "input": items}).encode())


# --- blocks and caches ---


def test_a_changed_block_is_seen_and_a_moved_mark_is_none() -> None:
    was = _messages(_said("user", "a", "b"))
    with pytest.raises(AssertionError, match="block 1"):
        assert_extends(
            blocks_of(Protocol.MESSAGES, _messages(_said("user", "x", "b"))), blocks_of(Protocol.MESSAGES, was)
        )
    with pytest.raises(AssertionError, match="lacks"):
        assert_extends(blocks_of(Protocol.MESSAGES, _messages(_said("user", "a"))), blocks_of(Protocol.MESSAGES, was))
    marked = was.replace(b'"text": "a"', b'"text": "a", "cache_control": {"type": "ephemeral"}')
    assert blocks_of(Protocol.MESSAGES, marked) == blocks_of(Protocol.MESSAGES, was)
    assert marked_blocks(Protocol.MESSAGES, marked) == [1]


def test_the_order_of_keys_counts_for_a_block() -> None:
    one, other = (
        {"role": "user", "content": [part]} for part in ({"type": "text", "text": "a"}, {"text": "a", "type": "text"})
    )
    assert blocks_of(Protocol.MESSAGES, _messages(one)) != blocks_of(Protocol.MESSAGES, _messages(other))


def test_the_cache_finds_an_entry_up_to_twenty_blocks_back() -> None:
    def marked(number: int) -> bytes:
        parts = [{"type": "text", "text": str(at)} for at in range(number)]
        return _messages({"role": "user", "content": [*parts[:-1], {**parts[-1], **_MARK}]})

    cache = PromptCache()
    assert cache.serve(marked(5)) == 0
    assert cache.serve(marked(5)) == 6, "the tool, too"
    assert cache.serve(marked(24)) == 6
    assert cache.serve(marked(44)) == 0, "one block too far"


# --- requests and answers ---


def test_something_lost_on_the_way_is_seen() -> None:
    call = ToolCall("c1", ToolRef("shell"), '{"a":1}')
    whole = (Message(Role.USER, (Text("hi"),)), call, ToolResult("c1", (Text("ok"),)))
    request = Asked("m", stream=True, items=whole)
    others: list[tuple[Any, ...]] = [
        (Message(Role.USER, (Text("ho"),)), *whole[1:]),
        (whole[0], ToolCall("c1", ToolRef("shell"), '{"a":2}'), whole[2]),
        (whole[0], call, ToolResult("c1", (Text("no"),))),
        (whole[0], call, ToolResult("c1", (Text("ok"),), is_error=True)),
    ]
    for items in others:
        with pytest.raises(AssertionError):
            assert_kept(Protocol.MESSAGES, request, Asked("m", stream=True, items=items))
    assert_kept(Protocol.MESSAGES, request, request)


_START, _PART, _STOP = Started("a", "m"), PartStarted(0, PartKind.TEXT), Ended(Stop.END)


@pytest.mark.parametrize(
    "events",
    [
        (_PART,),
        (_START, _START),
        (_START, Delta(0, "x")),
        (_START, PartStarted(1, PartKind.TEXT)),
        (_START, _PART, _STOP),
        (_START, _PART, PartEnded(0), PartEnded(0)),
        (_START, _PART, PartEnded(0), Delta(0, "x")),
        (_START, _STOP, Counted(Usage())),
        (_START, PartStarted(0, PartKind.TOOL_CALL)),
    ],
)
def test_events_out_of_order_are_seen(events: tuple[Event, ...]) -> None:
    with pytest.raises(AssertionError):
        listen(events)


MUTANTS: Mapping[str, Callable[[Json], None]] = {
    "a clock in the instructions": lambda body: body["system"][0].update(text=f"It is {len(body['messages'])}."),
    "results first": lambda body: body["messages"].reverse(),
    "arguments written again": lambda body: body["tools"][0].update(description=str(len(body["messages"]))),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_renderer_that_looks_ahead_is_seen(name: str) -> None:
    """Spoil a rendered request in ways in which gateways lose caches, and see that the blocks tell."""
    items = (
        Message(Role.USER, (Text("hi"),)),
        Message(Role.ASSISTANT, (Text("yes"),)),
        Message(Role.USER, (Text("go"),)),
    )
    bodies = [
        json.loads(
            CODECS[Protocol.MESSAGES].render_request(
                Asked("m", stream=True, instructions=(Text("Be."),), items=items[:count], tools=()),
                target(Protocol.MESSAGES),
            )
        )
        for count in (1, 3)
    ]
    for body in bodies:
        body.setdefault("tools", [{"name": "shell", "input_schema": {"type": "object"}}])
    earlier, later = (blocks_of(Protocol.MESSAGES, json.dumps(body).encode()) for body in bodies)
    assert_extends(later, earlier)
    for body in bodies:
        MUTANTS[name](body)
    earlier, later = (blocks_of(Protocol.MESSAGES, json.dumps(body).encode()) for body in bodies)
    with pytest.raises(AssertionError):
        assert_extends(later, earlier)
