import json
from dataclasses import replace
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from cachegate.errors import ErrorKind
from cachegate.guard.usage import Usage
from cachegate.wire.chat.answer_writer import ID_PREFIX, REASONS
from cachegate.wire.chat.codec import CODEC
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import (
    Broken,
    Counted,
    Delta,
    Ended,
    Event,
    Json,
    PartEnded,
    PartKind,
    PartStarted,
    Started,
    Stop,
    ToolCall,
    ToolRef,
)
from wire.chat.chunks import (
    ASKED,
    chunks_of,
    deltas_of,
    read,
    read_body,
    sdk_chunks,
    sdk_final,
    sdk_whole,
    target,
    write,
)

COUNTED = Counted(Usage(90, 64, 20), 7, 3)
STARTED = Started("msg_1", "claude", 5)


def said(index: int, kind: PartKind, *pieces: str, item: str | None = None, **more: Any) -> list[Event]:
    return [
        PartStarted(index, kind, item_id=item),
        *(Delta(index, piece) for piece in pieces),
        PartEnded(index, **more),
    ]


def called(index: int, ref: ToolRef, *pieces: str, call_id: str = "a") -> list[Event]:
    begun = PartStarted(index, PartKind.TOOL_CALL, ToolCall(call_id, ref, ""))
    return [begun, *(Delta(index, piece) for piece in pieces), PartEnded(index)]


def answer(*parts: list[Event], stop: Stop = Stop.END) -> list[Event]:
    return [STARTED, *(event for part in parts for event in part), COUNTED, Ended(stop)]


SHELL, PATCH = ToolRef("shell"), ToolRef("apply_patch", custom=True)
FULL = answer(
    said(0, PartKind.THINKING, "Hm, ", "über.", opaque="sig"),
    said(1, PartKind.TEXT, "Let me \u2028", "\n\n🙂."),
    called(2, SHELL, '{"cmd"', ':"ls"}'),
    called(3, SHELL, "{}", call_id="b"),
    stop=Stop.TOOL_CALLS,
)


def whole(events: list[Event], origin: Protocol = Protocol.MESSAGES) -> dict[str, Any]:
    body = CODEC.write_body(ASKED, target(origin=origin), tuple(events))
    decoded: dict[str, Any] = json.loads(body)
    return decoded


def test_a_stream_as_openai_writes_it() -> None:
    stream = write(FULL)
    assert stream.endswith(b"data: [DONE]\n\n")
    assert deltas_of(stream) == [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "Hm, "},
        {"reasoning_content": "über."},
        {"content": "Let me \u2028"},
        {"content": "\n\n🙂."},
        {"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "shell", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"cmd"'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ':"ls"}'}}]},
        {"tool_calls": [{"index": 1, "id": "b", "type": "function", "function": {"name": "shell", "arguments": ""}}]},
        {"tool_calls": [{"index": 1, "function": {"arguments": "{}"}}]},
        {},
    ]
    chunks = chunks_of(stream)
    head = {"id": "chatcmpl-msg_1", "object": "chat.completion.chunk", "created": 5, "model": "claude"}
    assert all(chunk | head == chunk for chunk in chunks)
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]] == [*[None] * 10, "tool_calls"]
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * 11
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == {
        "prompt_tokens": 90,
        "completion_tokens": 7,
        "total_tokens": 97,
        "prompt_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 20},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }


def test_no_opaque_value_of_another_protocol_gets_out() -> None:
    assert b"sig" not in write(FULL)
    assert "sig" not in json.dumps(whole(FULL))


def test_a_client_that_did_not_ask_for_usage_sees_none() -> None:
    stream = write(FULL, replace(ASKED, wants_usage=False))
    assert b"usage" not in stream
    assert stream.endswith(b"data: [DONE]\n\n")


def test_the_sdk_takes_every_chunk_and_sums_the_stream_up() -> None:
    stream = write(FULL)
    for chunk in chunks_of(stream):
        ChatCompletionChunk.model_validate(chunk)
    final = sdk_final(stream)
    message = final.choices[0].message
    assert (final.id, final.model, final.created) == ("chatcmpl-msg_1", "claude", 5)
    assert (message.content, final.choices[0].finish_reason) == ("Let me \u2028\n\n🙂.", "tool_calls")
    assert message.to_dict()["reasoning_content"] == "Hm, über."
    assert final.usage is not None
    assert (final.usage.prompt_tokens, final.usage.total_tokens) == (90, 97)
    assert [call.to_dict()["function"] for call in message.tool_calls or []] == [
        {"name": "shell", "arguments": '{"cmd":"ls"}', "parsed_arguments": None},
        {"name": "shell", "arguments": "{}", "parsed_arguments": None},
    ]


def test_the_sdk_takes_a_whole_answer() -> None:
    body = CODEC.write_body(ASKED, target(origin=Protocol.MESSAGES), tuple(FULL))
    ChatCompletion.model_validate_json(body)
    message = sdk_whole(body).choices[0].message
    assert message.content == "Let me \u2028\n\n🙂."
    assert [call.id for call in message.tool_calls or []] == ["a", "b"]


def test_our_reader_reads_back_what_was_written_streamed_and_whole() -> None:
    def heard(events: tuple[Event, ...]) -> list[Event]:
        joined: dict[tuple[int, str], str] = {}
        for event in events:
            if isinstance(event, Delta):
                key = (event.index, "")
                joined[key] = joined.get(key, "") + event.text
        rest = [event for event in events if not isinstance(event, Delta | Counted)]
        return [*rest, *(Delta(index, text) for (index, _), text in joined.items())]

    streamed = read(write(FULL))
    assert heard(read_body(whole(FULL))) == heard(streamed)
    assert [event.stop for event in streamed if isinstance(event, Ended)] == [Stop.TOOL_CALLS]
    assert COUNTED in streamed


@pytest.mark.parametrize(("stop", "reason"), REASONS.items())
def test_every_stop_has_a_reason(stop: Stop, reason: str) -> None:
    events = answer(said(0, PartKind.TEXT, "a"), stop=stop)
    assert chunks_of(write(events))[-2]["choices"][0]["finish_reason"] == reason
    assert whole(events)["choices"][0]["finish_reason"] == reason
    assert set(REASONS) == set(Stop)


def test_an_answer_with_calls_ends_with_them() -> None:
    assert whole(answer(called(0, SHELL, "{}")))["choices"][0]["finish_reason"] == "tool_calls"
    assert whole(answer(called(0, SHELL, "{"), stop=Stop.MAX_TOKENS))["choices"][0]["finish_reason"] == "length"


def test_a_call_without_arguments_has_an_empty_object() -> None:
    assert whole(answer(called(0, SHELL)))["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == "{}"
    assert deltas_of(write(answer(called(0, SHELL))))[-2] == {
        "tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]
    }


def test_a_freeform_call_is_one_for_the_client_that_declared_it() -> None:
    events = answer(called(0, PATCH, "*** B", "egin"), stop=Stop.TOOL_CALLS)
    custom = {"type": "custom", "custom": {"name": "apply_patch", "input": ""}}
    assert deltas_of(write(events))[1:-1] == [
        {"tool_calls": [{"index": 0, "id": "a", **custom}]},
        {"tool_calls": [{"index": 0, "custom": {"input": "*** B"}}]},
        {"tool_calls": [{"index": 0, "custom": {"input": "egin"}}]},
    ]
    (call,) = whole(events)["choices"][0]["message"]["tool_calls"]
    assert call == {"id": "a", "type": "custom", "custom": {"name": "apply_patch", "input": "*** Begin"}}
    assert len(sdk_chunks(write(events))) == 6


def test_a_client_gets_its_own_name_of_a_tool_whatever_it_looks_like() -> None:
    odd = ToolRef("größe klein " * 9)
    assert whole(answer(called(0, odd)))["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == odd.name
    spaced = answer(called(0, ToolRef("spawn", "agents")))
    assert whole(spaced)["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "agents__spawn"


def test_a_refusal_has_a_field_of_its_own() -> None:
    events = answer(said(0, PartKind.REFUSAL, "No", "."))
    assert deltas_of(write(events))[1:3] == [{"refusal": "No"}, {"refusal": "."}]
    message = whole(events)["choices"][0]["message"]
    assert message == {"role": "assistant", "content": None, "refusal": "No."}
    told = answer(said(0, PartKind.REFUSAL, "No."), stop=Stop.REFUSAL)
    assert whole(told)["choices"][0]["finish_reason"] == "stop"


def test_texts_are_one_text_and_those_of_two_items_do_not_run_together() -> None:
    def content(*parts: list[Event]) -> str:
        text: str = whole(answer(*parts))["choices"][0]["message"]["content"]
        assert "".join(delta.get("content") or "" for delta in deltas_of(write(answer(*parts)))) == text
        return text

    assert content(said(0, PartKind.TEXT, "a"), said(1, PartKind.TEXT, "b")) == "ab"
    one, same = said(0, PartKind.TEXT, "a", item="1"), said(1, PartKind.TEXT, "b", item="1")
    assert content(one, same) == "ab"
    assert content(one, said(1, PartKind.TEXT, "b", "c", item="2")) == "a\n\nbc"
    assert content(said(0, PartKind.TEXT, item="1"), said(1, PartKind.TEXT, "b", item="2")) == "b"


def test_calls_by_turns_keep_their_numbers() -> None:
    first, second = called(0, SHELL, "{", "}"), called(1, SHELL, "{ ", " }", call_id="b")
    mixed = [event for pair in zip(first, second, strict=True) for event in pair]
    final = sdk_final(write([STARTED, *mixed, Ended(Stop.TOOL_CALLS)]))
    calls = [call.to_dict() for call in final.choices[0].message.tool_calls or []]
    assert [call["function"]["arguments"] for call in calls] == ["{}", "{  }"]  # type: ignore[index]


# --- ids, time, usage ---


@pytest.mark.parametrize(("answer_id", "shown"), [("x", f"{ID_PREFIX}x"), ("chatcmpl-9", "chatcmpl-9")])
def test_an_id_has_the_protocols_form(answer_id: str, shown: str) -> None:
    assert whole([Started(answer_id, "m"), Ended(Stop.END)])["id"] == shown


def test_a_time_that_is_unknown_is_the_only_zero() -> None:
    assert whole([Started("x", "m"), Ended(Stop.END)])["created"] == 0


@pytest.mark.parametrize(
    ("counted", "usage"),
    [
        (Counted(Usage()), None),
        (Counted(Usage(9)), {"prompt_tokens": 9}),
        (Counted(Usage(), 7), {"completion_tokens": 7}),
        (
            Counted(Usage(9, 0), 7),
            {
                "prompt_tokens": 9,
                "completion_tokens": 7,
                "total_tokens": 16,
                "prompt_tokens_details": {"cached_tokens": 0},
            },
        ),
        (
            Counted(Usage(9, None, 4), 7),
            {
                "prompt_tokens": 9,
                "completion_tokens": 7,
                "total_tokens": 16,
                "prompt_tokens_details": {"cache_write_tokens": 4},
            },
        ),
    ],
)
def test_what_is_unknown_is_left_out(counted: Counted, usage: Json | None) -> None:
    events: list[Event] = [STARTED, counted, Ended(Stop.END)]
    assert whole(events).get("usage") == usage
    told = [chunk["usage"] for chunk in chunks_of(write(events)) if not chunk["choices"]]
    assert told == ([] if usage is None else [usage])
    sdk_final(write(events))


def test_usage_of_the_beginning_holds_until_a_later_one() -> None:
    begun = Started("x", "m", usage=Usage(9, 4))
    assert whole([begun, Ended(Stop.END)])["usage"]["prompt_tokens"] == 9
    assert whole([begun, Counted(Usage(10, 4), 1), Ended(Stop.END)])["usage"]["prompt_tokens"] == 10


# --- an upstream of this protocol ---

CITED = {"url": "https://x", "title": "X", "start_index": 0, "end_index": 1}


@pytest.mark.parametrize("note", [{"type": "url_citation", **CITED}, {"type": "url_citation", "url_citation": CITED}])
def test_a_citation_of_an_address_is_told_in_this_protocols_form(note: Json) -> None:
    events = answer(said(0, PartKind.TEXT, "a", annotations=(note, {"type": "char_location"})))
    expected = [{"type": "url_citation", "url_citation": CITED}]
    assert whole(events)["choices"][0]["message"]["annotations"] == expected
    assert {"annotations": expected} in deltas_of(write(events))


@pytest.mark.parametrize("origin", [None, Protocol.CHAT])
def test_what_a_chat_upstream_wants_back_is_given_to_the_client(origin: Protocol | None) -> None:
    details = '[{"type":"reasoning.text","text":"Hm.","signature":"s"}]'
    extra = said(1, PartKind.THINKING, opaque='{"id":"a","extra_content":{"g":1}}', redacted=True)
    events = answer(said(0, PartKind.THINKING, "Hm.", opaque=details), extra, called(2, SHELL, "{}"))
    stream = write(events, there=target(origin=origin))
    message = json.loads(CODEC.write_body(ASKED, target(origin=origin), tuple(events)))["choices"][0]["message"]
    assert message["reasoning_details"] == json.loads(details)
    assert message["tool_calls"][0]["extra_content"] == {"g": 1}
    assert {"reasoning_details": json.loads(details)} in deltas_of(stream)
    assert deltas_of(stream)[-3]["tool_calls"][0]["extra_content"] == {"g": 1}
    assert b"reasoning_details" not in write(events)


# --- failures ---

BROKEN = Broken(ErrorKind.UNAVAILABLE, 529, "overloaded_error", "Overloaded.")


def test_a_failure_ends_the_stream_without_done_and_the_sdk_raises_it() -> None:
    stream = write([STARTED, *said(0, PartKind.TEXT, "Half"), BROKEN, Ended(Stop.END), COUNTED])
    assert b"[DONE]" not in stream
    assert json.loads(stream.split(b"data: ")[-1])["error"] == {
        "message": "Overloaded.",
        "type": "server_error",
        "code": "server_is_overloaded",
        "param": None,
    }
    with pytest.raises(openai.APIError, match="Overloaded"):
        sdk_chunks(stream)
    assert isinstance(read(stream)[-1], Broken)


def test_nothing_follows_the_end() -> None:
    assert write([*FULL, *FULL]) == write(FULL)


def test_events_of_parts_that_never_began_say_nothing() -> None:
    odd: list[Event] = [Delta(7, "x"), PartEnded(7), PartStarted(0, PartKind.TOOL_CALL), Delta(0, "x"), PartEnded(0)]
    assert deltas_of(write([STARTED, *odd, Ended(Stop.END)])) == [{"role": "assistant", "content": ""}, {}]
