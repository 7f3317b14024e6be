"""What clients do, as rows: how often a kind of client does what, and how it takes a stop."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Act(StrEnum):
    """One thing that a client does."""

    TALK = "talks"
    BIG = "gets a big tool result"
    SIDE = "asks aside"
    COUNT = "counts tokens"
    STEER = "steers"
    DOUBLE = "sends twice"
    TOOLS = "changes tools"
    INSTRUCTIONS = "changes instructions"
    THINKING = "changes thinking"
    SPEED = "changes speed"
    OPENING = "rewrites its opening"
    EDIT = "edits history"
    SLIDE = "drops its oldest turns"
    COMPACT = "compacts"
    LEAVE_EARLY = "leaves early"
    LEAVE_LATE = "leaves after the end"
    VANISH = "vanishes"
    STALL = "stalls"
    IDLE = "idles"
    NEARLY_IDLE = "nearly idles"


class Reaction(StrEnum):
    """What a client does when it was stopped."""

    RETRY = "retries"
    WAIT = "waits 5 minutes"
    COMPACT = "compacts"
    HALVE = "halves"
    GO_ON = "goes on"


@dataclass(frozen=True, slots=True)
class Habit:
    """A kind of client."""

    name: str
    acts: Mapping[Act, int]
    stopped: Mapping[Reaction, int]
    gentle: bool = False
    """It does nothing that a working cache would not survive."""


PATIENT = {Reaction.WAIT: 1}
STUBBORN = {Reaction.RETRY: 2, Reaction.GO_ON: 2, Reaction.WAIT: 2}
USUAL = {Reaction.RETRY: 2, Reaction.WAIT: 4, Reaction.COMPACT: 2, Reaction.HALVE: 2, Reaction.GO_ON: 1}

HABITS = (
    Habit("steady", {Act.TALK: 8, Act.BIG: 2, Act.SIDE: 1, Act.COUNT: 1, Act.IDLE: 1}, PATIENT, gentle=True),
    Habit("working", {Act.TALK: 6, Act.BIG: 4, Act.LEAVE_LATE: 1}, USUAL, gentle=True),
    Habit("stubborn", {Act.TALK: 5, Act.BIG: 1}, STUBBORN),
    Habit("steering", {Act.TALK: 4, Act.STEER: 6, Act.BIG: 1}, USUAL),
    Habit("reconnecting", {Act.STEER: 1}, STUBBORN),
    Habit("changing", {
        Act.TALK: 3, Act.TOOLS: 3, Act.INSTRUCTIONS: 1, Act.THINKING: 1, Act.SPEED: 1, Act.OPENING: 2, Act.STEER: 1,
    }, USUAL),
    Habit("rewriting", {Act.TALK: 2, Act.EDIT: 4, Act.SLIDE: 2}, USUAL),
    Habit("compacting", {Act.TALK: 4, Act.COMPACT: 2, Act.BIG: 2}, USUAL),
    Habit("parallel", {Act.TALK: 3, Act.DOUBLE: 3, Act.STEER: 1}, USUAL),
    Habit("careless", {Act.TALK: 4, Act.LEAVE_EARLY: 1, Act.LEAVE_LATE: 1, Act.VANISH: 2, Act.STALL: 1}, USUAL),
    Habit("idling", {Act.TALK: 3, Act.IDLE: 2, Act.NEARLY_IDLE: 3}, USUAL),
    Habit("everything", dict.fromkeys(Act, 1), dict.fromkeys(Reaction, 1)),
)  # fmt: skip
