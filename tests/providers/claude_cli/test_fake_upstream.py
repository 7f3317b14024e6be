"""The self-test's stand-in for Anthropic: a vendor's SDK reads its answers, and it notes all that it is asked for."""

import asyncio
from typing import Any

import anthropic
import pytest

from cachegate.providers.claude_cli.fake_upstream import FakeUpstream
from cachegate.wire.hub import Delta, Ended, PartEnded, PartKind, PartStarted, Started, Stop

ANSWER = (
    Started("one", "some-model"),
    PartStarted(0, PartKind.TEXT),
    Delta(0, "Hello."),
    PartEnded(0),
    Ended(Stop.REFUSAL),
)
QUESTION: dict[str, Any] = {"model": "some-model", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}


async def test_it_answers_by_its_script_and_keeps_what_it_was_asked() -> None:
    async with (
        FakeUpstream([ANSWER]) as upstream,
        anthropic.AsyncAnthropic(base_url=upstream.url, api_key="dummy", max_retries=0) as client,
    ):
        async with client.messages.stream(**QUESTION) as stream:
            told = await stream.get_final_message()
        with pytest.raises(anthropic.InternalServerError, match="One call more than there are answers"):
            await client.messages.create(**QUESTION)

    assert [block.text for block in told.content if block.type == "text"] == ["Hello."]
    assert told.stop_reason == "refusal"
    assert [b'"Hi"' in body for body in upstream.asked] == [True, True]
    assert upstream.others == []


async def test_a_call_that_cannot_be_read_is_told_so() -> None:
    async with (
        FakeUpstream([ANSWER]) as upstream,
        anthropic.AsyncAnthropic(base_url=upstream.url, api_key="dummy", max_retries=0) as client,
    ):
        with pytest.raises(anthropic.BadRequestError):
            await client.messages.create(**{**QUESTION, "messages": [{"role": "user", "content": [{"type": 3}]}]})


@pytest.mark.parametrize(
    ("line", "noted"),
    [
        ("HEAD /api/hello", "HEAD /api/hello"),
        ("GET /v1/messages", "GET /v1/messages"),
        ("POST /v1/messages/count_tokens?beta=true", "POST /v1/messages/count_tokens?beta=true"),
        ("CONNECT api.example.com:443", "CONNECT api.example.com:443"),
        ("POST http://api.example.com/v1/messages", "POST http://api.example.com/v1/messages"),
    ],
)
async def test_it_notes_everything_else_also_as_a_proxy(line: str, noted: str) -> None:
    async with FakeUpstream([ANSWER]) as upstream:
        host, port = upstream.url.removeprefix("http://").split(":")
        reading, writing = await asyncio.open_connection(host, int(port))
        writing.write(f"{line} HTTP/1.1\r\nHost: api.example.com\r\n\r\n".encode())
        answered = await reading.readline()
        writing.close()

    assert answered == b"HTTP/1.1 404 Not Found\r\n"
    assert (upstream.others, upstream.asked) == ([noted], [])
