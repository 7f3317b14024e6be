"""What can be observed in an upstream's answer, whatever its protocol."""

from dataclasses import dataclass

from cachegate.guard.usage import Usage


@dataclass(frozen=True, slots=True)
class Refusal:
    """The provider itself refused to answer (R17); no transport error is one."""


@dataclass(frozen=True, slots=True)
class Reseed:
    """The provider rebuilt its session, and why (R15)."""

    reason: str

    @property
    def by_client(self) -> bool:
        """Whether the client caused it by changing its tools, instructions, thinking or speed."""
        return self.reason == "fingerprint_changed"


@dataclass(frozen=True, slots=True)
class Finished:
    """The protocol's own terminal event of a successful answer came by."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The answer failed: an error status, an error event, or a stream that broke."""

    code: str
    """A fixed word or the provider's error code; never its message."""
    timed_out: bool = False


Seen = Usage | Refusal | Reseed | Finished | Failed
