import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegate.errors import BadInput
from cachegate.wire.body import encode
from cachegate.wire.facts import InferenceRequest, Operation, Protocol, RequestClass
from cachegate.wire.parse import MODEL_CHARS_MAX, SHAPES, Received, parse
from wire.received import CONVERSATION, INSTRUCTIONS, SECRET, facts_of, parsed

TOOLS_ITEM = {"type": "additional_tools", "tools": [{"type": "function", "name": f"tool_{n}"} for n in range(40)]}
DEVELOPER = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "You are Codex."}]}
TURN = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "one"}]}


@pytest.fixture(params=list(INSTRUCTIONS), ids=[protocol.value for protocol in INSTRUCTIONS])
def protocol(request: pytest.FixtureRequest) -> Protocol:
    """A protocol with top-level instructions; Chat has them inside the conversation."""
    chosen: Protocol = request.param
    return chosen


def size(value: Any) -> int:
    return len(json.dumps(value).encode())


def test_a_request_keeps_what_was_received(protocol: Protocol) -> None:
    body, wire_body = b'{"model":"m"}', b"zstd..."
    headers = (("X-Session-Id", "s"), ("Cookie", "c"))
    request = parse(Received(protocol, Operation.GENERATE, headers, "beta=true", body, wire_body), SECRET)
    assert isinstance(request, InferenceRequest)
    assert (request.protocol, request.operation, request.query) == (protocol, Operation.GENERATE, "beta=true")
    assert request.body is body
    assert request.wire_body is wire_body
    assert request.headers is headers


def test_there_is_a_shape_for_every_protocol() -> None:
    assert set(SHAPES) == set(Protocol)


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"model":null}',
        b'{"model":""}',
        b'{"model":7}',
        b'{"model":["m"]}',
        b'{"model":"\xff"}',
        b'{"MODEL":"m"}',
    ],
)
def test_a_request_without_a_model_is_refused(protocol: Protocol, body: bytes) -> None:
    with pytest.raises(BadInput, match=r"^model: .*Set `model`"):
        parsed(protocol, body)


def test_a_model_has_a_longest_name(protocol: Protocol) -> None:
    assert facts_of(protocol, {"model": "é" * MODEL_CHARS_MAX}).model == "é" * MODEL_CHARS_MAX
    with pytest.raises(BadInput, match=r"^model: the name has 257 characters"):
        parsed(protocol, {"model": "é" * (MODEL_CHARS_MAX + 1)})


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"model":"m","model":"n"}', b'{"model":"m","a":' + b"[" * 5_000])
def test_what_is_no_json_object_is_refused(protocol: Protocol, body: bytes) -> None:
    with pytest.raises(BadInput):
        parsed(protocol, body)


@pytest.mark.parametrize(
    ("value", "stream"),
    [(b"true", True), (b" true ", True), (b"false", False), (b"null", False), (b"1", False), (b'"true"', False)],
)
def test_only_true_asks_for_a_stream(protocol: Protocol, value: bytes, stream: bool) -> None:
    assert facts_of(protocol, b'{"model":"m","stream":' + value + b"}").stream is stream
    assert facts_of(protocol, b'{"model":"m"}').stream is False


def test_the_span_of_the_model_is_where_another_name_goes(protocol: Protocol) -> None:
    body = b'{"messages":[{"model":"x"}],\n "mod\\u0065l" : "gpt-\\u0035" ,"input":[]}'
    facts = facts_of(protocol, body)
    start, end = facts.model_span
    assert (facts.model, body[start:end]) == ("gpt-5", b'"gpt-\\u0035"')
    assert body[:start] + encode("other") + body[end:] == (
        b'{"messages":[{"model":"x"}],\n "mod\\u0065l" : "other" ,"input":[]}'
    )


def test_bytes_of_the_conversation_and_of_all_input(protocol: Protocol) -> None:
    turns, tools = [{"role": "user", "content": "é" * 99}], [{"name": "t"}]
    facts = facts_of(
        protocol,
        {
            CONVERSATION[protocol]: turns, INSTRUCTIONS[protocol]: "Be brief.", "tools": tools, "metadata": {"a": "b"},
            CONVERSATION[Protocol.MESSAGES if protocol is Protocol.RESPONSES else Protocol.RESPONSES]: "not mine",
        },
    )  # fmt: skip
    assert facts.conversation_bytes == size(turns)
    assert facts.input_bytes == size(turns) + size("Be brief.") + size(tools)


def test_a_conversation_may_be_one_text_or_nothing() -> None:
    assert facts_of(Protocol.RESPONSES, {"input": "a" * 10}).conversation_bytes == 12
    assert facts_of(Protocol.RESPONSES, {}).conversation_bytes == 0
    assert facts_of(Protocol.MESSAGES, {"messages": []}).input_bytes == 2


@pytest.mark.parametrize("items", [[TOOLS_ITEM, DEVELOPER, TURN], [DEVELOPER, TOOLS_ITEM, TURN], [TOOLS_ITEM]])
def test_tools_inside_the_input_are_no_conversation(items: list[Any]) -> None:
    """Codex's newer models carry their tools as an item; R10 measures recovery without them."""
    facts = facts_of(Protocol.RESPONSES, {"input": items})
    assert facts.input_bytes == size(items)
    assert facts.conversation_bytes == size(items) - size(TOOLS_ITEM)


def test_tools_are_looked_for_at_the_head_only() -> None:
    items = [TURN, TURN, TURN, TURN, TOOLS_ITEM]
    assert facts_of(Protocol.RESPONSES, {"input": items}).conversation_bytes == size(items)


@pytest.mark.parametrize("items", [[1, None, "x", [], {}], [{"type": 7}], [{"type": None}], [{"role": ["system"]}]])
def test_items_of_any_kind_are_taken_as_they_are(items: list[Any]) -> None:
    assert facts_of(Protocol.RESPONSES, {"input": items}).conversation_bytes == size(items)


def test_instructions_inside_the_conversation_are_counted_with_it() -> None:
    """As R10 says, though clients.md would count Codex's leading developer message as fixed."""
    assert facts_of(Protocol.RESPONSES, {"input": [DEVELOPER, TURN]}).conversation_bytes == size([DEVELOPER, TURN])


@pytest.mark.parametrize("role", ["system", "developer"])
def test_a_leading_item_instructs_where_nothing_else_does(role: str) -> None:
    """The AI SDK writes a system prompt as the first item, so opencode's title is told by it in Responses too."""
    title = {"role": role, "content": "You are a title generator. You output ONLY a thread title."}
    asked = [title, {"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]
    assert facts_of(Protocol.RESPONSES, {"input": asked}).request_class is RequestClass.AUXILIARY
    assert facts_of(Protocol.RESPONSES, {"input": asked[::-1]}).request_class is RequestClass.CHAT
    told = facts_of(Protocol.RESPONSES, {"input": asked, "instructions": "Be brief."})
    assert told.request_class is RequestClass.CHAT


MEMBERS = st.sampled_from(["id", "user_id", "session_id", "thread_id", "type", "role", "x"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(MEMBERS, inner),
    max_leaves=6,
)
READ = (
    "stream", "metadata", "client_metadata", "conversation", "prompt_cache_key", "tools", "output_config", "input",
    "messages", "system", "instructions",
)  # fmt: skip
HEADERS = st.dictionaries(
    st.sampled_from(["Thread-Id", "x-codex-turn-metadata", "x-codex-window-id", "x-session-id", "x-grok-req-id"]),
    st.text(max_size=6) | JSON.map(json.dumps),
)


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(Protocol), st.dictionaries(st.sampled_from(READ), JSON), HEADERS)
def test_fields_of_any_type_are_read_without_a_crash(
    protocol: Protocol, fields: dict[str, Any], headers: dict[str, str]
) -> None:
    facts = facts_of(protocol, fields, headers)
    assert facts.input_bytes >= facts.conversation_bytes >= 0
    assert facts.caller is None or facts.caller.partition(":")[2]
