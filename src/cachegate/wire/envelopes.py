"""Opaque values in an envelope of ours, so that a client of one protocol can hand back what belongs to another.

Claude signs its thoughts, OpenAI encrypts its own; each takes back only what it made, byte for byte. A client of the
other protocol has one place for an opaque string, and returns it unchanged. What goes into that place says whose it is;
whoever is not addressed drops it. Nothing is signed or encrypted here: the value is the provider's, we only carry it.
"""

import base64
import binascii
from dataclasses import dataclass

import msgspec

from cachegate.wire.facts import Protocol

PREFIX = "cachegate1."
"""In front of every envelope; no provider's value begins so."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """A carried value and whose it is."""

    origin: Protocol
    binding: str
    """Configured provider whose account made the value: another account cannot read it."""
    text: str
    """The readable part that belongs to it: thoughts are signed together with their text."""
    opaque: str
    item_id: str = ""
    redacted: bool = False


class _Sealed(msgspec.Struct, array_like=True):
    origin: str
    binding: str
    text: str
    opaque: str
    item_id: str
    redacted: bool


def seal(envelope: Envelope) -> str:
    """Return the envelope as one line of ASCII; the same envelope always gives the same line."""
    sealed = _Sealed(
        envelope.origin.value, envelope.binding, envelope.text, envelope.opaque, envelope.item_id, envelope.redacted
    )
    return PREFIX + base64.urlsafe_b64encode(msgspec.json.encode(sealed)).decode()


def open_envelope(value: str) -> Envelope | None:
    """Return what is in an envelope of ours; None for anything else."""
    if not value.startswith(PREFIX):
        return None
    try:
        sealed = msgspec.json.decode(base64.urlsafe_b64decode(value.removeprefix(PREFIX)), type=_Sealed)
        origin = Protocol(sealed.origin)
    except (binascii.Error, msgspec.MsgspecError, ValueError):
        return None
    return Envelope(origin, sealed.binding, sealed.text, sealed.opaque, sealed.item_id, sealed.redacted)
