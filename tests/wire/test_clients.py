import itertools
import json
from collections.abc import Mapping
from typing import Any

import pytest

from cachegate.wire import clients
from cachegate.wire.clients import CLASSES, CLASSIFIERS, ID_CHARS_MAX, IDENTITIES
from cachegate.wire.facts import Operation, Protocol, RequestClass
from wire.received import facts_of
from wire.recordings.claude_code import CLAUDE_CODE
from wire.recordings.codex import CODEX, codex
from wire.recordings.opencode import OPENCODE
from wire.recordings.other_clients import OTHERS
from wire.recordings.recorded import CHAT, COMPACTION, Recorded

RECORDED = CODEX + CLAUDE_CODE + OPENCODE + OTHERS
BY_NAME = {recorded.name: recorded for recorded in RECORDED}

CHILDREN = {
    # main: requests that must never share its budget, nor each other's
    "codex main": ("codex sub-agent", "codex review", "codex guardian", "codex memory", "codex title",
                   "codex side question", "codex fork", "codex local compaction"),
    "codex sub-agent": ("codex main", "codex compaction of a sub-agent", "codex local compaction"),
    "codex sub-agent, headers stripped": ("codex main",),
    "codex sub-agent, window only": ("codex main",),
    "claude main": ("claude sub-agent", "claude nested sub-agent, hints", "claude workflow, hints",
                    "claude compaction", "claude compaction of a sub-agent", "claude title", "claude classifier"),
    "opencode main": ("opencode sub-agent", "opencode title", "opencode compaction"),
    "opencode main on Responses": ("opencode sub-agent on Responses", "opencode title on Responses",
                                   "opencode compaction on Responses"),
    "grok main": ("grok summary of a turn", "grok title, ids empty"),
}  # fmt: skip

SAME = (
    ("codex main", "codex resumed", "codex after a compaction", "codex main, model with tools in its input"),
    ("codex local compaction", "codex remote compaction, automatic", "codex remote compaction, headers stripped"),
    ("codex sub-agent", "codex sub-agent, headers stripped", "codex sub-agent, window only"),
    ("claude main", "claude main, hints", "claude main, headers stripped", "claude of 2025, headers stripped",
     "claude main, judged by the server", "claude main, to keep the cache warm"),
    ("claude compaction", "claude manual compaction, hints", "claude reactive compaction, hints"),
    ("claude classifier", "claude classifier, hints", "claude classifier that claims a compaction",
     "claude classifier, the transcript in messages of its own", "claude classifier in other words, told by its beta",
     "claude review of a sub-agent", "claude review of a sub-agent, hints, headers of betas stripped"),
)  # fmt: skip


def read(recorded: Recorded) -> tuple[str | None, RequestClass]:
    facts = facts_of(recorded.protocol, recorded.body, recorded.headers, recorded.operation)
    return facts.caller, facts.request_class


def caller(protocol: Protocol, body: Mapping[str, Any], **headers: str) -> str | None:
    return facts_of(protocol, body, {name.replace("_", "-"): value for name, value in headers.items()}).caller


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda recorded: recorded.name)
def test_who_is_calling_and_for_which_budget(recorded: Recorded) -> None:
    assert read(recorded) == (recorded.caller, recorded.request_class)


def test_each_recorded_request_has_a_name_of_its_own() -> None:
    assert len(BY_NAME) == len(RECORDED)


@pytest.mark.parametrize("main", list(CHILDREN))
def test_a_parent_and_its_children_never_share_a_budget(main: str) -> None:
    budgets = [read(BY_NAME[name]) for name in (main, *CHILDREN[main])]
    assert all(one != other for one, other in itertools.combinations(budgets, 2))


@pytest.mark.parametrize("names", SAME, ids=lambda names: names[0])
def test_one_budget_however_its_requests_are_dressed(names: tuple[str, ...]) -> None:
    assert len({read(BY_NAME[name]) for name in names}) == 1


def test_every_identity_was_recorded_but_the_classifiers_own() -> None:
    found = {recorded.caller.partition(":")[0] for recorded in RECORDED if recorded.caller}
    assert found == {name for name, _, _ in IDENTITIES} | {"classifier"}


def test_every_class_has_its_row_and_chat_needs_none() -> None:
    assert {cls for cls, _ in CLASSES} == set(RequestClass) - {CHAT}


@pytest.mark.parametrize("empty", ["", " ", "\t"])
@pytest.mark.parametrize(
    "header",
    [
        "x-claude-code-session-id", "thread-id", "x-grok-conv-id", "x-grok-session-id", "x-session-id",
        "x-session-affinity", "session-id", "session_id", "conversation_id", "x-codex-window-id",
    ],
)  # fmt: skip
def test_an_empty_id_is_no_id(header: str, empty: str, protocol: Protocol) -> None:
    assert facts_of(protocol, {}, {header: empty}).caller is None
    filled = facts_of(protocol, {}, {header: "a:1"}).caller
    assert filled is not None
    assert facts_of(protocol, {}, {header: f" a:1{empty}"}).caller == filled


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt_cache_key": ""},
        {"prompt_cache_key": 7},
        {"prompt_cache_key": None},
        {"conversation": ""},
        {"conversation": {"id": ""}},
        {"conversation": {"id": 7}},
        {"conversation": ["conv_1"]},
        {"client_metadata": {"thread_id": ""}},
        {"client_metadata": {"thread_id": ["t"]}},
        {"client_metadata": "t"},
        {"client_metadata": {"x-codex-turn-metadata": "{"}},
        {"client_metadata": {"x-codex-turn-metadata": '["thread_id"]'}},
        {"metadata": {"user_id": ""}},
        {"metadata": {"user_id": "user_1"}},
        {"metadata": {"user_id": "user_1_session_"}},
        {"metadata": {"user_id": "17"}},
        {"metadata": {"user_id": "{}"}},
        {"metadata": {"user_id": '{"session_id":""}'}},
        {"metadata": {"user_id": '{"session_id":7}'}},
        {"metadata": {"user_id": '{"device_id":"d"}'}},
        {"metadata": {"user_id": None}},
        {"metadata": {"user_id": {"session_id": "s"}}},
        {"metadata": "user_1_session_s"},
    ],
    ids=json.dumps,
)
def test_an_empty_or_odd_id_in_the_body_is_no_id(fields: dict[str, Any], protocol: Protocol) -> None:
    assert caller(protocol, fields) is None


def test_an_empty_id_gives_way_to_the_next_source() -> None:
    assert caller(Protocol.RESPONSES, codex("thread"), thread_id="", session_id="root") == "codex:thread"
    assert caller(Protocol.RESPONSES, {"prompt_cache_key": "k"}, x_grok_conv_id="") == "prompt-cache-key:k"
    assert caller(Protocol.MESSAGES, {"metadata": {"user_id": "u_session_s"}}, x_claude_code_session_id=" ") == (
        "claude-code:s"
    )
    assert caller(Protocol.RESPONSES, {}, x_codex_window_id="no-number", session_id="s") == "session-id:s"


def test_an_agents_id_alone_names_nobody() -> None:
    assert caller(Protocol.MESSAGES, {}, x_claude_code_agent_id="agent-1") is None


def test_a_long_id_is_cut() -> None:
    long = "i" * (ID_CHARS_MAX + 1)
    assert caller(Protocol.RESPONSES, {"prompt_cache_key": long}) == f"prompt-cache-key:{long[:-1]}"
    assert caller(Protocol.RESPONSES, {}, x_session_id=long) == f"session:{long[:-1]}"


MARKERS = (
    "You are performing a CONTEXT CHECKPOINT COMPACTION. Create a handoff summary.",
    "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools. Your task is to create a detailed summary.",
)


@pytest.mark.parametrize("marker", MARKERS)
def test_a_marker_counts_only_where_it_begins_a_text_of_the_last_item(marker: str) -> None:
    def class_of(*texts: Any) -> RequestClass:
        turns = [{"role": "user", "content": text} for text in texts]
        return facts_of(Protocol.MESSAGES, {"messages": turns}).request_class

    assert class_of("hi", marker) is COMPACTION
    assert class_of("hi", [{"type": "text", "text": marker}]) is COMPACTION
    assert class_of(f'A test quotes "{marker}"') is CHAT
    assert class_of([{"type": "tool_result", "content": f'const PROMPT = "{marker}"'}]) is CHAT
    assert class_of(marker, "hi") is CHAT
    assert class_of(f"Please explain: {marker}") is CHAT


def test_a_trigger_counts_only_as_the_last_item_itself() -> None:
    def class_of(*items: Any) -> RequestClass:
        return facts_of(Protocol.RESPONSES, {"input": items}).request_class

    trigger = {"type": "compaction_trigger"}
    assert class_of({"role": "user", "content": "hi"}, trigger) is COMPACTION
    assert class_of(trigger, {"role": "user", "content": "hi"}) is CHAT
    assert class_of({"type": "function_call_output", "output": json.dumps(trigger)}) is CHAT


def test_a_task_without_tools_that_needs_no_tools_is_a_chat_all_the_same(protocol: Protocol) -> None:
    assert facts_of(protocol, {"tools": []}).request_class is CHAT
    assert facts_of(protocol, {"output_config": {"effort": "high"}}).request_class is CHAT


def test_the_path_of_a_compaction_says_what_it_is() -> None:
    facts = facts_of(Protocol.RESPONSES, {"input": "hi"}, operation=Operation.COMPACT)
    assert (facts.caller, facts.request_class) == (None, COMPACTION)


def test_the_recordings_cover_every_class_of_the_clients_that_have_them() -> None:
    for client in (CODEX, CLAUDE_CODE, OPENCODE):
        assert {recorded.request_class for recorded in client} == set(RequestClass)


@pytest.mark.parametrize("row", range(len(CLASSES)))
def test_no_row_of_the_table_is_dead(row: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any one row some recorded request would be put into another budget."""
    monkeypatch.setattr(clients, "CLASSES", CLASSES[:row] + CLASSES[row + 1 :])
    assert any(read(recorded)[1] is not recorded.request_class for recorded in RECORDED)


@pytest.mark.parametrize("row", range(len(CLASSIFIERS)))
def test_no_row_of_the_classifiers_is_dead(row: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "CLASSIFIERS", CLASSIFIERS[:row] + CLASSIFIERS[row + 1 :])
    assert any(read(recorded) != (recorded.caller, recorded.request_class) for recorded in RECORDED)


def test_what_is_classified_is_no_opening_r15() -> None:
    """Another subject is no change of the client's; another chat's opening is."""
    for name, same in (("claude classifier", True), ("claude review of a sub-agent", True), ("claude main", False)):
        body, headers = BY_NAME[name].body, BY_NAME[name].headers
        openings = {
            facts_of(Protocol.MESSAGES, {**body, "messages": [{"role": "user", "content": text}]}, headers).fingerprint
            for text in ("one", "another")
        }
        assert len({fingerprint.opening for fingerprint in openings}) == (1 if same else 2)
        assert len({fingerprint.items for fingerprint in openings}) == 2, "why it was cold is still told"


def test_a_chat_about_the_classifier_is_a_chat() -> None:
    words = "You are a security monitor for autonomous AI coding agents."
    tools = [{"name": "Read", "input_schema": {"type": "object"}}]
    for body in ({"system": words, "tools": tools}, {"messages": [{"role": "user", "content": words}]}):
        assert facts_of(Protocol.MESSAGES, body).request_class is CHAT
    assert facts_of(Protocol.MESSAGES, {"max_tokens": 0, "safeguards": []}).request_class is CHAT
