from dataclasses import replace

import pytest

from cachegate.errors import BadInput
from cachegate.wire.compaction import SUMMARY_REQUEST
from cachegate.wire.copilot.history import Said, Step
from cachegate.wire.copilot.setup import DROPPED, DeclaredTool, Setup, ask, tool_names
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import (
    Choice,
    HostedTool,
    Message,
    OutputFormat,
    Purpose,
    Reasoning,
    Request,
    Role,
    Sampling,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolRef,
    ToolResult,
)

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
READ = Tool(ToolRef("Read"), "Reads a file.", SCHEMA)
HELLO = Message(Role.USER, (Text("hello"),))
CALLED = (HELLO, ToolCall("c1", READ.ref, "{}"), ToolResult("c1", (Text("no"),)))
PLAIN = Request("m", stream=True, instructions=(Text("Be brief."),), items=CALLED, tools=(READ,))


def asked(request: Request) -> tuple[Setup, tuple[Step, ...]]:
    return ask(request, "up", tool_names(request))


def setup(request: Request) -> Setup:
    return asked(request)[0]


def test_a_request_is_a_setup_and_a_conversation() -> None:
    made, steps = asked(PLAIN)
    assert made == Setup("up", "Be brief.", (DeclaredTool("Read", "Reads a file.", SCHEMA),), None, None)
    assert len(steps) == 3


def test_the_systems_words_in_front_are_instructions() -> None:
    words = (Message(Role.SYSTEM, (Text("one"), Text("two"))), Message(Role.DEVELOPER, (Text("three"),)))
    made, steps = asked(replace(PLAIN, items=(*words, HELLO)))
    assert made.instructions == "Be brief.\n\none\n\ntwo\n\nthree"
    assert steps == (Said("hello"),)


# --- refused ---


@pytest.mark.parametrize("choice", [Choice.NONE, Choice.REQUIRED, Choice.ONE])
def test_a_choice_that_a_session_cannot_make_is_refused_by_name(choice: Choice) -> None:
    with pytest.raises(BadInput, match=f"tool_choice: .* not `{choice.value}`"):
        asked(replace(PLAIN, choice=choice, chosen_tool=READ.ref))


@pytest.mark.parametrize("choice", [None, Choice.AUTO])
def test_the_usual_choice_is_the_sessions_own(choice: Choice | None) -> None:
    assert asked(replace(PLAIN, choice=choice)) == asked(PLAIN)


def test_stop_sequences_are_refused_by_name() -> None:
    with pytest.raises(BadInput, match="stop sequences"):
        asked(replace(PLAIN, sampling=Sampling(stop=("END",))))


# --- dropped ---

HOSTED = HostedTool("web_search", Protocol.MESSAGES, {"type": "web_search_20250305"})
MARKED = Message(Role.USER, (Text("hello", marked=True),))
FAILED = (HELLO, CALLED[1], ToolResult("c1", (Text("no"),), is_error=True))
LOSSES = {
    "max_output_tokens": [replace(PLAIN, sampling=Sampling(max_output_tokens=5))],
    "temperature, top_p, top_k": [
        replace(PLAIN, sampling=each) for each in (Sampling(temperature=0.5), Sampling(top_p=0.5), Sampling(top_k=5))
    ],
    "parallel_tools": [replace(PLAIN, parallel_tools=False)],
    "strict": [replace(PLAIN, tools=(replace(READ, strict=True),))],
    "verbosity": [replace(PLAIN, verbosity="low")],
    "fast": [replace(PLAIN, fast=True)],
    "hosted tools": [replace(PLAIN, tools=(HOSTED, READ))],
    "deferred": [replace(PLAIN, tools=(replace(READ, deferred=True),))],
    "reasoning": [
        replace(PLAIN, items=(HELLO, Reasoning("hm", "opaque", Protocol.MESSAGES), *CALLED[1:])),
        replace(PLAIN, thinking=Thinking(enabled=True, budget_tokens=2_000, show=True)),
    ],
    "cache marks, prompt_cache_key": [
        replace(PLAIN, items=(MARKED, *CALLED[1:]), tools=(replace(READ, marked=True),), cache_key="k")
    ],
}


@pytest.mark.parametrize("name", LOSSES)
def test_what_is_dropped_changes_nothing(name: str) -> None:
    for request in LOSSES[name]:
        assert asked(request) == asked(PLAIN)
        assert setup(request).digest == setup(PLAIN).digest


def test_what_is_told_to_be_dropped_is_all_tested() -> None:
    assert {*LOSSES, "is_error of a result"} == set(DROPPED)


def test_an_error_of_a_tool_keeps_its_text() -> None:
    told = asked(replace(PLAIN, items=FAILED))[1]
    assert [getattr(step, "text", "") for step in told] == [getattr(step, "text", "") for step in asked(PLAIN)[1]]


# --- tools ---


def test_names_fit_every_provider_behind_the_runtime_and_lead_back() -> None:
    long = Tool(ToolRef("x" * 90, "files"), "Long.", SCHEMA)
    request = replace(PLAIN, tools=(READ, long))
    names = tool_names(request)
    declared = ask(request, "up", names)[0].tools[1]
    assert len(declared.name) <= 64
    assert names.ref(declared.name) == long.ref


def test_a_freeform_tool_is_a_function_of_one_text() -> None:
    patch = Tool(ToolRef("apply_patch", custom=True), "Patches.", grammar={"definition": "start: x", "syntax": "lark"})
    (declared,) = setup(replace(PLAIN, tools=(patch,))).tools
    assert declared.name == "apply_patch"
    assert "start: x" in declared.description
    assert declared.parameters["required"] == ["input"]


def test_a_tool_that_says_nothing_of_itself_takes_anything() -> None:
    (declared,) = setup(replace(PLAIN, tools=(Tool(ToolRef("Now")),))).tools
    assert declared == DeclaredTool("Now", "", {"type": "object", "properties": {}})


# --- what must be equal ---


def test_the_digest_is_of_instructions_and_tools() -> None:
    other = [
        PLAIN,
        replace(PLAIN, instructions=(Text("Be long."),)),
        replace(PLAIN, tools=()),
        replace(PLAIN, tools=(READ, replace(READ, ref=ToolRef("Write")))),
        replace(PLAIN, tools=(replace(READ, ref=ToolRef("Write")),)),
        replace(PLAIN, tools=(replace(READ, description="Reads."),)),
        replace(PLAIN, tools=(replace(READ, schema={"type": "object"}),)),
    ]
    assert len({setup(request).digest for request in other}) == len(other)


def test_the_digest_is_not_of_effort_form_and_conversation() -> None:
    changed = replace(
        PLAIN, thinking=Thinking(effort="high"), output_format=OutputFormat({"type": "array"}), items=(HELLO,)
    )
    assert setup(changed) != setup(PLAIN)
    assert setup(changed).digest == setup(PLAIN).digest


@pytest.mark.parametrize(
    ("effort", "told"),
    [
        (None, None),
        ("none", "low"),
        ("minimal", "low"),
        *((each, each) for each in ("low", "medium", "high", "xhigh", "max")),
    ],
)
def test_an_effort_is_the_nearest_that_the_runtime_knows(effort: str | None, told: str | None) -> None:
    assert setup(replace(PLAIN, thinking=Thinking(effort=effort))).effort == told


@pytest.mark.parametrize(
    ("form", "schema"),
    [(None, None), (OutputFormat(), {"type": "object"}), (OutputFormat({"type": "array"}, "n"), {"type": "array"})],
)
def test_a_form_of_the_answer_is_a_schema(form: OutputFormat | None, schema: object) -> None:
    assert setup(replace(PLAIN, output_format=form)).schema == schema


@pytest.mark.parametrize("purpose", [Purpose.COMPACTION_ITEM, Purpose.COMPACTION_OBJECT])
def test_a_compaction_is_the_conversation_and_a_request_for_a_summary(purpose: Purpose) -> None:
    made, steps = asked(replace(PLAIN, purpose=purpose))
    assert steps == (*asked(PLAIN)[1], Said(SUMMARY_REQUEST))
    assert made == setup(PLAIN), "so that the cache serves it"
