"""opencode: a session id of its own per sub-agent; title and compaction use the main one."""

from collections.abc import Mapping

from wire.recordings.recorded import AUXILIARY, COMPACTION, MESSAGES, READ, RESPONSES, SHELL, Json, Recorded

_SES, _SUB = "ses_5d1e8f0aaffe1dAbCdEfGhIjKl", "ses_5d1e8f0bbffe2eMnOpQrStUvWx"
_TITLES = "You are a title generator. You output ONLY a thread title. Nothing else."
_SUMMARIZES = "You are a context summarization agent. Summarize the conversation."


def opencode_headers(session: str, **more: str) -> Mapping[str, str]:
    return {"x-session-id": session, "x-session-affinity": session, **more}


def opencode_messages(system: str, *tools: Json) -> Json:
    body = {"max_tokens": 32000, "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    return {**body, "system": [{"type": "text", "text": system}], **({"tools": list(tools)} if tools else {})}


def opencode_responses(system: str, *tools: Json) -> Json:
    asked = [
        {"role": "developer", "content": system},
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
    ]
    body = {"store": False, "stream": True, "prompt_cache_key": _SES, "input": asked}
    return {**body, **({"tools": list(tools)} if tools else {})}


_OPENCODE = "You are opencode, an interactive CLI tool."
_ON_OPENAI = {"originator": "opencode", "session-id": _SES}

OPENCODE = (
    Recorded("opencode main", MESSAGES, opencode_headers(_SES), opencode_messages(_OPENCODE, READ), f"session:{_SES}"),
    Recorded(
        "opencode sub-agent",
        MESSAGES,
        opencode_headers(_SUB, **{"x-parent-session-id": _SES}),
        opencode_messages(_OPENCODE, READ),
        f"session:{_SUB}",
    ),
    Recorded(
        "opencode title", MESSAGES, opencode_headers(_SES), opencode_messages(_TITLES), f"session:{_SES}", AUXILIARY
    ),
    Recorded(
        "opencode compaction",
        MESSAGES,
        opencode_headers(_SES),
        opencode_messages(_SUMMARIZES),
        f"session:{_SES}",
        COMPACTION,
    ),
    Recorded(
        "opencode main on Responses",
        RESPONSES,
        opencode_headers(_SES, **_ON_OPENAI),
        opencode_responses(_OPENCODE, SHELL),
        f"session:{_SES}",
    ),
    Recorded(
        "opencode sub-agent on Responses",
        RESPONSES,
        opencode_headers(_SUB, **{"x-parent-session-id": _SES}),
        {**opencode_responses(_OPENCODE, SHELL), "prompt_cache_key": _SUB},
        f"session:{_SUB}",
    ),
    Recorded(
        "opencode title on Responses",
        RESPONSES,
        opencode_headers(_SES, **_ON_OPENAI),
        opencode_responses(_TITLES),
        f"session:{_SES}",
        AUXILIARY,
    ),
    Recorded(
        "opencode compaction on Responses",
        RESPONSES,
        opencode_headers(_SES, **_ON_OPENAI),
        opencode_responses(_SUMMARIZES),
        f"session:{_SES}",
        COMPACTION,
    ),
    Recorded(
        "opencode working on its own prompts",
        MESSAGES,
        opencode_headers(_SES),
        opencode_messages(f"{_OPENCODE} {_SUMMARIZES} {_TITLES}", READ),
        f"session:{_SES}",
    ),
)
