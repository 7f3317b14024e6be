"""The configuration: every problem at once, each with its key and a remedy."""

import json
from pathlib import Path

import pytest

from cachegate.config import Config, Loaded, find, load, parse
from cachegate.errors import ConfigError
from cachegate.guard.policy import Policy

FULL = """
listen: 127.0.0.1:9000
providers:
  anthropic: {kind: anthropic}
  mine: {kind: openai, baseUrl: "http://127.0.0.1:8080/v1", apiKey: "${MY_KEY}", selfHosted: true,
    zeroIsUnknown: true}
  play: {kind: synthetic, lifetimeSeconds: 5}
models: {"claude-*": anthropic, fast: mine/qwen/qwen3}
cacheGuard: {enabled: true, largeTokens: 1000, limit: 3, idleSeconds: 1.5}
limits: {bodyBytesMax: 2048, drainSeconds: 0}
auxiliary: {model: mine/small}
state: memory
clients: [{name: alice, key: "${ALICE_KEY:-0123456789abcdef}"}]
allowedHosts: [gateway.example]
allowedOrigins: ["https://app.example"]
"""


def checked(text: str, **environ: str) -> Loaded:
    return parse(text, "test.yaml", environ)


def problems(text: str, **environ: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        checked(text, **environ)
    return caught.value.problems


def test_nothing_is_needed() -> None:
    loaded = load(None)
    assert loaded.config.address == ("127.0.0.1", 4283)
    assert loaded.config.cache_guard.policy() == Policy()
    assert checked("").config == loaded.config
    assert checked("# only a comment\n").config == loaded.config


def test_a_full_configuration_is_read() -> None:
    config = checked(FULL, MY_KEY="sk-1").config
    assert config.address == ("127.0.0.1", 9000)
    mine = config.providers["mine"]
    assert mine.kind == "openai"
    assert mine.self_hosted
    assert mine.zero_is_unknown
    assert mine.api_key is not None
    assert mine.api_key.get_secret_value() == "sk-1"
    assert config.clients[0].key.get_secret_value() == "0123456789abcdef"
    assert config.auxiliary.model == "mine/small"
    policy = config.cache_guard.policy()
    assert (policy.large_tokens, policy.limit, policy.idle_ms) == (1000, 3, 1500)


PROBLEMS = {
    "unknown key": ("listn: x", "listn: there is no such key. Did you mean listen?"),
    "unknown key, nothing near": ("zzz: 1", "zzz: there is no such key. Remove it"),
    "snake case": ("cache_guard: {}", "cache_guard: there is no such key. Did you mean cacheGuard?"),
    "inner unknown key": (
        "limits: {bodyBytes: 5000}",
        "limits.bodyBytes: there is no such key. Did you mean bodyBytesMax?",
    ),
    "no model to classify": ("auxiliary: {model: ''}", "auxiliary.model: string should have at least 1 character"),
    "another key of the classifier": (
        "auxiliary: {modle: x}",
        "auxiliary.modle: there is no such key.",
    ),
    "missing variable": ("listen: '${NOPE}:1'", "listen: the environment variable NOPE is not set. Set it"),
    "address": ("listen: here", "listen: must be host:port"),
    "port": ("listen: 127.0.0.1:99999", "listen: must be host:port"),
    "open to all": ("listen: 0.0.0.0:80", "listen: 0.0.0.0:80 is reachable from other machines"),
    "kind": (
        "providers: {a: {kind: nonsense}}",
        "providers.a.kind: must be one of anthropic, openai, codex, azure",
    ),
    "no kind": ("providers: {a: {baseUrl: 'http://x'}}", "providers.a.kind: must be one of"),
    "url": ("providers: {a: {kind: openai, baseUrl: 'ftp://x'}}", "providers.a.baseUrl: must look like https://"),
    "url with a user": (
        "providers: {a: {kind: openai, baseUrl: 'http://u:p@x'}}",
        "providers.a.baseUrl: must look like",
    ),
    "slash in a name": ("providers: {'a/b': {kind: openai}}", "providers.a/b: rename it without a slash"),
    "foreign key of a kind": (
        "providers: {a: {kind: synthetic, apiKey: x}}",
        "providers.a.apiKey: there is no such key",
    ),
    "self-hosted without address": (
        "providers: {a: {kind: openai, selfHosted: true}}",
        "providers.a.selfHosted: needs a baseUrl",
    ),
    "self-hosted elsewhere": (
        "providers: {a: {kind: openai, selfHosted: true, baseUrl: 'http://10.0.0.1'}}",
        "providers.a.selfHosted: 10.0.0.1 is 10.0.0.1, which is neither this machine",
    ),
    "rule to nowhere": (
        "models: {x: nowhere/y}",
        "models.x: there is no provider 'nowhere'. Configured are: anthropic",
    ),
    "policy": ("cacheGuard: {limit: 0}", "cacheGuard.limit: is 0; it must be between 1 and 1000"),
    "policy of time": ("cacheGuard: {idleSeconds: 0}", "cacheGuard.idleSeconds: input should be greater than 0 (is 0)"),
    "type": ("cacheGuard: {limit: many}", "cacheGuard.limit: input should be a valid integer"),
    "state": ("state: 'redis://u:hunter2@h/x'", "state: names a database that is no number up to 1023"),
    "short key": ("clients: [{name: a, key: short}]", "clients.0.key: has fewer than 16 characters"),
    "client without key": ("clients: [{name: a}]", "clients.0.key: is required. Add it."),
    "twins": (
        "clients: [{name: a, key: 0123456789abcdef}, {name: a, key: 0123456789abcdeg}]",
        "clients: two clients share a name or a key",
    ),
    "a key twice": ("listen: 127.0.0.1:1\nlisten: 127.0.0.1:2", "is no valid YAML: 'listen' stands twice"),
    "no YAML": ("listen: [", "is no valid YAML"),
    "a list": ("- x", "must be a mapping of keys"),
    "python objects": ("listen: !!python/object/apply:os.getcwd []", "is no valid YAML"),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_problem_names_its_key_and_the_remedy(name: str) -> None:
    text, expected = PROBLEMS[name]
    found = problems(text)
    assert len(found) == 1
    assert found[0].startswith(expected)


def test_every_problem_comes_in_one_message_also_those_of_the_whole() -> None:
    text = "\n".join(
        text for text, _ in (PROBLEMS["unknown key"], PROBLEMS["open to all"], PROBLEMS["rule to nowhere"])
    )
    found = problems(text + "\nproviders: {a: {kind: openai, selfHosted: true}, b: {kind: no}}")
    assert len(found) == 5
    assert not any("'b'" in words for words in found)


def test_a_secret_is_never_in_a_message() -> None:
    found = problems("clients: [{name: a, key: tooshort}]\nproviders: {a: {kind: openai, apiKey: [s3cret]}}")
    assert "tooshort" not in "".join(found)
    assert "s3cret" not in "".join(found)


def test_the_file_is_searched_in_order(tmp_path: Path) -> None:
    own = tmp_path / "cachegate" / "config.yaml"
    environ = {"XDG_CONFIG_HOME": str(tmp_path), "HOME": "/nonexistent"}
    assert find(None, environ) is None
    own.parent.mkdir()
    own.write_text("{}")
    assert find(None, environ) == own
    assert find(None, environ | {"CACHEGATE_CONFIG": "/else"}) == Path("/else")
    assert find(Path("/named"), environ | {"CACHEGATE_CONFIG": "/else"}) == Path("/named")
    assert find(None, {"HOME": str(tmp_path)}) is None


def test_a_file_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "missing.yaml")


@pytest.mark.parametrize(
    ("text", "mode", "warned"),
    [
        ("providers: {a: {kind: openai, apiKey: sk-1}}", 0o644, True),
        ("clients:\n  - name: a\n    key: 0123456789abcdef\n", 0o640, True),
        ("providers: {a: {kind: openai, apiKey: sk-1}}", 0o600, False),
        ('providers: {a: {kind: openai, apiKey: "${K:-x}"}}', 0o644, False),
        ("listen: 127.0.0.1:1", 0o644, False),
    ],
)
def test_keys_that_others_can_read_are_warned_about(tmp_path: Path, text: str, mode: int, warned: bool) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    path.chmod(mode)
    assert bool(load(path, {}).warnings) is warned


def test_the_schema_describes_every_key_in_camel_case() -> None:
    schema = Config.model_json_schema(by_alias=True)
    text = json.dumps(schema)
    assert "cacheGuard" in text
    assert "cache_guard" not in text
    for name, row in schema["$defs"].items():
        for key, value in row["properties"].items():
            assert "description" in value, f"{name}.{key}"


def test_a_shared_state_is_read_and_shown_nowhere() -> None:
    text = "state: 'valkeys://me:hunter2@h'\nstateSecret: 0123456789abcdef\nstateDown: block"
    config = checked(text).config
    address = config.state_address
    assert address is not None
    assert (address.host, address.password, config.state_down) == ("h", "hunter2", "block")
    assert "hunter2" not in repr(config) + str(address) + repr(address)
    assert "0123456789abcdef" not in repr(config)
    for wrong in ("state: 'redis://me:hunter2@h?x=1'", "state: hunter2", "stateSecret: hunter2"):
        assert "hunter2" not in "".join(problems(wrong))
