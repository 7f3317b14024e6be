import json
from dataclasses import replace
from typing import Any

import pytest

from cachegate.errors import BadInput
from cachegate.wire.compaction import SUMMARY_REQUEST
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import (
    Choice,
    Message,
    OutputFormat,
    Purpose,
    Reasoning,
    Request,
    Role,
    Sampling,
    Target,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolRef,
    ToolResult,
)
from cachegate.wire.quirks import Quirk
from cachegate.wire.responses.request_parser import parse_request
from cachegate.wire.responses.request_renderer import COARSE_EFFORTS, DROPPED, EFFORTS, render_request

HI = Message(Role.USER, (Text("hi"),))
SHELL = Tool(ToolRef("shell"), "Runs.", {"type": "object"}, strict=False)
PLAIN = Request("m", stream=True, items=(HI,))
TARGET = Target("gpt-6", "openai", cache_key="thread", origin=Protocol.RESPONSES)
ENCRYPTED = ["reasoning.encrypted_content"]


def rendered(request: Request = PLAIN, *quirks: Quirk, **fields: Any) -> dict[str, Any]:
    body = render_request(replace(request, **fields), replace(TARGET, quirks=frozenset(quirks)))
    decoded: dict[str, Any] = json.loads(body)
    return decoded


def test_a_plain_request_says_no_more_than_it_must() -> None:
    assert rendered() == {
        "model": "gpt-6",
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
        "stream": True,
        "prompt_cache_key": "thread",
    }


def test_what_the_cache_reads_first_stands_first_and_the_same_request_has_the_same_bytes() -> None:
    request = replace(PLAIN, instructions=(Text("Be good."),), tools=(SHELL,))
    body = render_request(request, TARGET)
    assert list(json.loads(body))[:4] == ["model", "instructions", "input", "tools"]
    assert body == render_request(request, TARGET)


def test_instructions_are_one_text_without_the_noise_of_claude_code() -> None:
    noise = Text("x-anthropic-billing-header: cc_version=2.1.332; cch=1f;")
    assert rendered(instructions=(noise, Text("A"), Text("B", marked=True)))["instructions"] == "A\n\nB"
    assert "instructions" not in rendered(instructions=(noise,))


def test_the_clients_own_key_goes_before_the_threads() -> None:
    assert rendered(cache_key="mine")["prompt_cache_key"] == "mine"
    assert "prompt_cache_key" not in json.loads(render_request(PLAIN, replace(TARGET, cache_key=None)))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"tools": (SHELL,), "choice": Choice.REQUIRED}, {"tool_choice": "required"}),
        ({"tools": (SHELL,), "parallel_tools": False}, {"parallel_tool_calls": False}),
        ({"sampling": Sampling(max_output_tokens=900)}, {"max_output_tokens": 900}),
        ({"sampling": Sampling(max_output_tokens=1)}, {"max_output_tokens": 16}),
        ({"sampling": Sampling(temperature=0.0, top_p=0.5, top_k=4)}, {"temperature": 0.0, "top_p": 0.5}),
        ({"verbosity": "low"}, {"text": {"verbosity": "low"}}),
        ({"output_format": OutputFormat()}, {"text": {"format": {"type": "json_object"}}}),
        (
            {"output_format": OutputFormat({"type": "object"}, strict=True)},
            {
                "text": {
                    "format": {"type": "json_schema", "name": "answer", "schema": {"type": "object"}, "strict": True}
                }
            },
        ),
        ({"fast": True}, {"service_tier": "priority"}),
        ({"fast": False}, {}),
        ({"stream": False}, {"stream": False}),
    ],
)
def test_every_setting_is_said(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    body = rendered(**fields)
    assert {**rendered(), **({"tools": body["tools"]} if "tools" in body else {}), **expected} == body


def test_tools_are_chosen_only_where_there_are_tools() -> None:
    body = rendered(choice=Choice.REQUIRED, parallel_tools=True)
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & body.keys()


@pytest.mark.parametrize(
    ("quirk", "fields", "missing"),
    [
        (Quirk.NO_PARALLEL, {"tools": (SHELL,), "parallel_tools": True}, "parallel_tool_calls"),
        (Quirk.NO_SAMPLING, {"sampling": Sampling(temperature=0.5)}, "temperature"),
        (Quirk.NO_SAMPLING, {"sampling": Sampling(top_p=0.5)}, "top_p"),
    ],
)
def test_a_quirk_leaves_out_what_the_upstream_refuses(quirk: Quirk, fields: dict[str, Any], missing: str) -> None:
    assert missing in rendered(**fields)
    assert missing not in rendered(PLAIN, quirk, **fields)


@pytest.mark.parametrize(
    ("thinking", "reasoning"),
    [
        (Thinking(), None),
        (Thinking(enabled=True), None),
        (Thinking(enabled=True, show=True), {"summary": "auto"}),
        (Thinking(enabled=True, effort="max"), {"effort": "max"}),
        (Thinking(effort="high", show=True), {"effort": "high", "summary": "auto"}),
        (Thinking(enabled=True, budget_tokens=1_024), {"effort": "low"}),
        (Thinking(enabled=True, budget_tokens=10_000), {"effort": "medium"}),
        (Thinking(enabled=True, budget_tokens=31_999), {"effort": "high"}),
        (Thinking(enabled=True, effort="xhigh", budget_tokens=1), {"effort": "xhigh"}),
    ],
)
def test_thinking_becomes_an_effort_and_comes_back_encrypted(thinking: Thinking, reasoning: Any) -> None:
    body = rendered(thinking=thinking)
    assert body.get("reasoning") == reasoning
    asked = thinking != Thinking()
    assert (body.get("include"), body.get("store")) == ((ENCRYPTED, False) if asked else (None, None))


@pytest.mark.parametrize("thinking", [Thinking(enabled=False), Thinking(effort="none", show=True)])
def test_who_does_not_think_is_not_asked_for_thoughts(thinking: Thinking) -> None:
    body = rendered(thinking=thinking)
    assert body["reasoning"] == {"effort": "none"}
    assert not {"include", "store"} & body.keys()


def test_every_effort_has_a_coarse_one() -> None:
    assert set(COARSE_EFFORTS.values()) == {"low", "medium", "high"}
    for effort in EFFORTS:
        body = rendered(PLAIN, Quirk.COARSE_EFFORT, thinking=Thinking(effort=effort))
        assert body["reasoning"]["effort"] == COARSE_EFFORTS[effort]


def test_nothing_is_stored_where_that_must_be_said() -> None:
    assert rendered(PLAIN, Quirk.NO_STORE)["store"] is False


def test_settings_do_not_follow_from_the_conversation() -> None:
    """A field that came and went with the history would change the prompt's cache."""
    thought = Reasoning("Hm.", "gAAAA", Protocol.RESPONSES, binding="openai")
    longer = rendered(items=(HI, thought, ToolCall("c", ToolRef("shell"), "{}"), ToolResult("c", ())))
    assert {**longer, "input": []} == {**rendered(), "input": []}
    assert longer["input"][1]["encrypted_content"] == "gAAAA"


def test_stop_sequences_are_refused() -> None:
    with pytest.raises(BadInput, match=r"^stop_sequences: .*Send the request without"):
        rendered(sampling=Sampling(stop=("END",)))


@pytest.mark.parametrize("purpose", [Purpose.COMPACTION_ITEM, Purpose.COMPACTION_OBJECT])
@pytest.mark.parametrize("choice", [None, Choice.AUTO, Choice.REQUIRED])
def test_a_compaction_asks_for_a_summary_behind_the_same_prompt(choice: Choice | None, purpose: Purpose) -> None:
    fields: dict[str, Any] = {"tools": (SHELL,), "choice": choice, "output_format": OutputFormat()}
    before, body = rendered(**fields), rendered(**fields, purpose=purpose)
    assert body["tools"] == before["tools"]
    assert body.get("tool_choice") == ("none" if choice is Choice.REQUIRED else before.get("tool_choice"))
    assert "text" not in body
    assert body["input"][:-1] == before["input"]
    assert body["input"][-1]["content"][0]["text"] == SUMMARY_REQUEST


def test_what_was_rendered_is_read_back() -> None:
    request = Request(
        "gpt-6",
        stream=True,
        instructions=(Text("Be good."),),
        items=(
            Message(Role.DEVELOPER, (Text("Note."),)),
            HI,
            Reasoning("Hm.", "gAAAA", Protocol.RESPONSES, "rs_1"),
            Message(Role.ASSISTANT, (Text("Yes."), Text("No.", refusal=True)), "commentary"),
            ToolCall("c1", ToolRef("spawn", "agents"), '{ "a":1}'),
            ToolCall("c2", ToolRef("apply_patch", custom=True), "*** Begin"),
            ToolResult("c1", (Text("ok"),)),
            ToolResult("c2", (Text("a"), Text("b")), custom=True),
        ),
        tools=(
            SHELL,
            replace(SHELL, ref=ToolRef("spawn", "agents"), namespace_description="Agents."),
            Tool(ToolRef("apply_patch", custom=True), "P."),
        ),
        choice=Choice.ONE,
        chosen_tool=ToolRef("shell"),
        parallel_tools=True,
        sampling=Sampling(max_output_tokens=900, temperature=0.5, top_p=0.5),
        thinking=Thinking(enabled=True, effort="high", show=True),
        output_format=OutputFormat({"type": "object"}, "title", strict=True),
        verbosity="low",
        fast=True,
        cache_key="thread",
    )
    assert parse_request(render_request(request, TARGET)) == request


def test_every_loss_has_a_reason() -> None:
    assert all(DROPPED.values())
