"""Any split of a stream gives the same events."""

import pytest

from cachegate.sdk import BrokenAnswer, sse
from cachegate.sdk.sse import SseReader

STREAMS = {
    "usual": (b"event: a\ndata: 1\n\nevent: b\ndata: 2\n\n", [b"1", b"2"]),
    "carriage returns": (b"data: 1\r\n\r\ndata: 2\r\rdata: 3\n\r\n", [b"1", b"2", b"3"]),
    "several lines": (b"data: 1\ndata: 2\n\n", [b"1\n2"]),
    "comments and names": (b": keepalive\n\nevent: x\n\ndata:1\n\nid: 4\n\n", [b"1"]),
    "no end": (b"data: 1\n\ndata: 2\n", [b"1"]),
    "empty lines": (b"\n\n\n\ndata: 1\n\n\n\n\n", [b"1"]),
}


@pytest.mark.parametrize("name", STREAMS)
def test_every_split_gives_the_same_events(name: str) -> None:
    data, expected = STREAMS[name]
    for cut in range(len(data) + 1):
        reader = SseReader()
        assert [*reader.feed(data[:cut]), *reader.feed(data[cut:])] == expected, cut
    reader = SseReader()
    assert [event for at in range(len(data)) for event in reader.feed(data[at : at + 1])] == expected


def test_an_event_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "EVENT_BYTES_MAX", 100)
    reader = SseReader()
    assert reader.feed(b"data: " + b"x" * 80) == []
    with pytest.raises(BrokenAnswer, match="100 bytes"):
        reader.feed(b"x" * 80)
