"""What Chat servers want back of a model's thoughts, as one opaque string: the protocol itself has no place for it.

DeepSeek, Kimi and GLM want the text again, OpenRouter its details with the signatures in them, and Gemini a signature
at each call. A reader turns each into an opaque value beside the text; a client of another protocol carries it in an
envelope; the renderer puts it back where it stood.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from cachegate.wire.body import decode, encode
from cachegate.wire.usage_readings import Fields, fields, items

PLAIN = ("reasoning_content", "reasoning")
"""Fields in which servers put the text of thoughts; the first is the usual one."""
DETAILS = "reasoning_details"
EXTRA = "extra_content"
"""Field of a tool call in which Gemini's OpenAI API puts its signature."""

_CALL = "id"
_TEXTS = {"reasoning.text": "text", "reasoning.summary": "summary"}
"""Kinds of details whose pieces are one text, and its field."""


@dataclass(frozen=True, slots=True)
class Returned:
    """What an opaque value holds: one of the three."""

    plain: str | None = None
    """Name of the field for the text."""
    details: tuple[object, ...] = ()
    call_id: str = ""
    extra: object = None
    """`extra_content` of the call `call_id`."""


def opaque_of_details(details: list[object]) -> str:
    """Return the opaque value of whole details."""
    return encode(details).decode()


def opaque_of_call(call_id: str, extra: object) -> str:
    """Return the opaque value of what belongs to a call."""
    return encode({_CALL: call_id, EXTRA: extra}).decode()


def read_opaque(opaque: str | None) -> Returned:
    """Return what is in an opaque value; nothing where it is none of ours."""
    if opaque in PLAIN:
        return Returned(plain=opaque)
    value = decode(opaque.encode("utf-8", "replace")) if opaque else None
    if isinstance(value, list):
        return Returned(details=tuple(value))
    call_id = fields(value).get(_CALL)
    extra = fields(value).get(EXTRA)
    return Returned(call_id=call_id, extra=extra) if isinstance(call_id, str) and extra is not None else Returned()


def plain_text(message: Fields) -> tuple[str, str]:
    """Return the field and the text of the thoughts in a message or a delta; empty strings without any."""
    for name in PLAIN:
        text = message.get(name)
        if isinstance(text, str) and text:
            return name, text
    return "", ""


def text_of_details(details: Iterable[object]) -> str:
    """Return what can be read in details."""
    return "".join(
        text
        for detail in map(fields, details)
        if isinstance(text := detail.get(_TEXTS.get(str(detail.get("type")), "")), str)
    )


def joined(details: list[object], more: object) -> list[object]:
    """Return details with those of one more chunk: pieces of one text become one detail again, as it was before."""
    result = list(details)
    for detail in items(more):
        last, new = fields(result[-1] if result else None), fields(detail)
        field = _TEXTS.get(str(new.get("type")))
        known = {name: value for name, value in new.items() if value is not None}
        if field is None or not _continues(last, known):
            result.append(detail)
            continue
        text = f"{last.get(field) or ''}{new.get(field) or ''}"
        result[-1] = {**last, **known, field: text}
    return result


def _continues(last: Fields, new: Fields) -> bool:
    """Whether a detail goes on with the last one: of its kind and number, and that one not signed and done."""
    same = all(new.get(name, last.get(name)) == last.get(name) for name in ("type", "index", "id"))
    return same and "type" in last and (last.get("signature") is None)
