"""Errors in the Responses protocol, as an upstream tells them and as a client has to be told.

Clients look at the status and at `code`: on some they give up and show the message, on some they compact, on all others
they repeat the request. So a failure that no repetition cures must carry a code of the first kind (`clients.md` 1.3).
"""

from collections.abc import Mapping

from cachegate.errors import ErrorKind
from cachegate.wire import overflows
from cachegate.wire.body import decode, encode
from cachegate.wire.codec import ErrorAnswer
from cachegate.wire.failures import Complaint, complaint
from cachegate.wire.hub import Broken
from cachegate.wire.provider_statuses import kind_of
from cachegate.wire.responses.errors import STOP_CODE
from cachegate.wire.seen import word

STATUS_OF_CODE: Mapping[str, int] = {
    overflows.CODE: 400,
    "invalid_prompt": 400,
    "invalid_request_error": 400,
    "bio_policy": 400,
    "cyber_policy": 400,
    "misalignment_policy_violation": 400,
    "content_policy_violation": 400,
    "content_filter": 400,
    "invalid_api_key": 401,
    "authentication_error": 401,
    "insufficient_quota": 429,
    "usage_limit_reached": 429,
    "usage_not_included": 403,
    "permission_error": 403,
    "model_not_found": 404,
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "server_is_overloaded": 503,
    "slow_down": 503,
    "overloaded_error": 503,
    "server_error": 500,
    "timeout": 504,
}
"""The nearest status of an error inside a stream, by its code."""

CODE_OF_STATUS: Mapping[int, str] = {
    401: "invalid_api_key",
    403: "forbidden",
    404: "not_found",
    413: "request_too_large",
    429: "rate_limit_exceeded",
    503: "server_is_overloaded",
    529: "server_is_overloaded",
}
"""The protocol's own code for an error that came with another protocol's."""

STREAM_CODE_OF_STATUS: Mapping[int, str] = {**CODE_OF_STATUS, 503: "slow_down", 529: "slow_down"}
"""The same inside a stream, where Codex takes `server_is_overloaded` for final; but an overload passes."""

TYPE_OF_STATUS: Mapping[int, str] = {429: "rate_limit_error"}
"""Types beside the usual two: a failed request, and a failed server."""

NATIVE_CODES = frozenset(STATUS_OF_CODE) - {
    "invalid_request_error", "authentication_error", "permission_error", "rate_limit_error", "overloaded_error",
    "timeout",
}  # fmt: skip
"""Codes that clients of this protocol know; they are passed on."""

_GENERIC = frozenset({"invalid_request_error", "server_error", "unknown"})
"""Names that say less than the status does."""
_FINAL_IN_STREAMS = "server_is_overloaded"
_OVERLOADED, _OVERLOADED_ELSEWHERE = 503, 529
_SERVER_ERROR, _BAD_REQUEST, _UNPAID, _BAD_GATEWAY = 500, 400, 402, 502
_LAST_STATUS = 599


def read_error(status: int, body: bytes) -> Broken:
    """Read an error answer."""
    return _broken(complaint(decode(body)), status)


def broken_in_stream(data: Mapping[str, object]) -> Broken:
    """Read an error event, or a response that failed."""
    said = complaint(data)
    status = next((STATUS_OF_CODE[name] for name in said.names if name in STATUS_OF_CODE), _BAD_GATEWAY)
    return _broken(said, status)


def write_error(broken: Broken, request_id: str) -> ErrorAnswer:
    """Write an error answer; the protocol has no place for the request id."""
    del request_id
    status = broken.status if _BAD_REQUEST <= broken.status <= _LAST_STATUS else _BAD_GATEWAY
    # 529 is Anthropic's; OpenAI says the same with 503 and a code.
    status = _OVERLOADED if status == _OVERLOADED_ELSEWHERE else status
    usual = "server_error" if status >= _SERVER_ERROR else "invalid_request_error"
    failed = "server_error" if status >= _SERVER_ERROR else None
    error = {
        "message": broken.message,
        "type": TYPE_OF_STATUS.get(status, usual),
        "code": _code(broken, CODE_OF_STATUS, failed),
        "param": "input" if broken.code == overflows.CODE else None,
    }
    return ErrorAnswer(status, encode({"error": error}))


def stream_code(broken: Broken) -> str:
    """Return the code with which a stream fails. Any but the known ones makes clients repeat the request."""
    final = broken.kind is ErrorKind.INVALID or broken.status in {_BAD_REQUEST, _UNPAID}
    return _code(broken, STREAM_CODE_OF_STATUS, STOP_CODE if final else None) or "server_error"


def _code(broken: Broken, codes: Mapping[int, str], default: str | None) -> str | None:
    native = broken.code in NATIVE_CODES and not (codes is STREAM_CODE_OF_STATUS and broken.code == _FINAL_IN_STREAMS)
    return broken.code if native else codes.get(broken.status, default)


def _broken(said: Complaint, status: int) -> Broken:
    if overflows.is_overflow((*said.names, *said.marks), said.text, status):
        return Broken(ErrorKind.INVALID, _BAD_REQUEST, overflows.CODE, said.text or "The context is full.")
    message = said.details.get("message")
    shown = message if isinstance(message, str) and message else said.text
    name = word(said.names[0]) if said.names else "unknown"
    return Broken(
        kind_of(status),
        status,
        CODE_OF_STATUS.get(status, name) if name in _GENERIC else name,
        shown or f"The provider answered with status {status} and gave no reason.",
    )
