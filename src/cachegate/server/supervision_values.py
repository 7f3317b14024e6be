"""What a supervisor knows, what can happen to it, and what it can do about that."""

from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    """Where a worker stands in its life."""

    STARTING = "starting"
    SERVING = "serving"
    LEAVING = "leaving"


class Order(StrEnum):
    """What a worker is told; a worker leaves out a word that it does not know."""

    RETIRE = "retire"
    """Others take the new connections: serve the old ones for a grace, close them, let streams run on."""
    DRAIN = "drain"
    """Nobody follows: take nothing new, let running answers end."""
    CUT = "cut"
    """End running answers now."""
    COUNT = "count"
    """Say how many answers run."""


@dataclass(frozen=True, slots=True)
class Worker:
    """One process that serves."""

    id: int
    generation: int
    phase: Phase
    since_ms: int
    """When its phase began."""
    deadline_ms: int | None
    """When it is killed if its phase lasts; None while it serves."""
    drain_ms: int = 0
    """How long its configuration lets streams run on."""
    version: str = ""
    running: int | None = None
    """Answers under way when it was last asked."""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """An upgrade under way."""

    generation: int
    askers: tuple[int, ...]
    check_until_ms: int | None
    """None once the check has passed and workers are being started."""


@dataclass(frozen=True, slots=True)
class Count:
    """A question to all workers how much they run."""

    missing: frozenset[int]
    until_ms: int
    askers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class State:
    """Everything a supervisor knows."""

    wanted: int
    started_ms: int
    generation: int = 1
    last_generation: int = 1
    """The highest ever started; a failed upgrade uses its number up."""
    last_id: int = 0
    workers: tuple[Worker, ...] = ()
    ready: bool = False
    """The first generation was ready once."""
    upgrade: Upgrade | None = None
    queued: tuple[int, ...] = ()
    """Who asked for an upgrade while one was running."""
    died_at_once: int = 0
    start_at_ms: int = 0
    """No worker is started in a dead one's place before."""
    count: Count | None = None
    stopping: bool = False
    cutting: bool = False
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class Ready:
    """A worker serves."""

    worker: int
    version: str
    drain_ms: int


@dataclass(frozen=True, slots=True)
class Gone:
    """A worker's process has ended; `words` say how, in a half-sentence."""

    worker: int
    words: str


@dataclass(frozen=True, slots=True)
class Counted:
    """A worker said how much it runs."""

    worker: int
    running: int


@dataclass(frozen=True, slots=True)
class Checked:
    """The check of an upgrade ended; without words all is in order."""

    problem: str = ""


@dataclass(frozen=True, slots=True)
class UpgradeAsked:
    """Somebody wants an upgrade; asker 0 is a signal, which waits for no answer."""

    asker: int = 0


@dataclass(frozen=True, slots=True)
class StatusAsked:
    """Somebody wants to know how things stand."""

    asker: int


@dataclass(frozen=True, slots=True)
class StopAsked:
    """Ctrl-C or SIGTERM."""


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed; the first one starts everything."""


Event = Ready | Gone | Counted | Checked | UpgradeAsked | StatusAsked | StopAsked | Ticked


@dataclass(frozen=True, slots=True)
class Start:
    """Start a worker from the code that is installed now."""

    worker: int
    generation: int


@dataclass(frozen=True, slots=True)
class Tell:
    """Give a worker an order."""

    worker: int
    order: Order


@dataclass(frozen=True, slots=True)
class Kill:
    """End a worker at once."""

    worker: int


@dataclass(frozen=True, slots=True)
class Check:
    """Start the check of the installed code and the configuration as they are now."""


@dataclass(frozen=True, slots=True)
class EndCheck:
    """End the check: nobody waits for it any more."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Tell somebody how the upgrade went."""

    asker: int
    done: bool
    words: str


@dataclass(frozen=True, slots=True)
class Report:
    """Tell somebody how things stand now."""

    asker: int


@dataclass(frozen=True, slots=True)
class Log:
    """Write a line into the log."""

    words: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Greet:
    """The first generation is ready: say so to whoever started us."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Say that running answers are waited for."""

    running: int


@dataclass(frozen=True, slots=True)
class Notify:
    """Tell the service manager: RELOADING, READY or STOPPING."""

    word: str


@dataclass(frozen=True, slots=True)
class Exit:
    """There is nothing left to supervise."""

    code: int


Action = Start | Tell | Kill | Check | EndCheck | Answer | Report | Log | Greet | Wait | Notify | Exit
