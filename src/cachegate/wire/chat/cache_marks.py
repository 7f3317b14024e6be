"""Where a Chat request is marked for caching, for providers that cache on request.

OpenRouter and Qwen take marks on parts, GitHub Copilot on whole messages.
"""

from collections.abc import Iterator, Sequence

from cachegate.wire.usage_readings import fields, items

MARK: dict[str, object] = {"cache_control": {"type": "ephemeral"}}
MESSAGE_MARK: dict[str, object] = {"copilot_cache_control": {"type": "ephemeral"}}
MARKS_MAX = 4
"""Anthropic's limit."""

_INSTRUCTING = frozenset({"system", "developer"})
_MODEL = "assistant"

Part = dict[str, object]


def place_marks(messages: Sequence[dict[str, object]], wished: Sequence[Part]) -> None:
    """Mark the parts up to which the prompt is cached: `wished` are those that the client marked."""
    for part in _chosen(messages, wished):
        part.update(MARK)


def place_message_marks(messages: Sequence[dict[str, object]], wished: Sequence[Part]) -> None:
    """Mark the messages that hold these parts."""
    chosen = _chosen(messages, wished)
    for message in messages:
        if any(part is other for part in _texts(message) for other in chosen):
            message.update(MESSAGE_MARK)


def _chosen(messages: Sequence[dict[str, object]], wished: Sequence[Part]) -> list[Part]:
    """Return the parts to mark.

    The end of the prompt comes first: it is what the next request reads. Then the end of the instructions, which other
    conversations share, and the end of the request before this one: so its cache is found however much has come since.
    """
    spots = [*_tails(messages)[:1], *_instructions(messages), *_tails(messages)[1:], *reversed(wished)]
    chosen: list[Part] = []
    for part in spots:
        if len(chosen) < MARKS_MAX and _markable(part) and not any(part is other for other in chosen):
            chosen.append(part)
    return chosen


def _instructions(messages: Sequence[dict[str, object]]) -> list[Part]:
    """Return the last part of the instructions in front."""
    front = messages[0] if messages else {}
    return list(_texts(front))[-1:] if front.get("role") in _INSTRUCTING else []


def _tails(messages: Sequence[dict[str, object]]) -> list[Part]:
    """Return the last part of this request and of the one before it, which ended where the model spoke."""
    tails: list[Part] = []
    open_end = True
    for message in reversed(messages):
        if message.get("role") == _MODEL:
            open_end = True
            continue
        last = list(_texts(message))[-1:]
        if open_end and last:
            tails += last
            open_end = False
        if len(tails) == 2:  # noqa: PLR2004 -- this request and the one before it
            break
    return tails


def _texts(message: dict[str, object]) -> Iterator[Part]:
    """Yield the parts that can be marked; pictures cannot."""
    yield from (part for part in items(message.get("content")) if isinstance(part, dict) and _markable(part))


def _markable(part: Part) -> bool:
    return part.get("type") == "text" and bool(fields(part).get("text"))
