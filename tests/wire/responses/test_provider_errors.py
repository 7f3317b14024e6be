import json
from typing import Any

import openai
import pytest

from cachegate.errors import ErrorKind
from cachegate.wire.body import encode
from cachegate.wire.hub import Broken
from cachegate.wire.overflows import CODE
from cachegate.wire.responses.provider_errors import (
    NATIVE_CODES,
    STATUS_OF_CODE,
    broken_in_stream,
    read_error,
    stream_code,
    write_error,
)
from wire.vendor_sdks import JSON, Wire, ask_openai

FINAL_FOR_CODEX = {"invalid_prompt", "cyber_policy", "bio_policy", "misalignment_policy_violation",
                   "content_policy_violation", "model_not_found", CODE, "insufficient_quota", "usage_not_included",
                   "server_is_overloaded"}  # fmt: skip


def error(**fields: Any) -> bytes:
    return encode({"error": {"message": "Words.", "param": None, **fields}})


@pytest.mark.parametrize(
    ("status", "body", "broken"),
    [
        (
            429,
            error(type="requests", code="rate_limit_exceeded"),
            Broken(ErrorKind.UNAVAILABLE, 429, "rate_limit_exceeded", "Words."),
        ),
        (
            401,
            error(type="invalid_request_error", code="invalid_api_key"),
            Broken(ErrorKind.UNAUTHORIZED, 401, "invalid_api_key", "Words."),
        ),
        (
            400,
            error(type="invalid_request_error", code=None),
            Broken(ErrorKind.INVALID, 400, "invalid_request_error", "Words."),
        ),
        (500, error(type="server_error"), Broken(ErrorKind.UPSTREAM, 500, "server_error", "Words.")),
        (503, error(code="server_is_overloaded"), Broken(ErrorKind.UNAVAILABLE, 503, "server_is_overloaded", "Words.")),
        (
            413,
            error(type="invalid_request_error", code=None),
            Broken(ErrorKind.TOO_LARGE, 413, "request_too_large", "Words."),
        ),
        (400, error(code=CODE), Broken(ErrorKind.INVALID, 400, CODE, "Words.")),
        (
            400,
            b'{"error":{"message":"maximum prompt length is 9 but the request contains 10"}}',
            Broken(ErrorKind.INVALID, 400, CODE, "maximum prompt length is 9 but the request contains 10"),
        ),
        (413, error(code="input_too_large"), Broken(ErrorKind.INVALID, 400, CODE, "Words.")),
        (400, b'{"detail":"Unsupported"}', Broken(ErrorKind.INVALID, 400, "unknown", "Unsupported")),
        (502, b'"Busy."', Broken(ErrorKind.UPSTREAM, 502, "unknown", "Busy.")),
    ],
)
def test_an_error_says_what_happened(status: int, body: bytes, broken: Broken) -> None:
    assert read_error(status, body) == broken


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"null", b'{"error":{}}'])
def test_an_error_without_a_shape_is_told_by_its_status(body: bytes) -> None:
    broken = read_error(502, body)
    assert (broken.kind, broken.status, broken.code) == (ErrorKind.UPSTREAM, 502, "unknown")
    assert "502" in broken.message


@pytest.mark.parametrize(
    "data",
    [
        {"type": "error", "code": "slow_down", "message": "Words."},
        {"type": "error", "error": {"code": "slow_down", "message": "Words."}},
        {"type": "response.failed", "response": {"error": {"code": "slow_down", "message": "Words."}}},
    ],
)
def test_an_error_in_a_stream_is_read_wherever_it_stands(data: dict[str, Any]) -> None:
    assert broken_in_stream(data) == Broken(ErrorKind.UNAVAILABLE, 503, "slow_down", "Words.")


def test_an_error_in_a_stream_without_a_known_code_is_the_upstreams() -> None:
    assert broken_in_stream({"type": "error", "code": "odd", "message": "m"}).status == 502
    assert broken_in_stream({"type": "error", "code": CODE, "message": "m"}).code == CODE


def body_of(broken: Broken) -> tuple[int, dict[str, Any]]:
    answer = write_error(broken, "req_1")
    return answer.status, json.loads(answer.body)["error"]


@pytest.mark.parametrize(
    ("broken", "status", "kind", "code"),
    [
        (Broken(ErrorKind.INVALID, 400, "invalid_request_error", "m"), 400, "invalid_request_error", None),
        (Broken(ErrorKind.INVALID, 400, CODE, "m"), 400, "invalid_request_error", CODE),
        (Broken(ErrorKind.INVALID, 400, "invalid_prompt", "m"), 400, "invalid_request_error", "invalid_prompt"),
        (
            Broken(ErrorKind.UNAUTHORIZED, 401, "authentication_error", "m"),
            401,
            "invalid_request_error",
            "invalid_api_key",
        ),
        (Broken(ErrorKind.FORBIDDEN, 403, "permission_error", "m"), 403, "invalid_request_error", "forbidden"),
        (Broken(ErrorKind.NOT_FOUND, 404, "not_found_error", "m"), 404, "invalid_request_error", "not_found"),
        (Broken(ErrorKind.TOO_LARGE, 413, "request_too_large", "m"), 413, "invalid_request_error", "request_too_large"),
        (Broken(ErrorKind.UNAVAILABLE, 429, "rate_limit_error", "m"), 429, "rate_limit_error", "rate_limit_exceeded"),
        (Broken(ErrorKind.UNAVAILABLE, 429, "insufficient_quota", "m"), 429, "rate_limit_error", "insufficient_quota"),
        (Broken(ErrorKind.UNAVAILABLE, 529, "overloaded_error", "m"), 503, "server_error", "server_is_overloaded"),
        (Broken(ErrorKind.UPSTREAM, 500, "api_error", "m"), 500, "server_error", "server_error"),
        (Broken(ErrorKind.TIMEOUT, 504, "timeout_error", "m"), 504, "server_error", "server_error"),
        (Broken(ErrorKind.UPSTREAM, 302, "unknown", "m"), 502, "server_error", "server_error"),
    ],
)
def test_an_error_keeps_its_status_and_has_the_protocols_own_code(
    broken: Broken, status: int, kind: str, code: str | None
) -> None:
    param = "input" if code == CODE else None
    assert body_of(broken) == (status, {"message": "m", "type": kind, "code": code, "param": param})


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 429, 500, 503, 529])
def test_the_sdk_raises_what_was_written(status: int) -> None:
    answer = write_error(Broken(ErrorKind.UPSTREAM, status, "x", "Words."), "req_1")
    wire = Wire(answer.body, status=answer.status, kind=JSON)
    with pytest.raises(openai.APIStatusError, match=r"Words\."):
        ask_openai(wire)
    assert wire.asked == 1


@pytest.mark.parametrize(
    ("broken", "code"),
    [
        (Broken(ErrorKind.INVALID, 400, CODE, "m"), CODE),
        (Broken(ErrorKind.INVALID, 400, "invalid_request_error", "m"), "invalid_prompt"),
        (Broken(ErrorKind.INVALID, 400, "cyber_policy", "m"), "cyber_policy"),
        (Broken(ErrorKind.UNAVAILABLE, 529, "overloaded_error", "m"), "slow_down"),
        (Broken(ErrorKind.UNAVAILABLE, 503, "server_is_overloaded", "m"), "slow_down"),
        (Broken(ErrorKind.UNAVAILABLE, 429, "rate_limit_error", "m"), "rate_limit_exceeded"),
        (Broken(ErrorKind.FORBIDDEN, 402, "billing_error", "m"), "invalid_prompt"),
        (Broken(ErrorKind.UPSTREAM, 502, "upstream", "m"), "server_error"),
        (Broken(ErrorKind.UPSTREAM, 500, "api_error", "m"), "server_error"),
    ],
)
def test_a_stream_fails_with_a_code_that_clients_act_on(broken: Broken, code: str) -> None:
    assert stream_code(broken) == code
    if broken.kind in {ErrorKind.INVALID, ErrorKind.FORBIDDEN}:
        assert code in FINAL_FOR_CODEX, "it would be asked for again, for nothing"


def test_what_is_passed_on_has_a_status() -> None:
    assert set(STATUS_OF_CODE) >= NATIVE_CODES
