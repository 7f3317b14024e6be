"""Searches for tools in whole conversations: what a search finds costs nothing of what was cached before it.

Where the upstream can say it, that is. All others get the tools beside those that there were, in words that they know.
"""

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from cachegate.wire.facts import Protocol
from cachegate.wire.hub import Target
from cachegate.wire.quirks import Quirk
from contract.codec_subjects import target
from contract.conversations import ClaudeCode, Client, Codex, Result
from contract.prompt_blocks import assert_extends, blocks_of, settings_of
from contract.prompt_caches import PromptCache
from contract.scenarios import FIRST_QUESTION, SCENARIOS, Step
from contract.scripts_played import Answer, Called, Spoken
from contract.test_codec_roads import Turn, drive
from contract.upstream_rules import check

OPENAI = target(Protocol.RESPONSES)
IMITATORS = {
    "an imitator of anthropic": target(Protocol.MESSAGES),
    "an imitator of openai": target(Protocol.RESPONSES, Quirk.PLAIN_TOOLS),
    "chat": target(Protocol.CHAT),
}
ANTHROPIC = target(Protocol.MESSAGES, Quirk.TOOL_REFERENCES)
SEARCHERS: Mapping[str, Callable[[], Client]] = {
    "codex": lambda: Codex(searching=True),
    "claude-code": lambda: ClaudeCode(searching=True),
}
_SEARCHES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "codex": (("issue", "create_issue"), ("ci", "await_ci")),
    "claude-code": (("web", "WebFetch"), ("cron", "CronCreate")),
}
"""What each asks for, and what it finds."""
_NAMES = {"codex": "tool_search", "claude-code": "ToolSearch"}
EACH_SEARCHER = pytest.mark.parametrize("name", SEARCHERS)


def steps(name: str) -> Iterator[Step]:
    """Search and call what was found, twice."""
    for number, (query, tool) in enumerate(_SEARCHES[name]):
        search = Called(_NAMES[name], json.dumps({"query": query}))
        yield Step(Answer(10 * number + 1, (Spoken("I need a tool."), search)), (Result("found"),))
        yield Step(Answer(10 * number + 2, (Called(tool, '{"title":"é"}'),)), (Result("done"),))
        yield Step(Answer(10 * number + 3, (Spoken("Done."),)), question="Thanks. And then?")


def talk(name: str, there: Target) -> list[Turn]:
    client = SEARCHERS[name]()
    client.ask(FIRST_QUESTION)
    return list(drive(client, there, tuple(steps(name)), streamed=True))


@EACH_SEARCHER
def test_a_search_costs_nothing_of_anthropics_cache(name: str) -> None:
    cache, before = PromptCache(), 0
    for turn in talk(name, ANTHROPIC):
        check(Protocol.MESSAGES, turn.body, ANTHROPIC.quirks)
        assert cache.serve(turn.body) == before, "all of the request before, tools and instructions, too"
        before = len(turn.blocks)


@EACH_SEARCHER
def test_found_tools_stand_behind_the_prompt_and_are_referred_to(name: str) -> None:
    turns = talk(name, ANTHROPIC)
    for earlier, later in itertools.pairwise(turns):
        assert_extends(later.blocks, earlier.blocks)
        assert settings_of(Protocol.MESSAGES, later.body) == settings_of(Protocol.MESSAGES, earlier.body)
    body = turns[-1].request
    deferred = {tool["name"] for tool in body["tools"] if tool.get("defer_loading")}
    referred = [part["tool_name"] for part in _result_parts(body) if part["type"] == "tool_reference"]
    assert [wired.split("__")[-1] for wired in referred] == [tool for _, tool in _SEARCHES[name]]
    assert set(referred) == deferred - {"DeferredToolPlaceholder"}


def _result_parts(body: Mapping[str, Any]) -> list[Any]:
    blocks = [block for message in body["messages"] for block in message["content"]]
    return [part for block in blocks if block["type"] == "tool_result" for part in block["content"]]


_SEARCHED = talk("claude-code", ANTHROPIC)[-1].body
BAD: Mapping[str, bytes] = {
    "all tools deferred": _SEARCHED.replace(b'"input_schema":', b'"defer_loading":true,"input_schema":'),
    "an unknown tool referred to": _SEARCHED.replace(b'"tool_name":"WebFetch"', b'"tool_name":"WebFetched"'),
    "words beside a reference": _SEARCHED.replace(
        b'[{"type":"tool_reference"', b'[{"type":"text","text":"x"},{"type":"tool_reference"', 1
    ),
    "an error with a reference": _SEARCHED.replace(
        b'"content":[{"type":"tool_reference"', b'"is_error":true,"content":[{"type":"tool_reference"', 1
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_anthropic_refuses_of_a_search_is_seen(name: str) -> None:
    check(Protocol.MESSAGES, _SEARCHED, ANTHROPIC.quirks)
    assert BAD[name] != _SEARCHED
    with pytest.raises(AssertionError):
        check(Protocol.MESSAGES, BAD[name], ANTHROPIC.quirks)


def test_a_word_that_an_imitator_does_not_know_is_seen() -> None:
    with pytest.raises(AssertionError):
        check(Protocol.MESSAGES, _SEARCHED)


def test_a_found_tool_that_stands_in_front_is_seen_as_a_lost_cache() -> None:
    earlier, later = (turn.body for turn in talk("codex", ANTHROPIC)[:2])
    cache = PromptCache()
    cache.serve(earlier)
    assert cache.serve(later.replace(b'"defer_loading":true', b'"defer_loading":false')) < len(
        blocks_of(Protocol.MESSAGES, earlier)
    )


@EACH_SEARCHER
@pytest.mark.parametrize("there", IMITATORS.values(), ids=IMITATORS)
def test_others_are_told_in_words_they_know(name: str, there: Target) -> None:
    """`drive` sees to it that the client understands every call, the one of its search as well."""
    turns = talk(name, there)
    for turn in turns:
        check(turn.upstream, turn.body, there.quirks)
        assert b"defer_loading" not in turn.body
        assert b"tool_reference" not in turn.body
        assert b"tool_search_output" not in turn.body
    for _, tool in _SEARCHES[name]:
        assert turns[-1].body.count(tool.encode()) >= 3, "declared, told as found, and called"


@pytest.mark.parametrize("streamed", [True, False])
def test_openai_gets_codexs_own_search_as_codex_wrote_it(streamed: bool) -> None:
    """So a request that has to be written anew finds what the others, which went up as they were, left in the cache."""
    client = Codex(streamed, searching=True)
    client.ask(FIRST_QUESTION)
    turns = list(drive(client, OPENAI, tuple(steps("codex")), streamed=streamed))
    for earlier, later in itertools.pairwise(turns):
        check(Protocol.RESPONSES, later.body)
        assert_extends(later.blocks, earlier.blocks)
        assert settings_of(Protocol.RESPONSES, later.body) == settings_of(Protocol.RESPONSES, earlier.body)
    wished, sent = json.loads(client.body()), turns[-1].request
    assert sent["tools"] == wished["tools"]
    assert _searched(sent) == _searched(wished)


def _searched(body: Mapping[str, Any]) -> list[Any]:
    """Return the searches in a request; `Codex` keeps no states of calls here, the real one does."""
    items = [item for item in body["input"] if item.get("type") in {"tool_search_call", "tool_search_output"}]
    return [{name: value for name, value in item.items() if name != "status"} for item in items]


def test_openai_is_told_of_claude_codes_finds_as_of_all_tools() -> None:
    """Which of its models can load tools later is not known here; the client did not ask for it in OpenAI's words."""
    for turn in talk("claude-code", OPENAI):
        check(Protocol.RESPONSES, turn.body)
        assert b"defer_loading" not in turn.body
        assert b"tool_search_output" not in turn.body


@EACH_SEARCHER
def test_a_turn_of_many_blocks_is_found_again_also_beside_the_clients_own_marks(name: str) -> None:
    client = SEARCHERS[name]()
    client.ask(FIRST_QUESTION)
    one = SCENARIOS[client.protocol][0]
    many = Step(Answer(11, (Spoken("All at once."), *one.answer.calls * 22)), one.results * 22)
    cache, before = PromptCache(), 0
    for turn in drive(client, ANTHROPIC, (one, many, *SCENARIOS[client.protocol][1:3], many), streamed=True):
        check(Protocol.MESSAGES, turn.body, ANTHROPIC.quirks)
        assert cache.serve(turn.body) == before
        before = len(turn.blocks)
