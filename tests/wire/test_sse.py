import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegate.wire import sse
from cachegate.wire.sse import EventTooLong, SseEvent, SseReader, frame
from wire.transcripts import TRANSCRIPTS, Fed, Transcript, byte_by_byte, feed, in_two

BOM = b"\xef\xbb\xbf"
FRAGMENTS = [
    b"data: x", b"data:x", b"data:  x", b"data", b"data:", b'data: {"a":1}', b"event: a", b"event:b", b"event",
    b": comment", b":", b"id: 7", b"retry: 1", b"datax: y", b" data: y", b"\xe2\x80\xa8", b"\x0b", BOM,
    b"\n", b"\n", b"\n", b"\n\n", b"\r\n", b"\r\n", b"\r", b"\r", b"\r\n\r\n", b"\r\r", b"\n\r\n",
]  # fmt: skip
STREAMS = st.lists(st.sampled_from(FRAGMENTS), max_size=24).map(b"".join)


def by_the_standard(stream: bytes) -> tuple[SseEvent, ...]:
    """Read a whole stream as the WHATWG words it, line by line; the last event counts only if a blank line ends it."""
    events: list[SseEvent] = []
    name, data = b"", list[bytes]()
    *lines, _unfinished = re.split(rb"\r\n|\n|\r", stream.removeprefix(BOM))
    for line in lines:
        field, _, value = line.partition(b":")
        match field:
            case b"" if not line:
                if b"\n".join(data):
                    events.append(SseEvent(name, b"\n".join(data)))
                name, data = b"", []
            case b"event":
                name = value.removeprefix(b" ")
            case b"data":
                data.append(value.removeprefix(b" "))
    return tuple(events)


def split(stream: bytes, points: list[int]) -> list[bytes]:
    ends = sorted(point % (len(stream) + 1) for point in points)
    return [stream[start:end] for start, end in zip([0, *ends], [*ends, len(stream)], strict=True)]


@pytest.fixture(params=TRANSCRIPTS, ids=lambda transcript: transcript.name)
def transcript(request: pytest.FixtureRequest) -> Transcript:
    chosen: Transcript = request.param
    return chosen


def test_a_stream_is_read_as_the_standard_says(transcript: Transcript) -> None:
    whole = feed([transcript.data])
    assert whole.events == by_the_standard(transcript.data)
    assert whole.released + whole.rest == transcript.data
    assert bool(whole.rest) is transcript.cut


def test_every_split_in_two_gives_the_same_events_and_bytes(transcript: Transcript) -> None:
    whole = feed([transcript.data])
    for pieces in in_two(transcript.data):
        halves = feed(pieces)
        assert halves.events == whole.events
        assert halves.released + halves.rest == transcript.data


def test_byte_by_byte_gives_the_same_events_and_bytes(transcript: Transcript) -> None:
    whole, single = feed([transcript.data]), feed(byte_by_byte(transcript.data))
    assert single.events == whole.events
    assert single.released + single.rest == transcript.data


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(TRANSCRIPTS), st.lists(st.integers(0, 1 << 16), max_size=40))
def test_random_splits_give_the_same_events_and_bytes(transcript: Transcript, points: list[int]) -> None:
    pieces = feed(split(transcript.data, points))
    assert pieces.events == feed([transcript.data]).events
    assert pieces.released + pieces.rest == transcript.data


@settings(deadline=None, max_examples=200)
@given(STREAMS, st.lists(st.integers(0, 1 << 16), max_size=12))
def test_any_stream_however_cut_is_read_as_the_standard_says(stream: bytes, points: list[int]) -> None:
    for pieces in (split(stream, points), byte_by_byte(stream)):
        fed = feed(pieces)
        assert fed.events == by_the_standard(stream)
        assert fed.released + fed.rest == stream


@pytest.mark.parametrize(
    ("stream", "event"),
    [
        (b"event: a\ndata: x\n\n", SseEvent(b"a", b"x")),
        (b"event:a\ndata:x\n\n", SseEvent(b"a", b"x")),
        (b"data: x\n\n", SseEvent(b"", b"x")),
        (b"data:  x\n\n", SseEvent(b"", b" x")),
        (b"data: x\ndata\ndata: y\n\n", SseEvent(b"", b"x\n\ny")),
        (b"event: a\nevent: b\ndata: x\n\n", SseEvent(b"b", b"x")),
        (b"event: a\r\ndata: x\r\n\r\n", SseEvent(b"a", b"x")),
        (b"event: a\rdata: x\r\r", SseEvent(b"a", b"x")),
        (b"event: a\r\ndata: x\n\r\n", SseEvent(b"a", b"x")),
        (BOM + b"data: x\n\n", SseEvent(b"", b"x")),
        (b": comment\nid: 1\nretry: 2\ndata: x\n\n", SseEvent(b"", b"x")),
        (b'error: {"code":500}\n\n', SseEvent(b"error", b'{"code":500}')),
        (b"error:x\r\n\r\n", SseEvent(b"error", b"x")),
        (b"event: a\ndata: y\nerror: x\n\n", SseEvent(b"error", b"x")),
        (b"errors: x\ndata: y\nerror\n\n", SseEvent(b"", b"y")),
        (b"data: \xe2\x80\xa8\x0b\x0c\x85\n\n", SseEvent(b"", b"\xe2\x80\xa8\x0b\x0c\x85")),
    ],
)
def test_one_event(stream: bytes, event: SseEvent) -> None:
    assert feed([stream]) == Fed(stream, (event,), b"")


@pytest.mark.parametrize("stream", [b"", b"\n\n", b": ping\n\n", b"event: keepalive\ndata: \n\n", b"event: a\n\n"])
def test_what_carries_no_data_is_passed_on_and_is_no_event(stream: bytes) -> None:
    assert feed([stream]) == Fed(stream, (), b"")


def test_a_byte_order_mark_counts_at_the_beginning_only() -> None:
    assert feed([b"data: a\n\n" + BOM + b"data: b\n\n"]).events == (SseEvent(b"", b"a"),)


@pytest.mark.parametrize("unfinished", [b"data: x", b"data: x\n", b"data: x\r\n", b"data: x\r", b"event: a"])
def test_an_unfinished_event_is_held_back_and_can_be_taken_once(unfinished: bytes) -> None:
    reader = SseReader()
    assert reader.feed(b"data: whole\n\n" + unfinished) == (b"data: whole\n\n", [SseEvent(b"", b"whole")])
    assert reader.feed(b"") == (b"", [])
    assert reader.rest() == unfinished
    assert reader.rest() == b""


def test_an_event_without_end_is_too_long() -> None:
    reader = SseReader()
    longest = b"data: ".ljust(sse.EVENT_BYTES_MAX, b"x")
    assert reader.feed(longest) == (b"", [])
    with pytest.raises(EventTooLong, match="no end"):
        reader.feed(b"x")


def test_an_event_at_the_limit_passes_and_so_does_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "EVENT_BYTES_MAX", 10)
    reader = SseReader()
    for _ in range(3):
        assert reader.feed(b"data: 6789") == (b"", [])
        assert reader.feed(b"\n\n") == (b"data: 6789\n\n", [SseEvent(b"", b"6789")])
    with pytest.raises(EventTooLong):
        reader.feed(b"data: 67890")


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(["ping", "error", "response.failed"]), st.binary(min_size=1))
def test_a_frame_is_read_back(name: str, data: bytes) -> None:
    data = data.replace(b"\n", b"").replace(b"\r", b"") or b"-"
    assert feed([frame(name, data)]).events == (SseEvent(name.encode(), data),)


@settings(deadline=None, max_examples=200)
@given(STREAMS | st.sampled_from([transcript.data for transcript in TRANSCRIPTS]), st.lists(st.integers(0, 1 << 16)))
def test_a_frame_of_ours_between_any_two_releases_disturbs_nothing(stream: bytes, points: list[int]) -> None:
    reader, relayed = SseReader(), b""
    for piece in split(stream, points):
        whole, _ = reader.feed(piece)
        relayed += whole + frame("keepalive", b"{}") if whole else b""
    events = feed([relayed]).events
    assert tuple(event for event in events if event != SseEvent(b"keepalive", b"{}")) == feed([stream]).events
