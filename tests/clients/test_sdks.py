"""The official SDKs through the gateway, streamed and not: what they send arrives, what is answered they understand."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anthropic
import openai
import pytest

from cachegate.wire.facts import Protocol
from provider_streams import COLD, LARGE_TEXT, SILENT, body, events
from running_gateway import RunningGateway
from scripted_upstream import Recorded, Script, ScriptedUpstream, stream, whole

Ask = Callable[[str, bool], Awaitable[str]]
"""(text, streamed) to the answer's text."""


class Sent(list[bytes]):
    """The bodies that an SDK put on the wire."""

    async def hook(self, request: object) -> None:
        self.append(bytes(request.content))  # type: ignore[attr-defined]


@asynccontextmanager
async def anthropic_ask(gateway: RunningGateway, sent: Sent) -> AsyncIterator[Ask]:
    http = anthropic.DefaultAsyncHttpxClient(event_hooks={"request": [sent.hook]})
    client = anthropic.AsyncAnthropic(base_url=gateway.url, api_key="sk-mine", http_client=http)

    async def ask(text: str, streamed: bool) -> str:
        arguments = {"model": "claude-x", "max_tokens": 9, "messages": [{"role": "user", "content": text}]}
        if not streamed:
            message = await client.messages.create(**arguments)  # type: ignore[call-overload]
            return str(message.content[0].text)
        async with client.messages.stream(**arguments) as running:  # type: ignore[arg-type]
            return await running.get_final_text()

    async with client:
        yield ask


@asynccontextmanager
async def openai_ask(gateway: RunningGateway, sent: Sent) -> AsyncIterator[Ask]:
    http = openai.DefaultAsyncHttpxClient(event_hooks={"request": [sent.hook]})
    client = openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="sk-mine", http_client=http)

    async def ask(text: str, streamed: bool) -> str:
        if not streamed:
            return (await client.responses.create(model="gpt-x", input=text)).output_text
        async with client.responses.stream(model="gpt-x", input=text) as running:
            return (await running.get_final_response()).output_text

    async with client:
        yield ask


@asynccontextmanager
async def chat_ask(gateway: RunningGateway, sent: Sent) -> AsyncIterator[Ask]:
    http = openai.DefaultAsyncHttpxClient(event_hooks={"request": [sent.hook]})
    client = openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="sk-mine", http_client=http)

    async def ask(text: str, streamed: bool) -> str:
        arguments = {"model": "gpt-x", "messages": [{"role": "user", "content": text}]}
        if not streamed:
            completion = await client.chat.completions.create(**arguments)  # type: ignore[call-overload]
            return str(completion.choices[0].message.content)
        options = {"stream": True, "stream_options": {"include_usage": True}}
        stream = await client.chat.completions.create(**arguments, **options)  # type: ignore[call-overload]
        return "".join([choice.delta.content or "" async for chunk in stream for choice in chunk.choices])

    async with client:
        yield ask


SDKS = {Protocol.MESSAGES: anthropic_ask, Protocol.RESPONSES: openai_ask, Protocol.CHAT: chat_ask}


def answering(protocol: Protocol, **usage: object) -> Callable[[Recorded], Script]:
    def answer(recorded: Recorded) -> Script:
        if b'"stream":true' in recorded.body.replace(b" ", b""):
            return stream(b"".join(events(protocol, **usage)))  # type: ignore[arg-type]
        return [whole(200, body(protocol, **usage))]  # type: ignore[arg-type]

    return answer


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_request_arrives_as_the_sdk_sent_it_and_its_answer_is_understood(
    gateway: RunningGateway, upstream: ScriptedUpstream, protocol: Protocol, streamed: bool
) -> None:
    upstream.answer = answering(protocol)
    sent = Sent()
    async with SDKS[protocol](gateway, sent) as ask:
        assert await ask("héllo \U0001f600", streamed) == "Hello world"
    assert [recorded.body for recorded in upstream.requests] == sent
    keys = {upstream.requests[0].header(name) for name in ("x-api-key", "authorization")} - {None}
    assert keys <= {"sk-mine", "Bearer sk-mine"}
    assert keys, "the client's own key is passed through"
    assert upstream.requests[0].header("x-stainless-lang") == "python"


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(("usage", "words"), [(COLD, "re-processed at least 65,536"), (SILENT, "did not report")])
async def test_a_stop_is_final_for_the_sdk_and_says_what_to_do_r23(
    gateway: RunningGateway, upstream: ScriptedUpstream, protocol: Protocol, streamed: bool, usage: object, words: str
) -> None:
    upstream.answer = answering(protocol, usage=usage)
    sent = Sent()
    async with SDKS[protocol](gateway, sent) as ask:
        for _ in range(2):
            await ask(LARGE_TEXT, streamed)
        with pytest.raises((anthropic.BadRequestError, openai.BadRequestError), match=words) as caught:
            await ask(LARGE_TEXT, streamed)
    assert "5 minutes" in str(caught.value)
    assert (len(sent), len(upstream.requests)) == (3, 2), "no SDK retries a stop, and none reaches the provider"


@pytest.mark.parametrize("streamed", [True])
async def test_a_stream_that_breaks_raises_in_the_sdk(
    gateway: RunningGateway, upstream: ScriptedUpstream, protocol: Protocol, streamed: bool
) -> None:
    upstream.answer = lambda _: stream(b"".join(events(protocol)[:3]))
    async with SDKS[protocol](gateway, Sent()) as ask:
        # openai's stream helper skips error events and then misses the completed response
        with pytest.raises((anthropic.APIError, openai.APIError, RuntimeError)):
            await ask("hi", streamed)
