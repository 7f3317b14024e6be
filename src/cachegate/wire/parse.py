"""From a body and headers to an `InferenceRequest`; what differs per protocol is which fields hold what."""

from dataclasses import dataclass, field

import msgspec

from cachegate.errors import BadInput
from cachegate.wire.body import JsonObject
from cachegate.wire.clients import CLASSIFIER, Asked, as_classifier, identify
from cachegate.wire.digests import Digester
from cachegate.wire.facts import Content, Facts, InferenceRequest, Operation, Protocol, Sender

MODEL_CHARS_MAX = 256
"""No provider has a model name near this long."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The names of the fields that a model has to read."""

    conversation: str
    instructions: str


SHAPES = {
    Protocol.MESSAGES: Shape("messages", "system"),
    Protocol.RESPONSES: Shape("input", "instructions"),
    Protocol.CHAT: Shape("messages", ""),
}


class _Item(msgspec.Struct):
    """An item of a conversation, as far as its kind."""

    type: str | None = None
    role: str | None = None


_ITEM = msgspec.json.Decoder(_Item)
_LEADING_ITEMS = 4
"""Codex puts its `additional_tools` item first or second."""
_INSTRUCTING = frozenset({"system", "developer"})


@dataclass(frozen=True, slots=True)
class Received:
    """A request as the server received it."""

    protocol: Protocol
    operation: Operation
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    query: str
    body: bytes = field(repr=False)
    wire_body: bytes = field(repr=False)


def parse(received: Received, key: bytes) -> InferenceRequest:
    """Read what the gateway must know; `key` is the secret of the digests.

    Raises BadInput for a body that is no JSON object or names no model.
    """
    body = JsonObject(received.body)
    model = body.text("model")
    if not model:
        raise BadInput("model: the request names no model. Set `model` to a non-empty string.")
    if len(model) > MODEL_CHARS_MAX:
        raise BadInput(f"model: the name has {len(model)} characters; at most {MODEL_CHARS_MAX} are accepted.")
    shape = SHAPES[received.protocol]
    items = body.items(shape.conversation)
    asked = Asked(
        sender=Sender.of(received.headers),
        body=body,
        operation=received.operation,
        instructions=body.raw(shape.instructions) or _leading_instructions(items),
        last_item=bytes(items[-1]) if items else b"",
    )
    caller, request_class = identify(asked)
    tools_inside = sum(len(memoryview(item)) for item in items[:_LEADING_ITEMS] if _is_tools(item))
    conversation = body.size(shape.conversation) - tools_inside
    facts = Facts(
        model=model,
        stream=body.raw("stream") == b"true",
        caller=caller,
        request_class=request_class,
        conversation_bytes=conversation,
        input_bytes=conversation + tools_inside + body.size(shape.instructions) + body.size("tools"),
        model_span=body.spans["model"],
        fingerprint=Digester(received.protocol, body, key).fingerprint(
            asked.sender, shape.instructions, shape.conversation
        ),
    )
    return InferenceRequest(
        protocol=received.protocol,
        operation=received.operation,
        headers=received.headers,
        query=received.query,
        content=Content(received.body, received.wire_body),
        facts=as_classifier(facts) if caller == CLASSIFIER else facts,
    )


def _leading_instructions(items: list[msgspec.Raw]) -> bytes:
    """Return the first item if it instructs: where the AI SDK, and so opencode, puts a system prompt in Responses."""
    return bytes(items[0]) if items and _kind(items[0]).role in _INSTRUCTING else b""


def _is_tools(item: msgspec.Raw) -> bool:
    """Whether an item declares tools: newer Codex models carry them there, and they are no conversation (R10)."""
    return _kind(item).type == "additional_tools"


def _kind(item: msgspec.Raw) -> _Item:
    try:
        return _ITEM.decode(item)
    except (msgspec.DecodeError, RecursionError):
        return _Item()
