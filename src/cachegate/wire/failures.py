"""What an error says, wherever a provider puts its fields: nested, flat, inside a response, or a bare text."""

from dataclasses import dataclass

from cachegate.wire import overflows, refusals
from cachegate.wire.body import decode
from cachegate.wire.seen import Failed, Refusal, Seen, word
from cachegate.wire.usage_readings import Fields, fields

_NAMES = ("code", "type", "errorType", "errorCode", "error_type", "__type")
_TEXTS = ("message", "detail", "error", "raw")
_EVENT_TYPES = frozenset({"error", "message", "response.failed"})
"""Types of what carries the error; they name no error."""


@dataclass(frozen=True, slots=True)
class Complaint:
    """An error, without the shape it came in."""

    names: tuple[str, ...]
    """Codes and types, the provider's own code first."""
    marks: tuple[str, ...]
    """Names of further fields: some errors are known by what they hold."""
    text: str
    details: Fields
    """The error's fields."""


def breaks_off(name: bytes, data: Fields) -> bool:
    """Whether an event of Messages or Responses is an error.

    Both have a type for it. llama.cpp leaves it out, together with the event's name, or has the error's own there.
    """
    kind, error = data.get("type"), data.get("error")
    match name:
        case b"error":
            return kind == "error" or bool(error) or isinstance(data.get("message"), str)
        case b"":
            return kind == "error" or (kind is None and bool(error))
        case _:
            return False


def told(data: bytes) -> object:
    """Return what the event of a failure holds: JSON as a rule, or else a text."""
    return decode(data) or data.decode("utf-8", "replace")


def complaint(data: object) -> Complaint:
    """Find the error in `data`: a body, an event, or a response that failed."""
    if isinstance(data, list) and len(data) == 1:  # Gemini's OpenAI API sends an array of one error
        return complaint(data[0])
    if isinstance(data, str):
        return Complaint((), (), data, {})
    whole = fields(data)
    error = fields(fields(whole.get("response")).get("error")) or fields(whole.get("error")) or whole
    metadata = fields(error.get("metadata"))
    inner = fields(error.get("innererror")) or fields(error.get("inner_error"))
    named = [error.get(name) for name in _NAMES]
    named += [metadata.get("error_type"), metadata.get("provider_code"), inner.get("code"), inner.get("type")]
    if error is not whole:
        named.append(error.get("status"))
    names = tuple(name for name in named if isinstance(name, str) and name and name not in _EVENT_TYPES)
    texts = [*(error.get(name) for name in _TEXTS), metadata.get("raw"), inner.get("message")]
    return Complaint(names, tuple(metadata), " ".join(text for text in texts if isinstance(text, str)), error)


def failure(data: object, status: int = 0) -> tuple[Seen, ...]:
    """Return what an error says about the request: that it was refused, that its context is full, or just its code."""
    said = complaint(data)
    return judged((*said.names, *said.marks), said.text, said.names[0] if said.names else "", status)


def judged(words: tuple[str, ...], text: str, name: str, status: int = 0) -> tuple[Seen, ...]:
    """Return what an error of these words and this text says; `name` is what it is called otherwise."""
    if refusals.is_refusing_error(words, text):
        return (Refusal(), Failed(word(name)))
    return (Failed(overflows.CODE if overflows.is_overflow(words, text, status) else word(name)),)


def ended(reason: object) -> tuple[Seen, ...]:
    """Return what the reason of an answer's end says, beyond its having ended."""
    if refusals.ended_by_refusal(reason):
        return (Refusal(),)
    return (Failed(overflows.CODE),) if overflows.ended_by_overflow(reason) else ()
