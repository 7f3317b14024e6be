"""A request as the sequence of blocks that a prompt cache compares: tools, instructions, then each item in order.

Blocks are canonical: sorted keys, no whitespace, and without the marks that only tell a provider what to cache.
"""

import msgspec

from cachegate.errors import BadInput
from cachegate.wire.body import JsonObject, decode
from cachegate.wire.facts import InferenceRequest
from cachegate.wire.parse import SHAPES

_MARKS = frozenset({"cache_control", "copilot_cache_control", "prompt_cache_breakpoint"})


def canonical_blocks(request: InferenceRequest) -> list[bytes]:
    """Return the blocks of a request, in the order in which a model reads them. Raises BadInput for too deep a nest."""
    body, shape = JsonObject(request.body), SHAPES[request.protocol]
    leading = [body.raw("tools"), body.raw(shape.instructions)]
    items = [bytes(item) for item in body.items(shape.conversation)] or [body.raw(shape.conversation)]
    try:
        return [_canonical(raw) for raw in (*leading, *items) if raw]
    except RecursionError:
        raise BadInput("The request body is nested too deeply to be read. Send a flatter JSON object.") from None


def _canonical(raw: bytes) -> bytes:
    return msgspec.json.encode(_unmarked(decode(raw)), order="sorted")


def _unmarked(value: object) -> object:
    if isinstance(value, dict):
        return {name: _unmarked(part) for name, part in value.items() if name not in _MARKS}
    if isinstance(value, list):
        return [_unmarked(part) for part in value]
    return value
