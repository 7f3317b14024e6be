"""The lines that Claude Code's program speaks on its pipes: one JSON object each, both ways.

The caller's tools are offered as a server of tools that lives in our process ("sdk"): its JSON-RPC comes and goes
inside these lines. A call is answered when the caller has posted the result, minutes later or at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from cachegate.wire.body import decode, encode, member
from cachegate.wire.hub import Json
from cachegate.wire.usage_readings import Fields

SERVER = "gw"
"""Name of the server of tools. Calls are permitted by it: the program does not take the names of single tools."""
SERVERS: Json = {"mcpServers": {SERVER: {"type": "sdk", "name": SERVER}}}
PERMITTED = f"mcp__{SERVER}"

_CALL_ID = "claudecode/toolUseId"


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The answer to a control request of ours."""

    request_id: str
    error: str | None
    response: Fields


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """A call of the model that waits for its result."""

    control_id: str
    rpc_id: object
    call_id: str
    """As in the model's own answer."""
    name: str
    arguments: Fields = field(repr=False)


@dataclass(frozen=True, slots=True)
class McpAsked:
    """Anything else that the server of tools is asked; `mcp_answer` knows the answer."""

    control_id: str
    rpc_id: object | None
    """None for what is no question but a notice. It is acknowledged all the same."""
    method: str
    params: Fields = field(repr=False)


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """A request that no longer wants an answer: the turn was interrupted while a call waited."""

    control_id: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A control request that we do not know."""

    control_id: str
    subtype: str


@dataclass(frozen=True, slots=True)
class Told:
    """An event of the session: `stream_event`, `assistant`, `system`, `result` and others."""

    fields: Fields = field(repr=False)


Frame = Acknowledged | ToolCalled | McpAsked | Withdrawn | Asked | Told


def read_frame(line: bytes) -> Frame | None:
    """Return what a line says; None when it is no JSON object, or one of no use."""
    fields = _object(line)
    if fields is None:
        return None
    match fields.get("type"):
        case "control_response":
            return _acknowledged(_fields(fields.get("response")))
        case "control_request":
            return _asked(_text(fields.get("request_id")), _fields(fields.get("request")))
        case "control_cancel_request":
            return Withdrawn(_text(fields.get("request_id")))
    return Told(fields)


def control(request_id: str, request: Json) -> bytes:
    """Return a control request; the program answers it with an `Acknowledged` of the same id."""
    return _line({"type": "control_request", "request_id": request_id, "request": request})


def user(content: Sequence[Json], message_id: str) -> bytes:
    """Return a message of the user, which begins a turn. Content that is empty adds nothing: the model goes on.

    The text is taken as it is: no command and no path in it is expanded.
    """
    return _line(
        {
            "type": "user",
            "message": {"role": "user", "content": content},
            "parent_tool_use_id": None,
            "session_id": "default",
            "client_composed": True,
            "uuid": message_id,
        }
    )


def tool_result(control_id: str, rpc_id: object, content: Sequence[Json], *, is_error: bool) -> bytes:
    """Return the result of a call."""
    return _answered(control_id, {"jsonrpc": "2.0", "id": rpc_id, "result": {"content": content, "isError": is_error}})


def mcp_answer(asked: McpAsked, tools: Sequence[Json]) -> bytes:
    """Return what the server of tools answers. `tools` are listed as they are, whatever they say of themselves."""
    result: Json = {}
    if asked.method == "initialize":
        result = {
            "protocolVersion": asked.params.get("protocolVersion"),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": SERVER, "version": "1"},
        }
    elif asked.method == "tools/list":
        result = {"tools": tools}
    numbered = {} if asked.rpc_id is None else {"id": asked.rpc_id}
    return _answered(asked.control_id, {"jsonrpc": "2.0", **numbered, "result": result})


def refused(asked: Asked) -> bytes:
    """Return that we do not know a request."""
    error = f"unsupported request: {asked.subtype}"
    return _line(
        {
            "type": "control_response",
            "response": {"subtype": "error", "request_id": asked.control_id, "error": error},
        }
    )


def _acknowledged(response: Fields) -> Acknowledged:
    failed = response.get("subtype") == "error"
    error = (_text(response.get("error")) or "unknown error") if failed else None
    return Acknowledged(_text(response.get("request_id")), error, _fields(response.get("response")))


def _asked(control_id: str, request: Fields) -> ToolCalled | McpAsked | Asked:
    subtype = _text(request.get("subtype"))
    if subtype != "mcp_message":
        return Asked(control_id, subtype)
    message = _fields(request.get("message"))
    method, params = _text(message.get("method")), _fields(message.get("params"))
    call_id = member(params.get("_meta"), _CALL_ID)
    if method == "tools/call" and isinstance(call_id, str):
        arguments = _fields(params.get("arguments"))
        return ToolCalled(control_id, message.get("id"), call_id, _text(params.get("name")), arguments)
    return McpAsked(control_id, message.get("id"), method, params)


def _answered(control_id: str, message: Json) -> bytes:
    return _line(
        {
            "type": "control_response",
            "response": {"subtype": "success", "request_id": control_id, "response": {"mcp_response": message}},
        }
    )


def _line(frame: Json) -> bytes:
    return encode(frame) + b"\n"


def _object(line: bytes) -> Fields | None:
    value = decode(line)
    return value if isinstance(value, dict) else None


def _fields(value: object) -> Fields:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
