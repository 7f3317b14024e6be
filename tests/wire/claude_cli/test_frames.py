import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachegate.wire.claude_cli.frames import (
    Acknowledged,
    Asked,
    McpAsked,
    Told,
    ToolCalled,
    Withdrawn,
    control,
    mcp_answer,
    read_frame,
    refused,
    tool_result,
    user,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(), JSON, max_size=4)
CONTENT = st.lists(OBJECTS, max_size=3)
IDS = st.text(min_size=1)


def line(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def said(frame: bytes) -> Any:
    """Return what a line of ours says; it is one line, whatever is in it."""
    assert frame.endswith(b"\n")
    assert frame.count(b"\n") == 1
    return json.loads(frame)


def asked(message: dict[str, Any], control_id: str = "c1") -> bytes:
    request = {"subtype": "mcp_message", "server_name": "gw", "message": {"jsonrpc": "2.0", **message}}
    return line({"type": "control_request", "request_id": control_id, "request": request})


# --- what the program says ---


@given(OBJECTS)
def test_what_is_no_word_of_the_protocol_is_an_event_of_the_session(fields: dict[str, Any]) -> None:
    event = {**fields, "type": "stream_event"}
    assert read_frame(line(event)) == Told(event)


@given(IDS, OBJECTS)
def test_an_acknowledgement_is_read(request_id: str, response: dict[str, Any]) -> None:
    told = {"subtype": "success", "request_id": request_id, "response": response}
    assert read_frame(line({"type": "control_response", "response": told})) == Acknowledged(request_id, None, response)
    without = {"subtype": "success", "request_id": request_id}
    assert read_frame(line({"type": "control_response", "response": without})) == Acknowledged(request_id, None, {})


@pytest.mark.parametrize(("said", "error"), [({"error": "no such mode"}, "no such mode"), ({}, "unknown error")])
def test_a_refusal_is_an_error_even_without_words(said: dict[str, Any], error: str) -> None:
    told = {"subtype": "error", "request_id": "r1", **said}
    assert read_frame(line({"type": "control_response", "response": told})) == Acknowledged("r1", error, {})


@given(IDS, JSON, IDS, st.text(), OBJECTS)
def test_a_call_is_known_by_the_id_of_the_models_own_answer(
    control_id: str, rpc_id: object, call_id: str, name: str, arguments: dict[str, Any]
) -> None:
    params = {"name": name, "arguments": arguments, "_meta": {"claudecode/toolUseId": call_id, "progressToken": 3}}
    read = read_frame(asked({"id": rpc_id, "method": "tools/call", "params": params}, control_id))
    assert read == ToolCalled(control_id, rpc_id, call_id, name, arguments)


@pytest.mark.parametrize("params", [{}, {"_meta": None}, {"_meta": {}}, {"_meta": {"claudecode/toolUseId": 7}}])
def test_a_call_without_that_id_is_nothing_that_could_be_answered_later(params: dict[str, Any]) -> None:
    read = read_frame(asked({"id": 1, "method": "tools/call", "params": {"name": "Read", **params}}))
    assert isinstance(read, McpAsked)
    assert said(mcp_answer(read, ()))["response"]["response"]["mcp_response"]["result"] == {}


def test_a_withdrawn_request_and_one_that_nobody_knows_are_told_apart() -> None:
    assert read_frame(line({"type": "control_cancel_request", "request_id": "c7"})) == Withdrawn("c7")
    strange = {"type": "control_request", "request_id": "c8", "request": {"subtype": "can_use_tool", "input": {}}}
    assert read_frame(line(strange)) == Asked("c8", "can_use_tool")


@given(st.binary())
def test_no_line_is_an_error(garbage: bytes) -> None:
    read_frame(garbage)


@pytest.mark.parametrize(
    "text", [b"", b"\n", b"null", b"[{}]", b'"type"', b"warning: x", b'{"type":', b"\xff{}", b"{" * 99_999]
)
def test_what_is_no_object_says_nothing(text: bytes) -> None:
    assert read_frame(text) is None


@given(st.sampled_from(["control_response", "control_request", "control_cancel_request"]), OBJECTS, JSON)
def test_words_of_the_protocol_may_be_of_any_shape(kind: str, fields: dict[str, Any], odd: object) -> None:
    for name in ("request", "response", "request_id"):
        read = read_frame(line({**fields, name: odd, "type": kind}))
        assert read is not None
        ids = (getattr(read, "request_id", ""), getattr(read, "control_id", ""))
        assert all(isinstance(each, str) for each in ids)
    message = {"subtype": "mcp_message", "message": odd}
    assert read_frame(line({"type": "control_request", "request_id": "c", "request": message})) is not None


def test_half_an_emoji_does_not_lose_the_line() -> None:
    read = read_frame(b'{"type":"stream_event","event":{"text":"a\\ud83d"}}\n')
    assert read == Told({"type": "stream_event", "event": {"text": "a\ufffd"}})


def test_what_a_session_says_is_not_in_what_a_frame_prints() -> None:
    params = {"name": "Read", "arguments": {"path": "secret"}, "_meta": {"claudecode/toolUseId": "t1"}}
    frames = [
        read_frame(asked({"id": 1, "method": "tools/call", "params": params})),
        read_frame(asked({"id": 1, "method": "other", "params": params})),
        read_frame(line({"type": "assistant", "message": "secret"})),
    ]
    assert "secret" not in repr(frames)


# --- what we say ---


@given(IDS, OBJECTS)
def test_a_control_request_is_one_line(request_id: str, request: dict[str, Any]) -> None:
    assert said(control(request_id, request)) == {
        "type": "control_request",
        "request_id": request_id,
        "request": request,
    }


@given(CONTENT, IDS)
def test_a_message_is_said_as_it_is_and_nothing_in_it_is_expanded(content: list[Any], message_id: str) -> None:
    message = said(user(content, message_id))
    assert message["message"] == {"role": "user", "content": content}
    assert (message["type"], message["uuid"]) == ("user", message_id)
    assert message["client_composed"] is True
    assert message["parent_tool_use_id"] is None


@given(IDS, JSON, CONTENT, st.booleans())
def test_a_result_goes_to_its_call(control_id: str, rpc_id: object, content: list[Any], is_error: bool) -> None:
    result = {"content": content, "isError": is_error}
    message = {"jsonrpc": "2.0", "id": rpc_id, "result": result}
    response = {"subtype": "success", "request_id": control_id, "response": {"mcp_response": message}}
    assert said(tool_result(control_id, rpc_id, content, is_error=is_error)) == {
        "type": "control_response",
        "response": response,
    }


def answered(message: dict[str, Any], tools: list[Any] | None = None) -> Any:
    read = read_frame(asked(message, "c9"))
    assert isinstance(read, McpAsked)
    response = said(mcp_answer(read, tools or ()))["response"]
    assert (response["subtype"], response["request_id"]) == ("success", "c9")
    return response["response"]["mcp_response"]


def test_the_server_of_tools_greets_in_the_version_it_is_greeted_in() -> None:
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "claude"}}
    answer = answered({"id": 0, "method": "initialize", "params": params})
    assert answer == {
        "jsonrpc": "2.0",
        "id": 0,
        "result": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "gw", "version": "1"},
        },
    }


@given(st.lists(OBJECTS, max_size=3))
def test_the_tools_are_listed_as_they_are_and_in_their_order(tools: list[Any]) -> None:
    answer = answered({"id": "x", "method": "tools/list"}, tools)
    assert answer == {"jsonrpc": "2.0", "id": "x", "result": {"tools": tools}}


def test_a_notice_is_acknowledged_without_a_number_and_anything_else_with_nothing() -> None:
    assert answered({"method": "notifications/initialized"}) == {"jsonrpc": "2.0", "result": {}}
    assert answered({"id": 4, "method": "ping"}) == {"jsonrpc": "2.0", "id": 4, "result": {}}


def test_an_unknown_request_is_refused_by_name() -> None:
    assert said(refused(Asked("c3", "hook_callback"))) == {
        "type": "control_response",
        "response": {"subtype": "error", "request_id": "c3", "error": "unsupported request: hook_callback"},
    }
