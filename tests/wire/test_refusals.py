"""Every listed form of a refusal (R17), mid-stream and not, with usage and without, in every protocol."""

import json
from typing import Any

import pytest

from cachegate.guard.usage import Usage
from cachegate.wire import refusals
from cachegate.wire.body import encode
from cachegate.wire.refusals import SIGNALS, Place
from cachegate.wire.seen import Finished, Refusal, Seen
from cachegate.wire.sse import SseReader, frame
from cachegate.wire.usage_readings import Format
from wire.usage_cases import READERS

USAGES: dict[Format, dict[str, int]] = {
    Format.MESSAGES: {"input_tokens": 9, "output_tokens": 1},
    Format.RESPONSES: {"input_tokens": 9, "output_tokens": 1},
    Format.CHAT: {"prompt_tokens": 9, "completion_tokens": 1},
}
MEASURED = Usage(9)
CODES = sorted(refusals.CODES - {"flagged_input"})
REASONS = sorted(refusals.REASONS)
PROTOCOLS = pytest.mark.parametrize("shape", list(READERS), ids=str)
WITH_USAGE = pytest.mark.parametrize("with_usage", [True, False], ids=["usage", "no usage"])


def whole(shape: Format, body: Any, status: int = 200) -> tuple[Seen, ...]:
    return READERS[shape]().read_body(status, json.dumps(body).encode())


def streamed(shape: Format, *events: dict[str, Any]) -> tuple[Seen, ...]:
    reader = READERS[shape]()
    named = (frame(event.get("type", ""), encode(event)) if "type" in event else _line(event) for event in events)
    _, read = SseReader().feed(b"".join(named))
    return tuple(item for event in read for item in reader.read(event))


def _line(event: dict[str, Any]) -> bytes:
    return b"data: " + encode(event) + b"\n\n"


def ending(
    shape: Format, reason: str, usage: dict[str, int] | None
) -> tuple[dict[str, Any], tuple[dict[str, Any], ...]]:
    """Return a whole answer and the events of a stream, ended for a reason."""
    body: dict[str, Any]
    chunks: tuple[dict[str, Any], ...]
    match shape:
        case Format.MESSAGES:
            body = {"type": "message", "stop_reason": reason, "usage": usage}
            start = {"type": "message_start", "message": {"usage": usage}}
            return body, (start, {"type": "message_delta", "delta": {"stop_reason": reason}}, {"type": "message_stop"})
        case Format.RESPONSES:
            body = {"status": "incomplete", "incomplete_details": {"reason": reason}, "usage": usage}
            return body, ({"type": "response.incomplete", "response": body},)
        case _:
            choice = {"index": 0, "delta": {}, "finish_reason": reason}
            chunks = ({"choices": [choice], "usage": None}, {"choices": [], "usage": usage})
            return {"choices": [{"message": {}, "finish_reason": reason}], "usage": usage}, chunks


@PROTOCOLS
@WITH_USAGE
@pytest.mark.parametrize("reason", REASONS)
def test_the_reason_of_an_end(shape: Format, with_usage: bool, reason: str) -> None:
    body, events = ending(shape, reason, USAGES[shape] if with_usage else None)
    for seen in (whole(shape, body), streamed(shape, *events)):
        assert seen.count(Refusal()) == 1
        assert Finished() in seen
        assert (MEASURED in seen) is with_usage
    cut = streamed(shape, *events[:-1])
    assert Refusal() in cut or len(events) == 1, "what was said before the stream broke still holds"


@PROTOCOLS
@pytest.mark.parametrize(
    "reason", ["stop", "end_turn", "length", "max_output_tokens", "tool_use", "Refusal", "safety", ""]
)
def test_another_reason_is_none(shape: Format, reason: str) -> None:
    body, events = ending(shape, reason, None)
    assert Refusal() not in whole(shape, body)
    assert Refusal() not in streamed(shape, *events)


def errors(word: str) -> list[dict[str, Any]]:
    """The shapes in which a code can come."""
    return [
        {"code": word, "message": "x"},
        {"type": word, "message": "x"},
        {"code": None, "type": "invalid_request_error", "innererror": {"code": word}, "message": "x"},
        {"code": 403, "message": "x", "metadata": {"error_type": word}},
    ]


@PROTOCOLS
@pytest.mark.parametrize("code", CODES)
def test_the_code_of_an_error_wherever_it_stands(shape: Format, code: str) -> None:
    for error in errors(code):
        assert Refusal() in whole(shape, {"type": "error", "error": error}, 400)
        assert Refusal() in whole(shape, {"type": "error", "error": error})
        assert Refusal() in streamed(shape, {"type": "error", "error": error})
    assert Refusal() in whole(Format.RESPONSES, {"status": "failed", "error": {"code": code}})
    for usage in (None, USAGES[Format.RESPONSES]):
        failed = {"type": "response.failed", "response": {"status": "failed", "error": {"code": code}, "usage": usage}}
        seen = streamed(Format.RESPONSES, failed)
        assert Refusal() in seen
        assert (MEASURED in seen) is (usage is not None)
    flat = {"type": "error", "code": code, "message": "x", "param": None}
    assert Refusal() in streamed(Format.RESPONSES, flat)


@PROTOCOLS
@pytest.mark.parametrize(
    "code", ["server_error", "rate_limit_exceeded", "context_length_exceeded", "Invalid_Prompt", ""]
)
def test_another_code_is_none(shape: Format, code: str) -> None:
    for error in errors(code):
        assert Refusal() not in whole(shape, {"type": "error", "error": error}, 400)
        assert Refusal() not in streamed(shape, {"type": "error", "error": error})


@PROTOCOLS
def test_openrouters_moderation_is_known_by_what_it_flagged(shape: Format) -> None:
    flagged = {"reasons": ["violence"], "flagged_input": "…", "provider_name": "x", "model_slug": "x"}
    error = {"code": 403, "message": "x requires moderation", "metadata": flagged}
    assert Refusal() in whole(shape, {"error": error}, 403)
    plain = {"code": 403, "message": "Key limit exceeded", "metadata": {"provider_name": "x"}}
    assert Refusal() not in whole(shape, {"error": plain}, 403)


@PROTOCOLS
@pytest.mark.parametrize("text", ["Output blocked by content filtering policy", "CONTENT FILTERING POLICY"])
def test_the_words_of_an_error(shape: Format, text: str) -> None:
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": text}}
    assert Refusal() in whole(shape, error, 400)
    assert Refusal() in streamed(shape, error)


@WITH_USAGE
def test_a_chats_own_field(with_usage: bool) -> None:
    usage = USAGES[Format.CHAT] if with_usage else None
    body = {"choices": [{"message": {"refusal": "No."}, "finish_reason": "stop"}], "usage": usage}
    chunks: tuple[dict[str, Any], ...] = (
        {"choices": [{"delta": {"role": "assistant", "refusal": None}}]},
        {"choices": [{"delta": {"refusal": "No"}}]},
        {"choices": [{"delta": {}, "finish_reason": "stop"}]},
        {"choices": [], "usage": usage},
    )
    for seen in (whole(Format.CHAT, body), streamed(Format.CHAT, *chunks)):
        assert Refusal() in seen
        assert Finished() in seen
        assert (MEASURED in seen) is with_usage
    assert streamed(Format.CHAT, *chunks[:2]) == (Refusal(),)
    empty: Any
    for empty in (None, "", False, 0, [], {}):
        assert Refusal() not in whole(Format.CHAT, {"choices": [{"message": {"refusal": empty}}]})


@pytest.mark.parametrize(
    "text",
    [
        "Claude can't help with this. Start a new session to continue.",
        "API Error: Claude can\u2019t help with this. Start a new session to continue.",
        "API Error: Claude Code is unable to respond to this request, which appears to violate our Usage Policy (https://x)",
    ],
)
def test_the_claude_clis_words(text: str) -> None:
    assert refusals.is_refusing_text(text)
    assert not refusals.is_refusing_text(text.replace("his", "hat"))


def test_the_table_covers_every_place() -> None:
    assert {signal.place for signal in SIGNALS} == set(Place)
    assert len({(signal.place, signal.word) for signal in SIGNALS}) == len(SIGNALS)
    assert all(signal.sender for signal in SIGNALS)


def test_values_of_any_type_are_no_signal() -> None:
    odd: Any
    for odd in (None, 7, True, [], {}, ["refusal"]):
        assert not refusals.ended_by_refusal(odd)
        assert not refusals.is_refusing_part(odd)
    assert not refusals.is_refusing_error((), "")
    for odd in ({}, {"refusal": 7}, {"refusal": {"a": 1}}, {"refusal": ["No."]}, {"blockReason": False}):
        assert not refusals.carries_refusal(odd)
