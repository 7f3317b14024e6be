"""The parameters of every method: their types and limits, read strictly. Pure.

What is wrong is told by the field's own name, and so is a field that nobody knows: a misspelt one would be lost in
silence.
"""

import re
from typing import Annotated, Literal, TypeVar

import msgspec

from cachegate.control.rpc import Code, RpcError
from cachegate.wire.parse import MODEL_CHARS_MAX

INSTRUCTIONS_CHARS_MAX = 1_048_576
"""Agents have instructions of up to some hundred kilobytes."""
TOOLS_MAX = 512
"""Harnesses with many MCP servers bring some hundred."""
TOOL_NAME_CHARS_MAX = 64
"""What every provider takes."""
DESCRIPTION_CHARS_MAX = 65_536
NAME_CHARS_MAX = 256
"""Of a thread, or of a client."""
PARTS_MAX = 256
"""Parts of one input, or of one tool's answer; the frame has a limit of its own."""
KEY_CHARS_MAX = 128
"""Ids and cursors are ours, and shorter."""
LIST_MAX, LIST_USUAL = 100, 50
OUTPUT_TOKENS_MAX = 10_000_000
"""No model writes near as much."""

_Model = Annotated[str, msgspec.Meta(min_length=1, max_length=MODEL_CHARS_MAX)]
_Key = Annotated[str, msgspec.Meta(min_length=1, max_length=KEY_CHARS_MAX)]
_Name = Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class _Params(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The parameters of one method."""


class ClientInfo(_Params, frozen=True):
    """Who connects. `title` is what Codex's clients send as well."""

    name: _Name
    version: _Name = ""
    title: _Name | None = None


class Initialize(_Params, frozen=True):
    """`initialize`."""

    client_info: ClientInfo
    capabilities: dict[str, object] | None = None


class DynamicTool(_Params, frozen=True):
    """A tool that the client runs."""

    name: Annotated[str, msgspec.Meta(pattern=rf"^[A-Za-z0-9_-]{{1,{TOOL_NAME_CHARS_MAX}}}$")]
    description: Annotated[str, msgspec.Meta(max_length=DESCRIPTION_CHARS_MAX)] = ""
    input_schema: dict[str, object] = {}


_Tools = Annotated[list[DynamicTool], msgspec.Meta(max_length=TOOLS_MAX)]


class TextInput(_Params, frozen=True, tag_field="type", tag="text"):
    """Text of the user."""

    text: str


class ImageInput(_Params, frozen=True, tag_field="type", tag="image"):
    """A picture, by address or as a data URL."""

    url: Annotated[str, msgspec.Meta(min_length=1)]


Input = Annotated[list[TextInput | ImageInput], msgspec.Meta(min_length=1, max_length=PARTS_MAX)]


class ThreadStart(_Params, frozen=True):
    """`thread/start`."""

    model: _Model
    protocol: Literal["responses", "messages"] | None = None
    instructions: Annotated[str, msgspec.Meta(max_length=INSTRUCTIONS_CHARS_MAX)] | None = None
    dynamic_tools: _Tools | None = None
    effort: Effort | None = None
    max_output_tokens: Annotated[int, msgspec.Meta(ge=1, le=OUTPUT_TOKENS_MAX)] | None = None
    name: _Name | None = None


class ThreadResume(_Params, frozen=True):
    """`thread/resume`."""

    thread_id: _Key
    cursor: _Key | None = None
    dynamic_tools: _Tools | None = None


class ThreadOnly(_Params, frozen=True):
    """The methods that need the thread and nothing else."""

    thread_id: _Key


class ThreadList(_Params, frozen=True):
    """`thread/list`."""

    cursor: _Key | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=LIST_MAX)] | None = None


class TurnStart(_Params, frozen=True):
    """`turn/start`."""

    thread_id: _Key
    input: Input
    model: _Model | None = None
    effort: Effort | None = None


class TurnSteer(_Params, frozen=True):
    """`turn/steer`."""

    thread_id: _Key
    expected_turn_id: _Key
    input: Input


class TurnInterrupt(_Params, frozen=True):
    """`turn/interrupt`."""

    thread_id: _Key
    turn_id: _Key


class InputText(_Params, frozen=True, tag_field="type", tag="inputText"):
    """Text of a tool."""

    text: str


class InputImage(_Params, frozen=True, tag_field="type", tag="inputImage"):
    """A picture of a tool."""

    image_url: Annotated[str, msgspec.Meta(min_length=1)]


ContentItem = InputText | InputImage


class ToolAnswer(_Params, frozen=True):
    """The client's answer to `item/tool/call`."""

    content_items: Annotated[list[ContentItem], msgspec.Meta(max_length=PARTS_MAX)]
    success: bool


Wanted = TypeVar("Wanted", bound=msgspec.Struct)
_WHERE = re.compile(r" - at `(?:key in )?\$\.?(?P<path>[^`]*)`$")
_UNKNOWN_FIELD = re.compile(r"^Object contains unknown field `(?P<name>.*)`$", re.DOTALL)
_MISSING_FIELD = re.compile(r"^Object missing required field `(?P<name>.*)`$", re.DOTALL)
_WORDS_MAX = 300


def wanted(params: object, kind: type[Wanted]) -> Wanted:
    """Return the parameters as `kind`. Raises RpcError (-32602), naming the field."""
    try:
        found = msgspec.convert({} if params is None else params, kind)
    except msgspec.ValidationError as error:
        raise RpcError(Code.INVALID_PARAMS, _words(str(error))) from None
    parts = getattr(found, "input", None)
    if parts is not None and not any(isinstance(part, ImageInput) or part.text.strip() for part in parts):
        raise RpcError(Code.INVALID_PARAMS, "input: says nothing. Send text that is more than blanks, or an image.")
    names = [tool.name for tool in getattr(found, "dynamic_tools", None) or ()]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise RpcError(Code.INVALID_PARAMS, f"dynamicTools: {twice!r} stands twice. Name each tool once.")
    return found


def _words(text: str) -> str:
    """Say what is wrong, with the field in front."""
    where = _WHERE.search(text)
    said = text[: where.start()] if where else text
    path = where["path"] if where else ""
    if found := _UNKNOWN_FIELD.match(said):
        return f"{_joined(path, found['name'])}: there is no such field. Remove it."[:_WORDS_MAX]
    if found := _MISSING_FIELD.match(said):
        return f"{_joined(path, found['name'])}: is missing. Add it."[:_WORDS_MAX]
    return f"{path or 'params'}: {said[:1].lower()}{said[1:]}."[:_WORDS_MAX]


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
