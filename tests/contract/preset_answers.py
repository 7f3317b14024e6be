"""Answers as each provider sends them, streamed and whole, with the peculiarities of each."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cachegate.wire.facts import Protocol
from contract.preset_facts import C, M, R
from contract.preset_troubles import BUSY
from contract.preset_usage import Report

Json = Mapping[str, Any]
MODEL = "model-of-the-provider"
ANSWER_ID = "7f3a00b1c2d4"


@dataclass(frozen=True, slots=True)
class Said:
    """What a model says in one answer."""

    text: str = ""
    thought: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    """Name and arguments of each."""
    refused: bool = False
    full: bool = False
    """The context was full before the answer was complete."""


TEXT = Said("Hello, w\u00f6rld \U0001f642 \n\nevent: x")
ONE_CALL = Said("I'll look.", calls=(("shell", '{"command": "ls -l \\"a b\\""}'),))
PARALLEL = Said(
    calls=(("shell", '{"command": "ls"}'), ("Read", '{"file_path": "/a/\u00e9"}'), ("shell", '{"command": "pwd"}'))
)
THOUGHTS = Said("Done.", thought="Hm, \u00fcber die Tests.")
EXPLANATION = "No."
REFUSAL = Said("I can't help with that.", refused=True)


@dataclass(frozen=True, slots=True)
class Manner:
    """How a provider's Chat Completions differ from OpenAI's."""

    thoughts: str = "reasoning_content"
    """Field of the thoughts; `parts` of the content, as Mistral has them; or "" for one that shows none."""
    usage: str = "behind"
    """`behind` the end in a chunk of its own, in the chunk of the `end`, in its `choice`, or in `every` chunk."""
    calls: str = "by turns"
    """`by turns` in pieces; or each `whole`: numbered, all `zero`, or `bare` without a number."""
    refusal: str = "content_filter"
    """Reason to finish a refused answer; "" for words in a field of their own."""
    done: bool = True
    begins: bytes = b""
    call_ids: str = "call_{}"
    breaks: str = "bare"
    """How an answer breaks off: a `bare` error; one with a `choice`; a `named` event; or a reason to finish."""


MANNERS: Mapping[str, Manner] = {
    "openai": Manner(thoughts="", refusal=""),
    "azure": Manner(
        thoughts="", begins=b'data: {"choices":[],"prompt_filter_results":[{"prompt_index":0}],"usage":null}\n\n'
    ),
    "openrouter": Manner(thoughts="reasoning", breaks="choice", begins=b": OPENROUTER PROCESSING\n\n", refusal=""),
    "xai": Manner(),
    "deepseek": Manner(breaks="insufficient_system_resource", usage="end", begins=b": keep-alive\n\n"),
    "gemini": Manner(thoughts="", usage="every", calls="zero", call_ids="function-call-{}"),
    "mistral": Manner(thoughts="parts", usage="end", calls="bare", call_ids="D681PevK{}", breaks="error"),
    "moonshot": Manner(usage="choice", call_ids="functions.shell:{}"),
    "zai": Manner(usage="end", calls="whole", refusal="sensitive", breaks="network_error"),
    "qwen": Manner(),
    "groq": Manner(thoughts="reasoning", calls="whole", breaks="named"),
    "llamacpp": Manner(),
    "vllm": Manner(thoughts="reasoning", call_ids="chatcmpl-tool-{}", breaks="flat"),
    "sglang": Manner(breaks="abort"),
    "ollama": Manner(thoughts="reasoning", calls="whole"),
    "lmstudio": Manner(thoughts="reasoning"),
    "openai-compatible": Manner(done=False),
}


def call_id(kind: str, spoken: Protocol, number: int) -> str:
    match spoken:
        case Protocol.MESSAGES:
            return f"toolu_01A{number}"
        case Protocol.RESPONSES:
            return f"call_R{number}"
        case Protocol.CHAT:
            return MANNERS[kind].call_ids.format(number)


def shows_thoughts(kind: str, spoken: Protocol) -> bool:
    return spoken is not C or MANNERS[kind].thoughts != ""


def events(kind: str, spoken: Protocol, said: Said, report: Report) -> list[bytes]:
    """The events of a stream."""
    match spoken:
        case Protocol.MESSAGES:
            return list(_messages(kind, said, report))
        case Protocol.RESPONSES:
            return list(_Response(kind, said, report).events())
        case Protocol.CHAT:
            return list(_Chat(kind, said, report).events())


def body(kind: str, spoken: Protocol, said: Said, report: Report) -> bytes:
    """An unstreamed answer."""
    match spoken:
        case Protocol.MESSAGES:
            whole: Json = _message(kind, said, report)
        case Protocol.RESPONSES:
            whole = _Response(kind, said, report).whole("completed")
        case Protocol.CHAT:
            whole = _Chat(kind, said, report).whole()
    return json.dumps(whole).encode()


def broken_off(kind: str, spoken: Protocol, report: Report) -> list[bytes]:
    """A stream in which the provider fails in the middle of a text."""
    match spoken:
        case Protocol.MESSAGES:
            error = {"type": "error", "error": {"type": "overloaded_error", "message": BUSY}}
            return [*events(kind, M, TEXT, report)[:3], _event(error)]
        case Protocol.RESPONSES:
            return [*events(kind, R, TEXT, report)[:4], *_Response(kind, TEXT, report).failure()]
        case Protocol.CHAT:
            return [*events(kind, C, TEXT, report)[: 3 if MANNERS[kind].begins else 2], *_chat_failure(kind)]


def broken_body(kind: str, spoken: Protocol) -> bytes:
    """An unstreamed answer that looks good and holds an error."""
    if spoken is R:
        return json.dumps(_Response(kind, TEXT, Report(None, _NOTHING)).whole("failed")).encode()
    reason = MANNERS[kind].breaks if spoken is C else ""
    if reason in _REASONS:
        choice = {"index": 0, "message": {"role": "assistant", "content": "Hel"}, "finish_reason": reason}
        return json.dumps({"id": ANSWER_ID, "object": "chat.completion", "model": MODEL, "choices": [choice]}).encode()
    error: Json = {"type": "overloaded_error", "message": BUSY}
    return json.dumps({"type": "error", "error": error} if spoken is M else {"error": error}).encode()


def before_the_end(came: list[bytes], spoken: Protocol) -> list[bytes]:
    """A stream cut inside its last part: whatever says that something is complete is missing."""
    markers = {M: b"message_delta", R: b"response.output_item.done", C: b'"delta": {}'}
    last = max(number for number, event in enumerate(came) if markers[spoken] in event)
    return came[: last - 1]


def overflow_events(report: Report) -> list[bytes]:
    """A stream of OpenAI's Responses that finds the context full only after it began."""
    answer = _Response("openai", TEXT, report)
    message = "Your input exceeds the context window of this model. Please adjust your input and try again."
    failed = {**answer.whole("failed"), "error": {"code": "context_length_exceeded", "message": message}, "output": []}
    return [next(iter(answer.events())), _event({"type": "response.failed", "response": failed})]


_NOTHING: Any = None


def _event(data: Json, name: str | None = None) -> bytes:
    return f"event: {name or data['type']}\ndata: {json.dumps(data)}\n\n".encode()


def _pieces(text: str, size: int = 9) -> Iterator[str]:
    yield from (text[start : start + size] for start in range(0, len(text), size))


def _by_turns(texts: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Pieces of several texts, in turns."""
    rest = [list(_pieces(text)) for text in texts]
    while any(rest):
        for number, pieces in enumerate(rest):
            if pieces:
                yield number, pieces.pop(0)


# --- Messages ---


def _blocks(kind: str, said: Said) -> list[dict[str, Any]]:
    thought = [{"type": "thinking", "thinking": said.thought, "signature": "EqQBCgIYAhIM/8=="}] if said.thought else []
    text = [{"type": "text", "text": said.text}] if said.text else []
    calls = [
        {"type": "tool_use", "id": call_id(kind, M, number), "name": name, "input": json.loads(arguments)}
        for number, (name, arguments) in enumerate(said.calls)
    ]
    return [*thought, *text, *calls]


def _stop(said: Said) -> Json:
    if said.full:
        return {"stop_reason": "model_context_window_exceeded", "stop_sequence": None}
    if said.refused:
        details = {"type": "refusal", "category": "cyber", "explanation": EXPLANATION}
        return {"stop_reason": "refusal", "stop_sequence": None, "stop_details": details}
    return {"stop_reason": "tool_use" if said.calls else "end_turn", "stop_sequence": None}


def _message(kind: str, said: Said, report: Report) -> dict[str, Any]:
    told = report.told or {}
    usage = told if "input_tokens" in told else {**report.begins, **told}
    fixed = {"id": f"msg_{ANSWER_ID}", "type": "message", "role": "assistant", "model": MODEL}
    return {**fixed, "content": _blocks(kind, said), **_stop(said), "usage": usage}


def _messages(kind: str, said: Said, report: Report) -> Iterator[bytes]:
    """Blocks never overlap in this protocol, those of parallel calls neither."""
    begun = {**_message(kind, said, report), "content": [], "stop_reason": None, "usage": report.begins}
    begun.pop("stop_details", None)
    yield _event({"type": "message_start", "message": begun})
    for index, block in enumerate(_blocks(kind, said)):
        empty: Mapping[str, Json] = {
            "text": {"text": ""},
            "thinking": {"thinking": "", "signature": ""},
            "tool_use": {"input": {}},
        }
        yield _event(
            {"type": "content_block_start", "index": index, "content_block": {**block, **empty[block["type"]]}}
        )
        yield from (
            _event({"type": "content_block_delta", "index": index, "delta": delta}) for delta in _block_deltas(block)
        )
        yield _event({"type": "content_block_stop", "index": index})
    yield _event({"type": "message_delta", "delta": _stop(said), "usage": report.told})
    yield _event({"type": "message_stop"})


def _block_deltas(block: Json) -> Iterator[Json]:
    match block["type"]:
        case "text":
            yield from ({"type": "text_delta", "text": piece} for piece in _pieces(block["text"]))
        case "thinking":
            yield from ({"type": "thinking_delta", "thinking": piece} for piece in _pieces(block["thinking"]))
            yield {"type": "signature_delta", "signature": block["signature"]}
        case "tool_use":
            arguments = json.dumps(block["input"])
            yield from ({"type": "input_json_delta", "partial_json": piece} for piece in ("", *_pieces(arguments)))


# --- Responses ---


@dataclass(slots=True)
class _Response:
    kind: str
    said: Said
    report: Report
    sequence: int = 0

    def whole(self, status: str, items: Sequence[Json] | None = None) -> dict[str, Any]:
        failed = {"code": "server_error", "message": BUSY} if status == "failed" else None
        full = status == "completed" and self.said.full
        return {
            "id": f"resp_{ANSWER_ID}",
            "object": "response",
            "created_at": 1_795_906_800,
            "status": "incomplete" if full else status,
            "model": MODEL,
            "output": list(self.items() if items is None else items),
            "error": failed,
            "incomplete_details": {"reason": "model_context_window_exceeded"} if full else None,
            "usage": self.report.told if status == "completed" else None,
        }

    def items(self) -> Iterator[dict[str, Any]]:
        said = self.said
        if said.thought:
            summary = [{"type": "summary_text", "text": said.thought}]
            yield {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "gAAAAA=="}
        if said.text:
            text: dict[str, Any] = {"type": "output_text", "text": said.text, "annotations": []}
            refusal = {"type": "refusal", "refusal": said.text}
            content = [refusal if said.refused else text]
            yield {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": content}
        for number, (name, arguments) in enumerate(said.calls):
            named = {"call_id": call_id(self.kind, R, number), "name": name, "arguments": arguments}
            yield {"type": "function_call", "id": f"fc_{number}", "status": "completed", **named}

    def events(self) -> Iterator[bytes]:
        """Calls come in pieces, by turns: this protocol allows it."""
        items = list(self.items())
        yield self._event("response.created", response=self.whole("in_progress", ()))
        for index, item in enumerate(items):
            if item["type"] != "function_call":
                yield from self._item(index, item)
        called = [(index, item) for index, item in enumerate(items) if item["type"] == "function_call"]
        for index, item in called:
            yield self._event("response.output_item.added", output_index=index, item={**item, "arguments": ""})
        for number, piece in _by_turns([item["arguments"] for _, item in called]):
            index, item = called[number]
            about = {"output_index": index, "item_id": item["id"], "delta": piece}
            yield self._event("response.function_call_arguments.delta", **about)
        for index, item in called:
            yield self._event("response.output_item.done", output_index=index, item=item)
        end = "response.incomplete" if self.said.full else "response.completed"
        yield self._event(end, response=self.whole("completed"))

    def failure(self) -> Iterator[bytes]:
        if self.kind in {"openai", "codex", "azure"}:
            yield self._event("response.failed", response=self.whole("failed", ()))
        elif self.kind in {"llamacpp", "ollama"}:
            yield self._event("error", error={"type": "server_error", "code": "server_error", "message": BUSY})
        else:
            yield self._event("error", code="server_error", message=BUSY, param=None)

    def _item(self, index: int, item: dict[str, Any]) -> Iterator[bytes]:
        about = {"output_index": index, "item_id": item["id"]}
        content = "summary" if item["type"] == "reasoning" else "content"
        yield self._event("response.output_item.added", output_index=index, item={**item, content: []})
        part = item[content][0]
        kind = {"summary_text": "reasoning_summary_text", "output_text": "output_text", "refusal": "refusal"}
        place = {"summary_index": 0} if content == "summary" else {"content_index": 0}
        for piece in _pieces(part.get("text") or part.get("refusal")):
            yield self._event(f"response.{kind[part['type']]}.delta", **about, **place, delta=piece)
        yield self._event("response.output_item.done", output_index=index, item=item)

    def _event(self, name: str, **fields: Any) -> bytes:
        self.sequence += 1
        return _event({"type": name, "sequence_number": self.sequence - 1, **fields})


# --- Chat ---

_REASONS = {"insufficient_system_resource", "network_error", "abort", "error"}
DONE = b"data: [DONE]\n\n"


def _line(data: Json) -> bytes:
    return f"data: {json.dumps(data)}\n\n".encode()


def _chat_failure(kind: str) -> Iterator[bytes]:
    manner = MANNERS[kind].breaks
    error = {"message": BUSY, "type": "server_error", "code": 503}
    if manner in _REASONS:
        yield _line({"id": ANSWER_ID, "choices": [{"index": 0, "delta": {}, "finish_reason": manner}]})
    elif manner == "choice":
        choice = {"index": 0, "delta": {"content": ""}, "finish_reason": "error"}
        yield _line({"id": ANSWER_ID, "error": {"code": 503, "message": BUSY}, "choices": [choice]})
    elif manner == "named":
        yield b"event: error\n" + _line({"error": error})
    else:
        yield _line({**error, "object": "error"} if manner == "flat" else {"error": error})
    if manner not in {"choice", "named"}:
        yield DONE  # sent by a server that closes each stream in the same way


@dataclass(slots=True)
class _Chat:
    kind: str
    said: Said
    report: Report
    manner: Manner = field(init=False)

    def __post_init__(self) -> None:
        self.manner = MANNERS[self.kind]

    def whole(self) -> dict[str, Any]:
        said = self.said
        message: dict[str, Any] = {"role": "assistant", "content": said.text or None}
        if said.thought and self.manner.thoughts == "parts":
            message["content"] = [*self._parts(said.thought), {"type": "text", "text": said.text}]
        elif said.thought and self.manner.thoughts:
            message[self.manner.thoughts] = said.thought
        if said.refused and not self.manner.refusal:
            message.update(content=None, refusal=said.text)
        if said.calls:
            message["tool_calls"] = [self._call(number) for number in range(len(said.calls))]
        choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": self._reason()}
        head = {"id": ANSWER_ID, "object": "chat.completion", "created": 1_795_906_800, "model": MODEL}
        return {**head, "choices": [choice], "usage": self.report.told, **self.report.beside}

    def events(self) -> Iterator[bytes]:
        if self.manner.begins:
            yield self.manner.begins
        yield self._chunk({"role": "assistant", "content": ""})
        said = self.said
        for piece in _pieces(said.thought) if self.manner.thoughts else ():
            parts = self.manner.thoughts == "parts"
            yield self._chunk({"content": self._parts(piece)} if parts else {self.manner.thoughts: piece})
        for piece in _pieces(said.text):
            yield self._chunk({"refusal" if said.refused and not self.manner.refusal else "content": piece})
        yield from self._calls()
        yield self._last()
        if self.manner.usage == "behind":
            yield self._line({"choices": [], "usage": self.report.told, **self.report.beside})
        if self.manner.done:
            yield DONE

    def _calls(self) -> Iterator[bytes]:
        calls = self.said.calls
        if self.manner.calls != "by turns":
            unnumbered = {"zero": {"index": 0}, "bare": {}}
            for number in range(len(calls)):
                index: Json = unnumbered.get(self.manner.calls, {"index": number})
                yield self._chunk({"tool_calls": [{**index, **self._call(number)}]})
            return
        for number, (name, _) in enumerate(calls):
            begun = {"id": self._call(number)["id"], "type": "function", "function": {"name": name, "arguments": ""}}
            yield self._chunk({"tool_calls": [{"index": number, **begun}]})
        for number, piece in _by_turns([arguments for _, arguments in calls]):
            yield self._chunk({"tool_calls": [{"index": number, "function": {"arguments": piece}}]})

    def _call(self, number: int) -> dict[str, Any]:
        name, arguments = self.said.calls[number]
        function = {"name": name, "arguments": arguments}
        return {"id": call_id(self.kind, C, number), "type": "function", "function": function}

    def _reason(self) -> str:
        said = self.said
        if said.full:
            return "model_context_window_exceeded"
        if said.refused:
            return self.manner.refusal or "stop"
        plain = "stop" if self.manner.calls == "zero" else "tool_calls"  # Gemini says `stop` behind calls, too
        return plain if said.calls else "stop"

    def _last(self) -> bytes:
        told = {"usage": self.report.told}
        choice = {"index": 0, "delta": {}, "finish_reason": self._reason()}
        if self.manner.usage == "choice":
            return self._line({"choices": [{**choice, **told}]})
        return self._line({"choices": [choice], **(told if self.manner.usage in {"end", "every"} else {})})

    def _chunk(self, delta: Json) -> bytes:
        usage = {"usage": self.report.told} if self.manner.usage == "every" else {}
        return self._line({"choices": [{"index": 0, "delta": delta, "finish_reason": None}], **usage})

    def _line(self, fields: Json) -> bytes:
        head = {"id": ANSWER_ID, "object": "chat.completion.chunk", "created": 1_795_906_800, "model": MODEL}
        return _line({**head, **fields})

    @staticmethod
    def _parts(thought: str) -> list[Json]:
        return [{"type": "thinking", "thinking": [{"type": "text", "text": thought}]}]
