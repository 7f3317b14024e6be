"""Writes answers for Chat clients from events, streamed or whole."""

from typing import assert_never

from cachegate.wire.body import encode
from cachegate.wire.chat import thoughts
from cachegate.wire.chat.errors import DONE, data_line, write_broken
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import (
    Broken,
    Counted,
    Delta,
    Ended,
    Event,
    Json,
    PartEnded,
    PartKind,
    PartStarted,
    Request,
    Started,
    Stop,
    Target,
    ToolCall,
    ToolRef,
)
from cachegate.wire.tool_names import OPENAI_CHARS_MAX, wire_name
from cachegate.wire.usage_readings import fields

REASONS = {
    Stop.END: "stop",
    Stop.TOOL_CALLS: "tool_calls",
    Stop.MAX_TOKENS: "length",
    Stop.STOP_SEQUENCE: "stop",
    Stop.REFUSAL: "content_filter",
    Stop.CONTENT_FILTER: "content_filter",
    Stop.PAUSE: "stop",
    Stop.CONTEXT_FULL: "length",
}
"""`finish_reason` for each; a refusal with words of its own ends with `stop`, as OpenAI's do."""

ID_PREFIX = "chatcmpl-"
_TEXTS = {PartKind.TEXT: "content", PartKind.REFUSAL: "refusal", PartKind.THINKING: thoughts.PLAIN[0]}
_BREAK = "\n\n"
"""Between texts of two items: the protocol has one text only."""


class ChatStreamWriter:
    """See `codec.StreamWriter`."""

    __slots__ = ("_deltas", "_over", "_with_usage")

    def __init__(self, request: Request, target: Target) -> None:
        self._deltas = _Deltas(target)
        self._over = False
        self._with_usage = request.wants_usage

    def write(self, event: Event) -> bytes:
        """Return the bytes of whole events; empty where the protocol has nothing to say, or not yet."""
        if self._over:
            return b""
        self._over = isinstance(event, Broken | Ended)
        if isinstance(event, Broken):
            return write_broken(event)
        delta = self._deltas.of(event)
        if isinstance(event, Ended):
            finish = self._chunk({**_CHOICE, "delta": {}, "finish_reason": self._deltas.reason(event)})
            return finish + self._usage() + DONE
        return self._chunk({**_CHOICE, "delta": delta, "finish_reason": None}) if delta else b""

    def _chunk(self, choice: Json) -> bytes:
        usage = {"usage": None} if self._with_usage else {}
        return data_line(encode({**self._head(), "choices": [choice], **usage}))

    def _usage(self) -> bytes:
        usage = self._deltas.usage
        return data_line(encode({**self._head(), "choices": [], "usage": usage})) if self._with_usage and usage else b""

    def _head(self) -> Json:
        return self._deltas.head("chat.completion.chunk")


def write_body(target: Target, events: tuple[Event, ...]) -> bytes:
    """Write an unstreamed answer."""
    deltas = _Deltas(target)
    texts: dict[str, str] = {}
    lists: dict[str, list[Json]] = {}
    reason = REASONS[Stop.END]
    for event in events:
        for name, value in (deltas.of(event) or {}).items():
            if isinstance(value, str):
                texts[name] = texts.get(name, "") + value
            elif isinstance(value, list) and name != "tool_calls":
                lists.setdefault(name, []).extend(value)
        if isinstance(event, Ended):
            reason = deltas.reason(event)
    message: dict[str, object] = {
        "role": "assistant",
        "content": texts.pop("content", "") or None,
        "refusal": texts.pop("refusal", "") or None,
        **{name: text for name, text in texts.items() if name != "role"},
        **lists,
        **({"tool_calls": deltas.calls} if deltas.calls else {}),
    }
    usage = {"usage": deltas.usage} if deltas.usage else {}
    choice = {**_CHOICE, "message": message, "finish_reason": reason}
    return encode({**deltas.head("chat.completion"), "choices": [choice], **usage})


_CHOICE: Json = {"index": 0, "logprobs": None}


class _Deltas:
    """What each event adds to the message, and what was learnt on the way."""

    __slots__ = ("_broken_off", "_calls", "_counted", "_extras", "_items", "_kinds", "_native", "_said", "_started")

    def __init__(self, target: Target) -> None:
        self._native = target.origin in {None, Protocol.CHAT}
        """The upstream speaks this protocol too: what is opaque goes back to where it came from."""
        self._started: Started | None = None
        self._counted: Counted | None = None
        self._kinds: dict[int, PartKind] = {}
        self._calls: dict[int, _Call] = {}
        self._extras: dict[str, object] = {}
        self._said: set[PartKind] = set()
        self._items: dict[PartKind, str | None] = {}
        """Item of the last part of a kind."""
        self._broken_off = False

    def of(self, event: Event) -> Json | None:
        """Return the delta, if there is one."""
        match event:
            case Started():
                self._started = event
                if event.usage is not None and self._counted is None:
                    self._counted = Counted(event.usage)
                return {"role": "assistant", "content": ""}
            case PartStarted():
                return self._begin(event)
            case Delta():
                return self._more(event)
            case PartEnded():
                return self._end(event)
            case Counted():
                self._counted = event
                return None
            case Ended() | Broken():
                return None
            case _:
                assert_never(event)

    def reason(self, ended: Ended) -> str:
        """Return why the model stopped, in this protocol's words."""
        if ended.stop is Stop.END and self._calls:
            return REASONS[Stop.TOOL_CALLS]
        told = ended.stop is Stop.REFUSAL and PartKind.REFUSAL in self._said
        return REASONS[Stop.END if told else ended.stop]

    @property
    def usage(self) -> Json:
        """What is known of the usage. A field that is not known is left out, also where OpenAI always has it."""
        counted = self._counted
        return {} if counted is None else usage_fields(counted)

    @property
    def calls(self) -> list[Json]:
        """All calls, whole."""
        return [call.whole() for call in self._calls.values()]

    def head(self, kind: str) -> Json:
        """Return the fields that all chunks share."""
        started = self._started or Started("unknown", "")
        answer_id = started.answer_id
        return {
            "id": answer_id if answer_id.startswith(ID_PREFIX) else ID_PREFIX + answer_id,
            "object": kind,
            # The one zero for something unknown: clients' types demand a number, and 1970 misleads nobody.
            "created": started.created_s or 0,
            "model": started.model,
        }

    def _begin(self, event: PartStarted) -> Json | None:
        self._kinds[event.index] = event.kind
        if event.kind is PartKind.TOOL_CALL:
            return self._begin_call(event)
        last = self._items.get(event.kind)
        another = event.item_id is not None and last is not None and event.item_id != last
        self._broken_off = another and event.kind in self._said
        self._items[event.kind] = event.item_id
        return None

    def _begin_call(self, event: PartStarted) -> Json | None:
        if event.call is None:
            return None
        call = _Call(len(self._calls), event.call, self._extras.get(event.call.call_id))
        self._calls[event.index] = call
        return {"tool_calls": [{"index": call.number, **call.whole()}]}

    def _more(self, event: Delta) -> Json | None:
        kind = self._kinds.get(event.index)
        if not event.text or kind is None:
            return None
        if kind is PartKind.TOOL_CALL:
            call = self._calls.get(event.index)
            return None if call is None else call.more(event.text)
        self._said.add(kind)
        text, self._broken_off = (_BREAK if self._broken_off else "") + event.text, False
        return {_TEXTS[kind]: text}

    def _end(self, event: PartEnded) -> Json | None:
        match self._kinds.get(event.index):
            case PartKind.TOOL_CALL:
                call = self._calls.get(event.index)
                return call.more("{}") if call is not None and call.lacks_arguments else None
            case PartKind.THINKING:
                return self._returned(event.opaque) if self._native else None
            case PartKind.TEXT | PartKind.REFUSAL | None:
                notes = [note for note in map(_url_citation, event.annotations) if note is not None]
                return {"annotations": notes} if notes else None

    def _returned(self, opaque: str | None) -> Json | None:
        """Return what the client must hand back, of an upstream of this protocol."""
        returned = thoughts.read_opaque(opaque)
        if returned.call_id:
            self._extras[returned.call_id] = returned.extra
        return {thoughts.DETAILS: list(returned.details)} if returned.details else None


class _Call:
    """A call being written."""

    __slots__ = ("_call", "_extra", "_texts", "number")

    def __init__(self, number: int, call: ToolCall, extra: object) -> None:
        self._call = call
        self._extra: Json = {} if extra is None else {thoughts.EXTRA: extra}
        self._texts: list[str] = []
        self.number = number

    @property
    def lacks_arguments(self) -> bool:
        """Whether nothing was said that could be read as JSON; a freeform input may be empty."""
        return not self._texts and not self._call.tool.custom

    def more(self, text: str) -> Json:
        """Take in more of the arguments, and return the delta."""
        self._texts.append(text)
        added = {"custom": {"input": text}} if self._call.tool.custom else {"function": {"arguments": text}}
        return {"tool_calls": [{"index": self.number, **added}]}

    def whole(self) -> Json:
        """Return the call with all that it has so far."""
        name, text = _client_name(self._call.tool), "".join(self._texts)
        if self._call.tool.custom:
            shown: Json = {"type": "custom", "custom": {"name": name, "input": text}}
        else:
            shown = {"type": "function", "function": {"name": name, "arguments": text}}
        return {"id": self._call.call_id, **shown, **self._extra}


def usage_fields(counted: Counted) -> Json:
    """Return a usage object of what is known; empty when nothing is."""
    total, output = counted.usage.input_total, counted.output_tokens
    prompt = _known(cached_tokens=counted.usage.cached_read, cache_write_tokens=counted.usage.cache_write)
    completion = _known(reasoning_tokens=counted.reasoning_tokens)
    return {
        **_known(prompt_tokens=total, completion_tokens=output),
        **_known(total_tokens=None if total is None or output is None else total + output),
        **({"prompt_tokens_details": prompt} if prompt else {}),
        **({"completion_tokens_details": completion} if completion else {}),
    }


def _known(**counts: int | None) -> dict[str, int]:
    return {name: value for name, value in counts.items() if value is not None}


def _client_name(ref: ToolRef) -> str:
    """Return the name under which the client declared the tool; it knows no namespaces."""
    return ref.name if ref.namespace is None else wire_name(ref, OPENAI_CHARS_MAX)


def _url_citation(note: Json) -> Json | None:
    """Return a citation in this protocol's form: Responses has the same one flat, other kinds have no place here."""
    if note.get("type") != "url_citation":
        return None
    nested = fields(note.get("url_citation"))
    return note if nested else {"type": "url_citation", "url_citation": {k: v for k, v in note.items() if k != "type"}}
