import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachegate.errors import BadInput
from cachegate.wire.codecs import CODECS
from cachegate.wire.compaction import SUMMARY_PREFACE, UNREADABLE
from cachegate.wire.copilot.history import (
    NO_RESULT,
    STRAY_RESULT,
    Answered,
    Attachment,
    Called,
    Returned,
    Said,
    Step,
    mark,
    steps_of,
)
from cachegate.wire.copilot.setup import ask, tool_names
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import (
    Compacted,
    Document,
    Image,
    Item,
    Message,
    Part,
    Reasoning,
    Request,
    Role,
    Text,
    ToolCall,
    ToolRef,
    ToolResult,
)

READ = ToolRef("Read")
PICTURE = Image(data="iVBO", media_type="image/png")


def steps(*items: Item) -> tuple[Step, ...]:
    return steps_of(items, tool_names(Request("m", stream=False, items=items)))


def user(*texts: str) -> Message:
    return Message(Role.USER, tuple(Text(text) for text in texts))


def assistant(text: str) -> Message:
    return Message(Role.ASSISTANT, (Text(text),))


def call(call_id: str, arguments: str = '{"path": "/a"}', tool: ToolRef = READ) -> ToolCall:
    return ToolCall(call_id, tool, arguments)


def result(call_id: str, *parts: Part, is_error: bool = False) -> ToolResult:
    return ToolResult(call_id, parts or (Text("done"),), is_error=is_error)


# --- every kind of item ---


@pytest.mark.parametrize(
    ("items", "told"),
    [
        pytest.param((user("a", "b"),), (Said("a\n\nb"),), id="parts of a message are parted by an empty line"),
        pytest.param(
            (Message(Role.USER, (Text("see"), PICTURE)),),
            (Said("see", (Attachment("iVBO", "image/png"),)),),
            id="a picture goes along",
        ),
        pytest.param(
            (Message(Role.USER, (Document(data="JVBE", media_type="application/pdf", name="a.pdf"),)),),
            (Said("", (Attachment("JVBE", "application/pdf", "a.pdf"),)),),
            id="a file goes along with its name",
        ),
        pytest.param(
            (Message(Role.USER, (Document(data="AAAA"),)),),
            (Said("", (Attachment("AAAA", "application/octet-stream"),)),),
            id="a file of no kind is any bytes",
        ),
        pytest.param((Message(Role.USER, (Document(text="plain"),)),), (Said("plain"),), id="a text file is text"),
        pytest.param(
            (user("a"), Message(Role.SYSTEM, (Text("careful"),))),
            (Said("a"), Said("<system-reminder>\ncareful\n</system-reminder>")),
            id="the system in the midst",
        ),
        pytest.param(
            (user("a"), Message(Role.DEVELOPER, (Text("b"), PICTURE))),
            (Said("a"), Said("<system-reminder>\nb\n</system-reminder>", (Attachment("iVBO", "image/png"),))),
            id="the developer in the midst",
        ),
        pytest.param(
            (assistant("so"), call("c1"), call("c2", "{}"), assistant(" it is")),
            (Answered("so it is", (Called("c1", "Read", '{"path": "/a"}'), Called("c2", "Read", "{}"))),),
            id="texts and calls of an answer are one step",
        ),
        pytest.param(
            (Message(Role.ASSISTANT, (Text("look"), PICTURE)),),
            (Answered("look[A picture or document stood here.]"),),
            id="what the assistant showed is named",
        ),
        pytest.param((Reasoning("hm", opaque="x"), assistant("a")), (Answered("a"),), id="thoughts leave no trace"),
        pytest.param(
            (assistant("a"), Reasoning("hm"), call("c1", "{}")),
            (Answered("a", (Called("c1", "Read", "{}"),)),),
            id="nor do they part an answer",
        ),
        pytest.param((Compacted(text="so far"),), (Said(SUMMARY_PREFACE + "so far"),), id="a summary of ours"),
        pytest.param((Compacted(opaque="x"),), (Said(UNREADABLE),), id="a summary that nobody can read"),
        pytest.param(
            (call("c1", "*** patch", ToolRef("apply_patch", custom=True)),),
            (Answered("", (Called("c1", "apply_patch", '{"input":"*** patch"}'),)),),
            id="the input of a freeform tool is wrapped",
        ),
        pytest.param(
            (call("c1", "{}", ToolRef("read", "files")),),
            (Answered("", (Called("c1", "files__read", "{}"),)),),
            id="a tool of a namespace has a flat name",
        ),
    ],
)
def test_what_an_item_says(items: tuple[Item, ...], told: tuple[Step, ...]) -> None:
    assert steps(*items) == told


def test_results_follow_the_answer_that_asked_for_them() -> None:
    calls = (call("c1", "{}"), call("c2", "{}"))
    told = steps(user("go"), *calls, result("c2", Text("b"), PICTURE), result("c1", Text("a"), is_error=True))
    assert told[2:] == (
        Returned("c2", "b", (Attachment("iVBO", "image/png"),)),
        Returned("c1", "a", is_error=True),
    )


def test_a_call_that_nobody_answered_gets_a_result_before_anything_else_is_said() -> None:
    told = steps(user("go"), call("c1"), call("c2"), result("c2"), user("stop"), assistant("ok"))
    assert told[2:4] == (Returned("c2", "done"), Returned("c1", NO_RESULT, is_error=True))
    assert told[4:] == (Said("stop"), Answered("ok"))


def test_what_waits_for_results_at_the_end_waits_on() -> None:
    assert len(steps(user("go"), call("c1"))) == 2


def test_an_answer_behind_results_is_a_new_one_and_closes_what_is_open() -> None:
    told = steps(call("c1", "{}"), call("c2", "{}"), result("c1"), assistant("next"))
    assert told[1:] == (Returned("c1", "done"), Returned("c2", NO_RESULT, is_error=True), Answered("next"))


@pytest.mark.parametrize("before", [(), (call("c2", "{}"), result("c2"))], ids=["no call", "another call"])
def test_a_result_of_an_unknown_call_is_told_as_text_with_its_pictures(before: tuple[Item, ...]) -> None:
    told = steps(*before, result("c9", Text("found"), PICTURE))
    assert told[-1] == Said(STRAY_RESULT.format("c9") + "found", (Attachment("iVBO", "image/png"),))


def test_a_second_result_of_a_call_is_one_of_an_unknown_call() -> None:
    told = steps(call("c1", "{}"), result("c1"), result("c1", Text("again")))
    assert told[1:] == (Returned("c1", "done"), Said(STRAY_RESULT.format("c1") + "again"))


@pytest.mark.parametrize(
    ("part", "what"),
    [(Image(url="https://a.example/b.png"), "image"), (Document(url="https://a.example/b.pdf"), "document")],
)
def test_a_picture_by_address_is_refused_by_name(part: Image | Document, what: str) -> None:
    with pytest.raises(BadInput, match=f"{what}: Copilot takes no addresses"):
        steps(Message(Role.USER, (part,)))
    with pytest.raises(BadInput, match=what):
        steps(call("c1"), result("c1", part))


@pytest.mark.parametrize(("media_type", "kind"), [("image/png", "image"), ("application/pdf", "resource")])
def test_what_the_runtime_calls_an_attachment(media_type: str, kind: str) -> None:
    assert Attachment("x", media_type).kind == kind


# --- marks ---

TOOL = {"path": {"type": "string"}}


def messages_body() -> dict[str, object]:
    source = {"type": "base64", "media_type": "image/png", "data": "iVBO"}
    return {
        "model": "m", "max_tokens": 10, "system": "Be brief.", "stream": True,
        "tools": [{"name": "Read", "input_schema": {"type": "object", "properties": TOOL}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "see"}, {"type": "image", "source": source}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
                {"type": "text", "text": "I look. "},
                {"type": "tool_use", "id": "c1", "name": "Read", "input": {"path": "/a", "limit": 10}},
                {"type": "tool_use", "id": "c2", "name": "Read", "input": {}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "one"},
                {"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": "two"}]},
                {"type": "text", "text": "and now?"},
            ]},
        ],
    }  # fmt: skip


def responses_body() -> dict[str, object]:
    picture = {"type": "input_image", "image_url": "data:image/png;base64,iVBO"}
    return {
        "model": "m", "instructions": "Be brief.", "stream": True,
        "tools": [{"type": "function", "name": "Read", "parameters": {"type": "object", "properties": TOOL}}],
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "see"}, picture]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
            {"type": "function_call", "call_id": "c1", "name": "Read", "arguments": '{"limit": 10, "path": "/a"}'},
            {"type": "function_call", "call_id": "c2", "name": "Read", "arguments": "{ }"},
            {"type": "function_call_output", "call_id": "c1", "output": "one"},
            {"type": "function_call_output", "call_id": "c2", "output": "two"},
            {"type": "message", "role": "user", "content": "and now?"},
        ],
    }  # fmt: skip


def chat_body() -> dict[str, object]:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}}
    first = {"name": "Read", "arguments": '{"path":"/a","limit":1.0e1}'}
    second = {"name": "Read", "arguments": "{}"}
    function = {"name": "Read", "parameters": {"type": "object", "properties": TOOL}}
    return {
        "model": "m", "stream": True, "tools": [{"type": "function", "function": function}],
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "see"}, picture]},
            {"role": "assistant", "content": "I look.\n", "tool_calls": [
                {"id": "c1", "type": "function", "function": first},
                {"id": "c2", "type": "function", "function": second},
            ]},
            {"role": "tool", "tool_call_id": "c1", "content": "one"},
            {"role": "tool", "tool_call_id": "c2", "content": "two"},
            {"role": "user", "content": "and now?"},
        ],
    }  # fmt: skip


BODIES = {Protocol.MESSAGES: messages_body, Protocol.RESPONSES: responses_body, Protocol.CHAT: chat_body}


def marks_over(protocol: Protocol) -> list[bytes]:
    request = CODECS[protocol].parse_request(json.dumps(BODIES[protocol]()).encode())
    return [mark(step) for step in ask(request, "m", tool_names(request))[1]]


def test_a_conversation_has_the_same_marks_over_every_protocol() -> None:
    over = [marks_over(protocol) for protocol in Protocol]
    assert len(over[0]) == 5
    assert all(one == other for one, other in pairwise(over))


ANSWER = Answered("a", (Called("c1", "Read", '{"path":"/a","n":[1,{"x":2,"y":3}]}'),))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ANSWER, Answered("a", (Called("c1", "Read", ' { "n" : [ 1 , {"y":3,"x":2} ], "path" : "\\u002fa" } '),))),
        (ANSWER, Answered("a \n", ANSWER.calls)),
        (Answered("", (Called("c1", "Read", '{"n":1.0}'),)), Answered("", (Called("c1", "Read", '{"n":1}'),))),
        (Said("a", (Attachment("x", "image/png", "a"),)), Said("a", (Attachment("x", "image/png"),))),
    ],
    ids=["spelling of arguments", "blanks around an answer", "a whole number", "name of a file"],
)
def test_what_says_the_same_has_the_same_mark(one: Step, other: Step) -> None:
    assert mark(one) == mark(other)


DIFFERENT: tuple[Step, ...] = (
    Said("a"),
    Said("a "),
    Said("b"),
    Said("a", (Attachment("x", "image/png"),)),
    Said("a", (Attachment("y", "image/png"),)),
    Said("a", (Attachment("x", "image/jpeg"),)),
    Answered("a"),
    Answered("b"),
    ANSWER,
    Answered("a", (Called("c2", "Read", ANSWER.calls[0].arguments),)),
    Answered("a", (Called("c1", "Write", ANSWER.calls[0].arguments),)),
    Answered("a", (Called("c1", "Read", '{"path":"/a","n":[{"x":2,"y":3},1]}'),)),
    Answered("a", (Called("c1", "Read", '{"path":"/a","n":"1"}'),)),
    Answered("a", (Called("c1", "Read", '{"path":"/a","n":1}'),)),
    Answered("a", (Called("c1", "Read", '{"path":"/a","n":1.5}'),)),
    Answered("a", (Called("c1", "Read", '{"path":'),)),
    Answered("a", (Called("c1", "Read", '{"path": '),)),
    Answered("a", (*ANSWER.calls, Called("c2", "Read", "{}"))),
    Returned("a", ""),
    Returned("c1", "a"),
    Returned("c2", "a"),
    Returned("c1", "b"),
    Returned("c1", "a", is_error=True),
    Returned("c1", "a", (Attachment("x", "image/png"),)),
    Returned("c1", "a", (Attachment("y", "image/png"),)),
    Returned("c1", "a", (Attachment("x", "image/jpeg"),)),
)


def test_whatever_else_differs_has_a_mark_of_its_own() -> None:
    assert len({mark(step) for step in DIFFERENT}) == len(DIFFERENT)


def test_a_lone_surrogate_has_a_mark() -> None:
    assert mark(Answered("a", (Called("c1", "Read", '{"a":"\ud83d"}'),)))


# --- the law of prefixes ---

IDS = st.sampled_from(["c1", "c2", "c3"])
ITEMS: st.SearchStrategy[Item] = st.one_of(
    st.builds(user, st.sampled_from(["a", "b"])),
    st.builds(assistant, st.sampled_from(["x", "y "])),
    st.builds(lambda text: Message(Role.SYSTEM, (Text(text),)), st.sampled_from(["s", "t"])),
    st.builds(call, IDS, st.sampled_from(["{}", '{"a":1}'])),
    st.builds(result, IDS),
    st.just(Reasoning("hm")),
    st.just(Compacted(text="so far")),
)


@given(items=st.lists(ITEMS, max_size=12), cut=st.integers(0, 12))
def test_the_steps_of_a_conversation_begin_those_of_its_continuation(items: list[Item], cut: int) -> None:
    before, after = steps(*items[:cut]), steps(*items)
    assert len(before) <= len(after)
    assert before[:-1] == after[: len(before) - 1] if before else True
    if before and before[-1] != (grown := after[len(before) - 1]):
        last = before[-1]
        assert isinstance(last, Answered)
        assert isinstance(grown, Answered)
        assert grown.text.startswith(last.text)
        assert grown.calls[: len(last.calls)] == last.calls


@given(items=st.lists(ITEMS, max_size=12))
def test_every_call_is_answered_before_the_next_step_that_is_no_result(items: list[Item]) -> None:
    waiting: list[str] = []
    for step in steps(*items):
        if isinstance(step, Returned):
            waiting.remove(step.call_id)
            continue
        assert waiting == []
        waiting = [each.call_id for each in step.calls] if isinstance(step, Answered) else []
