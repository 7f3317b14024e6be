"""From a checked configuration to the running parts: the only place that knows all rooms."""

import os
import secrets
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

from blake3 import blake3
from yarl import URL

from cachegate.config import Config
from cachegate.errors import ConfigError
from cachegate.guard.policy import Policy
from cachegate.guard.scope import SECRET_BYTES
from cachegate.observe.diagnostics import RECORDS_MAX, Diagnostics
from cachegate.observe.log import LOGGER
from cachegate.observe.record import Observer
from cachegate.provider_configs import (
    ClaudeCliProviderConfig,
    CopilotProviderConfig,
    HttpProviderConfig,
    ProviderConfig,
    SyntheticProviderConfig,
)
from cachegate.providers.address import pinned_addresses
from cachegate.providers.base import Provider
from cachegate.providers.claude_cli.launch import Account
from cachegate.providers.claude_cli.provider import ClaudeCliProvider, Mode, SessionSettings, Warmup
from cachegate.providers.http import HttpProvider, Upstream, UpstreamLimits
from cachegate.providers.passage import Terms
from cachegate.providers.presets import PRESETS, Preset
from cachegate.providers.session_answer import Patience
from cachegate.providers.synthetic import SyntheticProvider, SyntheticSettings
from cachegate.road import Gateway
from cachegate.routing import Bound, Routes
from cachegate.runtime_directory import shared_secret
from cachegate.stores.base import Store, StoreFailed
from cachegate.stores.decisions import Decisions
from cachegate.stores.fallback import Down, FallbackStore, Pauses
from cachegate.stores.local import LocalStore
from cachegate.stores.memory import MemoryStore
from cachegate.wire.facts import Protocol


def assemble(
    config: Config,
    observers: tuple[Observer, ...],
    environ: Mapping[str, str] = os.environ,
    runtime: Path | None = None,
) -> Gateway:
    """Build the gateway. Connections are opened when the first request needs them, but for where the secret lies.

    `runtime` is the directory that this process shares with the other workers of its gateway; a process that is a
    gateway by itself has none, and keeps its state in memory.
    Raises ConfigError when an extra is missing, or the secret cannot be had.
    """
    policy, now_ms = config.cache_guard.policy(), steady_clock()
    providers = {name: _bound(name, row, config, environ) for name, row in config.providers.items()}
    return Gateway(
        routes=Routes(providers, config.routes),
        store=_store(config, policy, now_ms, runtime),
        policy=policy,
        guard_enabled=config.cache_guard.enabled,
        secret=_secret(config, runtime),
        observers=observers,
        now_ms=now_ms,
    )


def diagnostics_in(runtime: Path | None) -> Diagnostics:
    """Return what keeps the recent decisions: of all workers that share the directory."""
    return Diagnostics(shelf=None if runtime is None else Decisions(runtime, RECORDS_MAX))


async def dismantle(gateway: Gateway) -> None:
    """Release what `assemble` and the requests after it opened."""
    for bound in gateway.routes.providers.values():
        await bound.provider.close()
    await gateway.store.close()


def steady_clock() -> Callable[[], int]:
    """Return a clock in milliseconds that no change of the wall clock moves and that runs on while the system sleeps.

    Provider caches age in real time, so a laptop that slept must not look as if no time had passed (R13).
    """
    if sys.platform == "linux":
        return lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
    if sys.platform == "darwin":
        return lambda: time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) // 1_000_000
    return lambda: time.monotonic_ns() // 1_000_000


LOCAL_PAUSES = Pauses(failures_max=1, pause_ms=1_000, pause_ms_max=4_000)
"""A file that fails is asked again soon: that costs microseconds, and a disk that was full has room again."""
SHARED_PAUSES = Pauses(failures_max=3, pause_ms=1_000, pause_ms_max=30_000)
"""A server that fails is left alone after three requests waited for it, for one second and then longer."""


def _store(config: Config, policy: Policy, now_ms: Callable[[], int], runtime: Path | None) -> Store:
    if (address := config.state_address) is not None:
        shared = _redis().shared_store(address, policy, now_ms)
        return FallbackStore(shared, policy, now_ms, SHARED_PAUSES, Down(config.state_down))
    if config.state == "memory" or runtime is None:
        return MemoryStore(policy.entries_max)
    return FallbackStore(LocalStore(runtime, policy, now_ms), policy, now_ms, LOCAL_PAUSES)


def _secret(config: Config, runtime: Path | None) -> bytes:
    """Return the secret of the digests: what is shared can only be compared under the same one."""
    if config.state_secret is not None:
        return blake3(config.state_secret.get_secret_value().encode()).digest(length=SECRET_BYTES)
    if (address := config.state_address) is not None:
        try:
            return bytes(_redis().agreed_secret(address, secrets.token_bytes(SECRET_BYTES)))
        except StoreFailed as error:
            words = f"state: {address} does not answer, and it keeps the secret that all replicas share: {error}. "
            remedy = "Start it first, or set `stateSecret`, so that the gateway starts without it"
            raise ConfigError("the configuration", (words + remedy,)) from None
    if runtime is not None:
        try:
            return shared_secret(runtime)
        except OSError as error:
            LOGGER.warning("The workers' secret cannot be shared, so neither can their state: %s", error)
    return secrets.token_bytes(SECRET_BYTES)


def _redis() -> ModuleType:
    try:
        import cachegate.stores.redis as store  # noqa: PLC0415 -- an extra
    except ImportError:
        words = "state: the client for Redis is not installed. Run: pip install 'cachegate[redis]'"
        raise ConfigError("the configuration", (words,)) from None
    return store


def _bound(name: str, row: ProviderConfig, config: Config, environ: Mapping[str, str]) -> Bound:
    match row:
        case HttpProviderConfig():
            return Bound(name, _http(row, config, environ), row.self_hosted)
        case SyntheticProviderConfig():
            settings = SyntheticSettings(row.minimum_tokens, row.lifetime_seconds, row.pace_seconds)
            return Bound(name, SyntheticProvider(settings))
        case CopilotProviderConfig():
            return Bound(name, _copilot(name, row, config, environ))
        case ClaudeCliProviderConfig():
            return Bound(name, _claude_cli(row, config, environ))


PASSING_THROUGH = frozenset({"anthropic", "openai", "codex"})
"""Kinds whose clients bring their own credentials, also when a key lies in the environment."""


def _key(row: HttpProviderConfig, preset: Preset, environ: Mapping[str, str]) -> str | None:
    """Return the provider's key: as configured, else as usual for its kind; None passes the client's through."""
    if row.api_key is not None:
        return row.api_key.get_secret_value()
    return None if preset.kind in PASSING_THROUGH else environ.get(preset.key_variable) or None


def _claude_cli(row: ClaudeCliProviderConfig, config: Config, environ: Mapping[str, str]) -> Provider:
    key, token = row.api_key, row.oauth_token
    account = Account(
        api_key=None if key is None else key.get_secret_value(),
        oauth_token=environ.get("CLAUDE_CODE_OAUTH_TOKEN") if token is None else token.get_secret_value(),
        base_url=row.base_url,
        use_login=True,
    )
    return ClaudeCliProvider(account, row.program, _claude_sessions(row, config))


def _claude_sessions(row: ClaudeCliProviderConfig, config: Config) -> SessionSettings:
    """Return how a provider's processes are kept: what it says itself, else what is said for all of them."""
    own = row.claude_sessions
    sessions = config.claude_sessions.model_copy(update={name: getattr(own, name) for name in own.model_fields_set})
    return SessionSettings(
        mode=Mode(sessions.mode),
        warmup=Warmup(sessions.warmup),
        sessions_max=sessions.max_sessions,
        idle_s=sessions.idle_seconds,
        patience=_patience(config),
        models=tuple(row.models),
    )


def _patience(config: Config) -> Patience:
    return Patience(config.limits.upstream_idle_seconds, config.limits.keep_alive_seconds)


COPILOT_TOKENS = ("COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN")
"""Where Copilot's own program looks for a token, in this order."""


def _copilot(name: str, row: CopilotProviderConfig, config: Config, environ: Mapping[str, str]) -> Provider:
    try:
        from cachegate.providers.copilot.provider import CopilotProvider, CopilotSettings  # noqa: PLC0415 -- an extra
        from cachegate.providers.copilot.runtime import OwnProvider, RuntimeSettings, SdkRuntime  # noqa: PLC0415
    except ImportError:
        words = f"providers.{name}: GitHub's SDK is not installed. Run: pip install 'cachegate[copilot]'"
        raise ConfigError("the configuration", (words,)) from None
    own = row.own_provider
    provider = None
    if own is not None:
        key = None if own.api_key is None else own.api_key.get_secret_value()
        provider = OwnProvider(own.kind, own.base_url, key, own.wire_api, own.prompt_tokens_max)
    settings = RuntimeSettings(row.cli_path, _github_token(row, environ), provider, environ)
    return CopilotProvider(
        SdkRuntime(settings),
        CopilotSettings(
            sessions_max=row.max_sessions,
            idle_s=row.idle_seconds,
            patience=_patience(config),
            models=tuple(row.models),
        ),
    )


def _github_token(row: CopilotProviderConfig, environ: Mapping[str, str]) -> str | None:
    """Return the token of the account; with a provider of one's own GitHub is not asked, and gets none."""
    if row.own_provider is not None:
        return None
    if row.github_token is not None:
        return row.github_token.get_secret_value()
    return next((environ[variable] for variable in COPILOT_TOKENS if environ.get(variable)), None)


def _http(row: HttpProviderConfig, config: Config, environ: Mapping[str, str]) -> Provider:
    preset, limits = PRESETS[row.kind], config.limits
    url = URL(row.base_url or preset.base_url)
    return HttpProvider(
        Upstream(
            terms=Terms(
                preset=preset,
                protocols=frozenset(Protocol(name) for name in row.protocols or [name.value for name in Protocol]),
                key=_key(row, preset, environ),
                translation_key=environ.get(preset.key_variable) or None,
                zero_is_unknown=row.zero_is_unknown,
            ),
            base_url=url,
            pinned=pinned_addresses(url) if row.self_hosted else (),
            limits=UpstreamLimits(
                connect_s=limits.connect_seconds,
                idle_s=limits.upstream_idle_seconds,
                keepalive_s=limits.keep_alive_seconds,
                body_bytes_max=limits.body_bytes_max,
            ),
        )
    )
