import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachegate.wire.facts import Protocol
from cachegate.wire.hub import Choice, HostedTool, Request, Text, Tool, ToolCall, ToolRef, ToolResult
from cachegate.wire.tool_names import MESSAGES_CHARS_MAX, OPENAI_CHARS_MAX, ToolNames, found_tool, wire_name

LIMITS = pytest.mark.parametrize("limit", [MESSAGES_CHARS_MAX, OPENAI_CHARS_MAX])
names = st.text(min_size=0, max_size=80) | st.sampled_from(["shell", "a__b", "b", "x" * 64, "x" * 65])
refs = st.builds(ToolRef, names, st.none() | st.sampled_from(["", "a", "a__b", "functions"]))


def request(*tools: ToolRef, called: tuple[ToolRef, ...] = (), chosen: ToolRef | None = None) -> Request:
    return Request(
        "m",
        stream=True,
        items=tuple(ToolCall(f"call_{at}", ref, "{}") for at, ref in enumerate(called)),
        tools=tuple(Tool(ref) for ref in tools),
        choice=Choice.ONE if chosen else None,
        chosen_tool=chosen,
    )


@pytest.mark.parametrize(
    ("ref", "name"),
    [
        (ToolRef("shell"), "shell"),
        (ToolRef("spawn", "multi_agent_v1"), "multi_agent_v1__spawn"),
        (ToolRef("apply_patch", custom=True), "apply_patch"),
        (ToolRef("tool_search", ""), "tool_search"),
        (ToolRef("x" * 64), "x" * 64),
        (ToolRef("x" * 65), "x" * 55 + "_da382904"),
        (ToolRef("größe"), "gr__e_13e57379"),
    ],
)
def test_a_name_is_made_from_the_tool_alone(ref: ToolRef, name: str) -> None:
    assert wire_name(ref, 64) == name


@LIMITS
@given(ref=refs)
def test_every_name_is_one_that_providers_take(limit: int, ref: ToolRef) -> None:
    name = wire_name(ref, limit)
    assert re.fullmatch(r"[a-zA-Z0-9_-]+", name)
    assert len(name) <= limit


@LIMITS
@given(tools=st.lists(refs, max_size=6), called=st.lists(refs, max_size=4))
def test_names_of_one_request_are_distinct_and_lead_back(
    limit: int, tools: list[ToolRef], called: list[ToolRef]
) -> None:
    ours = ToolNames(request(*tools, called=tuple(called)), limit)
    every = {(ref.namespace, ref.name): ref for ref in (*tools, *called)}
    wired = {ours.wire(ref) for ref in every.values()}
    assert len(wired) == len(every)
    for ref in every.values():
        back = ours.ref(ours.wire(ref))
        assert (back.namespace, back.name) == (ref.namespace, ref.name)


def test_the_first_of_two_keeps_the_name_and_what_comes_later_changes_neither() -> None:
    one, two, three = ToolRef("b__c", "a"), ToolRef("c", "a__b"), ToolRef("a__b__c")
    before = ToolNames(request(one, two), 64)
    after = ToolNames(request(one, two, called=(three,)), 64)
    assert before.wire(one) == after.wire(one) == "a__b__c"
    assert before.wire(two) == after.wire(two) != "a__b__c"
    assert after.ref(after.wire(three)) == three


def test_a_found_tool_takes_no_name_from_one_that_was_called_before_it() -> None:
    gone, found = ToolRef("b__c", "a"), ToolRef("c", "a__b")
    before = request(called=(gone,))
    result = ToolResult("call_1", (found_tool(found),))
    after = replace(before, items=(*before.items, result), tools=(Tool(found, deferred=True),))
    assert ToolNames(before, 64).wire(gone) == ToolNames(after, 64).wire(gone) == "a__b__c"
    assert ToolNames(after, 64).ref(ToolNames(after, 64).wire(found)) == found


def test_a_found_tool_is_told_by_its_name() -> None:
    agent, read = ToolRef("spawn", "agents"), ToolRef("Read")
    assert found_tool(agent) == Text("Found tool: agents.spawn", found=agent)
    assert found_tool(read, marked=True) == Text("Found tool: Read", marked=True, found=read)


def test_a_declared_tool_says_better_than_a_call_what_kind_it_is() -> None:
    custom = ToolRef("apply_patch", custom=True)
    assert ToolNames(request(custom, called=(ToolRef("apply_patch"),)), 64).ref("apply_patch") == custom


def test_tools_named_in_the_history_or_the_choice_alone_lead_back_too() -> None:
    gone, chosen = ToolRef("gone", "functions"), ToolRef("wait", "agents")
    ours = ToolNames(request(called=(gone,), chosen=chosen), 64)
    assert (ours.ref("functions__gone"), ours.ref("agents__wait")) == (gone, chosen)


def test_a_name_that_nobody_gave_comes_back_as_it_is() -> None:
    hosted = Request("m", stream=True, tools=(HostedTool("web_search", Protocol.RESPONSES, {}),))
    ours = ToolNames(hosted, 64)
    assert ours.ref("web_search") == ToolRef("web_search")
    assert ours.wire(ToolRef("new", "ns")) == "ns__new"
