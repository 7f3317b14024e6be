"""The provider's own word for a miss, streamed and not."""

import json

import pytest

from cachegate.wire.explanations import anthropic_explanation, openai_explanation
from cachegate.wire.facts import Protocol
from cachegate.wire.protocols import DIALECTS
from cachegate.wire.seen import Explained
from cachegate.wire.sse import SseEvent

MISS = {"type": "cache_miss", "reason": "tools_changed", "cache_missed_tokens": 9}


@pytest.mark.parametrize(
    ("diagnostics", "reason"),
    [
        ({"cache_miss_reason": {"type": "system_changed", "cache_missed_input_tokens": 9}}, "system_changed"),
        ({"cache_miss_reason": {"type": "a text that is no word"}}, "unknown"),
        ({"cache_miss_reason": None}, None),
        (None, None),
        ("odd", None),
    ],
)
def test_anthropic_says_it_in_the_message(diagnostics: object, reason: str | None) -> None:
    told = anthropic_explanation({"diagnostics": diagnostics})
    assert told == ((Explained(reason),) if reason else ())


@pytest.mark.parametrize(
    ("diagnostics", "reason"),
    [
        (MISS, "tools_changed"),
        ({"type": "cache_hit"}, "cache_hit"),
        ({"type": "unavailable"}, "unavailable"),
        (None, None),
    ],
)
def test_openai_says_it_in_the_response(diagnostics: object, reason: str | None) -> None:
    told = openai_explanation({"prompt_cache_diagnostics": diagnostics})
    assert told == ((Explained(reason),) if reason else ())


def test_readers_pass_it_on_streamed_and_not() -> None:
    message = {"usage": {"input_tokens": 1}, "diagnostics": {"cache_miss_reason": {"type": "model_changed"}}}
    response = {"status": "completed", "prompt_cache_diagnostics": MISS}
    for protocol, whole, event, word in (
        (Protocol.MESSAGES, message, {"type": "message_start", "message": message}, "model_changed"),
        (Protocol.RESPONSES, response, {"type": "response.completed", "response": response}, "tools_changed"),
    ):
        reader = DIALECTS[protocol].reader
        assert Explained(word) in reader().read_body(200, json.dumps(whole).encode())
        assert Explained(word) in reader().read(SseEvent(b"", json.dumps(event).encode()))
