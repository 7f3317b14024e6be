"""The HTTP providers, a row each. A provider that speaks a protocol we have needs nothing but a row."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from cachegate.wire.facts import Operation, Protocol
from cachegate.wire.quirks import Quirk

Paths = Mapping[tuple[Protocol, Operation], str]


def _messages(path: str = "/v1/messages", *, counts: bool = False) -> Paths:
    count = {(Protocol.MESSAGES, Operation.COUNT_TOKENS): f"{path}/count_tokens"} if counts else {}
    return {(Protocol.MESSAGES, Operation.GENERATE): path, **count}


def _responses(path: str = "/responses", *, compacts: bool = False) -> Paths:
    compact = {(Protocol.RESPONSES, Operation.COMPACT): f"{path}/compact"} if compacts else {}
    return {(Protocol.RESPONSES, Operation.GENERATE): path, **compact}


def _chat(path: str = "/chat/completions") -> Paths:
    return {(Protocol.CHAT, Operation.GENERATE): path}


_LOCAL = {**_messages(), **_responses("/v1/responses"), **_chat("/v1/chat/completions")}
"""Servers of one's own speak all three by now; `protocols` in the configuration narrows it for older ones."""


@dataclass(frozen=True, slots=True)
class Preset:
    """What is usual for one kind of provider; the configuration can override the address and the key."""

    kind: str
    base_url: str
    """"" where there is no usual one, so that the configuration must name it."""
    paths: Paths
    """What it speaks, and where, below the base URL. A client's own protocol is preferred, then their order here."""
    key_variable: str
    """Environment variable that usually holds the key; "" where no key is usual."""
    readings: str
    """How it spells its usage: a name in the table of `wire/usage_readings.py`."""
    quirks: frozenset[Quirk] = frozenset()
    """What it does differently from the inventor of a protocol."""
    key_header: str = "authorization"
    key_prefix: str = "Bearer "
    affinity_header: str = ""
    """Header that routes a thread to the server with its cache; set from the caller's thread unless the client did."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Sent with every translated request."""
    betas: bool = False
    """Whether it knows the values of `anthropic-beta`; others refuse requests for them."""

    def speaks(self, protocol: Protocol) -> bool:
        """Whether it takes the protocol as it is."""
        return (protocol, Operation.GENERATE) in self.paths

    @property
    def compacts(self) -> bool:
        """Whether it knows Codex's remote compaction."""
        return (Protocol.RESPONSES, Operation.COMPACT) in self.paths


_VERSION = {"anthropic-version": "2023-06-01"}
_PLAIN = frozenset({Quirk.MAX_TOKENS, Quirk.NO_DEVELOPER, Quirk.NO_STRICT})
"""What servers that imitate OpenAI's Chat usually lack."""
_THINKER = _PLAIN | {Quirk.REASONING_CONTENT, Quirk.NEEDS_THOUGHTS}

_OPENAI = frozenset({Quirk.CHAT_CACHE_KEY, Quirk.EFFORT, Quirk.PRIORITY_TIER, Quirk.VERBOSITY, Quirk.CUSTOM_TOOLS})
_ROUTER = frozenset(
    {
        Quirk.CHAT_CACHE_MARKS, Quirk.CHAT_CACHE_KEY, Quirk.REASONING_OBJECT, Quirk.PRIORITY_TIER, Quirk.NO_STORE,
        Quirk.PLAIN_TOOLS,
    }
)  # fmt: skip
_GROK = frozenset({Quirk.EFFORT, Quirk.PRIORITY_TIER, Quirk.NO_DEVELOPER, Quirk.PLAIN_TOOLS, Quirk.COARSE_EFFORT})
_LOCAL_QUIRKS = _PLAIN | {Quirk.NO_CACHE_MARKS, Quirk.PLAIN_TOOLS, Quirk.COARSE_EFFORT}

_ROWS = (
    Preset(
        "anthropic", "https://api.anthropic.com", _messages(counts=True), "ANTHROPIC_API_KEY", "anthropic",
        frozenset({Quirk.TOOL_REFERENCES}), key_header="x-api-key", key_prefix="", headers=_VERSION, betas=True,
    ),
    Preset(
        "openai", "https://api.openai.com/v1", {**_responses(compacts=True), **_chat()}, "OPENAI_API_KEY", "openai",
        _OPENAI,
    ),
    # Codex signed in with ChatGPT: its token belongs to this host, and only its own credentials work there.
    Preset(
        "codex", "https://chatgpt.com/backend-api/codex", _responses(compacts=True), "", "codex",
        frozenset({Quirk.NO_STORE, Quirk.NO_SAMPLING, Quirk.NO_OUTPUT_LIMIT}),
    ),
    Preset(
        "azure", "", {**_responses(), **_chat()}, "AZURE_OPENAI_API_KEY", "azure",
        _OPENAI, key_header="api-key", key_prefix="",
    ),
    Preset(
        "openrouter", "https://openrouter.ai/api/v1", {**_messages("/messages"), **_responses(), **_chat()},
        "OPENROUTER_API_KEY", "openrouter",
        _ROUTER,
        affinity_header="x-session-id", headers=_VERSION,
    ),
    Preset(
        "xai", "https://api.x.ai/v1", {**_responses(), **_chat()}, "XAI_API_KEY", "xai",
        _GROK, affinity_header="x-grok-conv-id",
    ),
    Preset(
        "deepseek", "https://api.deepseek.com", {**_messages("/anthropic/v1/messages"), **_chat()},
        "DEEPSEEK_API_KEY", "deepseek",
        _THINKER | {Quirk.NO_CACHE_MARKS, Quirk.NO_JSON_SCHEMA, Quirk.STRING_CONTENT}, headers=_VERSION,
    ),
    Preset(
        "gemini", "https://generativelanguage.googleapis.com/v1beta/openai", _chat(), "GEMINI_API_KEY", "gemini",
        _PLAIN | {Quirk.EFFORT, Quirk.NO_PARALLEL},
    ),
    # Tells its usage unasked, and refuses to be asked for it.
    Preset(
        "mistral", "https://api.mistral.ai/v1", _chat(), "MISTRAL_API_KEY", "mistral",
        _PLAIN | {Quirk.CHAT_CACHE_KEY, Quirk.SHORT_CALL_IDS, Quirk.NO_STREAM_USAGE},
    ),
    Preset(
        "moonshot", "https://api.moonshot.ai",
        {**_messages("/anthropic/v1/messages"), **_chat("/v1/chat/completions")},
        "MOONSHOT_API_KEY", "moonshot", _THINKER | {Quirk.NO_CACHE_MARKS}, headers=_VERSION,
    ),
    Preset(
        "zai", "https://api.z.ai",
        {**_messages("/api/anthropic/v1/messages"), **_chat("/api/paas/v4/chat/completions")},
        "ZAI_API_KEY", "zai", _THINKER | {Quirk.NO_CACHE_MARKS, Quirk.NO_JSON_SCHEMA}, headers=_VERSION,
    ),
    Preset(
        "qwen", "https://dashscope-intl.aliyuncs.com/compatible-mode/v1", _chat(), "DASHSCOPE_API_KEY", "qwen",
        _PLAIN | {Quirk.CHAT_CACHE_MARKS},
    ),
    Preset(
        "groq", "https://api.groq.com/openai/v1", _chat(), "GROQ_API_KEY", "openai-compatible", _PLAIN | {Quirk.EFFORT}
    ),
    # Its templates show the model its own thoughts again, and its cache holds them.
    Preset(
        "llamacpp", "http://127.0.0.1:8080", {**_LOCAL, **_messages(counts=True)}, "", "llamacpp",
        _LOCAL_QUIRKS | {Quirk.REASONING_CONTENT, Quirk.PLAIN_THOUGHTS},
    ),
    Preset("vllm", "http://127.0.0.1:8000", _LOCAL, "", "vllm", _LOCAL_QUIRKS | {Quirk.PLAIN_THOUGHTS}),
    Preset("sglang", "http://127.0.0.1:30000", _LOCAL, "", "sglang", _LOCAL_QUIRKS),
    Preset("ollama", "http://127.0.0.1:11434", _LOCAL, "", "ollama", _LOCAL_QUIRKS | {Quirk.PLAIN_THOUGHTS}),
    Preset("lmstudio", "http://127.0.0.1:1234", _LOCAL, "", "lmstudio", _LOCAL_QUIRKS),
    Preset("openai-compatible", "", _chat("/chat/completions"), "", "openai-compatible", _PLAIN),
)  # fmt: skip

PRESETS = {preset.kind: preset for preset in _ROWS}
