"""Reads the conversation of a Chat Completions request.

One assistant message holds what the hub keeps apart: thoughts, text and calls, in this order, for that is the order in
which models write them.
"""

import re
from collections.abc import Mapping

from cachegate.errors import BadInput
from cachegate.wire.chat import thoughts
from cachegate.wire.chat.node import Node
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import (
    Document,
    Image,
    Item,
    Message,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolRef,
    ToolResult,
)

REFUSED: Mapping[str, str] = {
    "input_audio": "no other protocol hears",
    "file_id": "a file kept by one provider has no other; send its content as `file_data`",
}
"""Parts of messages that no other provider can read."""

_ROLES = {"system": Role.SYSTEM, "developer": Role.DEVELOPER, "user": Role.USER}
_INSTRUCTING = frozenset({Role.SYSTEM, Role.DEVELOPER})
_DATA_URL = re.compile(r"data:(?P<media>[^;,]*)(?:;[^;,]*)*;base64,(?P<data>.*)", re.DOTALL | re.IGNORECASE)
_MEDIA_OF_SUFFIX = {
    ".pdf": "application/pdf",
    ".txt": "text/plain",
    ".md": "text/markdown",
    ".json": "application/json",
}
_LEGACY_CALL = "call_function_{}"
"""Calls had no ids in the times of `function_call`; they are numbered."""


def parse_messages(top: Node) -> tuple[tuple[Text, ...], tuple[Item, ...]]:
    """Return the instructions in front, and what follows them. Raises BadInput, naming what cannot be carried."""
    reader = _Conversation()
    for message in top.nodes("messages"):
        reader.read(message)
    if not reader.items and not reader.instructions:
        raise BadInput("messages: is missing or empty. Set it to an array of messages.")
    return tuple(reader.instructions), tuple(reader.items)


class _Conversation:
    __slots__ = ("_custom", "_legacy", "instructions", "items")

    def __init__(self) -> None:
        self.instructions: list[Text] = []
        self.items: list[Item] = []
        self._custom: set[str] = set()
        self._legacy: list[str] = []

    def read(self, message: Node) -> None:
        match message.text("role"):
            case "assistant":
                self._assistant(message)
            case "tool":
                self._result(message, message.word("tool_call_id"))
            case "function":
                self._result(message, self._legacy_id(message))
            case str(role) if role in _ROLES:
                self._said(_ROLES[role], message)
            case role:
                known = ", ".join((*_ROLES, "assistant", "tool"))
                raise BadInput(f"{message.path('role')}: {role!r} is unknown. Use one of: {known}.")

    def _said(self, role: Role, message: Node) -> None:
        parts = _parts(message)
        if not parts:
            return
        texts = [part for part in parts if isinstance(part, Text)]
        if role not in _INSTRUCTING:
            self.items.append(Message(role, parts))
        elif len(texts) < len(parts):
            raise BadInput(f"{message.path('content')}: a {role} message holds text only.")
        elif self.items or role is Role.DEVELOPER:
            self.items.append(Message(role, parts))
        else:
            self.instructions += texts

    def _assistant(self, message: Node) -> None:
        self._thoughts(message)
        parts = [part for part in _parts(message) if not (isinstance(part, Text) and not part.text)]
        refusal = message.text("refusal")
        if refusal:
            parts.append(Text(refusal, refusal=True))
        if parts:
            self.items.append(Message(Role.ASSISTANT, tuple(parts)))
        for call in message.nodes("tool_calls"):
            self._call(call)
        if message.fields.get("function_call") is not None:
            function = message.node("function_call")
            self._legacy.append(_LEGACY_CALL.format(len(self._legacy)))
            tool = ToolRef(function.word("name"))
            self.items.append(ToolCall(self._legacy[-1], tool, function.text("arguments") or ""))

    def _thoughts(self, message: Node) -> None:
        name, text = thoughts.plain_text(message.fields)
        details = [detail for _, detail in message.items(thoughts.DETAILS)]
        if details:
            opaque = thoughts.opaque_of_details(details)
            readable = text or thoughts.text_of_details(details)
            self.items.append(Reasoning(readable, opaque, Protocol.CHAT, redacted=not readable))
        elif text:
            self.items.append(Reasoning(text, name, Protocol.CHAT))

    def _call(self, call: Node) -> None:
        call_id = call.word("id")
        extra = call.fields.get(thoughts.EXTRA)
        if extra is not None:
            opaque = thoughts.opaque_of_call(call_id, extra)
            self.items.append(Reasoning("", opaque, Protocol.CHAT, redacted=True))
        match call.text("type") or "function":
            case "function":
                function = call.node("function")
                tool = ToolRef(function.word("name"))
                self.items.append(ToolCall(call_id, tool, function.text("arguments") or ""))
            case "custom":
                custom = call.node("custom")
                self._custom.add(call_id)
                tool = ToolRef(custom.word("name"), custom=True)
                self.items.append(ToolCall(call_id, tool, custom.text("input") or ""))
            case kind:
                raise BadInput(f"{call.path('type')}: {kind!r} is unknown. Use function or custom.")

    def _result(self, message: Node, call_id: str) -> None:
        self.items.append(ToolResult(call_id, _parts(message), custom=call_id in self._custom))

    def _legacy_id(self, message: Node) -> str:
        if not self._legacy:
            raise BadInput(f"{message.where}: a function message without a `function_call` before it.")
        return self._legacy[-1]


def _parts(message: Node) -> tuple[Part, ...]:
    """Return the content; a mark of the whole message is one of its last part."""
    content = message.fields.get("content")
    if content is None:
        return ()
    if isinstance(content, str):
        return (Text(content, marked=message.marked),)
    nodes = message.nodes("content")
    last = len(nodes) - 1
    return tuple(
        _part(node, marked=node.marked or (message.marked and index == last)) for index, node in enumerate(nodes)
    )


def _part(part: Node, *, marked: bool) -> Part:
    match part.text("type") or "text":
        case "text" | "input_text" | "output_text":
            return Text(part.text("text") or "", marked=marked)
        case "refusal":
            return Text(part.text("refusal") or "", refusal=True, marked=marked)
        case "image_url":
            return _image(part, marked=marked)
        case "file":
            return _file(part.node("file"), marked=marked)
        case "input_audio":
            raise BadInput(f"{part.path('input_audio')}: {REFUSED['input_audio']}.")
        case kind:
            raise BadInput(f"{part.path('type')}: {kind!r} cannot be carried. Use text, image_url or file.")


def _image(part: Node, *, marked: bool) -> Image:
    told = part.fields.get("image_url")
    image = Node(part.path("image_url"), {"url": told}) if isinstance(told, str) else part.node("image_url")
    url, detail = image.word("url"), image.text("detail")
    found = _DATA_URL.fullmatch(url)
    if found is None:
        if url[:5].lower() == "data:":
            raise BadInput(f"{image.path('url')}: a data URL must be base64.")
        return Image(url=url, detail=detail, marked=marked)
    return Image(data=found["data"], media_type=found["media"] or None, detail=detail, marked=marked)


def _file(file: Node, *, marked: bool) -> Document:
    name, data = file.text("filename"), file.text("file_data")
    if not data and file.fields.get("file_id") is not None:
        raise BadInput(f"{file.path('file_id')}: {REFUSED['file_id']}.")
    data = file.word("file_data")
    found = _DATA_URL.fullmatch(data)
    if found is not None:
        return Document(data=found["data"], media_type=found["media"] or None, name=name, marked=marked)
    if data.startswith(("https://", "http://")):  # OpenRouter
        return Document(url=data, name=name, marked=marked)
    suffix = f".{name.rpartition('.')[2].lower()}" if name and "." in name else ""
    return Document(data=data, media_type=_MEDIA_OF_SUFFIX.get(suffix), name=name, marked=marked)
