"""Writes a conversation as Chat messages.

The protocol has one rule of its own: behind an assistant message with calls come their results, and nothing else. So
whatever is said between a call and its result waits until all results are there. Each message is made of what stands
before it; only a message still being collected (the model's last turn) can grow.
"""

import re
from dataclasses import dataclass, field
from typing import assert_never

from cachegate.errors import BadInput
from cachegate.wire.chat import thoughts
from cachegate.wire.chat.cache_marks import place_marks, place_message_marks
from cachegate.wire.chat.call_ids import CallIds, cut
from cachegate.wire.compaction import summary_message
from cachegate.wire.custom_tools import wrap
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import (
    Compacted,
    Document,
    Image,
    Item,
    Message,
    Part,
    Reasoning,
    Role,
    Target,
    Text,
    ToolCall,
    ToolResult,
)
from cachegate.wire.quirks import Quirk
from cachegate.wire.tool_names import ToolNames
from cachegate.wire.usage_readings import fields, items

ERROR_MARK = "[The tool failed.]\n"
"""In front of a result that is an error: the protocol has no field for it."""
MISSING_RESULT = "[The tool gave no result.]"
"""In the place of a result that never came: providers refuse a call without one."""
ATTACHED = "[The result is attached to the next message.]"
"""The text of a result that is a picture or a file: tool messages hold text only."""
ATTACHMENT = "Attached to the result of tool call {}:"
NO_THOUGHTS = " "
"""For providers that refuse a call without its thoughts where there are none to send; Kimi refuses "" too."""
STRAY_RESULT = "Result of tool call {}, which stands nowhere before it:\n"
SYSTEM_IN_TURN = "<system>\n{}\n</system>"
"""A system message in the midst of a conversation, for providers that take one in front only."""

_ROLES = {Role.USER: "user", Role.SYSTEM: "system", Role.DEVELOPER: "developer"}
_INSTRUCTING = frozenset({Role.SYSTEM, Role.DEVELOPER})
_MARKING = frozenset({Quirk.CHAT_CACHE_MARKS, Quirk.MESSAGE_CACHE_MARKS})
_FILE_NAMES = {"application/pdf": "document.pdf"}
_NO_NAME = "document"
_ATTRIBUTE = re.compile(r'["<>\n\r]')

_Message = dict[str, object]
_Content = str | list[dict[str, object]]


@dataclass(slots=True, frozen=True)
class _Turn:
    """An assistant message being collected."""

    thoughts: dict[str, str] = field(default_factory=dict)
    """Plain text by the name of its field."""
    details: list[object] = field(default_factory=list)
    extras: dict[str, object] = field(default_factory=dict)
    """By the client's id of the call."""
    texts: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    calls: list[_Message] = field(default_factory=list)
    call_ids: list[tuple[str, str]] = field(default_factory=list)
    """The client's id of each call, and the one here."""


class Conversation:
    """Messages in the making."""

    __slots__ = ("_held", "_ids", "_marked", "_messages", "_names", "_target", "_turn", "_waiting")

    def __init__(self, names: ToolNames, target: Target) -> None:
        self._names = names
        self._target = target
        self._messages: list[_Message] = []
        self._turn: _Turn | None = None
        self._ids = CallIds(short=Quirk.SHORT_CALL_IDS in target.quirks)
        self._waiting: list[tuple[str, str]] = []
        """Calls without a result so far: the client's id, and the one here."""
        self._held: list[_Message] = []
        """What was said while calls were waiting."""
        self._marked: list[dict[str, object]] = []

    def instruct(self, instructions: tuple[Text, ...]) -> None:
        """Begin with top-level instructions."""
        if instructions:
            self._messages.append({"role": "system", "content": self._content(instructions)})

    def add(self, item: Item) -> None:
        """Go on with an item."""
        match item:
            case Message(role=Role.ASSISTANT):
                self._spoke(item)
            case Message():
                self._say(item)
            case ToolCall():
                self._call(item)
            case ToolResult():
                self._result(item)
            case Reasoning():
                if item.origin is Protocol.CHAT and item.binding in {None, self._target.binding}:
                    self._think(item)
            case Compacted():
                self._say(summary_message(item))
            case _:
                assert_never(item)

    def messages(self) -> list[_Message]:
        """Return all messages; a call that is still open gets a result too, or the request would be refused."""
        self._close()
        self._settle()
        if Quirk.CHAT_CACHE_MARKS in self._target.quirks:
            place_marks(self._messages, self._marked)
        elif Quirk.MESSAGE_CACHE_MARKS in self._target.quirks:
            place_message_marks(self._messages, self._marked)
            for message in self._messages:
                message["content"] = _as_string(message["content"])
        return self._messages

    def _open(self) -> _Turn:
        if self._turn is None:
            self._settle()
            self._turn = _Turn()
        return self._turn

    def _close(self) -> None:
        turn, self._turn = self._turn, None
        if turn is None:
            return
        message = self._turn_message(turn)
        if message is not None:
            self._messages.append(message)
            self._waiting += turn.call_ids

    def _settle(self) -> None:
        """Let go of what waits: a new turn has begun, so that the results will not come any more."""
        missing = (Text(MISSING_RESULT),)
        self._messages += [_tool(wire_id, self._content(missing)) for _, wire_id in self._waiting]
        self._messages += self._held
        self._waiting, self._held = [], []

    def _spoke(self, item: Message) -> None:
        turn = self._open()
        plain = Quirk.STRING_CONTENT in self._target.quirks  # such servers know no refusals either
        for part in item.parts:
            if not isinstance(part, Text):
                raise BadInput("assistant: Chat Completions takes no picture or file in an answer of the model.")
            if part.text:
                (turn.refusals if part.refusal and not plain else turn.texts).append(part.text)

    def _turn_message(self, turn: _Turn) -> _Message | None:
        if not (turn.texts or turn.refusals or turn.calls):
            return None
        content = self._content(tuple(Text(text) for text in turn.texts)) if turn.texts else None
        message: _Message = {"role": "assistant", "content": content}
        if turn.refusals:
            # Servers that know no refusals see an empty text; none at all many refuse.
            message.update({"content": content or "", "refusal": "\n\n".join(turn.refusals)})
        message.update(self._thoughts(turn))
        if turn.calls:
            calls = zip(turn.call_ids, turn.calls, strict=True)
            extras = turn.extras
            message["tool_calls"] = [
                {**call, thoughts.EXTRA: extras[call_id]} if call_id in extras else call for (call_id, _), call in calls
            ]
        return message

    def _thoughts(self, turn: _Turn) -> _Message:
        """Return the fields in which a provider gets its own thoughts back."""
        quirks = self._target.quirks
        fields: _Message = {}
        if Quirk.REASONING_CONTENT in quirks and turn.calls:
            missing = {thoughts.PLAIN[0]: NO_THOUGHTS} if Quirk.NEEDS_THOUGHTS in quirks else {}
            fields.update(turn.thoughts or missing)
        elif Quirk.REASONING_OBJECT in quirks and not turn.details:
            fields.update({name: text for name, text in turn.thoughts.items() if name == "reasoning"})
        if turn.details:
            fields[thoughts.DETAILS] = turn.details
        return fields

    def _think(self, item: Reasoning) -> None:
        turn, returned = self._open(), thoughts.read_opaque(item.opaque)
        if returned.call_id:
            turn.extras[returned.call_id] = returned.extra
            return
        turn.details[:] = thoughts.joined(turn.details, list(returned.details))
        name = returned.plain or thoughts.PLAIN[0]
        if item.text and not returned.details:
            turn.thoughts[name] = turn.thoughts.get(name, "") + item.text

    def _call(self, item: ToolCall) -> None:
        turn = self._open()
        wire_id, name = self._ids.new(item.call_id), self._names.wire(item.tool)
        if item.tool.custom and Quirk.CUSTOM_TOOLS in self._target.quirks:
            called: _Message = {"type": "custom", "custom": {"name": name, "input": item.arguments}}
        else:
            arguments = wrap(item.arguments) if item.tool.custom else item.arguments or "{}"
            called = {"type": "function", "function": {"name": name, "arguments": arguments}}
        turn.calls.append({"id": wire_id, **called})
        turn.call_ids.append((item.call_id, wire_id))

    def _result(self, item: ToolResult) -> None:
        self._close()
        waiting = next((pair for pair in self._waiting if pair[0] == item.call_id), None)
        texts = tuple(part for part in item.parts if isinstance(part, Text))
        files = tuple(part for part in item.parts if not isinstance(part, Text))
        if waiting is None:
            stray = STRAY_RESULT.format(cut(item.call_id)) + _told(item, texts)
            self._put(_user(self._content((Text(stray), *files))))
            return
        self._waiting.remove(waiting)
        _, wire_id = waiting
        said = _told(item, texts) or (ATTACHED if files else "")
        content = self._content((Text(said, marked=any(part.marked for part in item.parts)),))
        self._messages.append(_tool(wire_id, content))
        if files:
            self._held.append(_user(self._content((Text(ATTACHMENT.format(wire_id)), *files))))
        if not self._waiting:
            self._settle()

    def _say(self, item: Message) -> None:
        role = _ROLES[item.role]
        quirks = self._target.quirks
        if item.role in _INSTRUCTING and any(not isinstance(part, Text) for part in item.parts):
            raise BadInput(f"{role}: a {role} message holds text only in Chat Completions.")
        if role == "developer" and Quirk.NO_DEVELOPER in quirks:
            role = "system"
        self._close()
        if item.role not in _INSTRUCTING or Quirk.ONE_SYSTEM_IN_FRONT not in quirks:
            self._put({"role": role, "content": self._content(item.parts)})
        elif self._messages and not self._is_front():
            text = SYSTEM_IN_TURN.format(_joined(item.parts))
            self._put(_user(self._content((Text(text, marked=any(part.marked for part in item.parts)),))))
        else:
            self._front(item.parts)

    def _is_front(self) -> bool:
        return len(self._messages) == 1 and self._messages[0]["role"] == "system"

    def _front(self, parts: tuple[Part, ...]) -> None:
        """Go on with the one system message there is."""
        content = self._content(parts)
        if not self._messages:
            self._messages.append({"role": "system", "content": content})
            return
        before = self._messages[0]["content"]
        if isinstance(before, str) and Quirk.STRING_CONTENT in self._target.quirks:
            self._messages[0]["content"] = f"{before}\n\n{_joined(parts)}"
        else:
            self._messages[0]["content"] = [*_as_parts(before), *_as_parts(content)]

    def _put(self, message: _Message) -> None:
        (self._held if self._waiting else self._messages).append(message)

    def _content(self, parts: tuple[Part, ...]) -> _Content:
        """Return one text as a string, as every client sends it; as a part where a mark may need it to stand on."""
        quirks = self._target.quirks
        only_text = all(isinstance(part, Text) for part in parts) and _MARKING.isdisjoint(quirks)
        if only_text and (len(parts) <= 1 or Quirk.STRING_CONTENT in quirks):
            return _joined(parts)
        rendered = [_part(part) for part in parts]
        self._marked += [shown for shown, part in zip(rendered, parts, strict=True) if part.marked]
        return rendered


def _as_parts(content: object) -> list[object]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else items(content)


def _as_string(content: object) -> object:
    """Return one text as a string again, once the marks do not stand on parts."""
    parts = [fields(part) for part in items(content)]
    if not isinstance(content, list) or len(parts) > 1 or any(part.get("type") != "text" for part in parts):
        return content
    return parts[0]["text"] if parts else ""


def _user(content: _Content) -> _Message:
    return {"role": "user", "content": content}


def _tool(call_id: str, content: _Content) -> _Message:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def _joined(parts: tuple[Part, ...]) -> str:
    return "\n\n".join(part.text for part in parts if isinstance(part, Text))


def _told(item: ToolResult, texts: tuple[Text, ...]) -> str:
    return f"{ERROR_MARK if item.is_error else ''}{_joined(texts)}"


def _part(part: Part) -> dict[str, object]:
    match part:
        case Text():
            return {"type": "text", "text": part.text}
        case Image():
            url = part.url or f"data:{part.media_type or 'image/png'};base64,{part.data or ''}"
            detail = {} if part.detail is None else {"detail": part.detail}
            return {"type": "image_url", "image_url": {"url": url, **detail}}
        case Document():
            return _document(part)
        case _:
            assert_never(part)


def _document(document: Document) -> dict[str, object]:
    if document.text is not None:
        named = f' name="{_ATTRIBUTE.sub("_", document.name)}"' if document.name else ""
        return {"type": "text", "text": f"<document{named}>\n{document.text}\n</document>"}
    if document.data is None:
        raise BadInput("document.url: Chat Completions takes no document by its address. Send its content.")
    media_type = document.media_type or "application/pdf"
    name = document.name or _FILE_NAMES.get(media_type, _NO_NAME)
    data = f"data:{media_type};base64,{document.data}"
    return {"type": "file", "file": {"filename": name, "file_data": data}}
