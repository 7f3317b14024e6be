"""Start a coding agent so that it talks to the gateway, without touching the person's own files.

`plan` says what would be started, as a value; `cli.py` starts it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from cachegate.providers.headers import GATEWAY_KEY_HEADER

CLIENTS = ("claude", "codex", "opencode")


@dataclass(frozen=True, slots=True)
class Plan:
    """A program to start."""

    argv: tuple[str, ...]
    environ: Mapping[str, str] = field(repr=False)


def plan(client: str, url: str, key: str | None, args: tuple[str, ...], environ: Mapping[str, str]) -> Plan:
    """Return how to start `client` against the gateway at `url`. Raises ValueError for an unknown one.

    `key` is the client key of a gateway that asks for one.
    """
    match client:
        case "claude":
            return Plan(("claude", *args), {**environ, **_claude(url, key, environ)})
        case "codex":
            return Plan(("codex", *_codex(url, key), *args), dict(environ))
        case "opencode":
            return Plan(("opencode", *args), {**environ, "OPENCODE_CONFIG_CONTENT": _opencode(url, key, environ)})
    raise ValueError(f"there is no way to start {client!r}; choose one of {', '.join(CLIENTS)}")


def _claude(url: str, key: str | None, environ: Mapping[str, str]) -> dict[str, str]:
    """Return what Claude Code needs; the hint headers make it name the class of every request."""
    own = {"ANTHROPIC_BASE_URL": url, "CLAUDE_CODE_GATEWAY_HINT_HEADERS": "1"}
    if key is None:
        return own
    lines = (environ.get("ANTHROPIC_CUSTOM_HEADERS", ""), f"{GATEWAY_KEY_HEADER}: {key}")
    return {**own, "ANTHROPIC_CUSTOM_HEADERS": "\n".join(line for line in lines if line)}


def _codex(url: str, key: str | None) -> tuple[str, ...]:
    """Override the address of the built-in provider: sign-in and history stay as they are.

    A client key needs a provider entry, the only place where Codex takes further headers.
    """
    base = f"{url}/v1"
    if key is None:
        return ("-c", f"openai_base_url={json.dumps(base)}")
    entry = (
        f'{{name="OpenAI",base_url={json.dumps(base)},wire_api="responses",requires_openai_auth=true,'
        f"http_headers={{{json.dumps(GATEWAY_KEY_HEADER)}={json.dumps(key)}}}}}"
    )
    return ("-c", 'model_provider="cachegate"', "-c", f"model_providers.cachegate={entry}")


def _opencode(url: str, key: str | None, environ: Mapping[str, str]) -> str:
    """Point both providers here, on top of what the person gives inline already."""
    options: dict[str, object] = {"baseURL": f"{url}/v1"}
    if key is not None:
        options["headers"] = {GATEWAY_KEY_HEADER: key}
    try:
        config = json.loads(environ.get("OPENCODE_CONFIG_CONTENT") or "{}")
    except ValueError:
        config = {}
    providers = {**config.get("provider", {})}
    for name in ("anthropic", "openai"):
        entry = providers.get(name, {})
        providers[name] = {**entry, "options": {**entry.get("options", {}), **options}}
    return json.dumps({**config, "provider": providers})
