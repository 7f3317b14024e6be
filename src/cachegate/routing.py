"""Which provider takes a request, and what it calls the model. Pure: tables in, a `Binding` out."""

import difflib
import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass

from cachegate.errors import Unroutable
from cachegate.providers.base import Provider
from cachegate.wire.facts import InferenceRequest, Protocol, Sender

DEFAULTS = {Protocol.MESSAGES: "anthropic", Protocol.RESPONSES: "openai", Protocol.CHAT: "openai"}
"""The provider whose protocol it is takes what no rule names."""
CHATGPT_HEADER = "chatgpt-account-id"
"""Codex sends it when signed in with ChatGPT; its token is worth something at that backend only."""
CHATGPT_PROVIDER = "codex"


@dataclass(frozen=True, slots=True)
class Bound:
    """A configured provider."""

    name: str
    provider: Provider
    self_hosted: bool = False


@dataclass(frozen=True, slots=True)
class Binding:
    """The provider of one request, and the model's name there."""

    name: str
    provider: Provider
    model: str
    self_hosted: bool


@dataclass(frozen=True, slots=True)
class Routes:
    """The configured providers, and the rules from model names to them."""

    providers: Mapping[str, Bound]
    models: Mapping[str, tuple[str, ...]]
    """Exact names and `*` patterns, to `provider` or `provider/model`; several are asked one after the other."""

    def bind(self, request: InferenceRequest) -> tuple[Binding, ...]:
        """Return the request's bindings, in the order in which to ask. Raises Unroutable with the remedy."""
        return tuple(self._binding(request, bound, model) for bound, model in self._find(request))

    def names(self) -> dict[str, str]:
        """Return the names of models that can be listed, each with its first provider's name."""
        names = {rule: targets[0].partition("/")[0] for rule, targets in self.models.items() if "*" not in rule}
        for name, bound in self.providers.items():
            names.update({f"{name}/{model}": name for model in bound.provider.models()})
        return names

    def _binding(self, request: InferenceRequest, bound: Bound, model: str) -> Binding:
        if not bound.provider.speaks(request.protocol, request.operation):
            raise Unroutable(
                f"model: {request.facts.model!r} belongs to provider {bound.name!r}, which does not take "
                f"{request.protocol.value} requests ({request.operation.value}). Ask for another model, or map this "
                "one to another provider under `models` in the configuration."
            )
        return Binding(bound.name, bound.provider, model, bound.self_hosted)

    def _find(self, request: InferenceRequest) -> tuple[tuple[Bound, str], ...]:
        """Rules first, then `provider/model`, then the protocol's own provider."""
        name = request.facts.model
        targets = [target.partition("/") for target in self._rule(name)]
        if targets:
            return tuple((self.providers[provider], model or name) for provider, _, model in targets)
        provider, slash, model = name.partition("/")
        if slash and model and provider in self.providers:
            return ((self.providers[provider], model),)
        default = DEFAULTS[request.protocol]
        if default == DEFAULTS[Protocol.RESPONSES] and Sender.of(request.headers).header(CHATGPT_HEADER):
            default = CHATGPT_PROVIDER if CHATGPT_PROVIDER in self.providers else default
        if default not in self.providers:
            known = ", ".join(sorted(self.providers)) or "none"
            near = difflib.get_close_matches(name, self.names(), n=3)
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            raise Unroutable(
                f"model: nothing is configured for {name!r}.{hint} Name a provider in front of it, as in "
                f"provider/model (configured: {known}), or add a rule under `models` in the configuration."
            )
        return ((self.providers[default], name),)

    def _rule(self, name: str) -> tuple[str, ...]:
        if name in self.models:
            return self.models[name]
        patterns = (rule for rule in self.models if "*" in rule)
        return next((self.models[rule] for rule in patterns if fnmatch.fnmatchcase(name, rule)), ())
