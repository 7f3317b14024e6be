"""Codex: the session id and prompt_cache_key are the root's on every child; only the thread tells them apart."""

import json
from collections.abc import Mapping
from typing import Any

from cachegate.wire.facts import Operation
from wire.recordings.recorded import AUXILIARY, COMPACTION, RESPONSES, SHELL, Json, Recorded, said

ROOT = "019ac1f0-5b7e-7d52-9f2c-1d8e4a6b7c90"
CHILD = "019ac1f4-0c11-7a03-b6d0-55f2e7a90c1e"
_CHECKPOINT = "You are performing a CONTEXT CHECKPOINT COMPACTION. Create a handoff summary for another LLM."


def codex(thread: str, *inputs: Json, session: str = ROOT, key: str | None = None, **more: Any) -> Json:
    """The body of a request: everything the headers say stands in `client_metadata` too."""
    return {
        "model": "gpt-5.5",
        "input": [said("You are Codex.", "developer"), said("Fix the build."), *inputs],
        "tools": [SHELL, {"type": "namespace", "name": "multi_agent_v1", "tools": []}],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": key or session,
        "client_metadata": {"session_id": session, "thread_id": thread, "x-codex-window-id": f"{thread}:0"},
        **more,
    }


def codex_headers(thread: str, session: str = ROOT, *, subagent: str = "", **turn: Any) -> Mapping[str, str]:
    metadata = {"session_id": session, "thread_id": thread, "turn_id": "t1", "request_kind": "turn", **turn}
    child = {"x-codex-parent-thread-id": ROOT, "x-openai-subagent": subagent} if subagent else {}
    return {
        "authorization": "Bearer dummy",
        "originator": "codex_exec",
        "session-id": session,
        "thread-id": thread,
        "x-client-request-id": thread,
        "x-codex-window-id": f"{thread}:0",
        "x-codex-turn-metadata": json.dumps(metadata, separators=(",", ":")),
        **child,
    }


_COMPACTS: Json = {"request_kind": "compaction", "compaction": {"trigger": "manual", "implementation": "responses"}}
_REMOTE: Json = {
    "request_kind": "compaction",
    "compaction": {"trigger": "auto", "reason": "context_limit", "implementation": "responses_compaction_v2"},
}
_TITLED: Json = {"format": {"type": "json_schema", "name": "title", "schema": {"properties": {"title": {}}}}}
_LITE_TOOLS: Json = {"type": "additional_tools", "tools": [SHELL]}

CODEX = (
    Recorded("codex main", RESPONSES, codex_headers(ROOT), codex(ROOT), f"codex:{ROOT}"),
    Recorded(
        "codex main, model with tools in its input",
        RESPONSES,
        {**codex_headers(ROOT), "x-openai-internal-codex-responses-lite": "true"},
        {**codex(ROOT), "tools": None, "input": [_LITE_TOOLS, said("You are Codex.", "developer"), said("Hi")]},
        f"codex:{ROOT}",
    ),
    Recorded(
        "codex resumed",
        RESPONSES,
        codex_headers(ROOT, history_initialization="cold_resume"),
        codex(ROOT),
        f"codex:{ROOT}",
    ),
    Recorded(
        "codex sub-agent",
        RESPONSES,
        codex_headers(CHILD, subagent="collab_spawn", thread_source="subagent", subagent_kind="thread_spawn"),
        codex(CHILD),
        f"codex:{CHILD}",
    ),
    Recorded(
        "codex review",
        RESPONSES,
        codex_headers("review-thread", subagent="review", thread_source="subagent", subagent_kind="review"),
        codex("review-thread"),
        "codex:review-thread",
    ),
    Recorded(
        "codex guardian",
        RESPONSES,
        codex_headers("guardian-thread", subagent="guardian", thread_source="guardian_review"),
        codex("guardian-thread", key=f"guardian:{ROOT}"),
        "codex:guardian-thread",
    ),
    Recorded(
        "codex memory",
        RESPONSES,
        {
            **codex_headers("memory-thread", "memory-thread", thread_source="memory_consolidation"),
            "x-openai-subagent": "memory_consolidation",
            "x-openai-memgen-request": "true",
        },
        {**codex("memory-thread", session="memory-thread"), "model": "gpt-6.1-terra"},
        "codex:memory-thread",
        AUXILIARY,
    ),
    Recorded(
        "codex title",
        RESPONSES,
        codex_headers("title-thread", "title-thread", thread_source="thread_title"),
        codex("title-thread", session="title-thread", text=_TITLED),
        "codex:title-thread",
        AUXILIARY,
    ),
    Recorded(
        "codex side question",
        RESPONSES,
        codex_headers("sample-thread", thread_source="thread_sample", history_initialization="warm_fork"),
        codex("sample-thread"),
        "codex:sample-thread",
    ),
    Recorded(
        "codex fork",
        RESPONSES,
        codex_headers("fork-thread", "fork-thread", history_initialization="warm_fork", forked_from_thread_id=ROOT),
        codex("fork-thread", session="fork-thread"),
        "codex:fork-thread",
    ),
    Recorded(
        "codex local compaction",
        RESPONSES,
        codex_headers(ROOT, **_COMPACTS),
        codex(ROOT, said(_CHECKPOINT), tools=[]),
        f"codex:{ROOT}",
        COMPACTION,
    ),
    Recorded(
        "codex remote compaction, automatic",
        RESPONSES,
        codex_headers(ROOT, **_REMOTE),
        codex(ROOT, {"type": "compaction_trigger"}),
        f"codex:{ROOT}",
        COMPACTION,
    ),
    Recorded(
        "codex compaction of a sub-agent",
        RESPONSES,
        codex_headers(CHILD, subagent="collab_spawn", **_COMPACTS),
        codex(CHILD, said(_CHECKPOINT)),
        f"codex:{CHILD}",
        COMPACTION,
    ),
    Recorded(
        "codex after a compaction",
        RESPONSES,
        codex_headers(ROOT),
        codex(ROOT, {"type": "compaction", "encrypted_content": "gAAAA"}, said("Go on.")),
        f"codex:{ROOT}",
    ),
    Recorded(
        "codex local compaction, headers stripped",
        RESPONSES,
        {"authorization": "Bearer dummy"},
        codex(ROOT, said(_CHECKPOINT)),
        f"codex:{ROOT}",
        COMPACTION,
    ),
    Recorded(
        "codex remote compaction, headers stripped",
        RESPONSES,
        {},
        codex(ROOT, {"type": "compaction_trigger"}),
        f"codex:{ROOT}",
        COMPACTION,
    ),
    Recorded("codex sub-agent, headers stripped", RESPONSES, {}, codex(CHILD), f"codex:{CHILD}"),
    Recorded(
        "codex sub-agent, window only",
        RESPONSES,
        {"x-codex-window-id": f"{CHILD}:12", "session-id": ROOT},
        {"input": "hi", "prompt_cache_key": ROOT},
        f"codex:{CHILD}",
    ),
    Recorded(
        "codex sub-agent, turn metadata in the body only",
        RESPONSES,
        {},
        {
            "input": "hi",
            "prompt_cache_key": ROOT,
            "client_metadata": {
                "x-codex-turn-metadata": json.dumps({"thread_id": CHILD, "request_kind": "compaction"}),
            },
        },
        f"codex:{CHILD}",
        COMPACTION,
    ),
    Recorded(
        "codex of spring 2026, compaction by its header",
        RESPONSES,
        {"session_id": ROOT, "x-openai-subagent": "compact"},
        {"input": [said("Fix the build.")], "instructions": "You are Codex."},
        f"session-id:{ROOT}",
        COMPACTION,
    ),
    Recorded(
        "codex of spring 2026, compaction by its own path",
        RESPONSES,
        {"session_id": ROOT},
        {"input": [said("Fix the build.")], "instructions": "You are Codex."},
        f"session-id:{ROOT}",
        COMPACTION,
        operation=Operation.COMPACT,
    ),
)
