import json

import openai
import openai.types.responses
import pytest

from cachegate.errors import HTTP_STATUS, ErrorKind
from cachegate.wire.refusals import CODES as REFUSAL_CODES
from cachegate.wire.responses.errors import CODES, KEEPALIVE, STOP_CODE, error_body, stop_body
from cachegate.wire.responses.reader import ResponsesReader
from cachegate.wire.sse import SseReader
from wire.transcripts import RESPONSES, Transcript, feed, pieces
from wire.vendor_sdks import JSON, Wire, ask_openai, check_openai_event, openai_events, openai_final

WORDS = "Cachegate stopped this request: please wait 5 minutes without sending anything, then send one “message”.\n"
KINDS = pytest.mark.parametrize("kind", list(ErrorKind))
COMPLETE = [transcript for transcript in RESPONSES if transcript.name in {"responses-text", "responses-tool-use"}]
TEXT = RESPONSES[0]
OVERFLOW = {"context_length_exceeded", "model_max_prompt_tokens_exceeded", "input_too_large"}
"""Codes after which a client takes its context for full and compacts."""


def broken(count: int, kind: ErrorKind = ErrorKind.UPSTREAM) -> bytes:
    """Return a stream that broke after some events, as the gateway ends it."""
    begun = b"".join(pieces(TEXT)[:count])
    reader = ResponsesReader()
    for event in feed([begun]).events:
        reader.read(event)
    return begun + reader.terminal_error(kind, "Broke off.")


def test_a_stop_is_final_for_codex_and_shows_only_the_words() -> None:
    """With any other code Codex shows the whole body, braces and all."""
    assert json.loads(stop_body(WORDS, "req_1")) == {
        "error": {"message": WORDS, "type": "invalid_request_error", "code": "invalid_prompt", "param": None}
    }
    assert stop_body("Wait.", "req_1") == (
        b'{"error":{"message":"Wait.","type":"invalid_request_error","code":"invalid_prompt","param":null}}'
    )


def test_the_sdk_asks_once_and_raises_the_stop() -> None:
    wire = Wire(stop_body(WORDS, "req_1"), status=400, kind=JSON)
    with pytest.raises(openai.BadRequestError) as raised:
        ask_openai(wire)
    assert wire.asked == 1
    assert (raised.value.code, raised.value.type, raised.value.param) == (
        "invalid_prompt", "invalid_request_error", None,
    )  # fmt: skip
    assert WORDS in raised.value.message


@KINDS
def test_an_error_has_the_shape_of_the_protocol(kind: ErrorKind) -> None:
    error_type, code = CODES[kind]
    assert json.loads(error_body(kind, WORDS, "req_1")) == {
        "error": {"message": WORDS, "type": error_type, "code": code, "param": None}
    }


@KINDS
def test_the_sdk_raises_an_error_of_that_status(kind: ErrorKind) -> None:
    wire = Wire(error_body(kind, WORDS, "req_1"), status=HTTP_STATUS[kind], kind=JSON)
    with pytest.raises(openai.APIStatusError) as raised:
        ask_openai(wire)
    assert (raised.value.status_code, raised.value.code) == (HTTP_STATUS[kind], CODES[kind][1])


def test_no_error_looks_like_a_stop_a_refusal_or_a_full_context() -> None:
    assert set(CODES) == set(ErrorKind)
    codes = {word for pair in CODES.values() for word in pair}
    assert not codes & {STOP_CODE, *REFUSAL_CODES, *OVERFLOW}


def test_the_keepalive_is_an_event_and_no_comment() -> None:
    """Codex's idle timer counts events only."""
    assert KEEPALIVE == b'event: keepalive\ndata: {"type":"keepalive"}\n\n'


@pytest.mark.parametrize("transcript", COMPLETE, ids=lambda transcript: transcript.name)
def test_the_sdk_takes_a_keepalive_between_any_two_events(transcript: Transcript) -> None:
    kept = b"".join(piece + KEEPALIVE for piece in pieces(transcript))
    assert openai_final(kept) == openai_final(transcript.data)
    told = [event for event in openai_events(KEEPALIVE + kept) if str(event.type) != "keepalive"]
    assert told == openai_events(transcript.data)


def test_before_the_first_event_only_a_comment_keeps_the_sdks_accumulator_content() -> None:
    reader = ResponsesReader()
    assert openai_final(reader.keepalive + TEXT.data) == openai_final(TEXT.data)
    reader.read(SseReader().feed(TEXT.data)[1][0])
    assert reader.keepalive == KEEPALIVE
    with pytest.raises(RuntimeError, match=r"before `keepalive`"):
        openai_final(KEEPALIVE + TEXT.data)


@KINDS
def test_a_terminal_error_is_an_error_and_then_a_failed_response_of_one_code(kind: ErrorKind) -> None:
    """opencode needs the first event, Codex the second."""
    ending = ResponsesReader().terminal_error(kind, WORDS)
    whole, events = SseReader().feed(ending)
    assert (whole, [event.name for event in events]) == (ending, [b"error", b"response.failed"])
    error, failed = (json.loads(event.data) for event in events)
    code = CODES[kind][1] or CODES[kind][0]
    flat = {"code": code, "message": WORDS, "param": None}
    assert error == {"type": "error", **flat, "sequence_number": 0, "error": {"type": code, **flat}}
    assert (failed["type"], failed["sequence_number"]) == ("response.failed", 1)
    assert failed["response"]["error"] == {"code": code, "message": WORDS}
    assert failed["response"]["object"] == "response"
    assert code != STOP_CODE


BROKEN = (ErrorKind.UPSTREAM, ErrorKind.TIMEOUT, ErrorKind.INTERNAL, ErrorKind.UNAVAILABLE)


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_stream_has_a_code_that_clients_retry(kind: ErrorKind) -> None:
    assert CODES[kind] == ("server_error", "server_error")


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.parametrize("count", range(len(pieces(TEXT))))
def test_a_strict_parser_takes_a_terminal_error_wherever_the_stream_broke(count: int, kind: ErrorKind) -> None:
    """Grok's parser wants every field of the response, also when nothing came before."""
    for event in feed([broken(count, kind)]).events[count:]:
        check_openai_event(event)


@pytest.mark.parametrize("count", range(len(pieces(TEXT))))
def test_the_sdk_sees_the_stream_fail_wherever_it_broke(count: int) -> None:
    with pytest.raises(openai.APIError, match="Broke off"):
        openai_events(broken(count))
    with pytest.raises((openai.APIError, RuntimeError)):
        openai_final(broken(count))
