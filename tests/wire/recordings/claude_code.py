"""Claude Code: sub-agents share the session id; only the agent id tells them apart."""

import json
from collections.abc import Mapping
from typing import Any

from cachegate.wire.facts import Operation
from wire.recordings.recorded import AUXILIARY, COMPACTION, MESSAGES, READ, Json, Recorded

SESSION = "5b1f0c9e-2f0a-4b7e-9a53-0d6a1c7b8e21"
_SECURITY = "You are a security monitor for autonomous AI coding agents. Decide whether the action is allowed."
_SUMMARY = (
    "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n\n"
    "Your task is to create a detailed summary of the conversation so far."
)
_JSON_ID = json.dumps({"device_id": "d" * 64, "account_uuid": "", "session_id": SESSION})
_OLD_ID = f"user_{'a' * 64}_account_0f0e0d0c-0b0a-4908-8706-050403020100_session_{SESSION}"


def claude(*turns: Json, **more: Any) -> Json:
    return {
        "model": "claude-opus-5-5",
        "max_tokens": 64000,
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.332; cc_entrypoint=cli;"},
            {"type": "text", "text": "You are Claude Code.", "cache_control": {"type": "ephemeral"}},
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Fix the build."}]},
            {"role": "system", "content": "Deferred tools: WebFetch"},
            *turns,
        ],
        "tools": [
            READ,
            {"name": "DeferredToolPlaceholder", "input_schema": {"type": "object"}, "defer_loading": True},
        ],
        "metadata": {"user_id": _JSON_ID},
        "thinking": {"type": "adaptive", "display": "updates"},
        "output_config": {"effort": "high"},
        "stream": True,
        **more,
    }


def claude_headers(**more: str) -> Mapping[str, str]:
    return {
        "x-api-key": "dummy",
        "anthropic-version": "2023-06-01",
        "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14",
        "x-app": "cli",
        "X-Claude-Code-Session-Id": SESSION,
        **{name.replace("_", "-"): value for name, value in more.items()},
    }


_CLASS = "x_claude_code_request_class"
_SCHEMA: Json = {"type": "json_schema", "schema": {"type": "object", "properties": {"title": {"type": "string"}}}}
_TITLE: Json = claude(
    tools=[], messages=[{"role": "user", "content": "Fix the build."}], output_config={"format": _SCHEMA}
)
_CLASSIFIER: Json = {
    "model": "claude-sonnet-5",
    "max_tokens": 64,
    "system": [{"type": "text", "text": _SECURITY}],
    "messages": [{"role": "user", "content": "<transcript>…</transcript>"}],
    "thinking": {"type": "disabled"},
    "metadata": {"user_id": _JSON_ID},
}
_BETAS = "claude-code-20250219,dangerous-tool-use-2026-09-03"
_JUDGED: Json = {"safeguards": [{"type": "dangerous_tool_use", "classifier_context": {"v": 1}}]}
"""Auto mode where Anthropic's server judges: it comes with the turns of the chat themselves."""
_REVIEW: Json = {name: value for name, value in claude(max_tokens=0, **_JUDGED).items() if name != "stream"}
"""Whether a sub-agent may go on: its whole conversation, judged, and nothing answered."""
_COMPACT: Json = claude({"role": "user", "content": _SUMMARY})
_MAIN, _CLAUDE = claude(), f"claude-code:{SESSION}"

CLAUDE_CODE = (
    Recorded("claude main", MESSAGES, claude_headers(), _MAIN, _CLAUDE),
    Recorded(
        "claude main, hints",
        MESSAGES,
        claude_headers(**{_CLASS: "main"}, x_claude_code_prompt_id="p1", x_claude_code_context_compacted="true"),
        _MAIN,
        _CLAUDE,
    ),
    Recorded(
        "claude sub-agent", MESSAGES, claude_headers(x_claude_code_agent_id="agent-1"), _MAIN, f"{_CLAUDE}/agent-1"
    ),
    Recorded(
        "claude nested sub-agent, hints",
        MESSAGES,
        claude_headers(
            **{_CLASS: "subagent"},
            x_claude_code_agent_id="agent-2",
            x_claude_code_parent_agent_id="agent-1",
            x_claude_code_agent_type="general-purpose",
        ),
        _MAIN,
        f"{_CLAUDE}/agent-2",
    ),
    Recorded(
        "claude workflow, hints",
        MESSAGES,
        claude_headers(**{_CLASS: "workflow"}, x_claude_code_agent_id="agent-3"),
        _MAIN,
        f"{_CLAUDE}/agent-3",
    ),
    *(
        Recorded(
            f"claude {trigger} compaction, hints",
            MESSAGES,
            claude_headers(**{_CLASS: "compaction"}, x_claude_code_compaction=trigger),
            _COMPACT,
            _CLAUDE,
            COMPACTION,
        )
        for trigger in ("manual", "auto", "reactive")
    ),
    Recorded(
        "claude compaction in other words, told by its class",
        MESSAGES,
        claude_headers(**{_CLASS: "compaction"}),
        _MAIN,
        _CLAUDE,
        COMPACTION,
    ),
    Recorded(
        "claude compaction in other words, told by its trigger",
        MESSAGES,
        claude_headers(x_claude_code_compaction="auto"),
        _MAIN,
        _CLAUDE,
        COMPACTION,
    ),
    Recorded("claude compaction", MESSAGES, claude_headers(), _COMPACT, _CLAUDE, COMPACTION),
    Recorded(
        "claude compaction of a sub-agent",
        MESSAGES,
        claude_headers(x_claude_code_agent_id="agent-1"),
        _COMPACT,
        f"{_CLAUDE}/agent-1",
        COMPACTION,
    ),
    Recorded(
        "claude after a compaction",
        MESSAGES,
        claude_headers(),
        claude({"role": "user", "content": f"This session continues. Summary: {_SUMMARY}"}),
        _CLAUDE,
    ),
    Recorded("claude title", MESSAGES, claude_headers(), _TITLE, _CLAUDE, AUXILIARY),
    Recorded("claude title, hints", MESSAGES, claude_headers(**{_CLASS: "auxiliary"}), _TITLE, _CLAUDE, AUXILIARY),
    Recorded("claude side reply, hints", MESSAGES, claude_headers(**{_CLASS: "side_reply"}), _MAIN, _CLAUDE, AUXILIARY),
    Recorded(
        "claude model probe, hints",
        MESSAGES,
        claude_headers(**{_CLASS: "auxiliary"}),
        {"max_tokens": 1, "messages": [{"role": "user", "content": "test"}], "metadata": {"user_id": _JSON_ID}},
        _CLAUDE,
        AUXILIARY,
    ),
    Recorded(
        "claude model probe",
        MESSAGES,
        claude_headers(),
        {"max_tokens": 1, "messages": [{"role": "user", "content": "test"}], "metadata": {"user_id": _JSON_ID}},
        _CLAUDE,
        AUXILIARY,
    ),
    Recorded("claude classifier", MESSAGES, claude_headers(), _CLASSIFIER, "classifier", AUXILIARY),
    Recorded(
        "claude classifier, hints",
        MESSAGES,
        claude_headers(**{_CLASS: "auxiliary"}),
        {**_CLASSIFIER, "max_tokens": 8192},
        "classifier",
        AUXILIARY,
    ),
    Recorded(
        "claude classifier, the transcript in messages of its own",
        MESSAGES,
        claude_headers(),
        {
            **_CLASSIFIER,
            "system": [
                {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.332;"},
                *_CLASSIFIER["system"],
            ],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": text}]} for text in ("<transcript>", "…")
            ],
            "stop_sequences": ["</block>"],
        },
        "classifier",
        AUXILIARY,
    ),
    Recorded(
        "claude classifier in other words, told by its beta",
        MESSAGES,
        claude_headers(anthropic_beta="claude-code-20250219,auto-mode-classifier-2026-07-16"),
        {**_CLASSIFIER, "system": "Judge."},
        "classifier",
        AUXILIARY,
    ),
    Recorded(
        "claude review of a sub-agent",
        MESSAGES,
        claude_headers(anthropic_beta=f"{_BETAS},auto-mode-classifier-2026-07-16,subagent-review-2026-11-17"),
        _REVIEW,
        "classifier",
        AUXILIARY,
    ),
    Recorded(
        "claude review of a sub-agent, hints, headers of betas stripped",
        MESSAGES,
        claude_headers(**{_CLASS: "auxiliary"}, anthropic_beta=""),
        _REVIEW,
        "classifier",
        AUXILIARY,
    ),
    Recorded(
        "claude main, judged by the server", MESSAGES, claude_headers(anthropic_beta=_BETAS), claude(**_JUDGED), _CLAUDE
    ),
    Recorded("claude main, to keep the cache warm", MESSAGES, claude_headers(), claude(max_tokens=0), _CLAUDE),
    Recorded(
        "claude classifier that claims a compaction",
        MESSAGES,
        claude_headers(**{_CLASS: "compaction"}, x_claude_code_compaction="auto"),
        _CLASSIFIER,
        "classifier",
        AUXILIARY,
    ),
    Recorded("claude main, headers stripped", MESSAGES, {}, _MAIN, _CLAUDE),
    Recorded("claude of 2025, headers stripped", MESSAGES, {}, claude(metadata={"user_id": _OLD_ID}), _CLAUDE),
    Recorded("claude counting tokens", MESSAGES, claude_headers(), _MAIN, _CLAUDE, operation=Operation.COUNT_TOKENS),
)
