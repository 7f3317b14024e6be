import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachegate.wire.compaction import (
    SUMMARY_PREFACE,
    SUMMARY_REQUEST,
    UNREADABLE,
    open_summary,
    seal_summary,
    summary_message,
    summary_request,
)
from cachegate.wire.envelopes import Envelope, open_envelope, seal
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import Compacted, Message, Role, Text
from cachegate.wire.overflows import is_overflow


@given(st.text())
def test_a_summary_comes_back_as_it_was(text: str) -> None:
    assert open_summary(seal_summary(text)) == text
    assert seal_summary(text) == seal_summary(text)


def test_the_envelope_of_a_summary_is_ours_and_says_so() -> None:
    assert open_envelope(seal_summary("s")) == Envelope(Protocol.RESPONSES, "cachegate", "s", "summary")


@pytest.mark.parametrize(
    "value",
    ["gAAAAABo8cLW3m", "", "cachegate1.", "cachegate1.AAAA", seal(Envelope(Protocol.RESPONSES, "openai", "s", "gAAA"))],
)
def test_what_is_no_summary_of_ours_is_none(value: str) -> None:
    assert open_summary(value) is None


def test_the_request_and_the_summary_are_messages_of_the_user() -> None:
    assert summary_request() == Message(Role.USER, (Text(SUMMARY_REQUEST),))
    assert summary_message(Compacted(text="s")) == Message(Role.USER, (Text(f"{SUMMARY_PREFACE}s"),))


def test_what_cannot_be_read_is_said_to_be_missing() -> None:
    foreign = Compacted(opaque="gAAAA", origin=Protocol.RESPONSES)
    assert summary_message(foreign) == Message(Role.USER, (Text(UNREADABLE),))


@pytest.mark.parametrize("text", [SUMMARY_REQUEST, SUMMARY_PREFACE, UNREADABLE])
def test_no_client_takes_these_words_for_an_overflow(text: str) -> None:
    assert not is_overflow((), text)
