"""How clients are started: pointed here, and nothing of the person's own is touched."""

import json
import tomllib

import pytest

from cachegate.launch import CLIENTS, plan

URL = "http://127.0.0.1:4283"


@pytest.mark.parametrize("client", CLIENTS)
def test_the_persons_arguments_and_environment_survive(client: str) -> None:
    started = plan(client, URL, None, ("-p", "hello world"), {"HOME": "/home/me", "X": "1"})
    assert started.argv[0] == client
    assert started.argv[-2:] == ("-p", "hello world")
    assert (started.environ["HOME"], started.environ["X"]) == ("/home/me", "1")


def test_claude_code_gets_the_address_and_the_hint_headers() -> None:
    environ = plan("claude", URL, None, (), {}).environ
    assert environ == {"ANTHROPIC_BASE_URL": URL, "CLAUDE_CODE_GATEWAY_HINT_HEADERS": "1"}
    keyed = plan("claude", URL, "k1", (), {"ANTHROPIC_CUSTOM_HEADERS": "x-a: b"}).environ
    assert keyed["ANTHROPIC_CUSTOM_HEADERS"] == "x-a: b\nx-cachegate-key: k1"


def test_codex_gets_overrides_that_are_toml() -> None:
    _, flag, value = plan("codex", URL, None, (), {}).argv
    assert flag == "-c"
    assert tomllib.loads(value) == {"openai_base_url": f"{URL}/v1"}
    _, _, first, _, second = plan("codex", URL, 'k"1', (), {}).argv
    assert tomllib.loads(first) == {"model_provider": "cachegate"}
    entry = tomllib.loads(second)["model_providers"]["cachegate"]
    assert (entry["base_url"], entry["http_headers"]) == (f"{URL}/v1", {"x-cachegate-key": 'k"1'})
    assert (entry["wire_api"], entry["requires_openai_auth"]) == ("responses", True)


@pytest.mark.parametrize("inline", ["", "no json", '{"theme":"x","provider":{"openai":{"options":{"timeout":1}}}}'])
def test_opencode_gets_both_providers_on_top_of_what_is_there(inline: str) -> None:
    environ = plan("opencode", URL, "k1", (), {"OPENCODE_CONFIG_CONTENT": inline}).environ
    config = json.loads(environ["OPENCODE_CONFIG_CONTENT"])
    for name in ("anthropic", "openai"):
        options = config["provider"][name]["options"]
        assert (options["baseURL"], options["headers"]) == (f"{URL}/v1", {"x-cachegate-key": "k1"})
    if inline.startswith("{"):
        assert config["theme"] == "x"
        assert config["provider"]["openai"]["options"]["timeout"] == 1


def test_an_unknown_client_is_named() -> None:
    with pytest.raises(ValueError, match=r"'emacs'.*claude, codex, opencode"):
        plan("emacs", URL, None, (), {})
