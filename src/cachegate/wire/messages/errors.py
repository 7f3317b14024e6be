"""Errors in the Messages protocol's own shape (R23): bodies, terminal events, keep-alive."""

from cachegate.errors import ErrorKind
from cachegate.wire.body import encode
from cachegate.wire.sse import frame

TYPES = {
    ErrorKind.INVALID: "invalid_request_error",
    ErrorKind.UNAUTHORIZED: "authentication_error",
    ErrorKind.FORBIDDEN: "permission_error",
    ErrorKind.NOT_FOUND: "not_found_error",
    ErrorKind.METHOD: "invalid_request_error",
    ErrorKind.TOO_LARGE: "request_too_large",
    ErrorKind.ENCODING: "invalid_request_error",
    ErrorKind.UPGRADE: "invalid_request_error",
    ErrorKind.INTERNAL: "api_error",
    ErrorKind.UPSTREAM: "api_error",
    ErrorKind.UNAVAILABLE: "overloaded_error",
    ErrorKind.TIMEOUT: "timeout_error",
}

STOP_TYPE = "billing_error"
"""Claude Code takes this one as final at HTTP 400; any other type makes it send up to six variants."""

KEEPALIVE = frame("ping", b'{"type":"ping"}')


def error_body(kind: ErrorKind, message: str, request_id: str) -> bytes:
    """Return the JSON body of an error answer."""
    return _body(TYPES[kind], message, request_id)


def stop_body(words: str, request_id: str) -> bytes:
    """Return the JSON body of a stop."""
    return _body(STOP_TYPE, words, request_id)


def terminal_error(kind: ErrorKind, message: str) -> bytes:
    """Return the event that ends an open stream as failed."""
    return frame("error", encode({"type": "error", "error": {"type": TYPES[kind], "message": message}}))


def _body(kind: str, message: str, request_id: str) -> bytes:
    return encode({"type": "error", "error": {"type": kind, "message": message}, "request_id": request_id})
