"""Compaction against providers that have none: our own summary, and the opaque item in which a client keeps it.

Codex asks for a compaction item, stores it unread, and sends it back in front of what follows. OpenAI puts something
encrypted into it; we put a summary there that the model wrote when asked for one. All texts are constants: the request
for a summary is the old conversation and one message more, so the cache serves it, and what comes later begins alike.
"""

from cachegate.wire.envelopes import Envelope, open_envelope, seal
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import Compacted, Message, Role, Text

SUMMARY_REQUEST = (
    "The conversation above is about to be replaced by a summary of it, and you will go on with the task from that "
    "summary alone. Write this summary now. Answer with its text only, and call no tools.\n\n"
    "Include everything that is needed to continue without asking again:\n"
    "1. What the user asked for, in their own words where the wording matters, and every correction and preference.\n"
    "2. What has been done, with the exact names of files, functions, commands and identifiers, and vital code.\n"
    "3. What was decided and why; what was tried and failed, with the error messages.\n"
    "4. The state of things right now, and what remains to be done, in order, beginning with the very next step.\n"
    "Leave out pleasantries, and whatever can be read again from a file whose name you give."
)
"""The last message of a request for a summary."""

SUMMARY_PREFACE = (
    "The earlier part of this conversation was replaced by the following summary. Go on from where it ends.\n\n"
)
"""Stands in front of a summary that takes the place of a conversation."""

UNREADABLE = (
    "An earlier part of this conversation was compacted by another provider, in a form that only that provider can "
    "read. It is missing here."
)
"""Stands where an opaque value of another provider would: the model must know that it does not see everything."""

_BINDING, _MARK = "cachegate", "summary"


def summary_request() -> Message:
    """Return the message that asks for a summary."""
    return Message(Role.USER, (Text(SUMMARY_REQUEST),))


def summary_message(item: Compacted) -> Message:
    """Return the message that stands for an earlier conversation whose opaque value, if any, cannot be sent."""
    return Message(Role.USER, (Text(UNREADABLE if item.text is None else SUMMARY_PREFACE + item.text),))


def seal_summary(text: str) -> str:
    """Return a summary as the opaque value that a client keeps."""
    return seal(Envelope(Protocol.RESPONSES, _BINDING, text, _MARK))


def open_summary(value: str) -> str | None:
    """Return the summary in an opaque value; None when it is another's."""
    envelope = open_envelope(value)
    ours = envelope is not None and (envelope.binding, envelope.opaque) == (_BINDING, _MARK)
    return envelope.text if envelope is not None and ours else None
