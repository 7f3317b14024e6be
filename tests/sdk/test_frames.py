"""Frames are read as what they are, or not at all."""

import json

import pytest

from cachegate.sdk import BrokenAnswer, frames
from cachegate.sdk.frames import Asked, Notification, Rejected, Result


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"id":1,"result":{"a":1}}', Result(1, {"a": 1})),
        ('{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no"}}', Rejected(1, -32000, "no")),
        ('{"id":null,"error":{"code":-32700,"message":"no"}}', Rejected(None, -32700, "no")),
        ('{"method":"turn/started","params":{"threadId":"t"}}', Notification("turn/started", {"threadId": "t"})),
        ('{"method":"x"}', Notification("x", {})),
        ('{"id":"tool_1","method":"item/tool/call","params":{}}', Asked("tool_1", "item/tool/call", {})),
    ],
)
def test_frames_of_every_kind(text: str, expected: frames.Frame) -> None:
    assert frames.read(text) == expected


@pytest.mark.parametrize("text", ["", "[]", "7", "{}", '{"id":1}', '{"id":1,"result":7}', "[" * 100_000])
def test_what_is_no_frame_is_refused(text: str) -> None:
    with pytest.raises(BrokenAnswer, match="no frame"):
        frames.read(text)


def test_frames_that_are_written() -> None:
    asked = json.loads(frames.request(3, "turn/start", {"a": 1, "b": None}))
    assert asked == {"jsonrpc": "2.0", "id": 3, "method": "turn/start", "params": {"a": 1}}
    assert json.loads(frames.notification("initialized")) == {"jsonrpc": "2.0", "method": "initialized"}
    assert json.loads(frames.result("t", {"success": True}))["result"] == {"success": True}
    assert json.loads(frames.unknown("t", "x"))["error"]["code"] == -32601
    assert json.loads(frames.request(1, "x", {"text": "cut \ud83d"}))["params"]["text"] == "cut \ud83d"
