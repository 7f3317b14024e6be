"""From a model's name to a provider."""

import json

import pytest

from cachegate.errors import Unroutable
from cachegate.providers.base import Provider
from cachegate.providers.synthetic import SyntheticProvider
from cachegate.routing import Bound, Routes
from cachegate.wire.facts import InferenceRequest, Operation, Protocol
from cachegate.wire.parse import Received, parse


def asked(model: str, protocol: Protocol = Protocol.MESSAGES, **headers: str) -> InferenceRequest:
    data = json.dumps({"model": model}).encode()
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return parse(Received(protocol, Operation.GENERATE, named, "", data, data), bytes(32))


class OnlyMessages(SyntheticProvider):
    def speaks(self, protocol: Protocol, operation: Operation) -> bool:
        return protocol is Protocol.MESSAGES and operation is Operation.GENERATE


def routes(models: dict[str, str] | None = None, *names: str) -> Routes:
    def bound(name: str) -> Bound:
        provider: Provider = OnlyMessages() if name == "anthropic" else SyntheticProvider()
        return Bound(name, provider, self_hosted=name == "mine")

    chosen = names or ("anthropic", "openai", "codex", "mine")
    return Routes({name: bound(name) for name in chosen}, {rule: (to,) for rule, to in (models or {}).items()})


@pytest.mark.parametrize(
    ("model", "rules", "provider", "upstream_model"),
    [
        ("claude-x", {}, "anthropic", "claude-x"),
        ("mine/qwen/qwen3", {}, "mine", "qwen/qwen3"),
        ("elsewhere/qwen", {}, "anthropic", "elsewhere/qwen"),
        ("mine/", {}, "anthropic", "mine/"),
        ("mine", {}, "anthropic", "mine"),
        ("fast", {"fast": "mine/qwen/qwen3"}, "mine", "qwen/qwen3"),
        ("fast", {"fast": "mine"}, "mine", "fast"),
        ("claude-x", {"claude-*": "mine"}, "mine", "claude-x"),
        ("claude-x", {"claude-*": "mine/one"}, "mine", "one"),
        ("claude-x", {"*": "mine", "claude-x": "openai"}, "openai", "claude-x"),
        ("claude-x", {"c*": "mine", "claude-*": "openai"}, "mine", "claude-x"),
        ("Claude-x", {"claude-*": "mine"}, "anthropic", "Claude-x"),
    ],
)
def test_rules_first_then_the_name_then_the_protocol(
    model: str, rules: dict[str, str], provider: str, upstream_model: str
) -> None:
    (binding,) = routes(rules).bind(asked(model))
    assert (binding.name, binding.model, binding.self_hosted) == (provider, upstream_model, provider == "mine")


def test_codex_signed_in_with_chatgpt_goes_where_its_token_is_worth_something() -> None:
    responses = Protocol.RESPONSES
    assert routes().bind(asked("gpt-x", responses))[0].name == "openai"
    assert routes().bind(asked("gpt-x", responses, chatgpt_account_id="a"))[0].name == "codex"
    assert routes({}, "openai").bind(asked("gpt-x", responses, chatgpt_account_id="a"))[0].name == "openai"
    assert routes({"gpt-*": "mine"}).bind(asked("gpt-x", responses, chatgpt_account_id="a"))[0].name == "mine"


def test_a_model_that_belongs_nowhere_is_named_with_the_remedy() -> None:
    with pytest.raises(Unroutable, match=r"'claude-x'.*configured: mine"):
        routes({}, "mine").bind(asked("claude-x"))


def test_a_provider_that_does_not_speak_the_protocol_is_named() -> None:
    with pytest.raises(Unroutable, match=r"'anthropic/x'.*does not take responses requests"):
        routes().bind(asked("anthropic/x", Protocol.RESPONSES))
