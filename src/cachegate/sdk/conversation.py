"""The history of a chat and the requests made of it. Pure: every change returns a new conversation.

Each item is encoded once, when it joins, and its bytes never change. So the conversation of every request is, byte for
byte, the beginning of the next one's, which is what a provider's prompt cache lives on.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from cachegate.sdk.tools import Tool

Json = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Text:
    """A text in a message."""

    text: str


@dataclass(frozen=True, slots=True)
class Image:
    """An image in a message: an https address, or the image itself as a data URL."""

    url: str


Input = str | Sequence[str | Text | Image]
"""What a user says. An empty sequence says nothing more: the turn goes on where a failed one left off."""

SUMMARY_REQUEST = (
    "Write a summary of this conversation. It will replace the conversation: whoever goes on with the task knows "
    "nothing else. Say what was asked for and how it should be done, what was done and what came of it, with every "
    "name, number and piece of code that is still needed, and what is left to do. Call no tools; answer with the "
    "summary alone."
)
"""The last message of a compaction, unless the caller words it."""
SUMMARY_PREFACE = "This is a summary of our conversation so far:\n\n"
"""Stands in front of the summary, in the one message that is left."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What is the same in every request of a chat."""

    model: str
    chat_id: str
    instructions: str | None = None
    tools: tuple[Tool, ...] = ()
    effort: str | None = None
    """How hard to think, in the provider's words, such as `low` or `high`."""
    max_output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """The items so far, oldest first, each as the bytes that are sent."""

    head: bytes
    """The beginning of every body, up to the conversation; made by `begun`."""
    items: tuple[bytes, ...] = ()

    def body(self, *, stream: bool) -> bytes:
        """Return the body of the request that asks for the next answer."""
        return b'%b,"input":[%b],"stream":%b}' % (self.head, b",".join(self.items), b"true" if stream else b"false")

    def with_user(self, said: Input) -> "Conversation":
        """Return the conversation after a user's message. Raises ValueError where there would be nothing to answer."""
        content = input_content(said)
        if content:
            return self._and([{"type": "message", "role": "user", "content": content}])
        if not self.items:
            raise ValueError("An empty input goes on with a conversation, and this one has not begun. Say something.")
        return self

    def with_items(self, items: Iterable[Json]) -> "Conversation":
        """Return the conversation after items of an answer, just as they came."""
        return self._and(items)

    def with_output(self, call_id: str, output: str) -> "Conversation":
        """Return the conversation after a tool's answer."""
        return self._and([{"type": "function_call_output", "call_id": call_id, "output": output}])

    def with_partial(self, text: str) -> "Conversation":
        """Return the conversation after an answer that was interrupted: its text, without half calls and thoughts."""
        if not text:
            return self
        return self._and([{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}])

    def summarised(self, summary: str) -> "Conversation":
        """Return the conversation that the summary stands for."""
        return replace(self, items=()).with_user(SUMMARY_PREFACE + summary)

    def history(self) -> tuple[Json, ...]:
        """Return copies of the items, in the protocol's form."""
        return tuple(json.loads(item) for item in self.items)

    def _and(self, items: Iterable[Json]) -> "Conversation":
        return replace(self, items=(*self.items, *map(encode, items)))


def begun(setup: Setup) -> Conversation:
    """Return the conversation in which nothing was said yet."""
    fields: dict[str, object] = {
        "model": setup.model,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": setup.chat_id,
    }
    if setup.instructions is not None:
        fields["instructions"] = setup.instructions
    if setup.tools:
        fields["tools"] = [tool.definition() for tool in setup.tools]
    if setup.effort is not None:
        fields["reasoning"] = {"effort": setup.effort}
    if setup.max_output_tokens is not None:
        fields["max_output_tokens"] = setup.max_output_tokens
    return Conversation(encode(fields)[:-1])


def encode(value: object) -> bytes:
    """Return compact JSON. Halves of emoji, which are no characters, are escaped; everything else is UTF-8."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def parts_of(said: Input) -> tuple[Text | Image, ...]:
    """Return the parts of an input. Raises TypeError for anything else."""
    parts = (said,) if isinstance(said, str) else tuple(said)
    found = tuple(Text(part) if isinstance(part, str) else part for part in parts)
    for part in found:
        if not isinstance(part, Text | Image):
            raise TypeError(f"A message is made of str, Text and Image, not of {type(part).__name__}.")
    return found


def input_content(said: Input) -> list[Json]:
    """Return an input in the protocol's form."""
    return [
        {"type": "input_text", "text": part.text}
        if isinstance(part, Text)
        else {"type": "input_image", "image_url": part.url}
        for part in parts_of(said)
    ]
