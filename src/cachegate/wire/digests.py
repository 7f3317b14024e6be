"""The keyed digests of a request's parts (R15), with the noise left out that changes no cache or comes from no change.

Noise: cache marks; the order of tools; a text given as one block instead of a string; the billing line that Claude Code
puts in front of its instructions, which held a nonce in some versions. Items are digested as they stand in the body and
cleaned as bytes: decoding a 4 MB conversation for this would cost more than relaying it.
"""

import hashlib
import re
from collections.abc import Sequence

import msgspec

from cachegate.guard.fingerprint import ITEM_BYTES, ITEMS_MAX, Fingerprint
from cachegate.wire.body import JsonObject, decode, encode, member
from cachegate.wire.facts import Protocol, Sender

_PART_BYTES = 8
_BLOCK_BYTES = 64
"""Of sha256."""
_BILLING_LINE = "x-anthropic-billing-header"
_INSTRUCTING_ROLES = frozenset({"system", "developer"})
_LEADING_MAX = 16
"""Items in front that are looked at for instructions; real clients have at most three there."""
_CONTENT_WITHIN = 256
"""`content` stands this near the beginning of an item, or is left as it is."""

_MARK_NAMES = {
    Protocol.MESSAGES: b'"cache_control"',
    Protocol.RESPONSES: b'"prompt_cache_breakpoint"',
    Protocol.CHAT: b'cache_control"',  # also of a whole message, which has another beginning
}
_MARK = rb'"(?:(?:copilot_)?cache_control|prompt_cache_breakpoint)"\s*:\s*(?:\{[^{}]*\}|null)'
_MARKS = re.compile(rb"\s*,\s*" + _MARK + rb"|" + _MARK + rb"\s*,?\s*")
"""Only a key can match: inside a string its quotes would be escaped. So it is with the next two."""
_ONE_BLOCK = re.compile(rb'("content"\s*:\s*)\[\s*\{\s*"type"\s*:\s*"(?:text|input_text)"\s*,\s*"text"\s*:\s*(?=")')
_BLOCK_TYPE = b'"type":'


class _Head(msgspec.Struct):
    """An item, as far as its kind."""

    type: str | None = None
    role: str | None = None


_HEAD = msgspec.json.Decoder(_Head)


class Digester:
    """Digests one request under the gateway's secret. Nothing of the content can be read from what it returns."""

    def __init__(self, protocol: Protocol, body: JsonObject, key: bytes) -> None:
        self._protocol = protocol
        self._body = body
        # A conversation is some thousand small items: for those sha256 is twice as fast as blake3, whose width helps
        # only long inputs. The key fills a whole block in front, so that it is hashed once and then copied.
        self._keyed = hashlib.sha256(key.ljust(_BLOCK_BYTES, b"\0"))
        self._mark = _MARK_NAMES[protocol]
        self._marked = self._mark in body.text_bytes

    def fingerprint(self, sender: Sender, instructions: str, conversation: str) -> Fingerprint:
        """Return the digests; the last two parameters name the fields that hold these parts."""
        body = self._body
        raw = [bytes(item) for item in body.items(conversation)] or [part for part in [body.raw(conversation)] if part]
        heads = [_head(item) for item in raw[:_LEADING_MAX]]
        opened = next((at for at, head in enumerate(heads) if _answers(head)), len(heads))
        leading = [at for at, head in enumerate(heads[:opened]) if _instructs(head)]
        kept = [item for at, item in enumerate(raw) if at >= opened or at not in leading]
        kept_heads = [head for at, head in enumerate(heads) if at >= opened or at not in leading]
        items = [self.digest(self.plain(item))[:ITEM_BYTES] for item in kept[:ITEMS_MAX]]
        opening = next((at for at, head in enumerate(kept_heads) if head.role in {"user", None}), None)
        tools = [self.plain(bytes(tool)) for tool in body.items("tools")]
        texts = [_texts(body.value(instructions))]
        for item, head in ((raw[at], heads[at]) for at in leading):
            if head.type == "additional_tools":
                tools += [self.plain(tool) for tool in _inner_tools(item)]
            else:
                texts.append(self.plain(item))
        return Fingerprint(
            tools=self.digest(*sorted(self.digest(tool) for tool in tools)),
            instructions=self.digest(*texts),
            opening=b"" if opening is None else items[opening],
            thinking=self.digest(*_thinking(body)),
            speed=self.digest(body.raw("speed"), body.raw("service_tier")),
            items=b"".join(items),
            items_count=len(kept),
            window=self.digest(sender.header("x-codex-window-id").encode()),
            compacted=sender.header("x-claude-code-context-compacted") != "",
            marked=self._protocol is not Protocol.MESSAGES or self._marked,
        )

    def plain(self, raw: bytes) -> bytes:
        """Return an item without its noise; what has none comes back as it is."""
        if self._marked and self._mark in raw:
            raw = _MARKS.sub(b"", raw)
        block = _ONE_BLOCK.search(raw, 0, _CONTENT_WITHIN)
        if block is None or raw.count(_BLOCK_TYPE, block.start()) != 1:
            return raw
        end = raw.rfind(b"]")
        text = raw[block.end() : end].rstrip().removesuffix(b"}").rstrip()
        return b"%b%b%b%b" % (raw[: block.start()], block.group(1), text, raw[end + 1 :])

    def digest(self, *parts: bytes) -> bytes:
        """Return the digest of parts; their lengths are part of it."""
        digest = self._keyed.copy()
        if len(parts) == 1:
            digest.update(parts[0])
            return digest.digest()[:_PART_BYTES]
        for part in parts:
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
        return digest.digest()[:_PART_BYTES]


def _instructs(head: _Head) -> bool:
    """Whether an item instructs or declares tools: before the first answer that makes it part of the instructions.

    Claude Code puts its `role: system` items behind the first message of the user.
    """
    return head.role in _INSTRUCTING_ROLES or head.type == "additional_tools"


def _answers(head: _Head) -> bool:
    """Whether an item comes from the model, so that the conversation has begun."""
    return head.role == "assistant" or (head.role is None and head.type not in {None, "message", "additional_tools"})


def _head(item: bytes) -> _Head:
    try:
        return _HEAD.decode(item)
    except (msgspec.DecodeError, RecursionError):
        return _Head()


def _texts(value: object) -> bytes:
    """Return the texts of top-level instructions, given as a string or as blocks, without the billing line."""
    blocks = value if isinstance(value, list) else [value]
    texts = [block.get("text") if isinstance(block, dict) else block for block in blocks]
    return encode([text for text in texts if isinstance(text, str) and not text.startswith(_BILLING_LINE)])


def _inner_tools(item: bytes) -> Sequence[bytes]:
    """Return the tools of an `additional_tools` item."""
    value = decode(item)
    tools = value.get("tools") if isinstance(value, dict) else None
    return [encode(tool) for tool in tools] if isinstance(tools, list) else [item]


def _thinking(body: JsonObject) -> tuple[bytes, ...]:
    """Return what sets the effort: Messages' `thinking` and `output_config.effort`, Responses' `reasoning.effort`."""
    efforts = (member(body.value("output_config"), "effort"), member(body.value("reasoning"), "effort"))
    return (body.raw("thinking"), *(encode(effort) for effort in efforts))
