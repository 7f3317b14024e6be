import json
import math
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cachegate.providers.estimates import BYTES_PER_TOKEN, estimated
from cachegate.wire.facts import InferenceRequest, Operation, Protocol
from cachegate.wire.parse import Received, parse
from provider_streams import request


def counting(size: int, protocol: Protocol = Protocol.MESSAGES) -> InferenceRequest:
    facts = SimpleNamespace(input_bytes=size)
    return cast("InferenceRequest", SimpleNamespace(protocol=protocol, facts=facts))


@pytest.mark.parametrize(("size", "tokens"), [(0, 0), (1, 1), (4, 1), (5, 2), (4_000_000, 1_000_000)])
def test_a_count_is_a_fixed_rate_rounded_up(size: int, tokens: int) -> None:
    assert json.loads(estimated(counting(size))[1].data)["input_tokens"] == tokens


def test_an_estimate_says_that_it_is_one_and_is_unknown_to_the_guard() -> None:
    head, piece = estimated(counting(40))
    headers = dict(head.headers)
    assert (head.status, headers["x-cachegate-estimate"]) == (200, "true")
    assert headers["content-type"] == "application/json"
    assert headers["content-length"] == str(len(piece.data))
    assert piece.seen == ()


def test_all_that_the_model_has_to_read_counts() -> None:
    def tokens(**more: Any) -> int:
        data = request(Protocol.MESSAGES, **more)
        asked = parse(Received(Protocol.MESSAGES, Operation.COUNT_TOKENS, (), "", data, data), bytes(32))
        counted: int = json.loads(estimated(asked)[1].data)["input_tokens"]
        assert counted == math.ceil(asked.facts.input_bytes / BYTES_PER_TOKEN)
        return counted

    assert tokens() < tokens(text="h" * 400) < tokens(text="h" * 400, system="s" * 400)
