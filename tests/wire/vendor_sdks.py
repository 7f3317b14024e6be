"""The vendors' own SDKs, fed with bytes instead of a network: what only our own code can read would prove nothing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, get_args

import anthropic
import anthropic.types
import httpx2
import openai
import openai.types.responses
import pydantic
from openai.types.responses.response_stream_event import ResponseStreamEvent

from cachegate.wire.sse import SseEvent

STREAM, JSON = "text/event-stream", "application/json"
QUESTION: list[anthropic.types.MessageParam] = [{"role": "user", "content": "hi"}]


class Wire:
    """A provider that gives one answer, whatever is asked, and counts how often it was asked."""

    def __init__(self, body: bytes, *, status: int = 200, kind: str = STREAM) -> None:
        self.asked = 0
        self._answer = (status, body, kind)

    @property
    def transport(self) -> httpx2.MockTransport:
        return httpx2.MockTransport(self._respond)

    def _respond(self, _request: httpx2.Request) -> httpx2.Response:
        self.asked += 1
        status, body, kind = self._answer
        return httpx2.Response(status, headers={"content-type": kind, "x-should-retry": "false"}, content=body)


@contextmanager
def openai_client(wire: Wire) -> Iterator[openai.OpenAI]:
    with (
        httpx2.Client(transport=wire.transport) as http,
        openai.OpenAI(api_key="dummy", base_url="http://gateway/v1", http_client=http) as client,
    ):
        yield client


@contextmanager
def anthropic_client(wire: Wire) -> Iterator[anthropic.Anthropic]:
    with (
        httpx2.Client(transport=wire.transport) as http,
        anthropic.Anthropic(api_key="dummy", base_url="http://gateway", http_client=http) as client,
    ):
        yield client


def ask_openai(wire: Wire) -> openai.types.responses.Response:
    with openai_client(wire) as client:
        return client.responses.create(model="m", input="hi")


def openai_events(stream: bytes) -> list[openai.types.responses.ResponseStreamEvent]:
    """Read a stream event by event; an event of a type that the SDK does not know keeps its `type`."""
    with openai_client(Wire(stream)) as client:
        return list(client.responses.create(model="m", input="hi", stream=True))


def openai_final(stream: bytes) -> openai.types.responses.Response:
    """Read a stream with the SDK's own accumulator."""
    with openai_client(Wire(stream)) as client, client.responses.stream(model="m", input="hi") as events:
        return events.get_final_response()


def ask_anthropic(wire: Wire) -> anthropic.types.Message:
    with anthropic_client(wire) as client:
        return client.messages.create(model="m", max_tokens=9, messages=QUESTION)


def anthropic_events(stream: bytes) -> list[anthropic.types.RawMessageStreamEvent]:
    with anthropic_client(Wire(stream)) as client:
        return list(client.messages.create(model="m", max_tokens=9, messages=QUESTION, stream=True))


def anthropic_final(stream: bytes) -> anthropic.types.Message:
    """Read a stream with the SDK's own accumulator."""
    with (
        anthropic_client(Wire(stream)) as client,
        client.messages.stream(model="m", max_tokens=9, messages=QUESTION) as events,
    ):
        return events.get_final_message()


def _by_type(union: Any) -> dict[str, type[pydantic.BaseModel]]:
    variants = get_args(get_args(union)[0])
    return {get_args(variant.model_fields["type"].annotation)[0]: variant for variant in variants}


_OPENAI_TYPES = _by_type(ResponseStreamEvent)
_ANTHROPIC_TYPES = _by_type(anthropic.types.RawMessageStreamEvent)
Check = Callable[[SseEvent], None]


def check_openai_event(event: SseEvent) -> None:
    """Hold an event against the SDK's type of it, every required field included; the SDK itself is lenient."""
    _OPENAI_TYPES[event.name.decode()].model_validate_json(event.data)


def check_anthropic_event(event: SseEvent) -> None:
    """See `check_openai_event`."""
    _ANTHROPIC_TYPES[event.name.decode()].model_validate_json(event.data)
