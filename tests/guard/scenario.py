"""Scenario tables: a story of requests, one row each, the expectation last.

    == R9 T1: two cold requests stop the third
    "two consecutive requests ... stop the next request before provider execution"
    +0s    chat  200k/0              -> allowed miss count=1
    +30s   chat  200k/0              -> allowed miss count=2
    +30s   chat  200k                -> stopped:measured count=2

A row says how long after the row before it, which budget, `total/cached` tokens, and how the request ended. A stopped
request measures nothing, so its row says only how large it is. Overlapping requests have a row for each end:

    +0s    start a chat 800KB        -> allowed count=0 running=1
    +90s   end a 200k/0 cancelled    -> excused:cancelled count=0

`?` is unknown. Bytes (`800KB`, or `800KB+50KB` with the tools and instructions behind the plus) stand behind the
tokens, or are four a token. `x360` repeats a row. `with limit=3` changes a number of the policy.

Requests are made of the same parts unless a row says otherwise, for itself alone (`letters.py`). Why a cold request was
cold, or the last one that made a stop, is the last thing a row can expect:

    +17s   chat  610k/0 tools=B                 -> allowed excused:client-change count=1 because tools_changed
    +9s    chat  612k/0 tools=B edited=3,5      -> allowed miss count=2 because history_changed 3/9
    +9s    chat  612k   tools=C                 -> stopped:measured count=2 because history_changed 3/9

Parts are `tools`, `instructions`, `opening`, `thinking`, `speed` (a letter), `window` (a number), `items` (how many),
`edited` (which of them), `dropped` (how many of the oldest), and `compacted`, `unmarked`, or `no digests` at all.

Everything that is not known here is an error, and so is a row that does not say what became of the request and of the
count.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from cachegate.guard.policy import Policy
from guard.letters import Letters

DECISIONS = frozenset(
    {"allowed", "recovered", "stopped:measured", "stopped:unreported", "observed:measured", "observed:unreported"}
)
SETTLEMENTS = frozenset(
    {
        "reuse",
        "miss",
        "unreported",
        "neutral",
        "not-sent",
        "excused:cancelled",
        "excused:after-cancel",
        "excused:client-change",
        "excused:after-refusal",
    }
)
_ENDINGS = frozenset({"completed", "cancelled", "refused", "failed", "timeout", "shutdown"})
CAUSES = frozenset(
    {
        "tools_changed",
        "instructions_changed",
        "thinking_changed",
        "speed_changed",
        "history_changed",
        "idle_over_lifetime",
        "no_cache_marks",
        "unchanged",
        "unknown",
    }
)
_DETAILS = {"history_changed": re.compile(r"[1-9]\d*/[1-9]\d*"), "idle_over_lifetime": re.compile(r"[1-9]\d*s")}
"""What must be said with a cause: the item and how many there were, or the seconds."""
_PHRASES = {
    "client change": "client-change",
    "not sent": "not-sent",
    "never began": "never-began",
    "no digests": "no-digests",
}
FLAGS = frozenset({"self-hosted", "client-change", "not-sent", "never-began"})
_PARTS = {
    "tools": re.compile(r"[A-Z]"),
    "instructions": re.compile(r"[A-Z]"),
    "opening": re.compile(r"[A-Z]"),
    "thinking": re.compile(r"[A-Z]"),
    "speed": re.compile(r"[A-Z]"),
    "window": re.compile(r"[1-9]\d*"),
    "items": re.compile(r"[1-9]\d*"),
    "edited": re.compile(r"[1-9]\d*(?:,[1-9]\d*)*"),
    "dropped": re.compile(r"[1-9]\d*"),
}
_BARE_PARTS = frozenset({"compacted", "unmarked"})
_MODES = frozenset({"chat", "compaction", "auxiliary"})
_POLICY = frozenset(number.name for number in fields(Policy))
_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
_BYTES = {"B": 1, "KB": 1_000, "KiB": 1_024, "MB": 1_000_000}
_BYTES_PER_TOKEN = 4

_WAIT = re.compile(r"\+(\d+(?:\.\d+)?)(ms|s|m|h)")
_TIMES = re.compile(r"x(\d+)")
_TOKENS = re.compile(r"(\d[\d,]*)(k?)")
_SIZE = re.compile(r"(\d[\d,]*)(B|KB|KiB|MB)(?:\+(\d[\d,]*)(B|KB|KiB|MB))?")
_BUDGET = re.compile(r"(\w+)(?::([\w-]+))?(?:@([\w-]+))?")
_NUMBER = re.compile(r"(count|left|running)=(\d+)")
_HEADER = re.compile(r"== ((?:[RTC]\d+[a-z]? ?)+): (\S.*)")


class TableError(ValueError):
    """A table that cannot be read, or that says too little."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Whose request: `chat`, `compaction:alice`, `chat:anonymous@other-model`."""

    mode: str
    caller: str
    model: str


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes of a request."""

    conversation: int
    fixed: int = 0


@dataclass(frozen=True, slots=True)
class Asking:
    """A request that wants to run."""

    budget: Budget
    size: Size
    self_hosted: bool
    letters: Letters | None
    """None: nothing is known of what the request is made of."""


@dataclass(frozen=True, slots=True)
class Finish:
    """How a request ended."""

    total: int | None
    read: int | None
    ending: str = "completed"
    flags: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Expectation:
    """The last column. `None` is not looked at."""

    decision: str | None
    settlement: str | None
    count: int
    left: int | None
    running: int | None
    because: str | None


@dataclass(frozen=True, slots=True)
class Row:
    """One line. `asking` and `finish` both: a request that ends before anything else happens."""

    line: int
    text: str
    wait_ms: int
    times: int
    request: str
    asking: Asking | None
    finish: Finish | None
    expect: Expectation


@dataclass(frozen=True, slots=True)
class Scenario:
    """One story."""

    file: str
    line: int
    labels: tuple[str, ...]
    title: str
    quotes: tuple[str, ...]
    policy: Policy
    rows: tuple[Row, ...]

    @property
    def id(self) -> str:
        """What pytest calls it: the rules, then the sentence."""
        return f"{'/'.join(self.labels)} {self.title}"


@dataclass(slots=True)
class _Draft:
    """A scenario being read."""

    line: int
    labels: tuple[str, ...]
    title: str
    quotes: list[str] = field(default_factory=list)
    open_quote: list[str] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    running: set[str] = field(default_factory=set)


def read_tables(folder: Path) -> list[Scenario]:
    """Read every table of a folder."""
    paths = sorted(folder.glob("*.txt"))
    return [scenario for path in paths for scenario in parse(path.read_text(encoding="utf-8"), path.name)]


def parse(text: str, file: str) -> list[Scenario]:
    """Read the scenarios of one table. Raises TableError with file and line."""
    drafts: list[_Draft] = []
    line = 0
    try:
        for line, raw in enumerate(text.splitlines(), 1):
            _read_line(raw.strip(), line, drafts)
        return [_scenario(draft, file) for draft in drafts]
    except TableError as error:
        raise TableError(f"{file}:{line}: {error}") from None


def _read_line(text: str, line: int, drafts: list[_Draft]) -> None:
    header = _HEADER.fullmatch(text)
    if header:
        drafts.append(_Draft(line, tuple(header[1].split()), header[2]))
        return
    if not text or text.startswith("#"):
        return
    if not drafts:
        raise TableError("the first line of a table must be a header: == R1: what it shows")
    draft = drafts[-1]
    if draft.open_quote or text.startswith('"'):
        _read_quote(text, draft)
    elif text.startswith("with "):
        _read_policy(text.split()[1:], draft)
    else:
        draft.rows.append(_row(text, line, draft))


def _read_quote(text: str, draft: _Draft) -> None:
    draft.open_quote.append(text)
    if text.endswith('"'):
        draft.quotes.append(" ".join(draft.open_quote).strip('"'))
        draft.open_quote.clear()


def _read_policy(words: list[str], draft: _Draft) -> None:
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name not in _POLICY or not value.isdecimal():
            raise TableError(f"{word!r} is no number of the policy")
        draft.numbers[name] = int(value)


def _scenario(draft: _Draft, file: str) -> Scenario:
    if not draft.rows or draft.open_quote:
        raise TableError(f"the scenario of line {draft.line}, {draft.title!r}, checks nothing, or a quote never ends")
    policy = Policy(**draft.numbers)
    return Scenario(file, draft.line, draft.labels, draft.title, tuple(draft.quotes), policy, tuple(draft.rows))


def _row(text: str, line: int, draft: _Draft) -> Row:
    left, arrow, right = text.partition("->")
    if not arrow:
        raise TableError("a row needs an expectation: -> allowed miss count=1")
    for phrase, word in _PHRASES.items():
        left = left.replace(phrase, word)
    words = iter(left.split())
    wait_ms, times, first = _when(words)
    request, asking, finish = _what(first, words, draft)
    rest = [*words]
    if rest:
        raise TableError(f"nobody knows what {' '.join(rest)!r} means here")
    expect = _expectation(right.split(), asks=asking is not None, ends=finish is not None)
    if request and times != 1:
        raise TableError("a request starts and ends once")
    if asking is not None and finish is None and not (expect.decision or "").startswith("stopped"):
        if not request:
            raise TableError("a request that runs needs a name, or its end")
        draft.running.add(request)
    return Row(line, text, wait_ms, times, request, asking, finish, expect)


def _when(words: Iterator[str]) -> tuple[int, int, str]:
    """Return the pause, the repetitions, and the word behind them."""
    word = _next(words, "a time")
    match = _WAIT.fullmatch(word)
    if not match:
        raise TableError(f"{word!r} is no time; a row begins like +30s")
    wait_ms = round(float(match[1]) * _MS[match[2]])
    word = _next(words, "a budget")
    repeat = _TIMES.fullmatch(word)
    if not repeat:
        return wait_ms, 1, word
    return wait_ms, int(repeat[1]), _next(words, "a budget")


def _what(first: str, words: Iterator[str], draft: _Draft) -> tuple[str, Asking | None, Finish | None]:
    """Return the name of an overlapping request, how it asks, and how it ends."""
    if first == "end":
        request, finish = _end(words, draft)
        return request, None, finish
    if first == "start":
        request, asking = _start(words, draft)
        return request, asking, None
    return "", *_whole(_budget(first), words)


def _end(words: Iterator[str], draft: _Draft) -> tuple[str, Finish]:
    request = _next(words, "the name of a request")
    if request not in draft.running:
        raise TableError(f"{request!r} is not running")
    draft.running.remove(request)
    finish, size = _finish(_next(words, "total/cached"), words)
    if size is not None or "self-hosted" in finish.flags:
        raise TableError("size and self-hosted stand where the request starts")
    return request, finish


def _start(words: Iterator[str], draft: _Draft) -> tuple[str, Asking]:
    request = _next(words, "the name of a request")
    if request in draft.running:
        raise TableError(f"{request!r} is running already")
    budget = _budget(_next(words, "a budget"))
    size = _size_or_tokens(_next(words, "a size"))
    letters, flags = _letters(words)
    if flags not in ([], ["self-hosted"]):
        raise TableError(f"nobody knows what {' '.join(flags)!r} means at a start")
    return request, Asking(budget, size, self_hosted=bool(flags), letters=letters)


def _whole(budget: Budget, words: Iterator[str]) -> tuple[Asking, Finish | None]:
    """Return a request that ends before anything else happens, or is stopped."""
    word = _next(words, "total/cached, or the size of a stopped request")
    letters, others = _letters(words)
    if "/" not in word and word != "?":
        if others:
            raise TableError(f"nobody knows what {' '.join(others)!r} means here")
        return Asking(budget, _size_or_tokens(word), self_hosted=False, letters=letters), None
    finish, size = _finish(word, iter(others))
    if size is None:
        if finish.total is None:
            raise TableError("a request of unknown tokens needs its bytes")
        size = Size(finish.total * _BYTES_PER_TOKEN)
    return Asking(budget, size, self_hosted="self-hosted" in finish.flags, letters=letters), finish


def _letters(words: Iterator[str]) -> tuple[Letters | None, list[str]]:
    """Take what says what a request is made of out of the words; return the others too."""
    parts: dict[str, Any] = {}
    digested, others = True, list[str]()
    for word in words:
        name, equals, value = word.partition("=")
        if name in parts or (word == "no-digests" and not digested):
            raise TableError(f"{word!r} stands twice")
        if word == "no-digests":
            digested = False
        elif word in _BARE_PARTS:
            parts[word] = True
        elif equals and name in _PARTS:
            if not _PARTS[name].fullmatch(value):
                raise TableError(f"{value!r} is nothing that {name} can be")
            parts[name] = _part(name, value)
        else:
            others.append(word)
    if parts and not digested:
        raise TableError("what has no digests has no letters")
    letters = Letters(**parts)
    if letters.dropped >= letters.items or not all(1 < at <= letters.items for at in letters.edited):
        raise TableError(f"there are {letters.items} items, and the first is the opening")
    return letters if digested else None, others


def _part(name: str, value: str) -> str | int | tuple[int, ...]:
    if name == "edited":
        return tuple(map(int, value.split(",")))
    return int(value) if name in {"items", "dropped"} else value


def _finish(tokens: str, words: Iterator[str]) -> tuple[Finish, Size | None]:
    """Read the tokens and the words behind them, in any order, each at most once."""
    total, read = _tokens(tokens)
    size: Size | None = None
    ending, flags = "", set[str]()
    for word in words:
        match = _SIZE.fullmatch(word)
        if match and size is None:
            size = _size(match)
        elif word in _ENDINGS and not ending:
            ending = word
        elif word in FLAGS and word not in flags:
            flags.add(word)
        else:
            raise TableError(f"nobody knows what {word!r} means here")
    return Finish(total, read, ending or "completed", frozenset(flags)), size


def _tokens(word: str) -> tuple[int | None, int | None]:
    total, slash, read = word.partition("/")
    if word == "?":
        return None, None
    if not slash:
        raise TableError(f"{word!r} is not total/cached")
    return _number(total), _number(read)


def _number(word: str) -> int | None:
    """Return tokens; `?` is unknown."""
    if word == "?":
        return None
    match = _TOKENS.fullmatch(word)
    if not match:
        raise TableError(f"{word!r} is no number of tokens")
    return int(match[1].replace(",", "")) * (1_000 if match[2] else 1)


def _size_or_tokens(word: str) -> Size:
    match = _SIZE.fullmatch(word)
    return _size(match) if match else Size((_number(word) or 0) * _BYTES_PER_TOKEN)


def _size(match: re.Match[str]) -> Size:
    conversation, unit, fixed, fixed_unit = match.groups()
    behind = int(fixed.replace(",", "")) * _BYTES[fixed_unit] if fixed else 0
    return Size(int(conversation.replace(",", "")) * _BYTES[unit], behind)


def _budget(word: str) -> Budget:
    match = _BUDGET.fullmatch(word)
    if not match or match[1] not in _MODES:
        raise TableError(f"{word!r} is no budget; they are {', '.join(sorted(_MODES))}, with :caller and @model")
    return Budget(match[1], match[2] or "main", match[3] or "model")


def _next(words: Iterator[str], wanted: str) -> str:
    word = next(words, "")
    if not word:
        raise TableError(f"the row ends where {wanted} should stand")
    return word


def _expectation(words: list[str], *, asks: bool, ends: bool) -> Expectation:
    """Read the last column: it must say everything that the row can show of its request, and the count."""
    decision: str | None = None
    settlement: str | None = None
    numbers: dict[str, int] = {}
    words, because = _because(words)
    for word in words:
        number = _NUMBER.fullmatch(word)
        if number and number[1] not in numbers:
            numbers[number[1]] = int(number[2])
        elif word in DECISIONS and decision is None:
            decision = word
        elif word in SETTLEMENTS and settlement is None:
            settlement = word
        else:
            raise TableError(f"{word!r} is no expectation, or stands twice")
    stopped = decision is not None and decision.startswith("stopped")
    if (decision is not None) is not asks:
        raise TableError("a row that asks expects a decision, and only such a row")
    if (settlement is not None) is not ends or (stopped and ends):
        raise TableError("a row that runs a request expects what it measured; a stopped one measures nothing")
    if because is not None and not (stopped or ends):
        raise TableError("there is a cause when a request was stopped, or has ended")
    if "count" not in numbers:
        raise TableError("a row must say the count: count=1")
    return Expectation(decision, settlement, numbers["count"], numbers.get("left"), numbers.get("running"), because)


def _because(words: list[str]) -> tuple[list[str], str | None]:
    """Take the cause off the end of an expectation."""
    if "because" not in words:
        return words, None
    place = words.index("because")
    cause, *details = words[place + 1 :] or [""]
    pattern = _DETAILS.get(cause)
    complete = len(details) == 1 and pattern.fullmatch(details[0]) if pattern else not details
    if cause not in CAUSES or not complete:
        raise TableError(f"{' '.join(words[place:])!r} is no cause, or does not say where or how long")
    return words[:place], " ".join([cause, *details])
