"""The rules told a second time, as questions about the past instead of a state that is carried along.

Written from the text of the rules, with no word of the guard's own code: every answer is worked out anew from all that
ever happened to a budget. Slow, and made another way, so that one mistake is not made twice.
"""

from dataclasses import dataclass, field

LARGE_TOKENS = 65_536
LARGE_BYTES = 262_144
STOP_AFTER = 2
REBUILDS = 4
SILENCE_MS = 5 * 60 * 1000

COUNTED = {"miss", "unreported"}
REBUILT = {"excused:after-cancel", "excused:client-change"}


@dataclass(frozen=True, slots=True)
class Asked:
    """A request wanted to run."""

    at_ms: int
    ran: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """A request that ran ended."""

    at_ms: int
    total: int | None
    read: int | None
    ending: str
    conversation_bytes: int
    whole_bytes: int
    sent: bool = True
    began: bool = True
    changed: bool = False


Past = list[Asked | Ended]


@dataclass(slots=True)
class Oracle:
    """All budgets of a gateway that keeps at most `budgets_max` of them."""

    budgets_max: int
    pasts: dict[str, Past] = field(default_factory=dict)
    """In the order in which they were last active."""

    def ask(self, budget: str, at_ms: int, conversation_bytes: int, *, self_hosted: bool) -> str:
        """Return what must become of a request, in the words of the tables."""
        told = tell(_ends(self._past(budget, at_ms)))
        decision = _decide(told, conversation_bytes, self_hosted=self_hosted)
        self._happened(budget, Asked(at_ms, ran=not decision.startswith("stopped")))
        return decision

    def end(self, budget: str, ended: Ended) -> str:
        """Return what must be made of the end of a request, in the words of the tables."""
        told = tell(_ends(_since_silence([*self.pasts.get(budget, []), ended])))
        self._happened(budget, ended)
        return told[-1].word

    def count(self, budget: str) -> int:
        """Return how many requests of a budget are counted."""
        told = tell(_ends(_since_silence(self.pasts.get(budget, []))))
        return sum(one.word in COUNTED for one in _since_reuse(told))

    def rebuilds_used(self, budget: str) -> int:
        """Return how many rebuilds of a budget were excused since the last large reuse."""
        return _rebuilds_used(tell(_ends(_since_silence(self.pasts.get(budget, [])))))

    def running(self, budget: str) -> int:
        """Return how many requests of a budget are under way."""
        return _running(self.pasts.get(budget, []))

    def left_behind(self, budget: str) -> int:
        """Return the tokens that the last measured request of a budget should have left cached."""
        return _previous(_ends(_since_silence(self.pasts.get(budget, []))))

    def _past(self, budget: str, now_ms: int) -> Past:
        past = _since_silence(self.pasts.get(budget, []))
        silent = bool(past) and _running(past) == 0 and now_ms - past[-1].at_ms >= SILENCE_MS
        return [] if silent else past

    def _happened(self, budget: str, event: Asked | Ended) -> None:
        """Note an event; where there are too many budgets, forget the one that was idle longest."""
        past = self.pasts.pop(budget, [])
        self.pasts[budget] = [*past, event]
        idle = [name for name, events in self.pasts.items() if _running(events) == 0]
        if len(self.pasts) > self.budgets_max and idle:
            del self.pasts[idle[0]]


@dataclass(frozen=True, slots=True)
class Told:
    """One end of a request, and what it means."""

    ended: Ended
    word: str


def tell(ends: list[Ended]) -> list[Told]:
    """Say of each end what it means, looking at what came before it."""
    told: list[Told] = []
    for ended in ends:
        told.append(Told(ended, _meaning(told, ended)))
    return told


def _meaning(before: list[Told], ended: Ended) -> str:
    if not ended.sent:
        return "not-sent"
    shown = _shows(ended, _previous([one.ended for one in before]))
    if shown not in COUNTED or ended.ending == "refused":
        return shown
    return _excuse(before, ended) or shown


def _excuse(before: list[Told], ended: Ended) -> str:
    """Say why a cold request is not counted; nothing when it is."""
    recent = _since_reuse(before)
    if _was_refused(recent):
        return "excused:after-refusal"
    if _rebuilds_used(before) >= REBUILDS:
        return ""
    if _owed_to_a_cancellation(recent):
        return "excused:after-cancel"
    if ended.changed:
        return "excused:client-change"
    return "excused:cancelled" if ended.ending == "cancelled" else ""


def _shows(ended: Ended, previous: int) -> str:
    """Say what the tokens show."""
    total, read = ended.total, ended.read
    if read is not None and previous and 4 * read >= 3 * previous:
        return "reuse"
    if total is not None and read is not None:
        if read > 0 and 2 * read >= total:
            return "reuse"
        return "miss" if total - read >= LARGE_TOKENS else "neutral"
    if ended.ending == "failed" and not ended.began:
        return "neutral"
    large = total >= LARGE_TOKENS if total is not None else ended.whole_bytes >= LARGE_BYTES
    return "unreported" if large else "neutral"


def _previous(ends: list[Ended]) -> int:
    totals = [ended.total for ended in ends if ended.sent and ended.total is not None and ended.read is not None]
    return totals[-1] if totals else 0


def _was_refused(recent: list[Told]) -> bool:
    """Whether a refusal still owes a rebuild: there was one, and none was paid since the last reuse."""
    paid = any(one.word == "excused:after-refusal" for one in recent)
    return not paid and any(one.ended.ending == "refused" and one.word != "not-sent" for one in recent)


def _owed_to_a_cancellation(recent: list[Told]) -> bool:
    """Whether a cancellation still owes a rebuild: the newer of cancellations and their rebuilds is a cancellation.

    A rebuild that was cancelled is both; it owes another.
    """
    for one in reversed(recent):
        if one.ended.ending == "cancelled" and one.word != "not-sent":
            return True
        if one.word == "excused:after-cancel":
            return False
    return False


def _rebuilds_used(before: list[Told]) -> int:
    used = 0
    for one in reversed(before):
        if one.word == "reuse" and (one.ended.read or 0) >= LARGE_TOKENS:
            break
        used += one.word in REBUILT
    return used


def _since_reuse(told: list[Told]) -> list[Told]:
    """Return the last reuse and what came after it; a reuse that was cancelled or refused owes a rebuild too."""
    starts = [place for place, one in enumerate(told) if one.word == "reuse"]
    return told[starts[-1] :] if starts else told


def _decide(told: list[Told], conversation_bytes: int, *, self_hosted: bool) -> str:
    counted = [one for one in _since_reuse(told) if one.word in COUNTED]
    if len(counted) < STOP_AFTER:
        return "allowed"
    failed = counted[-1].ended.conversation_bytes
    if failed and conversation_bytes <= failed / 2:
        return "recovered"
    reason = "unreported" if any(one.word == "unreported" for one in counted) else "measured"
    return f"{'observed' if self_hosted else 'stopped'}:{reason}"


def _ends(past: Past) -> list[Ended]:
    return [event for event in past if isinstance(event, Ended)]


def _running(past: Past) -> int:
    return sum(isinstance(event, Asked) and event.ran for event in past) - len(_ends(past))


def _since_silence(past: Past) -> Past:
    """Return what happened since nothing ran and nobody asked for five minutes."""
    start = running = 0
    for place, event in enumerate(past):
        if place and running == 0 and event.at_ms - past[place - 1].at_ms >= SILENCE_MS:
            start = place
        if isinstance(event, Asked):
            running += event.ran
        else:
            running -= 1
    return past[start:]
