"""What can be observed in an upstream's answer, whatever its protocol."""

import re
from dataclasses import dataclass

from cachegate.guard.usage import Usage
from cachegate.wire.sessions import Reason


@dataclass(frozen=True, slots=True)
class Refusal:
    """The provider itself refused to answer (R17); no transport error is one."""


@dataclass(frozen=True, slots=True)
class Reseed:
    """The provider rebuilt its session, and why (R15)."""

    reason: str
    """A `Reason`."""

    @property
    def by_client(self) -> bool:
        """Whether the client caused it by changing its tools, instructions, thinking or speed."""
        return self.reason == Reason.FINGERPRINT_CHANGED


@dataclass(frozen=True, slots=True)
class Finished:
    """The protocol's own terminal event of a successful answer came by."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The answer failed: an error status, an error event, or a stream that broke."""

    code: str
    """A fixed word or the provider's error code; never its message."""
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class Explained:
    """The provider's own word for why its cache was missed, because the client asked for it."""

    reason: str


_WORD = re.compile(r"[A-Za-z0-9_.\-]{1,64}")


def word(value: object) -> str:
    """Return an error's code if it is a plain word, as codes are; "unknown" otherwise. It may be logged and shown."""
    return value if isinstance(value, str) and _WORD.fullmatch(value) else "unknown"


Seen = Usage | Refusal | Reseed | Finished | Failed | Explained
