"""What upstreams refuse with a 400: the rules of the three protocols, as the providers' own servers apply them.

A codec that renders something else turns a good conversation into an error of which the client understands nothing.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cachegate.wire.facts import Protocol
from cachegate.wire.quirks import Quirk

Json = Mapping[str, Any]

_ANTHROPIC_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_OPENAI_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ANTHROPIC_ID = re.compile(r"[a-zA-Z0-9_-]+")
RESPONSES_ID_CHARS_MAX = 64
CHAT_ID_CHARS_MAX = 40
MARKS_MAX = 4
THINKING_TOKENS_MIN = 1024
_IMAGES = {"image/png", "image/jpeg", "image/gif", "image/webp"}


def check(protocol: Protocol, body: bytes, quirks: frozenset[str] = frozenset()) -> None:
    """Fail where an upstream would refuse the request."""
    request = json.loads(body)
    assert request["model"]
    match protocol:
        case Protocol.MESSAGES:
            _check_messages(request, quirks)
        case Protocol.RESPONSES:
            _check_responses(request, quirks)
        case Protocol.CHAT:
            _check_chat(request, quirks)


def marks(body: Json) -> int:
    """Count the cache marks of a Messages request."""
    return json.dumps([body.get("tools"), body.get("system"), body["messages"]]).count('"cache_control": {"type"')


# --- Messages ---


def _check_messages(body: Json, quirks: frozenset[str]) -> None:
    assert isinstance(body["max_tokens"], int)
    assert body["max_tokens"] > 0
    _check_thinking(body)
    names = [tool["name"] for tool in body.get("tools", [])]
    _check_names(names, _ANTHROPIC_NAME)
    assert marks(body) <= (0 if Quirk.NO_CACHE_MARKS in quirks else MARKS_MAX)
    for part in _system(body):
        assert part["text"].strip(), "system: text content blocks must contain non-whitespace text"
    for tool in body.get("tools", []):
        assert "type" in tool or tool["input_schema"]["type"] == "object"
        assert not (tool.get("defer_loading") and "cache_control" in tool), "a deferred tool takes no mark"
    _check_deferred(body, quirks)
    chosen = body.get("tool_choice", {})
    assert not chosen or names, "tool_choice may only be specified while providing tools"
    if chosen.get("type") == "tool":
        assert chosen["name"] in names
    _check_turns(body["messages"], quirks)


def _check_deferred(body: Json, quirks: frozenset[str]) -> None:
    """Deferred tools, and references to them: who only imitates Anthropic knows neither."""
    tools = body.get("tools", [])
    later = [tool["name"] for tool in tools if tool.get("defer_loading")]
    lists = [message["content"] for message in body["messages"] if isinstance(message["content"], list)]
    results = [block for blocks in lists for block in blocks if block["type"] == "tool_result"]
    references = list[str]()
    for result in results:
        content = result.get("content", [])
        found = [] if isinstance(content, str) else [part for part in content if part["type"] == "tool_reference"]
        assert not found or (len(found) == len(content) and not result.get("is_error")), "references stand alone"
        references += [part["tool_name"] for part in found]
    assert not (later or references) or Quirk.TOOL_REFERENCES in quirks
    assert not later or len(later) < len(tools), "At least one tool must have defer_loading=false."
    assert set(references) <= {tool["name"] for tool in tools}, "Tool reference not found in available tools"


def _system(body: Json) -> Sequence[Json]:
    system = body.get("system", [])
    return [{"text": system}] if isinstance(system, str) else system


def _check_thinking(body: Json) -> None:
    thinking = body.get("thinking", {"type": "disabled"})
    if thinking["type"] == "enabled":
        assert THINKING_TOKENS_MIN <= thinking["budget_tokens"] < body["max_tokens"]
    if thinking["type"] != "disabled":
        assert body.get("temperature", 1) == 1, "temperature may only be 1 when thinking is enabled"
        assert body.get("top_p", 1) >= 0.95, "top_p must be at least 0.95 when thinking is enabled"
        assert "top_k" not in body, "top_k must be unset when thinking is enabled"
        assert body.get("tool_choice", {}).get("type") not in {"any", "tool"}, "thinking forbids a forced tool"


def _check_turns(messages: Sequence[Json], quirks: frozenset[str]) -> None:
    """Calls and results must pair up, whichever way the messages are cut: servers join those of one role."""
    pending: dict[str, None] = {}
    known: set[str] = set()
    for role, blocks in _joined(messages):
        assert role in {"user", "assistant"} or (role == "system" and Quirk.SYSTEM_TURNS in quirks), role
        if role == "system":
            assert not pending, "the system speaks after results, not before"
            continue
        results = [block for block in blocks if block["type"] == "tool_result"]
        if role == "user":
            assert blocks[: len(results)] == results, "tool_result blocks must come first"
            answered = [result["tool_use_id"] for result in results]
            assert sorted(answered) == sorted(pending), "each tool_use must have a single tool_result right after it"
            pending = {}
        else:
            assert not pending, f"tool_use without tool_result: {list(pending)}"
            pending = {block["id"]: None for block in blocks if block["type"] == "tool_use"}
            assert not known & set(pending), "tool_use ids must be unique"
            known |= set(pending)
        for block in blocks:
            _check_block(role, block, unsigned=Quirk.PLAIN_THOUGHTS in quirks)
    assert not pending, "the last calls have no results"
    roles = [message["role"] for message in messages]
    for before, role, after in zip(["", *roles], roles, [*roles[1:], "assistant"], strict=False):
        if role == "system":
            assert before in {"user", "system"}, "a system turn follows a user's"
            assert after in {"assistant", "system"}, "a system turn is answered"
    assert messages[0]["role"] != "assistant", "first message must use the user role"
    if messages[-1]["role"] == "assistant":
        last = messages[-1]["content"][-1]
        assert last["type"] == "text"
        assert last["text"] == last["text"].rstrip(), "final assistant content cannot end with trailing whitespace"


def _joined(messages: Sequence[Json]) -> Iterator[tuple[str, list[Json]]]:
    turns: list[tuple[str, list[Json]]] = []
    for message in messages:
        content = message["content"]
        blocks: list[Json] = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
        assert blocks, "messages must have non-empty content"
        conversed = [turn for turn in turns if turn[0] != "system"]
        if conversed and conversed[-1][0] == message["role"] and message["role"] != "system":
            conversed[-1][1].extend(blocks)
        else:
            turns.append((message["role"], blocks))
    yield from turns


def _check_block(role: str, block: Json, *, unsigned: bool = False) -> None:
    match block["type"]:
        case "text":
            assert block["text"].strip(), "text content blocks must contain non-whitespace text"
        case "image" | "document":
            assert role == "user"
            _check_source(block)
        case "tool_use":
            assert role == "assistant"
            assert _ANTHROPIC_ID.fullmatch(block["id"]), block["id"]
            assert _ANTHROPIC_NAME.fullmatch(block["name"]), block["name"]
            assert isinstance(block["input"], dict)
        case "tool_result":
            assert role == "user"
            content = block.get("content", [])
            for part in [] if isinstance(content, str) else content:
                if part["type"] != "tool_reference":
                    _check_block("user", part)
        case "thinking":
            assert role == "assistant"
            assert block["signature"] or (unsigned and block["thinking"])
            assert "cache_control" not in block
        case "redacted_thinking":
            assert role == "assistant"
            assert block["data"]
            assert "cache_control" not in block
        case other:
            raise AssertionError(other)


def _check_source(block: Json) -> None:
    source = block["source"]
    match source["type"]:
        case "base64":
            assert source["data"]
            allowed = _IMAGES if block["type"] == "image" else {"application/pdf"}
            assert source["media_type"] in allowed, source["media_type"]
        case "url":
            assert source["url"].startswith(("http://", "https://"))
        case "text":
            assert block["type"] == "document"
            assert source["media_type"] == "text/plain"
            assert source["data"]
        case other:
            raise AssertionError(other)


# --- Responses ---


def _check_responses(body: Json, quirks: frozenset[str]) -> None:
    names = [name for tool in _every_tool(body) for name in _responses_names(tool)]
    _check_names(names, _OPENAI_NAME)
    _check_spaces(body.get("tools", []))
    deferred = [tool for tool in body.get("tools", []) if tool.get("defer_loading")]
    assert not deferred or any(tool["type"] == "tool_search" for tool in body["tools"]), "needs tools.tool_search"
    calls: set[str] = set()
    searches: set[str] = set()
    results: set[str] = set()
    given = body["input"]
    assert given, "input must not be empty"
    for item in [] if isinstance(given, str) else given:
        match item.get("type", "message"):
            case "message":
                _check_message(item)
            case "function_call" | "custom_tool_call":
                assert _OPENAI_NAME.fullmatch(item["name"]), item["name"]
                assert item["call_id"] not in calls, "call ids are unique"
                assert 0 < len(item["call_id"]) <= RESPONSES_ID_CHARS_MAX, item["call_id"]
                calls.add(item["call_id"])
            case "tool_search_call":
                assert item["execution"] == "client"
                assert isinstance(item["arguments"], dict)
                assert item["call_id"] not in calls, "call ids are unique"
                calls.add(item["call_id"])
                searches.add(item["call_id"])
            case "tool_search_output":
                assert item["execution"] == "client"
                assert item["call_id"] in searches - results
                _check_names([name for tool in item["tools"] for name in _responses_names(tool)], _OPENAI_NAME)
                _check_spaces(item["tools"])
                results.add(item["call_id"])
            case "function_call_output" | "custom_tool_call_output":
                assert item["call_id"] not in searches, "a search is answered by the tools that it found"
                assert item["call_id"] in calls, "No tool call found for function call output"
                assert item["call_id"] not in results
                results.add(item["call_id"])
            case "reasoning":
                _check_reasoning(item, quirks)
            case "compaction":
                assert item["encrypted_content"]
            case "additional_tools":
                assert item["tools"]
            case other:
                raise AssertionError(other)
    assert calls == results, f"No tool output found for function call {calls - results}"
    _check_choice(body, names)


def _check_reasoning(item: Json, quirks: frozenset[str]) -> None:
    assert all(part["type"] == "summary_text" for part in item["summary"])
    if Quirk.PLAIN_THOUGHTS in quirks and "encrypted_content" not in item:
        (said,) = item["content"]
        assert said["text"], "llama.cpp refuses thoughts without words"
    else:
        assert item["encrypted_content"]


def _check_spaces(tools: Sequence[Json]) -> None:
    spaces = [tool["name"] for tool in tools if tool["type"] == "namespace"]
    assert all(_OPENAI_NAME.fullmatch(space) for space in spaces)
    assert len(set(spaces)) == len(spaces), f"namespaces must be unique: {spaces}"


def _every_tool(body: Json) -> list[Json]:
    given = body["input"]
    inside = [] if isinstance(given, str) else [item for item in given if item.get("type") == "additional_tools"]
    return [*body.get("tools", []), *(tool for item in inside for tool in item["tools"])]


def _responses_names(tool: Json) -> list[str]:
    match tool["type"]:
        case "function" | "custom":
            return [tool["name"]]
        case "namespace":
            _check_names([name for inner in tool["tools"] for name in _responses_names(inner)], _OPENAI_NAME)
            return []
        case _:
            return []


def _check_message(item: Json) -> None:
    role, content = item["role"], item["content"]
    kinds = {"output_text", "refusal"} if role == "assistant" else {"input_text", "input_image", "input_file"}
    for part in [] if isinstance(content, str) else content:
        assert part["type"] in kinds, f"{part['type']} of {role}"
        if role in {"system", "developer"}:
            assert part["type"] == "input_text"


# --- Chat ---


def _check_chat(body: Json, quirks: frozenset[str]) -> None:
    names = [tool[tool["type"]]["name"] for tool in body.get("tools", [])]
    _check_names(names, _OPENAI_NAME)
    _check_choice(body, names)
    assert names or "parallel_tool_calls" not in body, "parallel_tool_calls is only allowed when tools are specified"
    waiting: set[str] = set()
    for number, message in enumerate(body["messages"]):
        role = message["role"]
        if role == "tool":
            assert message["tool_call_id"] in waiting, "tool must be a response to a preceding message with tool_calls"
            waiting.remove(message["tool_call_id"])
            assert _only_text(message["content"])
            continue
        assert not waiting, f"tool_call_ids did not have response messages: {waiting}"
        if role == "assistant":
            calls = message.get("tool_calls", [])
            assert calls or message.get("content") or message.get("refusal"), "assistant messages must not be empty"
            assert calls or "tool_calls" not in message, "tool_calls must not be an empty array"
            waiting = {call["id"] for call in calls}
            assert len(waiting) == len(calls)
            for call in calls:
                assert 0 < len(call["id"]) <= CHAT_ID_CHARS_MAX
                assert _OPENAI_NAME.fullmatch(call[call["type"]]["name"])
            assert _only_text(message.get("content"))
        elif role in {"system", "developer"}:
            assert role == "system" or Quirk.NO_DEVELOPER not in quirks
            assert number == 0 or Quirk.ONE_SYSTEM_IN_FRONT not in quirks
            assert message["content"]
            assert _only_text(message["content"])
        else:
            assert role == "user"
            assert message["content"]
    assert not waiting, f"the last calls have no results: {waiting}"


def _only_text(content: Any) -> bool:
    return content is None or isinstance(content, str) or all(part["type"] in {"text", "refusal"} for part in content)


# --- OpenAI's and Anthropic's alike ---


def _check_names(names: Sequence[str], allowed: re.Pattern[str]) -> None:
    assert [name for name in names if not allowed.fullmatch(name)] == []
    assert len(set(names)) == len(names), f"tool names must be unique: {names}"


def _check_choice(body: Json, names: Sequence[str]) -> None:
    chosen = body.get("tool_choice")
    if isinstance(chosen, dict):
        named = chosen.get("name") or chosen[chosen["type"]]["name"]
        assert named in names or "namespace" in chosen
    if chosen == "required":
        assert names or body["tools"]
