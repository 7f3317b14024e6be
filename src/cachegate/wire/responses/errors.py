"""Errors in the Responses protocol's own shape (R23): bodies, terminal events, keep-alive."""

from collections.abc import Mapping

from cachegate.errors import ErrorKind
from cachegate.wire.body import encode
from cachegate.wire.sse import frame

CODES = {
    ErrorKind.INVALID: ("invalid_request_error", None),
    ErrorKind.UNAUTHORIZED: ("invalid_request_error", "invalid_api_key"),
    ErrorKind.FORBIDDEN: ("invalid_request_error", "forbidden"),
    ErrorKind.NOT_FOUND: ("invalid_request_error", "not_found"),
    ErrorKind.METHOD: ("invalid_request_error", "method_not_allowed"),
    ErrorKind.TOO_LARGE: ("invalid_request_error", "request_too_large"),
    ErrorKind.ENCODING: ("invalid_request_error", "unsupported_encoding"),
    ErrorKind.UPGRADE: ("invalid_request_error", "websocket_unsupported"),
    ErrorKind.INTERNAL: ("server_error", "server_error"),
    ErrorKind.UPSTREAM: ("server_error", "server_error"),
    ErrorKind.UNAVAILABLE: ("server_error", "server_error"),
    ErrorKind.TIMEOUT: ("server_error", "server_error"),
}
"""Type and code of each kind. A broken stream must carry a code that clients retry, hence `server_error`."""

STOP_CODE = "invalid_prompt"
"""The code after which Codex shows only the message; it, opencode, Copilot, Grok and Cline take it as final."""

KEEPALIVE = frame("keepalive", b'{"type":"keepalive"}')
"""An event of a type clients skip. A comment would not do: Codex's idle timer counts events only."""

COMMENT = b": keepalive\n\n"


def error_body(kind: ErrorKind, message: str, request_id: str) -> bytes:
    """Return the JSON body of an error answer; the protocol has no place for the request id."""
    del request_id
    error_type, code = CODES[kind]
    return openai_body(error_type, code, message)


def stop_body(words: str, request_id: str) -> bytes:
    """Return the JSON body of a stop."""
    del request_id
    return openai_body("invalid_request_error", STOP_CODE, words)


def terminal_error(code: str, message: str, response: Mapping[str, object], sequence: int) -> bytes:
    """Return the two events that end an open stream as failed: opencode needs the first, Codex the second.

    `response` holds the fields of the response object seen so far, `sequence` the number of the first event.
    """
    flat = {"type": "error", "code": code, "message": message, "param": None, "sequence_number": sequence}
    # The SDK's plain stream raises only on a nested error; without it the failure would look like a clean end there.
    error = {**flat, "error": {"type": code, "code": code, "message": message, "param": None}}
    failed = {
        "type": "response.failed",
        "sequence_number": sequence + 1,
        "response": {
            **response,
            "object": "response",
            "status": "failed",
            "error": {"code": code, "message": message},
            "incomplete_details": None,
            "usage": None,
        },
    }
    return frame("error", encode(error)) + frame("response.failed", encode(failed))


def openai_body(error_type: str, code: str | None, message: str) -> bytes:
    """Return the JSON of an OpenAI error; Chat Completions has the same."""
    return encode({"error": {"message": message, "type": error_type, "code": code, "param": None}})
