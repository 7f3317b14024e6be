import json
from typing import Any

import anthropic
import pytest

from cachegate.errors import ErrorKind
from cachegate.wire.hub import Broken
from cachegate.wire.messages.provider_errors import STATUSES, TYPES, broken_by, error_event, read_error, write_error
from cachegate.wire.overflows import CODE
from cachegate.wire.sse import SseReader
from wire.vendor_sdks import JSON, Wire, ask_anthropic

FULL = Broken(ErrorKind.INVALID, 400, CODE, "prompt is too long: 250001 tokens > 200000 maximum")


def body(kind: str, message: str = "Words.") -> bytes:
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}, "request_id": "r"}).encode()


@pytest.mark.parametrize("kind", STATUSES)
def test_an_error_is_read_and_told_as_it_was(kind: str) -> None:
    broken = read_error(STATUSES[kind], body(kind))
    assert (broken.status, broken.code, broken.message) == (STATUSES[kind], kind, "Words.")
    answer = write_error(broken, "req_1")
    assert answer.status == STATUSES[kind]
    assert json.loads(answer.body) == {
        "type": "error", "error": {"type": kind, "message": "Words."}, "request_id": "req_1",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ErrorKind.INVALID), (401, ErrorKind.UNAUTHORIZED), (402, ErrorKind.FORBIDDEN), (403, ErrorKind.FORBIDDEN),
        (404, ErrorKind.NOT_FOUND), (413, ErrorKind.TOO_LARGE), (429, ErrorKind.UNAVAILABLE),
        (500, ErrorKind.UPSTREAM), (502, ErrorKind.UPSTREAM), (503, ErrorKind.UNAVAILABLE), (504, ErrorKind.TIMEOUT),
        (529, ErrorKind.UNAVAILABLE),
    ],
)  # fmt: skip
@pytest.mark.parametrize("given", [b"", b"<html>Bad Gateway</html>", b"Busy.", b"{}", b'{"error":"Busy."}', b"[]"])
def test_a_status_says_enough_whatever_the_body_is(status: int, kind: ErrorKind, given: bytes) -> None:
    broken = read_error(status, given)
    assert (broken.kind, broken.status) == (kind, status)
    assert broken.message
    assert "<html>" not in broken.message
    written = json.loads(write_error(broken, "r").body)["error"]
    assert written["type"] == TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")


@pytest.mark.parametrize("status", [0, 200, 302])
def test_what_is_no_error_status_becomes_one(status: int) -> None:
    assert read_error(status, body("weird")).status == 500
    assert write_error(Broken(ErrorKind.UPSTREAM, status, "weird", "x"), "r").status == 500


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("rate_limit_exceeded", 429, "rate_limit_error"), ("server_is_overloaded", 503, "overloaded_error"),
        ("invalid_api_key", 401, "authentication_error"), ("invalid_request_error", 413, "request_too_large"),
        ("server_error", 502, "api_error"), ("unknown", 418, "invalid_request_error"),
        ("billing_error", 400, "billing_error"),
    ],
)  # fmt: skip
def test_other_providers_codes_get_the_type_of_their_status(code: str, status: int, kind: str) -> None:
    answer = write_error(Broken(ErrorKind.UPSTREAM, status, code, "x"), "r")
    assert (answer.status, json.loads(answer.body)["error"]["type"]) == (status, kind)


@pytest.mark.parametrize(
    "message",
    ["prompt is too long: 250001 tokens > 200000 maximum", "input length and `max_tokens` exceed context limit: 1 + 2"],
)
def test_an_overflow_is_known_by_its_words(message: str) -> None:
    broken = read_error(400, body("invalid_request_error", message))
    assert broken == Broken(ErrorKind.INVALID, 400, CODE, message)


def test_an_overflow_is_told_in_the_words_on_which_claude_code_compacts() -> None:
    answer = write_error(FULL, "req_1")
    assert answer.status == 400
    assert json.loads(answer.body)["error"] == {"type": "invalid_request_error", "message": FULL.message}
    other = write_error(Broken(ErrorKind.INVALID, 413, CODE, "Your input exceeds the context window."), "req_1")
    assert other.status == 400
    assert json.loads(other.body)["error"]["message"].startswith("prompt is too long")


def test_an_error_inside_an_answer_has_the_status_of_its_type() -> None:
    event = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    assert broken_by(event) == Broken(ErrorKind.UNAVAILABLE, 529, "overloaded_error", "Overloaded")
    assert broken_by({"type": "error"}).status == 500


@pytest.mark.parametrize("broken", [FULL, Broken(ErrorKind.UPSTREAM, 529, "overloaded_error", "Overloaded")])
def test_a_stream_ends_with_the_same_error(broken: Broken) -> None:
    _, (event,) = SseReader().feed(error_event(broken))
    assert event.name == b"error"
    told: dict[str, Any] = json.loads(event.data)
    assert told == {"type": "error", "error": json.loads(write_error(broken, "").body)["error"]}


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 429, 500, 503, 529])
def test_the_sdk_raises_what_was_written(status: int) -> None:
    answer = write_error(Broken(ErrorKind.UPSTREAM, status, "x", "Words."), "req_1")
    with pytest.raises(anthropic.APIStatusError, match="Words") as raised:
        ask_anthropic(Wire(answer.body, status=answer.status, kind=JSON))
    assert raised.value.status_code == status
