"""What a model says in a scripted conversation, and how an upstream of each protocol puts it on the wire."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cachegate.wire.facts import Protocol

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Thought:
    """What the model thinks, and the value only its provider can read."""

    text: str
    sealed: str
    redacted: bool = False


@dataclass(frozen=True, slots=True)
class Spoken:
    text: str


@dataclass(frozen=True, slots=True)
class Called:
    """A call of the tool whose name ends so; `arguments` is JSON text, or the input of a custom tool."""

    tool: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer, its parts in their order."""

    number: int
    parts: tuple[Thought | Spoken | Called, ...]

    @property
    def thoughts(self) -> tuple[Thought, ...]:
        return tuple(part for part in self.parts if isinstance(part, Thought))

    @property
    def calls(self) -> tuple[Called, ...]:
        return tuple(part for part in self.parts if isinstance(part, Called))

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Spoken))

    def call_id(self, protocol: Protocol, number: int) -> str:
        """Return the id that the provider gives; Kimi's in Chat has letters that Anthropic refuses."""
        match protocol:
            case Protocol.MESSAGES:
                return f"toolu_01A09q90qw90lq{self.number:03}{number:03}"
            case Protocol.RESPONSES:
                return f"call_Xc1d2E3f4G5h{self.number:03}{number:03}"
            case Protocol.CHAT:
                return f"functions.{self.calls[number].tool}:{100 * self.number + number}"


@dataclass(frozen=True, slots=True)
class Offered:
    """A tool as the upstream was told of it."""

    name: str
    namespace: str | None
    custom: bool


def offered(protocol: Protocol, body: Json) -> list[Offered]:
    """Return the tools in a rendered request."""
    if protocol is Protocol.MESSAGES:
        return [Offered(tool["name"], None, custom=False) for tool in body["tools"]]
    if protocol is Protocol.CHAT:
        return [Offered(tool["function"]["name"], None, custom=False) for tool in body["tools"]]
    kinds = {"additional_tools", "tool_search_output"}
    inside = [tool for item in body["input"] if item.get("type") in kinds for tool in item["tools"]]
    return list(_responses_offered([*body.get("tools", []), *inside], None))


_SEARCH = "tool_search"
"""OpenAI's name for the search that the client runs; as a namespace it tells it from a function of that name."""


def _responses_offered(tools: list[Json], namespace: str | None) -> Iterator[Offered]:
    for tool in tools:
        if tool["type"] == "namespace":
            yield from _responses_offered(tool["tools"], tool["name"])
        elif tool["type"] in {"function", "custom"}:
            yield Offered(tool["name"], namespace, tool["type"] == "custom")
        elif tool["type"] == _SEARCH and tool.get("execution") == "client":
            yield Offered(_SEARCH, _SEARCH, custom=False)


@dataclass(frozen=True, slots=True)
class Call:
    """A call as it goes over the wire."""

    call_id: str
    tool: Offered
    arguments: str


def calls_of(protocol: Protocol, answer: Answer, body: Json) -> list[Call]:
    """Return the answer's calls, in the words of the tools that the request offers."""
    tools, found = offered(protocol, body), list[Call]()
    for number, called in enumerate(answer.calls):
        tool = next(tool for tool in tools if tool.name == called.tool or tool.name.endswith(f"__{called.tool}"))
        is_text = not called.arguments.startswith("{")
        arguments = json.dumps({"input": called.arguments}) if is_text and not tool.custom else called.arguments
        found.append(Call(answer.call_id(protocol, number), tool, arguments))
    return found


def played(protocol: Protocol, answer: Answer, body: Json, *, streamed: bool) -> bytes:
    """Return the upstream's answer to this request."""
    calls = calls_of(protocol, answer, body)
    match protocol:
        case Protocol.MESSAGES:
            message = _message(answer, calls)
            return _message_stream(message) if streamed else _json(message)
        case Protocol.RESPONSES:
            response = _response(answer, calls)
            return _response_stream(response) if streamed else _json(response)
        case Protocol.CHAT:
            completion = _completion(answer, calls)
            return _completion_stream(completion) if streamed else _json(completion)


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _halves(text: str) -> list[str]:
    half = len(text) // 2
    return [piece for piece in (text[:half], text[half:]) if piece]


# --- Messages ---


def _message(answer: Answer, calls: list[Call]) -> Json:
    content, waiting = list[Json](), iter(calls)
    for part in answer.parts:
        match part:
            case Thought(redacted=True):
                content.append({"type": "redacted_thinking", "data": part.sealed})
            case Thought():
                content.append({"type": "thinking", "thinking": part.text, "signature": part.sealed})
            case Spoken():
                content.append({"type": "text", "text": part.text})
            case Called():
                call = next(waiting)
                block = {"type": "tool_use", "id": call.call_id, "name": call.tool.name}
                content.append({**block, "input": json.loads(call.arguments)})
    usage = {"input_tokens": 7, "cache_creation_input_tokens": 512, "cache_read_input_tokens": 99_000}
    return {
        "id": f"msg_01XkPq7d2LwTn5aYc8Rz{answer.number:03}",
        "type": "message",
        "role": "assistant",
        "model": "claude-opus-5-5",
        "content": content,
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": {**usage, "output_tokens": 61},
    }


def _event(name: str, **fields: object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), _json({"type": name, **fields}))


def _message_stream(message: Json) -> bytes:
    begun = {**message, "content": [], "stop_reason": None, "usage": {**message["usage"], "output_tokens": 1}}
    events = [_event("message_start", message=begun), _event("ping")]
    for index, block in enumerate(message["content"]):
        empty, deltas = _begun(block)
        events.append(_event("content_block_start", index=index, content_block=empty))
        events += [_event("content_block_delta", index=index, delta=delta) for delta in deltas]
        events.append(_event("content_block_stop", index=index))
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    return b"".join([*events, _event("message_delta", delta=delta, usage=message["usage"]), _event("message_stop")])


def _begun(block: Json) -> tuple[Json, list[Json]]:
    match block["type"]:
        case "text":
            return {"type": "text", "text": ""}, [
                {"type": "text_delta", "text": piece} for piece in _halves(block["text"])
            ]
        case "thinking":
            deltas: list[Json] = [{"type": "thinking_delta", "thinking": piece} for piece in _halves(block["thinking"])]
            signed = {"type": "signature_delta", "signature": block["signature"]}
            return {"type": "thinking", "thinking": "", "signature": ""}, [*deltas, signed]
        case "tool_use":
            pieces = _halves(json.dumps(block["input"])) if block["input"] else [""]
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        case _:
            return block, []


# --- Responses ---


def _response(answer: Answer, calls: list[Call]) -> Json:
    output, waiting = list[Json](), iter(calls)
    for number, part in enumerate(answer.parts):
        name = f"0d2f7a61{answer.number:03}{number:03}"
        match part:
            case Thought():
                summary = [] if part.redacted or not part.text else [{"type": "summary_text", "text": part.text}]
                sealed = {"encrypted_content": part.sealed}
                output.append({"id": f"rs_{name}", "type": "reasoning", "summary": summary, **sealed})
            case Spoken():
                content = [{"type": "output_text", "annotations": [], "logprobs": [], "text": part.text}]
                said = {"id": f"msg_{name}", "type": "message", "status": "completed", "role": "assistant"}
                output.append({**said, "content": content})
            case Called():
                output.append(_call_item(next(waiting), name))
    details = {"input_tokens_details": {"cached_tokens": 76_288, "cache_write_tokens": 0}}
    usage = {"input_tokens": 77_000, **details, "output_tokens": 61, "output_tokens_details": {"reasoning_tokens": 8}}
    return {
        "id": f"resp_0d2f7a61b3c94e5f{answer.number:03}",
        "object": "response",
        "created_at": 1_795_906_800 + answer.number,
        "status": "completed",
        "model": "gpt-6-sol",
        "output": output,
        "error": None,
        "incomplete_details": None,
        "usage": {**usage, "total_tokens": 77_061},
    }


def _call_item(call: Call, name: str) -> Json:
    if call.tool.namespace == _SEARCH:
        searched = {"id": f"tsc_{name}", "type": "tool_search_call", "status": "completed", "execution": "client"}
        return {**searched, "call_id": call.call_id, "arguments": json.loads(call.arguments)}
    named = {"status": "completed", "call_id": call.call_id, "name": call.tool.name}
    if call.tool.custom:
        return {"id": f"ctc_{name}", "type": "custom_tool_call", "input": call.arguments, **named}
    spaced = {} if call.tool.namespace is None else {"namespace": call.tool.namespace}
    return {"id": f"fc_{name}", "type": "function_call", "arguments": call.arguments, **named, **spaced}


def _response_stream(response: Json) -> bytes:
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    events: list[tuple[str, Json]] = [("created", {"response": begun}), ("in_progress", {"response": begun})]
    for index, item in enumerate(response["output"]):
        events += [(name, {**fields, "output_index": index}) for name, fields in _item_events(item)]
    events.append(("completed", {"response": response}))
    return b"".join(
        _event(f"response.{name}", sequence_number=number, **fields) for number, (name, fields) in enumerate(events)
    )


def _item_events(item: Json) -> Iterator[tuple[str, Json]]:
    where: Json = {"item_id": item["id"]}
    match item["type"]:
        case "reasoning":
            yield "output_item.added", {"item": {**item, "summary": [], "encrypted_content": ""}}
            for index, part in enumerate(item["summary"]):
                at = {**where, "summary_index": index}
                yield "reasoning_summary_part.added", {**at, "part": {**part, "text": ""}}
                for piece in _halves(part["text"]):
                    yield "reasoning_summary_text.delta", {**at, "delta": piece}
                yield "reasoning_summary_text.done", {**at, "text": part["text"]}
                yield "reasoning_summary_part.done", {**at, "part": part}
        case "message":
            yield "output_item.added", {"item": {**item, "status": "in_progress", "content": []}}
            for index, part in enumerate(item["content"]):
                at = {**where, "content_index": index}
                yield "content_part.added", {**at, "part": {**part, "text": ""}}
                for piece in _halves(part["text"]):
                    yield "output_text.delta", {**at, "delta": piece, "logprobs": []}
                yield "output_text.done", {**at, "text": part["text"], "logprobs": []}
                yield "content_part.done", {**at, "part": part}
        case "tool_search_call":
            yield "output_item.added", {"item": {**item, "status": "in_progress", "arguments": {}}}
        case kind:
            field = "arguments" if kind == "function_call" else "input"
            said = "function_call_arguments" if kind == "function_call" else "custom_tool_call_input"
            yield "output_item.added", {"item": {**item, "status": "in_progress", field: ""}}
            for piece in _halves(item[field]):
                yield f"{said}.delta", {**where, "delta": piece}
            yield f"{said}.done", {**where, field: item[field]}
    yield "output_item.done", {"item": item}


# --- Chat ---


def _completion(answer: Answer, calls: list[Call]) -> Json:
    thoughts = "".join(thought.text for thought in answer.thoughts)
    listed = [
        {"id": call.call_id, "type": "function", "function": {"name": call.tool.name, "arguments": call.arguments}}
        for call in calls
    ]
    message = {
        "role": "assistant",
        "content": answer.text or None,
        **({"reasoning_content": thoughts} if thoughts else {}),
        **({"tool_calls": listed} if calls else {}),
    }
    return {
        "id": f"chatcmpl-5f0068f1c2{answer.number:03}",
        "object": "chat.completion",
        "created": 1_795_906_800 + answer.number,
        "model": "kimi-k3",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}],
        "usage": {
            "prompt_tokens": 77_000,
            "prompt_tokens_details": {"cached_tokens": 76_288},
            "completion_tokens": 61,
            "total_tokens": 77_061,
        },
    }


def _completion_stream(completion: Json) -> bytes:
    message = completion["choices"][0]["message"]
    deltas: list[Json] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": piece} for piece in _halves(message.get("reasoning_content", ""))]
    deltas += [{"content": piece} for piece in _halves(message["content"] or "")]
    calls = message.get("tool_calls", [])
    deltas += [
        {"tool_calls": [{"index": index, **call, "function": {**call["function"], "arguments": ""}}]}
        for index, call in enumerate(calls)
    ]
    halves = [(turn, index, piece) for index, call in enumerate(calls) for turn, piece in _turns(call)]
    for _, index, piece in sorted(halves):
        deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    common = {**completion, "object": "chat.completion.chunk", "usage": None}
    choices = [[{"index": 0, "delta": delta, "finish_reason": None}] for delta in deltas]
    choices.append([{"index": 0, "delta": {}, "finish_reason": completion["choices"][0]["finish_reason"]}])
    chunks = [{**common, "choices": choice} for choice in choices]
    chunks.append({**common, "choices": [], "usage": completion["usage"]})
    return b"".join(b"data: %b\n\n" % _json(chunk) for chunk in chunks) + b"data: [DONE]\n\n"


def _turns(call: Json) -> list[tuple[int, str]]:
    """Number the pieces of a call: those of parallel calls come by turns."""
    return list(enumerate(_halves(call["function"]["arguments"])))
