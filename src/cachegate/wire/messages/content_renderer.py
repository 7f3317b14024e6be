"""Writes content blocks: what a message or a tool result of the hub is made of, in Anthropic's words."""

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from cachegate.errors import BadInput
from cachegate.wire.body import JsonObject, encode
from cachegate.wire.custom_tools import wrap
from cachegate.wire.hub import Document, Image, Json, Part, Text, ToolCall

CITATIONS = frozenset({"char_location", "page_location", "content_block_location"})
"""Citations of a document in the request. Those of searches point to blocks that a translation does not keep."""

UNPARSED = "unparsed_arguments"
"""Holds arguments that are no JSON object: the model made a mistake, and is told of it in the result that follows."""

_PDF, _PLAIN, _TEXT_TYPES = "application/pdf", "text/plain", "text/"
_DATA_SCHEME = "data:"
_IMAGE_BEGINNINGS = {"iVBOR": "image/png", "/9j/": "image/jpeg", "R0lGOD": "image/gif", "UklGR": "image/webp"}
"""How the formats that Anthropic knows begin in base64."""
_USUAL_IMAGE = "image/png"
_IMAGE_TYPES = {"image/jpg": "image/jpeg"}
"""Names that are none, and what they mean."""


@dataclass(frozen=True, slots=True)
class Block:
    """A block on its way into a request, without its cache mark."""

    fields: Json
    marked: bool = False
    """The client wants the prompt cached up to here."""
    cacheable: bool = True
    """It may have a mark."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What one side says at once."""

    role: str
    blocks: list[Block] = field(default_factory=list)


def part_blocks(parts: tuple[Part, ...]) -> Iterator[Block]:
    """Yield the blocks of what somebody says. Blank texts are left out: Anthropic refuses them."""
    for part in parts:
        match part:
            case Text():
                if part.text.strip():
                    yield Block(_text(part), part.marked)
            case Image():
                yield Block({"type": "image", "source": _image_source(part)}, part.marked)
            case Document():
                named = {} if part.name is None else {"title": part.name}
                yield Block({"type": "document", "source": _document_source(part), **named}, part.marked)


def tool_input(call: ToolCall) -> msgspec.Raw:
    """Return the arguments of a call as a JSON object, byte for byte as the model wrote them where they are one."""
    text = wrap(call.arguments) if call.tool.custom else call.arguments
    if not text.strip():
        return msgspec.Raw(b"{}")
    try:
        return msgspec.Raw(JsonObject(text.encode("utf-8", "replace")).text_bytes)
    except BadInput:
        return msgspec.Raw(encode({UNPARSED: text}))


def _text(part: Text) -> Json:
    citations = [each for each in part.annotations if each.get("type") in CITATIONS]
    return {"type": "text", "text": part.text, **({"citations": citations} if citations else {})}


def _image_source(image: Image) -> Json:
    if image.data is not None:
        return _base64_image(image.data, image.media_type)
    url = image.url or ""
    if not url.startswith(_DATA_SCHEME):
        return {"type": "url", "url": url}
    media_type, data = _data_address(url)
    return _base64_image(data, media_type)


def _base64_image(data: str, media_type: str | None) -> Json:
    begins = next((kind for start, kind in _IMAGE_BEGINNINGS.items() if data.startswith(start)), _USUAL_IMAGE)
    return {"type": "base64", "media_type": _IMAGE_TYPES.get(media_type or "", media_type or begins), "data": data}


def _document_source(document: Document) -> Json:
    if document.text is not None:
        return _plain_text(document.text)
    data, media_type, url = document.data, document.media_type, document.url or ""
    if data is None:
        if not url.startswith(_DATA_SCHEME):
            return {"type": "url", "url": url}
        media_type, data = _data_address(url)
    if media_type is not None and media_type.startswith(_TEXT_TYPES):
        return _plain_text(_decoded(data))
    if media_type not in {None, _PDF}:
        raise BadInput(f"document: a file of type {media_type} cannot be sent to this provider. Send a PDF or text.")
    return {"type": "base64", "media_type": _PDF, "data": data}


def _plain_text(text: str) -> Json:
    return {"type": "text", "media_type": _PLAIN, "data": text}


def _data_address(url: str) -> tuple[str | None, str]:
    """Return type and content of a `data:` address."""
    head, _, data = url.removeprefix(_DATA_SCHEME).partition(",")
    return head.partition(";")[0] or None, data


def _decoded(data: str) -> str:
    try:
        return base64.b64decode(data, validate=True).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        raise BadInput("document: the data of a text file is not base64. Correct it.") from None
