from typing import Any

import pytest

from cachegate.errors import BadInput
from cachegate.wire.blocks import canonical_blocks
from cachegate.wire.facts import Protocol
from wire.received import CONVERSATION, INSTRUCTIONS, parsed

TOOLS = [{"name": "read", "input_schema": {"type": "object"}}, {"name": "write", "input_schema": {"type": "object"}}]
TURNS = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}, {"role": "user", "content": "3"}]


@pytest.fixture(params=list(INSTRUCTIONS), ids=[protocol.value for protocol in INSTRUCTIONS])
def protocol(request: pytest.FixtureRequest) -> Protocol:
    """A protocol with top-level instructions; Chat has them inside the conversation."""
    chosen: Protocol = request.param
    return chosen


def blocks(protocol: Protocol, body: bytes | dict[str, Any]) -> list[bytes]:
    return canonical_blocks(parsed(protocol, body))


def conversation(protocol: Protocol, **more: Any) -> dict[str, Any]:
    return {CONVERSATION[protocol]: TURNS, INSTRUCTIONS[protocol]: "Be brief.", "tools": TOOLS, **more}


def test_tools_come_first_then_instructions_then_each_item(protocol: Protocol) -> None:
    assert blocks(protocol, conversation(protocol)) == [
        b'[{"input_schema":{"type":"object"},"name":"read"},{"input_schema":{"type":"object"},"name":"write"}]',
        b'"Be brief."',
        b'{"content":"one","role":"user"}',
        b'{"content":"two","role":"assistant"}',
        b'{"content":"3","role":"user"}',
    ]


def test_what_is_absent_or_null_is_no_block(protocol: Protocol) -> None:
    field = CONVERSATION[protocol]
    assert blocks(protocol, {}) == []
    assert blocks(protocol, {field: [], "tools": None}) == [b"[]"]
    assert blocks(protocol, {field: TURNS[:1], INSTRUCTIONS[protocol]: None}) == [b'{"content":"one","role":"user"}']


def test_a_conversation_of_one_text_is_one_block() -> None:
    assert blocks(Protocol.RESPONSES, {"input": "one"}) == [b'"one"']


def test_what_the_model_does_not_read_changes_no_block(protocol: Protocol) -> None:
    plain = blocks(protocol, conversation(protocol))
    assert blocks(protocol, conversation(protocol, stream=True, metadata={"user_id": "u"}, temperature=1)) == plain


def test_marks_for_the_cache_change_no_block(protocol: Protocol) -> None:
    def marked(value: Any) -> Any:
        if isinstance(value, dict):
            inner = {name: marked(part) for name, part in value.items()}
            named = {name: {"type": "ephemeral"} for name in ("cache_control", "copilot_cache_control")}
            return {**named, "prompt_cache_breakpoint": True, **inner}
        return [marked(part) for part in value] if isinstance(value, list) else value

    body = conversation(protocol)
    assert blocks(protocol, {name: marked(value) for name, value in body.items()}) == blocks(protocol, body)


def test_spelling_changes_no_block() -> None:
    compact = b'{"model":"m","input":[{"role":"user","content":"\xc3\xa9"}],"tools":[]}'
    spaced = b'{ "tools": [ ],\n"input": [ {"content" : "\\u00e9", "role":"user"} ], "model":"m" }'
    assert blocks(Protocol.RESPONSES, spaced) == blocks(Protocol.RESPONSES, compact)


@pytest.mark.parametrize(
    "change",
    [
        {"tools": TOOLS[::-1]},
        {"tools": TOOLS[:1]},
        {"input": [*TURNS[:1], {"role": "assistant", "content": "2"}, *TURNS[2:]]},
        {"input": TURNS[1:]},
        {"instructions": "Be long."},
    ],
)
def test_what_the_model_reads_changes_a_block(change: dict[str, Any]) -> None:
    body = conversation(Protocol.RESPONSES)
    assert blocks(Protocol.RESPONSES, {**body, **change}) != blocks(Protocol.RESPONSES, body)


def test_a_longer_conversation_begins_with_the_blocks_of_the_shorter(protocol: Protocol) -> None:
    body = conversation(protocol)
    longer = {**body, CONVERSATION[protocol]: [*TURNS, {"role": "user", "content": "four"}]}
    assert blocks(protocol, longer)[:-1] == blocks(protocol, body)


def test_lone_surrogates_are_read_like_any_text(protocol: Protocol) -> None:
    field = CONVERSATION[protocol].encode()
    body = b'{"model":"m","%b":[{"role":"user","content":"a\\ud83d"},{"role":"user","content":"b"}]}' % field
    assert blocks(protocol, body) == [
        '{"content":"a\ufffd","role":"user"}'.encode(),
        b'{"content":"b","role":"user"}',
    ]


def test_a_nest_too_deep_is_refused_and_no_crash(protocol: Protocol) -> None:
    depth = 900
    body = b'{"model":"m","%b":[%b1%b]}' % (CONVERSATION[protocol].encode(), b"[" * depth, b"]" * depth)
    with pytest.raises(BadInput, match="nested too deeply"):
        blocks(protocol, body)
