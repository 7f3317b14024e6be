"""A conversation as the Copilot runtime keeps it: what the user said, what the model answered, what the tools returned.

A caller sends its whole conversation with every request, a session knows what came before. So both are put into steps
that can be compared: a step that means the same has the same mark, whatever protocol it came in.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, assert_never

from blake3 import blake3

from cachegate.errors import BadInput
from cachegate.wire.body import decode, encode
from cachegate.wire.compaction import summary_message
from cachegate.wire.custom_tools import wrap
from cachegate.wire.hub import (
    Compacted,
    Document,
    Image,
    Item,
    Message,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from cachegate.wire.tool_names import ToolNames

NO_RESULT = "This call was interrupted: there is no result."
"""Answers a call that nobody answered before the conversation went on."""
STRAY_RESULT = "Result of the tool call {}, which stands nowhere before it:\n"
_REMINDER = "<system-reminder>\n{}\n</system-reminder>"
"""How the system's words are told inside a conversation: a session takes instructions in front only."""
_SHOWN = "[A picture or document stood here.]"
"""Stands for what the assistant showed: a session keeps text of it only."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A picture or file that goes along."""

    data: str
    """Base64."""
    media_type: str
    name: str | None = None

    @property
    def kind(self) -> Literal["image", "resource"]:
        """What the runtime calls it in a tool's result."""
        return "image" if self.media_type.startswith("image/") else "resource"


@dataclass(frozen=True, slots=True)
class Said:
    """The user said something, or the system did in the midst of the conversation."""

    text: str
    attachments: tuple[Attachment, ...] = ()


@dataclass(frozen=True, slots=True)
class Called:
    """A call in an answer of the model."""

    call_id: str
    name: str
    """As the runtime knows the tool."""
    arguments: str
    """JSON text."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The model answered: text, calls, or both."""

    text: str
    calls: tuple[Called, ...] = ()


@dataclass(frozen=True, slots=True)
class Returned:
    """A tool returned something for a call of the answer before."""

    call_id: str
    text: str
    attachments: tuple[Attachment, ...] = ()
    is_error: bool = False


Step = Said | Answered | Returned


def steps_of(items: Iterable[Item], names: ToolNames) -> tuple[Step, ...]:
    """Return a conversation's steps. Raises BadInput for a part that no session can hold.

    Each step is made of what stands before it, so the steps of a conversation begin those of its continuation; only
    the model's last answer can grow.
    """
    conversation = _Conversation(names)
    for item in items:
        conversation.add(item)
    return tuple(conversation.steps)


def mark(step: Step) -> bytes:
    """Return what tells steps apart; the spelling of arguments and blanks around an answer's text do not."""
    match step:
        case Said():
            parts: list[object] = ["said", step.text, *((each.media_type, each.data) for each in step.attachments)]
        case Answered():
            parts = ["answered", step.text.strip(), *((c.call_id, c.name, _same(c.arguments)) for c in step.calls)]
        case Returned():
            attached = ((each.media_type, each.data) for each in step.attachments)
            parts = ["returned", step.call_id, step.text, step.is_error, *attached]
        case _:
            assert_never(step)
    return blake3(encode(parts)).digest()


def _same(arguments: str) -> object:
    """Return the arguments as a value, so that two spellings of it are equal: clients decode and encode them again."""
    value = decode(arguments.encode("utf-8", "replace"))
    return arguments if value is None else _ordered(value)


def _ordered(value: object) -> object:
    if isinstance(value, dict):
        return {key: _ordered(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_ordered(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value  # JavaScript writes 1.0 as 1


class _Conversation:
    """The steps so far."""

    __slots__ = ("_names", "_open", "steps")

    def __init__(self, names: ToolNames) -> None:
        self._names = names
        self._open: list[str] = []
        """Calls without a result yet."""
        self.steps: list[Step] = []

    def add(self, item: Item) -> None:
        """Add what an item says."""
        match item:
            case Message():
                self._message(item)
            case ToolCall():
                self._call(item)
            case ToolResult():
                self._result(item)
            case Reasoning():
                pass  # the session keeps the model's thoughts itself, and takes none from elsewhere
            case Compacted():
                self._message(summary_message(item))
            case _:
                assert_never(item)

    def _message(self, message: Message) -> None:
        match message.role:
            case Role.USER:
                self._say(message.parts)
            case Role.SYSTEM | Role.DEVELOPER:
                self._say(tuple(_reminder(part) for part in message.parts))
            case Role.ASSISTANT:
                texts = [part.text if isinstance(part, Text) else _SHOWN for part in message.parts]
                self._answer("".join(texts))
            case _:
                assert_never(message.role)

    def _say(self, parts: tuple[Part, ...]) -> None:
        self._close()
        text, attachments = _contents(parts)
        self.steps.append(Said(text, attachments))

    def _answer(self, text: str, *calls: Called) -> None:
        last = self.steps[-1] if self.steps else None
        if isinstance(last, Answered):
            self.steps[-1] = replace(last, text=last.text + text, calls=(*last.calls, *calls))
        else:
            self._close()
            self.steps.append(Answered(text, calls))

    def _call(self, call: ToolCall) -> None:
        arguments = wrap(call.arguments) if call.tool.custom else call.arguments
        self._answer("", Called(call.call_id, self._names.wire(call.tool), arguments))
        self._open.append(call.call_id)

    def _result(self, result: ToolResult) -> None:
        text, attachments = _contents(result.parts)
        if result.call_id not in self._open:
            self._close()
            self.steps.append(Said(STRAY_RESULT.format(result.call_id) + text, attachments))
            return
        self._open.remove(result.call_id)
        self.steps.append(Returned(result.call_id, text, attachments, result.is_error))

    def _close(self) -> None:
        """Answer the calls that are still open."""
        self.steps.extend(Returned(call_id, NO_RESULT, is_error=True) for call_id in self._open)
        self._open.clear()


def _reminder(part: Part) -> Part:
    return Text(_REMINDER.format(part.text)) if isinstance(part, Text) else part


def _contents(parts: tuple[Part, ...]) -> tuple[str, tuple[Attachment, ...]]:
    """Return text and attachments of a message or a result."""
    texts: list[str] = []
    attachments: list[Attachment] = []
    for part in parts:
        match part:
            case Text():
                texts.append(part.text)
            case Document(text=str(text)):
                texts.append(text)
            case Image() | Document():
                attachments.append(_attachment(part))
            case _:
                assert_never(part)
    return "\n\n".join(texts), tuple(attachments)


def _attachment(part: Image | Document) -> Attachment:
    if part.data is None:
        what = "image" if isinstance(part, Image) else "document"
        raise BadInput(f"{what}: Copilot takes no addresses, only the {what} itself in Base64. Send it inline.")
    name = part.name if isinstance(part, Document) else None
    return Attachment(part.data, part.media_type or "application/octet-stream", name)
