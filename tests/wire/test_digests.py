"""Keyed digests: what changes them, what must not, and that nothing can be read from them (R15)."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachegate.guard.fingerprint import ITEM_BYTES, ITEMS_MAX, Fingerprint
from cachegate.wire.body import JsonObject
from cachegate.wire.digests import Digester
from cachegate.wire.facts import Operation, Protocol
from cachegate.wire.parse import Received, parse

KEY = b"k" * 32
MARK = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
TOOLS = [{"name": "read", "input_schema": {"type": "object"}}, {"name": "write", "input_schema": {}}]


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def messages(**fields: Any) -> Fingerprint:
    return of(Protocol.MESSAGES, {"model": "m", "system": "You code.", "tools": TOOLS, **fields})


def responses(**fields: Any) -> Fingerprint:
    return of(Protocol.RESPONSES, {"model": "m", **fields})


def of(protocol: Protocol, fields: dict[str, Any], key: bytes = KEY, **headers: str) -> Fingerprint:
    data = json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return parse(Received(protocol, Operation.GENERATE, named, "", data, data), key).facts.fingerprint


CHAT = [user("hi"), {"role": "assistant", "content": [text("hello")]}, user([text("and?")])]
BASE = messages(messages=CHAT)

NOISE = {
    "cache marks on tools": messages(messages=CHAT, tools=[TOOLS[0], {**TOOLS[1], **MARK}]),
    "tools in another order": messages(messages=CHAT, tools=TOOLS[::-1]),
    "instructions as a block": messages(messages=CHAT, system=[text("You code.")]),
    "instructions with a mark": messages(messages=CHAT, system=[text("You code.", **MARK)]),
    "a billing line": messages(
        messages=CHAT, system=[text("x-anthropic-billing-header: cc_version=1; cch=8f3a;"), text("You code.")]
    ),
    "a moving mark": messages(messages=[*CHAT[:2], user([text("and?", **MARK)])]),
    "a mark in front": messages(messages=[*CHAT[:2], user([{**MARK, **text("and?")}])]),
    "a null mark": messages(messages=[*CHAT[:2], user([text("and?", cache_control=None)])]),
    "strings as blocks": messages(messages=[user([text("hi")]), CHAT[1], CHAT[2]]),
    "blocks as strings": messages(messages=[CHAT[0], {"role": "assistant", "content": "hello"}, user("and?")]),
    "another length of answer": messages(messages=CHAT, max_tokens=5, metadata={"user_id": "x"}, stream=True),
}


def parts(fingerprint: Fingerprint) -> tuple[bytes, ...]:
    return (fingerprint.tools, fingerprint.instructions, fingerprint.opening, fingerprint.thinking, fingerprint.speed,
            fingerprint.items)  # fmt: skip


@pytest.mark.parametrize("name", NOISE)
def test_noise_changes_nothing(name: str) -> None:
    assert parts(NOISE[name]) == parts(BASE)


COPILOT_MARK = {"copilot_cache_control": {"type": "ephemeral"}}


def chat(*turns: Any, **fields: Any) -> Fingerprint:
    return of(Protocol.CHAT, {"model": "m", "tools": TOOLS, "messages": [*turns], **fields})


@pytest.mark.parametrize("mark", [MARK, COPILOT_MARK])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_mark_that_moves_through_a_chat_changes_nothing(mark: dict[str, Any], at: int) -> None:
    turns = [user("hi"), {"role": "assistant", "content": "hello"}, user("and?")]
    base = parts(chat(*turns))
    assert parts(chat(*[{**turn, **mark} if number == at else turn for number, turn in enumerate(turns)])) == base
    assert parts(chat(*[{**mark, **turn} if number == at else turn for number, turn in enumerate(turns)])) == base
    assert parts(chat(*turns, tools=[TOOLS[0], {**TOOLS[1], **mark}])) == base
    assert parts(chat(*turns[:2], user('"copilot_cache_control": {}'))) != base, "in a text it is one"


CHANGED = {
    "a tool more": ("tools", messages(messages=CHAT, tools=[*TOOLS, {"name": "more"}])),
    "another schema": ("tools", messages(messages=CHAT, tools=[TOOLS[0], {"name": "write", "x": 1}])),
    "a tool twice": ("tools", messages(messages=CHAT, tools=[*TOOLS, TOOLS[0]])),
    "instructions": ("instructions", messages(messages=CHAT, system="You write.")),
    "leading system item": ("instructions", messages(messages=[{"role": "system", "content": "env"}, *CHAT])),
    "thinking": ("thinking", messages(messages=CHAT, thinking={"type": "adaptive"})),
    "effort": ("thinking", messages(messages=CHAT, output_config={"effort": "high"})),
    "fast": ("speed", messages(messages=CHAT, speed="fast")),
    "tier": ("speed", messages(messages=CHAT, service_tier="priority")),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_change_shows_in_its_part_and_in_no_other(name: str) -> None:
    part, changed = CHANGED[name]
    differing = [
        field
        for field in ("tools", "instructions", "opening", "thinking", "speed", "items")
        if getattr(changed, field) != getattr(BASE, field)
    ]
    assert differing == [part]


def test_the_opening_is_the_first_user_item() -> None:
    reopened = messages(messages=[user([text("<system-reminder>today</system-reminder>"), text("hi")]), *CHAT[1:]])
    assert reopened.opening != BASE.opening
    assert reopened.items[ITEM_BYTES:] == BASE.items[ITEM_BYTES:]
    assert messages(messages=[{"role": "system", "content": "env"}, *CHAT]).opening == BASE.opening


def test_a_continued_conversation_begins_with_the_same_items() -> None:
    longer = messages(messages=[*CHAT, {"role": "assistant", "content": "x"}, {"role": "system", "content": "late"}])
    assert longer.items[: len(BASE.items)] == BASE.items
    assert longer.instructions == BASE.instructions, "a system item in the middle is history"
    assert (BASE.items_count, longer.items_count) == (3, 5)


def test_claude_codes_system_items_behind_the_first_message_are_instructions() -> None:
    def turn(listed: Any) -> Fingerprint:
        return messages(messages=[user("hi"), {"role": "system", "content": listed}, *CHAT[1:]])

    base = turn("Deferred tools: Read")
    assert base.items == BASE.items
    assert turn([text("Deferred tools: Read")]).instructions == base.instructions
    more = turn("Deferred tools: Read, Write")
    assert more.instructions != base.instructions
    assert (more.items, more.opening, more.items_count) == (base.items, base.opening, 3)


def developer(words: str) -> dict[str, Any]:
    return {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": words}]}


def test_codex_carries_tools_and_instructions_inside_the_conversation() -> None:
    def turn(tools: list[Any], words: str, *more: Any) -> Fingerprint:
        declared = {"type": "additional_tools", "tools": tools}
        return responses(
            input=[declared, developer(words), {"type": "message", "role": "user", "content": "hi"}, *more]
        )

    base = turn(TOOLS, "You code.")
    assert base.items_count == 1
    assert parts(turn(TOOLS[::-1], "You code.")) == parts(base)
    more_tools = turn([*TOOLS, {"name": "mcp"}], "You code.")
    assert more_tools.tools != base.tools
    assert (more_tools.instructions, more_tools.items) == (base.instructions, base.items)
    assert turn(TOOLS, "You write.").instructions != base.instructions
    answer = {"type": "message", "role": "assistant", "content": []}
    assert turn(TOOLS, "You code.", answer, developer("late")).instructions == base.instructions


def test_responses_effort_and_plain_input_are_read() -> None:
    base = responses(input="hi", reasoning={"effort": "low", "summary": "auto"})
    assert responses(input="hi", reasoning={"effort": "low"}).thinking == base.thinking
    assert responses(input="hi", reasoning={"effort": "high"}).thinking != base.thinking
    assert (base.items_count, len(base.items)) == (1, ITEM_BYTES)
    assert responses(input="ho").items != base.items
    assert responses().items_count == 0


def test_marks_are_asked_for_on_messages_only() -> None:
    assert not BASE.marked
    assert messages(messages=CHAT, system=[text("You code.", **MARK)]).marked
    assert responses(input="hi").marked


def test_the_client_says_when_a_new_window_begins() -> None:
    fields = {"model": "m", "input": "hi"}
    first = of(Protocol.RESPONSES, fields, x_codex_window_id="t:1")
    assert first.window == of(Protocol.RESPONSES, fields, x_codex_window_id="t:1").window
    assert first.window != of(Protocol.RESPONSES, fields, x_codex_window_id="t:2").window
    assert of(Protocol.MESSAGES, fields, x_claude_code_context_compacted="true").compacted
    assert not first.compacted


def test_digests_are_keyed_and_hold_nothing_of_the_content() -> None:
    fields = {"model": "m", "input": [user("a secret that nobody may read")]}
    one, other = of(Protocol.RESPONSES, fields), of(Protocol.RESPONSES, fields, key=b"K" * 32)
    assert not set(parts(one)) & set(parts(other))
    assert b"secret" not in b"".join(parts(one))


def test_digests_are_bounded() -> None:
    many = responses(input=[user(str(number)) for number in range(ITEMS_MAX + 100)])
    assert len(many.items) == ITEMS_MAX * ITEM_BYTES
    assert many.items_count == ITEMS_MAX + 100


@given(st.text(), st.booleans(), st.booleans())
def test_no_text_is_mistaken_for_structure(words: str, ascii_only: bool, spaced: bool) -> None:
    """Whatever a text holds, a block and a string give one digest, and another text another."""
    separators = (", ", ": ") if spaced else (",", ":")

    def digest(content: Any) -> bytes:
        fields = {"model": "m", "messages": [user(content)], "metadata": MARK}
        data = json.dumps(fields, ensure_ascii=ascii_only, separators=separators).encode("utf-8", "surrogatepass")
        digester = Digester(Protocol.MESSAGES, JsonObject(data), KEY)
        (item,) = digester._body.items("messages")
        return digester.digest(digester.plain(bytes(item)))

    assert digest(words) == digest([text(words)]) == digest([text(words, **MARK)])
    assert digest(words) != digest(words + "x")
    assert digest([text(words), text("x")]) != digest(words)
