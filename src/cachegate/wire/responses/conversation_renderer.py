"""A whole conversation in the Responses protocol: item for item, with every call answered once and by its own result.

OpenAI refuses a call without a result, a result without a call, and an id that is too long. Clients leave such things
behind when a turn is aborted or a history is cut, and other providers' ids are longer.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from blake3 import blake3

from cachegate.wire.hub import Item, Message, Role, Text, ToolCall, ToolResult
from cachegate.wire.responses.item_renderer import ItemRenderer
from cachegate.wire.responses.tool_renderer import Rendered

NO_RESULT = "[The call was interrupted: there is no result.]"
"""The answer to a call that has none."""
_NO_ANSWER = ToolResult("", (Text(NO_RESULT),))
LOST_CALL = "[The answer of a tool whose call is no longer part of this conversation:]"
"""In front of a result without a call."""

_GOOD_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]")
_DIGEST_CHARS = 16
_READABLE_CHARS = 47


def render_conversation(items: tuple[Item, ...], renderer: ItemRenderer) -> list[Rendered]:
    """Return `input`."""
    calls_of_results = _pairs(items)
    answered = frozenset(calls_of_results.values())
    ids = dict(_ids(items))
    calls: dict[int, ToolCall] = {}
    rendered: list[Rendered] = []
    for at, item in enumerate(items):
        match item:
            case ToolCall():
                calls[at] = replace(item, call_id=ids[at])
                rendered += renderer.items(calls[at])
                if at not in answered:
                    rendered.append(renderer.answer(calls[at], _NO_ANSWER))
            case ToolResult() if at in calls_of_results:
                rendered.append(renderer.answer(calls[calls_of_results[at]], item))
            case ToolResult():
                rendered += renderer.items(Message(Role.USER, (Text(LOST_CALL), *item.parts)))
            case _:
                rendered += renderer.items(item)
    return rendered


def _pairs(items: tuple[Item, ...]) -> dict[int, int]:
    """Return which result answers which call: the last one before it with its id, once."""
    waiting: dict[str, int] = {}
    pairs: dict[int, int] = {}
    for at, item in enumerate(items):
        if isinstance(item, ToolCall):
            waiting[item.call_id] = at
        elif isinstance(item, ToolResult) and item.call_id in waiting:
            pairs[at] = waiting.pop(item.call_id)
    return pairs


def _ids(items: tuple[Item, ...]) -> Iterator[tuple[int, str]]:
    """Yield an id for each call: its own, unless that is none for OpenAI or was used before."""
    used: set[str] = set()
    for at, item in enumerate(items):
        if isinstance(item, ToolCall):
            call_id, times = _acceptable(item.call_id), 1
            while call_id in used:
                times += 1
                call_id = _digested(f"{item.call_id}\n{times}", item.call_id)
            used.add(call_id)
            yield at, call_id


def _acceptable(call_id: str) -> str:
    return call_id if _GOOD_ID.fullmatch(call_id) else _digested(call_id, call_id)


def _digested(whole: str, call_id: str) -> str:
    digest = blake3(whole.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]
    return f"{_FOREIGN.sub('_', call_id)[:_READABLE_CHARS]}_{digest}"
