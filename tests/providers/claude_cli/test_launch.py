import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from cachegate.errors import UpstreamError
from cachegate.providers.claude_cli.home import SessionHome
from cachegate.providers.claude_cli.launch import Account, Launch, Manner, Resume, launch

WITH_KEY = Account(api_key="the-key", base_url="http://127.0.0.1:9/x")
WITH_TOKEN = Account(oauth_token="the-token")
SESSION = "0f0e0d0c-0b0a-4908-8706-050403020100"


@pytest.fixture
def home(tmp_path: Path) -> SessionHome:
    home = SessionHome.create(tmp_path)
    home.write_system("what the system is told")
    return home


def launched(home: SessionHome, account: Account = WITH_KEY, resume: Resume | None = None, **more: Any) -> Launch:
    return launch("claude", account, home, "claude-opus-5", resume, **more)


def value_of(arguments: tuple[str, ...], flag: str) -> str:
    assert arguments.count(flag) == 1
    return arguments[arguments.index(flag) + 1]


def names(environ: Iterable[str], part: str) -> set[str]:
    return {name for name in environ if part in name}


def test_the_session_speaks_lines_steps_once_and_has_the_callers_tools_only(home: SessionHome) -> None:
    arguments = launched(home).arguments
    for flag, value in (
        ("--output-format", "stream-json"),
        ("--input-format", "stream-json"),
        ("--max-turns", "1"),
        ("--model", "claude-opus-5"),
        ("--tools", ""),
        ("--allowedTools", "mcp__gw"),
        ("--system-prompt-snapshot", "off"),
    ):
        assert value_of(arguments, flag) == value
    assert {"--verbose", "--include-partial-messages", "--strict-mcp-config", "--setting-sources="} <= {*arguments}
    assert json.loads(value_of(arguments, "--mcp-config")) == {"mcpServers": {"gw": {"type": "sdk", "name": "gw"}}}


def test_the_system_prompt_comes_from_a_file(home: SessionHome) -> None:
    started = launched(home)
    assert Path(value_of(started.arguments, "--system-prompt-file")).read_text() == "what the system is told"
    assert "told" not in " ".join(started.arguments)


def test_a_key_travels_in_the_environment_and_is_never_printed(home: SessionHome) -> None:
    for account, name, key in (
        (WITH_KEY, "ANTHROPIC_API_KEY", "the-key"),
        (WITH_TOKEN, "CLAUDE_CODE_OAUTH_TOKEN", "the-token"),
    ):
        started = launched(home, account)
        assert started.environ[name] == key
        assert key not in " ".join(started.arguments)
        assert key not in repr(started)
        assert key not in repr(account)


def test_a_key_makes_the_prompt_bare_and_a_subscription_cannot(home: SessionHome) -> None:
    with_key, with_token = launched(home), launched(home, WITH_TOKEN)
    assert "--bare" in with_key.arguments
    assert "--bare" not in with_token.arguments
    assert with_key.environ["CLAUDE_CODE_ATTRIBUTION_HEADER"] == "0"
    assert not names(with_token.environ, "ATTRIBUTION_HEADER")
    assert not names(with_key.environ, "OAUTH")
    assert not names(with_token.environ, "API_KEY")


def test_the_folders_are_the_sessions_own(home: SessionHome) -> None:
    started = launched(home)
    assert started.folder == home.working_path
    assert {name: Path(started.environ[name]) for name in ("HOME", "CLAUDE_CONFIG_DIR", "TMPDIR")} == {
        "HOME": home.person,
        "CLAUDE_CONFIG_DIR": home.config,
        "TMPDIR": home.temporary,
    }
    assert started.environ["CLAUDE_CODE_TMPDIR"] == started.environ["TMPDIR"]


def test_nothing_asks_the_model_on_its_own_account(home: SessionHome) -> None:
    environ = launched(home).environ
    for name in (
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_AUTOUPDATER", "DISABLE_TELEMETRY",
        "DISABLE_ERROR_REPORTING", "CLAUDE_CODE_DISABLE_TERMINAL_TITLE", "CLAUDE_CODE_DISABLE_ATTACHMENTS",
        "CLAUDE_CODE_DISABLE_CLAUDE_MDS", "CLAUDE_CODE_DISABLE_AUTO_MEMORY", "CLAUDE_AGENT_SDK_MCP_NO_PREFIX",
        "CLAUDE_AGENT_SDK_DISABLE_BUILTIN_AGENTS", "DISABLE_AUTO_COMPACT", "DISABLE_COMPACT",
        "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK", "CLAUDE_CODE_DISABLE_REFUSAL_FALLBACK",
        "CLAUDE_CODE_DISABLE_REFUSAL_RETRY",
    ):  # fmt: skip
        assert environ[name] == "1", name
    assert environ["CLAUDE_CODE_MAX_RETRIES"] == "0"
    assert environ["ENABLE_TOOL_SEARCH"] == "false"
    assert environ["CLAUDE_CODE_MCP_AUTO_BACKGROUND_MS"] == "0"
    assert int(environ["MCP_TOOL_TIMEOUT"]) == 24 * 60 * 60 * 1000


def test_of_our_environment_it_gets_no_key(home: SessionHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "of-the-gateways-person")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "of-the-gateways-person")
    monkeypatch.setenv("CLAUDE_CODE_USE_BEDROCK", "1")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.invalid")
    environ = launched(home, WITH_TOKEN).environ
    assert "of-the-gateways-person" not in environ.values()
    assert not names(environ, "BEDROCK")
    assert environ["HTTPS_PROXY"] == "http://proxy.invalid"


@pytest.mark.parametrize(
    ("url", "without"),
    [("http://127.0.0.1:9", "own,127.0.0.1"), ("http://[::1]:9", "own,::1"), ("https://api.example.com", "own")],
)
def test_no_proxy_is_asked_for_this_machine(
    home: SessionHome, monkeypatch: pytest.MonkeyPatch, url: str, without: str
) -> None:
    monkeypatch.setenv("NO_PROXY", "own")
    monkeypatch.delenv("no_proxy", raising=False)
    environ = launched(home, Account(api_key="k", base_url=url)).environ
    assert environ["ANTHROPIC_BASE_URL"] == url
    assert environ["NO_PROXY"] == without


def test_a_session_is_resumed_where_it_is_told_to(home: SessionHome) -> None:
    fresh = launched(home)
    assert "--resume" not in fresh.arguments
    whole = launched(home, resume=Resume(SESSION, goes_on=True))
    assert value_of(whole.arguments, "--resume") == SESSION
    assert "--resume-session-at" not in whole.arguments
    back = launched(home, resume=Resume(SESSION, at="line-7"))
    assert value_of(back.arguments, "--resume-session-at") == "line-7"
    name = "CLAUDE_CODE_RESUME_INTERRUPTED_TURN"
    assert [started.environ[name] for started in (fresh, whole, back)] == ["0", "1", "0"]


def test_further_fields_of_the_body_are_given_for_the_whole_session(home: SessionHome) -> None:
    more = {"temperature": 0.5, "stop_sequences": ["ä"]}
    assert json.loads(launched(home, manner=Manner(extra_body=more)).environ["CLAUDE_CODE_EXTRA_BODY"]) == more
    assert not names(launched(home).environ, "EXTRA_BODY")


def test_the_first_request_is_answered_in_the_manner_that_is_asked_for(home: SessionHome) -> None:
    plain = launched(home).arguments
    assert not {"--max-thinking-tokens", "--effort"} & set(plain)
    asked = launched(home, manner=Manner(thinking_tokens=0, effort="low", fast=True)).arguments
    assert value_of(asked, "--max-thinking-tokens") == "0"
    assert value_of(asked, "--effort") == "low"
    settings = json.loads(value_of(plain, "--settings"))
    assert "fastMode" not in settings
    assert json.loads(value_of(asked, "--settings")) == {**settings, "fastMode": True}


def test_the_sign_in_of_this_machine_is_lent_where_no_token_is_given(
    home: SessionHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    with pytest.raises(UpstreamError, match="Nobody is signed in"):
        launched(home, Account(use_login=True))
    (tmp_path / ".credentials.json").write_text('{"claudeAiOauth":{"accessToken":"a"}}')
    for account in (Account(api_key="k", use_login=True), Account(oauth_token="t", use_login=True), Account()):
        launched(home, account)
        assert not (home.config / ".credentials.json").exists()
    launched(home, Account(use_login=True))
    assert (home.config / ".credentials.json").exists()
