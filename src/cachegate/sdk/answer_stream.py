"""One answer in the Responses protocol, streamed or whole: bytes in, events and a `Heard` out, errors as exceptions."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cachegate.sdk.errors import BrokenAnswer, CachegateError, CacheStop, ContextFull, ProviderError
from cachegate.sdk.events import TextDelta, ThoughtDelta, Tokens, ToolCalled
from cachegate.sdk.sse import SseReader
from cachegate.sdk.tools import arguments_of

ANSWER_BYTES_MAX = 134_217_728
"""128 MiB: far more than any answer, with every event of its stream."""
CONTEXT_FULL_CODE = "context_length_exceeded"
STOP_HEADER = "x-cachegate-stop"
CONTEXT_FULL_HEADER = "x-cachegate-context-full"
WORDS_CHARS_MAX = 2_000
"""Of an error that is no JSON, such as a page of a proxy, more than this helps nobody."""

_TEXT_DELTAS = frozenset({"response.output_text.delta", "response.refusal.delta"})
_THOUGHT_DELTAS = frozenset({"response.reasoning_summary_text.delta", "response.reasoning_text.delta"})
_THOUGHTS_GO_ON = frozenset({"response.reasoning_summary_part.added"})
_ENDS = frozenset({"response.completed", "response.incomplete"})
_BETWEEN_THOUGHTS = "\n\n"
_CUT_OFF = "The gateway's answer ended before it was complete. What it said until then is no answer."

Told = TextDelta | ThoughtDelta
_Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Heard:
    """A finished answer of one request."""

    items: tuple[_Fields, ...]
    """What goes back with the next request, exactly as it came."""
    text: str
    calls: tuple[ToolCalled, ...]
    tokens: Tokens
    incomplete: str | None = None
    refused: bool = False


class AnswerReader:
    """Reads one answer: feed it every byte, then ask for `end`."""

    def __init__(self, *, streamed: bool = True) -> None:
        self.streamed = streamed
        """Whether a stream of events comes, or one JSON object."""
        self._sse = SseReader()
        self._whole = bytearray()
        self._size_bytes = 0
        self._done: dict[int, _Fields] = {}
        self._thought = False
        self._heard: Heard | None = None
        self._text = ""
        self.tokens = Tokens()
        """What the request took, as far as it was told, also by a failed answer."""

    def feed(self, data: bytes) -> list[Told]:
        """Return what these bytes say. Raises ProviderError, ContextFull or BrokenAnswer."""
        self._size_bytes += len(data)
        if self._size_bytes > ANSWER_BYTES_MAX:
            raise BrokenAnswer(f"The answer has more than {ANSWER_BYTES_MAX} bytes.")
        if not self.streamed:
            self._whole += data
            return []
        return [told for event in self._sse.feed(data) for told in self._read(_object(event))]

    def end(self) -> list[Told | Heard]:
        """Return what is left to tell, the whole answer last. Raises as `feed` does; an end of file is no answer."""
        told = [] if self.streamed else self._finish(_object(bytes(self._whole)))
        if self._heard is None:
            raise BrokenAnswer(_CUT_OFF)
        return [*told, self._heard]

    def _read(self, event: _Fields) -> list[Told]:
        kind, delta = event.get("type"), event.get("delta")
        if self._heard is not None:
            return []
        if kind in _ENDS:
            return self._finish(_fields(event.get("response")))
        if kind == "response.failed":
            self.tokens = tokens_of(_fields(event.get("response")).get("usage"))
            raise failure(_fields(event.get("response")))
        if kind == "error":
            raise failure(event)
        if kind == "response.output_item.done":
            at = event.get("output_index")
            self._done[at if isinstance(at, int) else len(self._done)] = _fields(event.get("item"))
        if isinstance(delta, str) and kind in _TEXT_DELTAS:
            return self._say(delta)
        if isinstance(delta, str) and kind in _THOUGHT_DELTAS:
            self._thought = True
            return [ThoughtDelta(delta)]
        return [ThoughtDelta(_BETWEEN_THOUGHTS)] if kind in _THOUGHTS_GO_ON and self._thought else []

    def _say(self, text: str) -> list[Told]:
        self._text += text
        return [TextDelta(text)]

    def _finish(self, response: _Fields) -> list[Told]:
        """Take the final response. Some providers leave its output empty when they streamed the items before."""
        self.tokens = tokens_of(response.get("usage"))
        status = response.get("status", "completed")
        if status == "failed" or isinstance(response.get("error"), dict):
            raise failure(response)
        if status not in {"completed", "incomplete"} or not isinstance(response.get("output", []), list):
            raise BrokenAnswer(f"The answer has the status {status!r} and is no finished response.")
        if not self.streamed and "output" not in response:
            raise BrokenAnswer("The answer is no response of the Responses protocol: it has no output.")
        streamed = [item for _, item in sorted(self._done.items())]
        items = streamed or [_fields(item) for item in response.get("output", [])]
        told: list[Told] = []
        if not self._thought and (thoughts := _BETWEEN_THOUGHTS.join(_thoughts(items))):
            told.append(ThoughtDelta(thoughts))
        texts = [part for item in items if item.get("type") == "message" for part in _list(item.get("content"))]
        said = "".join(str(part.get("text", part.get("refusal", ""))) for part in texts)
        if not self._text and said:
            told += self._say(said)
        incomplete = None
        if status == "incomplete":
            incomplete = str(_fields(response.get("incomplete_details")).get("reason") or "unknown")
            items = _without_loose_ends(items)
        refused = any(part.get("type") == "refusal" for part in texts)
        self._heard = Heard(tuple(items), said or self._text, _calls(items), self.tokens, incomplete, refused)
        return told


def refusal(status: int, headers: Mapping[str, str], body: bytes) -> CachegateError:
    """Return the error that an answer with an error status stands for. Names of headers may have any case."""
    told = {name.lower(): value for name, value in headers.items()}
    error = _error(_object(body, lenient=True))
    words = str(error.get("message") or "") or body[:WORDS_CHARS_MAX].decode("utf-8", "replace")
    words = words or f"The answer has the status {status} and says nothing."
    if STOP_HEADER in told:
        return _stop(words, told[STOP_HEADER])
    if CONTEXT_FULL_HEADER in told or CONTEXT_FULL_CODE in {error.get("code"), error.get("type")}:
        return ContextFull(words)
    return ProviderError(words, status, _code(error))


def failure(event: _Fields) -> CachegateError:
    """Return the error that a failed answer, or an `error` event, stands for."""
    error = _error(event)
    words = str(error.get("message") or "The provider failed and did not say why.")
    return ContextFull(words) if error.get("code") == CONTEXT_FULL_CODE else ProviderError(words, code=_code(error))


def tokens_of(usage: object) -> Tokens:
    """Return what a response says about its usage."""
    counts = _fields(usage)
    details = _fields(counts.get("input_tokens_details"))
    return Tokens(
        input=count(counts.get("input_tokens")),
        cached=count(details.get("cached_tokens")),
        cache_write=count(details.get("cache_write_tokens")),
        output=count(counts.get("output_tokens")),
        total=count(counts.get("total_tokens")),
    )


def count(value: object) -> int | None:
    """Return a number of tokens; None for anything that is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _stop(words: str, told: str) -> CacheStop:
    """Read `reason=measured, count=2, wait-seconds=300`."""
    facts = {name.strip(): value.strip() for name, _, value in (part.partition("=") for part in told.split(","))}
    counted, wait = facts.get("count", ""), facts.get("wait-seconds", "")
    return CacheStop(
        words,
        facts.get("reason") or None,
        int(counted) if counted.isdecimal() else None,
        float(wait) if wait.replace(".", "", 1).isdecimal() else None,
    )


def _calls(items: list[_Fields]) -> tuple[ToolCalled, ...]:
    return tuple(
        ToolCalled(str(item.get("call_id")), str(item.get("name")), arguments_of(str(item.get("arguments") or "")))
        for item in items
        if item.get("type") == "function_call"
    )


def _without_loose_ends(items: list[_Fields]) -> list[_Fields]:
    """Leave out what an answer cut short began for nothing: calls, and thoughts that nothing follows."""
    kept = [item for item in items if item.get("type") != "function_call"]
    while kept and kept[-1].get("type") == "reasoning":
        kept.pop()
    return kept


def _thoughts(items: list[_Fields]) -> list[str]:
    parts = [
        part
        for item in items
        if item.get("type") == "reasoning"
        for name in ("summary", "content")
        for part in _list(item.get(name))
    ]
    return [str(part["text"]) for part in parts if part.get("text")]


def _error(value: _Fields) -> _Fields:
    """Return the error in a body, an event or a response: nested or flat, an object or only words."""
    inner = value.get("error", value.get("detail", value))
    return inner if isinstance(inner, dict) else {"message": inner} if isinstance(inner, str) else value


def _code(error: _Fields) -> str | None:
    found = error.get("code") or error.get("type")
    return str(found) if found else None


def _object(data: bytes, *, lenient: bool = False) -> _Fields:
    """Read a JSON object. Raises BrokenAnswer for anything else, unless lenient."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return value
    if lenient or data == b"[DONE]":
        return {}
    raise BrokenAnswer(f"The answer holds something that is no JSON object: {data[:80]!r}")


def _fields(value: object) -> _Fields:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[_Fields]:
    return [_fields(part) for part in value] if isinstance(value, list) else []
