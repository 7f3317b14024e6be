"""Opaque values travel in an envelope that says whose they are, and come out byte for byte."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachegate.wire.envelopes import PREFIX, Envelope, open_envelope, seal
from cachegate.wire.facts import Protocol

PROTOCOLS = st.sampled_from(Protocol)


@given(PROTOCOLS, st.text(), st.text(), st.text(), st.text(), st.booleans())
def test_what_was_sealed_comes_out(
    origin: Protocol, binding: str, text: str, opaque: str, item_id: str, redacted: bool
) -> None:
    envelope = Envelope(origin, binding, text, opaque, item_id, redacted)
    sealed = seal(envelope)
    assert open_envelope(sealed) == envelope
    assert seal(envelope) == sealed, "the same value is the same line: it is part of a cached prefix"
    assert sealed.isascii()
    assert sealed.isprintable()


@pytest.mark.parametrize(
    "value", ["", "gAAAAABl", PREFIX, PREFIX + "###", PREFIX + "e30=", PREFIX + "WzFd", "x" + PREFIX]
)
def test_anything_else_is_no_envelope(value: str) -> None:
    assert open_envelope(value) is None


@given(st.text())
def test_no_text_crashes_it(value: str) -> None:
    assert open_envelope(value) is None
    open_envelope(PREFIX + value)


def test_an_unknown_protocol_is_no_envelope() -> None:
    sealed = seal(Envelope(Protocol.CHAT, "b", "", "o"))
    assert open_envelope(sealed) is not None
    assert open_envelope(PREFIX + "WyJub25zZW5zZSIsImIiLCIiLCJvIiwiIixmYWxzZV0=") is None
