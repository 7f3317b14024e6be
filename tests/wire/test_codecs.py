"""Each protocol has its codec; tests/contract holds them against their contract."""

from cachegate.wire.codecs import CODECS
from cachegate.wire.facts import Protocol


def test_every_protocol_has_a_codec() -> None:
    assert set(CODECS) == set(Protocol)
