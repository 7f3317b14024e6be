"""The items of a Responses conversation: what was said, called, answered, thought and compacted."""

from collections.abc import Callable, Mapping

from cachegate.wire.body import encode
from cachegate.wire.compaction import open_summary
from cachegate.wire.envelopes import PREFIX, open_envelope
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
    Text,
    Tool,
    ToolCall,
    ToolRef,
    ToolResult,
)
from cachegate.wire.responses.tool_parser import CLIENT_SEARCH, parse_tools
from cachegate.wire.responses.typed_fields import Field
from cachegate.wire.tool_names import found_tool

DROPPED_ITEMS: Mapping[str, str] = {
    "web_search_call": "a search that the provider ran; what it found stands in the answer that follows",
    "file_search_call": "as web_search_call",
    "code_interpreter_call": "as web_search_call",
    "image_generation_call": "a picture that the provider drew; no other protocol takes one from the assistant",
    "computer_call": "a tool of OpenAI's own, which is not offered to another provider",
    "computer_call_output": "as computer_call",
    "local_shell_call": "as computer_call",
    "local_shell_call_output": "as computer_call",
    "shell_call": "as computer_call",
    "shell_call_output": "as computer_call",
    "apply_patch_call": "as computer_call",
    "apply_patch_call_output": "as computer_call",
    "mcp_list_tools": "a server that the provider asks itself",
    "mcp_call": "as mcp_list_tools",
    "mcp_approval_request": "as mcp_list_tools",
    "mcp_approval_response": "as mcp_list_tools",
    "program": "as computer_call",
    "program_output": "as computer_call",
    "ghost_snapshot": "a note of Codex to itself",
}
"""Items that are left out, and why."""

HANDLED_ELSEWHERE = frozenset({"additional_tools", "configuration_update", "compaction_trigger"})
"""Items that say something about the whole request; `request_parser` reads them."""

NOTHING_FOUND = "No tool was found."
"""What the model is told of a search without any result."""

_ROLES: Mapping[object, Role] = {role.value: role for role in Role}
_TEXT_TYPES = frozenset({"input_text", "output_text", "text"})
_DATA_URL = "data:"


def parse_item(item: Field) -> tuple[Item, ...]:
    """Return what an item says; nothing for one that is dropped. Raises BadInput for one that cannot be carried."""
    kind = item.field("type")
    if kind.absent or kind.value == "message":
        return (_message(item),)
    name = kind.text()
    if name in DROPPED_ITEMS or name in HANDLED_ELSEWHERE:
        return ()
    if name not in _PARSERS:
        raise kind.refused("items of this type cannot be carried to a provider of another protocol; leave it out")
    return _PARSERS[name](item)


def parse_parts(content: Field) -> tuple[Part, ...]:
    """Read a text or an array of parts."""
    if isinstance(content.value, str):
        return (Text(content.value),)
    return tuple(_part(part) for part in content.items())


def loaded_tools(item: Field) -> tuple[Tool, ...]:
    """Return the tools that a search found: from here on they can be called."""
    if item.field("type").value != "tool_search_output" or not _by_client(item):
        return ()
    return tuple(tool for tool in parse_tools(item.field("tools")) if isinstance(tool, Tool))


def _message(item: Field) -> Message:
    role = item.field("role")
    if not isinstance(role.value, str) or role.value not in _ROLES:
        raise role.refused("user, assistant, system or developer is needed here")
    content = item.field("content")
    if content.absent:
        raise content.refused("a text or an array of parts is needed here")
    return Message(_ROLES[role.value], parse_parts(content), item.field("phase").optional_text())


def _part(part: Field) -> Part:
    kind = part.field("type")
    marked = isinstance(part.field("prompt_cache_breakpoint").value, dict)
    match kind.value:
        case str(name) if name in _TEXT_TYPES:
            return Text(part.field("text").text(), annotations=_annotations(part), marked=marked)
        case "refusal":
            return Text(part.field("refusal").text(), refusal=True)
        case "input_image":
            return _image(part, marked=marked)
        case "input_file":
            return _document(part, marked=marked)
        case _:
            raise kind.refused("parts of this type cannot be carried to a provider of another protocol")


def _annotations(part: Field) -> tuple[Mapping[str, object], ...]:
    return tuple(annotation.mapping() for annotation in part.field("annotations").items())


def _image(part: Field, *, marked: bool) -> Image:
    _refuse_stored(part)
    url, detail = part.field("image_url").text(), part.field("detail").optional_text()
    inline = _data_url(url)
    if inline is None:
        return Image(url=url, detail=detail, marked=marked)
    return Image(data=inline[1], media_type=inline[0], detail=detail, marked=marked)


def _document(part: Field, *, marked: bool) -> Document:
    _refuse_stored(part)
    name, url = part.field("filename").optional_text(), part.field("file_url").optional_text()
    if url is not None:
        return Document(url=url, name=name, marked=marked)
    data = part.field("file_data").text()
    inline = _data_url(data)
    if inline is None:
        return Document(data=data, name=name, marked=marked)
    return Document(data=inline[1], media_type=inline[0], name=name, marked=marked)


def _refuse_stored(part: Field) -> None:
    stored = part.field("file_id")
    if not stored.absent:
        raise stored.refused("a file stored at OpenAI is not there for another provider; send its content instead")


def _data_url(url: str) -> tuple[str | None, str] | None:
    """Return media type and data of a base64 data URL; None for anything else."""
    if not url.startswith(_DATA_URL):
        return None
    head, comma, data = url.removeprefix(_DATA_URL).partition(",")
    media_type, *options = head.split(";")
    return (media_type or None, data) if comma and "base64" in options else None


def _function_call(item: Field) -> tuple[Item, ...]:
    ref = ToolRef(item.field("name").text(), item.field("namespace").optional_text())
    return (ToolCall(item.field("call_id").text(), ref, item.field("arguments").text()),)


def _custom_call(item: Field) -> tuple[Item, ...]:
    ref = ToolRef(item.field("name").text(), item.field("namespace").optional_text(), custom=True)
    return (ToolCall(item.field("call_id").text(), ref, item.field("input").text()),)


def _function_result(item: Field) -> tuple[Item, ...]:
    return (ToolResult(item.field("call_id").text(), _output(item)),)


def _custom_result(item: Field) -> tuple[Item, ...]:
    return (ToolResult(item.field("call_id").text(), _output(item), custom=True),)


def _output(item: Field) -> tuple[Part, ...]:
    output = item.field("output")
    if output.absent:
        raise output.refused("what the tool answered is needed here")
    return parse_parts(output) if output.value != "" else ()


def _search_call(item: Field) -> tuple[Item, ...]:
    if not _by_client(item):
        return ()
    arguments = encode(item.field("arguments").value).decode()
    return (ToolCall(item.field("call_id").text(), CLIENT_SEARCH, arguments),)


def _search_result(item: Field) -> tuple[Item, ...]:
    """Tell the names only: the tools themselves are declared with all others."""
    if not _by_client(item):
        return ()
    parts = tuple(found_tool(tool.ref) for tool in loaded_tools(item)) or (Text(NOTHING_FOUND),)
    return (ToolResult(item.field("call_id").text(), parts),)


def _by_client(item: Field) -> bool:
    """Whether the client runs the search; what OpenAI searches itself has no place elsewhere."""
    return item.field("execution").value != "server" and isinstance(item.field("call_id").value, str)


def _reasoning(item: Field) -> tuple[Item, ...]:
    """Read thoughts. An envelope of ours says whose they are; a damaged one is nobody's."""
    texts = [part.field("text").text() for name in ("summary", "content") for part in item.field(name).items()]
    opaque = item.field("encrypted_content").optional_text() or None
    envelope = open_envelope(opaque) if opaque is not None else None
    if envelope is not None:
        return (
            Reasoning(
                envelope.text,
                opaque=envelope.opaque or None,
                origin=envelope.origin,
                item_id=envelope.item_id or None,
                redacted=envelope.redacted,
                binding=envelope.binding,
            ),
        )
    if opaque is not None and opaque.startswith(PREFIX):
        return ()
    item_id = item.field("id").optional_text()
    return (Reasoning("\n\n".join(texts), opaque=opaque, origin=Protocol.RESPONSES, item_id=item_id),)


def _compaction(item: Field) -> tuple[Item, ...]:
    content = item.field("encrypted_content")
    if content.absent:
        return ()
    value = content.text()
    summary = open_summary(value)
    if summary is not None:
        return (Compacted(text=summary),)
    envelope = open_envelope(value)
    if envelope is not None:
        return (Compacted(opaque=envelope.opaque, origin=envelope.origin, binding=envelope.binding),)
    return (Compacted(opaque=value, origin=Protocol.RESPONSES),)


_PARSERS: Mapping[str, Callable[[Field], tuple[Item, ...]]] = {
    "function_call": _function_call,
    "function_call_output": _function_result,
    "custom_tool_call": _custom_call,
    "custom_tool_call_output": _custom_result,
    "tool_search_call": _search_call,
    "tool_search_output": _search_result,
    "reasoning": _reasoning,
    "compaction": _compaction,
    "compaction_summary": _compaction,
    "context_compaction": _compaction,
}
