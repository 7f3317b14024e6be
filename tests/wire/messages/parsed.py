"""Requests of a Messages client, parsed."""

import json
from typing import Any

from cachegate.wire.hub import Item, Request
from cachegate.wire.messages.codec import CODEC

TURN = {"role": "user", "content": "Fix the build."}


def parsed(**fields: Any) -> Request:
    return CODEC.parse_request(json.dumps({"model": "m", "max_tokens": 9, "messages": [TURN], **fields}).encode())


def items(*messages: Any) -> tuple[Item, ...]:
    return parsed(messages=list(messages)).items


def block(**fields: Any) -> tuple[Item, ...]:
    """Return what one block of a user says."""
    return items({"role": "user", "content": [fields]})
