"""What one measured request asks of the fake upstream: it travels as a header, so no setting outlives its request.

Every proxy passes an unknown header on, and with it two loads can never disturb each other's settings.
"""

from dataclasses import dataclass, fields

PLAN_HEADER = "x-bench-plan"

LEADING_EVENTS = 3
"""`response.created`, `output_item.added` and `content_part.added` stand before the deltas."""
CLOSING_EVENTS = 4
"""`output_text.done`, `content_part.done`, `output_item.done` and `response.completed` stand after them."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How one answer is streamed."""

    events: int = 20
    """Text deltas, beside the leading and closing events."""
    gap_us: int = 0
    """Microseconds between two deltas; 0 streams as fast as the connection takes them."""
    batch: int = 20
    """Deltas per write where there is no gap."""
    hold: int = 0
    """1 leaves the stream open and silent after its leading events, until the client goes."""

    @property
    def events_in_all(self) -> int:
        """Events of the whole answer."""
        return LEADING_EVENTS + self.events + CLOSING_EVENTS

    def header(self) -> str:
        """Return the value of the header."""
        return ";".join(f"{field.name}={getattr(self, field.name)}" for field in fields(self))

    @classmethod
    def of(cls, header: str) -> "Plan":
        """Read the value of the header; what is missing keeps its default."""
        pairs = (part.partition("=") for part in header.split(";") if part)
        return cls(**{name.strip(): int(value) for name, _, value in pairs})
