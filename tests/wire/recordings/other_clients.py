"""Copilot, Grok, Cline, and whoever uses an SDK."""

from collections.abc import Mapping

from wire.recordings.recorded import AUXILIARY, COMPACTION, MESSAGES, READ, RESPONSES, SHELL, Recorded, said

_KEY = "9b1c2d3e4f5061728394a5b6c7d8e9f0"
_CONV = "conv-7f3a"


def grok_headers(conversation: str, **more: str) -> Mapping[str, str]:
    ids = {"x-grok-conv-id": conversation, "x-grok-session-id": conversation, "x-grok-agent-id": "a1"}
    return {"authorization": "Bearer dummy", **ids, "x-grok-turn-idx": "3", "x-grok-req-id": "r-1", **more}


OTHERS = (
    Recorded(
        "copilot on Responses",
        RESPONSES,
        {"x-initiator": "user", "x-interaction-type": "conversation-agent"},
        {"input": [said("hi")], "instructions": "You are Copilot.", "prompt_cache_key": _KEY, "tools": [SHELL]},
        f"prompt-cache-key:{_KEY}",
    ),
    Recorded(
        "copilot compaction",
        RESPONSES,
        {"x-initiator": "agent", "x-interaction-type": "conversation-compaction"},
        {"input": [said("hi")], "instructions": "You are Copilot.", "prompt_cache_key": _KEY, "tools": [SHELL]},
        f"prompt-cache-key:{_KEY}",
        COMPACTION,
    ),
    Recorded(
        "copilot on Messages",
        MESSAGES,
        {"x-initiator": "agent"},
        {"messages": [{"role": "user", "content": "hi"}], "system": "You are Copilot.", "tools": [READ]},
        None,
    ),
    Recorded(
        "grok main",
        RESPONSES,
        grok_headers(_CONV),
        {"input": [said("hi")], "prompt_cache_key": _CONV, "tools": [SHELL]},
        f"grok:{_CONV}",
    ),
    Recorded(
        "grok title, ids empty", RESPONSES, grok_headers(""), {"input": "hi", "prompt_cache_key": ""}, None, AUXILIARY
    ),
    Recorded(
        "grok summary of a turn",
        RESPONSES,
        grok_headers(_CONV, **{"x-grok-req-id": "xai-turn-summary-17"}),
        {"input": [said("hi")], "prompt_cache_key": _CONV, "tools": [SHELL]},
        f"grok:{_CONV}",
        AUXILIARY,
    ),
    Recorded("cline", RESPONSES, {"user-agent": "Cline"}, {"input": [said("hi")], "truncation": "auto"}, None),
    Recorded("openai sdk", RESPONSES, {"user-agent": "OpenAI/Python 3.57.0"}, {"input": "hi"}, None),
    Recorded(
        "openai sdk, conversation", RESPONSES, {}, {"input": "hi", "conversation": "conv_1"}, "conversation:conv_1"
    ),
    Recorded(
        "openai sdk, conversation as an object",
        RESPONSES,
        {},
        {"input": "hi", "conversation": {"id": "conv_1"}, "prompt_cache_key": "shared"},
        "conversation:conv_1",
    ),
    Recorded(
        "our sdk",
        RESPONSES,
        {"x-cachegate-thread-id": "chat_1"},
        {"input": [said("hi")], "prompt_cache_key": "chat_1"},
        "cachegate:chat_1",
    ),
    Recorded(
        "our sdk, compaction",
        RESPONSES,
        {"x-cachegate-thread-id": "chat_1", "x-cachegate-request-class": "compaction"},
        {"input": [said("hi")], "prompt_cache_key": "chat_1"},
        "cachegate:chat_1",
        COMPACTION,
    ),
    Recorded(
        "anthropic sdk, a person's id is no session",
        MESSAGES,
        {"anthropic-version": "2023-06-01"},
        {"messages": [{"role": "user", "content": "hi"}], "metadata": {"user_id": "13803d75-b4b5-4c3e"}},
        None,
    ),
)
