"""JSON-RPC 2.0 as text frames: what a client sent, and what is sent to it. Pure.

Codex's own clients leave `jsonrpc` out, so it may be missing; we always write it. There are no batches. Frames of a
model's protocol (Responses over WebSocket) are refused in words: no inference comes in beside the guarded paths (R3).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Self

from cachegate.errors import BadInput
from cachegate.wire.body import JsonObject, decode, encode

Id = str | int
"""What a request is answered by."""
Json = Mapping[str, object]

ID_CHARS_MAX = 256
"""A longer id is none that a client made to count its requests with."""
METHOD_CHARS_SHOWN = 64


class Code(IntEnum):
    """Error codes, and when each is told."""

    meaning: str

    PARSE = -32700, "The frame is no JSON."
    INVALID_REQUEST = -32600, "It is JSON, but no request, notification or response; or it is a batch."
    UNKNOWN_METHOD = -32601, "There is no such method; the message names those there are."
    INVALID_PARAMS = -32602, "A parameter is missing, unknown or wrong; the message names it."
    INTERNAL = -32603, "The gateway failed; its log says where."
    CONFLICT = (
        -32000,
        "It does not fit to what goes on: a turn runs already, or none does. `data.turnId` is the running one.",
    )
    NO_THREAD = -32001, "There is no such thread, or it belongs to somebody else."
    NOT_INITIALIZED = -32002, "`initialize` has to come first, and once."
    LIMIT = -32003, "A limit is reached, or the gateway is shutting down."

    def __new__(cls, value: int, meaning: str) -> Self:
        """Give a code its meaning."""
        code = int.__new__(cls, value)
        code._value_ = value
        code.meaning = meaning
        return code


class RpcError(Exception):
    """A request cannot be done; the message says what is wrong and what to do."""

    def __init__(self, code: Code, message: str, data: Json | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


@dataclass(frozen=True, slots=True)
class Request:
    """It wants an answer."""

    id: Id
    method: str
    params: object


@dataclass(frozen=True, slots=True)
class Notification:
    """It wants none."""

    method: str


@dataclass(frozen=True, slots=True)
class Response:
    """The client's answer to a request of ours."""

    id: Id
    result: object
    """None where the client answers with an error."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """It is nothing of these."""

    id: Id | None
    error: RpcError


Incoming = Request | Notification | Response | Rejected

_INFERENCE = (
    "Inference frames are not carried on this socket. Use turn/start, or send the request as an HTTP POST to "
    "/v1/responses."
)
_BATCH = "Batches are not taken: send one JSON-RPC object per frame."


def read(text: str) -> Incoming:
    """Read one frame."""
    data = text.encode("utf-8", "replace")
    value = decode(data)
    if value is None:
        try:
            value = decode(JsonObject(data).text_bytes)
        except BadInput:
            if data.strip() != b"null":
                return Rejected(None, RpcError(Code.PARSE, "The frame is no JSON that can be read. Send one object."))
    if not isinstance(value, dict):
        words = _BATCH if isinstance(value, list) else "The frame is no JSON object. Send one JSON-RPC object."
        return Rejected(None, RpcError(Code.INVALID_REQUEST, words))
    return _read(value)


def _read(frame: Json) -> Incoming:
    known = _id(frame.get("id"))
    if _is_inference(frame):
        return Rejected(known, RpcError(Code.INVALID_REQUEST, _INFERENCE))
    if frame.get("jsonrpc", "2.0") != "2.0":
        return _rejected(known, 'jsonrpc: must be "2.0", or be left out.')
    if "method" not in frame:
        return _response(frame, known)
    return _called(frame, known)


def _called(frame: Json, known: Id | None) -> Incoming:
    method = frame["method"]
    if not isinstance(method, str):
        return _rejected(known, "method: a string is needed here.")
    if "id" not in frame:
        return Notification(method)
    if known is None:
        return _rejected(None, f"id: a string of at most {ID_CHARS_MAX} characters or a whole number is needed here.")
    return Request(known, method, frame.get("params"))


def _response(frame: Json, known: Id | None) -> Incoming:
    if known is not None and ("result" in frame) != ("error" in frame):
        return Response(known, frame.get("result"))
    return _rejected(known, "method: is missing, and this is no response either (an id, and a result or an error).")


def _rejected(known: Id | None, words: str) -> Rejected:
    return Rejected(known, RpcError(Code.INVALID_REQUEST, words))


def _is_inference(frame: Json) -> bool:
    """Whether this is a frame of Responses over WebSocket, or of what else names its type instead of a method."""
    kind = frame.get("type")
    return (isinstance(kind, str) and kind.startswith("response.")) or ("type" in frame and "method" not in frame)


def _id(value: object) -> Id | None:
    """Return an id that can be answered by."""
    if isinstance(value, str):
        return value if len(value) <= ID_CHARS_MAX else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def result(request_id: Id, value: object) -> bytes:
    """Return the answer to a request."""
    return encode({"jsonrpc": "2.0", "id": request_id, "result": value})


def failure(request_id: Id | None, error: RpcError) -> bytes:
    """Return the answer to a request that cannot be done, or to what is none."""
    data = {} if error.data is None else {"data": error.data}
    told = {"code": int(error.code), "message": error.message, **data}
    return encode({"jsonrpc": "2.0", "id": request_id, "error": told})


def request(request_id: Id, method: str, params: Json) -> bytes:
    """Return a request of ours."""
    return encode({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})


def notification(method: str, params: Json) -> bytes:
    """Return a notification."""
    return encode({"jsonrpc": "2.0", "method": method, "params": params})
