from typing import Any

import pytest

from cachegate.wire.envelopes import Envelope, open_envelope
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import Delta, PartEnded, PartKind, PartStarted, Request, Target, ToolCall, ToolRef
from cachegate.wire.messages.answer_parts import AnswerPart, AnswerParts, PartEvent
from cachegate.wire.quirks import Quirk

ASKED = Request("m", stream=True)
THOUGHT = PartStarted(0, PartKind.THINKING, item_id="rs_1")


def taken(
    *events: PartEvent, origin: Protocol | None = None, binding: str = "openai", quirks: tuple[Quirk, ...] = ()
) -> AnswerParts:
    parts = AnswerParts(ASKED, Target("m", binding, origin=origin, quirks=frozenset(quirks)))
    parts.name("resp_1")
    for event in events:
        parts.take(event)
    return parts


def part(*events: PartEvent, **more: Any) -> AnswerPart:
    return taken(*events, **more).under_way[0]


def test_deltas_come_once() -> None:
    parts = taken(PartStarted(0, PartKind.TEXT), Delta(0, "a"), Delta(0, "b"))
    text = parts.under_way[0]
    assert text.new_deltas() == [{"type": "text_delta", "text": "a"}, {"type": "text_delta", "text": "b"}]
    assert text.new_deltas() == []
    parts.take(Delta(0, "c"))
    assert text.new_deltas() == [{"type": "text_delta", "text": "c"}]
    assert text.whole() == {"type": "text", "text": "abc"}


def test_what_belongs_to_no_open_part_is_passed_over() -> None:
    parts = taken(Delta(3, "a"), PartEnded(3), PartStarted(0, PartKind.TEXT), PartEnded(0), Delta(0, "late"))
    parts.take(PartEnded(0, annotations=({"type": "char_location"},)))
    assert list(parts.under_way) == [0]
    assert parts.under_way[0].whole() == {"type": "text", "text": ""}


@pytest.mark.parametrize("origin", [None, Protocol.MESSAGES])
def test_a_thought_of_claudes_keeps_its_signature(origin: Protocol | None) -> None:
    thought = part(THOUGHT, Delta(0, "Hm."), PartEnded(0, "sig"), origin=origin)
    assert thought.whole() == {"type": "thinking", "thinking": "Hm.", "signature": "sig"}
    assert thought.last_deltas() == [{"type": "signature_delta", "signature": "sig"}]
    redacted = part(THOUGHT, PartEnded(0, "blob", redacted=True), origin=origin)
    assert redacted.whole() == redacted.beginning() == {"type": "redacted_thinking", "data": "blob"}
    assert (redacted.new_deltas(), redacted.last_deltas()) == ([], [])


@pytest.mark.parametrize(
    ("ended", "sealed"),
    [
        (PartEnded(0, "gAAAA"), Envelope(Protocol.RESPONSES, "openai", "Hm.", "gAAAA", "rs_1")),
        # Nothing to hand back: only the mark that it is no signature of Claude's.
        (PartEnded(0), Envelope(Protocol.RESPONSES, "openai", "", "", "rs_1")),
    ],
)
def test_a_foreign_thought_goes_into_an_envelope(ended: PartEnded, sealed: Envelope) -> None:
    thought = part(THOUGHT, Delta(0, "Hm."), ended, origin=Protocol.RESPONSES)
    assert thought.opaque is not None
    assert open_envelope(thought.opaque) == sealed
    again = part(THOUGHT, Delta(0, "Hm."), ended, origin=Protocol.RESPONSES)
    assert again.opaque == thought.opaque


def test_a_thought_that_its_upstream_takes_back_unsigned_says_whose_it_is() -> None:
    plain = (Quirk.PLAIN_THOUGHTS,)
    thought = part(THOUGHT, Delta(0, "Hm."), PartEnded(0), origin=Protocol.MESSAGES, quirks=plain)
    assert open_envelope(thought.opaque or "") == Envelope(Protocol.MESSAGES, "openai", "", "", "rs_1")
    assert part(THOUGHT, Delta(0, "Hm."), PartEnded(0), origin=Protocol.MESSAGES).opaque is None
    assert part(THOUGHT, Delta(0, "Hm."), PartEnded(0, "sig"), origin=Protocol.MESSAGES, quirks=plain).opaque == "sig"
    assert part(THOUGHT, PartEnded(0), origin=Protocol.MESSAGES, quirks=plain).is_empty
    cited = PartEnded(0, annotations=({"type": "char_location"},))
    spoken = part(PartStarted(0, PartKind.TEXT), Delta(0, "a"), cited, origin=Protocol.MESSAGES, quirks=plain)
    assert (spoken.opaque, spoken.citations) == (None, cited.annotations)


@pytest.mark.parametrize("origin", [None, Protocol.CHAT])
def test_a_thought_without_anything_is_none(origin: Protocol | None) -> None:
    assert part(THOUGHT, Delta(0, ""), origin=origin).is_held_back
    assert part(THOUGHT, Delta(0, ""), PartEnded(0), origin=origin).is_empty
    assert not part(THOUGHT, PartEnded(0, "x"), origin=origin).is_empty


def test_citations_stay_in_their_protocol() -> None:
    ended = PartEnded(0, annotations=({"type": "char_location"},))
    own, foreign = (
        part(PartStarted(0, PartKind.TEXT), Delta(0, "a"), ended, origin=origin)
        for origin in (Protocol.MESSAGES, Protocol.RESPONSES)
    )
    assert own.last_deltas() == [{"type": "citations_delta", "citation": {"type": "char_location"}}]
    assert own.whole()["citations"] == ({"type": "char_location"},)
    assert (foreign.last_deltas(), "citations" in foreign.whole()) == ([], False)


def called(ref: ToolRef, call_id: str = "c1", *texts: str, ended: bool = True) -> AnswerPart:
    begun = PartStarted(0, PartKind.TOOL_CALL, ToolCall(call_id, ref, ""))
    events: list[PartEvent] = [begun, *(Delta(0, text) for text in texts)]
    return part(*events, *([PartEnded(0)] if ended else []))


def test_a_call_has_its_id_and_name() -> None:
    call = called(ToolRef("spawn", "agents"), "c1", '{"n":', "1}")
    assert call.beginning() == {"type": "tool_use", "id": "c1", "name": "agents__spawn", "input": {}}
    assert [delta["partial_json"] for delta in call.new_deltas()] == ['{"n":', "1}"]


def test_a_call_without_an_id_gets_the_same_one_each_time() -> None:
    first, again = (called(ToolRef("Read"), "").beginning()["id"] for _ in range(2))
    assert first == again
    assert str(first).startswith("toolu_")
    assert part(PartStarted(0, PartKind.TOOL_CALL)).beginning()["name"] is not None


def test_the_input_of_a_custom_tool_is_wrapped_when_it_is_complete() -> None:
    patch = ToolRef("apply_patch", custom=True)
    assert called(patch, "c1", "*** ", "Begin", ended=False).new_deltas() == []
    assert called(patch, "c1", "*** ", "Begin").new_deltas() == [
        {"type": "input_json_delta", "partial_json": '{"input":"*** Begin"}'}
    ]


def test_the_end_ends_what_is_open() -> None:
    parts = taken(PartStarted(0, PartKind.REFUSAL), PartStarted(1, PartKind.TOOL_CALL))
    parts.end()
    assert all(each.ended for each in parts.under_way.values())
    assert (parts.refused, parts.called) == (True, True)
