"""The HTTP providers, a row each. A provider that speaks a protocol we have needs nothing but a row."""

from collections.abc import Mapping
from dataclasses import dataclass

from cachegate.wire.facts import Operation, Protocol

_MESSAGES = {
    (Protocol.MESSAGES, Operation.GENERATE): "/v1/messages",
    (Protocol.MESSAGES, Operation.COUNT_TOKENS): "/v1/messages/count_tokens",
}
_RESPONSES = {
    (Protocol.RESPONSES, Operation.GENERATE): "/responses",
    (Protocol.RESPONSES, Operation.COMPACT): "/responses/compact",
}


@dataclass(frozen=True, slots=True)
class Preset:
    """What is usual for one kind of provider; the configuration can override the address and the key."""

    kind: str
    base_url: str
    paths: Mapping[tuple[Protocol, Operation], str]
    """What it speaks, and where, below the base URL."""
    key_variable: str
    """Environment variable that usually holds the key; "" where there is no such thing."""
    key_header: str = "authorization"
    key_prefix: str = "Bearer "


PRESETS = {
    preset.kind: preset
    for preset in (
        Preset("anthropic", "https://api.anthropic.com", _MESSAGES, "ANTHROPIC_API_KEY", "x-api-key", ""),
        Preset("openai", "https://api.openai.com/v1", _RESPONSES, "OPENAI_API_KEY"),
        # Codex signed in with ChatGPT: its token belongs to this host, and only its own credentials work there.
        Preset("codex", "https://chatgpt.com/backend-api/codex", _RESPONSES, ""),
    )
}
