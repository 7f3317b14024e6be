"""The rows of the HTTP providers."""

from typing import get_args

import pytest
from yarl import URL

from cachegate.config import HttpProviderConfig
from cachegate.providers.http import _url
from cachegate.providers.presets import PRESETS
from cachegate.wire.facts import Operation, Protocol
from cachegate.wire.usage_readings import READINGS


@pytest.mark.parametrize("kind", PRESETS)
def test_a_row_is_whole(kind: str) -> None:
    preset = PRESETS[kind]
    url = URL(preset.base_url)
    assert preset.kind == kind
    assert url.scheme == "https" or url.host in {"127.0.0.1", None}
    assert not preset.base_url.endswith("/")
    assert preset.paths
    assert all(path.startswith("/") for path in preset.paths.values())
    assert preset.readings in READINGS
    assert preset.betas == (kind == "anthropic"), "others refuse a request for a beta they do not know"
    assert (preset.key_variable == "") == (kind in {"codex", "openai-compatible", *LOCAL})


LOCAL = {"llamacpp", "vllm", "sglang", "ollama", "lmstudio"}


def test_every_kind_can_be_configured() -> None:
    kinds = get_args(HttpProviderConfig.model_fields["kind"].annotation)
    assert set(kinds) == set(PRESETS)


def test_the_usual_addresses_come_out() -> None:
    def address(kind: str, protocol: Protocol, operation: Operation, base: str | None = None) -> str:
        preset = PRESETS[kind]
        return str(_url(URL(base or preset.base_url), preset.paths[protocol, operation], ""))

    generate = Operation.GENERATE
    assert address("anthropic", Protocol.MESSAGES, generate) == "https://api.anthropic.com/v1/messages"
    assert address("openai", Protocol.RESPONSES, generate) == "https://api.openai.com/v1/responses"
    assert address("openai", Protocol.RESPONSES, Operation.COMPACT) == "https://api.openai.com/v1/responses/compact"
    assert address("codex", Protocol.RESPONSES, generate) == "https://chatgpt.com/backend-api/codex/responses"
    for base in ("http://h/v1", "http://h/v1/", "http://h", "http://h/"):
        assert address("anthropic", Protocol.MESSAGES, generate, base) == "http://h/v1/messages"
