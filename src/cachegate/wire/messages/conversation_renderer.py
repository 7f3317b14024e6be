"""Writes a conversation as Anthropic's turns: each item from itself and from what stands before it, never what follows.

Anthropic wants every call answered in the very next turn, results in front of everything else there, and each id used
once. Conversations that were made for other APIs, or were interrupted, are not always so. What does not fit is mended
here by what came before, so that the turns of a conversation begin like those of every continuation of it.
"""

import re
from collections.abc import Iterator
from typing import assert_never

from blake3 import blake3

from cachegate.wire.compaction import summary_message
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import (
    Compacted,
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
from cachegate.wire.messages.content_parser import FAILED
from cachegate.wire.messages.content_renderer import Block, Turn, part_blocks, tool_input
from cachegate.wire.plain_thoughts import goes_back
from cachegate.wire.quirks import Quirk
from cachegate.wire.tool_names import ToolNames

NO_RESULT = "This call was interrupted: there is no result."
"""Answers a call that nobody answered before the conversation went on."""

BEGINNING = "Begin."
"""Stands in front of a conversation in which the user did not speak first."""

LOST = "[A picture or document stood here.]"
"""Stands for what the assistant showed: Anthropic takes pictures and documents from the user only."""

INTERRUPTED = "[Interrupted before an answer.]"
"""Stands between the system's words and the user's next ones: Anthropic wants an answer there."""

_REMINDER = "<system-reminder>\n{}\n</system-reminder>"
"""How Claude is used to be told of the system's words inside a user's turn."""
_REMINDER_TAG = "<system-reminder>"

_PLAIN_ID = re.compile(r"[a-zA-Z0-9_-]+")
_DIGEST_CHARS = 24


def split_leading(items: tuple[Item, ...]) -> tuple[tuple[Text, ...], tuple[Item, ...]]:
    """Part the system's words in front of the conversation, which belong to the instructions, from the rest."""
    texts: list[Text] = []
    for number, item in enumerate(items):
        words = _texts_only(item)
        if words is None:
            return tuple(texts), items[number:]
        texts.extend(words)
    return tuple(texts), ()


def _texts_only(item: Item) -> list[Text] | None:
    """Return the texts of a system message that holds nothing else."""
    if not isinstance(item, Message) or item.role not in {Role.SYSTEM, Role.DEVELOPER}:
        return None
    texts = [part for part in item.parts if isinstance(part, Text)]
    return texts if len(texts) == len(item.parts) else None


class Conversation:
    """The turns so far. Add the items in their order, then `finish`."""

    __slots__ = ("_deferred", "_held", "_names", "_notes", "_open", "_target", "_used", "turns")

    def __init__(self, names: ToolNames, target: Target, deferred: frozenset[object] = frozenset()) -> None:
        self._names = names
        self._target = target
        self._deferred = deferred
        """Names of the tools that are no part of the prompt before a reference to them."""
        self._open: list[tuple[str, str]] = []
        """Calls without a result yet: the id in the hub, and the one here."""
        self._held: list[Block] = []
        """Thoughts that the assistant has not said anything after yet: Anthropic refuses a turn that ends with one."""
        self._notes: list[Message] = []
        """What was said while calls were open: nothing may stand between them and their results."""
        self._used: dict[str, int] = {}
        """How often an id was given."""
        self.turns: list[Turn] = []

    def add(self, item: Item) -> None:
        """Add an item."""
        match item:
            case Message():
                self._message(item)
            case ToolCall():
                self._call(item)
            case ToolResult():
                self._result(item)
            case Reasoning():
                self._reasoning(item)
            case Compacted():
                self._message(summary_message(item))
            case _:
                assert_never(item)

    def finish(self) -> None:
        """Answer the calls that are still open, and let the user say something if nobody did: else it is refused."""
        self._close_calls()
        if not self.turns:
            self._put("user", _text_block(BEGINNING))

    def _message(self, message: Message) -> None:
        match message.role:
            case Role.USER:
                self._put_all("user", part_blocks(message.parts))
            case Role.ASSISTANT:
                parts = tuple(part if isinstance(part, Text) else Text(LOST) for part in message.parts)
                self._put_all("assistant", part_blocks(parts))
            case Role.SYSTEM | Role.DEVELOPER:
                self._system(message)
            case _:
                assert_never(message.role)

    def _system(self, message: Message) -> None:
        """Say the system's words in a turn of their own, which may only follow one of the user; else inside one."""
        if self._open:
            self._notes.append(message)
            return
        follows_user = bool(self.turns) and self.turns[-1].role != "assistant"
        if Quirk.SYSTEM_TURNS in self._target.quirks and _texts_only(message) is not None and follows_user:
            self._put_all("system", part_blocks(message.parts))
            return
        parts = tuple(_reminder(part) if isinstance(part, Text) else part for part in message.parts)
        self._put_all("user", part_blocks(parts))

    def _call(self, call: ToolCall) -> None:
        wire_id = self._new_id(call.call_id)
        named = {"type": "tool_use", "id": wire_id, "name": self._names.wire(call.tool)}
        self._put("assistant", Block({**named, "input": tool_input(call)}, call.marked))
        self._open.append((call.call_id, wire_id))

    def _result(self, result: ToolResult) -> None:
        """Answer an open call; a result of no such call, or one that comes too late, goes on as text."""
        waiting = next((pair for pair in self._open if pair[0] == result.call_id), None)
        if waiting is None:
            what = "Error" if result.is_error else "Result"
            self._put("user", _text_block(f"{what} of the tool call {result.call_id}:"))
            self._put_all("user", part_blocks(result.parts))
            return
        self._open.remove(waiting)
        self._held.clear()
        references = [] if result.is_error else [block for part in result.parts for block in self._references(part)]
        if references:
            self._append("user", _answer_block(waiting[1], references))
            # Anthropic wants references alone in a result.
            if rest := tuple(part for part in result.parts if not any(self._references(part))):
                self._notes.append(Message(Role.USER, rest))
        else:
            self._append("user", _result_block(waiting[1], result))
        if not self._open:
            self._release_notes()

    def _references(self, part: Part) -> Iterator[Block]:
        """Yield the reference to a tool that a search found, where the tool is not in front of the conversation."""
        found = part.found if isinstance(part, Text) else None
        name = None if found is None else self._names.wire(found)
        if name in self._deferred:
            yield Block({"type": "tool_reference", "tool_name": name}, part.marked)

    def _reasoning(self, thought: Reasoning) -> None:
        """Give a thought back to whom it belongs; for everybody else it is left out."""
        plain = goes_back(thought, self._target, Protocol.MESSAGES)
        own = thought.binding is None or thought.binding == self._target.binding
        if not plain and (thought.origin is not Protocol.MESSAGES or thought.opaque is None or not own):
            return
        if thought.redacted:
            said = {"type": "redacted_thinking", "data": thought.opaque}
        else:
            said = {"type": "thinking", "thinking": thought.text, "signature": "" if plain else thought.opaque}
        self._held.append(Block(said, cacheable=False))

    def _put_all(self, role: str, blocks: Iterator[Block]) -> None:
        for block in blocks:
            self._put(role, block)

    def _put(self, role: str, block: Block) -> None:
        """Append a block that answers no call; open calls may wait for nothing else than more of the same turn."""
        if not (self.turns and self.turns[-1].role == role == "assistant"):
            self._close_calls()
        if not self.turns and role != "user":
            self._append("user", _text_block(BEGINNING))
        if self.turns and self.turns[-1].role == "system" and role == "user":
            self._append("assistant", _text_block(INTERRUPTED))
        thoughts = self._held if role == "assistant" else []
        for each in (*thoughts, block):
            self._append(role, each)
        self._held.clear()

    def _append(self, role: str, block: Block) -> None:
        if not self.turns or self.turns[-1].role != role:
            self.turns.append(Turn(role))
        self.turns[-1].blocks.append(block)

    def _close_calls(self) -> None:
        for call_id, wire_id in self._open:
            self._append("user", _result_block(wire_id, ToolResult(call_id, (Text(NO_RESULT),), is_error=True)))
        self._open.clear()
        self._release_notes()

    def _release_notes(self) -> None:
        notes, self._notes = self._notes, []
        for note in notes:
            self._message(note)

    def _new_id(self, call_id: str) -> str:
        """Return an id that Anthropic takes: letters it knows, and never the same twice."""
        times = self._used.get(call_id, 0)
        self._used[call_id] = times + 1
        if times == 0 and _PLAIN_ID.fullmatch(call_id):
            return call_id
        whole = f"{times}:{call_id}".encode("utf-8", "replace")
        return f"toolu_{blake3(whole).hexdigest()[:_DIGEST_CHARS]}"


def _text_block(text: str) -> Block:
    return Block({"type": "text", "text": text})


def _reminder(part: Text) -> Text:
    if not part.text.strip() or part.text.startswith(_REMINDER_TAG):
        return part
    return Text(_REMINDER.format(part.text), marked=part.marked)


def _result_block(wire_id: str, result: ToolResult) -> Block:
    content = list(part_blocks(result.parts))
    # Anthropic refuses an error that holds anything but text.
    is_error = result.is_error and all(block.fields["type"] == "text" for block in content)
    if result.is_error and not is_error:
        content.insert(0, _text_block(FAILED))
    # A blank text is left out, and its mark must not get lost.
    marked = any(part.marked for part in result.parts)
    return _answer_block(wire_id, content, is_error=is_error, marked=marked)


def _answer_block(wire_id: str, content: list[Block], *, is_error: bool = False, marked: bool = False) -> Block:
    block = {
        "type": "tool_result",
        "tool_use_id": wire_id,
        **({"content": [each.fields for each in content]} if content else {}),
        **({"is_error": True} if is_error else {}),
    }
    return Block(block, marked or any(each.marked for each in content))
