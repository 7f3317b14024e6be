"""Chat Completions streams tell their usage only when asked to. The guard needs it, the client may not.

So a client's request is asked for usage on its behalf, by one insertion that moves no other byte, and the chunk that
answers it is left out of what the client gets.
"""

import re

from cachegate.wire.body import JsonObject, decode, encode
from cachegate.wire.sse import SseReader
from cachegate.wire.usage_readings import fields

_ASK = b'"stream_options":{"include_usage":true},'
_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
"""Ends an event; servers do not mix their line ends."""


def asks_for_usage(body: bytes) -> bool:
    """Whether the client itself wants to know."""
    options = JsonObject(body).value("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True


def with_usage(body: bytes) -> bytes:
    """Return the request with the wish for usage in it."""
    fields = JsonObject(body)
    if "stream_options" not in fields.spans:
        at = body.index(b"{") + 1
        return body[:at] + _ASK + body[at:]
    start, end = fields.spans["stream_options"]
    options = decode(body[start:end])
    asked = {**(options if isinstance(options, dict) else {}), "include_usage": True}
    return body[:start] + encode(asked) + body[end:]


def without_usage(whole: bytes) -> bytes:
    """Return whole events without the chunk that holds nothing but usage."""
    kept: list[bytes] = []
    rest = whole
    while rest:
        end = _END.search(rest)
        block, rest = (rest, b"") if end is None else (rest[: end.end()], rest[end.end() :])
        if not _only_usage(block):
            kept.append(block)
    return b"".join(kept)


def _only_usage(block: bytes) -> bool:
    if b'"usage"' not in block:
        return False
    _, events = SseReader().feed(block)
    values = [fields(decode(event.data)) for event in events]
    return len(values) == 1 and values[0].get("choices") == [] and isinstance(values[0].get("usage"), dict)
