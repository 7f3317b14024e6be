"""Parameters: what is wrong is told by its name."""

from typing import Any

import pytest

from cachegate.control import params
from cachegate.control.rpc import Code, RpcError
from cachegate.control.session import METHODS

SAID = [{"type": "text", "text": "hi"}]


@pytest.mark.parametrize(
    ("method", "given", "words"),
    [
        ("thread/start", {}, "model: is missing"),
        ("thread/start", {"model": ""}, "model: expected `str` of length >= 1"),
        ("thread/start", {"model": "m" * 257}, "model: expected `str` of length <= 256"),
        ("thread/start", {"model": 7}, "model: expected `str`"),
        ("thread/start", {"model": "m", "protocol": "chat"}, "protocol: invalid enum value 'chat'"),
        ("thread/start", {"model": "m", "cwd": "/"}, "cwd: there is no such field"),
        ("thread/start", {"model": "m", "maxOutputTokens": 0}, "maxOutputTokens: expected `int` >= 1"),
        ("thread/start", {"model": "m", "effort": "huge"}, "effort: invalid enum value"),
        ("thread/start", {"model": "m", "dynamicTools": [{"name": "a b"}]}, "dynamicTools[0].name: expected"),
        ("thread/start", {"model": "m", "dynamicTools": [{"name": "a", "x": 1}]}, "dynamicTools[0].x: there is no"),
        (
            "thread/start",
            {"model": "m", "dynamicTools": [{"name": "a"}, {"name": "a"}]},
            "dynamicTools: 'a' stands twice",
        ),
        ("turn/start", {"threadId": "t", "input": []}, "input: expected `array` of length >= 1"),
        ("turn/start", {"threadId": "t", "input": [{"type": "text"}]}, "input[0].text: is missing"),
        ("turn/start", {"threadId": "t", "input": [{"type": "audio"}]}, "input[0].type: invalid value 'audio'"),
        ("turn/start", {"threadId": "t", "input": [{"type": "text", "text": " \n"}]}, "input: says nothing"),
        ("turn/start", [1], "params: expected `object`"),
        ("turn/start", "x", "params: expected `object`"),
        ("thread/list", {"limit": 101}, "limit: expected `int` <= 100"),
        ("thread/list", {"limit": True}, "limit: expected `int"),
        ("initialize", {"clientInfo": {}}, "clientInfo.name: is missing"),
        ("turn/steer", {"threadId": "t", "input": SAID}, "expectedTurnId: is missing"),
    ],
)
def test_the_field_that_is_wrong_is_named(method: str, given: Any, words: str) -> None:
    with pytest.raises(RpcError) as failed:
        params.wanted(given, METHODS[method][0])
    assert failed.value.code is Code.INVALID_PARAMS
    assert failed.value.message.startswith(words)


def test_null_is_as_good_as_nothing() -> None:
    given = {"model": "m", "protocol": None, "instructions": None, "dynamicTools": None, "effort": None, "name": None}
    assert params.wanted(given, params.ThreadStart) == params.ThreadStart(model="m")
    assert params.wanted(None, params.ThreadList) == params.ThreadList()


def test_a_tools_answer_is_read_as_strictly() -> None:
    items = [{"type": "inputText", "text": "a"}, {"type": "inputImage", "imageUrl": "https://x.test"}]
    answer = params.wanted({"contentItems": items, "success": True}, params.ToolAnswer)
    assert answer == params.ToolAnswer([params.InputText("a"), params.InputImage("https://x.test")], success=True)
    with pytest.raises(RpcError, match="success: is missing"):
        params.wanted({"contentItems": []}, params.ToolAnswer)


def test_an_error_repeats_no_long_value() -> None:
    with pytest.raises(RpcError) as failed:
        params.wanted({"model": "m", "x" * 10_000: 1}, params.ThreadStart)
    assert len(failed.value.message) <= 300
