"""What clients and upstreams really send is not always what they should: nothing of it makes a codec fall over."""

import contextlib
import copy
import json
import random
from collections.abc import Iterator, Mapping
from typing import Any, get_args

import anthropic.types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses.response_input_param import ResponseInputItemParam

from cachegate.errors import BadInput
from cachegate.wire.facts import Operation, Protocol
from cachegate.wire.hub import Ended, Request
from contract.codec_subjects import ASKED, CODECS, EACH, read, target, write
from contract.conversations import ClaudeCode, Client, Codex, OpenCode
from contract.scenarios import FIRST_QUESTION, SCENARIOS
from contract.test_codec_answers import RECORDED, Stream
from contract.test_codec_roads import drive
from contract.test_codecs import thoroughly

_ODD: tuple[Any, ...] = (None, True, 0, -1, 2.5, "", "x", [], {}, [None], [[]], {"type": "unheard_of"}, "\ud83d")


def _client(spoken: Protocol) -> Client:
    made: Mapping[Protocol, type[Client]] = {
        Protocol.MESSAGES: ClaudeCode, Protocol.RESPONSES: Codex, Protocol.CHAT: OpenCode,
    }  # fmt: skip
    client = made[spoken]()
    client.ask(FIRST_QUESTION)
    list(drive(client, target(Protocol.MESSAGES), SCENARIOS[spoken][:5], streamed=True))
    return client


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container of a JSON value with each of its keys."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


def spoiled(body: Any, dice: random.Random) -> Any:
    """Return the body with one value, somewhere, made odd or taken away."""
    again = copy.deepcopy(body)
    where, key = dice.choice(list(_places(again)))
    if dice.random() < 0.3:
        del where[key]
    else:
        where[key] = copy.deepcopy(dice.choice(_ODD))
    return again


@EACH
def test_a_request_with_one_odd_value_is_refused_by_a_field_or_rendered_everywhere(spoken: Protocol) -> None:
    body, dice = json.loads(_client(spoken).body()), random.Random(7)
    read_well = 0
    for _ in range(400):
        text = json.dumps(spoiled(body, dice)).encode()
        with contextlib.suppress(BadInput):
            request = CODECS[spoken].parse_request(text)
            read_well += 1
            for upstream, codec in CODECS.items():
                with contextlib.suppress(BadInput):
                    json.loads(codec.render_request(request, target(upstream)))
    assert read_well > 40, "most of what is odd does not matter"


@EACH
@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"1", b'"x"', b"{}", b'{"model":', b'{"model":1}', b"\xff\xfe"])
def test_what_is_no_request_is_refused(spoken: Protocol, body: bytes) -> None:
    with pytest.raises(BadInput):
        CODECS[spoken].parse_request(body)


@pytest.mark.parametrize("stream", RECORDED, ids=[stream.name for stream in RECORDED])
def test_a_stream_with_one_odd_value_is_read_as_far_as_it_goes(stream: Stream) -> None:
    """Nothing raises; and what was made of it can be written to every client, as an end only where there was one."""
    dice = random.Random(11)
    blocks = [block for block in stream.data.replace(b"\r\n", b"\n").split(b"\n\n") if b"data: {" in block]
    for _ in range(25 if blocks else 0):
        number = dice.randrange(len(blocks))
        head, _, data = blocks[number].partition(b"data: ")
        try:
            odd = json.dumps(spoiled(json.loads(data), dice)).encode()
        except json.JSONDecodeError:
            continue
        events = read(
            stream.protocol, b"\n\n".join([*blocks[:number], head + b"data: " + odd, *blocks[number + 1 :], b""])
        )
        for client in CODECS:
            told = read(client, write(client, events, ASKED, target(stream.protocol)))
            if any(isinstance(event, Ended) for event in told):
                assert any(isinstance(event, Ended) for event in events)


_FIELDS = ("type", "content", "choices", "output", "error", "usage", "message", "delta", "id", "stop_reason")
_VALUES = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
any_json = st.recursive(
    _VALUES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(_FIELDS), inner, max_size=4),
    max_leaves=8,
)


@EACH
@thoroughly
@given(body=any_json)
def test_any_json_is_an_answer_or_none(spoken: Protocol, body: object) -> None:
    events = CODECS[spoken].read_body(ASKED, target(spoken), json.dumps(body).encode())
    assert isinstance(events, tuple)


# --- everything that the vendors' types know ---


def _kinds(union: Any) -> list[str]:
    """Return the `type` of each variant of a union of the SDKs' parameters."""
    found = list[str]()
    for variant in get_args(union):
        hints = getattr(variant, "__annotations__", {})
        if "type" in hints:
            found += [name for name in _literals(hints["type"]) if isinstance(name, str)]
    return sorted(set(found))


def _literals(hint: Any) -> Iterator[Any]:
    text = hint.__forward_arg__ if hasattr(hint, "__forward_arg__") else None
    if text is not None:
        yield from (part.strip("\"' ") for part in text.split("[")[-1].rstrip("]").split(","))
        return
    for argument in get_args(hint):
        if isinstance(argument, str):
            yield argument
        else:
            yield from _literals(argument)


ITEMS = _kinds(ResponseInputItemParam)
BLOCKS = _kinds(anthropic.types.ContentBlockParam)
SINCE = ("compaction_trigger", "compaction", "additional_tools", "tool_search_call", "tool_search_output",
         "configuration_update", "context_compaction", "item_reference", "unheard_of")  # fmt: skip
"""What Codex 0.171 sends beyond the types."""


def test_the_types_were_found() -> None:
    assert {"message", "function_call_output", "reasoning", "custom_tool_call"} <= set(ITEMS)
    assert {"text", "tool_use", "thinking", "document", "server_tool_use"} <= set(BLOCKS)


def _taken(spoken: Protocol, body: Mapping[str, Any], kind: str) -> Request | None:
    """Parse a request; a refusal must say what it does not take."""
    try:
        return CODECS[spoken].parse_request(json.dumps(body).encode(), Operation.GENERATE)
    except BadInput as refused:
        message = refused.message
        assert kind in message or "input" in message or "messages" in message
        return None


@pytest.mark.parametrize("kind", sorted({*ITEMS, *SINCE}))
def test_every_kind_of_input_item_is_taken_or_refused_by_its_name(kind: str) -> None:
    asked = {"type": "message", "role": "user", "content": "hi"}
    request = _taken(Protocol.RESPONSES, {"model": "m", "input": [asked, {"type": kind}, asked]}, kind)
    for upstream, codec in CODECS.items():
        if request is not None:
            json.loads(codec.render_request(request, target(upstream)))


@pytest.mark.parametrize("role", ["user", "assistant"])
@pytest.mark.parametrize("kind", [*BLOCKS, "unheard_of", "tool_reference", "compaction", "mcp_tool_use"])
def test_every_kind_of_content_block_is_taken_or_refused_by_its_name(kind: str, role: str) -> None:
    messages = [
        {"role": "user", "content": "hi"},
        {"role": role, "content": [{"type": kind}]},
        {"role": "user", "content": "go on"},
    ]
    request = _taken(Protocol.MESSAGES, {"model": "m", "max_tokens": 9, "messages": messages}, kind)
    for upstream, codec in CODECS.items():
        if request is not None:
            json.loads(codec.render_request(request, target(upstream)))


def test_claude_codes_tool_search_goes_everywhere() -> None:
    """What its ToolSearch found comes as references in a result; the model must be told at least their names."""
    result = {
        "type": "tool_result",
        "tool_use_id": "toolu_1",
        "content": [{"type": "tool_reference", "tool_name": "WebFetch"}],
    }
    body = {
        "model": "claude-opus-5-5",
        "max_tokens": 9,
        "tools": [
            {"name": "ToolSearch", "input_schema": {"type": "object"}},
            {"name": "WebFetch", "input_schema": {"type": "object"}, "defer_loading": True},
        ],
        "messages": [
            {"role": "user", "content": "hi"},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "toolu_1", "name": "ToolSearch", "input": {"query": "web"}}],
            },
            {"role": "user", "content": [result]},
        ],
    }
    request = CODECS[Protocol.MESSAGES].parse_request(json.dumps(body).encode())
    for upstream, codec in CODECS.items():
        sent = codec.render_request(request, target(upstream))
        assert sent.count(b"WebFetch") >= 2, "among the tools, and as what was found"


def test_codexs_tool_search_goes_everywhere() -> None:
    """Deferred tools of Codex come as definitions in the output of its search."""
    found = {"type": "function", "name": "create_issue", "parameters": {"type": "object", "properties": {}}}
    body = {
        "model": "gpt-6-sol",
        "input": [
            {"type": "message", "role": "user", "content": "hi"},
            {"type": "tool_search_call", "call_id": "call_1", "execution": "client", "arguments": {"query": "issue"}},
            {
                "type": "tool_search_output",
                "call_id": "call_1",
                "execution": "client",
                "status": "completed",
                "tools": [{"type": "namespace", "name": "mcp__github", "description": "d", "tools": [found]}],
            },
        ],
        "tools": [{"type": "tool_search", "execution": "client", "description": "d", "parameters": {"type": "object"}}],
    }
    request = CODECS[Protocol.RESPONSES].parse_request(json.dumps(body).encode())
    for upstream, codec in CODECS.items():
        assert b"create_issue" in codec.render_request(request, target(upstream))
