"""One JSON object of a request, read field by field; what is wrong with a field is told by its path in the request.

Fields stay raw until asked for: the input of a tool call must go on byte for byte.
"""

from collections.abc import Iterator

import msgspec

from cachegate.errors import BadInput
from cachegate.wire.hub import Json

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_ANY = msgspec.json.Decoder()


class JsonNode:
    """An object at `path`. Raises BadInput, naming the path, where a field is not of the type asked for."""

    __slots__ = ("_fields", "path")

    def __init__(self, raw: bytes | msgspec.Raw, path: str) -> None:
        self.path = path
        try:
            self._fields = _OBJECT.decode(raw)
        except (msgspec.DecodeError, RecursionError):
            raise BadInput(f"{path}: not a JSON object. Send one.") from None

    def raw(self, name: str) -> bytes:
        """Return the field as it stands in the request; empty when absent or null."""
        value = bytes(self._fields.get(name, b""))
        return b"" if value == b"null" else value

    def value(self, name: str) -> object:
        """Return the field decoded; None when absent or null."""
        raw = self.raw(name)
        if not raw:
            return None
        try:
            return _ANY.decode(raw)
        except (msgspec.DecodeError, RecursionError):
            raise self.wrong(name, "JSON that can be read") from None

    def text(self, name: str) -> str | None:
        """Return a string."""
        value = self.value(name)
        if value is None or isinstance(value, str):
            return value
        raise self.wrong(name, "a string")

    def needed_text(self, name: str) -> str:
        """Return a string that must not be absent."""
        value = self.text(name)
        if value is None:
            raise self.wrong(name, "a string")
        return value

    def flag(self, name: str) -> bool | None:
        """Return a boolean."""
        value = self.value(name)
        if value is None or isinstance(value, bool):
            return value
        raise self.wrong(name, "true or false")

    def integer(self, name: str) -> int | None:
        """Return a whole number."""
        value = self.value(name)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        raise self.wrong(name, "a whole number")

    def number(self, name: str) -> float | None:
        """Return a number."""
        value = self.value(name)
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
            return value
        raise self.wrong(name, "a number")

    def json(self, name: str) -> Json | None:
        """Return an object, decoded whole."""
        value = self.value(name)
        if value is None or isinstance(value, dict):
            return value
        raise self.wrong(name, "an object")

    def whole(self) -> Json:
        """Return all fields, decoded."""
        return {name: self.value(name) for name in self._fields}

    def node(self, name: str) -> "JsonNode | None":
        """Return an object, to be read further."""
        raw = self.raw(name)
        return JsonNode(raw, self.at(name)) if raw else None

    def nodes(self, name: str) -> Iterator["JsonNode"]:
        """Yield the objects of an array; nothing when it is absent."""
        raw = self.raw(name)
        if not raw:
            return
        try:
            items = _ARRAY.decode(raw)
        except (msgspec.DecodeError, RecursionError):
            raise self.wrong(name, "an array") from None
        for number, item in enumerate(items):
            yield JsonNode(item, f"{self.at(name)}[{number}]")

    def at(self, name: str) -> str:
        """Return the path of a field."""
        return f"{self.path}.{name}" if self.path else name

    def wrong(self, name: str, wanted: str) -> BadInput:
        """Return the error of a field that is not what is wanted."""
        return BadInput(f"{self.at(name)}: {_shown(self.raw(name))} where {wanted} belongs. Correct the field.")


def _shown(raw: bytes) -> str:
    return {b"{": "an object", b"[": "an array", b'"': "a string"}.get(raw[:1], raw[:20].decode() or "nothing")
