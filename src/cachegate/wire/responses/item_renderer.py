"""The items of a conversation in the Responses protocol: each from itself alone, so that a prefix stays a prefix.

An item that cannot be said is left out, wherever it stands: the conversation before and after it has the same bytes.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import assert_never

from cachegate.errors import BadInput
from cachegate.wire.compaction import summary_message
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import (
    Compacted,
    Document,
    Image,
    Item,
    Json,
    Message,
    Part,
    Reasoning,
    Role,
    Target,
    Text,
    ToolCall,
    ToolResult,
)
from cachegate.wire.plain_thoughts import goes_back
from cachegate.wire.quirks import Quirk
from cachegate.wire.responses.tool_renderer import Rendered, ToolRenderer

TOOL_ERROR = "[The tool failed.]\n"
"""In front of a tool's answer that is an error: the protocol has no field that says so."""

ANNOTATIONS = frozenset({"url_citation", "file_citation", "container_file_citation", "file_path"})
"""Citations in this protocol's form; another's are left out."""

_SIGNATURES: Mapping[str, str] = {
    "/9j/": "image/jpeg", "iVBOR": "image/png", "R0lGOD": "image/gif", "UklGR": "image/webp",
}  # fmt: skip
"""How base64 of each kind of picture begins."""
_UNKNOWN_IMAGE, _UNKNOWN_FILE = "image/png", "application/pdf"
_ATTRIBUTE = re.compile(r'["<>\n\r]')
_FILE_NAMES: Mapping[str, str] = {"application/pdf": "document.pdf"}


class ItemRenderer:
    """Renders the items of one request."""

    __slots__ = ("_developer", "_target", "_tools")

    def __init__(self, target: Target, tools: ToolRenderer) -> None:
        self._target = target
        self._developer = Role.SYSTEM if Quirk.NO_DEVELOPER in target.quirks else Role.DEVELOPER
        self._tools = tools

    def items(self, item: Item) -> list[Rendered]:
        """Return an item as it goes into `input`; nothing for thoughts that only another provider can read."""
        match item:
            case Message():
                return self._message(item)
            case ToolCall():
                return [self._tools.call(item)]
            case ToolResult():
                return [self._result(item)]
            case Reasoning():
                return self._reasoning(item)
            case Compacted():
                return self._compacted(item)
            case _:
                assert_never(item)

    def answer(self, call: ToolCall, result: ToolResult) -> Rendered:
        """Return a result as the item that answers this call."""
        answered = replace(result, call_id=call.call_id, custom=call.tool.custom)
        return self._tools.found(answered) if self._tools.searches(call) else self._result(answered)

    def readable(self, origin: Protocol | None, binding: str | None) -> bool:
        """Whether the upstream made an opaque value; one without a binding is the client's own of this protocol."""
        return origin is Protocol.RESPONSES and binding in (None, self._target.binding)

    def _message(self, message: Message) -> list[Rendered]:
        if not message.parts:
            return []
        role = self._developer if message.role is Role.DEVELOPER else message.role
        said = message.role is Role.ASSISTANT
        content = [_said(part) if said else _given(part) for part in message.parts]
        phase = {"phase": message.phase} if said and message.phase and self._tools.native else {}
        return [{"type": "message", "role": role.value, **phase, "content": content}]

    def _result(self, result: ToolResult) -> Rendered:
        parts = _failed(result.parts) if result.is_error else result.parts
        match parts:
            case ():
                output: object = ""
            case (Text() as only,):
                output = only.text
            case _:
                output = [_given(part) for part in parts]
        return {"type": self._tools.result_type(custom=result.custom), "call_id": result.call_id, "output": output}

    def _reasoning(self, reasoning: Reasoning) -> list[Rendered]:
        named = {"id": reasoning.item_id} if reasoning.item_id else {}
        if goes_back(reasoning, self._target, Protocol.RESPONSES):
            said = [{"type": "reasoning_text", "text": reasoning.text}]
            return [{"type": "reasoning", **named, "summary": [], "content": said}]
        if reasoning.opaque is None or not self.readable(reasoning.origin, reasoning.binding):
            return []
        summary = [{"type": "summary_text", "text": reasoning.text}] if reasoning.text else []
        return [{"type": "reasoning", **named, "summary": summary, "encrypted_content": reasoning.opaque}]

    def _compacted(self, compacted: Compacted) -> list[Rendered]:
        if compacted.opaque is not None and self.readable(compacted.origin, compacted.binding):
            return [{"type": "compaction", "encrypted_content": compacted.opaque}]
        return self._message(summary_message(compacted))


def _failed(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Mark a tool's answer as an error."""
    match parts:
        case (Text() as first, *rest):
            return (replace(first, text=TOOL_ERROR + first.text), *rest)
        case _:
            return (Text(TOOL_ERROR), *parts)


def native_citation(note: Json) -> bool:
    """Whether a citation is in this protocol's form; Chat's has the same types, with its fields one level deeper."""
    return note.get("type") in ANNOTATIONS and "url_citation" not in note


def _said(part: Part) -> Rendered:
    """Render what the assistant said."""
    match part:
        case Text(refusal=True):
            return {"type": "refusal", "refusal": part.text}
        case Text():
            cited = [note for note in part.annotations if native_citation(note)]
            return {"type": "output_text", "text": part.text, **({"annotations": cited} if cited else {})}
        case Image() | Document():
            raise BadInput(
                "messages: an assistant's message holds a picture or a file, which this provider's protocol does not "
                "take. Send it in a user's message."
            )
        case _:
            assert_never(part)


def _given(part: Part) -> Rendered:
    """Render what the model is given to read."""
    match part:
        case Text():
            return {"type": "input_text", "text": part.text}
        case Image():
            detail = {} if part.detail is None else {"detail": part.detail}
            return {"type": "input_image", "image_url": _image_url(part), **detail}
        case Document():
            return _document(part)
        case _:
            assert_never(part)


def _image_url(image: Image) -> str:
    if image.url is not None:
        return image.url
    data = image.data or ""
    guessed = next((kind for begin, kind in _SIGNATURES.items() if data.startswith(begin)), _UNKNOWN_IMAGE)
    return f"data:{image.media_type or guessed};base64,{data}"


def _document(document: Document) -> Rendered:
    """Render a file; a plain text is one that the model can read as it is."""
    if document.text is not None:
        titled = f' name="{_ATTRIBUTE.sub("_", document.name)}"' if document.name else ""
        return {"type": "input_text", "text": f"<document{titled}>\n{document.text}\n</document>"}
    if document.url is not None:
        named = {} if document.name is None else {"filename": document.name}
        return {"type": "input_file", **named, "file_url": document.url}
    media_type = document.media_type or _UNKNOWN_FILE
    # The API wants a name beside the data of a file.
    filename = document.name or _FILE_NAMES.get(media_type, "document")
    return {"type": "input_file", "filename": filename, "file_data": f"data:{media_type};base64,{document.data or ''}"}
