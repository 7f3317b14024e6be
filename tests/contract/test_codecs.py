"""The contract of a codec's requests, held by every codec: deterministic, valid upstream, faithful, prefix-stable."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cachegate.errors import BadInput
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import (
    Choice,
    Compacted,
    Item,
    Message,
    Reasoning,
    Request,
    Role,
    Text,
    Tool,
    ToolCall,
    ToolRef,
    ToolResult,
)
from cachegate.wire.quirks import Quirk
from contract import codec_strategies as drawn
from contract.codec_subjects import BINDING, CODECS, EACH, KEY, MODEL, target
from contract.prompt_blocks import assert_extends, blocks_of, settings_of
from contract.requests_kept import assert_kept
from contract.upstream_rules import check

EXAMPLES = int(os.environ.get("CACHEGATE_EXAMPLES", "40"))
"""How many conversations to draw per test; a long run sets thousands."""
thoroughly = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)

QUIRKS: dict[Protocol, tuple[Quirk, ...]] = {
    Protocol.MESSAGES: (Quirk.SYSTEM_TURNS,),
    Protocol.RESPONSES: (),
    Protocol.CHAT: (),
}
"""What an upstream must know for everything to be told in its place."""
_WIRE = Path(__file__).parent.parent.parent / "src" / "cachegate" / "wire"
_VALID_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")


def rendered(spoken: Protocol, request: Request, *quirks: Quirk) -> bytes:
    return CODECS[spoken].render_request(request, target(spoken, *quirks))


# --- any request ---


@EACH
@thoroughly
@given(request_=drawn.any_requests())
def test_any_valid_request_is_rendered_or_refused_by_a_field(spoken: Protocol, request_: Request) -> None:
    try:
        body = rendered(spoken, request_)
    except BadInput as refused:
        message = refused.message
        assert re.match(r"[\w.\[\]]+: \w", message), "a refusal begins with the field"
        return
    check(spoken, body)
    assert rendered(spoken, request_) == body, "the same bytes, always"
    said = json.loads(body)
    assert said["model"] == MODEL
    assert said.get("stream", False) == request_.stream
    CODECS[spoken].parse_request(body)


@EACH
@thoroughly
@given(request_=drawn.plain_requests())
def test_what_the_protocol_can_say_survives_rendering_and_parsing(spoken: Protocol, request_: Request) -> None:
    body = rendered(spoken, request_, *QUIRKS[spoken])
    check(spoken, body, frozenset(QUIRKS[spoken]))
    again = CODECS[spoken].parse_request(body)
    assert_kept(spoken, request_, again)
    assert again.stream == request_.stream
    assert again.choice == request_.choice or request_.choice is None
    if again.choice is not Choice.NONE:  # where no tool may be called, nobody asks how many at once
        assert (request_.parallel_tools is False) == (again.parallel_tools is False)
    given_ids, ids = (
        {item.call_id for item in asked.items if isinstance(item, ToolCall)} for asked in (request_, again)
    )
    assert {call_id for call_id in given_ids if _VALID_ID.fullmatch(call_id)} <= ids, "a good id is not changed"
    # Only its own provider gets an opaque value, and as it was.
    own = [] if spoken is Protocol.CHAT else opaque_values(request_, spoken)
    assert opaque_values(again) == own
    # What was parsed is rendered the same again.
    assert blocks_of(spoken, rendered(spoken, again, *QUIRKS[spoken])) == blocks_of(spoken, body)


def opaque_values(request: Request, origin: Protocol | None = None) -> list[str]:
    """Return the opaque values in a request; of one origin, those that its account may read."""
    return [
        item.opaque
        for item in request.items
        if isinstance(item, Reasoning | Compacted) and item.opaque
        if origin is None or (item.origin is origin and item.binding in {None, BINDING})
    ]


# --- the heart ---


@EACH
@thoroughly
@given(talk=drawn.growing())
def test_the_blocks_of_a_conversation_are_a_prefix_of_its_continuations(spoken: Protocol, talk: drawn.Growing) -> None:
    for quirks in ((), QUIRKS[spoken]):
        earlier, later = (rendered(spoken, request, *quirks) for request in (talk.earlier, talk.later))
        assert_extends(blocks_of(spoken, later), blocks_of(spoken, earlier))
        assert settings_of(spoken, later) == settings_of(spoken, earlier), "a changed setting costs the cache as well"


@EACH
@thoroughly
@given(talk=drawn.growing(), quirks=st.frozensets(st.sampled_from(Quirk), min_size=1, max_size=6))
def test_whatever_the_upstream_lacks_its_requests_are_valid_and_extend_each_other(
    spoken: Protocol, talk: drawn.Growing, quirks: frozenset[Quirk]
) -> None:
    earlier, later = (rendered(spoken, request, *quirks) for request in (talk.earlier, talk.later))
    check(spoken, later, quirks)
    assert_extends(blocks_of(spoken, later), blocks_of(spoken, earlier))
    assert settings_of(spoken, later) == settings_of(spoken, earlier)


# --- searches for tools ---

REFERRING = (Quirk.SYSTEM_TURNS, Quirk.TOOL_REFERENCES)
PLAIN: Mapping[Protocol, frozenset[Quirk]] = {Protocol.RESPONSES: frozenset({Quirk.PLAIN_TOOLS})}
"""What makes an upstream one that knows no deferred tools."""


@thoroughly
@given(talk=drawn.searching())
def test_tools_that_a_search_found_leave_everything_in_front_as_it_was(talk: drawn.Growing) -> None:
    """OpenAI has the search of its own client, and Anthropic references."""
    for spoken, *quirks in (
        (Protocol.MESSAGES, *REFERRING[1:]),
        (Protocol.MESSAGES, *REFERRING),
        (Protocol.RESPONSES,),
    ):
        earlier, later = (rendered(spoken, request, *quirks) for request in (talk.earlier, talk.later))
        check(spoken, later, frozenset(quirks))
        assert_extends(blocks_of(spoken, later), blocks_of(spoken, earlier))
        assert settings_of(spoken, later) == settings_of(spoken, earlier)


@EACH
@thoroughly
@given(talk=drawn.searching(), quirks=st.frozensets(st.sampled_from([*set(Quirk) - {*REFERRING}]), max_size=6))
def test_who_knows_no_deferred_tools_gets_them_like_all_others(
    spoken: Protocol, talk: drawn.Growing, quirks: frozenset[Quirk]
) -> None:
    quirks |= PLAIN.get(spoken, frozenset())
    body = rendered(spoken, talk.later, *quirks)
    check(spoken, body, quirks)
    assert b"defer_loading" not in body
    assert b"tool_reference" not in body
    again = CODECS[spoken].parse_request(body)
    assert sum(isinstance(tool, Tool) for tool in again.tools) == sum(
        isinstance(tool, Tool) for tool in talk.later.tools
    )


@EACH
@thoroughly
@given(talk=drawn.searching(wordy=False))
def test_what_a_search_found_survives_rendering_and_parsing(spoken: Protocol, talk: drawn.Growing) -> None:
    quirks = REFERRING if spoken is Protocol.MESSAGES else ()
    body = rendered(spoken, talk.later, *quirks)
    again = CODECS[spoken].parse_request(body)
    assert_kept(spoken, talk.later, again)
    if spoken is Protocol.MESSAGES:
        assert [tool.deferred for tool in again.tools if isinstance(tool, Tool)] == [
            tool.deferred for tool in talk.later.tools if isinstance(tool, Tool)
        ]
        assert blocks_of(spoken, rendered(spoken, again, *quirks)) == blocks_of(spoken, body)


@pytest.mark.parametrize("wants_usage", [True, False])
def test_a_chat_upstream_is_always_asked_for_usage_unless_it_refuses(wants_usage: bool) -> None:
    request = plain(wants_usage=wants_usage)
    assert json.loads(rendered(Protocol.CHAT, request))["stream_options"] == {"include_usage": True}
    assert "stream_options" not in json.loads(rendered(Protocol.CHAT, request, Quirk.NO_STREAM_USAGE))
    assert "stream_options" not in json.loads(rendered(Protocol.CHAT, replace(request, stream=False)))


@pytest.mark.parametrize("key", [None, "key-of-the-client"])
def test_the_cache_key_is_the_clients_or_else_the_threads(key: str | None) -> None:
    request = plain(cache_key=key)
    assert json.loads(rendered(Protocol.RESPONSES, request))["prompt_cache_key"] == (key or KEY)
    assert json.loads(rendered(Protocol.CHAT, request, Quirk.CHAT_CACHE_KEY))["prompt_cache_key"] == (key or KEY)
    assert "prompt_cache_key" not in json.loads(rendered(Protocol.CHAT, request))


# --- failures that other gateways have ---

ASK = Message(Role.USER, (Text("Fix it."),))
SHELL, READ = ToolRef("shell"), ToolRef("Read")
TOOLS = tuple(Tool(ref, "Runs.", {"type": "object", "properties": {}}) for ref in (SHELL, READ))


def called(*calls: tuple[str, ToolRef], answered: bool = True) -> tuple[Item, ...]:
    asked = tuple(ToolCall(call_id, ref, "{}") for call_id, ref in calls)
    return (*asked, *(ToolResult(call_id, (Text(f"of {call_id}"),)) for call_id, _ in calls if answered))


def plain(*items: Item, **more: Any) -> Request:
    return Request("model-here", stream=True, items=(ASK, *items), tools=TOOLS, **more)


@EACH
def test_parallel_calls_are_not_merged_and_each_keeps_its_result(spoken: Protocol) -> None:
    request = plain(*called(("c1", SHELL), ("c2", SHELL), ("c3", READ)))
    again = CODECS[spoken].parse_request(rendered(spoken, request))
    assert [item.call_id for item in again.items if isinstance(item, ToolCall)] == ["c1", "c2", "c3"]
    results = [item for item in again.items if isinstance(item, ToolResult)]
    assert [(item.call_id, [part.text for part in item.parts if isinstance(part, Text)]) for item in results] == [
        (call_id, [f"of {call_id}"]) for call_id in ("c1", "c2", "c3")
    ]


def test_parallel_calls_of_one_answer_stay_one_answer_in_chat_and_messages() -> None:
    request = plain(*called(("c1", SHELL), ("c2", READ)))
    chat = json.loads(rendered(Protocol.CHAT, request))["messages"]
    assert [message["role"] for message in chat] == ["user", "assistant", "tool", "tool"]
    messages = json.loads(rendered(Protocol.MESSAGES, request))["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]


@EACH
def test_an_aborted_call_gets_a_result_that_says_so_and_stays_where_it_is(spoken: Protocol) -> None:
    aborted = (*called(("c1", SHELL), answered=False), Message(Role.USER, (Text("Stop."),)))
    earlier, later = plain(*aborted), plain(*aborted, *called(("c2", READ)))
    check(spoken, rendered(spoken, earlier))
    assert_extends(blocks_of(spoken, rendered(spoken, later)), blocks_of(spoken, rendered(spoken, earlier)))


@EACH
def test_a_call_of_a_tool_that_was_taken_away_is_still_told(spoken: Protocol) -> None:
    gone = ToolRef("gone", "functions")
    body = rendered(spoken, plain(*called(("c1", gone))))
    check(spoken, body)
    call = next(item for item in CODECS[spoken].parse_request(body).items if isinstance(item, ToolCall))
    assert call.tool in {gone, ToolRef("functions__gone")}


@EACH
def test_results_without_a_call_are_refused_or_told_but_never_sent_as_they_are(spoken: Protocol) -> None:
    try:
        check(spoken, rendered(spoken, plain(ToolResult("nobody", (Text("lost"),)))))
    except BadInput as refused:
        assert "nobody" in refused.message  # noqa: PT017 -- either is good


@EACH
def test_the_order_of_results_does_not_matter_to_their_calls(spoken: Protocol) -> None:
    calls = called(("c1", SHELL), ("c2", READ))
    request = plain(*calls[:2], calls[3], calls[2])
    check(spoken, rendered(spoken, request))
    again = CODECS[spoken].parse_request(rendered(spoken, request))
    assert_kept(spoken, request, again)


@EACH
def test_tools_that_would_share_a_name_are_told_apart_and_keep_it(spoken: Protocol) -> None:
    refs = (ToolRef("b__c", "a"), ToolRef("c", "a__b"), ToolRef("a__b__c"), ToolRef("x" * 65), ToolRef("x" * 66))
    tools = tuple(replace(TOOLS[0], ref=ref) for ref in refs)
    request = replace(plain(), tools=tools)
    check(spoken, rendered(spoken, request))
    more = replace(request, items=(ASK, *called(*((f"c{number}", ref) for number, ref in enumerate(refs)))))
    assert_extends(blocks_of(spoken, rendered(spoken, more)), blocks_of(spoken, rendered(spoken, request)))


def test_what_the_codecs_import_has_no_clock_no_dice_and_no_network() -> None:
    """`tests/test_laws.py` forbids most; this names what would break determinism above all."""
    for codec in CODECS.values():
        room = type(codec).__module__
        assert room.startswith("cachegate.wire.")
    source = "".join(path.read_text("utf-8") for path in _WIRE.rglob("*.py"))
    assert re.findall(r"^(?:import|from) (?:uuid|random|time|asyncio|datetime|secrets)\b", source, re.MULTILINE) == []
    assert re.findall(r"(?<![\w.])(?:hash|id)\(", source) == [], "both differ from one process to the next"
