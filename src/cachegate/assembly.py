"""From a checked configuration to the running parts: the only place that knows all rooms."""

import secrets
import sys
import time
from collections.abc import Callable

from yarl import URL

from cachegate.config import Config, HttpProviderConfig, ProviderConfig, SyntheticProviderConfig
from cachegate.guard.scope import SECRET_BYTES
from cachegate.observe.record import Observer
from cachegate.providers.address import pinned_addresses
from cachegate.providers.base import Provider
from cachegate.providers.http import HttpProvider, Upstream, UpstreamLimits
from cachegate.providers.presets import PRESETS
from cachegate.providers.synthetic import SyntheticProvider, SyntheticSettings
from cachegate.road import Gateway
from cachegate.routing import Bound, Routes
from cachegate.stores.memory import MemoryStore


def assemble(config: Config, observers: tuple[Observer, ...]) -> Gateway:
    """Build the gateway. Connections are opened only when the first request needs them."""
    policy = config.cache_guard.policy()
    return Gateway(
        routes=Routes({name: _bound(name, row, config) for name, row in config.providers.items()}, config.models),
        store=MemoryStore(policy.entries_max),
        policy=policy,
        guard_enabled=config.cache_guard.enabled,
        secret=secrets.token_bytes(SECRET_BYTES),
        observers=observers,
        now_ms=steady_clock(),
    )


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


def _bound(name: str, row: ProviderConfig, config: Config) -> Bound:
    match row:
        case HttpProviderConfig():
            return Bound(name, _http(row, config), row.self_hosted)
        case SyntheticProviderConfig():
            settings = SyntheticSettings(row.minimum_tokens, row.lifetime_seconds, row.pace_seconds)
            return Bound(name, SyntheticProvider(settings))


def _http(row: HttpProviderConfig, config: Config) -> Provider:
    preset, limits = PRESETS[row.kind], config.limits
    url = URL(row.base_url or preset.base_url)
    return HttpProvider(
        Upstream(
            preset=preset,
            base_url=url,
            key=None if row.api_key is None else row.api_key.get_secret_value(),
            pinned=pinned_addresses(url) if row.self_hosted else (),
            limits=UpstreamLimits(
                connect_s=limits.connect_seconds,
                idle_s=limits.upstream_idle_seconds,
                keepalive_s=limits.keep_alive_seconds,
                body_bytes_max=limits.body_bytes_max,
            ),
        )
    )
