"""The top level of a JSON body: every field a raw slice, nothing below it decoded until somebody asks.

A 4 MB conversation is relayed, not understood: decoding it into objects would cost more than all the rest.
"""

import re
from collections.abc import Callable
from typing import TypeVar

import msgspec

from cachegate.errors import BadInput

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_ANY = msgspec.json.Decoder()

_HEX = rb"[0-9a-fA-F]{2}"
_HIGH, _LOW, _EITHER = (rb"u[dD]" + third + _HEX for third in (rb"[89abAB]", rb"[c-fC-F]", rb"[89a-fA-F]"))
# Possessive throughout, for a body is a stranger's: backtracking took minutes of some spaces, gigabytes of a long key.
_SOUND = rb"(?:[^\\]++|\\(?:" + _HIGH + rb"\\" + _LOW + rb"|(?!" + _EITHER + rb").))*+"
_TO_LONE = re.compile(rb"(" + _SOUND + rb")(\\" + _EITHER + rb")?", re.DOTALL)
"""Everything up to a lone surrogate, or to the end."""
_KEY = re.compile(rb'[\s,{]*+"[^"\\]*+(?:\\.[^"\\]*+)*+"\s*+:\s*+', re.DOTALL)
_END = re.compile(rb"\s*+(?:\{\s*+)?\}\s*+")

_T = TypeVar("_T")


class JsonObject:
    """The fields of a body. Raises BadInput, naming what is wrong, unless `body` is one JSON object."""

    __slots__ = ("_fields", "_items", "spans", "text_bytes")

    def __init__(self, body: bytes) -> None:
        self.text_bytes, self._fields = _lenient(_OBJECT.decode, body)
        """The body, with lone surrogates replaced."""
        self.spans = _spans(self.text_bytes, self._fields)
        self._items: dict[str, list[msgspec.Raw]] = {}

    def raw(self, name: str) -> bytes:
        """Return the field as it stands in the body; empty when absent or null."""
        value = bytes(self._fields.get(name, b""))
        return b"" if value == b"null" else value

    def size(self, name: str) -> int:
        """Return the bytes the field takes in the body; 0 when absent."""
        start, end = self.spans.get(name, (0, 0))
        return end - start

    def value(self, name: str) -> object:
        """Return the field decoded; None when absent, null or not decodable."""
        return decode(self.raw(name))

    def sound(self, name: str) -> object:
        """Return the field decoded; None when absent or null. Raises BadInput, naming it, when it is not decodable."""
        raw = self.raw(name)
        value = decode(raw)
        if raw and value is None:
            raise BadInput(f"{name}: holds what cannot be read, such as a number that is too large. Correct the field.")
        return value

    def text(self, name: str) -> str | None:
        """Return the field if it is a string."""
        value = self.value(name) if self.raw(name)[:1] == b'"' else None
        return value if isinstance(value, str) else None

    def items(self, name: str) -> list[msgspec.Raw]:
        """Return the raw items of an array; empty when the field is none."""
        if name not in self._items:
            raw = self._fields.get(name)
            is_array = raw is not None and bytes(memoryview(raw)[:1]) == b"["
            self._items[name] = _ARRAY.decode(raw) if raw is not None and is_array else []
        return self._items[name]


def decode(raw: bytes) -> object:
    """Return the JSON value of `raw`, or None when it is empty or no JSON: unknown, never a guess.

    Half an emoji in it is read as a mark for what is missing, rather than the whole value as none.
    """
    if not raw:
        return None
    try:
        return _ANY.decode(raw)
    except RecursionError:
        return None
    except msgspec.DecodeError:
        pass
    try:
        return _ANY.decode(_mended(raw))
    except (msgspec.DecodeError, RecursionError):
        return None


def member(value: object, name: str) -> object:
    """Return a field of a decoded object; None when it is absent, or the value is no object."""
    return value.get(name) if isinstance(value, dict) else None


def encode(value: object) -> bytes:
    """Return compact JSON."""
    return msgspec.json.encode(value)


def _lenient(parse: Callable[[bytes], _T], text: bytes) -> tuple[bytes, _T]:
    """Parse, accepting the lone surrogates that JavaScript clients write when they cut a string in an emoji.

    They are replaced by an escape of the same length, for reading only: sizes and offsets stay true.
    """
    try:
        return text, parse(text)
    except RecursionError:
        raise BadInput("The request body is nested too deeply to be read. Send a flatter JSON object.") from None
    except msgspec.ValidationError:
        raise BadInput("The request body is JSON, but not an object. Send one JSON object.") from None
    except msgspec.DecodeError as error:
        mended = _mended(text)
        if mended == text:
            raise BadInput(f"The request body is not valid JSON: {error}.") from None
    try:
        return mended, parse(mended)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadInput(f"The request body is not valid JSON: {error}.") from None


def _mended(text: bytes) -> bytes:
    """Replace each lone surrogate by an escape of the same length."""
    return _TO_LONE.sub(lambda found: found[1] + rb"\ufffd" if found[2] else found[1], text)


def _spans(text: bytes, fields: dict[str, msgspec.Raw]) -> dict[str, tuple[int, int]]:
    """Locate each field's value in the body. A repeated key could make the provider read another value than we do.

    A decoded repetition holds its last value at its first place, so that the walk over the text cannot come out even.
    """
    spans: dict[str, tuple[int, int]] = {}
    at = 0
    for name, raw in fields.items():
        match = _KEY.match(text, at)
        start = match.end() if match else at
        at = start + len(memoryview(raw))
        if not text.startswith(memoryview(raw), start):
            break
        spans[name] = (start, at)
    if len(spans) < len(fields) or _END.fullmatch(text, at) is None:
        raise BadInput("The request body holds a field twice. Send each top-level field once.")
    return spans
