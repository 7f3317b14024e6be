"""A strict provider: it refuses what its documents do not know. Written from those, and knows no word of a quirk."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from cachegate.wire.facts import Protocol
from contract.preset_facts import Facts, Takes

Json = Mapping[str, Any]

_MESSAGES = frozenset(
    {
        "model", "max_tokens", "messages", "system", "tools", "tool_choice", "stream", "thinking", "output_config",
        "temperature", "top_p", "top_k", "stop_sequences",
    }
)  # fmt: skip
_RESPONSES = frozenset(
    {
        "model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "reasoning", "include",
        "store", "stream", "text", "temperature", "top_p", "max_output_tokens", "service_tier", "prompt_cache_key",
    }
)  # fmt: skip
_ALL_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})


def refuse(facts: Facts, spoken: Protocol, body: bytes) -> None:
    """Fail where the provider would answer with a 400."""
    request = json.loads(body)
    match spoken:
        case Protocol.MESSAGES:
            assert set(request) <= _MESSAGES
            marks = [holder for holder in _objects(request) if "cache_control" in holder]
            assert facts.message_marks or not marks, "it caches by itself and knows no marks"
            assert not (facts.message_marks and not marks), "it caches only what is marked"
        case Protocol.RESPONSES:
            _refuse_response(facts, request)
        case Protocol.CHAT:
            assert facts.chat is not None
            _refuse_chat(facts.chat, request)


def _refuse_response(facts: Facts, request: Json) -> None:
    assert set(request) <= _RESPONSES - facts.set_by_itself
    kinds = {tool["type"] for tool in request.get("tools", [])}
    assert not facts.plain_tools or kinds <= {"function", "web_search"}
    assert not facts.stores_nothing or request["store"] is False
    effort = request.get("reasoning", {}).get("effort", "low")
    assert effort in {"low", "medium", "high"} or not facts.coarse_effort
    items = [item for item in request["input"] if isinstance(item, dict)]
    assert not any("cache_control" in holder for holder in _objects(request))
    assert not facts.plain_tools or not {item.get("type") for item in items} & {"custom_tool_call", "additional_tools"}


def _refuse_chat(takes: Takes, request: Json) -> None:
    assert set(request) <= takes.fields, set(request) - takes.fields
    holders = list(_objects(request))
    tools = request["tools"]
    assert takes.custom or {tool["type"] for tool in tools} == {"function"}
    assert takes.strict or not any("strict" in tool["function"] for tool in tools)
    assert takes.marks or not any("cache_control" in holder for holder in holders)
    assert takes.schema or request.get("response_format", {}).get("type") in {None, "json_object"}
    called = False
    for message in request["messages"]:
        role, content = message["role"], message.get("content")
        assert re.fullmatch(takes.call_ids, message.get("tool_call_id", "abcdefghi"))
        assert role in (_ALL_ROLES if takes.developer else _ALL_ROLES - {"developer"})
        assert takes.parts or content is None or isinstance(content, str), content
        if message.get("tool_calls"):
            called = True
            assert all(re.fullmatch(takes.call_ids, call["id"]) for call in message["tool_calls"])
            assert takes.thoughts == bool(message.get("reasoning_content")), "its thoughts belong to the calls"
        else:
            assert "reasoning_content" not in message
    assert called, "the conversation holds calls"
    if takes.marks:
        assert any("cache_control" in holder for holder in holders), "it caches only what is marked"


def _objects(value: Any) -> Iterator[Json]:
    """Every object, but not those inside the schemas and arguments of tools."""
    if isinstance(value, list):
        for item in value:
            yield from _objects(item)
    elif isinstance(value, dict):
        yield value
        for name, inner in value.items():
            if name not in {"input_schema", "parameters", "schema"}:
                yield from _objects(inner)
