"""What is known of each provider from its own documents: where it is asked, how it is signed, what it refuses.

Nothing here comes from the rows under test. `test_presets.py` holds the rows, and the whole gateway, against it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from cachegate.wire.facts import Protocol

M, R, C = Protocol.MESSAGES, Protocol.RESPONSES, Protocol.CHAT
KEY = "sk-of-the-provider"
BEARER = ("authorization", f"Bearer {KEY}")
VERSION = {"anthropic-version": "2023-06-01"}
"""Without it the Messages API of Anthropic answers nothing."""

_CHAT = frozenset(
    {"model", "messages", "tools", "tool_choice", "stream", "stop", "temperature", "top_p", "response_format"}
)
_PLAIN = _CHAT | {"max_tokens", "stream_options", "parallel_tool_calls"}
_OPENAI = _CHAT | {
    "max_completion_tokens", "stream_options", "parallel_tool_calls", "prompt_cache_key", "reasoning_effort",
    "service_tier", "verbosity",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Takes:
    """What a provider's Chat Completions takes, beside plain text."""

    fields: frozenset[str] = _PLAIN
    developer: bool = False
    strict: bool = False
    schema: bool = True
    """`json_schema` as a response format; without it only `json_object`."""
    parts: bool = True
    """Text as a list of parts; without it only as one string."""
    marks: bool = False
    """`cache_control` on parts and tools."""
    custom: bool = False
    """Freeform tools."""
    call_ids: str = r".{1,40}"
    thoughts: bool = False
    """It refuses its own calls without `reasoning_content`."""


@dataclass(frozen=True, slots=True)
class Facts:
    """One provider."""

    kind: str
    address: str
    """As a person writes it into the configuration."""
    paths: Mapping[Protocol, str]
    """Below the address."""
    variable: str = ""
    """Of the environment, which usually holds its key."""
    signed: tuple[str, str] = BEARER
    affinity: str = ""
    """Header by which it finds the server with a thread's cache."""
    fixed: Mapping[str, str] | None = None
    chat: Takes | None = None
    message_marks: bool = False
    """Its Messages API takes `cache_control` from those who speak another protocol."""
    plain_tools: bool = True
    """Its Responses API knows functions only: no custom tools and no namespaces."""
    coarse_effort: bool = False
    """Its Responses API knows three efforts."""
    stores_nothing: bool = False
    """Its Responses API must be told `store: false`."""
    set_by_itself: frozenset[str] = frozenset()
    """Fields of a Responses request that it refuses, for it decides on them itself."""

    @property
    def base(self) -> str:
        return urlsplit(self.address).path

    def path(self, spoken: Protocol) -> str:
        """The whole path under its host."""
        return self.base + self.paths[spoken]

    def asked_in(self, client: Protocol) -> Protocol:
        """In which protocol it is asked for a client: the client's own, else the one that says most."""
        return client if client in self.paths else next(spoken for spoken in (M, R, C) if spoken in self.paths)


def _messages(path: str = "/v1/messages") -> dict[Protocol, str]:
    return {M: path}


_RESPONSES = {R: "/responses"}
_CHAT_PATH = {C: "/chat/completions"}
_ALL = {M: "/v1/messages", R: "/v1/responses", C: "/v1/chat/completions"}
_THINKS = Takes(thoughts=True)


def _local(kind: str, port: int) -> Facts:
    return Facts(kind, f"http://127.0.0.1:{port}", _ALL, chat=Takes(), coarse_effort=True)


_ROWS = (
    Facts(
        "anthropic", "https://api.anthropic.com", _messages(), "ANTHROPIC_API_KEY", ("x-api-key", KEY),
        fixed=VERSION, message_marks=True,
    ),
    Facts(
        "openai", "https://api.openai.com/v1", {**_RESPONSES, **_CHAT_PATH}, "OPENAI_API_KEY",
        chat=Takes(_OPENAI, developer=True, strict=True, custom=True), plain_tools=False,
    ),
    Facts(
        "codex", "https://chatgpt.com/backend-api/codex", _RESPONSES, plain_tools=False, stores_nothing=True,
        set_by_itself=frozenset({"temperature", "top_p"}),
    ),
    Facts(
        "azure", "https://of-a-customer.example/openai/v1", {**_RESPONSES, **_CHAT_PATH}, "AZURE_OPENAI_API_KEY",
        ("api-key", KEY), chat=Takes(_OPENAI, developer=True, strict=True, custom=True), plain_tools=False,
    ),
    Facts(
        "openrouter", "https://openrouter.ai/api/v1", {M: "/messages", **_RESPONSES, **_CHAT_PATH},
        "OPENROUTER_API_KEY", affinity="x-session-id", fixed=VERSION, message_marks=True, stores_nothing=True,
        chat=Takes(
            (_OPENAI | {"reasoning"}) - {"reasoning_effort", "verbosity"}, developer=True, strict=True, marks=True
        ),
    ),
    Facts(
        "xai", "https://api.x.ai/v1", {**_RESPONSES, **_CHAT_PATH}, "XAI_API_KEY", affinity="x-grok-conv-id",
        chat=Takes(_OPENAI - {"prompt_cache_key", "verbosity"}, strict=True), coarse_effort=True,
    ),
    Facts(
        "deepseek", "https://api.deepseek.com", {M: "/anthropic/v1/messages", **_CHAT_PATH}, "DEEPSEEK_API_KEY",
        fixed=VERSION, chat=Takes(schema=False, parts=False, thoughts=True),
    ),
    Facts(
        "gemini", "https://generativelanguage.googleapis.com/v1beta/openai", _CHAT_PATH, "GEMINI_API_KEY",
        chat=Takes((_PLAIN | {"reasoning_effort"}) - {"parallel_tool_calls"}),
    ),
    # Refuses every field that it does not know, and `include_usage` among them; it tells its usage unasked.
    Facts(
        "mistral", "https://api.mistral.ai/v1", _CHAT_PATH, "MISTRAL_API_KEY",
        chat=Takes(
            (_PLAIN | {"prompt_cache_key"}) - {"stream_options"}, call_ids=r"[a-zA-Z0-9]{9}"
        ),
    ),
    Facts(
        "moonshot", "https://api.moonshot.ai", {M: "/anthropic/v1/messages", C: "/v1/chat/completions"},
        "MOONSHOT_API_KEY", fixed=VERSION, chat=_THINKS,
    ),
    Facts(
        "zai", "https://api.z.ai", {M: "/api/anthropic/v1/messages", C: "/api/paas/v4/chat/completions"},
        "ZAI_API_KEY", fixed=VERSION, chat=Takes(schema=False, thoughts=True),
    ),
    Facts(
        "qwen", "https://dashscope-intl.aliyuncs.com/compatible-mode/v1", _CHAT_PATH, "DASHSCOPE_API_KEY",
        chat=Takes(marks=True),
    ),
    Facts(
        "groq", "https://api.groq.com/openai/v1", _CHAT_PATH, "GROQ_API_KEY",
        chat=Takes(_PLAIN | {"reasoning_effort"}),
    ),
    _local("llamacpp", 8080),
    _local("vllm", 8000),
    _local("sglang", 30000),
    _local("ollama", 11434),
    _local("lmstudio", 1234),
    Facts("openai-compatible", "https://of-anybody.example/v1", _CHAT_PATH, chat=Takes()),
)  # fmt: skip

FACTS = {facts.kind: facts for facts in _ROWS}
NO_USUAL_ADDRESS = frozenset({"azure", "openai-compatible"})
ROADS = tuple((kind, client, spoken) for kind, facts in FACTS.items() for client in (M, R, C) for spoken in facts.paths)
"""Every (provider, protocol of the client, protocol of the provider)."""
TRANSLATED = tuple(road for road in ROADS if road[1] is not road[2])
