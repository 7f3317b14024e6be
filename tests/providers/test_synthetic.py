"""The embedded provider: its cache is strict, and its words do what they say."""

import json
import re
from contextlib import aclosing

import pytest

from cachegate.errors import BadInput
from cachegate.guard.usage import Usage
from cachegate.providers.base import Call, Head, Piece
from cachegate.providers.synthetic import SyntheticCache, SyntheticProvider, SyntheticSettings, tokens
from cachegate.wire.facts import Operation, Protocol
from cachegate.wire.parse import Received, parse
from cachegate.wire.seen import Failed, Refusal, Seen

BLOCK = b"x" * 4_000
"""1,000 tokens."""


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_prefix_is_read_once_it_was_written_and_only_as_far_as_it_is_the_same() -> None:
    cache = SyntheticCache(SyntheticSettings(), Clock())
    assert cache.read("m", [BLOCK, b"tools", BLOCK]) == (0, tokens(8_005))
    assert cache.read("m", [BLOCK, b"tools", BLOCK, b"new"])[0] == tokens(8_005)
    assert cache.read("m", [BLOCK, b"other", BLOCK])[0] == 0, "1,000 tokens are below the minimum"
    assert cache.read("m", [BLOCK, b"tools", b"edited", BLOCK])[0] == 0
    assert cache.read("n", [BLOCK, b"tools", BLOCK])[0] == 0, "another model has another cache"


def test_a_prefix_lives_its_lifetime_after_the_last_read() -> None:
    clock = Clock()
    cache = SyntheticCache(SyntheticSettings(lifetime_s=10), clock)
    blocks = [BLOCK, BLOCK]
    cache.read("m", blocks)
    for now, hit in ((9.0, 2_000), (18.0, 2_000), (28.0, 0)):
        clock.now = now
        assert cache.read("m", blocks)[0] == hit


async def ask(
    provider: SyntheticProvider,
    model: str,
    *,
    streamed: bool = True,
    text: str = "hi" * 4_000,
    mark: bool = False,
    headers: tuple[tuple[str, str], ...] = (),
) -> tuple[Head, bytes, list[Seen]]:
    block: dict[str, object] = {"type": "text", "text": text}
    if mark:
        block["cache_control"] = {"type": "ephemeral"}
    fields = {"model": model, "stream": streamed, "messages": [{"role": "user", "content": [block]}]}
    data = json.dumps(fields).encode()
    received = Received(Protocol.MESSAGES, Operation.GENERATE, headers, "", data, data)
    async with aclosing(
        provider.stream(Call(parse(received, bytes(32)), "req_1", "synthetic", model, lambda: None))
    ) as parts:
        head, *pieces = [part async for part in parts]
    assert isinstance(head, Head)
    whole = [piece for piece in pieces if isinstance(piece, Piece)]
    return head, b"".join(piece.data for piece in whole), [seen for piece in whole for seen in piece.seen]


def usage_of(seen: list[Seen]) -> Usage:
    return [item for item in seen if isinstance(item, Usage)][-1]


async def test_cache_marks_are_no_part_of_the_prompt() -> None:
    provider = SyntheticProvider()
    await ask(provider, "cache")
    _, _, seen = await ask(provider, "cache", mark=True)
    usage = usage_of(seen)
    assert usage.cached_read == usage.input_total


async def test_the_words_of_a_model_say_what_it_does() -> None:
    provider = SyntheticProvider(SyntheticSettings(pace_s=0))
    for _ in range(2):
        assert usage_of((await ask(provider, "cold"))[2]).cached_read == 0
    assert usage_of((await ask(provider, "warm", text="x"))[2]).cached_read == 0, "only the last block is left"
    unreported = usage_of((await ask(provider, "unreported+slow"))[2])
    assert unreported.input_total is not None
    assert unreported.cached_read is None
    assert Refusal() in (await ask(provider, "refusal+cold"))[2]
    assert (await ask(provider, "error"))[0].status == 529
    assert (await ask(provider, "429+cold", streamed=False))[0].status == 429
    _, data, seen = await ask(provider, "cut")
    assert seen[-1] == Failed("cut")
    assert b"event: error" in data


COMPACTION = (("x-cachegate-request-class", "compaction"),)


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_compaction_is_answered_with_a_summary_marked_where_the_client_wants_that(*, streamed: bool) -> None:
    provider = SyntheticProvider()
    for asked, summary in (
        ("Sum it up.", "This is a synthetic summary."),
        ("Put it into a <summary> block.", "<summary>This is a synthetic summary.</summary>"),
    ):
        _, data, seen = await ask(provider, "cold", streamed=streamed, headers=COMPACTION, text=asked)
        assert "".join(re.findall(r'"text": ?"([^"]*)"', data.decode())) == summary
        assert usage_of(seen).cached_read == 0
    _, data, seen = await ask(provider, "refusal", headers=COMPACTION)
    assert Refusal() in seen
    assert b"summary" not in data


@pytest.mark.parametrize("model", ["m", "cald", "cold+", "cold+200", "700", "cold slow"])
async def test_an_unknown_word_is_an_error_that_lists_the_known_ones(model: str) -> None:
    with pytest.raises(BadInput, match=r"Join any of cache, cold"):
        await ask(SyntheticProvider(), model)
