"""An answer so far: what a client is shown, and what the model is handed back."""

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachegate.control.said import Began, Done, Grew, Heard, Said, Told, arguments_of
from cachegate.control.thread import AgentMessage, Thought, Tokens
from cachegate.errors import ErrorKind
from cachegate.guard.usage import Usage
from cachegate.wire.envelopes import Envelope, seal
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import (
    Broken,
    Event,
    Message,
    PartEnded,
    PartKind,
    PartStarted,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolRef,
)
from control.answers import answer, call, text, thought
from provider_streams import WARM


def heard(events: list[Event], protocol: Protocol = Protocol.RESPONSES) -> tuple[Said, list[Told]]:
    numbers = count(1)
    said = Said(protocol, lambda: f"i{next(numbers)}")
    told = [each for event in events for each in said.hear(event)]
    return said, told


WHOLE = answer(thought("Hm.", "sealed"), text("a", "b", index=1), call("c1", "look_up", '{"a":1}', index=2), usage=WARM)
ITEMS = (
    Reasoning("Hm.", "sealed", Protocol.RESPONSES),
    Message(Role.ASSISTANT, (Text("ab"),)),
    ToolCall("c1", ToolRef("look_up"), '{"a":1}'),
)


def test_a_whole_answer_is_shown_piece_by_piece_and_handed_back_whole() -> None:
    said, told = heard(WHOLE)
    assert told == [
        Began(Thought("i1", "")), Grew("i1", thinks=True, delta="Hm."), Done(Thought("i1", "Hm.")),
        Began(AgentMessage("i2", "")), Grew("i2", thinks=False, delta="a"), Grew("i2", thinks=False, delta="b"),
        Done(AgentMessage("i2", "ab")),
    ]  # fmt: skip
    assert said.items() == ITEMS
    assert list(said.under_way()) == []
    assert said.tokens(Usage()) == Tokens(201_000, 200_000, 1_000, 7)
    assert Heard(said.items(), said.end, None).calls == ITEMS[2:]


@pytest.mark.parametrize("length", range(len(WHOLE)))
def test_of_an_answer_that_was_cut_only_words_are_handed_back(length: int) -> None:
    said, told = heard(WHOLE[:length])
    words = "".join(each.delta for each in told if isinstance(each, Grew) and not each.thinks)
    assert said.items() == ((Message(Role.ASSISTANT, (Text(words),)),) if words else ())
    ended = [*told, *said.cut()]
    began = [each.item.id for each in ended if isinstance(each, Began)]
    done = [each.item.id for each in ended if isinstance(each, Done)]
    assert sorted(began) == sorted(done), "what began has its end"


def test_a_failure_is_no_end_and_the_first_end_holds() -> None:
    broken = Broken(ErrorKind.UPSTREAM, 502, "x", "m")
    said, _ = heard([*WHOLE[:-1], broken, WHOLE[-1]])
    assert said.end == broken
    assert said.items() == (ITEMS[1],)


def test_a_call_without_arguments_has_an_empty_object_of_them() -> None:
    said, _ = heard(answer(call("c1", "look_up", "")))
    assert said.items() == (ToolCall("c1", ToolRef("look_up"), "{}"),)


def test_a_thought_in_an_envelope_stays_in_it() -> None:
    envelope = seal(Envelope(Protocol.MESSAGES, "anthropic", "Hm!", "theirs", item_id="x"))
    events: list[Event] = [PartStarted(0, PartKind.THINKING, item_id="rs_1"), PartEnded(0, opaque=envelope)]
    said, told = heard(answer(events))
    assert (said.items(), told) == ((Reasoning("Hm!", envelope, Protocol.RESPONSES),), [])


@given(st.lists(st.sampled_from(WHOLE), max_size=20))
def test_events_in_any_order_break_nothing(events: list[Event]) -> None:
    said, told = heard(events)
    ended = [*told, *said.cut()]
    assert len([each for each in ended if isinstance(each, Began)]) == len(
        [each for each in ended if isinstance(each, Done)]
    )
    said.items()


def test_arguments_are_an_object_or_the_text_they_are() -> None:
    ref = ToolRef("a")
    assert arguments_of(ToolCall("c", ref, '{"a":1}')) == {"a": 1}
    assert arguments_of(ToolCall("c", ref, "[1]")) == "[1]"
    assert arguments_of(ToolCall("c", ref, "oops")) == "oops"
