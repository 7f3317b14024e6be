"""Is an answer whole? Takes the bytes a client received apart, and counts every event in its order.

Runs after the clock has stopped, so it may be thorough: the chunked framing must be exact, every event must carry the
next sequence number, and the last one must be the protocol's own end.
"""

import re
from dataclasses import dataclass

from benchmarks.plan import Plan

END = b"\r\n0\r\n\r\n"
"""The last bytes of a chunked answer. Events of JSON hold no carriage return, so nothing else ends like this."""

_NUMBER = re.compile(rb'"sequence_number":(\d+)')


class Broken(Exception):  # noqa: N818 -- it reads as what it is
    """An answer that is no whole, successful answer."""


@dataclass(frozen=True, slots=True)
class Count:
    """What was received of one stream."""

    expected: int
    received: int
    """Events that came in their place."""
    fault: str = ""
    """What was wrong first; empty for a whole stream."""

    @property
    def lost(self) -> int:
        """Events that did not come in their place."""
        return self.expected - self.received


def body_of(answer: bytes) -> bytes:
    """Return the body of a chunked answer with status 200. Raises Broken."""
    head, blank, rest = answer.partition(b"\r\n\r\n")
    if not blank or not head.startswith(b"HTTP/1.1 200"):
        raise Broken(f"no successful answer: {answer[:200]!r}")
    if b"transfer-encoding: chunked" not in head.lower():
        raise Broken("not a chunked answer")
    parts: list[bytes] = []
    at = 0
    while True:
        line_end = rest.find(b"\r\n", at)
        if line_end < 0:
            raise Broken("cut short in a chunk's size")
        size = int(rest[at:line_end].split(b";")[0], 16)
        start, end = line_end + 2, line_end + 2 + size
        if rest[end : end + 2] != b"\r\n":
            raise Broken("cut short in a chunk")
        if size == 0:
            if rest[end + 2 :]:
                raise Broken("bytes after the end")
            return b"".join(parts)
        parts.append(rest[start:end])
        at = end + 2


def count(answer: bytes, plan: Plan) -> Count:
    """Count the events of an answer that stand in their place."""
    expected = plan.events_in_all
    try:
        body = body_of(answer)
    except (Broken, ValueError) as broken:
        return Count(expected, 0, str(broken))
    blocks = body.split(b"\n\n")
    if blocks.pop() != b"":
        return Count(expected, 0, "the last event has no end")
    for place, block in enumerate(blocks):
        number = _NUMBER.search(block)
        if number is None or int(number.group(1)) != place:
            return Count(expected, place, f"event {place} is {block[:120]!r}")
    if len(blocks) != expected:
        return Count(expected, min(len(blocks), expected), f"{len(blocks)} events instead of {expected}")
    if not blocks[-1].startswith(b"event: response.completed\n"):
        return Count(expected, expected - 1, f"the last event is {blocks[-1][:120]!r}")
    return Count(expected, expected)


def deltas(received: bytes) -> int:
    """Count the text deltas in a part of an answer."""
    return received.count(b"event: response.output_text.delta\n")
