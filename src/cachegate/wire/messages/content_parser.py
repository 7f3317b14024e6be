"""Reads the content of a message: which blocks have a part of the hub, which go on as text, and which cannot."""

from collections.abc import Iterator

from cachegate.errors import BadInput
from cachegate.wire.body import encode
from cachegate.wire.hub import Document, Image, Json, Part, Text, ToolRef
from cachegate.wire.messages.request_json import JsonNode
from cachegate.wire.tool_names import found_tool

CARRIED_AS_TEXT = {
    "advisor_tool_result": "what a tool of Anthropic's servers answered",
    "bash_code_execution_tool_result": "what a tool of Anthropic's servers answered",
    "browser_state": "the state of a browser, as JSON",
    "code_execution_tool_result": "what a tool of Anthropic's servers answered",
    "mcp_tool_result": "what a tool of Anthropic's servers answered",
    "mcp_tool_use": "the call of a tool of Anthropic's servers",
    "search_result": "title, source and text",
    "server_tool_use": "the call of a tool of Anthropic's servers",
    "text_editor_code_execution_tool_result": "what a tool of Anthropic's servers answered",
    "tool_reference": "a deferred tool that was found, by its name",
    "tool_search_tool_result": "what a tool of Anthropic's servers answered",
    "web_fetch_tool_result": "what a tool of Anthropic's servers answered",
    "web_search_tool_result": "what a tool of Anthropic's servers answered",
}
"""Blocks of one provider only, which another model can at least read."""

REFUSED = {
    "container_upload": "a file in a container of Anthropic's, which no other provider can open",
    "file": "a file of Anthropic's Files API, which no other provider can open; send its content",
}
"""Blocks and sources that cannot be carried."""

DROPPED_BLOCKS = {
    "fallback": "tells Anthropic where its own fallback took place",
    "mcp_tool_listing": "tells Anthropic which tools its own MCP client found",
}
"""Blocks that say nothing to a model."""

FAILED = "[The tool failed, and returned:]"
"""Begins the result of a tool that failed with a picture: as an error, Anthropic takes text only."""

_UNREADABLE = frozenset({"cache_control", "caller", "encrypted_content", "encrypted_index", "encrypted_stdout"})
"""Fields that a block carried as text leaves out: nobody but Anthropic can read them."""


def content_parts(node: JsonNode, name: str = "content") -> tuple[Part, ...]:
    """Return content of parts only: a string, or blocks. Raises BadInput for a block that is none."""
    raw = node.raw(name)
    if raw[:1] == b'"':
        return (Text(node.needed_text(name)),)
    return tuple(part for block in node.nodes(name) for part in block_parts(block))


def block_parts(block: JsonNode) -> Iterator[Part]:
    """Yield what one block says; a document made of blocks says several things."""
    match kind := block.needed_text("type"):
        case "text":
            yield Text(block.text("text") or "", annotations=_citations(block), marked=is_marked(block))
        case "image":
            yield _image(block)
        case "document":
            yield from _document(block)
        case "tool_reference":
            yield found_tool(ToolRef(block.needed_text("tool_name")), marked=is_marked(block))
        case _ if kind in CARRIED_AS_TEXT:
            yield Text(_as_text(kind, block), marked=is_marked(block))
        case _ if kind in DROPPED_BLOCKS:
            return
        case _:
            reason = REFUSED.get(kind, "a block that cannot be translated for this provider")
            raise BadInput(f"{block.at('type')}: `{kind}` is {reason}.")


def is_marked(node: JsonNode) -> bool:
    """Whether the client asked to cache the prompt up to here."""
    return node.json("cache_control") is not None


def _citations(block: JsonNode) -> tuple[Json, ...]:
    """Return the citations; requests to cite (`{"enabled": true}`) stand in the same field of other blocks."""
    citations = block.value("citations")
    return tuple(each for each in citations if isinstance(each, dict)) if isinstance(citations, list) else ()


def _source(block: JsonNode) -> JsonNode:
    source = block.node("source")
    if source is None:
        raise block.wrong("source", "an object")
    return source


def _image(block: JsonNode) -> Image:
    source = _source(block)
    match kind := source.needed_text("type"):
        case "base64":
            return Image(data=source.needed_text("data"), media_type=source.text("media_type"), marked=is_marked(block))
        case "url":
            return Image(url=source.needed_text("url"), marked=is_marked(block))
        case _:
            raise _bad_source(source, kind)


def _document(block: JsonNode) -> Iterator[Part]:
    source, title, marked = _source(block), block.text("title"), is_marked(block)
    context = block.text("context")
    if context:
        yield Text(context)
    match kind := source.needed_text("type"):
        case "base64":
            yield Document(
                data=source.needed_text("data"), media_type=source.text("media_type"), name=title, marked=marked
            )
        case "text":
            yield Document(
                text=source.needed_text("data"), media_type=source.text("media_type"), name=title, marked=marked
            )
        case "url":
            yield Document(url=source.needed_text("url"), name=title, marked=marked)
        case "content":
            if title:
                yield Text(title)
            yield from content_parts(source)
        case _:
            raise _bad_source(source, kind)


def _bad_source(source: JsonNode, kind: str) -> BadInput:
    reason = REFUSED.get(kind, "a source that cannot be translated for this provider")
    return BadInput(f"{source.at('type')}: `{kind}` is {reason}.")


def _as_text(kind: str, block: JsonNode) -> str:
    match kind:
        case "search_result":
            texts = [part.text for part in content_parts(block) if isinstance(part, Text)]
            return "\n".join([block.text("title") or "", block.text("source") or "", "", *texts])
        case _:
            return encode(_readable(block.whole())).decode()


def _readable(value: object) -> object:
    if isinstance(value, dict):
        return {name: _readable(part) for name, part in value.items() if name not in _UNREADABLE}
    if isinstance(value, list):
        return [_readable(part) for part in value]
    return value
