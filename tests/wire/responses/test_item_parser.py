from typing import Any

import pytest

from cachegate.errors import BadInput
from cachegate.wire.compaction import seal_summary
from cachegate.wire.envelopes import Envelope, seal
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import (
    Compacted,
    Document,
    Image,
    Item,
    Message,
    Part,
    Reasoning,
    Role,
    Text,
    Tool,
    ToolCall,
    ToolRef,
    ToolResult,
)
from cachegate.wire.responses.item_parser import (
    DROPPED_ITEMS,
    HANDLED_ELSEWHERE,
    NOTHING_FOUND,
    loaded_tools,
    parse_item,
    parse_parts,
)
from cachegate.wire.responses.tool_parser import CLIENT_SEARCH
from cachegate.wire.responses.typed_fields import Field

PNG = "iVBORw0KGgo="


def parsed(item: Any) -> tuple[Item, ...]:
    return parse_item(Field("input[0]", item))


def parts(*given: Any) -> tuple[Part, ...]:
    return parse_parts(Field("content", list(given)))


@pytest.mark.parametrize("role", list(Role))
def test_a_message_is_said_by_its_role_with_or_without_its_type(role: Role) -> None:
    said = (Message(role, (Text("hi"),)),)
    assert parsed({"role": role.value, "content": "hi"}) == said
    content = [{"type": "output_text" if role is Role.ASSISTANT else "input_text", "text": "hi"}]
    assert parsed({"type": "message", "role": role.value, "content": content}) == said


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"type": "input_text", "text": "a"}, Text("a")),
        ({"type": "text", "text": "a"}, Text("a")),
        ({"type": "input_text", "text": "a", "prompt_cache_breakpoint": {"mode": "explicit"}}, Text("a", marked=True)),
        ({"type": "output_text", "text": "a", "annotations": [{"type": "x"}]}, Text("a", annotations=({"type": "x"},))),
        ({"type": "refusal", "refusal": "No."}, Text("No.", refusal=True)),
        ({"type": "input_image", "image_url": "https://x/a.png"}, Image(url="https://x/a.png")),
        (
            {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "high"},
            Image(data=PNG, media_type="image/png", detail="high"),
        ),
        ({"type": "input_image", "image_url": "data:,plain"}, Image(url="data:,plain")),
        ({"type": "input_file", "file_url": "https://x/a.pdf"}, Document(url="https://x/a.pdf")),
        (
            {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"},
            Document(data="JVBE", media_type="application/pdf", name="a.pdf"),
        ),
        ({"type": "input_file", "file_data": "JVBE"}, Document(data="JVBE")),
    ],
)
def test_every_part_is_read(given: Any, part: Part) -> None:
    assert parts(given) == (part,)


@pytest.mark.parametrize(
    ("given", "items"),
    [
        (
            {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "shell", "arguments": '{ "a":1}'},
            (ToolCall("c1", ToolRef("shell"), '{ "a":1}'),),
        ),
        (
            {"type": "function_call", "call_id": "c1", "name": "spawn", "namespace": "agents", "arguments": ""},
            (ToolCall("c1", ToolRef("spawn", "agents"), ""),),
        ),
        (
            {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": "*** Begin"},
            (ToolCall("c1", ToolRef("apply_patch", custom=True), "*** Begin"),),
        ),
        ({"type": "function_call_output", "call_id": "c1", "output": "ok"}, (ToolResult("c1", (Text("ok"),)),)),
        ({"type": "function_call_output", "call_id": "c1", "output": ""}, (ToolResult("c1", ()),)),
        (
            {
                "type": "function_call_output",
                "call_id": "c1",
                "output": [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "https://x/a"}],
            },
            (ToolResult("c1", (Text("a"), Image(url="https://x/a"))),),
        ),
        (
            {"type": "custom_tool_call_output", "call_id": "c1", "output": "ok"},
            (ToolResult("c1", (Text("ok"),), custom=True),),
        ),
    ],
)
def test_calls_and_results_keep_their_ids_and_bytes(given: Any, items: tuple[Item, ...]) -> None:
    assert parsed(given) == items


def test_the_label_of_what_the_assistant_said_is_kept() -> None:
    said = {"type": "message", "role": "assistant", "content": "Hm."}
    assert parsed(said | {"phase": "commentary"}) == (Message(Role.ASSISTANT, (Text("Hm."),), "commentary"),)
    assert parsed(said | {"phase": None}) == (Message(Role.ASSISTANT, (Text("Hm."),)),)


def test_a_search_that_the_client_runs_is_a_call_like_any_other() -> None:
    call = {"type": "tool_search_call", "execution": "client", "call_id": "c1", "arguments": {"query": "agents"}}
    assert parsed(call) == (ToolCall("c1", CLIENT_SEARCH, '{"query":"agents"}'),)
    found = [
        {"type": "namespace", "name": "agents", "tools": [{"type": "function", "name": "spawn"}]},
        {"type": "function", "name": "wait"},
    ]
    output = {"type": "tool_search_output", "execution": "client", "call_id": "c1", "tools": found}
    spawn, wait = ToolRef("spawn", "agents"), ToolRef("wait")
    said = (Text("Found tool: agents.spawn", found=spawn), Text("Found tool: wait", found=wait))
    assert parsed(output) == (ToolResult("c1", said),)
    assert loaded_tools(Field("", output)) == (Tool(ToolRef("spawn", "agents")), Tool(ToolRef("wait")))
    assert parsed({**output, "tools": []}) == (ToolResult("c1", (Text(NOTHING_FOUND),)),)


@pytest.mark.parametrize("more", [{"execution": "server", "call_id": "c1"}, {"call_id": None}])
def test_a_search_that_openai_runs_is_dropped(more: dict[str, Any]) -> None:
    assert parsed({"type": "tool_search_call", "arguments": {}, **more}) == ()
    assert parsed({"type": "tool_search_output", "tools": [], **more}) == ()
    assert loaded_tools(Field("", {"type": "tool_search_output", "tools": [{"type": "x"}], **more})) == ()


def test_thoughts_of_this_protocol_are_kept_with_their_opaque_value() -> None:
    given = {
        "type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "A"}],
        "content": [{"type": "reasoning_text", "text": "B"}], "encrypted_content": "gAAAA",
    }  # fmt: skip
    assert parsed(given) == (Reasoning("A\n\nB", opaque="gAAAA", origin=Protocol.RESPONSES, item_id="rs_1"),)
    bare: dict[str, Any] = {"type": "reasoning", "summary": [], "encrypted_content": None}
    assert parsed(bare) == (Reasoning("", origin=Protocol.RESPONSES),)


@pytest.mark.parametrize("redacted", [False, True])
def test_thoughts_in_an_envelope_belong_to_whom_it_says(redacted: bool) -> None:
    value = seal(Envelope(Protocol.MESSAGES, "claude", "Thinking.", "sig==", redacted=redacted))
    assert parsed({"type": "reasoning", "id": "rs_x", "summary": [], "encrypted_content": value}) == (
        Reasoning("Thinking.", opaque="sig==", origin=Protocol.MESSAGES, redacted=redacted, binding="claude"),
    )


def test_an_envelope_may_hold_the_text_alone() -> None:
    value = seal(Envelope(Protocol.RESPONSES, "local", "Thinking.", "", "rs_1"))
    (thought,) = parsed({"type": "reasoning", "summary": [], "encrypted_content": value})
    assert thought == Reasoning("Thinking.", None, Protocol.RESPONSES, "rs_1", binding="local")


def test_thoughts_in_a_damaged_envelope_are_nobodys() -> None:
    assert parsed({"type": "reasoning", "summary": [], "encrypted_content": "cachegate1.AAAA"}) == ()


@pytest.mark.parametrize("kind", ["compaction", "compaction_summary", "context_compaction"])
def test_a_compaction_is_ours_or_somebody_elses(kind: str) -> None:
    assert parsed({"type": kind, "encrypted_content": seal_summary("All of it.")}) == (Compacted(text="All of it."),)
    native = (Compacted(opaque="gAAAA", origin=Protocol.RESPONSES),)
    assert parsed({"type": kind, "encrypted_content": "gAAAA"}) == native
    other = seal(Envelope(Protocol.RESPONSES, "openai", "", "gBBBB"))
    assert parsed({"type": kind, "encrypted_content": other}) == (
        Compacted(opaque="gBBBB", origin=Protocol.RESPONSES, binding="openai"),
    )
    assert parsed({"type": kind}) == ()


@pytest.mark.parametrize("kind", sorted({*DROPPED_ITEMS, *HANDLED_ELSEWHERE}))
def test_what_is_documented_as_dropped_is_dropped(kind: str) -> None:
    assert parsed({"type": kind, "id": "x", "status": "completed"}) == ()


@pytest.mark.parametrize(
    ("given", "path"),
    [
        (None, "input[0].role"),
        ("hi", "input[0]"),
        ({"type": "brand_new"}, "input[0].type"),
        ({"type": "item_reference", "id": "msg_1"}, "input[0].type"),
        ({"type": 1}, "input[0].type"),
        ({"role": "critic", "content": "x"}, "input[0].role"),
        ({"role": ["user"], "content": "x"}, "input[0].role"),
        ({"role": "user"}, "input[0].content"),
        ({"role": "user", "content": 1}, "input[0].content"),
        ({"role": "user", "content": [{"type": "input_audio"}]}, "input[0].content[0].type"),
        ({"role": "user", "content": [{"type": "input_text"}]}, "input[0].content[0].text"),
        ({"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}, "input[0].content[0].file_id"),
        ({"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}, "input[0].content[0].file_id"),
        ({"role": "user", "content": [{"type": "input_image"}]}, "input[0].content[0].image_url"),
        ({"role": "user", "content": [{"type": "input_file"}]}, "input[0].content[0].file_data"),
        ({"type": "function_call", "name": "x", "arguments": "{}"}, "input[0].call_id"),
        ({"type": "function_call", "call_id": "c", "name": "x", "arguments": {}}, "input[0].arguments"),
        ({"type": "function_call_output", "call_id": "c"}, "input[0].output"),
        ({"type": "custom_tool_call", "call_id": "c", "name": "x"}, "input[0].input"),
        ({"type": "reasoning", "summary": "x"}, "input[0].summary"),
        ({"type": "compaction", "encrypted_content": 1}, "input[0].encrypted_content"),
    ],
)
def test_what_cannot_be_carried_is_refused_by_its_place(given: Any, path: str) -> None:
    with pytest.raises(BadInput) as refused:
        parsed(given)
    assert refused.value.message.startswith(f"{path}: ")
