"""Clients in a conversation: what Codex, Claude Code and opencode send, and what they keep of an answer.

Each keeps history as the real one does (`reference/clients.md`): Codex appends the items of `output_item.done` without
their ids, Claude Code the blocks that Anthropic's SDK accumulated, opencode a message put together from the deltas.
All of them resend everything with every request.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from typing import Protocol as Interface

from cachegate.wire.facts import Protocol
from wire.vendor_sdks import JSON, Wire, anthropic_final, ask_anthropic

Json = dict[str, Any]

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool answered."""

    text: str
    image: str | None = None
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Understood:
    """A call as the client understood it: with its own tool's name, and its arguments decoded."""

    call_id: str
    tool: str
    namespace: str | None
    arguments: object


class Client(Interface):
    """A client program with its conversation."""

    protocol: Protocol

    def body(self) -> bytes:
        """Return the next request."""

    def hear(self, answer: bytes) -> list[Understood]:
        """Take an answer into the history, and return its calls."""

    def reply(self, results: Sequence[Result]) -> None:
        """Add the results of the last answer's calls, in their order."""

    def ask(self, question: str) -> None:
        """Add what the user says next."""

    def note(self, text: str) -> None:
        """Add what the client itself says: a changed setting, new tools."""


def encoded(body: Mapping[str, Any]) -> bytes:
    """Return JSON as the programs write it: compact, and not in ASCII."""
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def events_of(stream: bytes) -> Iterator[Json]:
    """Yield the JSON of a stream's events."""
    for block in stream.split(b"\n\n"):
        data = [line.removeprefix(b"data:").strip() for line in block.split(b"\n") if line.startswith(b"data:")]
        if data and data != [b"[DONE]"]:
            yield json.loads(b"".join(data))


# --- Codex ---

_GRAMMAR = 'start: begin_patch hunk+ end_patch\nbegin_patch: "*** Begin Patch" LF\nend_patch: "*** End Patch" LF?\n'


def _function(name: str, **properties: str) -> Json:
    schema = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in properties.items()},
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"type": "function", "name": name, "description": f"Runs {name}.", "strict": False, "parameters": schema}


CODEX_TOOLS: list[Json] = [
    _function("shell", command="array"),
    _function("update_plan", plan="array"),
    {
        "type": "custom",
        "name": "apply_patch",
        "description": "Use the `apply_patch` tool to edit files. This is a FREEFORM tool.",
        "format": {"type": "grammar", "syntax": "lark", "definition": _GRAMMAR},
    },
    _function("view_image", path="string"),
    {
        "type": "namespace",
        "name": "multi_agent_v1",
        "description": "Agents that work beside you.",
        "tools": [_function("spawn_agent", prompt="string"), _function("wait", seconds="number")],
    },
    {
        "type": "namespace",
        "name": "mcp__fs",
        "description": "Files.",
        "tools": [_function("read_file", path="string")],
    },
    {"type": "web_search", "external_web_access": False},
]


_SEARCH_CALL = "tool_search_call"
SEARCH_TOOL: Json = {
    "type": "tool_search",
    "execution": "client",
    "description": "Finds tools.",
    "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
}
FOUND_TOOLS: dict[str, list[Json]] = {
    "issue": [
        {
            "type": "namespace",
            "name": "mcp__github",
            "description": "GitHub.",
            "tools": [{**_function("create_issue", title="string"), "defer_loading": True}],
        }
    ],
    "ci": [{**_function("await_ci", run="string"), "defer_loading": True}],
}
"""What a search finds, by what is asked for."""


def _said(role: str, text: str) -> Json:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


@dataclass(slots=True)
class Codex:
    """Codex 0.171. `lite` models get their tools inside the input; `searching` ones find some by a search."""

    streamed: bool = True
    lite: bool = False
    searching: bool = False
    protocol: Protocol = Protocol.RESPONSES
    history: list[Json] = field(default_factory=list)
    _calls: list[Json] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.lite:
            self.history.append({"type": "additional_tools", "role": "developer", "tools": self._tools})
        self.history.append(_said("developer", "You are Codex, a coding agent."))
        self.history.append(_said("user", "<environment_context>\n  <cwd>/srv/app</cwd>\n</environment_context>"))

    @property
    def _tools(self) -> list[Json]:
        return [*CODEX_TOOLS, SEARCH_TOOL] if self.searching else CODEX_TOOLS

    def body(self) -> bytes:
        return encoded(
            {
                "model": "gpt-5.5",
                "input": self.history,
                **({} if self.lite else {"tools": self._tools}),
                "tool_choice": "auto",
                "parallel_tool_calls": True,
                "reasoning": {"effort": "medium", "summary": "auto", **({"context": "all_turns"} if self.lite else {})},
                "store": False,
                "stream": self.streamed,
                "include": ["reasoning.encrypted_content"],
                "prompt_cache_key": "019ac1f0-5b7e-7d52-9f2c-1d8e4a6b7c90",
                "text": {"verbosity": "low"},
                "client_metadata": {"turn_id": f"turn-{len(self.history)}"},
            }
        )

    def hear(self, answer: bytes) -> list[Understood]:
        if self.streamed:
            events = list(events_of(answer))
            assert events[0]["type"] == "response.created"
            assert events[-1]["type"] == "response.completed"
            assert events[-1]["response"]["id"]
            items = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        else:
            items = json.loads(answer)["output"]
        self.history += [self._kept(item) for item in items]
        self._calls = [item for item in items if item["type"] in {"function_call", "custom_tool_call", _SEARCH_CALL}]
        return [self._understood(call) for call in self._calls]

    def _kept(self, item: Json) -> Json:
        """Ids and states are not resent, nor what belongs to the stream only."""
        kept = {name: value for name, value in item.items() if name not in {"id", "status"}}
        if kept["type"] == "message":
            kept["content"] = [
                {name: value for name, value in part.items() if name not in {"annotations", "logprobs"}}
                for part in kept["content"]
            ]
        return kept

    def _understood(self, call: Json) -> Understood:
        if call["type"] == _SEARCH_CALL:
            return Understood(call["call_id"], "tool_search", None, call["arguments"])
        if call["type"] == "custom_tool_call":
            return Understood(call["call_id"], call["name"], None, call["input"])
        return Understood(call["call_id"], call["name"], call.get("namespace"), json.loads(call["arguments"]))

    def reply(self, results: Sequence[Result]) -> None:
        for call, result in zip(self._calls, results, strict=True):
            output: object = result.text
            if call["type"] == _SEARCH_CALL:
                tools = FOUND_TOOLS[call["arguments"]["query"]]
                found = {"execution": "client", "status": "completed", "tools": tools}
                self.history.append({"type": "tool_search_output", "call_id": call["call_id"], **found})
                continue
            if result.image is not None:
                address = f"data:image/png;base64,{result.image}"
                shown = {"type": "input_image", "image_url": address}
                output = [{"type": "input_text", "text": result.text}, shown]
            self.history.append({"type": f"{call['type']}_output", "call_id": call["call_id"], "output": output})

    def ask(self, question: str) -> None:
        self.history.append(_said("user", question))

    def note(self, text: str) -> None:
        self.history.append(_said("developer", text))


# --- Claude Code ---

CLAUDE_TOOLS: list[Json] = [
    {
        "name": name,
        "description": f"The {name} tool.",
        "input_schema": {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": given},
    }
    for name, given in {
        "Read": {"file_path": {"type": "string"}, "limit": {"type": "number"}},
        "Bash": {"command": {"type": "string"}},
        "Edit": {"file_path": {"type": "string"}, "old_string": {"type": "string"}, "new_string": {"type": "string"}},
        "mcp__github__create_issue": {"title": {"type": "string"}},
    }.items()
]
CLAUDE_SEARCH: list[Json] = [
    {
        "name": "ToolSearch",
        "description": "Finds tools.",
        "input_schema": {"type": "object", "properties": {"query": {"type": "string"}}},
    },
    {"name": "DeferredToolPlaceholder", "input_schema": {"type": "object"}, "defer_loading": True},
]
CLAUDE_FOUND: dict[str, Json] = {
    query: {
        "name": name,
        "description": f"The {name} tool.",
        "input_schema": {"type": "object", "properties": {"url": {"type": "string"}}},
        "defer_loading": True,
    }
    for query, name in {"web": "WebFetch", "cron": "CronCreate"}.items()
}
"""What a search finds, by what is asked for."""
_EPHEMERAL = {"type": "ephemeral"}
BILLING = "x-anthropic-billing-header: cc_version=2.1.332; cc_entrypoint=cli;"


@dataclass(slots=True)
class ClaudeCode:
    """Claude Code 2.1. `hashed` is an older one, whose billing block changes with every request.

    A `searching` one finds some of its tools, and declares them from then on, where they stand in its own list.
    """

    streamed: bool = True
    hashed: bool = False
    searching: bool = False
    protocol: Protocol = Protocol.MESSAGES
    history: list[Json] = field(default_factory=list)
    _calls: list[Json] = field(default_factory=list)
    _found: dict[str, Json] = field(default_factory=dict)

    @property
    def _tools(self) -> list[Json]:
        found = sorted(self._found.values(), key=lambda tool: str(tool["name"]))
        return [*found, *CLAUDE_TOOLS, *CLAUDE_SEARCH] if self.searching else CLAUDE_TOOLS

    def body(self) -> bytes:
        changing = f" cch={len(self.history):05x};" if self.hashed else ""
        return encoded(
            {
                "model": "claude-opus-5-5",
                "max_tokens": 64_000,
                "system": [
                    {"type": "text", "text": BILLING + changing},
                    {"type": "text", "text": "You are Claude Code.", "cache_control": _EPHEMERAL},
                    {"type": "text", "text": "Be brief.\n", "cache_control": _EPHEMERAL},
                ],
                "messages": [*self.history[:-1], _marked(self.history[-1])],
                "tools": self._tools,
                "metadata": {"user_id": '{"device_id":"d","account_uuid":"","session_id":"5b1f"}'},
                "thinking": {"type": "adaptive", "display": "updates"},
                "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
                "output_config": {"effort": "high"},
                **({"stream": True} if self.streamed else {}),
            }
        )

    def hear(self, answer: bytes) -> list[Understood]:
        message = anthropic_final(answer) if self.streamed else ask_anthropic(Wire(answer, kind=JSON))
        content = [block.model_dump(mode="json", exclude_none=True) for block in message.content]
        self.history.append({"role": "assistant", "content": content})
        self._calls = [block for block in content if block["type"] == "tool_use"]
        return [Understood(call["id"], call["name"], None, call["input"]) for call in self._calls]

    def reply(self, results: Sequence[Result]) -> None:
        content = list[Json]()
        for call, result in zip(self._calls, results, strict=True):
            shown: object = result.text
            if call["name"] == "ToolSearch":
                tool = CLAUDE_FOUND[call["input"]["query"]]
                self._found[tool["name"]] = tool
                shown = [{"type": "tool_reference", "tool_name": tool["name"]}]
            if result.image is not None:
                source = {"type": "base64", "media_type": "image/png", "data": result.image}
                shown = [{"type": "text", "text": result.text}, {"type": "image", "source": source}]
            failed = {"is_error": True} if result.is_error else {}
            content.append({"type": "tool_result", "tool_use_id": call["id"], "content": shown, **failed})
        self.history.append({"role": "user", "content": content})

    def ask(self, question: str) -> None:
        if self.history and self.history[-1]["role"] == "user":
            self.history[-1]["content"].append({"type": "text", "text": question})
        else:
            self.history.append({"role": "user", "content": question})

    def note(self, text: str) -> None:
        self.history.append({"role": "system", "content": text})


def _marked(message: Json) -> Json:
    """Mark the last message: its content becomes a list for that, and a string again when the mark has moved on."""
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return {**message, "content": [*blocks[:-1], {**blocks[-1], "cache_control": _EPHEMERAL}]}


# --- opencode with a Chat provider ---

CHAT_TOOLS: list[Json] = [
    {"type": "function", "function": {name: value for name, value in tool.items() if name not in {"type", "strict"}}}
    for tool in (
        _function("read", filePath="string"),
        _function("bash", command="string"),
        _function("edit", filePath="string", newString="string"),
    )
]


@dataclass(slots=True)
class OpenCode:
    """opencode 1.18 with an OpenAI-compatible provider."""

    streamed: bool = True
    protocol: Protocol = Protocol.CHAT
    history: list[Json] = field(default_factory=lambda: [{"role": "system", "content": "You are opencode."}])
    _calls: list[Json] = field(default_factory=list)

    def body(self) -> bytes:
        streamed = {"stream": True, "stream_options": {"include_usage": True}} if self.streamed else {}
        return encoded(
            {
                "model": "kimi-k3",
                "max_tokens": 32_000,
                "messages": self.history,
                "tools": CHAT_TOOLS,
                "tool_choice": "auto",
                **streamed,
            }
        )

    def hear(self, answer: bytes) -> list[Understood]:
        message = self._accumulated(answer) if self.streamed else json.loads(answer)["choices"][0]["message"]
        known = ("role", "content", "reasoning_content", "tool_calls")
        kept = {name: message[name] for name in known if message.get(name) is not None}
        self.history.append({"content": "", **kept})
        self._calls = kept.get("tool_calls", [])
        return [
            Understood(call["id"], call["function"]["name"], None, json.loads(call["function"]["arguments"]))
            for call in self._calls
        ]

    def _accumulated(self, answer: bytes) -> Json:
        assert answer.endswith(b"data: [DONE]\n\n")
        texts = {"content": "", "reasoning_content": ""}
        calls, ends = dict[int, Json](), list[str]()
        for choice in (choice for chunk in events_of(answer) for choice in chunk["choices"]):
            for name in texts:
                texts[name] += choice["delta"].get(name) or ""
            for piece in choice["delta"].get("tool_calls", []):
                said = piece["function"].get("arguments", "")
                if piece["index"] in calls:
                    calls[piece["index"]]["function"]["arguments"] += said
                    continue
                function = {"name": piece["function"]["name"], "arguments": said}
                calls[piece["index"]] = {"id": piece["id"], "type": "function", "function": function}
            ends += [choice["finish_reason"]] if choice.get("finish_reason") else []
        assert len(ends) == 1
        spoken = {name: text for name, text in texts.items() if text}
        return {"role": "assistant", **spoken, **({"tool_calls": list(calls.values())} if calls else {})}

    def reply(self, results: Sequence[Result]) -> None:
        for call, result in zip(self._calls, results, strict=True):
            self.history.append({"role": "tool", "tool_call_id": call["id"], "content": result.text})

    def ask(self, question: str) -> None:
        self.history.append({"role": "user", "content": question})

    def note(self, text: str) -> None:
        self.history.append({"role": "system", "content": text})
