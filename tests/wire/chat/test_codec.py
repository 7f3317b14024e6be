import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegate.errors import ErrorKind
from cachegate.wire.chat.codec import CODEC, ChatCodec
from cachegate.wire.codec import Codec
from cachegate.wire.envelopes import Envelope, open_envelope, seal
from cachegate.wire.facts import Operation, Protocol
from cachegate.wire.hub import (
    Broken,
    Delta,
    Ended,
    Item,
    Message,
    PartEnded,
    PartKind,
    PartStarted,
    Reasoning,
    Request,
    Role,
    Stop,
    Text,
    ToolCall,
    ToolRef,
    ToolResult,
)
from cachegate.wire.quirks import Quirk
from wire.chat.chunks import DONE, ROLE, calls, chunk, piece, read, target, usage, write

BODY = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Be good."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "https://x"}}],
        },
        {
            "role": "assistant",
            "content": "b",
            "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "shell", "arguments": "{ }"}},
                {"id": "2", "type": "function", "function": {"name": "shell", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "2", "content": "two"},
        {"role": "tool", "tool_call_id": "1", "content": "one"},
        {"role": "developer", "content": "note"},
        {"role": "user", "content": "c"},
    ],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "shell",
                "description": "Runs.",
                "parameters": {"type": "object", "properties": {}},
                "strict": True,
            },
        }
    ],
    "tool_choice": "required",
    "parallel_tool_calls": True,
    "max_completion_tokens": 9,
    "stop": ["END"],
    "temperature": 0.5,
    "top_p": 0.5,
    "reasoning_effort": "high",
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "n", "strict": True, "schema": {"type": "object"}},
    },
    "stream": True,
    "stream_options": {"include_usage": True},
    "prompt_cache_key": "k",
    "service_tier": "priority",
    "verbosity": "low",
}


def test_the_codec_is_one() -> None:
    codec: Codec = CODEC
    assert isinstance(codec, ChatCodec)


def test_what_the_protocol_can_say_comes_out_as_it_went_in() -> None:
    request = CODEC.parse_request(json.dumps(BODY).encode(), Operation.GENERATE)
    quirks = (Quirk.EFFORT, Quirk.CHAT_CACHE_KEY, Quirk.PRIORITY_TIER, Quirk.VERBOSITY)
    rendered = CODEC.render_request(request, target(*quirks))
    assert json.loads(rendered) == {**BODY, "model": "kimi"}
    again = CODEC.parse_request(rendered)
    assert (again.items, again.tools, again.instructions) == (request.items, request.tools, request.instructions)


def test_errors_go_both_ways() -> None:
    broken = CODEC.read_error(529, b'{"error":{"message":"Busy.","type":"overloaded_error"}}')
    assert broken == Broken(ErrorKind.UNAVAILABLE, 529, "overloaded_error", "Busy.")
    answer = CODEC.write_error(broken, "req_1")
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (503, "server_is_overloaded")


def carried(events: Any) -> tuple[Item, ...]:
    """Return a turn as a client of another protocol hands it back, with thoughts in envelopes."""
    texts: dict[int, str] = {}
    items: list[Item] = []
    started: dict[int, PartStarted] = {}
    for event in events:
        match event:
            case PartStarted():
                started[event.index] = event
            case Delta():
                texts[event.index] = texts.get(event.index, "") + event.text
            case PartEnded():
                begun, text = started[event.index], texts.get(event.index, "")
                if begun.kind is PartKind.THINKING:
                    sealed = seal(Envelope(Protocol.CHAT, "account-one", text, event.opaque or "", "", event.redacted))
                    envelope = open_envelope(sealed)
                    assert envelope is not None
                    items.append(
                        Reasoning(
                            envelope.text, envelope.opaque, envelope.origin, None, envelope.redacted, envelope.binding
                        )
                    )
                elif begun.call is not None:
                    items.append(ToolCall(begun.call.call_id, begun.call.tool, text))
                else:
                    items.append(Message(Role.ASSISTANT, (Text(text),)))
    return tuple(items)


@pytest.mark.parametrize(
    ("stream", "quirk", "message"),
    [
        (
            chunk({"reasoning_content": "Hm."})
            + chunk({"content": "a"})
            + calls(piece("{ }", index=0, id="c", name="shell")),
            Quirk.REASONING_CONTENT,
            {
                "content": "a",
                "reasoning_content": "Hm.",
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "shell", "arguments": "{ }"}}],
            },
        ),
        (
            chunk({"reasoning_details": [{"type": "reasoning.text", "text": "H", "index": 0}]})
            + chunk({"reasoning_details": [{"type": "reasoning.text", "text": "m.", "index": 0, "signature": "s"}]})
            + chunk({"content": "a"}),
            Quirk.REASONING_OBJECT,
            {
                "content": "a",
                "reasoning_details": [{"type": "reasoning.text", "text": "Hm.", "index": 0, "signature": "s"}],
            },
        ),
        (
            calls(
                {**piece("{}", index=0, id="c", name="shell"), "extra_content": {"google": {"thought_signature": "s"}}}
            ),
            Quirk.NO_DEVELOPER,
            {
                "content": None,
                "tool_calls": [
                    {
                        "id": "c",
                        "type": "function",
                        "function": {"name": "shell", "arguments": "{}"},
                        "extra_content": {"google": {"thought_signature": "s"}},
                    }
                ],
            },
        ),
    ],
)
def test_what_a_server_said_comes_back_to_it_as_it_was_also_through_another_protocol(
    stream: bytes, quirk: Quirk, message: dict[str, Any]
) -> None:
    items = carried(read(chunk(ROLE) + stream + chunk({}, "stop") + DONE))
    answered = [ToolResult(item.call_id, (Text("r"),)) for item in items if isinstance(item, ToolCall)]
    request = Request("m", stream=False, items=(*items, *answered, Message(Role.USER, (Text("go"),))))
    rendered = json.loads(CODEC.render_request(request, target(quirk)))["messages"]
    assert rendered[0] == {"role": "assistant", **message}
    elsewhere = target(quirk)
    assert b'"s"' not in CODEC.render_request(request, type(elsewhere)("m", "account-two", quirks=elsewhere.quirks))


def test_a_streamed_answer_is_written_as_it_was_read() -> None:
    stream = chunk(ROLE) + chunk({"content": "Hi"}) + calls(piece("{}", index=0, id="a", name="shell"))
    stream += chunk({}, "tool_calls") + usage() + DONE
    events = read(stream)
    again = read(write(events))
    assert events[-1] == again[-1] == Ended(Stop.TOOL_CALLS)
    assert [event for event in events if isinstance(event, Delta | PartEnded)] == [
        event for event in again if isinstance(event, Delta | PartEnded)
    ]


words = st.sampled_from(("a", "b\n", "é\u2028", '"\\', " ", "")) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=5
)
turns = st.lists(
    st.tuples(words, st.lists(words, max_size=2), st.lists(st.tuples(words, st.booleans()), max_size=3)), max_size=4
)


MARK = re.compile(rb',"(?:copilot_)?cache_control":\{"type":"ephemeral"\}')


def conversation(drawn: list[tuple[str, list[str], list[tuple[str, bool]]]]) -> list[tuple[Item, ...]]:
    """Return rounds: a question, and an answer in words and calls with their results."""
    rounds: list[tuple[Item, ...]] = []
    for number, (question, said, called) in enumerate(drawn):
        ids = [f"c{number}.{at}" for at in range(len(called))]
        rounds.append(
            (
                *(Message(Role.ASSISTANT, (Text(text),)) for text in said),
                *(ToolCall(call_id, ToolRef("shell"), "{}") for call_id in ids),
                *(
                    ToolResult(call_id, (Text(text),), is_error=failed)
                    for call_id, (text, failed) in zip(ids, called, strict=True)
                ),
                Message(Role.USER, (Text(question),)),
            )
        )
    return rounds


@settings(deadline=None)
@given(turns, st.sampled_from([(), *[(quirk,) for quirk in Quirk], tuple(Quirk)]))
def test_the_messages_of_a_request_are_a_prefix_of_those_of_its_continuation(
    drawn: list[tuple[str, list[str], list[tuple[str, bool]]]], quirks: tuple[Quirk, ...]
) -> None:
    rounds = conversation(drawn)
    opening = (Message(Role.DEVELOPER, (Text("d"),)), Message(Role.USER, (Text("q"),)))
    before: list[Any] = []
    for count in range(len(rounds) + 1):
        items = (*opening, *(item for one in rounds[:count] for item in one))
        body = CODEC.render_request(Request("m", stream=True, items=items), target(*quirks))
        messages = json.loads(MARK.sub(b"", body))["messages"]
        assert messages[: len(before)] == before
        before = messages
