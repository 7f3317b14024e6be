"""One JSON object of a request, and where it stands: whatever is wrong with it is reported under that name."""

from dataclasses import dataclass

from cachegate.errors import BadInput
from cachegate.wire.hub import Json

_MARKS = ("cache_control", "copilot_cache_control")
"""What OpenRouter, Qwen and GitHub Copilot call the wish to cache the prompt up to here."""


@dataclass(frozen=True, slots=True)
class Node:
    """An object, and its path in the request."""

    where: str
    fields: Json

    @classmethod
    def of(cls, value: object, where: str) -> "Node":
        """Return the object. Raises BadInput for anything else."""
        if not isinstance(value, dict):
            raise BadInput(f"{where}: must be a JSON object.")
        return cls(where, value)

    @property
    def marked(self) -> bool:
        """Whether the client asked to cache the prompt up to here."""
        return any(isinstance(self.fields.get(name), dict) for name in _MARKS)

    def path(self, name: str) -> str:
        """Return where a field of this object stands."""
        return f"{self.where}.{name}" if self.where else name

    def text(self, name: str) -> str | None:
        """Return a string; None when absent or null."""
        value = self.fields.get(name)
        if value is None or isinstance(value, str):
            return value
        raise BadInput(f"{self.path(name)}: must be a string.")

    def word(self, name: str) -> str:
        """Return a string that must be there."""
        value = self.text(name)
        if not value:
            raise BadInput(f"{self.path(name)}: is missing. Set it to a non-empty string.")
        return value

    def flag(self, name: str) -> bool | None:
        """Return a boolean; None when absent or null."""
        value = self.fields.get(name)
        if value is None or isinstance(value, bool):
            return value
        raise BadInput(f"{self.path(name)}: must be true or false.")

    def number(self, name: str) -> float | None:
        """Return a number; None when absent or null."""
        value = self.fields.get(name)
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
            return value
        raise BadInput(f"{self.path(name)}: must be a number.")

    def count(self, name: str) -> int | None:
        """Return a whole number of at least 0; None when absent or null."""
        value = self.number(name)
        if value is None:
            return None
        if value < 0 or int(value) != value:
            raise BadInput(f"{self.path(name)}: must be a whole number of at least 0.")
        return int(value)

    def node(self, name: str) -> "Node":
        """Return an object that must be there."""
        return Node.of(self.fields.get(name), self.path(name))

    def maybe(self, name: str) -> "Node":
        """Return an object; an empty one when absent or null."""
        value = self.fields.get(name)
        return Node(self.path(name), {}) if value is None else Node.of(value, self.path(name))

    def items(self, name: str) -> list[tuple[str, object]]:
        """Return the items of an array, each with its path; none when absent or null."""
        value = self.fields.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise BadInput(f"{self.path(name)}: must be an array.")
        return [(f"{self.path(name)}[{index}]", item) for index, item in enumerate(value)]

    def nodes(self, name: str) -> list["Node"]:
        """Return the items of an array of objects; none when absent or null."""
        return [Node.of(item, where) for where, item in self.items(name)]
