"""The list of models, in the shape of whoever asks."""

from collections.abc import Mapping

from cachegate.wire.body import encode
from cachegate.wire.facts import Protocol, Sender

_BEGINNING = "1970-01-01T00:00:00Z"
"""Both shapes demand a date of creation; nobody knows it for an alias."""


def asker(sender: Sender) -> Protocol:
    """Tell who asks on a path that both protocols share: Anthropic clients name a version or use its key header."""
    anthropic = sender.header("anthropic-version") or sender.header("x-api-key")
    return Protocol.MESSAGES if anthropic else Protocol.RESPONSES


def model_list(protocol: Protocol, models: Mapping[str, str]) -> bytes:
    """Return the list of `models`, a mapping of names to the providers they belong to."""
    match protocol:
        case Protocol.MESSAGES:
            names = list(models)
            rows: list[object] = [
                {"type": "model", "id": name, "display_name": name, "created_at": _BEGINNING} for name in names
            ]
            ends = {"first_id": names[0] if names else None, "last_id": names[-1] if names else None}
            return encode({"data": rows, "has_more": False, **ends})
        case Protocol.RESPONSES | Protocol.CHAT:
            rows = [{"id": name, "object": "model", "created": 0, "owned_by": owner} for name, owner in models.items()]
            return encode({"object": "list", "data": rows})
