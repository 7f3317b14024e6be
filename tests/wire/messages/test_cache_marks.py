import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegate.wire.body import encode
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import HostedTool, Item, Message, Reasoning, Role, Text, Tool, ToolCall, ToolRef, ToolResult
from cachegate.wire.messages.cache_marks import LOOK_BACK, MARK, MARKS_MAX
from cachegate.wire.quirks import Quirk
from contract.prompt_caches import PromptCache
from wire.messages.rendered import TOOLS, call, rendered, result, said, user

THOUGHT = Reasoning("Hm.", "sig", Protocol.MESSAGES)
RULES = (Text("Be brief."), Text("Be kind."))


def blocks_of(body: Any) -> list[Any]:
    return [
        *body.get("tools", []),
        *body.get("system", []),
        *(block for message in body["messages"] for block in message["content"]),
    ]


def marks_in(body: Any) -> list[int]:
    """Return which of all blocks are marked."""
    return [number for number, block in enumerate(blocks_of(body)) if "cache_control" in block]


def words_marked(*items: Item, **more: Any) -> list[str]:
    marked = [block for block in blocks_of(rendered(*items, **more)) if "cache_control" in block]
    return [block.get("text") or block.get("name") or block["tool_use_id"] for block in marked]


def test_without_any_wish_the_ends_of_tools_and_instructions_and_the_tail_are_marked() -> None:
    body = rendered(user("a"), tools=TOOLS, instructions=RULES)
    assert [block for block in blocks_of(body) if "cache_control" in block] == [
        {**body["tools"][1], "cache_control": MARK},
        {"type": "text", "text": "Be kind.", "cache_control": MARK},
        {"type": "text", "text": "a", "cache_control": MARK},
    ]


def test_a_deferred_tool_cannot_be_marked() -> None:
    search = HostedTool("tool_search_tool_regex_20251119", Protocol.MESSAGES, {"type": "t", "name": "search"})
    late = Tool(ToolRef("Late"), deferred=True, marked=True)
    assert words_marked(user("a"), tools=(search, late), quirks=(Quirk.TOOL_REFERENCES,)) == ["search", "a"]


def test_nothing_is_marked_where_the_provider_refuses_marks() -> None:
    marked = Message(Role.USER, (Text("a", marked=True),))
    for item in (marked, user("a")):
        assert marks_in(rendered(item, tools=TOOLS, instructions=RULES, quirks=(Quirk.NO_CACHE_MARKS,))) == []


@pytest.mark.parametrize(
    ("items", "more", "marked"),
    [
        ((Message(Role.USER, (Text("a", marked=True), Text("b"))), user("c")), {}, ["a"]),
        ((user("a"),), {"instructions": (Text("r", marked=True),)}, ["r"]),
        ((user("a"),), {"tools": (Tool(ToolRef("Read"), marked=True), *TOOLS[1:])}, ["Read"]),
        ((user("a"), ToolCall("c1", ToolRef("Read"), "{}", marked=True)), {}, ["Read"]),
        ((user("a"), call(), ToolResult("c1", (Text("x", marked=True), Text("y"))), user("b")), {}, ["c1"]),
        ((user("a"), call(), ToolResult("c1", (Text("", marked=True),)), user("b")), {}, ["c1"]),
        ((Message(Role.SYSTEM, (Text("s", marked=True),)), user("a")), {}, ["s"]),
        # A mark on a blank text goes with it; without any other, the usual ones are set.
        ((Message(Role.USER, (Text("a"), Text(" ", marked=True))),), {}, ["a"]),
    ],
)
def test_the_clients_own_marks_are_taken_as_they_are(items: Any, more: Any, marked: list[str]) -> None:
    assert words_marked(*items, **more) == marked


def test_of_too_many_marks_the_last_ones_hold() -> None:
    items = [Message(Role.USER, (Text(str(number), marked=True),)) for number in range(7)]
    assert words_marked(*items) == ["3", "4", "5", "6"]


def test_the_tail_of_a_short_conversation_is_marked_once() -> None:
    assert words_marked(user("a"), said("b"), user("c"), tools=TOOLS) == ["shell", "c"]


def test_a_thought_is_never_marked() -> None:
    items: list[Item] = [user("a")]
    for number in range(30):
        items += [THOUGHT, call(f"c{number}"), result(f"c{number}")]
    body = rendered(*items)
    assert all(block.get("type") != "thinking" for block in blocks_of(body) if "cache_control" in block)
    assert len(marks_in(body)) == MARKS_MAX


# --- beside the client's own marks ---


def turn_of(blocks: int, *, mark: bool = True) -> list[Item]:
    """Return an answer of calls and their results, so many blocks; the last is marked, as Claude Code does."""
    ids = [f"c{blocks}_{number}" for number in range(blocks // 2)]
    last = ToolResult(ids[-1], (Text("x", marked=mark),))
    words = [said("b")] * (blocks % 2)
    return [*words, *map(call, ids), *(result(each, "x") for each in ids[:-1]), last]


ASKED = Message(Role.USER, (Text("a", marked=True),))
OWN_RULES = (Text("Be brief.", marked=True), Text("Be kind.", marked=True))


@pytest.mark.parametrize("blocks", [2, 20, 21, 45, 61])
@pytest.mark.parametrize("rules", [(), OWN_RULES[:1], OWN_RULES], ids=["no mark", "one mark", "two marks"])
def test_a_request_with_its_own_marks_finds_the_one_before_it(blocks: int, rules: tuple[Text, ...]) -> None:
    """The referee of the contract serves both; a mark of the client's stays where it is."""
    cache = PromptCache()
    before, after = [user("q"), said("r"), ASKED], [user("q"), said("r"), user("a"), *turn_of(blocks)]
    sent = [encode(rendered(*items, tools=TOOLS, instructions=rules)) for items in (before, after)]
    own = {number for number, rule in enumerate(rules, len(TOOLS)) if rule.marked}
    assert own <= set(marks_in(json.loads(sent[1])))
    assert len(marks_in(json.loads(sent[1]))) <= MARKS_MAX
    assert cache.serve(sent[0]) == 0
    assert cache.serve(sent[1]) == len(blocks_of(json.loads(sent[0])))


@pytest.mark.parametrize("blocks", [2, 19])
def test_marks_that_reach_the_request_before_are_not_added_to(blocks: int) -> None:
    before = [item for number in range(20) for item in (user(str(number)), said("r"))]
    assert len(marks_in(rendered(*before, user("a"), *turn_of(blocks), instructions=OWN_RULES))) == 3


def test_four_marks_of_the_clients_stay_and_no_other_comes() -> None:
    items = (Message(Role.USER, (Text("0", marked=True), Text("1", marked=True))), *turn_of(61))
    body = rendered(*items, instructions=OWN_RULES[:1])
    assert words_marked(*items, instructions=OWN_RULES) == ["Be kind.", "0", "1", "c61_29"]
    assert len(marks_in(body)) == MARKS_MAX


def test_with_room_for_more_the_marks_go_on_as_far_as_they_reach() -> None:
    """The request before may have been shorter than it seems: the assistant's last turn can be several answers."""
    marks = marks_in(rendered(*turn_of(60, mark=False), *turn_of(61)))
    assert marks[-1] - marks[-2] >= LOOK_BACK
    assert [after - before for before, after in itertools.pairwise(marks[:-1])] == [LOOK_BACK] * (MARKS_MAX - 2)


def test_a_client_that_marks_nothing_of_its_conversation_gets_nothing_there() -> None:
    assert words_marked(user("a"), *turn_of(61, mark=False), instructions=OWN_RULES[:1]) == ["Be brief."]


def test_where_marks_are_refused_none_is_added_either() -> None:
    assert marks_in(rendered(user("a"), *turn_of(61), quirks=(Quirk.NO_CACHE_MARKS,))) == []


# --- the tail is found again ---

ROUNDS = st.lists(st.tuples(st.integers(0, 28), st.booleans(), st.booleans()), min_size=1, max_size=6)
"""Of each round: how many calls at once, whether there is a thought, whether a question follows."""


def grown(rounds: list[tuple[int, bool, bool]]) -> list[list[Item]]:
    """Return the conversation as it stands at each request."""
    items: list[Item] = [user("a")]
    stages = [list(items)]
    for number, (calls, thinks, asks) in enumerate(rounds):
        ids = [f"c{number}_{each}" for each in range(calls)]
        items += [THOUGHT] if thinks else []
        items += [said("b")] if not calls else [call(each) for each in ids]
        items += [result(each, "x") for each in ids]
        items += [user("go on")] if asks or not calls else []
        stages.append(list(items))
    return stages


@settings(deadline=None, max_examples=60)
@given(ROUNDS, st.booleans())
def test_each_request_looks_where_the_one_before_it_was_kept(
    rounds: list[tuple[int, bool, bool]], has_rules: bool
) -> None:
    kept: set[int] = set()
    for stage in grown(rounds):
        body = rendered(*stage, tools=TOOLS, instructions=RULES if has_rules else ())
        marks = marks_in(body)
        assert len(marks) <= MARKS_MAX
        looked_at = {place for mark in marks for place in range(mark - LOOK_BACK + 1, mark + 1)}
        assert not kept or max(kept) in looked_at, "the tail of the request before is not found"
        kept = set(marks)


def test_a_turn_of_sixty_blocks_is_bridged() -> None:
    ids = [f"c{number}" for number in range(30)]
    before: list[Item] = [user("a"), said("b"), user("c")]
    after: list[Item] = [*before, *map(call, ids), *(result(each, "x") for each in ids)]
    assert max(marks_in(rendered(*before, tools=TOOLS))) in marks_in(rendered(*after, tools=TOOLS))
