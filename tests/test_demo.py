"""The demonstration does what it shows, and would notice if it did not."""

import pytest

from cachegate import demo
from cachegate.demo import DemoFailed, Heard


async def test_it_shows_the_guard_over_both_sdks() -> None:
    said: list[str] = []
    await demo.demo(said.append)
    text = "\n".join(said)
    assert text.count("stopped. ") == 4
    assert text.count("ran. ") == 6


@pytest.mark.parametrize(
    ("statuses", "words"),
    [
        ([400], "request 1 should have run"),
        ([200, 200, 200], "request 3 should have been stopped"),
        ([200, 200, 400, 200], "the same again should have been stopped"),
        ([200, 200, 400, 400, 400], "half the input should have run"),
    ],
)
async def test_it_fails_where_the_guard_does_not_keep_its_promise(statuses: list[int], words: str) -> None:
    answers = iter(statuses)
    calls = iter([0, 2])

    async def ask(text: str) -> Heard:
        return Heard(f"wait 5 minutes, {len(text)} bytes", next(answers))

    with pytest.raises(DemoFailed, match=words):
        await demo._steps(ask, lambda _: None, lambda: next(calls))


async def test_it_fails_when_the_provider_was_reached_too_often() -> None:
    calls = iter([0, 3])
    answers = iter([200, 200, 400, 400])

    async def ask(text: str) -> Heard:
        return Heard(f"5 minutes {len(text)}", next(answers))

    with pytest.raises(DemoFailed, match="saw 3 requests"):
        await demo._steps(ask, lambda _: None, lambda: next(calls))
