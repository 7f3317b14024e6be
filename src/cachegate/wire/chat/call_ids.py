"""The ids of tool calls, as a Chat server takes them.

An id is made from the client's and from what stands before it, so that it is the same in every later request.
"""

import re

from blake3 import blake3

CALL_ID_CHARS_MAX = 40
"""OpenAI's limit in Chat."""
SHORT_ID_CHARS = 9
"""Mistral takes ids of this length only, made of letters and digits."""

_SHORT_ID = re.compile(rf"[a-zA-Z0-9]{{{SHORT_ID_CHARS}}}")
_DIGEST_CHARS = 16


class CallIds:
    """The ids of one conversation. Add the calls in their order."""

    __slots__ = ("_short", "_used")

    def __init__(self, *, short: bool) -> None:
        self._short = short
        self._used: set[str] = set()

    def new(self, call_id: str) -> str:
        """Return the id of one more call. A short one is never given twice, whatever the client did."""
        if not self._short:
            return cut(call_id)
        wire_id, tried = call_id, 0
        while not _SHORT_ID.fullmatch(wire_id) or wire_id in self._used:
            wire_id, tried = _digest(f"{tried}:{call_id}")[:SHORT_ID_CHARS], tried + 1
        self._used.add(wire_id)
        return wire_id


def cut(call_id: str) -> str:
    """Return an id that is not too long: most come back as they are, and two that differ stay different."""
    if len(call_id) <= CALL_ID_CHARS_MAX:
        return call_id
    return f"{call_id[: CALL_ID_CHARS_MAX - _DIGEST_CHARS - 1]}_{_digest(call_id)[:_DIGEST_CHARS]}"


def _digest(text: str) -> str:
    return blake3(text.encode("utf-8", "surrogatepass")).hexdigest()
