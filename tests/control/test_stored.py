"""A thread on disk and back: the same value, and so the same bytes to the provider."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachegate.control.params import DynamicTool
from cachegate.control.stored import FORMAT, restored, stored
from cachegate.control.thread import Settings, Thread, Tokens, TokenUsage, Turn, TurnStatus
from cachegate.control.turn_request import request_of, tools_of
from cachegate.wire.codecs import CODECS
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import Target
from control.histories import histories

TOOLS = tools_of([DynamicTool("look_up", "Looks up.", {"type": "object", "properties": {"a": {"type": "integer"}}})])


@given(st.sampled_from((Protocol.RESPONSES, Protocol.MESSAGES)).flatmap(lambda p: st.tuples(st.just(p), histories(p))))
def test_what_is_read_back_is_rendered_to_the_same_bytes(drawn: tuple[Protocol, tuple[object, ...]]) -> None:
    protocol, history = drawn
    settings = Settings("model-x", protocol, "Be kind.", TOOLS, "high", 1_000)
    usage = TokenUsage(Tokens(5, None, 0, 2), Tokens(7, None, 0, 3))
    thread = Thread("thread_1", "t", settings, 1, 2, "mine", history, usage=usage, context_full=True)  # type: ignore[arg-type]
    thread = thread.ended(Turn("turn_1", TurnStatus.COMPLETED), 3)
    back = restored(stored(thread))
    assert back == thread
    codec, target = CODECS[protocol], Target("model-x", "")
    rendered = [
        codec.render_request(request_of(each.settings, each.history, each.id), target) for each in (thread, back)
    ]
    assert rendered[0] == rendered[1]


@pytest.mark.parametrize(
    "change",
    [
        {"format": FORMAT + 1}, {"history": [{"kind": "song"}]}, {"history": [{}]}, {"history": [{"kind": "call"}]},
        {"history": [{"kind": "message", "role": "x", "parts": [], "phase": None}]}, {"usage": 7}, {"tenant": None},
        {"history": [{"kind": "message", "role": "user", "parts": [{"kind": "song"}], "phase": None}]},
    ],
)  # fmt: skip
def test_what_is_no_thread_of_this_format_is_none(change: dict[str, object]) -> None:
    good = json.loads(stored(Thread("thread_1", "t", Settings("model-x"), 1, 2)))
    assert restored(json.dumps(good).encode()) is not None
    assert restored(json.dumps({**good, **change}).encode()) is None


def test_garbage_is_no_thread() -> None:
    assert restored(b"") is None
    assert restored(b"[]") is None
