"""Requests as the server receives them, for tests to vary."""

import json
from collections.abc import Mapping
from typing import Any

from cachegate.wire.facts import Facts, InferenceRequest, Operation, Protocol
from cachegate.wire.parse import Received, parse

SECRET = bytes(range(32))
CONVERSATION = {Protocol.MESSAGES: "messages", Protocol.RESPONSES: "input"}
INSTRUCTIONS = {Protocol.MESSAGES: "system", Protocol.RESPONSES: "instructions"}


def received(
    protocol: Protocol,
    body: bytes | Mapping[str, Any],
    headers: Mapping[str, str] | None = None,
    operation: Operation = Operation.GENERATE,
) -> Received:
    text = body if isinstance(body, bytes) else json.dumps({"model": "model-x", **body}).encode()
    return Received(protocol, operation, tuple((headers or {}).items()), "beta=true", text, text)


def parsed(
    protocol: Protocol,
    body: bytes | Mapping[str, Any],
    headers: Mapping[str, str] | None = None,
    operation: Operation = Operation.GENERATE,
) -> InferenceRequest:
    return parse(received(protocol, body, headers, operation), SECRET)


def facts_of(
    protocol: Protocol,
    body: bytes | Mapping[str, Any],
    headers: Mapping[str, str] | None = None,
    operation: Operation = Operation.GENERATE,
) -> Facts:
    return parsed(protocol, body, headers, operation).facts
