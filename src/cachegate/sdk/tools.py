"""Tools that a model may call, and what is said to it when a call goes wrong: always a text, never an exception."""

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cachegate.sdk.events import ToolAnswered, ToolCalled

ROUNDS_MAX = 100
"""Rounds of tools in one turn; a model that calls more often goes round in circles."""


@dataclass(frozen=True, slots=True)
class Tool:
    """Something that the model may have done.

    `run` gets the arguments by name and returns the answer: a text, or anything that JSON can say. It may be a
    coroutine function; a plain one runs in a thread of its own.
    """

    name: str
    description: str
    parameters: Mapping[str, object]
    """JSON Schema of the arguments, an object."""
    run: Callable[..., Any]

    def definition(self) -> dict[str, object]:
        """Return the tool as the Responses protocol declares it."""
        # Left out, `strict` is true, and the schema would have to obey further rules.
        return {
            "type": "function",
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
            "strict": False,
        }


def checked(tools: Sequence[Tool]) -> tuple[Tool, ...]:
    """Return the tools. Raises ValueError where two have one name."""
    names = [tool.name for tool in tools]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"Two tools are named {twice[0]!r}. Give each its own name.")
    return tuple(tools)


def arguments_of(text: str) -> Mapping[str, object] | str:
    """Return a call's arguments; the text itself when it is no JSON object. No arguments are an empty object."""
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text


async def answered(tools: Sequence[Tool], call: ToolCalled) -> ToolAnswered:
    """Run a call, and return what the model is to hear. Cancelling this cancels the tool."""
    tool = next((tool for tool in tools if tool.name == call.name), None)
    if tool is None:
        known = ", ".join(tool.name for tool in tools) or "none"
        return _failed(call, f"There is no tool {call.name!r}. Tools here: {known}.")
    if isinstance(call.arguments, str):
        return _failed(call, f"The arguments of {call.name!r} are no JSON object. Send one that fits its schema.")
    # A task holds what the tool raises as a value: whatever that is, the model hears of it and the turn goes on.
    running = asyncio.create_task(_output(tool, call.arguments))
    try:
        await asyncio.wait({running})
    finally:
        running.cancel()
    if running.cancelled():
        return _failed(call, "The tool was cancelled.")
    raised = running.exception()
    if raised is not None:
        return _failed(call, f"{type(raised).__name__}: {raised}")
    return ToolAnswered(call.call_id, call.name, running.result(), success=True)


async def _output(tool: Tool, arguments: Mapping[str, object]) -> str:
    """Run a tool and return its answer as a text."""
    if inspect.iscoroutinefunction(tool.run):
        value = await tool.run(**arguments)
    else:
        value = await asyncio.to_thread(tool.run, **arguments)
        if inspect.isawaitable(value):
            value = await value
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _failed(call: ToolCalled, words: str) -> ToolAnswered:
    return ToolAnswered(call.call_id, call.name, words, success=False)
