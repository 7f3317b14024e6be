"""The sections of the configuration that describe providers, one for each way to reach a model."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator
from pydantic.alias_generators import to_camel
from yarl import URL

from cachegate.providers.address import NotSelfHosted, pinned_addresses
from cachegate.providers.presets import PRESETS


class Section(BaseModel):
    """Keys in camel case; one that nobody knows is a problem."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True, use_attribute_docstrings=True)


def _checked_url(value: str) -> str:
    url = URL(value)
    if url.scheme not in {"http", "https"} or not url.host or url.user or url.query_string or url.fragment:
        raise ValueError("must look like https://host[:port][/path], without user, query or fragment")
    return value


class HttpProviderConfig(Section):
    """A provider reached over HTTP."""

    kind: Literal[
        "anthropic", "openai", "codex", "azure", "openrouter", "xai", "deepseek", "gemini", "mistral", "moonshot",
        "zai", "qwen", "groq", "llamacpp", "vllm", "sglang", "ollama", "lmstudio", "openai-compatible",
    ]  # fmt: skip
    """Which preset: the protocols it speaks, its usual address, key and quirks; `cachegate providers` lists them."""
    base_url: str | None = None
    """Another address than the preset's."""
    api_key: SecretStr | None = None
    """The provider's key. Without it the client's own credentials are passed through."""
    protocols: list[Literal["messages", "responses", "chat"]] | None = Field(default=None, min_length=1)
    """Those to ask it in, of the ones its kind speaks: for servers too old for some."""
    self_hosted: bool = False
    """Measured, never stopped. Only for a model on this machine or tailnet that forwards to nobody."""
    zero_is_unknown: bool = False
    """A reported 0 of cached tokens means "not reported": for proxies that fill in zeros. Positive numbers count."""

    @field_validator("base_url")
    @classmethod
    def _is_url(cls, value: str | None) -> str | None:
        return None if value is None else _checked_url(value)


class SyntheticProviderConfig(Section):
    """The embedded provider with a simulated prompt cache."""

    kind: Literal["synthetic"]
    """The embedded provider."""
    minimum_tokens: int = Field(default=1_024, ge=1)
    """A shorter prefix is not cached."""
    lifetime_seconds: float = Field(default=300.0, gt=0)
    """How long a cached prefix lives after it was last read."""
    pace_seconds: float = Field(default=0.5, ge=0)
    """Pause of a `slow` model between two events."""


class OwnProviderConfig(Section):
    """A provider that Copilot's runtime asks with a key of yours, instead of GitHub."""

    kind: Literal["anthropic", "azure", "openai"]
    """Whose API it speaks; `openai` for all that imitate it."""
    base_url: str
    """Its address: with `/v1` for `openai`, without for `anthropic`."""
    api_key: SecretStr | None = None
    """Its key; none for a server on this machine."""
    wire_api: Literal["completions", "responses"] | None = None
    """Which of OpenAI's two APIs."""
    prompt_tokens_max: int | None = Field(default=None, ge=1)
    """The model's limit. Beyond it the runtime would compact; the caller is told of a full context instead."""

    @field_validator("base_url")
    @classmethod
    def _is_url(cls, value: str) -> str:
        return _checked_url(value)


class CopilotProviderConfig(Section):
    """GitHub Copilot through its own runtime; needs `pip install 'cachegate[copilot]'`."""

    kind: Literal["copilot"]
    """GitHub Copilot's runtime, a session for each conversation."""
    github_token: SecretStr | None = None
    """Of an account with Copilot. Without it the usual variables, then whoever signed in with `copilot`."""
    cli_path: str | None = None
    """The runtime's program; otherwise the `copilot` on the PATH."""
    own_provider: OwnProviderConfig | None = None
    """Another provider than GitHub, with a key of yours."""
    models: list[str] = Field(default_factory=list)
    """Names to list at `/v1/models`."""
    max_sessions: int = Field(default=16, ge=1, le=1_000)
    """Conversations alive at once; the longest unused one ends for a new one."""
    idle_seconds: float = Field(default=1_800.0, gt=0)
    """A conversation that nobody used for so long ends, and is rebuilt when it goes on."""


class ClaudeSessionsConfig(Section):
    """How live processes of Claude Code are kept."""

    mode: Literal["live", "replay"] = "live"
    """`replay` starts a process for each request."""
    warmup: Literal["auto", "always", "never"] = "auto"
    """Whether a conversation's first request is answered by a process that ends with it: `auto` unless the conversation
    has 256 KiB already."""
    max_sessions: int = Field(default=8, ge=1, le=1_000)
    """Processes alive at once, about 130 MB each; the longest unused one ends for a new one."""
    idle_seconds: float = Field(default=900.0, gt=0)
    """A process that nobody used for so long ends."""


class ClaudeCliProviderConfig(Section):
    """Claude through the `claude` program of a person's own installation."""

    kind: Literal["claude-cli"]
    """A live `claude` process for each conversation."""
    program: str | None = None
    """Path of the program; otherwise it is looked for where installers put it."""
    api_key: SecretStr | None = None
    """An Anthropic key. Without it the account is that of `oauthToken`, or of whoever signed in on this machine."""
    oauth_token: SecretStr | None = None
    """What `claude setup-token` prints; CLAUDE_CODE_OAUTH_TOKEN is the same."""
    base_url: str | None = None
    """Another address than Anthropic's."""
    models: list[str] = Field(default_factory=list)
    """Names to list at `/v1/models`."""
    claude_sessions: ClaudeSessionsConfig = ClaudeSessionsConfig()
    """How processes are kept, where this one differs from the others."""

    @field_validator("base_url")
    @classmethod
    def _is_url(cls, value: str | None) -> str | None:
        return None if value is None else _checked_url(value)


ProviderConfig = Annotated[
    HttpProviderConfig | SyntheticProviderConfig | CopilotProviderConfig | ClaudeCliProviderConfig,
    Field(discriminator="kind"),
]

PROVIDER_SECTIONS: tuple[type[Section], ...] = (
    HttpProviderConfig, SyntheticProviderConfig, CopilotProviderConfig, OwnProviderConfig, ClaudeCliProviderConfig,
    ClaudeSessionsConfig,
)  # fmt: skip


def address_problems(name: str, provider: HttpProviderConfig) -> list[str]:
    """Find an address that is missing or not allowed."""
    if provider.base_url is None and not PRESETS[provider.kind].base_url:
        return [f"providers.{name}.baseUrl: is required, because {provider.kind} has no usual address. Add it."]
    return _self_hosted(name, provider) if provider.self_hosted else []


def _self_hosted(name: str, provider: HttpProviderConfig) -> list[str]:
    if provider.base_url is None:
        return [f"providers.{name}.selfHosted: needs a baseUrl; the preset's own address is not a machine of yours"]
    try:
        pinned_addresses(URL(provider.base_url))
    except NotSelfHosted as error:
        return [f"providers.{name}.selfHosted: {error}. Use such an address, or remove selfHosted"]
    return []
