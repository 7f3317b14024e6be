"""Tool names in protocols that know no namespaces and fewer letters: flattened deterministically, and restored.

A name must be the same in every request of a conversation, or the provider's cache is lost at the first tool. So it is
made from the tool alone; only where two tools would share a name does the second one get a digest of its own.
"""

import re
from collections.abc import Iterator

from blake3 import blake3

from cachegate.wire.hub import Request, Text, Tool, ToolCall, ToolRef, ToolResult

MESSAGES_CHARS_MAX = 128
"""Anthropic's limit."""
OPENAI_CHARS_MAX = 64
"""OpenAI's limit, in Responses and Chat."""

_SEPARATOR = "__"
_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]")
_DIGEST_CHARS = 8

_Key = tuple[str | None, str]


def wire_name(ref: ToolRef, chars_max: int) -> str:
    """Return the tool's name as one word of at most `chars_max` letters; most names come back as they are."""
    name = _flat(ref)
    return name if name and len(name) <= chars_max and not _FOREIGN.search(name) else _digested(ref, chars_max)


def found_tool(ref: ToolRef, *, marked: bool = False) -> Text:
    """Return what a search says of a tool that it found."""
    name = f"{ref.namespace}.{ref.name}" if ref.namespace else ref.name
    return Text(f"Found tool: {name}", marked=marked, found=ref)


class ToolNames:
    """The names of one request's tools: those it declares, and those that only its history still speaks of."""

    __slots__ = ("_chars_max", "_names", "_refs")

    def __init__(self, request: Request, chars_max: int) -> None:
        self._chars_max = chars_max
        self._names: dict[_Key, str] = {}
        self._refs: dict[str, ToolRef] = {}
        for ref in _refs_of(request):
            key = (ref.namespace, ref.name)
            if key in self._names:
                continue
            name = wire_name(ref, chars_max)
            if name in self._refs:
                name = _digested(ref, chars_max)
            self._names[key] = name
            self._refs.setdefault(name, ref)

    def wire(self, ref: ToolRef) -> str:
        """Return the name to send."""
        return self._names.get((ref.namespace, ref.name)) or wire_name(ref, self._chars_max)

    def ref(self, wire_name: str) -> ToolRef:
        """Return the tool that the provider means; a name nobody gave it comes back as it is."""
        return self._refs.get(wire_name, ToolRef(wire_name))


def _refs_of(request: Request) -> Iterator[ToolRef]:
    """Yield declared tools first: they stand in front of the conversation, and say best what kind they are.

    One that a search found has its place where it was found: it must not take the name of one that was called before.
    """
    declared = [tool for tool in request.tools if isinstance(tool, Tool)]
    yield from (tool.ref for tool in declared if not tool.deferred)
    for item in request.items:
        match item:
            case ToolCall(tool=ref):
                yield ref
            case ToolResult(parts=parts):
                yield from (part.found for part in parts if isinstance(part, Text) and part.found is not None)
            case _:
                pass
    yield from (tool.ref for tool in declared if tool.deferred)
    if request.chosen_tool is not None:
        yield request.chosen_tool


def _flat(ref: ToolRef) -> str:
    return f"{ref.namespace}{_SEPARATOR}{ref.name}" if ref.namespace else ref.name


def _digested(ref: ToolRef, chars_max: int) -> str:
    """Return a readable beginning and a digest of the whole; the length keeps namespace and name apart."""
    whole = f"{'-' if ref.namespace is None else len(ref.namespace)}:{_flat(ref)}"
    digest = blake3(whole.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]
    readable = _FOREIGN.sub("_", _flat(ref))[: chars_max - _DIGEST_CHARS - 1]
    return f"{readable}_{digest}"
