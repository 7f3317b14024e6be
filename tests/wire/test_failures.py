from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegate.wire.failures import breaks_off, complaint, ended, failure, judged, told
from cachegate.wire.seen import Failed, Refusal


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "overloaded_error"),
        ({"error": {"code": "rate_limit_exceeded", "type": "requests"}}, "rate_limit_exceeded"),
        ({"error": {"code": None, "type": "invalid_request_error"}}, "invalid_request_error"),
        ({"type": "error", "code": "server_error", "message": "x"}, "server_error"),
        ({"type": "error", "code": None, "message": "x"}, "unknown"),
        ({"type": "response.failed", "response": {"error": {"code": "server_error"}}}, "server_error"),
        ({"status": "failed", "error": {"code": "server_error"}}, "server_error"),
        ({"status": "failed"}, "unknown"),
        ({"error": {"code": 502, "message": "x", "metadata": {"error_type": "provider_unavailable"}}},
         "provider_unavailable"),
        ({"error": {"code": 400, "status": "INVALID_ARGUMENT"}}, "INVALID_ARGUMENT"),
        ([{"error": {"code": 404, "status": "NOT_FOUND"}}], "NOT_FOUND"),
        ([{"error": {"status": "NOT_FOUND"}}, {"error": {"status": "OTHER"}}], "unknown"),
        ({"errorType": "quota", "errorCode": "quota_exceeded"}, "quota"),
        ({"object": "error", "type": "BadRequestError", "code": 400, "message": "x"}, "BadRequestError"),
        ({"error": "text"}, "unknown"),
        ({"detail": "Unsupported"}, "unknown"),
        ({"error": {"code": "a sentence with what was asked", "type": "x"}}, "unknown"),
        ({}, "unknown"),
        (None, "unknown"),
        ("text", "unknown"),
        ([], "unknown"),
        ({"error": {"error": {"error": []}}}, "unknown"),
    ],
)  # fmt: skip
def test_a_code_is_found_wherever_it_stands_and_never_a_message(data: Any, code: str) -> None:
    assert failure(data) == (Failed(code),)


SAID = {"code": 500, "message": "x", "type": "server_error"}


@pytest.mark.parametrize(
    ("name", "data"),
    [
        (b"error", {"type": "error", "error": SAID}),
        (b"", {"type": "error", "error": SAID}),
        (b"", {"type": "error"}),
        (b"error", SAID),  # llama.cpp, Messages
        (b"", {"error": SAID}),  # llama.cpp, Responses
        (b"error", {"error": "x"}),
    ],
)
def test_an_error_in_a_stream_is_known_with_and_without_its_type(name: bytes, data: Any) -> None:
    assert breaks_off(name, data)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        (b"vendor_event", {"type": "error", "error": SAID}),
        (b"ping", {"error": SAID}),
        (b"", SAID),
        (b"", {"type": "response.created", "error": SAID}),
        (b"", {"error": None}),
        (b"", {}),
        (b"error", {}),
        (b"error", {"type": 7, "message": []}),
    ],
)
def test_what_says_no_error_is_none(name: bytes, data: Any) -> None:
    assert not breaks_off(name, data)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"error": {"message": "a", "metadata": {"raw": "b"}}}, "a b"),
        ({"error": {"message": "a", "innererror": {"message": "c"}}}, "a c"),
        ({"error": "a"}, "a"),
        ({"detail": "a"}, "a"),
        ({"message": "a"}, "a"),
        ({"message": {"detail": []}}, ""),
        ("a", "a"),
    ],
)
def test_the_text_is_what_a_person_would_read(data: Any, text: str) -> None:
    assert complaint(data).text == text


@pytest.mark.parametrize(
    ("data", "value"),
    [(b'{"code":1}', {"code": 1}), (b"[1]", [1]), (b'"a"', "a"), (b"Out of memory.", "Out of memory."), (b"{}", "{}"),
     (b"\xff", "\ufffd")],
)  # fmt: skip
def test_the_event_of_a_failure_holds_json_or_a_text(data: bytes, value: Any) -> None:
    assert told(data) == value


def test_a_refusal_goes_before_an_overflow() -> None:
    assert judged(("invalid_prompt",), "prompt is too long", "invalid_prompt") == (Refusal(), Failed("invalid_prompt"))
    assert judged((), "prompt is too long", "x") == (Failed("context_length_exceeded"),)
    assert judged((), "", "x") == (Failed("x"),)


@pytest.mark.parametrize(
    ("reason", "seen"),
    [
        ("refusal", (Refusal(),)),
        ("content_filter", (Refusal(),)),
        ("model_context_window_exceeded", (Failed("context_length_exceeded"),)),
        ("stop", ()),
        (None, ()),
        ([], ()),
    ],
)
def test_the_reason_of_an_end(reason: Any, seen: tuple[Any, ...]) -> None:
    assert ended(reason) == seen


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                ["error", "response", "metadata", "innererror", "code", "type", "message", "raw", "status"]
            ),
            inner,
        )
    ),
    max_leaves=8,
)


@settings(deadline=None, max_examples=200)
@given(JSON, st.sampled_from([0, 400, 429, 500]))
def test_any_json_is_a_failure_and_no_crash(data: Any, status: int) -> None:
    seen = failure(data, status)
    assert isinstance(seen[-1], Failed)
