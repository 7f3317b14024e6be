"""The configuration: YAML with `${VAR}`, checked as a whole, every problem in one message.

`load` reads and checks; nothing here starts anything. `docs/configuration.md` explains each key; a test keeps it so.
"""

import contextlib
import copy
import difflib
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import yaml
from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from cachegate.errors import ConfigError
from cachegate.guard.policy import Policy
from cachegate.provider_configs import (
    PROVIDER_SECTIONS,
    ClaudeSessionsConfig,
    HttpProviderConfig,
    ProviderConfig,
    Section,
    SyntheticProviderConfig,
    address_problems,
)
from cachegate.providers.address import is_loopback
from cachegate.providers.presets import PRESETS
from cachegate.state_address import StateAddress, parse_state_address

DEFAULT_SOURCE = "built-in defaults"
KEY_CHARS_MIN = 16
"""A client key of fewer characters can be guessed."""
_POLICY = Policy()


class CacheGuardConfig(Section):
    """The numbers of the cache guard; the defaults are the policy as documented."""

    enabled: bool = True
    """`false` measures nothing and stops nothing."""
    large_tokens: int = _POLICY.large_tokens
    """Uncached input tokens from which on a request is a miss."""
    large_bytes: int = _POLICY.large_bytes
    """Input bytes that stand for `largeTokens` where the provider reports nothing."""
    limit: int = _POLICY.limit
    """Counted requests in a row after which the next one is stopped."""
    rebuilds: int = _POLICY.rebuilds
    """Rebuilds caused by the caller that may be excused in a row."""
    idle_seconds: float = Field(default=_POLICY.idle_ms / 1000, gt=0)
    """Silence after which a conversation starts anew."""
    entries_max: int = _POLICY.entries_max
    """Conversations remembered."""
    reuse_percent: int = _POLICY.reuse_percent
    """Share of the preceding input that a read must cover to count as reuse."""

    def policy(self) -> Policy:
        """Return the policy. Raises ValueError, naming the field, for a number that makes no sense."""
        return Policy(
            large_tokens=self.large_tokens,
            large_bytes=self.large_bytes,
            limit=self.limit,
            rebuilds=self.rebuilds,
            idle_ms=round(self.idle_seconds * 1000),
            entries_max=self.entries_max,
            reuse_percent=self.reuse_percent,
        )


class LimitsConfig(Section):
    """What a client, a provider and the gateway itself may take."""

    body_bytes_max: int = Field(default=67_108_864, ge=1_024)
    """Request body, as sent and as decoded; the big providers refuse more than 32 MiB."""
    body_seconds: float = Field(default=60.0, gt=0)
    """Time for a client to send its body, plus one second per 64 KiB."""
    in_flight_max: int = Field(default=4_000, ge=1)
    """Requests running at once; the next one gets 503."""
    send_stall_seconds: float = Field(default=60.0, gt=0)
    """A client that reads nothing for so long is given up."""
    connect_seconds: float = Field(default=10.0, gt=0)
    """Time to connect to a provider."""
    upstream_idle_seconds: float = Field(default=600.0, gt=0)
    """Silence of a provider after which a request is given up."""
    keep_alive_seconds: float = Field(default=25.0, gt=0)
    """Silence of a provider after which a streaming client gets a keep-alive event."""
    drain_seconds: float = Field(default=900.0, ge=0)
    """Time for running requests to end after Ctrl-C or SIGTERM, and in the old workers after an upgrade."""


class ClientConfig(Section):
    """Somebody who may use the gateway."""

    name: str = Field(min_length=1, max_length=64)
    """Whose key it is; part of what separates one client's budgets from another's."""
    key: SecretStr
    """Sent as `x-cachegate-key`, as a Bearer token or as `x-api-key`."""

    @field_validator("key")
    @classmethod
    def _is_long(cls, value: SecretStr) -> SecretStr:
        if len(value.get_secret_value()) < KEY_CHARS_MIN:
            raise ValueError(f"has fewer than {KEY_CHARS_MIN} characters; take a random one: openssl rand -hex 32")
        return value


class AuxiliaryConfig(Section):
    """The auxiliary classifier at `/v1/auxiliary/classify`."""

    model: str | None = Field(default=None, min_length=1)
    """Asked where a question names no model, such as `anthropic/claude-haiku-4-5`; without it, each has to name one."""


class ControlConfig(Section):
    """The control socket at `/control`, and the chats that are hosted for its clients."""

    enabled: bool = True
    """`false` serves no such path."""
    connections_max: int = Field(default=256, ge=1)
    """Clients connected at once; the next one gets 503."""
    threads_max: int = Field(default=1_024, ge=1)
    """Threads in memory. For a new one the longest unused one goes that nobody listens to; with `history` it stays on
    disk."""
    message_bytes_max: int = Field(default=16_777_216, ge=1_024)
    """One frame of a client; a larger one closes its connection."""
    tool_seconds: float = Field(default=600.0, gt=0)
    """Time for a client to run a tool, reconnecting included."""
    tool_rounds_max: int = Field(default=100, ge=1)
    """Rounds of tools in one turn."""
    history: str | None = Field(default=None, min_length=1)
    """SQLite file that keeps threads over a restart, with their conversations in plain text; none by default."""


OWN_STATES = ("local", "memory")
"""Values of `state` that are no address."""
_BUILT_IN = ("anthropic", "openai", "codex", "synthetic")


def _default_providers() -> dict[str, ProviderConfig]:
    return {
        "anthropic": HttpProviderConfig(kind="anthropic"),
        "openai": HttpProviderConfig(kind="openai"),
        "codex": HttpProviderConfig(kind="codex"),
        "synthetic": SyntheticProviderConfig(kind="synthetic"),
    }


class Config(Section):
    """The whole configuration. Every key has a default."""

    listen: str = "127.0.0.1:4283"
    """Address and port. Beyond this machine only with `clients`."""
    providers: dict[str, ProviderConfig] = Field(default_factory=_default_providers)
    """By name. When given, these replace the built-in ones."""
    models: dict[str, str | list[str]] = Field(default_factory=dict)
    """Model names or `*` patterns, to `provider` or `provider/model`; the first match holds. Of a list, the next one is
    asked when the one before could not be reached or answered 429 or 5xx before anything else."""
    cache_guard: CacheGuardConfig = CacheGuardConfig()
    """The numbers of the cache guard."""
    limits: LimitsConfig = LimitsConfig()
    """Limits of size and time."""
    claude_sessions: ClaudeSessionsConfig = ClaudeSessionsConfig()
    """How processes of Claude Code are kept, for all providers of kind `claude-cli`."""
    auxiliary: AuxiliaryConfig = AuxiliaryConfig()
    """The auxiliary classifier."""
    control: ControlConfig = ControlConfig()
    """The control socket."""
    state: str = Field(default="local", repr=False)
    """Where the guard remembers: `local` for the workers of this machine, across reloads and crashes; `memory` for each
    process by itself; `redis://…`, `rediss://…`, `valkey://…`, `valkeys://…` or `unix://…` for all on one server."""
    state_secret: SecretStr | None = None
    """Of the keys under which the shared server keeps budgets: the same for all who share it, and for nobody else.
    Without it, the first one to start leaves a random one on the server."""
    state_down: Literal["local", "block", "allow"] = "local"
    """While the shared server fails: `local` goes on with what each process knows; `block` refuses large requests
    (503), `allow` guards nothing."""
    clients: list[ClientConfig] = Field(default_factory=list)
    """Those who may use the gateway; without any, everybody on this machine may."""
    allowed_hosts: list[str] = Field(default_factory=list)
    """Further `Host` names to answer to, such as the name of a reverse proxy."""
    allowed_origins: list[str] = Field(default_factory=list)
    """Web origins whose pages may call the gateway; none by default."""

    @field_validator("listen")
    @classmethod
    def _is_address(cls, value: str) -> str:
        parse_listen(value)
        return value

    @field_validator("state")
    @classmethod
    def _is_place(cls, value: str) -> str:
        if value not in OWN_STATES:
            parse_state_address(value)
        return value

    @field_validator("state_secret")
    @classmethod
    def _is_secret(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value.get_secret_value()) < KEY_CHARS_MIN:
            raise ValueError(f"has fewer than {KEY_CHARS_MIN} characters; take a random one: openssl rand -hex 32")
        return value

    @property
    def state_address(self) -> StateAddress | None:
        """The server that `state` names; None when it names none."""
        return None if self.state in OWN_STATES else parse_state_address(self.state)

    @property
    def routes(self) -> dict[str, tuple[str, ...]]:
        """`models`, each with its targets in order."""
        return {rule: (to,) if isinstance(to, str) else tuple(to) for rule, to in self.models.items()}

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of `listen`."""
        return parse_listen(self.listen)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A checked configuration and what should be said about it."""

    config: Config
    source: str
    warnings: tuple[str, ...]


_HOST = re.compile(r"[A-Za-z0-9._-]+|\[[0-9a-fA-F:.]+\]")


def parse_listen(text: str) -> tuple[str, int]:
    """Return host and port. Raises ValueError for anything but `host:port`."""
    host, _, port = text.rpartition(":")
    if not _HOST.fullmatch(host) or not port.isdigit() or int(port) > 65_535:  # noqa: PLR2004 -- the highest port
        raise ValueError("must be host:port, such as 127.0.0.1:4283")
    return host.strip("[]"), int(port)


def find(explicit: Path | None, environ: Mapping[str, str]) -> Path | None:
    """Return the configuration file: the one named, `$CACHEGATE_CONFIG`, or the user's own if there is one."""
    if explicit is not None:
        return explicit
    if named := environ.get("CACHEGATE_CONFIG"):
        return Path(named)
    home = environ.get("XDG_CONFIG_HOME") or str(Path(environ.get("HOME", "~")).expanduser() / ".config")
    usual = Path(home) / "cachegate" / "config.yaml"
    return usual if usual.is_file() else None


def load(
    path: Path | None, environ: Mapping[str, str] = os.environ, given: Mapping[str, object] | None = None
) -> Loaded:
    """Read and check a configuration, or the defaults. Raises ConfigError with every problem found.

    `given` holds top-level keys from the command line; they go before the file's.
    """
    if path is None:
        return parse("", DEFAULT_SOURCE, environ, given=given)
    source = str(path)
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(source, (f"cannot be read: {error}. Name a readable YAML file with --config.",)) from None
    return parse(text, source, environ, _exposure(path, text), given)


def parse(
    text: str,
    source: str,
    environ: Mapping[str, str],
    warnings: tuple[str, ...] = (),
    given: Mapping[str, object] | None = None,
) -> Loaded:
    """Check the text of a configuration. Raises ConfigError with every problem found."""
    try:
        tree = yaml.load(text, _StrictLoader) or {}  # noqa: S506 -- a SafeLoader that also refuses repeated keys
    except yaml.YAMLError as error:
        raise ConfigError(source, (f"is no valid YAML: {' '.join(str(error).split())}",)) from None
    if not isinstance(tree, dict):
        raise ConfigError(source, ("must be a mapping of keys, such as `listen: 127.0.0.1:4283`",))
    problems: list[str] = []
    expanded = _expanded({**_usual(environ), **tree, **(given or {})}, environ, "", problems)
    config: Config | None = None
    try:
        config = Config.model_validate(expanded)
    except ValidationError as error:
        details = error.errors()
        unresolved = {problem.partition(":")[0] for problem in problems}
        words = (_words(detail) for detail in details)
        problems.extend(problem for problem in words if problem.partition(":")[0] not in unresolved)
        sound = _without(expanded, details)
        with contextlib.suppress(ValidationError):
            problems.extend(_inconsistencies(Config.model_validate(sound), expanded))
    else:
        problems.extend(_inconsistencies(config, expanded))
    if problems or config is None:
        raise ConfigError(source, tuple(dict.fromkeys(problems)))
    return Loaded(config, source, warnings)


def _usual(environ: Mapping[str, str]) -> dict[str, object]:
    """Return the providers that need no configuration: the built-in ones, and those whose usual key is at hand."""
    usable = {kind: preset for kind, preset in PRESETS.items() if preset.base_url}
    found = {kind: {"kind": kind} for kind, preset in usable.items() if environ.get(preset.key_variable)}
    return {"providers": {**{kind: {"kind": kind} for kind in _BUILT_IN}, **found}}


class _StrictLoader(yaml.SafeLoader):
    """YAML takes the last of two equal keys in silence; a configuration must not."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:  # noqa: FBT001, FBT002 -- as inherited
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key!r} stands twice", key_node.start_mark)
            seen.add(key)
        return dict(super().construct_mapping(node, deep=deep))


_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def _expanded(value: object, environ: Mapping[str, str], where: str, problems: list[str]) -> object:
    """Put the environment's values into every `${VAR}` and `${VAR:-default}`."""
    if isinstance(value, dict):
        return {key: _expanded(part, environ, f"{where}.{key}".strip("."), problems) for key, part in value.items()}
    if isinstance(value, list):
        return [_expanded(part, environ, f"{where}[{index}]", problems) for index, part in enumerate(value)]
    if not isinstance(value, str):
        return value

    def put(match: re.Match[str]) -> str:
        name, default = match.groups()
        found = environ.get(name, default)
        if found is None:
            remedy = f"Set it, or write ${{{name}:-default}}"
            problems.append(f"{where}: the environment variable {name} is not set. {remedy}")
            return match.group(0)
        return found

    return _VARIABLE.sub(put, value)


_KINDS = ", ".join((*PRESETS, "claude-cli", "copilot", "synthetic"))


def _words(detail: ErrorDetails) -> str:
    """Say one problem of a value: the key, what is wrong, and the remedy."""
    loc = [str(part) for part in detail["loc"]]
    if loc[:1] == ["providers"]:
        del loc[2:3]  # the kind, which pydantic puts between the provider's name and its key
    where = ".".join(loc)
    match detail["type"]:
        case "extra_forbidden":
            near = difflib.get_close_matches(loc[-1], _known_keys(), n=1)
            hint = f"Did you mean {near[0]}?" if near else "Remove it; docs/configuration.md lists the keys."
            return f"{where}: there is no such key. {hint}"
        case "union_tag_invalid" | "union_tag_not_found":
            return f"{where}.kind: must be one of {_KINDS}"
        case "missing":
            return f"{where}: is required. Add it."
    words = detail["msg"].removeprefix("Value error, ")
    hidden = isinstance(detail["input"], dict | list) or any(word in loc[-1].lower() for word in ("key", "state"))
    shown = "" if hidden else f" (is {detail['input']!r})"
    return f"{where}: {words[:1].lower()}{words[1:]}{shown}"


def _known_keys() -> list[str]:
    own: tuple[type[Section], ...] = (
        Config,
        CacheGuardConfig,
        LimitsConfig,
        AuxiliaryConfig,
        ControlConfig,
        ClientConfig,
    )
    sections = (*own, *PROVIDER_SECTIONS)
    return sorted({to_camel(name) for section in sections for name in section.model_fields})


def _without(tree: object, details: list[ErrorDetails]) -> object:
    """Return the tree without the values that are wrong by themselves, so that the rest can be judged too."""
    sound = copy.deepcopy(tree)
    for detail in sorted(details, key=lambda detail: detail["loc"][:1] == ("clients",)):
        loc = list(detail["loc"])
        if loc[:1] == ["providers"]:
            loc = loc[:2]
        if loc[:1] == ["clients"]:
            loc = loc[:1]
        node = sound
        for part in loc[:-1]:
            node = node.get(part) if isinstance(node, dict) else None
        if isinstance(node, dict):
            node.pop(loc[-1], None)
    return sound


def _inconsistencies(config: Config, tree: object) -> list[str]:
    """Find what is wrong only in combination. `tree` is what was written, unsound parts included."""
    problems: list[str] = []
    written = tree if isinstance(tree, dict) else {}
    declared = {*config.providers, *(written.get("providers") or ())}
    host, _ = config.address
    if not is_loopback(host) and not config.clients and not written.get("clients"):
        problems.append(
            f"listen: {config.listen} is reachable from other machines, but `clients` is empty, so anybody there could "
            "spend your quota. Add a client with a key, or listen on 127.0.0.1"
        )
    for name, provider in config.providers.items():
        if "/" in name:
            problems.append(f"providers.{name}: rename it without a slash, which separates provider and model")
        if isinstance(provider, HttpProviderConfig):
            problems.extend(address_problems(name, provider))
    problems.extend(_rules(config, declared))
    names = [client.name for client in config.clients]
    keys = [client.key.get_secret_value() for client in config.clients]
    if len(set(names)) < len(names) or len(set(keys)) < len(keys):
        problems.append("clients: two clients share a name or a key. Give each its own")
    try:
        config.cache_guard.policy()
    except ValueError as error:
        name, _, rest = str(error).partition(" ")
        problems.append(f"cacheGuard.{to_camel(name)}: {rest}")
    return problems


def _rules(config: Config, declared: set[str]) -> list[str]:
    """Find rules that lead nowhere."""
    problems: list[str] = []
    for rule, targets in config.routes.items():
        if not targets:
            problems.append(f"models.{rule}: names no provider. Give one, or remove the rule")
        for name in (target.partition("/")[0] for target in targets):
            if name not in declared:
                known = ", ".join(sorted(declared))
                problems.append(f"models.{rule}: there is no provider {name!r}. Configured are: {known}")
    return problems


_WRITTEN_KEY = re.compile(
    r"(?:^|[\s{,])(?:(?:apiKey|key|stateSecret)\s*:\s*(?![\"']?\$\{)\S|"
    r"state\s*:\s*[\"']?[a-z+]+://[^\s@]*:(?!\$\{)[^\s@]*@)",
    re.MULTILINE,
)
"""A key or a password that stands in the file itself and does not come from the environment."""


def _exposure(path: Path, text: str) -> tuple[str, ...]:
    """Warn when a file with keys in it can be read by others."""
    secrets = _WRITTEN_KEY.search(text)
    if os.name == "posix" and secrets and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        return (f"{path} holds keys and can be read by others. Run: chmod 600 {path}",)
    return ()
