"""Clients of the three protocols: what they ask, and what they hear. They read strictly, and know nothing of ours."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cachegate.guard.usage import Usage
from cachegate.wire.facts import Protocol
from contract.preset_facts import M, R

Json = Mapping[str, Any]

_SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
TOOLS = ("shell", "Read")


def asking(client: Protocol, model: str, *, streamed: bool, **more: Any) -> bytes:
    """A short request with two tools."""
    said: list[Json] = [{"role": "user", "content": "Hello."}]
    functions: list[Json] = [{"name": name, "description": "Does it.", "parameters": _SCHEMA} for name in TOOLS]
    match client:
        case Protocol.MESSAGES:
            tools = [{"name": name, "description": "Does it.", "input_schema": _SCHEMA} for name in TOOLS]
            fields: Json = {"max_tokens": 4096, "messages": said, "tools": tools}
        case Protocol.RESPONSES:
            fields = {"input": said, "tools": [{"type": "function", **function} for function in functions]}
        case Protocol.CHAT:
            usage = {"stream_options": {"include_usage": True}} if streamed else {}
            tools = [{"type": "function", "function": function} for function in functions]
            fields = {"messages": said, "tools": tools, **usage}
    return json.dumps({"model": model, "stream": streamed, **fields, **more}).encode()


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call, as a client makes it."""

    call_id: str
    name: str
    arguments: Any
    """Decoded: they must be JSON."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a client makes of an answer."""

    text: str = ""
    thought: str = ""
    refusal: str = ""
    calls: tuple[Call, ...] = ()
    stop: str = ""
    """In the words of its own protocol; "" while there was none."""
    usage: Usage = field(default_factory=Usage)
    output_tokens: int | None = None
    error: tuple[str, str | None, str] | None = None
    """Type, code and message."""

    @property
    def complete(self) -> bool:
        return self.stop != ""

    @property
    def refused(self) -> bool:
        return bool(self.refusal) or self.stop in {"refusal", "content_filter", "incomplete: content_filter"}


def hear(client: Protocol, data: bytes, *, streamed: bool) -> Told:
    """Read an answer; fail where a client of the protocol would."""
    if not streamed:
        return _WHOLE[client](json.loads(data))
    listener = _LISTENERS[client]()
    for name, text in _frames(data):
        listener.hear(name, text)
    told: Told = listener.told()
    return told


def hear_error(client: Protocol, data: bytes) -> tuple[str, str | None, str]:
    """Type, code and message of an error answer."""
    decoded = json.loads(data)
    assert isinstance(decoded, dict)
    assert isinstance(decoded.get("error"), dict)
    if client is M:
        assert decoded["type"] == "error"
        assert decoded["request_id"]
    else:
        assert set(decoded["error"]) >= {"message", "type", "code", "param"}
    return _error(decoded["error"])


def _error(error: Json) -> tuple[str, str | None, str]:
    assert isinstance(error["message"], str)
    return error.get("type") or "", error.get("code"), error["message"]


def _frames(data: bytes) -> Iterator[tuple[str, str]]:
    assert data == b"" or data.endswith(b"\n\n"), "a stream ends with a whole event"
    for block in data.decode().split("\n\n")[:-1]:
        lines = [line for line in block.split("\n") if not line.startswith(":")]
        if lines:
            fields = dict(line.split(": ", 1) for line in lines)
            assert set(fields) <= {"event", "data"}
            yield fields.get("event", ""), fields["data"]


def _message_usage(usage: Json) -> tuple[Usage, int | None]:
    """Anthropic's counts exclude each other; a total of 0 is a placeholder, not a count."""
    fresh, read, written = (
        usage.get(name) for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    )
    total = (fresh or 0) + (read or 0) + (written or 0)
    return Usage(total, read, written) if total else Usage(), usage.get("output_tokens")


def _openai_usage(usage: Json | None, names: tuple[str, str]) -> tuple[Usage, int | None]:
    usage = usage or {}
    details = usage.get(f"{names[0]}_details") or {}
    counts = Usage(usage.get(names[0]), details.get("cached_tokens"), details.get("cache_write_tokens"))
    return counts, usage.get(names[1])


_RESPONSES_COUNTS, _CHAT_COUNTS = ("input_tokens", "output_tokens"), ("prompt_tokens", "completion_tokens")


# --- Messages ---


def _whole_message(message: Json) -> Told:
    assert (message["type"], message["role"]) == ("message", "assistant")
    assert message["id"].startswith("msg_")
    told = _of_blocks(message["content"])
    usage, output = _message_usage(message["usage"])
    return Told(**told, stop=message["stop_reason"], usage=usage, output_tokens=output)


def _of_blocks(blocks: list[Any]) -> dict[str, Any]:
    texts: dict[str, str] = {"text": "", "thinking": ""}
    calls: list[Call] = []
    for block in blocks:
        if block["type"] == "tool_use":
            calls.append(Call(block["id"], block["name"], block["input"]))
        else:
            texts[block["type"]] += block[block["type"]]
            assert block["type"] != "thinking" or block["signature"], "a thought without a signature cannot go back"
    return {"text": texts["text"], "thought": texts["thinking"], "calls": tuple(calls)}


@dataclass(slots=True)
class _MessageListener:
    blocks: list[dict[str, Any]] = field(default_factory=list)
    open: bool = False
    usage: dict[str, Any] = field(default_factory=dict)
    stop: str = ""
    stopped: bool = False
    error: tuple[str, str | None, str] | None = None
    begun: bool = False

    def hear(self, name: str, text: str) -> None:
        data = json.loads(text)
        assert name == data["type"]
        assert self.error is None, "nothing follows an error"
        assert not self.stopped, "nothing follows the end"
        assert self.begun or name in {"message_start", "error", "ping"}
        match name:
            case "message_start":
                assert not self.begun
                self.begun = True
                assert data["message"]["content"] == []
                self.usage.update(data["message"]["usage"])
            case "content_block_start":
                assert not self.open, "blocks never overlap"
                assert data["index"] == len(self.blocks)
                self.open = True
                self.blocks.append({**data["content_block"], "pieces": ""})
            case "content_block_delta":
                assert self.open
                assert data["index"] == len(self.blocks) - 1
                self._delta(self.blocks[-1], data["delta"])
            case "content_block_stop":
                assert self.open
                self.open = False
                block = self.blocks[-1]
                if block["type"] == "tool_use":
                    block["input"] = json.loads(block["pieces"] or "{}")
            case "message_delta":
                assert not self.open
                self.stop = data["delta"]["stop_reason"]
                self.usage.update({key: value for key, value in data["usage"].items() if value is not None})
            case "message_stop":
                self.stopped = True
            case "error":
                self.error = _error(data["error"])
            case "ping":
                pass
            case other:
                raise AssertionError(other)

    @staticmethod
    def _delta(block: dict[str, Any], delta: Json) -> None:
        match delta["type"], block["type"]:
            case "text_delta", "text":
                block["text"] += delta["text"]
            case "thinking_delta", "thinking":
                block["thinking"] += delta["thinking"]
            case "signature_delta", "thinking":
                block["signature"] = delta["signature"]
            case "input_json_delta", "tool_use":
                block["pieces"] += delta["partial_json"]
            case other:
                raise AssertionError(other)

    def told(self) -> Told:
        usage, output = _message_usage(self.usage)
        assert not self.stopped or self.stop, "an end says why"
        whole = [block for block in self.blocks if self.stopped or block["type"] == "text"]
        stop = self.stop if self.stopped else ""
        return Told(**_of_blocks(whole), stop=stop, usage=usage, output_tokens=output, error=self.error)


# --- Responses ---


def _whole_response(response: Json) -> Told:
    assert response["object"] == "response"
    assert isinstance(response["created_at"], int | float)
    assert response["status"] in {"completed", "incomplete"}
    usage, output = _openai_usage(response["usage"], _RESPONSES_COUNTS)
    return Told(**_of_items(response["output"]), stop=_status(response), usage=usage, output_tokens=output)


def _status(response: Json) -> str:
    details = response.get("incomplete_details")
    return f"incomplete: {details['reason']}" if response["status"] == "incomplete" and details else response["status"]


def _of_items(items: list[Any]) -> dict[str, Any]:
    texts = {"text": "", "refusal": "", "thought": ""}
    calls: list[Call] = []
    for item in items:
        match item["type"]:
            case "message":
                for part in item["content"]:
                    kind = {"output_text": "text", "refusal": "refusal"}[part["type"]]
                    texts[kind] += part[kind]
            case "reasoning":
                texts["thought"] += "".join(part["text"] for part in item["summary"])
                assert item["encrypted_content"], "a thought without its value cannot go back"
            case "function_call":
                calls.append(Call(item["call_id"], item["name"], json.loads(item["arguments"])))
            case other:
                raise AssertionError(other)
    return {**texts, "calls": tuple(calls)}


@dataclass(slots=True)
class _ResponseListener:
    items: dict[int, Any] = field(default_factory=dict)
    arguments: dict[int, str] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    last: Json | None = None
    error: tuple[str, str | None, str] | None = None
    sequence: int = -1
    begun: bool = False

    def hear(self, name: str, text: str) -> None:
        data = json.loads(text)
        assert name == data["type"]
        assert self.last is None, "nothing follows the end"
        if name == "keepalive":
            return
        assert data["sequence_number"] > self.sequence
        self.sequence = data["sequence_number"]
        assert self.error is None or name == "response.failed", "nothing follows an error but that it failed"
        match name:
            case "response.created":
                self.begun = True
            case "response.output_item.done":
                assert data["output_index"] not in self.items
                self.items[data["output_index"]] = data["item"]
            case "response.function_call_arguments.delta":
                index = data["output_index"]
                self.arguments[index] = self.arguments.get(index, "") + data["delta"]
            case "response.output_text.delta":
                index = data["output_index"]
                self.texts[index] = self.texts.get(index, "") + data["delta"]
            case "response.completed" | "response.incomplete":
                assert self.begun
                self.last = data["response"]
            case "response.failed":
                self.last, error = data["response"], data["response"]["error"]
                assert self.error is None or self.error[1] == error["code"], "both say the same"
                self.error = ("", error["code"], error["message"])
            case "error":
                self.error = ("", data["code"], data["message"])

    def told(self) -> Told:
        if self.error is not None or self.last is None:
            assert self.error is None or self.last is not None, "Codex hears only what failed as a response"
            return Told(text="".join(self.texts.values()), error=self.error)
        items = [self.items[index] for index in sorted(self.items)]
        assert self.last["output"] == items, "the whole says what its parts said"
        for index, heard in self.arguments.items():
            assert self.items[index]["arguments"] == heard, "the pieces are those of this call"
        return _whole_response(self.last)


# --- Chat ---


def _whole_completion(completion: Json) -> Told:
    assert completion["object"] == "chat.completion"
    choice = completion["choices"][0]
    usage, output = _openai_usage(completion.get("usage"), _CHAT_COUNTS)
    return Told(**_of_completion(choice["message"]), stop=choice["finish_reason"], usage=usage, output_tokens=output)


def _of_completion(message: Json) -> dict[str, Any]:
    calls = [call | call["function"] for call in message.get("tool_calls") or []]
    return {
        "text": message.get("content") or "",
        "refusal": message.get("refusal") or "",
        "thought": message.get("reasoning_content") or "",
        "calls": tuple(Call(call["id"], call["name"], json.loads(call["arguments"])) for call in calls),
    }


@dataclass(slots=True)
class _ChatListener:
    message: dict[str, Any] = field(default_factory=dict)
    calls: dict[int, dict[str, Any]] = field(default_factory=dict)
    reason: str = ""
    usage: Json | None = None
    done: bool = False
    error: tuple[str, str | None, str] | None = None

    def hear(self, name: str, text: str) -> None:
        assert name == ""
        assert not self.done, "nothing follows the end"
        assert self.error is None, "nothing follows an error"
        if text == "[DONE]":
            self.done = True
            return
        data = json.loads(text)
        if "error" in data:
            self.error = _error(data["error"])
            return
        self.usage = data.get("usage") or self.usage
        for choice in data["choices"]:
            assert not self.reason, "nothing is said behind the reason"
            self.reason = choice["finish_reason"] or ""
            self._delta(choice["delta"])

    def _delta(self, delta: Json) -> None:
        for name in ("content", "refusal", "reasoning_content"):
            if delta.get(name):
                self.message[name] = self.message.get(name, "") + delta[name]
        for piece in delta.get("tool_calls") or []:
            if "id" in piece:
                assert piece["index"] == len(self.calls), "calls are numbered in their order"
                self.calls[piece["index"]] = {"id": piece["id"], "function": {**piece["function"]}}
            else:
                self.calls[piece["index"]]["function"]["arguments"] += piece["function"]["arguments"]

    def told(self) -> Told:
        usage, output = _openai_usage(self.usage, _CHAT_COUNTS)
        calls = {"tool_calls": list(self.calls.values())} if self.done else {}
        stop = self.reason if self.done else ""
        assert not self.done or self.reason, "an end says why"
        told = _of_completion({**self.message, **calls})
        return Told(**told, stop=stop, usage=usage, output_tokens=output, error=self.error)


_WHOLE = {M: _whole_message, R: _whole_response, Protocol.CHAT: _whole_completion}
_LISTENERS: Mapping[Protocol, Any] = {M: _MessageListener, R: _ResponseListener, Protocol.CHAT: _ChatListener}
