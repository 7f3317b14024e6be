import json
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachegate.errors import HTTP_STATUS, ErrorKind
from cachegate.wire import overflows, refusals
from cachegate.wire.chat.errors import (
    KEEPALIVE,
    STATUSES,
    read_broken,
    read_error,
    terminal_error,
    with_told_errors,
    write_broken,
    write_error,
)
from cachegate.wire.hub import Broken
from cachegate.wire.provider_statuses import KINDS
from cachegate.wire.responses.errors import CODES, STOP_CODE, error_body, stop_body
from cachegate.wire.sse import SseReader
from wire.chat.chunks import DONE, ROLE, chunk, sdk_chunks, sdk_final, sdk_whole, usage
from wire.vendor_sdks import JSON, Wire, openai_client

WORDS = "Cachegate stopped this request: please wait 5 minutes without sending anything, then send one “message”.\n"
KINDS_ALL = pytest.mark.parametrize("kind", list(ErrorKind))
WHOLE = chunk(ROLE) + chunk({"content": "Hi"}) + chunk({}, "stop") + usage() + DONE


def error(body: bytes) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(body)["error"]
    return told


def ask(wire: Wire) -> None:
    with openai_client(wire) as client:
        client.chat.completions.create(model="m", messages=[])


def test_a_stop_has_the_code_that_is_final_for_all_clients_that_were_tried() -> None:
    told = {"message": WORDS, "type": "invalid_request_error", "code": "invalid_prompt", "param": None}
    assert error(stop_body(WORDS, "req_1")) == told
    wire = Wire(stop_body(WORDS, "req_1"), status=400, kind=JSON)
    with pytest.raises(openai.BadRequestError) as raised:
        ask(wire)
    assert wire.asked == 1
    assert (raised.value.code, raised.value.type, raised.value.param) == (STOP_CODE, "invalid_request_error", None)
    assert WORDS in raised.value.message


@KINDS_ALL
def test_an_error_has_the_shape_of_the_protocol(kind: ErrorKind) -> None:
    error_type, code = CODES[kind]
    body = error_body(kind, WORDS, "req_1")
    assert error(body) == {"message": WORDS, "type": error_type, "code": code, "param": None}
    with pytest.raises(openai.APIStatusError) as raised:
        ask(Wire(body, status=HTTP_STATUS[kind], kind=JSON))
    assert (raised.value.status_code, raised.value.code) == (HTTP_STATUS[kind], code)


def test_no_error_of_ours_looks_like_a_stop_a_refusal_or_a_full_context() -> None:
    assert set(CODES) == set(ErrorKind)
    words = {word for pair in CODES.values() for word in pair if word}
    assert not words & {STOP_CODE, *refusals.CODES, *overflows.CODES}


def test_a_keepalive_is_a_comment_that_the_sdk_does_not_see() -> None:
    assert KEEPALIVE == b": keepalive\n\n"
    kept = b"".join(block + b"\n\n" + KEEPALIVE for block in (KEEPALIVE + WHOLE).split(b"\n\n") if block)
    assert sdk_final(kept) == sdk_final(WHOLE)
    assert sdk_chunks(kept) == sdk_chunks(WHOLE)


@KINDS_ALL
def test_a_terminal_error_ends_a_stream_as_failed_for_the_sdk(kind: ErrorKind) -> None:
    ending = terminal_error(kind, WORDS)
    whole, events = SseReader().feed(ending)
    assert (whole, len(events), events[0].name) == (ending, 1, b"")
    assert error(events[0].data)["message"] == WORDS
    assert b"[DONE]" not in ending
    with pytest.raises(openai.APIError, match="Cachegate stopped"):
        sdk_chunks(chunk(ROLE) + chunk({"content": "Hi"}) + ending)


@pytest.mark.parametrize(
    ("status", "told", "broken"),
    [
        (
            401,
            {"type": "invalid_request_error", "code": "invalid_api_key"},
            (ErrorKind.UNAUTHORIZED, 401, "invalid_api_key"),
        ),
        (402, {"code": 402}, (ErrorKind.FORBIDDEN, 402, "forbidden")),
        (404, {"code": "model_not_found"}, (ErrorKind.NOT_FOUND, 404, "model_not_found")),
        (413, {"type": "invalid_request_error"}, (ErrorKind.TOO_LARGE, 413, "request_too_large")),
        (422, {"type": "BadRequestError"}, (ErrorKind.INVALID, 422, "BadRequestError")),
        (429, {"code": "rate_limit_exceeded"}, (ErrorKind.UNAVAILABLE, 429, "rate_limit_exceeded")),
        (500, {"type": "server_error"}, (ErrorKind.UPSTREAM, 500, "server_error")),
        (
            502,
            {"code": 502, "metadata": {"error_type": "provider_overloaded"}},
            (ErrorKind.UPSTREAM, 502, "provider_overloaded"),
        ),
        (503, {"code": "server_is_overloaded"}, (ErrorKind.UNAVAILABLE, 503, "server_is_overloaded")),
        (529, {"type": "overloaded_error"}, (ErrorKind.UNAVAILABLE, 529, "overloaded_error")),
        (400, {"code": "content_policy_violation"}, (ErrorKind.INVALID, 400, "content_policy_violation")),
    ],
)
def test_an_error_answer_is_read(status: int, told: dict[str, Any], broken: tuple[ErrorKind, int, str]) -> None:
    body = json.dumps({"error": {"message": "It failed.", **told}}).encode()
    assert read_error(status, body) == Broken(*broken, "It failed.")


OVERFLOWS = [
    (400, {"code": "context_length_exceeded", "message": "Too much."}),
    (400, {"message": "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens."}),
    (400, {"type": "exceed_context_size_error", "message": "n", "n_prompt_tokens": 9, "n_ctx": 4}),
    (413, {"code": "model_max_prompt_tokens_exceeded", "message": "x"}),
    (400, {"code": 400, "message": "x", "metadata": {"error_type": "context_length_exceeded"}}),
]


@pytest.mark.parametrize(("status", "told"), OVERFLOWS)
def test_an_overflow_is_told_as_one_whatever_words_it_came_in(status: int, told: dict[str, Any]) -> None:
    broken = read_error(status, json.dumps({"error": told}).encode())
    assert broken == Broken(ErrorKind.INVALID, 400, "context_length_exceeded", told["message"])
    answer = write_error(broken)
    assert (answer.status, error(answer.body)["code"]) == (400, "context_length_exceeded")
    assert read_broken({"error": told}) == broken


@pytest.mark.parametrize(
    ("told", "status"),
    [
        ({"code": 429, "message": "x"}, 429),
        ({"code": "rate_limit_exceeded", "message": "x"}, 429),
        ({"type": "overloaded_error", "message": "x"}, 529),
        ({"code": 200, "message": "x"}, 502),
        ({"code": True, "message": "x"}, 502),
        ({"message": "x"}, 502),
        ({"code": "cyber_policy", "message": "x"}, 400),
    ],
)
def test_an_error_in_a_stream_gets_the_nearest_status(told: dict[str, Any], status: int) -> None:
    assert read_broken({"error": told}).status == status


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"<html>Bad Gateway</html>", "<html>Bad Gateway</html>"),
        (b"", "The provider failed without saying why."),
        (b'{"error":"busy"}', "busy"),
        (b'{"detail":"Unsupported"}', "Unsupported"),
        (b'{"detail":[{"loc":["body"]}]}', '{"detail":[{"loc":["body"]}]}'),
        (b'[{"error":{"code":400,"message":"Bad."}}]', "Bad."),
        (b'{"object":"error","message":"Bad.","type":"BadRequestError","code":400}', "Bad."),
    ],
)
def test_an_error_of_no_known_shape_keeps_its_words(body: bytes, message: str) -> None:
    broken = read_error(503, body)
    assert (broken.status, broken.kind, broken.message) == (503, ErrorKind.UNAVAILABLE, message)


@pytest.mark.parametrize(
    ("broken", "status", "error_type", "code"),
    [
        (Broken(ErrorKind.UNAVAILABLE, 529, "overloaded_error", "x"), 503, "server_error", "server_is_overloaded"),
        (Broken(ErrorKind.UNAVAILABLE, 429, "rate_limit_error", "x"), 429, "rate_limit_error", "rate_limit_exceeded"),
        (Broken(ErrorKind.UNAVAILABLE, 429, "insufficient_quota", "x"), 429, "rate_limit_error", "insufficient_quota"),
        (
            Broken(ErrorKind.UNAUTHORIZED, 401, "authentication_error", "x"),
            401,
            "authentication_error",
            "authentication_error",
        ),
        (Broken(ErrorKind.NOT_FOUND, 404, "not_found_error", "x"), 404, "invalid_request_error", "not_found_error"),
        (Broken(ErrorKind.TOO_LARGE, 413, "request_too_large", "x"), 413, "invalid_request_error", "request_too_large"),
        (Broken(ErrorKind.UPSTREAM, 502, "upstream", "x"), 502, "server_error", "server_error"),
        (Broken(ErrorKind.INVALID, 400, "unknown", "x"), 400, "invalid_request_error", None),
    ],
)
def test_an_error_is_written_with_its_status_and_openais_code(
    broken: Broken, status: int, error_type: str, code: str | None
) -> None:
    answer = write_error(broken)
    assert answer.status == status
    assert error(answer.body) == {"message": "x", "type": error_type, "code": code, "param": None}
    assert write_broken(broken) == b"data: " + answer.body + b"\n\n"


def test_every_status_of_a_word_is_one_we_know_or_a_fault_of_the_provider() -> None:
    assert set(STATUSES.values()) <= {400, *KINDS, 500, 502}


@given(st.integers(100, 700), st.binary(max_size=60) | st.text().map(lambda text: json.dumps({"error": text}).encode()))
def test_anything_can_be_read_as_an_error_and_written(status: int, body: bytes) -> None:
    answer = write_error(read_error(status, body))
    assert 400 <= answer.status < 600
    assert error(answer.body)["message"]


def test_the_sdk_raises_an_error_that_hides_in_a_whole_answer() -> None:
    assert sdk_whole(b'{"id":"x","object":"chat.completion","created":1,"model":"m","choices":[]}').choices == []


FIELD = b'error: {"code":500,"message":"Out of memory.","type":"server_error"}'


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
def test_a_failure_in_a_field_that_no_client_reads_is_told_once_more(end: bytes) -> None:
    begun, failed = chunk(ROLE) + chunk({"content": "Hi"}), FIELD + end
    told = with_told_errors(begun + failed + DONE)
    assert told.startswith(begun + failed), "nothing is taken away"
    assert told.endswith(DONE)
    added = told.removeprefix(begun + failed).removesuffix(DONE)
    assert error(added.removeprefix(b"data: "))["message"] == "Out of memory."
    assert len(sdk_chunks(begun + failed + DONE)) == 2, "as it came, a client takes it for an answer that ended well"
    with pytest.raises(openai.APIError, match="Out of memory"):
        sdk_chunks(told)


def test_every_such_failure_is_told_and_a_text_is_one_too() -> None:
    told = with_told_errors(FIELD + b"\n\n" + b"error:slot unavailable\n\n")
    assert [event.name for event in SseReader().feed(told)[1]] == [b"error", b"", b"error", b""]
    assert b"slot unavailable" in told.rpartition(b"data: ")[2]


@pytest.mark.parametrize(
    "stream", [b"", WHOLE, chunk({"content": "error: x"}), b"event: error\ndata: {}\n\n", b"data: x\nnoerror: y\n\n"]
)
def test_what_is_told_already_stays_as_it_is(stream: bytes) -> None:
    assert with_told_errors(stream) == stream
