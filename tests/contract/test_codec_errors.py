"""The contract of a codec's errors: a client is refused as the upstream refused, in its own protocol's words."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import anthropic
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachegate.errors import HTTP_STATUS, ErrorKind
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import Broken
from cachegate.wire.overflows import CODE, is_overflow
from contract.codec_subjects import CODECS, EACH, EACH_PAIR
from contract.test_codecs import thoroughly
from wire.vendor_sdks import JSON, Wire, ask_anthropic, ask_openai

REQUEST_ID = "req_7"


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that goes wrong, as each protocol's upstream says it, and as every client must hear it."""

    status: int
    said: Mapping[Protocol, tuple[str, str | int | None]]
    """Type and code; Messages has types only."""
    messages_type: str
    statuses: frozenset[int] = field(default_factory=frozenset)
    """Where the client's protocol may say the same with another status."""
    kept: bool = True
    """The provider's words are kept."""


M, R, C = Protocol.MESSAGES, Protocol.RESPONSES, Protocol.CHAT


def _all(messages: str, openais: str, code: str | int | None) -> Mapping[Protocol, tuple[str, str | int | None]]:
    return {M: (messages, None), R: (openais, code), C: (openais, code)}


_INVALID = "invalid_request_error"
TROUBLES: Mapping[str, Trouble] = {
    "invalid": Trouble(400, _all(_INVALID, _INVALID, "invalid_value"), _INVALID),
    "unauthorized": Trouble(401, _all("authentication_error", _INVALID, "invalid_api_key"), "authentication_error"),
    "forbidden": Trouble(403, _all("permission_error", "permission_error", None), "permission_error"),
    "not found": Trouble(404, _all("not_found_error", _INVALID, "model_not_found"), "not_found_error"),
    "too large": Trouble(413, _all("request_too_large", _INVALID, None), "request_too_large"),
    "rate limited": Trouble(429, _all("rate_limit_error", "requests", "rate_limit_exceeded"), "rate_limit_error"),
    "failed": Trouble(500, _all("api_error", "server_error", "server_error"), "api_error", frozenset({500, 502})),
    "overloaded": Trouble(
        529, _all("overloaded_error", "server_error", "server_is_overloaded"), "overloaded_error", frozenset({503, 529})
    ),
    "busy": Trouble(
        503, _all("overloaded_error", "server_error", "server_is_overloaded"), "overloaded_error", frozenset({503, 529})
    ),
}
_WORDS = "What the provider says about it."


def answered(upstream: Protocol, trouble: Trouble, words: str = _WORDS) -> bytes:
    kind, code = trouble.said[upstream]
    error: dict[str, Any] = {"type": kind, "message": words}
    if upstream is M:
        return json.dumps({"type": "error", "error": error, "request_id": "req_up"}).encode()
    return json.dumps({"error": {**error, "code": code, "param": None}}).encode()


def words_of(client: Protocol, body: bytes) -> tuple[str, str | None, str]:
    """Return type, code and message of an error answer, in the one shape that the protocol has."""
    decoded = json.loads(body)
    error = decoded["error"]
    if client is M:
        assert decoded["type"] == "error"
        assert decoded["request_id"] == REQUEST_ID
    else:
        assert set(error) >= {"message", "type", "code", "param"}
    return error["type"], error.get("code"), error["message"]


@EACH_PAIR
@pytest.mark.parametrize("name", TROUBLES)
def test_an_error_keeps_its_status_and_its_words(client: Protocol, upstream: Protocol, name: str) -> None:
    trouble = TROUBLES[name]
    broken = CODECS[upstream].read_error(trouble.status, answered(upstream, trouble))
    assert broken.code != CODE
    answer = CODECS[client].write_error(broken, REQUEST_ID)
    assert answer.status in (trouble.statuses or {trouble.status})
    if client is M:
        assert words_of(client, answer.body)[0] == trouble.messages_type
    assert _WORDS in words_of(client, answer.body)[2]


@EACH_PAIR
@pytest.mark.parametrize("status", [529, 503, 429])
def test_an_overload_is_never_turned_into_a_500(client: Protocol, upstream: Protocol, status: int) -> None:
    """Clients wait after an overload, and give up or hammer after a 500. Even a bare page says which it is."""
    for body in (b"", b"<html>busy</html>", b'{"error":"overloaded"}', answered(upstream, TROUBLES["overloaded"])):
        answer = CODECS[client].write_error(CODECS[upstream].read_error(status, body), REQUEST_ID)
        assert answer.status in ({429} if status == 429 else {503, 529})


OVERFLOWS: Mapping[str, tuple[Protocol, int, Any]] = {
    "Anthropic": (
        M,
        400,
        {"type": "error", "error": {"type": _INVALID, "message": "prompt is too long: 210000 tokens > 200000 maximum"}},
    ),
    "OpenAI Responses": (
        R,
        400,
        {
            "error": {
                "message": "Your input exceeds the context window of this model.",
                "type": _INVALID,
                "code": "context_length_exceeded",
                "param": "input",
            }
        },
    ),
    "OpenAI Chat": (
        C,
        400,
        {
            "error": {
                "message": "This model's maximum context length is 128000 tokens. However, your messages resulted in "
                "130000 tokens.",
                "type": _INVALID,
                "param": "messages",
                "code": "context_length_exceeded",
            }
        },
    ),
    "vLLM": (
        C,
        400,
        {
            "object": "error",
            "message": "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.",
            "type": "BadRequestError",
            "code": 400,
        },
    ),
    "llama.cpp": (
        C,
        400,
        {
            "error": {
                "code": 400,
                "message": "the request exceeds the available context size",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 5000,
                "n_ctx": 4096,
            }
        },
    ),
    "Gemini": (
        C,
        400,
        [
            {
                "error": {
                    "code": 400,
                    "message": "The input token count (1200000) exceeds the maximum number of tokens allowed (1000).",
                    "status": "INVALID_ARGUMENT",
                }
            }
        ],
    ),
}


@pytest.mark.parametrize("client", CODECS, ids=[protocol.value for protocol in CODECS])
@pytest.mark.parametrize("name", OVERFLOWS)
def test_a_full_context_is_told_so_that_the_client_compacts(client: Protocol, name: str) -> None:
    upstream, status, body = OVERFLOWS[name]
    broken = CODECS[upstream].read_error(status, json.dumps(body).encode())
    assert broken.code == CODE
    answer = CODECS[client].write_error(broken, REQUEST_ID)
    assert answer.status == 400
    kind, code, message = words_of(client, answer.body)
    if client is M:
        assert kind == _INVALID
        assert message.startswith("prompt is too long")
    else:
        assert code == CODE


@EACH_PAIR
def test_nothing_else_looks_like_a_full_context(client: Protocol, upstream: Protocol) -> None:
    for trouble in TROUBLES.values():
        broken = CODECS[upstream].read_error(trouble.status, answered(upstream, trouble))
        kind, code, message = words_of(client, CODECS[client].write_error(broken, REQUEST_ID).body)
        assert not is_overflow((kind, code or ""), message)


@EACH
@pytest.mark.parametrize("kind", ErrorKind)
def test_what_is_written_is_read_back_as_the_same(spoken: Protocol, kind: ErrorKind) -> None:
    broken = Broken(kind, HTTP_STATUS[kind], "some_code", _WORDS)
    answer = CODECS[spoken].write_error(broken, REQUEST_ID)
    again = CODECS[spoken].read_error(answer.status, answer.body)
    assert again.message == _WORDS
    assert again.status == broken.status
    assert CODECS[spoken].write_error(again, REQUEST_ID).status == answer.status


@EACH_PAIR
@thoroughly
@given(status=st.integers(400, 599), body=st.binary(max_size=40) | st.sampled_from((b"[]", b'{"error":null}', b"{}")))
def test_every_error_answer_is_read_and_keeps_its_kind(
    client: Protocol, upstream: Protocol, status: int, body: bytes
) -> None:
    broken = CODECS[upstream].read_error(status, body)
    assert broken.message
    answer = CODECS[client].write_error(broken, REQUEST_ID)
    assert 400 <= answer.status <= 599
    assert (answer.status < 500) == (status < 500)
    words_of(client, answer.body)


@EACH
@pytest.mark.parametrize(
    ("name", "anthropics", "openais"),
    [
        ("unauthorized", anthropic.AuthenticationError, openai.AuthenticationError),
        ("forbidden", anthropic.PermissionDeniedError, openai.PermissionDeniedError),
        ("not found", anthropic.NotFoundError, openai.NotFoundError),
        ("rate limited", anthropic.RateLimitError, openai.RateLimitError),
        ("invalid", anthropic.BadRequestError, openai.BadRequestError),
        ("overloaded", anthropic.InternalServerError, openai.InternalServerError),
    ],
)
def test_official_sdks_raise_what_they_raise_for_their_own_provider(
    spoken: Protocol, name: str, anthropics: type[anthropic.APIError], openais: type[openai.APIError]
) -> None:
    trouble = TROUBLES[name]
    upstream = C if spoken is M else M
    broken = CODECS[upstream].read_error(trouble.status, answered(upstream, trouble))
    answer = CODECS[spoken].write_error(broken, REQUEST_ID)
    wire = Wire(answer.body, status=answer.status, kind=JSON)
    with pytest.raises((anthropics, openais), match=_WORDS):
        ask_anthropic(wire) if spoken is M else ask_openai(wire)
