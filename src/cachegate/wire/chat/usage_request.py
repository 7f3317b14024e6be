"""Chat Completions streams tell their usage only when asked to. The guard needs it, the client may not.

So a client's request is asked for usage on its behalf, by one insertion that moves no other byte, and the chunk that
answers it is left out of what the client gets.
"""

from cachegate.wire.body import JsonObject, decode, encode
from cachegate.wire.sse import SseReader

_ASK = b'"stream_options":{"include_usage":true},'
_END = b"\n\n"


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
        cut = rest.find(_END)
        block, rest = (rest, b"") if cut < 0 else (rest[: cut + 2], rest[cut + 2 :])
        if not _only_usage(block):
            kept.append(block)
    return b"".join(kept)


def _only_usage(block: bytes) -> bool:
    if b'"usage"' not in block:
        return False
    _, events = SseReader().feed(block)
    values = [decode(event.data) for event in events]
    return len(values) == 1 and isinstance(values[0], dict) and values[0].get("choices") == [] and "usage" in values[0]
