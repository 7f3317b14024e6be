"""The contract of a preset's requests: nothing goes up that the provider refuses, and its cache finds the thread."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from cachegate.wire.facts import Protocol
from contract.preset_answers import TEXT, body, events
from contract.preset_facts import FACTS, ROADS, TRANSLATED, C, M, R
from contract.preset_refusals import refuse
from contract.preset_roads import roads
from contract.preset_stage import CREDENTIALS, THREAD, THREAD_HEADER, Stage, bound, decoded, sent
from contract.preset_usage import usual

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = Mapping[str, Any]
_SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
_ARGUMENTS = '{"a": "b"}'
_MARK = {"cache_control": {"type": "ephemeral"}}
_FUNCTION = {"name": "shell", "description": "Runs.", "parameters": _SCHEMA, "strict": True}

CLAUDE: Json = {
    "max_tokens": 32_000,
    "system": [{"type": "text", "text": "Be brief.", **_MARK}],
    "messages": [
        {"role": "user", "content": "Look."},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "EqQBCgIYAhIM=="},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "toolu_01", "name": "shell", "input": {"a": "b"}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_01", "content": "ok"}]},
        {"role": "system", "content": "From now on in German."},
        {"role": "assistant", "content": "Gut."},
        {"role": "user", "content": [{"type": "text", "text": "Go on.", **_MARK}]},
    ],
    "tools": [{"name": "shell", "description": "Runs.", "input_schema": _SCHEMA, "strict": True, **_MARK}],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    "thinking": {"type": "adaptive", "display": "summarized"},
    "output_config": {"effort": "xhigh", "format": {"type": "json_schema", "schema": _SCHEMA}},
    "speed": "fast",
}
CODEX: Json = {
    "instructions": "Be brief.",
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Rules."}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Look."}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA=="},
        {"type": "function_call", "call_id": "call_1", "name": "shell", "arguments": _ARGUMENTS},
        {"type": "function_call_output", "call_id": "call_1", "output": "ok"},
        {"type": "custom_tool_call", "call_id": "call_2", "name": "apply_patch", "input": "*** Begin Patch"},
        {"type": "custom_tool_call_output", "call_id": "call_2", "output": "ok"},
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Now in German."}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go on."}]},
    ],
    "tools": [
        {"type": "function", **_FUNCTION},
        {"type": "custom", "name": "apply_patch", "description": "Edits.", "format": {"type": "text"}},
        {"type": "namespace", "name": "agents", "description": "", "tools": [{"type": "function", **_FUNCTION}]},
        {"type": "web_search"},
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"effort": "xhigh", "summary": "auto"},
    "text": {"verbosity": "low", "format": {"type": "json_schema", "name": "a", "schema": _SCHEMA, "strict": True}},
    "include": ["reasoning.encrypted_content"],
    "store": False,
    "service_tier": "priority",
    "max_output_tokens": 32_000,
    "prompt_cache_key": THREAD,
    "client_metadata": {"thread_id": THREAD},
}
OPENCODE: Json = {
    "messages": [
        {"role": "developer", "content": [{"type": "text", "text": "Be brief.", **_MARK}]},
        {"role": "user", "content": "Look."},
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "Hm.",
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "shell", "arguments": _ARGUMENTS}},
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "ok"},
        {"role": "developer", "content": "From now on in German."},
        {"role": "user", "content": [{"type": "text", "text": "Go on.", **_MARK}]},
    ],
    "tools": [{"type": "function", "function": _FUNCTION}],
    "tool_choice": "auto",
    "parallel_tool_calls": False,
    "max_completion_tokens": 32_000,
    "temperature": 0.5,
    "reasoning_effort": "high",
    "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": _SCHEMA, "strict": True}},
    "service_tier": "priority",
    "verbosity": "low",
    "prompt_cache_key": THREAD,
    "user": "somebody",
}
RICH = {M: CLAUDE, R: CODEX, C: OPENCODE}
"""All that real clients send, also where most providers refuse it."""


async def asked(stage: Stage, road: tuple[str, Protocol, Protocol], fields: Json, **headers: str) -> dict[str, Any]:
    """Ask, and return what went up, when a strict provider has looked at it."""
    kind, client, spoken = road
    report = usual(kind, spoken)
    stage.answers(sent(events(kind, spoken, TEXT, report)), sent(body(kind, spoken, TEXT, report)))
    data = json.dumps({"model": f"{bound(kind, spoken)}/model-up", **fields}).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    heard = await stage.ask(client, data, {**CREDENTIALS, **named})
    await stage.record()
    assert heard.status == 200, heard.body
    return decoded(stage.asked)


WRITTEN = (*TRANSLATED, *(road for road in ROADS if road[1] is road[2] is R and FACTS[road[0]].plain_tools))
"""Roads on which the request is written anew: Codex's own tools, too, for those that do not know them."""


MODEST = {"messages", "system", "input", "instructions", "tools", "max_tokens", "max_completion_tokens"}


@roads(*WRITTEN)
async def test_nothing_goes_up_that_the_provider_refuses(
    stage: Stage, kind: str, client: Protocol, spoken: Protocol
) -> None:
    modest = {name: value for name, value in RICH[client].items() if name in MODEST}
    for streamed in (True, False):
        for fields in (RICH[client], modest):
            request = await asked(stage, (kind, client, spoken), {"stream": streamed, **fields})
            assert request["model"] == "model-up"
            went_up = {name.lower(): value for name, value in stage.asked.headers}
            assert went_up.items() >= (FACTS[kind].fixed or {}).items() or client is spoken
            refuse(FACTS[kind], spoken, stage.asked.body)


@roads(*(road for road in WRITTEN if road[2] is not M))
async def test_what_the_client_wished_goes_up_where_the_provider_knows_it(
    stage: Stage, kind: str, client: Protocol, spoken: Protocol
) -> None:
    request = await asked(stage, (kind, client, spoken), RICH[client])
    if spoken is R:
        effort = {M: "xhigh", R: "xhigh", C: "high"}[client]
        assert request["reasoning"]["effort"] == ("high" if FACTS[kind].coarse_effort else effort)
        assert request["service_tier"] == "priority"
        return
    chat = FACTS[kind].chat
    assert chat is not None
    wished = {"tools", "response_format", "reasoning_effort", "reasoning", "service_tier", "parallel_tool_calls"}
    wished |= {"verbosity"} if client is not M else set()  # Anthropic has none
    wished |= {"max_tokens"} if "max_completion_tokens" not in chat.fields else {"max_completion_tokens"}
    assert request.keys() >= wished & chat.fields
    assert chat.custom == ("custom" in {tool["type"] for tool in request["tools"]}) or client is not R


@roads(
    *(road for road in TRANSLATED if road[0] == "codex"),
)
async def test_codex_is_asked_for_no_length(stage: Stage, kind: str, client: Protocol, spoken: Protocol) -> None:
    request = await asked(stage, (kind, client, spoken), {"stream": True, **RICH[client]})
    assert "max_output_tokens" not in request


@roads(*TRANSLATED)
async def test_a_thread_is_named_where_the_provider_looks_for_it(
    stage: Stage, kind: str, client: Protocol, spoken: Protocol
) -> None:
    facts = FACTS[kind]
    takes_key = spoken is R or (spoken is C and facts.chat is not None and "prompt_cache_key" in facts.chat.fields)
    keys: list[object] = []
    for thread in (THREAD, THREAD, "another-thread"):
        fields = {
            name: value for name, value in RICH[client].items() if name not in {"prompt_cache_key", "client_metadata"}
        }
        request = await asked(
            stage, (kind, client, spoken), fields, **{THREAD_HEADER[client].replace("-", "_"): thread}
        )
        named = [request.get("prompt_cache_key"), stage.asked.header(facts.affinity) if facts.affinity else None]
        assert [value is not None for value in named] == [takes_key, bool(facts.affinity)]
        keys.append(named)
        assert all(value is None or 0 < len(value) <= 64 for value in named)
    assert keys[0] == keys[1]
    assert keys[1] != keys[2] or not (takes_key or facts.affinity), "threads have caches of their own"


@roads(*(road for road in ROADS if road[1] is road[2]))
async def test_a_request_in_the_providers_own_protocol_goes_up_as_it_came(
    stage: Stage, kind: str, client: Protocol, spoken: Protocol
) -> None:
    plain = {name: value for name, value in RICH[client].items() if name not in {"tools", "input"}}
    fields = {**plain, "input": "Hello."} if client is R else dict(RICH[client])
    fields |= {"stream": True, **({"stream_options": {"include_usage": True}} if client is C else {})}
    assert await asked(stage, (kind, client, spoken), fields) == {"model": "model-up", **fields}


@roads(*((kind, C, C) for kind, facts in FACTS.items() if facts.chat is not None))
async def test_chat_usage_is_asked_for_wherever_it_is_not_told_anyway(
    stage: Stage, kind: str, client: Protocol, spoken: Protocol
) -> None:
    facts = FACTS[kind]
    assert facts.chat is not None
    fields = {"stream": True, "messages": [{"role": "user", "content": "Hello."}]}
    request = await asked(stage, (kind, client, spoken), fields)
    wish = {"include_usage": True} if "stream_options" in facts.chat.fields else None
    assert request.get("stream_options") == wish
