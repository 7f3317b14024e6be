"""Errors in the Chat Completions protocol's own shape (R23): bodies, what ends a stream, keep-alive."""

import re

from cachegate.errors import ErrorKind
from cachegate.wire import overflows, refusals
from cachegate.wire.body import decode
from cachegate.wire.codec import ErrorAnswer
from cachegate.wire.failures import complaint, told
from cachegate.wire.hub import Broken
from cachegate.wire.provider_statuses import kind_of
from cachegate.wire.responses.errors import CODES, error_body, openai_body
from cachegate.wire.seen import word

KEEPALIVE = b": keepalive\n\n"
"""A comment. Every chunk is a piece of the answer, so that the protocol has no event that says nothing."""

DONE = b"data: [DONE]\n\n"
"""Ends a stream that succeeded, and only such a one."""

OVERLOADED = 529
"""Anthropic's status for an overload; no OpenAI client knows it."""
_STATUS = {OVERLOADED: 503}
_OVERFLOW_STATUS, _RATE_LIMITED = 400, 429
_FIRST_ERROR_STATUS, _FIRST_SERVER_STATUS, _LAST_STATUS = 400, 500, 599

STATUSES = {
    "authentication_error": 401,
    "invalid_api_key": 401,
    "billing_error": 402,
    "insufficient_quota": 429,
    "permission_error": 403,
    "model_not_found": 404,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "overloaded_error": 529,
    "server_is_overloaded": 503,
    "engine_overloaded_error": 503,
    "insufficient_system_resource": 503,
    "slow_down": 503,
    "timeout_error": 504,
    "invalid_request_error": 400,
}
"""Status of an error that came in the midst of a stream, by the first code or type that stands here."""
_BROKEN_STATUS = 502

BREAKS = frozenset(
    {
        "error",  # OpenRouter, Mistral
        "insufficient_system_resource",  # DeepSeek
        "network_error",  # Z.ai
        "abort",  # vLLM, SGLang
    }
)
"""Reasons that are none: the answer was cut off at the provider."""

WORDS = {
    401: ("authentication_error", "invalid_api_key"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
    503: ("server_error", "server_is_overloaded"),
    529: ("server_error", "server_is_overloaded"),
}
"""Type, and code where the provider gave none, of a status with which a client deals in a way of its own."""

_ERROR_FIELD = re.compile(rb"(?<![^\r\n])error: ?(?P<said>[^\r\n]+)(?:\r\n\r\n|\n\n|\r\r)")
"""A whole event of a field `error` alone."""

_FOREIGN_CODES = {"overloaded_error": "server_is_overloaded", "rate_limit_error": "rate_limit_exceeded"}
"""OpenAI's code for what Anthropic calls by a type."""
_UNNAMED = frozenset({"", "unknown", "invalid_request_error", "api_error", "server_error"})
"""Words that say nothing beyond the type."""


def data_line(data: bytes) -> bytes:
    """Return one event as bytes; events have no names here. `data` must hold no line end: compact JSON never does."""
    return b"data: %b\n\n" % data


def terminal_error(kind: ErrorKind, message: str) -> bytes:
    """Return the event that ends an open stream as failed. `[DONE]` must not follow: it would say success."""
    return data_line(error_body(kind, message, ""))


def write_error(broken: Broken) -> ErrorAnswer:
    """Return an upstream's error for a client: its status and message, under OpenAI's code for it."""
    return ErrorAnswer(_STATUS.get(broken.status, broken.status), _broken_body(broken))


def write_broken(broken: Broken) -> bytes:
    """Return the event that ends an open stream as failed, with the upstream's own error in it."""
    return data_line(_broken_body(broken))


def with_told_errors(whole: bytes) -> bytes:
    """Return whole events with each failure in a field `error` told once more, as an event that clients read.

    The standard has no such field, and llama.cpp, which sends it, says `[DONE]` behind it: a client that goes by the
    standard sees an answer that ended well.
    """
    if b"error:" not in whole:
        return whole
    return _ERROR_FIELD.sub(lambda found: found[0] + write_broken(read_broken(told(found["said"]))), whole)


def read_error(status: int, body: bytes) -> Broken:
    """Read an error answer of a Chat upstream, whatever shape it took."""
    value = decode(body)
    plain = body[:_TEXT_BYTES_MAX].decode("utf-8", "replace").strip()
    return _broken(value, status if _FIRST_ERROR_STATUS <= status <= _LAST_STATUS else 0, plain)


def read_broken(data: object) -> Broken:
    """Read an error that came in a stream or in an answer with a good status."""
    return _broken(data, 0, "")


_TEXT_BYTES_MAX = 512
"""Of a body that says nothing we know, mostly a page of some proxy."""


def _broken(data: object, answered: int, plain: str) -> Broken:
    said = complaint(data)
    names = (*said.names, *said.marks)
    message = said.text or plain or "The provider failed without saying why."
    if overflows.is_overflow(names, message, answered):
        return Broken(ErrorKind.INVALID, _OVERFLOW_STATUS, overflows.CODE, message)
    status = answered or _told_status(said.details.get("code"), names)
    if refusals.is_refusing_error(names, message):
        status = answered or _OVERFLOW_STATUS
    kind = kind_of(status)
    error_type, usual = WORDS.get(status, CODES[kind])
    named = next((name for name in said.names if name not in _UNNAMED), usual or error_type)
    return Broken(kind, status, word(named), message)


def _told_status(code: object, names: tuple[str, ...]) -> int:
    """Find a status in the error itself: OpenRouter's codes are statuses, others' are words."""
    if isinstance(code, int) and not isinstance(code, bool) and _FIRST_ERROR_STATUS <= code <= _LAST_STATUS:
        return code
    return next((STATUSES[name] for name in names if name in STATUSES), _BROKEN_STATUS)


def _broken_body(broken: Broken) -> bytes:
    if broken.code == overflows.CODE:
        return openai_body("invalid_request_error", overflows.CODE, broken.message)
    error_type, usual = WORDS.get(broken.status, CODES[broken.kind])
    code = _FOREIGN_CODES.get(broken.code, broken.code)
    return openai_body(error_type, usual if code in _UNNAMED or code == broken.kind.value else code, broken.message)
