"""One turn of a hosted chat, read from notifications, or from a snapshot where those were lost. Pure."""

from collections.abc import Mapping

from cachegate.sdk.answer_stream import count
from cachegate.sdk.errors import CachegateError, CacheStop, ContextFull, Interrupted, ProviderError
from cachegate.sdk.events import (
    NO_TOKENS,
    Answer,
    Completed,
    Event,
    TextDelta,
    ThoughtDelta,
    Tokens,
    ToolAnswered,
    ToolCalled,
    Usage,
    UsageUpdated,
)
from cachegate.sdk.frames import Notification, Params

_CALL = "dynamicToolCall"
_SPOKEN = frozenset({"agentMessage", "reasoning"})


class TurnReader:
    """Reads the turn with this id: from its notifications, and from a snapshot what of them was lost."""

    def __init__(self, turn_id: str) -> None:
        self.turn_id = turn_id
        self.tokens = NO_TOKENS
        """What the turn took so far."""
        self.end: Completed | CachegateError | None = None
        """What the turn came to, once it is over."""
        self.summary: str | None = None
        """Of a compaction."""
        self._said: dict[str, str] = {}
        """Text and thoughts told so far, by item."""
        self._told: set[tuple[str, type[Event]]] = set()
        """Calls and answers of tools that were told."""

    def hear(self, told: Notification) -> list[Event]:
        """Return what a notification says; nothing when it is about another turn."""
        params = told.params
        turn, item = _fields(params.get("turn")), _fields(params.get("item"))
        if self.turn_id not in {params.get("turnId"), turn.get("id")}:
            return []
        match told.method:
            case "item/agentMessage/delta" | "item/reasoning/textDelta":
                said = TextDelta if told.method == "item/agentMessage/delta" else ThoughtDelta
                return self._say(said(str(params.get("delta", ""))), str(params.get("itemId")))
            case "item/started" if item.get("type") == _CALL:
                return self._once(_called(item), item)
            case "item/completed" if item.get("type") == _CALL:
                return self._once(_answered(item), item)
            case "thread/tokenUsage/updated":
                usage = usage_of(params.get("tokenUsage"))
                self.tokens += usage.last
                return [UsageUpdated(usage)]
            case "turn/completed":
                self._end(turn)
        return []

    def snapshot(self, turn: Params) -> list[Event]:
        """Return what a turn holds that was not told yet. What it took can no longer be known."""
        self.tokens = Tokens()
        events: list[Event] = []
        for item in _items(turn):
            item_id, kind, text = str(item.get("id")), item.get("type"), str(item.get("text") or "")
            rest = text.removeprefix(self._said.get(item_id, ""))
            if kind in _SPOKEN and rest:
                events += self._say(TextDelta(rest) if kind == "agentMessage" else ThoughtDelta(rest), item_id)
            elif kind == _CALL:
                events += self._once(_called(item), item)
                events += self._once(_answered(item), item) if item.get("success") is not None else []
        if turn.get("status") != "inProgress":
            self._end(turn)
        return events

    def _say(self, said: TextDelta | ThoughtDelta, item_id: str) -> list[Event]:
        self._said[item_id] = self._said.get(item_id, "") + said.text
        return [said]

    def _once(self, event: ToolCalled | ToolAnswered, item: Params) -> list[Event]:
        key = (str(item.get("id")), type(event))
        if key in self._told:
            return []
        self._told.add(key)
        return [event]

    def _end(self, turn: Params) -> None:
        items = _items(turn)
        summaries = [item["summary"] for item in items if isinstance(item.get("summary"), str)]
        self.summary = summaries[-1] if summaries else None
        match turn.get("status"):
            case "completed":
                self.end = Completed(Answer(_last_text(items), self.tokens))
            case "interrupted":
                self.end = Interrupted(_last_text(items))
            case _:
                self.end = failure(_fields(turn.get("error")))


def usage_of(value: object) -> Usage:
    """Return a `tokenUsage`."""
    usage = _fields(value)
    return Usage(_tokens(usage.get("last")), _tokens(usage.get("total")))


def failure(error: Params) -> CachegateError:
    """Return what a turn failed with."""
    words = str(error.get("message") or "The turn failed, and the gateway did not say why.")
    stop = error.get("cacheStop")
    if isinstance(stop, Mapping):
        wait = count(stop.get("waitSeconds"))
        reason = stop.get("reason")
        return CacheStop(
            words,
            reason if isinstance(reason, str) else None,
            count(stop.get("count")),
            None if wait is None else float(wait),
        )
    return ContextFull(words) if is_context_full(error) else ProviderError(words, count(error.get("status")))


def is_context_full(error: Params) -> bool:
    """Whether a turn failed because the conversation no longer fits."""
    return error.get("codexErrorInfo") == "contextWindowExceeded"


def _tokens(value: object) -> Tokens:
    counts = _fields(value)
    names = ("inputTokens", "cachedInputTokens", "cacheWriteInputTokens", "outputTokens", "totalTokens")
    return Tokens(*(count(counts.get(name)) for name in names))


def _last_text(items: list[Params]) -> str:
    """Return what was said after the last tool round, or the last message of the user's."""
    last: list[str] = []
    for item in items:
        if item.get("type") not in _SPOKEN:
            last.clear()
        elif item.get("type") == "agentMessage":
            last.append(str(item.get("text") or ""))
    return "".join(last)


def _called(item: Params) -> ToolCalled:
    arguments = item.get("arguments")
    known = arguments if isinstance(arguments, dict) else str(arguments)
    return ToolCalled(str(item.get("id")), str(item.get("tool")), known)


def _answered(item: Params) -> ToolAnswered:
    output = "".join(str(_fields(part).get("text", "")) for part in item.get("contentItems") or ())
    return ToolAnswered(str(item.get("id")), str(item.get("tool")), output, success=item.get("success") is True)


def _items(turn: Params) -> list[Params]:
    return [_fields(item) for item in turn.get("items") or ()]


def _fields(value: object) -> Params:
    return value if isinstance(value, dict) else {}
