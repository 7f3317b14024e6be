"""The vendors' own SDKs accept everything the writers write: every field that their types require, and their sums."""

import json
from collections.abc import Mapping
from typing import Any

import openai
import openai.types.chat
import openai.types.responses
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegate.guard.usage import Usage
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import Broken, Counted, Event, PartKind, Stop
from cachegate.wire.sse import SseReader
from contract import drawn_answers
from contract.answers_heard import Answer, as_told, listen
from contract.codec_subjects import CODECS, EACH_PAIR, read, target, write
from contract.test_codec_answers import FAILED, RECORDED, ids
from contract.test_codecs import EXAMPLES, thoroughly
from wire.vendor_sdks import (
    JSON,
    Wire,
    anthropic_final,
    ask_anthropic,
    ask_openai,
    check_anthropic_event,
    check_openai_event,
    openai_client,
    openai_final,
)

Summed = list[tuple[PartKind, str]]
"""Kinds and texts of an answer's parts."""
ASKED = drawn_answers.ASKED_WITH_TOOLS


def _messages(stream: bytes | None, body: bytes | None) -> Summed:
    message = ask_anthropic(Wire(body, kind=JSON)) if body is not None else anthropic_final(stream or b"")
    found = Summed()
    for block in message.content:
        match block.type:
            case "text":
                found.append((PartKind.TEXT, block.text))
            case "thinking":
                found.append((PartKind.THINKING, block.thinking))
            case "redacted_thinking":
                found.append((PartKind.THINKING, ""))
            case "tool_use":
                found.append((PartKind.TOOL_CALL, json.dumps(block.input)))
            case other:
                pytest.fail(other)
    return found


def _responses(stream: bytes | None, body: bytes | None) -> Summed:
    response = ask_openai(Wire(body, kind=JSON)) if body is not None else openai_final(stream or b"")
    found = Summed()
    for item in response.output:
        match item.type:
            case "message":
                found += [
                    (PartKind.TEXT, part.text) if part.type == "output_text" else (PartKind.REFUSAL, part.refusal)
                    for part in item.content
                ]
            case "reasoning":
                found.append((PartKind.THINKING, "".join(part.text for part in item.summary)))
            case "function_call":
                found.append((PartKind.TOOL_CALL, json.dumps(json.loads(item.arguments))))
            case "custom_tool_call":
                found.append((PartKind.TOOL_CALL, item.input))
            case other:
                pytest.fail(other)
    return found


_TOOLS: list[openai.types.chat.ChatCompletionToolParam] = [
    {"type": "function", "function": {"name": "shell", "parameters": {}}}
]


def _chat(stream: bytes | None, body: bytes | None) -> Summed:
    asked: Any = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": _TOOLS}
    with openai_client(Wire(stream or b"") if body is None else Wire(body, kind=JSON)) as client:
        if body is not None:
            completion = client.chat.completions.create(**asked)
        else:
            with client.chat.completions.stream(**asked) as events:
                completion = events.get_final_completion()
    message = completion.choices[0].message
    thoughts = getattr(message, "reasoning_content", None) or ""
    calls = [json.dumps(json.loads(call.function.arguments)) for call in message.tool_calls or []]
    found = [
        (PartKind.THINKING, thoughts),
        (PartKind.TEXT, message.content or ""),
        (PartKind.REFUSAL, message.refusal or ""),
    ]
    return [part for part in found if part[1]] + [(PartKind.TOOL_CALL, call) for call in calls]


SUMS = {Protocol.MESSAGES: _messages, Protocol.RESPONSES: _responses, Protocol.CHAT: _chat}


def expected(client: Protocol, origin: Protocol, answer: Answer) -> Summed:
    """Return what the SDK must make of it."""
    parts = as_told(client, answer, origin).parts
    return [
        (part.kind, part.text if part.call is None or part.call.tool.custom else json.dumps(json.loads(part.text)))
        for part in parts
    ]


def spoken(parts: Summed, answer: Answer) -> Summed:
    """Leave out what says nothing, and OpenAI's words for a refusal that came without any."""
    found = [part for part in parts if part[1]]
    if answer.stop is Stop.REFUSAL and not any(part.kind is PartKind.REFUSAL for part in answer.parts):
        found = [part for part in found if part[0] is not PartKind.REFUSAL]
    return found


def _raising(client: Protocol, answer: Answer) -> bool:
    """OpenAI's stream helpers raise on an answer that was cut short or filtered: that is their way to say so."""
    cut = {Stop.MAX_TOKENS, Stop.CONTEXT_FULL, Stop.CONTENT_FILTER}
    return client is not Protocol.MESSAGES and answer.stop in (cut | ({Stop.REFUSAL} & _FILTERS[client]))


_FILTERS: Mapping[Protocol, set[Stop]] = {Protocol.CHAT: {Stop.REFUSAL}, Protocol.RESPONSES: set()}


@EACH_PAIR
@settings(thoroughly, max_examples=max(10, EXAMPLES // 4))
@given(data=st.data())
def test_the_sdks_sum_up_what_was_written(client: Protocol, upstream: Protocol, data: st.DataObject) -> None:
    events = data.draw(drawn_answers.answers(client, upstream))
    answer, there = listen(events), target(upstream)
    wanted = spoken(expected(client, upstream, answer), answer)
    body = CODECS[client].write_body(ASKED, there, events)
    assert spoken(SUMS[client](None, body), answer) == wanted
    if not _raising(client, answer):
        assert spoken(SUMS[client](write(client, events, ASKED, there), None), answer) == wanted


@EACH_PAIR
@settings(thoroughly, max_examples=max(10, EXAMPLES // 4))
@given(data=st.data())
def test_every_event_has_every_field_that_the_sdks_types_require(
    client: Protocol, upstream: Protocol, data: st.DataObject
) -> None:
    events = _counted(data.draw(drawn_answers.answers(client, upstream)))
    _, written = SseReader().feed(write(client, events, ASKED, target(upstream)))
    for event in written:
        match client:
            case Protocol.MESSAGES:
                check_anthropic_event(event)
            case Protocol.RESPONSES if event.name != b"response.failed":  # its codes are a closed list in the types
                check_openai_event(event)
            case Protocol.CHAT if event.data != b"[DONE]":
                openai.types.chat.ChatCompletionChunk.model_validate_json(event.data)
            case _:
                pass
    if client is Protocol.RESPONSES:
        numbers = [json.loads(event.data)["sequence_number"] for event in written]
        assert numbers == list(range(len(numbers)))


def _counted(events: tuple[Event, ...]) -> tuple[Event, ...]:
    """Let the provider report everything: what it does not, is left out although the types may require it."""
    return tuple(Counted(Usage(100, 40, 10), 7, 3) if isinstance(event, Counted) else event for event in events)


@pytest.mark.parametrize("client", CODECS, ids=[protocol.value for protocol in CODECS])
@pytest.mark.parametrize("stream", FAILED, ids=ids(FAILED))
def test_the_sdks_raise_on_an_answer_that_failed(client: Protocol, stream: Any) -> None:
    events = read(stream.protocol, stream.data)
    assert any(isinstance(event, Broken) for event in events)
    written = write(client, events, ASKED, target(stream.protocol))
    with pytest.raises(Exception) as caught:  # noqa: PT011 -- the SDKs raise of their own kinds, checked below
        SUMS[client](written, None)
    assert type(caught.value).__module__.split(".")[0] in {"anthropic", "openai"} or isinstance(
        caught.value, RuntimeError
    )


def test_the_recorded_streams_are_all_used() -> None:
    protocols: Mapping[Protocol, int] = {
        protocol: sum(stream.protocol is protocol for stream in RECORDED) for protocol in CODECS
    }
    assert min(protocols.values()) > 8
