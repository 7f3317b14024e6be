"""What really happened to each request, as the simulator itself knows it. Nothing here was asked of the gateway."""

from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from random import Random

from cachegate.guard.machine import Decision, Outcome, Settled
from cachegate.guard.usage import Usage
from cachegate.wire.parse import Received

CANARY = "canary"
"""In every text, id and error message of the simulation, and never in anything that the gateway notes."""

TOO_MANY, SERVER_ERROR = 429, 500
"""Statuses, the second and all above it, that say that nothing was processed."""
USER = b'{"role": "user"'
"""How an item of the user begins."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Who shares one count, by R1."""

    mode: str
    tenant: str
    provider: str
    model: str
    caller: str | None
    """Thread or session, as the client means it; None for a client that names none."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a cache is keyed by besides the conversation; equal values are equal parts."""

    tools: bytes
    instructions: bytes
    thinking: str
    speed: str


@dataclass(slots=True)
class Presence:
    """Whether the caller is still there."""

    departure: str = ""
    """What cut the request short from this side: `cancelled`, `shutdown`, or `timeout` for one who reads no more."""


@dataclass(slots=True, eq=False)
class Ask:
    """One request to one provider, and what became of it."""

    number: int
    client: str
    act: str
    """What the client was doing, for the story that a failure tells."""
    budget: Budget
    parts: Parts
    items: tuple[bytes, ...]
    conversation_bytes: int
    input_bytes: int
    received: Received
    dice: Random
    guarded: bool = True
    """False for a token count, which makes no model read anything."""
    streamed: bool = True

    spare: str = ""
    """Provider to ask next, when the first one did not begin; the model has the same name there."""
    presence: Presence = field(default_factory=Presence)

    reached: bool = field(default=False, init=False)
    """The provider was called."""
    sent: bool = field(default=False, init=False)
    """Something left for the provider."""
    status: int = field(default=0, init=False)
    """Error status with which the provider answered."""
    began: bool = field(default=False, init=False)
    """A successful answer began."""
    open: bool = field(default=False, init=False)
    """The provider still works on it."""
    usage: Usage = field(default_factory=Usage, init=False)
    """What the provider reported, and the gateway was given."""
    refused: bool = field(default=False, init=False)
    finished: bool = field(default=False, init=False)
    failed: bool = field(default=False, init=False)
    timed_out: bool = field(default=False, init=False)
    reseeded_by_client: bool = field(default=False, init=False)
    """The provider reported a rebuild that the client's own change caused."""

    applied: int = field(default=0, init=False)
    """How often the guard's store was asked to change something for it."""
    decision: Decision | None = field(default=None, init=False)
    settled: Settled | None = field(default=None, init=False)
    overlapped: bool = field(default=False, init=False)
    """Another request of its budget ran at the same time."""
    records: int = field(default=0, init=False)
    elsewhere: "Ask | None" = field(default=None, init=False)
    """The same request, asked of the spare provider."""

    def go_elsewhere(self) -> "Ask":
        """Return the same request as it is asked of the spare provider."""
        self.elsewhere = replace(self, budget=replace(self.budget, provider=self.spare), spare="")
        return self.elsewhere

    @property
    def attempts(self) -> "tuple[Ask, ...]":
        """This request, and the same asked elsewhere."""
        return (self,) if self.elsewhere is None else (self, self.elsewhere)

    @property
    def never_began(self) -> bool:
        """Whether nothing was processed, so that another provider may be asked."""
        return self.failed and (not self.sent or self.status == TOO_MANY or self.status >= SERVER_ERROR)

    @property
    def stopped(self) -> bool:
        """Whether the guard said that it must not run."""
        return self.decision is not None and self.decision.outcome is Outcome.BLOCKED

    @property
    def ending(self) -> str:
        """How it ended. What the provider did outlives whatever happened to the connection afterwards (R14, R17)."""
        if self.refused:
            return "refused"
        if self.finished:
            return "completed"
        if self.failed:
            return "timeout" if self.timed_out else "failed"
        return self.presence.departure or "completed"

    @property
    def opening(self) -> bytes:
        """The first thing that the user said, where clients put their reminders."""
        return next((item for item in self.items if item.startswith(USER)), b"")


@dataclass(slots=True)
class Served:
    """The request that is served just now; it changes when another provider is asked."""

    ask: Ask


CURRENT: ContextVar[Served] = ContextVar("CURRENT")
"""What the running task serves. The tasks that the gateway starts for it inherit it, and see it change."""
