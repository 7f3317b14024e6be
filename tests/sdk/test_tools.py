"""Whatever a tool does, the model hears of it and the turn goes on."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from cachegate.sdk import Tool, ToolCalled
from cachegate.sdk.tools import answered, arguments_of, checked


def tool(run: Callable[..., Any]) -> Tool:
    return Tool("t", "A tool.", {"type": "object"}, run)


async def output(run: Callable[..., Any], **arguments: object) -> tuple[str, bool]:
    told = await answered([tool(run)], ToolCalled("call_1", "t", arguments))
    assert (told.call_id, told.name) == ("call_1", "t")
    return told.output, told.success


async def later(a: int) -> int:
    await asyncio.sleep(0)
    return a + 1


def broken(**_: object) -> str:
    raise KeyError("nope")


async def cancels_itself() -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("run", "arguments", "expected"),
    [
        (lambda a: a, {"a": "text"}, ("text", True)),
        (lambda a: {"é": a}, {"a": 1}, ('{"é": 1}', True)),
        (lambda: None, {}, ("null", True)),
        (later, {"a": 1}, ("2", True)),
        (lambda a: later(a + 1), {"a": 1}, ("3", True)),
        (broken, {}, ("KeyError: 'nope'", False)),
        (cancels_itself, {}, ("The tool was cancelled.", False)),
    ],
)
async def test_tools_of_every_kind(
    run: Callable[..., Any], arguments: dict[str, object], expected: tuple[str, bool]
) -> None:
    assert await output(run, **arguments) == expected


async def test_arguments_that_do_not_fit_and_answers_that_are_no_json() -> None:
    words, success = await output(later, b=1)
    assert not success
    assert "unexpected keyword argument" in words
    words, success = await output(object)
    assert not success
    assert "not JSON serializable" in words


async def test_a_plain_function_runs_beside_the_event_loop() -> None:
    assert await output(lambda: threading.current_thread() is threading.main_thread()) == ("false", True)


async def test_cancelling_the_call_cancels_the_tool() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def forever() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(output(forever))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(ended.wait(), 10)


def test_arguments() -> None:
    assert arguments_of('{"a": 1}') == {"a": 1}
    assert arguments_of("") == {}
    for text in ("[1]", "7", "{", "[" * 100_000):
        assert arguments_of(text) == text


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="'t'"):
        checked([tool(print), tool(print)])
