"""The contract of a provider, held by every provider: one head, then pieces, observations beside them."""

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass

import pytest
from yarl import URL

from cachegate.guard.usage import Usage
from cachegate.providers.base import Call, Head, Piece, Provider
from cachegate.providers.copilot.provider import CopilotProvider, CopilotSettings
from cachegate.providers.http import HttpProvider, Upstream
from cachegate.providers.passage import Terms
from cachegate.providers.presets import PRESETS
from cachegate.providers.synthetic import SyntheticProvider
from cachegate.wire.facts import InferenceRequest, Operation, Protocol
from cachegate.wire.parse import Received, parse
from cachegate.wire.seen import Finished
from cachegate.wire.sse import SseReader
from copilot_runtime import ScriptedRuntime
from provider_streams import PATH, body, events, request
from scripted_upstream import ScriptedUpstream, stream, whole


@dataclass(slots=True)
class Sent:
    count: int = 0

    def mark(self) -> None:
        self.count += 1


def inference(protocol: Protocol, *, streamed: bool, operation: Operation = Operation.GENERATE) -> InferenceRequest:
    data = request(protocol, stream=streamed)
    return parse(Received(protocol, operation, (("content-type", "application/json"),), "", data, data), bytes(32))


@pytest.fixture(params=["http", "synthetic", "copilot"])
async def provider(
    request: pytest.FixtureRequest, protocol: Protocol, upstream: ScriptedUpstream
) -> AsyncIterator[Provider]:
    def answer(recorded: object) -> list[object]:
        streamed = b'"stream": true' in recorded.body  # type: ignore[attr-defined]
        return [*stream(b"".join(events(protocol)))] if streamed else [whole(200, body(protocol))]

    upstream.answer = answer  # type: ignore[assignment]
    kind = "anthropic" if protocol is Protocol.MESSAGES else "openai"
    url = URL(upstream.url if protocol is Protocol.MESSAGES else f"{upstream.url}/v1")
    providers: dict[str, Callable[[], Provider]] = {
        "http": lambda: HttpProvider(Upstream(Terms(PRESETS[kind], frozenset(Protocol), None, None), url)),
        "synthetic": SyntheticProvider,
        "copilot": lambda: CopilotProvider(ScriptedRuntime(), CopilotSettings(models=("model-x",))),
    }
    made = providers[request.param]()
    yield made
    await made.close()


async def collect(provider: Provider, call: Call) -> tuple[Head, list[Piece]]:
    async with aclosing(provider.stream(call)) as parts:
        got = [part async for part in parts]
    head, *pieces = got
    assert isinstance(head, Head)
    assert all(isinstance(piece, Piece) for piece in pieces), "one head, and it comes first"
    return head, [piece for piece in pieces if isinstance(piece, Piece)]


@pytest.mark.parametrize("streamed", [True, False])
async def test_an_answer_is_a_head_and_pieces_with_usage_and_an_end(
    provider: Provider, protocol: Protocol, streamed: bool
) -> None:
    sent = Sent()
    model = "cache" if isinstance(provider, SyntheticProvider) else "model-x"
    head, pieces = await collect(provider, Call(inference(protocol, streamed=streamed), "req_1", "p", model, sent.mark))
    assert (head.status, head.successful, sent.count) == (200, True, 1)
    seen = [item for piece in pieces for item in piece.seen]
    assert Finished() in seen
    usages = [item for item in seen if isinstance(item, Usage)]
    assert usages[-1].measured
    content_type = {name.lower(): value for name, value in head.headers}["content-type"]
    assert content_type == ("text/event-stream" if streamed else "application/json")


async def test_pieces_of_a_stream_hold_whole_events_only(provider: Provider, protocol: Protocol) -> None:
    model = "cache" if isinstance(provider, SyntheticProvider) else "model-x"
    _, pieces = await collect(provider, Call(inference(protocol, streamed=True), "req_1", "p", model, Sent().mark))
    for piece in pieces:
        reader = SseReader()
        assert reader.feed(piece.data)[0] == piece.data
        assert reader.rest() == b""


async def test_closing_early_is_clean(provider: Provider, protocol: Protocol) -> None:
    model = "cache" if isinstance(provider, SyntheticProvider) else "model-x"
    parts = provider.stream(Call(inference(protocol, streamed=True), "req_1", "p", model, Sent().mark))
    assert isinstance(await anext(parts), Head)
    await parts.aclose()
    assert [part async for part in parts] == []


async def test_what_a_provider_speaks_it_says(provider: Provider, protocol: Protocol) -> None:
    assert provider.speaks(protocol, Operation.GENERATE)
    assert PATH[protocol]
    assert all(isinstance(name, str) for name in provider.models())
