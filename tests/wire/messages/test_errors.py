import json

import anthropic
import anthropic.types.shared
import pytest

from cachegate.errors import HTTP_STATUS, ErrorKind
from cachegate.wire.messages.errors import KEEPALIVE, STOP_TYPE, TYPES, error_body, stop_body, terminal_error
from cachegate.wire.sse import SseReader
from wire.transcripts import MESSAGES, Transcript, feed, pieces
from wire.vendor_sdks import JSON, Wire, anthropic_events, anthropic_final, ask_anthropic

WORDS = "Cachegate stopped this request: please wait 5 minutes without sending anything, then send one “message”.\n"
KINDS = pytest.mark.parametrize("kind", list(ErrorKind))
COMPLETE = [transcript for transcript in MESSAGES if transcript.finished and transcript.name != "messages-odd"]
"""What the SDK can accumulate to its end: it wants a message's every field, and only LF between lines is certain."""


def test_a_stop_is_final_for_claude_code_and_shows_the_words_as_they_are() -> None:
    """Any other type at 400 makes Claude Code send up to six variants of the request."""
    assert json.loads(stop_body(WORDS, "req_1")) == {
        "type": "error",
        "error": {"type": "billing_error", "message": WORDS},
        "request_id": "req_1",
    }
    assert stop_body("Wait.", "req_1") == (
        b'{"type":"error","error":{"type":"billing_error","message":"Wait."},"request_id":"req_1"}'
    )


def test_the_sdk_asks_once_and_raises_the_stop() -> None:
    wire = Wire(stop_body(WORDS, "req_1"), status=400, kind=JSON)
    with pytest.raises(anthropic.BadRequestError) as raised:
        ask_anthropic(wire)
    assert wire.asked == 1
    assert raised.value.body == json.loads(stop_body(WORDS, "req_1"))


@KINDS
def test_an_error_has_the_shape_of_the_protocol(kind: ErrorKind) -> None:
    assert json.loads(error_body(kind, WORDS, "req_1")) == {
        "type": "error",
        "error": {"type": TYPES[kind], "message": WORDS},
        "request_id": "req_1",
    }


@KINDS
def test_the_sdk_raises_an_error_of_that_status(kind: ErrorKind) -> None:
    wire = Wire(error_body(kind, WORDS, "req_1"), status=HTTP_STATUS[kind], kind=JSON)
    with pytest.raises(anthropic.APIStatusError) as raised:
        ask_anthropic(wire)
    assert raised.value.status_code == HTTP_STATUS[kind]
    assert raised.value.body == json.loads(error_body(kind, WORDS, "req_1"))


def test_each_kind_has_the_providers_own_word_for_its_status() -> None:
    """Statuses that Anthropic never sends (405, 415, 426, 502) borrow the nearest word."""
    assert {HTTP_STATUS[kind]: word for kind, word in TYPES.items()} == {
        400: "invalid_request_error",
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        405: "invalid_request_error",
        413: "request_too_large",
        415: "invalid_request_error",
        426: "invalid_request_error",
        500: "api_error",
        502: "api_error",
        503: "overloaded_error",
        504: "timeout_error",
    }


def test_only_a_stop_looks_like_a_stop() -> None:
    assert set(TYPES) == set(ErrorKind)
    assert STOP_TYPE not in TYPES.values()


def test_the_keepalive_is_the_protocols_own_ping() -> None:
    assert KEEPALIVE == b'event: ping\ndata: {"type":"ping"}\n\n'


@pytest.mark.parametrize("transcript", COMPLETE, ids=lambda transcript: transcript.name)
def test_the_sdk_takes_a_keepalive_anywhere(transcript: Transcript) -> None:
    kept = KEEPALIVE + b"".join(piece + KEEPALIVE for piece in pieces(transcript))
    assert anthropic_final(kept) == anthropic_final(transcript.data)
    assert anthropic_events(kept) == anthropic_events(transcript.data)


@KINDS
def test_a_terminal_error_is_one_event(kind: ErrorKind) -> None:
    ending = terminal_error(kind, WORDS)
    whole, events = SseReader().feed(ending)
    assert (whole, [event.name for event in events]) == (ending, [b"error"])
    assert json.loads(events[0].data) == {"type": "error", "error": {"type": TYPES[kind], "message": WORDS}}


@pytest.mark.parametrize("count", range(11))
def test_a_terminal_error_makes_the_sdk_raise_wherever_the_stream_broke(count: int) -> None:
    begun = b"".join(pieces(MESSAGES[1])[:count])
    assert len(feed([begun]).events) == count
    with pytest.raises(anthropic.APIStatusError, match="Broke off") as raised:
        anthropic_final(begun + terminal_error(ErrorKind.UPSTREAM, "Broke off."))
    assert raised.value.body == {"type": "error", "error": {"type": "api_error", "message": "Broke off."}}
