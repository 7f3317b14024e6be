"""Frames of the control socket: JSON-RPC 2.0, one object each. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cachegate.sdk.errors import BrokenAnswer

Params = Mapping[str, Any]
TOOL_CALL = "item/tool/call"
"""What the gateway asks its client for."""
UNKNOWN_METHOD = -32601


@dataclass(frozen=True, slots=True)
class Result:
    """A request of ours was done."""

    id: int
    value: Params


@dataclass(frozen=True, slots=True)
class Rejected:
    """A request of ours was refused."""

    id: int | None
    """None where the gateway could not tell which."""
    code: int
    words: str


@dataclass(frozen=True, slots=True)
class Notification:
    """Something happened."""

    method: str
    params: Params

    @property
    def thread_id(self) -> str:
        """The thread that it is about."""
        return str(self.params.get("threadId", ""))


@dataclass(frozen=True, slots=True)
class Asked:
    """The gateway wants something done, and waits for the answer."""

    id: str | int
    method: str
    params: Params


Frame = Result | Rejected | Notification | Asked


def request(request_id: int, method: str, params: Params) -> str:
    """Return a request; parameters that are None are left out."""
    given = {name: value for name, value in params.items() if value is not None}
    return _text({"id": request_id, "method": method, "params": given})


def notification(method: str) -> str:
    """Return a notification without parameters."""
    return _text({"method": method})


def result(request_id: str | int, value: Params) -> str:
    """Return the answer to what the gateway asked."""
    return _text({"id": request_id, "result": value})


def unknown(request_id: str | int, method: str) -> str:
    """Return the refusal of a method that we do not have."""
    return _text({"id": request_id, "error": {"code": UNKNOWN_METHOD, "message": f"This client has no {method!r}."}})


def read(text: str) -> Frame:
    """Read a frame. Raises BrokenAnswer for what is none."""
    try:
        frame = json.loads(text)
    except (ValueError, RecursionError):
        frame = None
    match frame:
        case {"method": str(method), "id": str() | int() as asked_id}:
            return Asked(asked_id, method, _object(frame.get("params")))
        case {"method": str(method)}:
            return Notification(method, _object(frame.get("params")))
        case {"result": dict(value), "id": int(request_id)}:
            return Result(request_id, value)
        case {"error": {"code": int(code), "message": str(words)}}:
            request_id = frame.get("id")
            return Rejected(request_id if isinstance(request_id, int) else None, code, words)
    raise BrokenAnswer(f"The gateway sent something that is no frame of its control socket: {text[:80]!r}")


def _object(value: object) -> Params:
    return value if isinstance(value, dict) else {}


def _text(fields: Mapping[str, object]) -> str:
    """Write a frame. Everything beyond ASCII is escaped, so halves of emoji pass, too."""
    return json.dumps({"jsonrpc": "2.0", **fields}, separators=(",", ":"), allow_nan=False)
