"""What must be seen, in order: a table of steps that every client plays, and the checks that the steps are made of.

A check gets a `Story`, what was done and observed so far, and returns the problem in words; "" when there is none.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

LARGE_BYTES = 270_000
"""A new text of this size is more than the 65,536 tokens (four bytes each) that the guard calls large.

Four of them stay below the windows at which Codex and Claude Code compact on their own account.
"""
RAN = frozenset({"allowed", "recovered", "observed", "excused"})
"""The guard's outcomes of requests that reached the provider."""
_FULL = re.compile(
    r"context_length_exceeded|context window|maximum context|prompt is too long|input is too long|ran out of room",
    re.IGNORECASE,
)
"""Words by which clients tell, or take, a full context."""
_MEASURED_CLAIM, _UNREPORTED_CLAIM = "each re-processed at least", "did not report its cache usage"


class Act(StrEnum):
    """What a person does with the client, or to the gateway."""

    LARGE = "large"
    AGAIN = "again"
    COMPACT = "compact"
    SMALL = "small"
    RELOAD = "reload"


class Blame(StrEnum):
    """Why the guard stops; its value is the guard's own reason."""

    MEASURED = "measured"
    UNREPORTED = "unreported"


@dataclass(frozen=True, slots=True)
class Heard:
    """What the client showed of one act."""

    completed: bool
    words: str = ""
    """The answer, or what the client says went wrong."""
    context_full: bool = False
    """Whether it said, by a marker or a code of its own, that its context is full."""
    compactions: int = 0
    """Compactions that it told of during the act."""
    tokens: int | None = None
    """What it believes its context holds, after the act; None where it shows no such number."""


@dataclass(frozen=True, slots=True)
class Decided:
    """One of the gateway's own records."""

    key: str
    """Keyed hash of the budget: the same chat, provider and model have the same one."""
    mode: str
    outcome: str
    reason: str
    input_tokens: int | None

    @property
    def ran(self) -> bool:
        """Whether the provider was called."""
        return self.outcome in RAN

    def __str__(self) -> str:
        size = "" if self.input_tokens is None else f", {self.input_tokens:,} tokens"
        return f"{self.mode} {self.outcome} ({self.reason}{size})"


@dataclass(frozen=True, slots=True)
class Played:
    """One act with everything that was observed of it."""

    act: Act
    heard: Heard
    decided: tuple[Decided, ...]

    def __str__(self) -> str:
        shown = "completed" if self.heard.completed else "failed"
        if self.act is Act.RELOAD:
            return f"{self.act}: {shown}: {self.heard.words}"
        gateway = "; ".join(map(str, self.decided)) or "no request"
        tokens = "" if self.heard.tokens is None else f"; the client shows {self.heard.tokens:,} tokens"
        return f"{self.act}: {shown}; gateway: {gateway}{tokens}"


@dataclass(frozen=True, slots=True)
class Story:
    """The newest act, those before it, and what is to be blamed for a stop."""

    now: Played
    before: tuple[Played, ...]
    blame: Blame

    @property
    def called(self) -> tuple[Decided, ...]:
        """The calls of the provider that the newest act made."""
        return tuple(decided for decided in self.now.decided if decided.ran)


Check = Callable[[Story], str]


@dataclass(frozen=True, slots=True)
class Step:
    """One act, and what must be seen of it."""

    name: str
    act: Act
    checks: tuple[Check, ...]

    def problem(self, story: Story) -> str:
        """Return what was not seen, in words; "" when all was."""
        return next((problem for check in self.checks if (problem := check(story))), "")


def _completed(story: Story) -> str:
    return "" if story.now.heard.completed else f"the client failed: {story.now.heard.words[:300]}"


def _failed(story: Story) -> str:
    return "the client shows an answer" if story.now.heard.completed else ""


def _called_once(mode: str) -> Check:
    def check(story: Story) -> str:
        modes = [decided.mode for decided in story.called]
        return "" if modes == [mode] else f"the provider was called for {modes}, and not once for {mode}"

    return check


def _not_called(story: Story) -> str:
    return f"the provider was called: {story.called[0]}" if story.called else ""


def _cold(story: Story) -> str:
    wanted = "miss" if story.blame is Blame.MEASURED else "unreported"
    odd = [decided for decided in story.called if (decided.outcome, decided.reason) != ("allowed", wanted)]
    return f"the call was no allowed {wanted}: {odd[0]}" if odd else ""


def _stopped(story: Story) -> str:
    stops = [(decided.outcome, decided.reason) for decided in story.now.decided]
    good = stops and set(stops) == {("blocked", story.blame.value)}
    return "" if good else f"the gateway did not stop it as {story.blame}: {stops or 'it saw no request'}"


def _says_why(story: Story) -> str:
    """Hold the words to what was measured: usage that nobody reported is no miss."""
    claims = {Blame.MEASURED: _MEASURED_CLAIM, Blame.UNREPORTED: _UNREPORTED_CLAIM}
    words = story.now.heard.words
    told = [blame for blame, claim in claims.items() if claim in words]
    return "" if told == [story.blame] else f"the client tells no {story.blame} stop: {words[:300]!r}"


def _not_full(story: Story) -> str:
    heard = story.now.heard
    if heard.context_full:
        return "the client took its context for full"
    found = None if heard.completed else _FULL.search(heard.words)
    return f"the client speaks of a full context: {found.group()!r}" if found else ""


def _compacted(times: int) -> Check:
    def check(story: Story) -> str:
        told = story.now.heard.compactions
        return "" if told == times else f"the client compacted {told} times, and not {times}"

    return check


def _tokens_stay(story: Story) -> str:
    """Nothing was processed, so what the client shows cannot have grown; a jump to the window would make it compact."""
    shown = [played.heard.tokens for played in story.before if played.heard.tokens is not None]
    now = story.now.heard.tokens
    grown = now is not None and bool(shown) and now > shown[-1]
    return f"the client's token count jumped from {shown[-1]:,} to {now:,}" if grown else ""


def _same_chat(story: Story) -> str:
    chat = {decided.key for played in story.before for decided in played.decided if decided.mode == "chat"}
    return "" if {decided.key for decided in story.called} <= chat else "another chat or model was used"


def _smaller(story: Story) -> str:
    sizes = [decided.input_tokens or 0 for played in story.before for decided in played.decided if decided.ran]
    now = story.called[0].input_tokens
    return "" if now is not None and now * 2 <= max(sizes) else f"the input did not shrink: {now} tokens"


_RUNS = (_completed, _called_once("chat"), _cold, _not_full, _compacted(0))
_STOPS = (_failed, _not_called, _stopped, _says_why, _not_full, _compacted(0), _tokens_stay)

COLD = (
    Step("a first cold call runs", Act.LARGE, _RUNS),
    Step("a second cold call runs", Act.LARGE, (*_RUNS, _same_chat)),
)
RELOADED = Step("the gateway is reloaded in place", Act.RELOAD, (_completed, _not_called))
RECOVERY = (
    Step("the third is stopped, and no context is full", Act.LARGE, _STOPS),
    Step("an unchanged retry is stopped, and nothing compacts by itself", Act.AGAIN, _STOPS),
    Step(
        "a compaction that is asked for is one call",
        Act.COMPACT,
        (_completed, _called_once("compaction"), _not_full, _compacted(1)),
    ),
    Step(
        "the same chat and model go on with less input",
        Act.SMALL,
        (_completed, _called_once("chat"), _same_chat, _smaller, _not_full, _compacted(0)),
    ),
)


def steps(*, reloaded: bool) -> tuple[Step, ...]:
    """Return the table to play; with a reload of the gateway between the cold calls and the stop, if asked for."""
    return (*COLD, *((RELOADED,) if reloaded else ()), *RECOVERY)
