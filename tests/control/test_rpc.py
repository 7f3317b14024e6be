"""Frames of the control socket: what is read, what is refused, and with which id."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachegate.control import rpc
from cachegate.control.rpc import Code, Notification, Rejected, Request, Response, RpcError, read

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("version", ["", '"jsonrpc":"2.0",'])
def test_requests_notifications_and_responses_are_told_apart(version: str) -> None:
    assert read(f'{{{version}"id":1,"method":"a","params":{{"b":2}}}}') == Request(1, "a", {"b": 2})
    assert read(f'{{{version}"id":"x","method":"a"}}') == Request("x", "a", None)
    assert read(f'{{{version}"method":"initialized","params":{{}}}}') == Notification("initialized")
    assert read(f'{{{version}"id":"x","result":[1]}}') == Response("x", [1])
    assert read(f'{{{version}"id":"x","error":{{"code":1,"message":"m"}}}}') == Response("x", None)


@pytest.mark.parametrize(
    ("text", "request_id", "code", "words"),
    [
        ("", None, Code.PARSE, "no JSON"),
        ("{", None, Code.PARSE, "no JSON"),
        ("[" * 5_000, None, Code.PARSE, "no JSON"),
        ("null", None, Code.INVALID_REQUEST, "no JSON object"),
        ("3", None, Code.INVALID_REQUEST, "no JSON object"),
        ('[{"id":1,"method":"a"}]', None, Code.INVALID_REQUEST, "Batches"),
        ('{"id":1,"method":"a","jsonrpc":"1.0"}', 1, Code.INVALID_REQUEST, "jsonrpc"),
        ('{"id":1,"method":"a","jsonrpc":null}', 1, Code.INVALID_REQUEST, "jsonrpc"),
        ('{"id":1,"method":3}', 1, Code.INVALID_REQUEST, "method"),
        ('{"id":null,"method":"a"}', None, Code.INVALID_REQUEST, "id"),
        ('{"id":true,"method":"a"}', None, Code.INVALID_REQUEST, "id"),
        ('{"id":1.5,"method":"a"}', None, Code.INVALID_REQUEST, "id"),
        (f'{{"id":"{"x" * 257}","method":"a"}}', None, Code.INVALID_REQUEST, "id"),
        ('{"id":1}', 1, Code.INVALID_REQUEST, "method"),
        ('{"id":1,"result":1,"error":1}', 1, Code.INVALID_REQUEST, "method"),
        ('{"result":1}', None, Code.INVALID_REQUEST, "method"),
        ('{"id":1,"type":"response.create"}', 1, Code.INVALID_REQUEST, "Inference frames"),
        ('{"id":1,"type":"response.cancel","method":"a"}', 1, Code.INVALID_REQUEST, "Inference frames"),
        ('{"type":7}', None, Code.INVALID_REQUEST, "Inference frames"),
    ],
)
def test_what_is_none_of_them_is_refused_by_its_id(
    text: str, request_id: rpc.Id | None, code: Code, words: str
) -> None:
    rejected = read(text)
    assert isinstance(rejected, Rejected)
    assert (rejected.id, rejected.error.code) == (request_id, code)
    assert words in rejected.error.message


def test_half_an_emoji_is_read() -> None:
    assert read('{"id":1,"method":"a","params":{"text":"\\ud83d"}}') == Request(1, "a", {"text": "\ufffd"})


@given(json_values)
def test_any_json_is_something(value: object) -> None:
    found = read(json.dumps(value))
    assert isinstance(found, Request | Notification | Response | Rejected)
    if isinstance(value, list):
        assert isinstance(found, Rejected)


def test_what_is_written_has_the_shape_of_json_rpc() -> None:
    assert json.loads(rpc.result(1, {"a": 2})) == {"jsonrpc": "2.0", "id": 1, "result": {"a": 2}}
    assert json.loads(rpc.request("x", "a", {})) == {"jsonrpc": "2.0", "id": "x", "method": "a", "params": {}}
    assert json.loads(rpc.notification("a", {"b": 1})) == {"jsonrpc": "2.0", "method": "a", "params": {"b": 1}}
    failed = json.loads(rpc.failure(None, RpcError(Code.CONFLICT, "busy", {"turnId": "t"})))
    error = {"code": -32000, "message": "busy", "data": {"turnId": "t"}}
    assert failed == {"jsonrpc": "2.0", "id": None, "error": error}
    assert "data" not in json.loads(rpc.failure(1, RpcError(Code.CONFLICT, "busy")))["error"]


def test_codes_are_as_the_contract_says() -> None:
    assert {code.name: int(code) for code in Code} == {
        "PARSE": -32700, "INVALID_REQUEST": -32600, "UNKNOWN_METHOD": -32601, "INVALID_PARAMS": -32602,
        "INTERNAL": -32603, "CONFLICT": -32000, "NO_THREAD": -32001, "NOT_INITIALIZED": -32002, "LIMIT": -32003,
    }  # fmt: skip
