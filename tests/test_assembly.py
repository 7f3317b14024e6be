"""From a configuration to running parts."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from cachegate.assembly import _claude_sessions, _github_token, assemble, diagnostics_in, dismantle, steady_clock
from cachegate.config import Config
from cachegate.errors import ConfigError
from cachegate.provider_configs import ClaudeCliProviderConfig, CopilotProviderConfig
from cachegate.providers.claude_cli.provider import ClaudeCliProvider
from cachegate.providers.copilot.provider import CopilotProvider
from cachegate.providers.http import HttpProvider
from cachegate.stores.base import Condition
from cachegate.stores.runtime_database import DATABASE


async def test_the_workers_of_a_directory_share_their_state_and_their_digests(tmp_path: Path) -> None:
    one, other = (assemble(Config(), (), runtime=tmp_path) for _ in range(2))
    assert one.secret == other.secret
    assert one.store.condition() == Condition("local", degraded=False, failures=0)
    await one.store.apply("a", lambda entry: (replace(entry, count=2), None))
    assert await other.store.apply("a", lambda entry: (entry, entry.count)) == 2
    await dismantle(one)
    await dismantle(other)
    shown = [diagnostics_in(tmp_path) for _ in range(2)]
    assert [diagnostics.recent() for diagnostics in shown] == [[], []]
    for diagnostics in shown:
        diagnostics.close()


@pytest.mark.parametrize(("state", "shared"), [("local", False), ("memory", True)])
async def test_who_shares_no_directory_or_wants_to_keeps_the_state_in_memory(
    tmp_path: Path, state: str, shared: bool
) -> None:
    gateway = assemble(Config.model_validate({"state": state}), (), runtime=tmp_path if shared else None)
    assert gateway.store.condition().kind == "memory"
    await dismantle(gateway)
    assert not (tmp_path / DATABASE).exists()


async def test_a_directory_that_cannot_be_used_stops_no_gateway(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = assemble(Config(), (), runtime=tmp_path / "gone")
    await gateway.store.open()
    assert await gateway.store.apply("a", lambda entry: (entry, entry.count)) == 0
    assert gateway.store.condition().degraded
    assert "The workers' secret cannot be shared" in caplog.text
    await dismantle(gateway)


async def test_the_defaults_make_a_whole_gateway_and_open_nothing() -> None:
    gateway = assemble(Config(), ())
    assert set(gateway.routes.providers) == {"anthropic", "openai", "codex", "synthetic"}
    assert not any(bound.self_hosted for bound in gateway.routes.providers.values()), "never inferred (R11)"
    assert gateway.guard_enabled
    assert assemble(Config(), ()).secret != gateway.secret
    assert gateway.secret.hex() not in repr(gateway)
    await dismantle(gateway)


def test_the_clock_is_steady_and_counts_milliseconds() -> None:
    clock = steady_clock()
    first = clock()
    assert isinstance(first, int)
    assert 0 <= clock() - first < 60_000
    assert abs(first / 1000 - time.monotonic()) < 86_400 * 30 or first > 0


def test_the_switch_for_filled_in_zeros_reaches_the_provider() -> None:
    for written, switch in (({}, False), ({"zeroIsUnknown": True}, True)):
        config = Config.model_validate({"providers": {"a": {"kind": "anthropic", **written}}})
        provider = assemble(config, ()).routes.providers["a"].provider
        assert isinstance(provider, HttpProvider)
        assert provider._upstream.terms.zero_is_unknown is switch


def test_a_key_is_never_shown() -> None:
    row = {"kind": "anthropic", "apiKey": "sk-very-secret"}
    config = Config.model_validate({"providers": {"a": row}, "clients": [{"name": "me", "key": "k" * 20 + "secret"}]})
    gateway = assemble(config, ())
    assert "very-secret" not in repr(gateway.routes) + repr(config)
    assert "k" * 20 not in repr(gateway.routes) + repr(config)


OWN = {"kind": "anthropic", "baseUrl": "http://127.0.0.1:1", "apiKey": "sk-own"}


@pytest.mark.parametrize(
    ("row", "environ", "token"),
    [
        ({}, {}, None),
        ({}, {"GITHUB_TOKEN": "third", "GH_TOKEN": "second"}, "second"),
        ({}, {"COPILOT_GITHUB_TOKEN": "first", "GH_TOKEN": ""}, "first"),
        ({"githubToken": "written"}, {"GH_TOKEN": "second"}, "written"),
        ({"ownProvider": OWN}, {"GH_TOKEN": "second"}, None),
        ({"ownProvider": OWN, "githubToken": "written"}, {}, None),
    ],
)
def test_copilots_account_is_the_nearest_and_none_beside_a_provider_of_ones_own(
    row: dict[str, object], environ: dict[str, str], token: str | None
) -> None:
    assert _github_token(CopilotProviderConfig.model_validate({"kind": "copilot", **row}), environ) == token


@pytest.mark.parametrize(
    ("for_all", "own", "kept"),
    [
        ({}, {}, ("live", "auto", 8, 900.0)),
        ({"mode": "replay", "maxSessions": 3}, {}, ("replay", "auto", 3, 900.0)),
        ({"warmup": "never", "maxSessions": 3}, {"maxSessions": 2, "idleSeconds": 5}, ("live", "never", 2, 5.0)),
        ({"mode": "replay"}, {"mode": "live"}, ("live", "auto", 8, 900.0)),
    ],
)
def test_what_is_said_of_claude_sessions_holds_for_all_but_who_says_otherwise(
    for_all: dict[str, object], own: dict[str, object], kept: tuple[object, ...]
) -> None:
    row = ClaudeCliProviderConfig.model_validate({"kind": "claude-cli", "claudeSessions": own, "models": ["m"]})
    settings = _claude_sessions(row, Config.model_validate({"claudeSessions": for_all}))
    assert (settings.mode, settings.warmup, settings.sessions_max, settings.idle_s) == kept
    assert settings.models == ("m",)


async def test_live_sessions_start_nothing_before_they_are_asked() -> None:
    rows = {"c": {"kind": "claude-cli", "program": "/nope"}, "p": {"kind": "copilot", "ownProvider": OWN}}
    gateway = assemble(Config.model_validate({"providers": rows}), ())
    assert [type(bound.provider) for bound in gateway.routes.providers.values()] == [ClaudeCliProvider, CopilotProvider]
    assert "sk-own" not in repr(gateway.routes)
    await dismantle(gateway)


async def test_a_shared_state_opens_nothing_where_the_secret_is_given() -> None:
    written = {"state": "redis://127.0.0.1:9", "stateSecret": "0123456789abcdef"}
    first, second = (assemble(Config.model_validate(written), ()) for _ in range(2))
    assert first.secret == second.secret != assemble(Config(), ()).secret
    assert first.store.condition().kind == "redis"
    for gateway in (first, second):
        await dismantle(gateway)


def test_where_the_secret_cannot_be_had_the_start_says_what_helps() -> None:
    config = Config.model_validate({"state": "redis://:hunter2@127.0.0.1:9"})
    with pytest.raises(ConfigError, match="stateSecret") as caught:
        assemble(config, ())
    assert "hunter2" not in str(caught.value)
