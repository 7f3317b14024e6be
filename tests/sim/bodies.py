"""What a client sends, as bytes: put together from parts that it keeps, so that their sizes are known."""

import json
from dataclasses import dataclass, field
from random import Random

from cachegate.wire.facts import Operation, Protocol
from cachegate.wire.parse import Received
from sim.truth import CANARY, Ask, Budget, Parts

_FILLER = f"{CANARY} words of a long conversation that nobody may read. " * 2_000
_FIELDS = {
    # protocol: instructions, conversation
    Protocol.MESSAGES: ("system", "messages"),
    Protocol.RESPONSES: ("instructions", "input"),
}


def text(dice: Random, size: int) -> str:
    """Return a text that no other one equals."""
    return f"{dice.getrandbits(64):x} {_FILLER[:size]}"


def item(dice: Random, role: str, size: int) -> bytes:
    """Return one item of a conversation."""
    return json.dumps({"role": role, "content": text(dice, size)}).encode()


def tools(dice: Random, size: int) -> bytes:
    """Return a list of one tool."""
    return json.dumps([{"name": "tool", "description": text(dice, size)}]).encode()


@dataclass(slots=True)
class Talk:
    """The conversation of one client."""

    parts: Parts
    items: list[bytes]

    @property
    def size(self) -> int:
        """Bytes of the conversation in a body."""
        return sum(map(len, self.items)) + len(self.items) + 1


@dataclass(frozen=True, slots=True)
class Purpose:
    """What one request is for, beyond the conversation."""

    act: str
    mode: str = "chat"
    operation: Operation = Operation.GENERATE
    streamed: bool = True
    headers: tuple[tuple[str, str], ...] = field(default=())
    """What tells the gateway the mode."""


@dataclass(frozen=True, slots=True)
class Address:
    """Who sends, and to whom."""

    client: str
    protocol: Protocol
    tenant: str
    provider: str
    model: str
    caller: str | None
    headers: tuple[tuple[str, str], ...]
    """What tells the gateway the caller."""
    spare: str = ""
    """Provider that the gateway asks when the first one does not begin."""

    @property
    def name(self) -> str:
        """The model as the client names it: a rule of the gateway, where there is a spare provider."""
        target = f"{self.provider}/{self.model}"
        return f"{target} else {self.spare}" if self.spare else target


def ask(number: int, address: Address, purpose: Purpose, talk: Talk, dice: Random) -> Ask:
    """Return the request that sends a conversation as it stands."""
    instructions, conversation = _FIELDS[address.protocol]
    guarded = purpose.operation is not Operation.COUNT_TOKENS
    parts, items = talk.parts, b"[" + b",".join(talk.items) + b"]"
    fields = {
        "model": json.dumps(address.name if guarded else f"{address.provider}/{address.model}").encode(),
        "stream": b"true" if purpose.streamed else b"false",
        instructions: parts.instructions,
        "tools": parts.tools,
        conversation: items,
        **_settings(address.protocol, parts),
    }
    body = b"{" + b",".join(b'"%b":%b' % (name.encode(), value) for name, value in fields.items()) + b"}"
    headers = (*address.headers, *purpose.headers)
    return Ask(
        number=number,
        client=address.client,
        act=purpose.act,
        budget=Budget(purpose.mode, address.tenant, address.provider, address.model, address.caller),
        parts=parts,
        items=tuple(talk.items),
        conversation_bytes=len(items),
        input_bytes=len(items) + len(parts.tools) + len(parts.instructions),
        received=Received(address.protocol, purpose.operation, headers, "", body, body),
        dice=Random(dice.getrandbits(64)),
        guarded=guarded,
        streamed=purpose.streamed,
        spare=address.spare if guarded else "",
    )


def _settings(protocol: Protocol, parts: Parts) -> dict[str, bytes]:
    """Return the fields of thinking and speed; what is not set is not sent."""
    if protocol is Protocol.MESSAGES:
        effort = {"thinking": b'{"type":"enabled","budget_tokens":%d}' % len(parts.thinking)} if parts.thinking else {}
        return {**effort, **({"speed": json.dumps(parts.speed).encode()} if parts.speed else {})}
    effort = {"reasoning": b'{"effort":"%b"}' % parts.thinking.encode()} if parts.thinking else {}
    return {**effort, **({"service_tier": json.dumps(parts.speed).encode()} if parts.speed else {})}
