"""Streams as providers send them, and what a reader must make of each, however the bytes happen to be cut."""

import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cachegate.guard.usage import Usage
from cachegate.wire.facts import Protocol
from cachegate.wire.protocols import DIALECTS
from cachegate.wire.seen import Failed, Finished, Refusal, Seen
from cachegate.wire.sse import SseEvent, SseReader

FOLDER = Path(__file__).parent.parent / "transcripts"
_BLANK_LINE_AT_END = re.compile(rb"(?:\r\n|\n|\r)(?:\r\n|\n|\r)\Z")


@dataclass(frozen=True, slots=True)
class Transcript:
    """One recorded stream and everything that can be observed in it, in order."""

    name: str
    seen: tuple[Seen, ...]
    finished: bool = False
    terminal: bool = True
    cut: bool = False
    """Whether it breaks off inside an event."""

    @property
    def protocol(self) -> Protocol:
        return Protocol(self.name.split("-", maxsplit=1)[0])

    @property
    def data(self) -> bytes:
        return _data(self.name)


@functools.cache
def _data(name: str) -> bytes:
    return (FOLDER / f"{name}.sse").read_bytes()


MESSAGES = (
    Transcript(
        "messages-text", (Usage(67_021, 66_000, 1_000), Usage(67_021, 66_000, 1_000), Finished()), finished=True
    ),
    Transcript(
        "messages-tool-use", (Usage(122_054, 120_000, 2_048), Usage(122_054, 120_000, 2_048), Finished()), finished=True
    ),
    Transcript(
        "messages-thinking", (Usage(99_516, 99_000, 512), Usage(99_516, 99_000, 512), Finished()), finished=True
    ),
    Transcript(
        "messages-refusal",
        (Usage(120_003, 0, 120_000), Usage(120_003, 0, 120_000), Refusal(), Finished()),
        finished=True,
    ),
    Transcript("messages-error", (Usage(150_009, 0, 150_000), Failed("overloaded_error"))),
    Transcript("messages-blocked", (Usage(150_009, 150_000, 0), Refusal(), Failed("invalid_request_error"))),
    Transcript("messages-late-usage", (Usage(), Usage(70_000), Finished()), finished=True),
    Transcript("messages-odd", (Usage(60, 30, 20), Usage(60, 30, 20), Finished()), finished=True),
    Transcript("messages-cut", (Usage(67_021, 66_000, 1_000),), terminal=False, cut=True),
)
RESPONSES = (
    Transcript("responses-text", (Usage(131_072, 65_536, 65_000), Finished()), finished=True),
    Transcript("responses-tool-use", (Usage(77_000, 76_288, 0), Finished()), finished=True),
    Transcript(
        "responses-refusal",
        # the part, two deltas and their end, the part and the item when done, and the answer that holds it
        (*[Refusal()] * 6, Usage(66_000, 0, 65_000), Refusal(), Finished()),
        finished=True,
    ),
    Transcript("responses-failed", (Usage(90_000, 0, 88_000), Failed("server_error"))),
    Transcript("responses-error", (Failed("rate_limit_exceeded"), Failed("rate_limit_exceeded"))),
    Transcript("responses-nested-error", (Failed("server_is_overloaded"),)),
    Transcript("responses-policy", (Refusal(), Failed("cyber_policy"))),
    Transcript("responses-incomplete", (Usage(90_000, 1_024, 0), Finished()), finished=True),
    Transcript("responses-filtered", (Usage(90_000, 89_000, 0), Refusal(), Finished()), finished=True),
    Transcript("responses-odd", (Usage(77_000), Finished()), finished=True),
    Transcript("responses-cut", (), terminal=False, cut=True),
)
TRANSCRIPTS = MESSAGES + RESPONSES


@dataclass(frozen=True, slots=True)
class Fed:
    """What came out of an `SseReader`."""

    released: bytes
    events: tuple[SseEvent, ...]
    rest: bytes


def feed(pieces: Iterable[bytes]) -> Fed:
    """Feed the pieces to a new reader, and see that it only ever lets go of whole events."""
    reader, released, events = SseReader(), b"", list[SseEvent]()
    for piece in pieces:
        whole, completed = reader.feed(piece)
        released += whole
        events += completed
        assert not whole or _BLANK_LINE_AT_END.search(released, max(0, len(released) - 4))
    return Fed(released, tuple(events), reader.rest())


@dataclass(frozen=True, slots=True)
class Observed:
    """What a protocol's reader made of a stream."""

    seen: tuple[Seen, ...]
    finished: bool
    terminal: bool


def observe(protocol: Protocol, events: Iterable[SseEvent]) -> Observed:
    reader = DIALECTS[protocol].reader()
    seen = tuple(item for event in events for item in reader.read(event))
    return Observed(seen, reader.finished, reader.terminal)


def expected(transcript: Transcript) -> Observed:
    return Observed(transcript.seen, transcript.finished, transcript.terminal)


def in_two(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Cut the bytes in two, at every point there is."""
    for at in range(len(data) + 1):
        yield data[:at], data[at:]


def byte_by_byte(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


def pieces(transcript: Transcript) -> list[bytes]:
    """Cut a transcript with LF line ends into its events."""
    return [block + b"\n\n" for block in transcript.data.split(b"\n\n") if block]
