"""Which budget a request belongs to, and the keyed hash that is all anyone sees of it (R1)."""

from dataclasses import dataclass
from enum import StrEnum

from blake3 import blake3

KEY_BYTES = 16
"""128 bits: no two budgets of one gateway ever collide, and the key stays short in a log line."""
SECRET_BYTES = 32
"""The length that a keyed blake3 takes."""


class Mode(StrEnum):
    """Budgets of one caller are separate per mode (R4)."""

    CHAT = "chat"
    COMPACTION = "compaction"
    AUXILIARY = "auxiliary"


@dataclass(frozen=True, slots=True)
class Scope:
    """Everything that tells one budget from another."""

    mode: Mode
    tenant: str
    """Name of the client key; "" for the one tenant of a gateway without keys."""
    binding: str
    """Configured provider."""
    model: str
    """Model as the provider knows it."""
    caller: str | None
    """Stable thread or session id; None is anonymous and shared (R2)."""


def budget_key(scope: Scope, secret: bytes) -> str:
    """Return the hex key of a scope. Parts are length-prefixed, so no two scopes share one encoding."""
    digest = blake3(key=secret)
    identity = "anonymous" if scope.caller is None else f"caller:{scope.caller}"
    for part in (scope.mode.value, scope.tenant, scope.binding, scope.model, identity):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest(length=KEY_BYTES)
