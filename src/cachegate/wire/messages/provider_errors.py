"""Errors of a provider, read from Anthropic's shape and told in it: status, type and message stay what they were."""

from cachegate.errors import ErrorKind
from cachegate.wire.body import decode, encode
from cachegate.wire.codec import ErrorAnswer
from cachegate.wire.facts import Protocol
from cachegate.wire.failures import complaint
from cachegate.wire.hub import Broken
from cachegate.wire.overflows import CODE, is_overflow, overflow_body, size_of
from cachegate.wire.provider_statuses import kind_of
from cachegate.wire.sse import frame
from cachegate.wire.usage_readings import fields

STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "conflict_error": 409,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "overloaded_error": 529,
    "timeout_error": 504,
}
"""Anthropic's types of errors, and the status each comes with."""

TYPES = {status: name for name, status in STATUSES.items()} | {408: "timeout_error", 503: "overloaded_error"}
"""The type for a status; any other status gets the type of its hundred."""

_SHARED_TYPE = "invalid_request_error"
"""OpenAI has a type of the same name, and uses it for nearly everything: the status says more."""
_FIRST_SERVER_ERROR = 500
_FIRST_ERROR = 400
_OVERFLOW_STATUS = 400
_MESSAGE_CHARS_MAX = 500
"""Of a body that is no JSON."""


def read_error(status: int, body: bytes) -> Broken:
    """Read an error answer, in whatever shape it is."""
    data = decode(body)
    if data is None:
        text = body.decode("utf-8", "replace").strip()
        plain = "" if text.startswith("<") else text[:_MESSAGE_CHARS_MAX]
        return _broken((), plain, status)
    said = complaint(data)
    return _broken(said.names, said.text, status)


def broken_by(event: object) -> Broken:
    """Read an error that stands where an answer should be: in a stream, or in a body of status 200."""
    said = complaint(event)
    status = next((STATUSES[name] for name in said.names if name in STATUSES), _FIRST_SERVER_ERROR)
    return _broken(said.names, said.text, status)


def write_error(broken: Broken, request_id: str) -> ErrorAnswer:
    """Write an error answer. Claude Code compacts on the words of an overflow."""
    if broken.code == CODE:
        body = overflow_body(Protocol.MESSAGES, size_of({}, broken.message), request_id)
        return ErrorAnswer(_OVERFLOW_STATUS, body)
    status = broken.status if broken.status >= _FIRST_ERROR else _FIRST_SERVER_ERROR
    error = {"type": _type(broken.code, status), "message": broken.message}
    return ErrorAnswer(status, encode({"type": "error", "error": error, "request_id": request_id}))


def error_event(broken: Broken) -> bytes:
    """Return the event that ends a stream with this error."""
    whole = fields(decode(write_error(broken, "").body))
    return frame("error", encode({"type": "error", "error": whole["error"]}))


def _broken(names: tuple[str, ...], text: str, status: int) -> Broken:
    status = status if status >= _FIRST_ERROR else _FIRST_SERVER_ERROR
    message = text or f"The provider answered with status {status} and said no more."
    if is_overflow(names, text, status):
        return Broken(ErrorKind.INVALID, _OVERFLOW_STATUS, CODE, message)
    return Broken(kind_of(status), status, names[0] if names else _type("", status), message)


def _type(code: str, status: int) -> str:
    if code in STATUSES and code != _SHARED_TYPE:
        return code
    return TYPES.get(status, "invalid_request_error" if status < _FIRST_SERVER_ERROR else "api_error")
