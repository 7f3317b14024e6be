from typing import Any

import pytest

from cachegate.errors import BadInput
from cachegate.wire.envelopes import Envelope, seal
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import Compacted, Message, Reasoning, Role, Text, Tool, ToolCall, ToolRef, ToolResult
from cachegate.wire.messages.conversation_parser import BILLING_LINE
from wire.messages.parsed import TURN, block, items, parsed

MARK = {"type": "ephemeral"}


def answered(*blocks: Any) -> Any:
    return {"role": "assistant", "content": list(blocks)}


@pytest.mark.parametrize(
    ("system", "instructions"),
    [
        (None, ()),
        ("Be brief.", (Text("Be brief."),)),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b", "cache_control": MARK}],
         (Text("a"), Text("b", marked=True))),
        ([{"type": "text", "text": f"{BILLING_LINE}: cc_version=2; cch=8f3a1;"}, {"type": "text", "text": "a"}],
         (Text("a"),)),
        (f"{BILLING_LINE}: cch=8f3a1;\nBe brief.", (Text("Be brief."),)),
    ],
)  # fmt: skip
def test_instructions_without_the_noise_of_each_request(system: Any, instructions: tuple[Text, ...]) -> None:
    assert parsed(system=system).instructions == instructions


@pytest.mark.parametrize("system", [7, {}, [{"type": "image", "source": {"type": "url", "url": "u"}}], ["x"]])
def test_instructions_are_text(system: Any) -> None:
    with pytest.raises(BadInput, match=r"^system"):
        parsed(system=system)


def test_every_block_is_an_item_in_its_place() -> None:
    found = items(
        TURN,
        {"role": "system", "content": "Deferred tools: WebFetch"},
        answered(
            {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
            {"type": "redacted_thinking", "data": "blob"},
            {"type": "text", "text": "I'll look."},
            {"type": "tool_use", "id": "c1", "name": "Read", "input": {"path": "a"}},
            {"type": "tool_use", "id": "c2", "name": "Read", "input": {}},
        ),
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c2", "content": "no", "is_error": True},
                {"type": "tool_result", "tool_use_id": "c1"},
                {"type": "text", "text": "a"},
                {"type": "text", "text": "b"},
            ],
        },
    )
    assert found == (
        Message(Role.USER, (Text("Fix the build."),)),
        Message(Role.SYSTEM, (Text("Deferred tools: WebFetch"),)),
        Reasoning("Hm.", "sig", Protocol.MESSAGES),
        Reasoning("", "blob", Protocol.MESSAGES, redacted=True),
        Message(Role.ASSISTANT, (Text("I'll look."),)),
        ToolCall("c1", ToolRef("Read"), '{"path": "a"}'),
        ToolCall("c2", ToolRef("Read"), "{}"),
        ToolResult("c2", (Text("no"),), is_error=True),
        ToolResult("c1", ()),
        Message(Role.USER, (Text("a"), Text("b"))),
    )


@pytest.mark.parametrize("kind", ["thinking", "redacted_thinking"])
def test_a_foreign_thought_comes_back_in_its_envelope(kind: str) -> None:
    sealed = seal(Envelope(Protocol.RESPONSES, "openai", "Hm.", "gAAAA", "rs_1"))
    given = {"type": kind, "thinking": "Hm.", "signature": sealed, "data": sealed}
    assert items(TURN, answered(given))[1] == Reasoning(
        "Hm.", "gAAAA", Protocol.RESPONSES, item_id="rs_1", binding="openai"
    )


def test_a_thought_without_a_signature_has_none() -> None:
    unsigned = items(TURN, answered({"type": "thinking", "thinking": "Hm.", "signature": ""}))[1]
    assert unsigned == Reasoning("Hm.", None, Protocol.MESSAGES)


def test_the_provider_compacted() -> None:
    assert items(answered({"type": "compaction", "content": "Sum."}, {"type": "compaction", "content": None})) == (
        Compacted(text="Sum."),
    )


def test_a_tool_that_joins_the_conversation_is_declared_and_told_of() -> None:
    definition = {"name": "Grep", "input_schema": {"type": "object"}}
    note = {
        "role": "system",
        "content": [
            {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": definition}},
            {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "Read"}},
        ],
    }
    request = parsed(messages=[TURN, note])
    assert request.tools == (Tool(ToolRef("Grep"), schema={"type": "object"}),)
    assert request.items[1] == Message(
        Role.SYSTEM,
        (Text("From here on the tool `Grep` is available."), Text("From here on the tool `Read` is not available.")),
    )
    with pytest.raises(BadInput, match=r"^messages\[0\]\.content\[0\]\.tool: "):
        block(type="tool_addition", tool={"type": "mcp_toolset_reference"})


# --- marks ---


def test_marks_are_kept_wherever_they_stand() -> None:
    call = {"type": "tool_use", "id": "c1", "name": "Read", "input": {}, "cache_control": MARK}
    assert items(TURN, answered(call))[1] == ToolCall("c1", ToolRef("Read"), "{}", marked=True)
    texts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert block(type="tool_result", tool_use_id="c1", content=texts, cache_control=MARK) == (
        ToolResult("c1", (Text("a"), Text("b", marked=True))),
    )
    assert block(type="tool_result", tool_use_id="c1", content="", cache_control=MARK) == (
        ToolResult("c1", (Text("", marked=True),)),
    )
    assert block(type="tool_result", tool_use_id="c1", cache_control=MARK) == (
        ToolResult("c1", (Text("", marked=True),)),
    )


def test_the_requests_own_mark_stands_for_one_at_its_end() -> None:
    assert parsed(cache_control=MARK).items == (Message(Role.USER, (Text("Fix the build.", marked=True),)),)
    assert parsed(cache_control=MARK, messages=[]).items == ()
    thought = answered({"type": "thinking", "thinking": "Hm.", "signature": "s"})
    assert parsed(cache_control=MARK, messages=[thought]).items == (Reasoning("Hm.", "s", Protocol.MESSAGES),)


@pytest.mark.parametrize(
    ("message", "path"),
    [
        ({"role": "tool", "content": "x"}, r"messages\[0\]\.role"),
        ({"content": "x"}, r"messages\[0\]\.role"),
        ({"role": "user", "content": 7}, r"messages\[0\]\.content"),
        ({"role": "user", "content": [7]}, r"messages\[0\]\.content\[0\]"),
        (7, r"messages\[0\]"),
        (answered({"type": "tool_use", "id": "c1", "name": "n", "input": []}), r"messages\[0\]\.content\[0\]\.input"),
        (answered({"type": "tool_use", "name": "n"}), r"messages\[0\]\.content\[0\]\.id"),
        (answered({"type": "tool_use", "id": "c1"}), r"messages\[0\]\.content\[0\]\.name"),
        (answered({"type": "tool_result"}), r"messages\[0\]\.content\[0\]\.tool_use_id"),
    ],
)
def test_what_is_malformed_is_named(message: Any, path: str) -> None:
    with pytest.raises(BadInput, match=f"^{path}: "):
        items(message)
