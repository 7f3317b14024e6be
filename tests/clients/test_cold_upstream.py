"""The scripted provider against the vendors' own SDKs: a stand-in that only our code accepts would prove nothing."""

from collections.abc import AsyncIterator

import anthropic
import openai
import pytest

from clients.cold_upstream import ColdUpstream, Reply
from clients.provider_replies import WARM

MODEL = "some-model"


@pytest.fixture
async def upstream() -> AsyncIterator[ColdUpstream]:
    async with ColdUpstream(lambda _received: Reply(WARM, text="Four words of text.")) as upstream:
        yield upstream


async def test_it_speaks_messages(upstream: ColdUpstream) -> None:
    async with anthropic.AsyncAnthropic(base_url=upstream.url, api_key="dummy-key", max_retries=0) as client:
        question: list[anthropic.types.MessageParam] = [{"role": "user", "content": "Hello"}]
        whole = await client.messages.create(model=MODEL, max_tokens=9, messages=question)
        async with client.messages.stream(model=MODEL, max_tokens=9, messages=question) as stream:
            streamed = await stream.get_final_message()
        counted = await client.messages.count_tokens(model=MODEL, messages=question)
        models = [model.id async for model in client.models.list()]

    for message in (whole, streamed):
        assert [block.text for block in message.content if block.type == "text"] == ["Four words of text."]
        assert message.stop_reason == "end_turn"
        usage = message.usage
        assert usage.cache_read_input_tokens == WARM.cached
        assert usage.cache_creation_input_tokens is not None
        assert usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens == WARM.total
    assert counted.input_tokens > 0
    assert "claude-opus-5-5" in models


async def test_it_speaks_responses(upstream: ColdUpstream) -> None:
    async with openai.AsyncOpenAI(base_url=f"{upstream.url}/v1", api_key="dummy-key", max_retries=0) as client:
        whole = await client.responses.create(model=MODEL, input="Hello")
        async with client.responses.stream(model=MODEL, input="Hello") as stream:
            numbers = [event.sequence_number async for event in stream]
            streamed = await stream.get_final_response()
        models = [model.id async for model in client.models.list()]

    for response in (whole, streamed):
        assert response.output_text == "Four words of text."
        assert response.status == "completed"
        assert response.usage is not None
        assert response.usage.input_tokens == WARM.total
        assert response.usage.input_tokens_details.cached_tokens == WARM.cached
    assert numbers == sorted(set(numbers))
    assert "gpt-5.5" in models


async def test_it_remembers_what_it_does_not_know(upstream: ColdUpstream) -> None:
    async with openai.AsyncOpenAI(base_url=f"{upstream.url}/v1", api_key="dummy-key", max_retries=0) as client:
        with pytest.raises(openai.NotFoundError):
            await client.embeddings.create(model=MODEL, input="Hello")

    assert [str(received).split(" (")[0] for received in upstream.received] == ["POST /v1/embeddings"]
