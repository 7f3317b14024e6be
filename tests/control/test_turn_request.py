"""A thread's next request: prefix-stable, in its own name and class, with nobody's headers but the caller's."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachegate.control import turn_request
from cachegate.control.params import DynamicTool, ImageInput, InputImage, InputText, TextInput
from cachegate.control.thread import Settings
from cachegate.control.turn_request import (
    Asking,
    compacted,
    inference_of,
    passed_up,
    shown_content,
    shown_input,
    tool_result,
    tools_of,
    user_message,
)
from cachegate.errors import BadInput, ErrorKind
from cachegate.wire.compaction import SUMMARY_REQUEST
from cachegate.wire.facts import Protocol, RequestClass, Sender
from cachegate.wire.hub import Image, Item, Message, Role, Text, ToolCall, ToolRef, ToolResult
from control.histories import histories

BYTES_MAX = 67_108_864
SECRET = b"s" * 32
TOOLS = tools_of([DynamicTool("look_up", "Looks up.", {"type": "object"})])
protocols = st.sampled_from((Protocol.RESPONSES, Protocol.MESSAGES))


def asked(protocol: Protocol, history: tuple[Item, ...], *, compacts: bool = False) -> bytes:
    settings = Settings("model-x", protocol, "Be kind.", TOOLS, "high", 1_000)
    return inference_of(Asking("thread_1", settings, history, (), compacts), BYTES_MAX, SECRET).inference.body


def turns(body: bytes) -> list[object]:
    fields = json.loads(body)
    text = json.dumps(fields.get("input") or fields["messages"])
    found: list[object] = json.loads(text.replace(', "cache_control": {"type": "ephemeral"}', ""))
    return found


@given(protocols.flatmap(lambda protocol: st.tuples(st.just(protocol), histories(protocol))))
def test_a_compaction_is_the_same_prompt_with_one_message_more_r4(drawn: tuple[Protocol, tuple[Item, ...]]) -> None:
    protocol, history = drawn
    history = (Message(Role.USER, (Text("hi"),)), *history, Message(Role.ASSISTANT, (Text("Done."),)))
    chat, compaction = asked(protocol, history), asked(protocol, history, compacts=True)
    assert turns(compaction)[:-1] == turns(chat)
    assert SUMMARY_REQUEST[:40] in json.dumps(turns(compaction)[-1])
    same = [{key: each for key, each in json.loads(body).items() if key not in {"input", "messages", "tools", "system"}}
            for body in (chat, compaction)]  # fmt: skip
    assert same[0] == same[1]


@pytest.mark.parametrize("protocol", [Protocol.RESPONSES, Protocol.MESSAGES])
@pytest.mark.parametrize("compacts", [True, False])
def test_who_asks_and_for_what_is_the_hosts_word_r2_r4(protocol: Protocol, *, compacts: bool) -> None:
    words = "You are a security monitor for autonomous AI coding agents."
    settings = Settings("model-x", protocol, words, max_output_tokens=1)
    history = (Message(Role.USER, (Text("You are performing a CONTEXT CHECKPOINT COMPACTION"),)),)
    inference = inference_of(Asking("thread_1", settings, history, (), compacts), BYTES_MAX, SECRET).inference
    assert inference.facts.caller == "cachegate:thread_1"
    assert inference.facts.request_class is (RequestClass.COMPACTION if compacts else RequestClass.CHAT)
    assert inference.facts.stream
    headers = Sender.of(inference.headers)
    assert headers.header("x-cachegate-thread-id") == "thread_1"
    assert headers.header("x-cachegate-request-class") == ("compaction" if compacts else "")
    assert (headers.header("anthropic-version") != "") == (protocol is Protocol.MESSAGES)


def test_only_credentials_and_what_belongs_to_them_pass() -> None:
    named = ("Authorization", "x-api-key", "Anthropic-Beta", "openai-organization", "user-agent")
    headers = tuple((name, "v") for name in (*named, "cookie", "x-cachegate-key", "session-id", "origin"))
    assert tuple(name for name, _ in passed_up(headers)) == named


def test_a_history_too_large_is_told_and_leaves_room_for_its_compaction() -> None:
    history = (Message(Role.USER, (Text("x" * 100_000),)),)
    settings = Settings("model-x")
    for compacts, bytes_max, fits in ((False, 200_000, True), (False, 120_000, False), (True, 120_000, True)):
        asking = Asking("thread_1", settings, history, (), compacts)
        if fits:
            inference_of(asking, bytes_max, SECRET)
            continue
        with pytest.raises(BadInput, match="thread/compact/start") as failed:
            inference_of(asking, bytes_max, SECRET)
        assert failed.value.kind is ErrorKind.TOO_LARGE
    assert 2 * len(SUMMARY_REQUEST) < turn_request.ROOM_FOR_COMPACTION_BYTES


def test_input_and_tools_answers_in_the_hub_and_as_shown() -> None:
    given_parts: list[TextInput | ImageInput] = [TextInput("a"), ImageInput("https://x.test")]
    assert user_message(given_parts) == Message(Role.USER, (Text("a"), Image(url="https://x.test")))
    assert shown_input(given_parts) == ({"type": "text", "text": "a"}, {"type": "image", "url": "https://x.test"})
    items: list[InputText | InputImage] = [InputText("a"), InputImage("https://x.test")]
    called = ToolCall("c1", ToolRef("look_up"), "{}")
    expected = ToolResult("c1", (Text("a"), Image(url="https://x.test")), is_error=True)
    assert tool_result(called, items, success=False) == expected
    assert shown_content(items) == (
        {"type": "inputText", "text": "a"}, {"type": "inputImage", "imageUrl": "https://x.test"},
    )  # fmt: skip


def test_what_a_compaction_leaves_is_one_message_of_the_users() -> None:
    (message,) = compacted("All of it.")
    assert isinstance(message, Message)
    assert message.role is Role.USER
    assert "All of it." in str(message.parts)
