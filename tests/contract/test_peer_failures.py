"""Failures that other gateways are known for, one test each, through the whole gateway and for every pair of protocols.

`test_codecs.py` and its neighbours hold the codecs to the same; these here would also notice a gateway that loses what
its codecs did right.
"""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from cachegate.guard.usage import Usage
from cachegate.wire.facts import Protocol
from contract.preset_answers import PARALLEL, TEXT, before_the_end, body, broken_off, call_id, events
from contract.preset_clients import Call, asking, hear, hear_error
from contract.preset_departures import leave_a_stream, leave_before_the_first_byte, leave_half_an_answer
from contract.preset_facts import FACTS, C, M, R
from contract.preset_roads import Road, roads
from contract.preset_stage import CREDENTIALS, Stage, bound, decoded, sent
from contract.preset_troubles import BUSY, overloaded
from contract.preset_usage import READ, REPORTS, TOTAL, WRITTEN, Report
from scripted_upstream import whole

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROVIDER = {M: "anthropic", R: "openai", C: "openai"}
"""Who invented each protocol."""
PAIRS: tuple[Road, ...] = tuple((PROVIDER[spoken], client, spoken) for client in (M, R, C) for spoken in (M, R, C))
EACH_PAIR = roads(*PAIRS)
CROSSING = roads(*(pair for pair in PAIRS if pair[1] is not pair[2]))
EACH_WAY = pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])

Json = Mapping[str, Any]


def request(kind: str, client: Protocol, spoken: Protocol, *, streamed: bool, **more: Any) -> bytes:
    return asking(client, f"{bound(kind, spoken)}/model-up", streamed=streamed, **more)


async def answered(stage: Stage, road: Road, report: Report, *, streamed: bool) -> bytes:
    """Return what the client gets of a short text with this usage."""
    kind, client, spoken = road
    stage.answers(sent(events(kind, spoken, TEXT, report)), sent(body(kind, spoken, TEXT, report)))
    heard = await stage.ask(client, request(kind, client, spoken, streamed=streamed))
    assert heard.status == 200
    return heard.body


# --- merged parallel calls ---


@roads(
    *PAIRS,
    *((kind, client, C) for kind in ("gemini", "mistral") for client in (M, R)),  # number all calls 0, or none
)
@EACH_WAY
async def test_merged_parallel_calls(
    stage: Stage, kind: str, client: Protocol, spoken: Protocol, streamed: bool
) -> None:
    report = REPORTS[spoken][kind]["warm"]
    came = events(kind, spoken, PARALLEL, report)
    stage.answers(sent(came), sent(body(kind, spoken, PARALLEL, report)))
    heard = await stage.ask(client, request(kind, client, spoken, streamed=streamed))
    await stage.record()
    if client is spoken:
        assert heard.body == (b"".join(came) if streamed else body(kind, spoken, PARALLEL, report))
        return
    told = hear(client, heard.body, streamed=streamed)
    assert told.calls == tuple(
        Call(call_id(kind, spoken, number), name, json.loads(arguments))
        for number, (name, arguments) in enumerate(PARALLEL.calls)
    )


HISTORY: Mapping[Protocol, Json] = {
    M: {
        "messages": [
            {"role": "user", "content": "Look."},
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": name, "name": "shell", "input": {"command": name}}
                    for name in ("c1", "c2")
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": name, "content": f"of {name}"} for name in ("c1", "c2")
                ],
            },
        ]
    },
    R: {
        "input": [
            {"role": "user", "content": "Look."},
            *(
                {"type": "function_call", "call_id": name, "name": "shell", "arguments": f'{{"command": "{name}"}}'}
                for name in ("c1", "c2")
            ),
            *({"type": "function_call_output", "call_id": name, "output": f"of {name}"} for name in ("c1", "c2")),
        ]
    },
    C: {
        "messages": [
            {"role": "user", "content": "Look."},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": name,
                        "type": "function",
                        "function": {"name": "shell", "arguments": f'{{"command": "{name}"}}'},
                    }
                    for name in ("c1", "c2")
                ],
            },
            *({"role": "tool", "tool_call_id": name, "content": f"of {name}"} for name in ("c1", "c2")),
        ]
    },
}
"""Two calls at once, each with its result."""


@EACH_PAIR
async def test_merged_parallel_calls_in_the_history(
    stage: Stage, kind: str, client: Protocol, spoken: Protocol
) -> None:
    report = REPORTS[spoken][kind]["warm"]
    stage.plays(sent(body(kind, spoken, TEXT, report)))
    await stage.ask(client, request(kind, client, spoken, streamed=False, **HISTORY[client]))
    await stage.record()
    assert results_of(spoken, decoded(stage.asked)) == {"c1": ("c1", "of c1"), "c2": ("c2", "of c2")}


def results_of(spoken: Protocol, asked: Json) -> dict[str, tuple[str, str]]:
    """Id of each call, with its command and its result."""
    calls: dict[str, str] = {}
    results: dict[str, str] = {}
    match spoken:
        case Protocol.MESSAGES:
            blocks = [
                block for message in asked["messages"] if message["role"] != "system" for block in blocks_of(message)
            ]
            calls = {block["id"]: block["input"]["command"] for block in blocks if block["type"] == "tool_use"}
            results = {
                block["tool_use_id"]: text_of(block["content"]) for block in blocks if block["type"] == "tool_result"
            }
        case Protocol.RESPONSES:
            items = [item for item in asked["input"] if "call_id" in item]
            calls = {item["call_id"]: json.loads(item["arguments"])["command"] for item in items if "arguments" in item}
            results = {item["call_id"]: text_of(item["output"]) for item in items if "output" in item}
        case Protocol.CHAT:
            made = [call for message in asked["messages"] for call in message.get("tool_calls") or []]
            calls = {call["id"]: json.loads(call["function"]["arguments"])["command"] for call in made}
            told = [message for message in asked["messages"] if message["role"] == "tool"]
            results = {message["tool_call_id"]: text_of(message["content"]) for message in told}
    return {name: (command, results[name]) for name, command in calls.items()}


def blocks_of(message: Json) -> list[Any]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def text_of(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


# --- usage ---


@EACH_PAIR
@EACH_WAY
async def test_usage_zeros_for_unknown(
    stage: Stage, kind: str, client: Protocol, spoken: Protocol, streamed: bool
) -> None:
    received = await answered(stage, (kind, client, spoken), REPORTS[spoken][kind]["silent"], streamed=streamed)
    assert (await stage.record()).usage == Usage(TOTAL, None, None)
    told = hear(client, received, streamed=streamed)
    assert told.usage == Usage(TOTAL, None, None), "neither the guard nor the client takes the unknown for 0"
    cold = await answered(stage, (kind, client, spoken), REPORTS[spoken][kind]["cold"], streamed=streamed)
    assert (await stage.record()).usage == Usage(TOTAL, 0, 0)
    assert hear(client, cold, streamed=streamed).usage == Usage(TOTAL, 0, 0), "and a measured 0 stays one"


@EACH_PAIR
@EACH_WAY
async def test_double_counting_of_cached_tokens(
    stage: Stage, kind: str, client: Protocol, spoken: Protocol, streamed: bool
) -> None:
    received = await answered(stage, (kind, client, spoken), REPORTS[spoken][kind]["warm"], streamed=streamed)
    record = await stage.record()
    assert (record.usage, record.usage.uncached) == (Usage(TOTAL, READ, WRITTEN), TOTAL - READ)
    assert hear(client, received, streamed=streamed).usage == Usage(TOTAL, READ, WRITTEN)
    # Anthropic counts what is neither read nor written, OpenAI everything.
    fresh = TOTAL - READ - WRITTEN
    named = {M: ("input_tokens", fresh), R: ("input_tokens", TOTAL), C: ("prompt_tokens", TOTAL)}
    name, value = named[client]
    assert json.dumps({name: value}, separators=(",", ":"))[1:-1] in received.decode().replace(": ", ":")


# --- failures ---


@EACH_PAIR
async def test_a_mid_stream_error_reported_as_completed(
    stage: Stage, kind: str, client: Protocol, spoken: Protocol
) -> None:
    stage.plays(sent(broken_off(kind, spoken, REPORTS[spoken][kind]["warm"])))
    heard = await stage.ask(client, request(kind, client, spoken, streamed=True))
    record = await stage.record()
    assert (record.ending, record.status) == ("failed", 200)
    assert BUSY in heard.body.decode()
    if client is not spoken:
        told = hear(client, heard.body, streamed=True)
        assert (told.complete, told.stop) == (False, "")
        assert told.error is not None


@EACH_PAIR
@EACH_WAY
async def test_529_turned_into_500(stage: Stage, kind: str, client: Protocol, spoken: Protocol, streamed: bool) -> None:
    """Clients wait after an overload; after a 500 they give up, or hammer."""
    stage.plays([whole(529, overloaded(spoken)[1], "retry-after: 9")])
    heard = await stage.ask(client, request(kind, client, spoken, streamed=streamed))
    assert ((await stage.record()).ending, heard.headers["retry-after"]) == ("failed", "9")
    error, code, message = hear_error(client, heard.body)
    assert message == BUSY
    if client is M:
        assert (heard.status, error) == (529, "overloaded_error")
    else:
        # OpenAI's clients know the status 503 for it; an upstream of their own protocol is not corrected.
        assert (heard.status, code) == (529 if client is spoken else 503, "server_is_overloaded")


# --- caches ---

MARK = {"cache_control": {"type": "ephemeral"}}
MARKED: Mapping[Protocol, Json] = {
    M: {
        "system": [{"type": "text", "text": "Rules.", **MARK}, {"type": "text", "text": "More."}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "First.", **MARK}]},
            {"role": "assistant", "content": "Yes."},
            {"role": "user", "content": [{"type": "text", "text": "Second."}]},
        ],
    },
    C: {
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "Rules.", **MARK}]},
            {"role": "user", "content": [{"type": "text", "text": "First.", **MARK}]},
            {"role": "assistant", "content": "Yes."},
            {"role": "user", "content": [{"type": "text", "text": "Second."}]},
        ],
    },
}
"""A client's own marks: behind the rules and behind the first question."""


@roads(
    ("anthropic", M, M),
    ("openrouter", M, M),
    ("openrouter", C, C),
    ("qwen", C, C),
    ("anthropic", C, M),
    ("openrouter", C, M),
    ("openrouter", M, C),
    ("qwen", M, C),
)
async def test_cache_marks_lost(stage: Stage, kind: str, client: Protocol, spoken: Protocol) -> None:
    stage.plays(sent(body(kind, spoken, TEXT, REPORTS[spoken][kind]["warm"])))
    await stage.ask(client, request(kind, client, spoken, streamed=False, **MARKED[client]))
    await stage.record()
    assert {"Rules.", "First."} <= marked_texts(decoded(stage.asked))


@roads(("anthropic", R, M), ("openrouter", R, M), ("openrouter", R, C), ("qwen", R, C))
async def test_cache_marks_never_set_for_a_client_that_knows_none(
    stage: Stage, kind: str, client: Protocol, spoken: Protocol
) -> None:
    stage.plays(sent(body(kind, spoken, TEXT, REPORTS[spoken][kind]["warm"])))
    given = {"instructions": "Rules.", "input": [{"role": "user", "content": "First."}]}
    await stage.ask(client, request(kind, client, spoken, streamed=False, **given))
    await stage.record()
    assert {"Rules.", "First."} <= marked_texts(decoded(stage.asked)), "what others share, and what comes next reads"


def marked_texts(value: Any) -> set[str]:
    """Every text with a mark on it."""
    if isinstance(value, list):
        return set().union(*map(marked_texts, value))
    if not isinstance(value, dict):
        return set()
    own = {str(value.get("text"))} if value.get("cache_control") else set()
    return own.union(*map(marked_texts, value.values()))


SESSION = {
    "session-id": "s-1",
    "thread-id": "t-1",
    "x-session-affinity": "a-1",
    "x-session-id": "i-1",
    "x-grok-conv-id": "g-1",
    "x-claude-code-session-id": "c-1",
    "x-claude-code-agent-id": "c-2",
    "x-codex-window-id": "t-1:4",
    "x-codex-turn-state": "opaque==",
    "x-codex-parent-thread-id": "t-0",
    "x-client-request-id": "t-1",
    "openai-beta": "responses=v1",
}
"""By these, providers find the cache of a session, and clients their own turns again."""


@roads(*((kind, spoken, spoken) for kind, facts in FACTS.items() for spoken in facts.paths))
async def test_session_headers_dropped(stage: Stage, kind: str, client: Protocol, spoken: Protocol) -> None:
    report = REPORTS[spoken][kind]["silent"]
    stage.plays(sent(body(kind, spoken, TEXT, report), "x-codex-turn-state: next=="))
    heard = await stage.ask(client, request(kind, client, spoken, streamed=False), {**CREDENTIALS, **SESSION})
    await stage.record()
    went_up = {name.lower(): value for name, value in stage.asked.headers}
    assert went_up.items() >= SESSION.items()
    assert heard.headers["x-codex-turn-state"] == "next==", "and what the client must hand back comes down"


AFFINITY = (
    ("xai", M, R),
    ("xai", C, R),
    ("openrouter", R, M),
    ("openrouter", M, C),
    ("openai", M, R),
    ("mistral", R, C),
)


@roads(*AFFINITY)
@pytest.mark.parametrize("name", ["x-claude-code-session-id", "thread-id", "x-session-affinity", "session-id"])
async def test_session_headers_dropped_in_translation(
    stage: Stage, kind: str, client: Protocol, spoken: Protocol, name: str
) -> None:
    """Another protocol's header means nothing to the provider: its own one stands for it, the same in every turn."""
    named: list[tuple[str | None, str | None]] = []
    for thread in ("one", "one", "two"):
        stage.plays(sent(body(kind, spoken, TEXT, REPORTS[spoken][kind]["silent"])))
        await stage.ask(client, request(kind, client, spoken, streamed=False), {**CREDENTIALS, name: thread})
        await stage.record()
        header = stage.asked.header(FACTS[kind].affinity) if FACTS[kind].affinity else None
        named.append((header, decoded(stage.asked).get("prompt_cache_key")))
    assert named[0] == named[1]
    assert named[1] != named[2]


# --- cancelled turns that run on ---


@EACH_PAIR
@EACH_WAY
async def test_cancelled_turns_that_keep_running_upstream_before_the_first_byte(
    stage: Stage, kind: str, client: Protocol, spoken: Protocol, streamed: bool
) -> None:
    await leave_before_the_first_byte(stage, client, request(kind, client, spoken, streamed=streamed))


@EACH_PAIR
@EACH_WAY
async def test_cancelled_turns_that_keep_running_upstream_in_the_middle(
    stage: Stage, kind: str, client: Protocol, spoken: Protocol, streamed: bool
) -> None:
    data, report = request(kind, client, spoken, streamed=streamed), REPORTS[spoken][kind]["warm"]
    if streamed:
        await leave_a_stream(stage, client, data, before_the_end(events(kind, spoken, TEXT, report), spoken))
    else:
        await leave_half_an_answer(stage, client, data, whole(200, body(kind, spoken, TEXT, report))[:-10])
