"""The rows of the HTTP providers."""

from typing import get_args

import pytest
from yarl import URL

from cachegate.provider_configs import HttpProviderConfig
from cachegate.providers.http import _url
from cachegate.providers.presets import PRESETS
from cachegate.wire.facts import Operation, Protocol
from cachegate.wire.quirks import Quirk
from cachegate.wire.usage_readings import READINGS
from contract.preset_facts import FACTS, NO_USUAL_ADDRESS


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


@pytest.mark.parametrize("kind", PRESETS)
def test_a_row_has_the_address_and_the_key_that_the_provider_documents(kind: str) -> None:
    row, facts = PRESETS[kind], FACTS[kind]
    assert row.base_url == ("" if kind in NO_USUAL_ADDRESS else facts.address)
    assert row.key_variable == facts.variable
    assert {spoken for spoken in Protocol if row.speaks(spoken)} == set(facts.paths)


LOCAL = {"llamacpp", "vllm", "sglang", "ollama", "lmstudio"}


def test_only_servers_that_neither_sign_nor_encrypt_thoughts_get_them_back_as_text() -> None:
    wanting = {kind for kind, preset in PRESETS.items() if Quirk.PLAIN_THOUGHTS in preset.quirks}
    assert wanting == {"llamacpp", "vllm", "ollama"}


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
