"""Thoughts without an opaque value: some servers neither sign nor encrypt them, and take them back as text.

An envelope carries them too, without a value in it: so that a client hands them back, and only their own server gets
them. Whoever signs or encrypts its thoughts refuses those that are neither.
"""

from cachegate.wire.chat.thoughts import PLAIN
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import PartEnded, Reasoning, Target
from cachegate.wire.quirks import Quirk


def is_plain(text: str, ended: PartEnded, target: Target) -> bool:
    """Whether a thought that an upstream told is one that it will take back as text."""
    return Quirk.PLAIN_THOUGHTS in target.quirks and ended.opaque is None and bool(text)


def goes_back(thought: Reasoning, target: Target, protocol: Protocol) -> bool:
    """Whether an upstream that is asked in `protocol` gets a thought of a conversation back as text.

    A client of Chat Completions has nothing but the text, whoever is asked for it.
    """
    if Quirk.PLAIN_THOUGHTS not in target.quirks or not thought.text or thought.redacted:
        return False
    if thought.binding not in {None, target.binding}:
        return False
    if thought.origin is protocol:
        return thought.opaque is None
    return thought.origin is Protocol.CHAT and thought.opaque in PLAIN
