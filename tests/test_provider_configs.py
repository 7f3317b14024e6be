"""The sections of providers: each kind with its defaults, and what no section takes."""

from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from cachegate.config import Config
from cachegate.provider_configs import (
    PROVIDER_SECTIONS,
    ClaudeCliProviderConfig,
    CopilotProviderConfig,
    HttpProviderConfig,
    ProviderConfig,
    Section,
    SyntheticProviderConfig,
    address_problems,
)
from cachegate.providers.presets import PRESETS

READ: TypeAdapter[ProviderConfig] = TypeAdapter(ProviderConfig)
OWN = {"kind": "openai", "baseUrl": "http://127.0.0.1:1/v1"}


def read(kind: str, **written: Any) -> ProviderConfig:
    return READ.validate_python({"kind": kind, **written})


@pytest.mark.parametrize(
    ("kind", "section"),
    [
        *((kind, HttpProviderConfig) for kind in PRESETS),
        ("synthetic", SyntheticProviderConfig),
        ("copilot", CopilotProviderConfig),
        ("claude-cli", ClaudeCliProviderConfig),
    ],
)
def test_a_kind_alone_is_enough(kind: str, section: type[Section]) -> None:
    assert type(read(kind)) is section


def test_keys_are_written_in_camel_case() -> None:
    row = read("claude-cli", claudeSessions={"mode": "replay", "maxSessions": 3, "idleSeconds": 1.5}, oauthToken="t")
    assert isinstance(row, ClaudeCliProviderConfig)
    sessions = row.claude_sessions
    assert (sessions.mode, sessions.warmup, sessions.max_sessions, sessions.idle_seconds) == ("replay", "auto", 3, 1.5)
    with pytest.raises(ValidationError, match="Extra inputs"):
        read("claude-cli", claude_sessions={})


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        ("claude-cli", {"claudeSessions": {"mode": "dead"}}),
        ("claude-cli", {"claudeSessions": {"warmup": "sometimes"}}),
        ("claude-cli", {"claudeSessions": {"maxSessions": 0}}),
        ("claude-cli", {"claudeSessions": {"idleSeconds": 0}}),
        ("claude-cli", {"claudeSessions": {"sessions": 1}}),
        ("copilot", {"maxSessions": 1_001}),
        ("copilot", {"idleSeconds": 0}),
        ("copilot", {"ownProvider": {"kind": "openai"}}),
        ("copilot", {"ownProvider": {**OWN, "kind": "mistral"}}),
        ("copilot", {"ownProvider": {**OWN, "promptTokensMax": 0}}),
        ("copilot", {"ownProvider": {**OWN, "wireApi": "messages"}}),
        ("openai", {"protocols": []}),
        ("openai", {"protocols": ["gopher"]}),
        ("synthetic", {"minimumTokens": 0}),
        ("synthetic", {"lifetimeSeconds": 0}),
        ("synthetic", {"paceSeconds": -1}),
        ("synthetic", {"baseUrl": "http://127.0.0.1"}),
    ],
)
def test_what_makes_no_sense_is_refused(kind: str, written: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        read(kind, **written)


@pytest.mark.parametrize(
    "url", ["ftp://x", "x", "http://", "http://user@x", "http://user:word@x", "http://x?a=b", "http://x#a"]
)
@pytest.mark.parametrize("kind", ["openai", "claude-cli", "copilot"])
def test_an_address_is_one_of_http_and_nothing_more(kind: str, url: str) -> None:
    with pytest.raises(ValidationError, match="must look like https://"):
        read(kind, **_addressed(kind, url))
    read(kind, **_addressed(kind, "https://host:8443/path"))


def _addressed(kind: str, url: str) -> dict[str, Any]:
    return {"ownProvider": {**OWN, "baseUrl": url}} if kind == "copilot" else {"baseUrl": url}


@pytest.mark.parametrize(
    ("kind", "written", "expected"),
    [
        ("openai", {}, ""),
        ("vllm", {"baseUrl": "http://127.0.0.1:1", "selfHosted": True}, ""),
        ("vllm", {"baseUrl": "http://10.0.0.1"}, ""),
        ("openai-compatible", {}, "providers.mine.baseUrl: is required, because openai-compatible has no usual"),
        ("openai", {"selfHosted": True}, "providers.mine.selfHosted: needs a baseUrl"),
        ("openai", {"selfHosted": True, "baseUrl": "http://10.0.0.1"}, "providers.mine.selfHosted: 10.0.0.1 is"),
    ],
)
def test_an_address_that_is_missing_or_not_allowed_is_a_problem(
    kind: str, written: dict[str, Any], expected: str
) -> None:
    row = read(kind, **written)
    assert isinstance(row, HttpProviderConfig)
    found = address_problems("mine", row)
    assert len(found) == bool(expected)
    assert "".join(found).startswith(expected)


def test_every_section_can_be_reached_from_the_whole_configuration() -> None:
    """Of those in the list, the keys are known when one is misspelt."""
    described = Config.model_json_schema(by_alias=True)["$defs"]
    assert {section.__name__ for section in PROVIDER_SECTIONS} == {
        name for name in described if "Provider" in name or name == "ClaudeSessionsConfig"
    }


@pytest.mark.parametrize("section", PROVIDER_SECTIONS)
def test_every_key_says_what_it_means(section: type[BaseModel]) -> None:
    assert [name for name, field in section.model_fields.items() if not field.description] == []


def test_a_secret_is_not_shown() -> None:
    rows = (
        read("openai", apiKey="s3cret"),
        read("copilot", githubToken="s3cret", ownProvider={**OWN, "apiKey": "s3cret"}),
        read("claude-cli", apiKey="s3cret", oauthToken="s3cret"),
    )
    assert "s3cret" not in repr(rows)
