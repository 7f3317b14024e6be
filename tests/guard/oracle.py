"""The rules told a second time, as questions about the past instead of a state that is carried along.

Written from the text of the rules, with no word of the guard's own code: every answer is worked out anew from all that
ever happened to a budget. Slow, and made another way, so that one mistake is not made twice. What a client sent is
known here by its letters, not by digests.
"""

from dataclasses import dataclass, field
from functools import lru_cache

from guard.letters import Letters

LARGE_TOKENS = 65_536
LARGE_BYTES = 262_144
STOP_AFTER = 2
REBUILDS = 4
SILENCE_MS = 5 * 60 * 1000

COUNTED = {"miss", "unreported"}
REBUILT = {"excused:after-cancel", "excused:client-change"}
WARM_OR_SMALL = {"reuse", "neutral", "not-sent"}
OWN_SETTINGS = ("tools", "instructions", "thinking", "speed")
"""What a client changes by itself, in the order in which a prompt holds it."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request wanted to run."""

    at_ms: int
    ran: bool


@dataclass(frozen=True, slots=True, eq=False)
class Ended:
    """A request that ran ended. None is like another, so that they are told apart quickly."""

    at_ms: int
    total: int | None
    read: int | None
    ending: str
    conversation_bytes: int
    whole_bytes: int
    sent: bool = True
    began: bool = True
    changed: bool = False
    """The provider called it the client's doing."""
    letters: Letters | None = None
    started_ms: int = 0

    @property
    def worked_on(self) -> bool:
        """Whether the provider did anything with it."""
        return self.sent and (self.began or self.ending != "failed")


Past = list[Asked | Ended]


@dataclass(frozen=True, slots=True)
class Told:
    """One end of a request, and what it means."""

    ended: Ended
    word: str
    because: str = "unknown"
    """Why it was cold, in the words of the tables."""


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

    def end(self, budget: str, ended: Ended) -> Told:
        """Return what must be made of the end of a request."""
        past = [*self.pasts.get(budget, []), ended]
        self._happened(budget, ended)
        return _with_cause(tell(_ends(_since_silence(past)))[-1], past)

    def count(self, budget: str) -> int:
        """Return how many requests of a budget are counted."""
        return len(self._counted(budget))

    def last_cause(self, budget: str) -> str:
        """Return why the last counted request of a budget was cold; that is what a stop says."""
        counted, past = self._counted(budget), self.pasts.get(budget, [])
        return _with_cause(counted[-1], past).because if counted else "unknown"

    def rebuilds_used(self, budget: str) -> int:
        """Return how many rebuilds of a budget were excused since the last large reuse."""
        return _rebuilds_used(self._told(budget))

    def running(self, budget: str) -> int:
        """Return how many requests of a budget are under way."""
        return _running(self.pasts.get(budget, []))

    def left_behind(self, budget: str) -> tuple[int, int]:
        """Return the tokens that the last request of a budget should have left cached, and the most that may be."""
        sizes = _left_cached(self._told(budget))
        return (sizes[0], max(sizes)) if sizes else (0, 0)

    def compared_letters(self, budget: str) -> Letters | None:
        """Return what the request was made of that the next one of a budget is compared with."""
        compared = _compared_with(self._told(budget))
        return compared.letters if compared else None

    def _told(self, budget: str) -> list[Told]:
        return tell(_ends(_since_silence(self.pasts.get(budget, []))))

    def _counted(self, budget: str) -> list[Told]:
        return [one for one in _since_reuse(self._told(budget)) if one.word in COUNTED]

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


def tell(ends: list[Ended]) -> list[Told]:
    """Say of each end what it means, looking at what came before it."""
    return [*_told(tuple(ends))]


@lru_cache(maxsize=10_000)
def _told(ends: tuple[Ended, ...]) -> tuple[Told, ...]:
    """Say the same; whoever asks again of the same past need not wait."""
    if not ends:
        return ()
    before = _told(ends[:-1])
    return (*before, Told(ends[-1], _meaning([*before], ends[-1])))


def _meaning(before: list[Told], ended: Ended) -> str:
    if not ended.sent:
        return "not-sent"
    shown = _shows(ended, _left_cached(before))
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
    if ended.ending == "cancelled":
        return "excused:cancelled"
    return "excused:client-change" if ended.changed or _client_changed(_compared_with(before), ended) else ""


def _shows(ended: Ended, sizes: list[int]) -> str:
    """Say what the tokens show, where requests of these sizes may have left something cached, the last one first."""
    total, read = ended.total, ended.read
    if read is not None and sizes:
        # What is larger than the last request was left by an earlier one.
        left = sizes[0] if read <= sizes[0] else max(sizes)
        if left and 4 * read >= 3 * left:
            return "reuse"
    if total is not None and read is not None:
        if read > 0 and 2 * read >= total:
            return "reuse"
        return "miss" if total - read >= LARGE_TOKENS else "neutral"
    if not ended.worked_on:
        return "neutral"
    large = total >= LARGE_TOKENS if total is not None else ended.whole_bytes >= LARGE_BYTES
    return "unreported" if large else "neutral"


def _left_cached(before: list[Told]) -> list[int]:
    """Return the tokens of measured requests, newest first, back to the last one that showed something."""
    sizes: list[int] = []
    for one in reversed(before):
        if one.word == "not-sent" or one.ended.total is None or one.ended.read is None:
            continue
        sizes.append(one.ended.total)
        if one.word != "neutral":
            break
    return sizes


def _compared_with(before: list[Told]) -> Ended | None:
    """Return the request that a client's changes are told from: the last that was worked on and showed something.

    Small ones that show nothing are side requests, unless nothing is known of any that is none: then the first of them
    that something is known of will do.
    """
    worked_on = [one for one in before if one.ended.worked_on]
    main = [place for place, one in enumerate(worked_on) if one.word != "neutral"]
    since = worked_on[main[-1] :] if main else worked_on
    return next((one.ended for one in since if one.ended.letters is not None), None)


def _client_changed(last: Ended | None, ended: Ended) -> bool:
    """Whether the client sends other settings than the last time, or an opening that it wrote anew.

    It did not where it compacted, or where the conversation now begins with what stood further back in it.
    """
    if last is None or last.letters is None or ended.letters is None:
        return False
    old, new = last.letters, ended.letters
    if any(getattr(old, name) != getattr(new, name) for name in OWN_SETTINGS):
        return True
    compacted = new.compacted or new.window != old.window or 5 * ended.whole_bytes < 4 * last.whole_bytes
    return not compacted and new.texts[0] not in old.texts


def _with_cause(one: Told, past: Past) -> Told:
    """Say why a request of the past was cold, from what else the past holds."""
    if one.word in WARM_OR_SMALL:
        return one
    place = next(place for place, event in enumerate(past) if event is one.ended)
    earlier = _last_worked_on(_ends(past[:place]))
    rest_ms = one.ended.started_ms - earlier.at_ms if earlier else 0
    compared = _compared_with(tell(_ends(_since_silence(past[: place + 1]))[:-1]))
    before = compared.letters if compared else None
    return Told(one.ended, one.word, _because(before, one.ended.letters, rest_ms))


def _because(old: Letters | None, new: Letters | None, rest_ms: int) -> str:
    if new is None:
        return "unknown"
    if old is not None:
        for name in OWN_SETTINGS:
            if getattr(old, name) != getattr(new, name):
                return f"{name}_changed"
        for at, (was, is_now) in enumerate(zip(old.texts, new.texts, strict=False), 1):
            if was != is_now:
                return f"history_changed {at}/{len(old.texts)}"
    if new.unmarked:
        return "no_cache_marks"
    if rest_ms >= SILENCE_MS:
        return f"idle_over_lifetime {rest_ms // 1000}s"
    return "unchanged" if old else "unknown"


def _last_worked_on(ends: list[Ended]) -> Ended | None:
    return next((ended for ended in reversed(ends) if ended.worked_on), None)


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


def _change_of_running(event: Asked | Ended) -> int:
    return event.ran if isinstance(event, Asked) else -1


def _running(past: Past) -> int:
    return sum(map(_change_of_running, past))


def _since_silence(past: Past) -> Past:
    """Return what happened since nothing ran and nobody asked for five minutes."""
    start = running = last_ms = 0
    for place, event in enumerate(past):
        if place and running == 0 and event.at_ms - last_ms >= SILENCE_MS:
            start = place
        running += _change_of_running(event)
        last_ms = event.at_ms
    return past[start:]
