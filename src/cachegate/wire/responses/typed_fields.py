"""Reading a client's JSON field by field: what has the wrong type is refused with the field's own name."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cachegate.errors import BadInput

_SHOWN_CHARS = 64


@dataclass(frozen=True, slots=True)
class Field:
    """A value of a request and where it stands in it, such as `input[3].content`."""

    path: str
    value: object

    @property
    def absent(self) -> bool:
        """Whether it is missing; null says the same."""
        return self.value is None

    def field(self, name: str) -> "Field":
        """Return a field of an object; of an absent one, an absent field. Raises BadInput for anything else."""
        return Field(f"{self.path}.{name}" if self.path else name, None if self.absent else self.mapping().get(name))

    def mapping(self) -> Mapping[str, object]:
        """Return an object. Raises BadInput for anything else."""
        if not isinstance(self.value, dict):
            raise self.refused("an object is needed here")
        return self.value

    def optional_mapping(self) -> Mapping[str, object] | None:
        """Return an object, or None when it is absent."""
        return None if self.absent else self.mapping()

    def items(self) -> Iterator["Field"]:
        """Yield the items of an array; an absent one has none. Raises BadInput for anything else."""
        if self.absent:
            return
        if not isinstance(self.value, list):
            raise self.refused("an array is needed here")
        for index, item in enumerate(self.value):
            yield Field(f"{self.path}[{index}]", item)

    def text(self) -> str:
        """Return a string. Raises BadInput for anything else."""
        if not isinstance(self.value, str):
            raise self.refused("a string is needed here")
        return self.value

    def optional_text(self) -> str | None:
        """Return a string, or None when it is absent."""
        return None if self.absent else self.text()

    def flag(self) -> bool | None:
        """Return true or false, or None when it is absent."""
        if self.value is None or isinstance(self.value, bool):
            return self.value
        raise self.refused("true or false is needed here")

    def integer(self) -> int | None:
        """Return a whole number, or None when it is absent."""
        if self.value is None:
            return None
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            raise self.refused("a whole number is needed here")
        return self.value

    def number(self) -> float | None:
        """Return a number, or None when it is absent."""
        if self.value is None:
            return None
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            raise self.refused("a number is needed here")
        return self.value

    def refused(self, reason: str) -> BadInput:
        """Return the error that names this field."""
        shown = self.value if isinstance(self.value, str | int | float | bool | None) else type(self.value).__name__
        return BadInput(f"{self.path or 'body'}: {reason}; it is {str(shown)[:_SHOWN_CHARS]!r}.")
