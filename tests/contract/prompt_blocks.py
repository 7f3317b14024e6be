"""What a provider's prompt cache sees of a request: blocks in the order of the prompt, and the settings beside them.

Written from the providers' own documents and from no code of ours. Two requests share a cached prefix as far as their
blocks are the same, and as long as the settings are. A message is cut into its parts, for it may grow part by part. A
deferred tool stands where the conversation refers to it, and not among the tools in front.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cachegate.wire.facts import Protocol

Json = Mapping[str, Any]
Blocks = tuple[str, ...]

_MARKS = {"cache_control", "copilot_cache_control"}


def blocks_of(protocol: Protocol, body: bytes) -> Blocks:
    """Return the blocks of a rendered request: tools, instructions, conversation."""
    return tuple(_text(block) for block in _BLOCKS[protocol](json.loads(body)))


def bytes_of(blocks: Blocks) -> int:
    """Return how large a prompt is."""
    return sum(len(block.encode(errors="surrogatepass")) for block in blocks)


def marked_blocks(protocol: Protocol, body: bytes) -> list[int]:
    """Return the numbers of the blocks that carry a cache mark."""
    blocks = enumerate(_BLOCKS[protocol](json.loads(body)))
    return [number for number, (_, part) in blocks if isinstance(part, dict) and _MARKS & set(part)]


def settings_of(protocol: Protocol, body: bytes) -> Json:
    """Return everything that is no block; a change of it may cost the cache as well."""
    return {name: value for name, value in json.loads(body).items() if name not in _CONVERSATION[protocol]}


def assert_extends(later: Blocks, earlier: Blocks) -> None:
    """See that the earlier request's blocks are a prefix of the later one's."""
    for number, (was, now) in enumerate(zip(earlier, later, strict=False)):
        assert now == was, f"block {number} of {len(earlier)} changed"
    assert len(later) >= len(earlier), f"the later request lacks {earlier[len(later) :]}"


def unmarked(value: Any) -> Any:
    """Return JSON without cache marks: they choose what is kept, and are no part of the prompt."""
    match value:
        case dict():
            return {name: unmarked(inner) for name, inner in value.items() if name not in _MARKS}
        case list():
            return [unmarked(inner) for inner in value]
        case _:
            return value


def _text(block: "_Block") -> str:
    return json.dumps(unmarked(list(block)), ensure_ascii=False)


_Block = tuple[Any, Any]
"""Who says it or what it is, and the JSON of it."""


def _parts(content: Any) -> list[Any]:
    """Return content as parts; a string is short for one part of text."""
    if content is None:
        return []
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _messages(body: Json) -> Iterator[_Block]:
    tools = {tool.get("name"): tool for tool in body.get("tools", [])}
    for tool in tools.values():
        if not tool.get("defer_loading"):
            yield ("tool", tool)
    for part in _parts(body.get("system")):
        yield ("system", part)
    for message in body["messages"]:
        for part in _parts(message["content"]):
            yield (message["role"], _with_definitions(part, tools))


def _with_definitions(part: Json, tools: Mapping[Any, Json]) -> Json:
    """Return a result as the model sees it: a reference is the whole definition of the tool."""
    if part["type"] != "tool_result" or not isinstance(part.get("content"), list):
        return part
    content = [tools[each["tool_name"]] if each["type"] == "tool_reference" else each for each in part["content"]]
    return {**part, "content": content}


def _responses(body: Json) -> Iterator[_Block]:
    for tool in body.get("tools", []):
        yield ("tool", tool)
    if body.get("instructions"):
        yield ("instructions", body["instructions"])
    given = body["input"]
    for item in [{"role": "user", "content": given}] if isinstance(given, str) else given:
        if item.get("type", "message") != "message":
            yield ("item", item)
            continue
        for part in _parts(item["content"]):
            text = {**part, "type": "text"} if part["type"] in {"input_text", "output_text"} else part
            yield (item["role"], text)


def _chat(body: Json) -> Iterator[_Block]:
    for tool in body.get("tools", []):
        yield ("tool", tool)
    for message in body["messages"]:
        split = {"role", "content", "tool_calls", *_MARKS}
        speaker = (message["role"], *(pair for pair in message.items() if pair[0] not in {*split, "reasoning_content"}))
        if "reasoning_content" in message:
            yield (message["role"], {"reasoning_content": message["reasoning_content"]})
        for part in _parts(message.get("content")):
            yield (speaker, part)
        for call in message.get("tool_calls", []):
            yield (message["role"], call)


_BLOCKS: Mapping[Protocol, Callable[[Json], Iterator[_Block]]] = {
    Protocol.MESSAGES: _messages,
    Protocol.RESPONSES: _responses,
    Protocol.CHAT: _chat,
}
_CONVERSATION = {
    Protocol.MESSAGES: {"tools", "system", "messages"},
    Protocol.RESPONSES: {"tools", "instructions", "input"},
    Protocol.CHAT: {"tools", "messages"},
}
