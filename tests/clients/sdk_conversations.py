"""A conversation of several turns through the official SDKs, one class per protocol and the same questions for all.

The history is what a real client would send back: the SDK's own objects of the answer, unchanged.
"""

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import anthropic
import openai

from cachegate.wire.facts import Protocol

MODEL = "tiny"
TOKENS = 16
"""Of an answer: the fewest that Responses knows."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call as the client understands it."""

    call_id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Told:
    """What the client is told of one answer."""

    text: str
    thoughts: str
    calls: tuple[ToolCall, ...]
    prompt_tokens: int | None
    """All of the prompt, whether its protocol counts the cached part in or not."""
    read_tokens: int | None
    stop: str


class Conversation(ABC):
    """One thread, with the instructions and the tools it keeps to the end."""

    def __init__(self, url: str, instructions: str, tools: dict[str, dict[str, Any]] | None = None) -> None:
        self.url = url
        self.instructions = instructions
        self.tools = tools or {}
        self.history: list[Any] = []

    def say(self, text: str) -> None:
        """Add what the user says."""
        self.history.append({"role": "user", "content": text})

    @abstractmethod
    async def answer(self, *, streamed: bool, tokens_max: int = TOKENS, forced: bool = False) -> Told:
        """Ask for the next answer and keep it. `forced` demands one tool call."""

    @abstractmethod
    def give(self, call: ToolCall, result: str) -> None:
        """Add what a tool returned."""


class MessagesConversation(Conversation):
    """Anthropic's SDK."""

    async def answer(self, *, streamed: bool, tokens_max: int = TOKENS, forced: bool = False) -> Told:
        tools = [{"name": name, "description": name, "input_schema": schema} for name, schema in self.tools.items()]
        arguments: dict[str, Any] = {
            "model": MODEL,
            "max_tokens": tokens_max,
            "system": self.instructions,
            "messages": self.history,
            **({"tools": tools} if tools else {}),
            **({"tool_choice": {"type": "any", "disable_parallel_tool_use": True}} if forced else {}),
        }
        async with anthropic.AsyncAnthropic(base_url=self.url, api_key="sk-mine", max_retries=0) as client:
            if streamed:
                async with client.messages.stream(**arguments) as running:
                    message: Any = await running.get_final_message()
            else:
                message = await client.messages.create(**arguments)
        self.history.append({"role": "assistant", "content": message.content})
        usage = message.usage
        parts = (usage.input_tokens, usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0)
        return Told(
            "".join(block.text for block in message.content if block.type == "text"),
            "".join(block.thinking for block in message.content if block.type == "thinking"),
            tuple(ToolCall(block.id, block.name, block.input) for block in message.content if block.type == "tool_use"),
            sum(parts),
            usage.cache_read_input_tokens,
            message.stop_reason,
        )

    def give(self, call: ToolCall, result: str) -> None:
        block = {"type": "tool_result", "tool_use_id": call.call_id, "content": result}
        self.history.append({"role": "user", "content": [block]})


class ResponsesConversation(Conversation):
    """OpenAI's SDK, Responses."""

    async def answer(self, *, streamed: bool, tokens_max: int = TOKENS, forced: bool = False) -> Told:
        tools = [
            {"type": "function", "name": name, "description": name, "parameters": schema, "strict": False}
            for name, schema in self.tools.items()
        ]
        arguments: dict[str, Any] = {
            "model": MODEL,
            "max_output_tokens": tokens_max,
            "instructions": self.instructions,
            "input": self.history,
            "store": False,
            **({"tools": tools} if tools else {}),
            **({"tool_choice": "required", "parallel_tool_calls": False} if forced else {}),
        }
        async with openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key="sk-mine", max_retries=0) as client:
            told: Any = await client.responses.create(**arguments, stream=streamed)
            if streamed:
                last = [event async for event in told][-1]
                assert last.type in {"response.completed", "response.incomplete"}, last
                told = last.response
        self.history.extend(item.to_dict() for item in told.output)
        calls = [item for item in told.output if item.type == "function_call"]
        cut = told.incomplete_details
        return Told(
            told.output_text,
            "".join(
                part.text for item in told.output if item.type == "reasoning" for part in item.content or item.summary
            ),
            tuple(ToolCall(call.call_id, call.name, json.loads(call.arguments)) for call in calls),
            told.usage.input_tokens,
            told.usage.input_tokens_details.cached_tokens,
            cut.reason if cut else told.status,
        )

    def give(self, call: ToolCall, result: str) -> None:
        self.history.append({"type": "function_call_output", "call_id": call.call_id, "output": result})


class ChatConversation(Conversation):
    """OpenAI's SDK, Chat Completions. A stream is asked for its usage."""

    async def answer(self, *, streamed: bool, tokens_max: int = TOKENS, forced: bool = False) -> Told:
        tools = [
            {"type": "function", "function": {"name": name, "description": name, "parameters": schema}}
            for name, schema in self.tools.items()
        ]
        arguments: dict[str, Any] = {
            "model": MODEL,
            "max_tokens": tokens_max,
            "messages": [{"role": "system", "content": self.instructions}, *self.history],
            **({"tools": tools} if tools else {}),
            **({"tool_choice": "required", "parallel_tool_calls": False} if forced else {}),
        }
        async with openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key="sk-mine", max_retries=0) as client:
            if not streamed:
                completion: Any = await client.chat.completions.create(**arguments)
                return self._told(completion.choices[0].message.to_dict(), completion.choices[0], completion.usage)
            arguments |= {"stream": True, "stream_options": {"include_usage": True}}
            chunks: list[Any] = [chunk async for chunk in await client.chat.completions.create(**arguments)]
        choices = [choice for chunk in chunks for choice in chunk.choices]
        return self._told(_assembled([choice.delta for choice in choices]), choices[-1], chunks[-1].usage)

    def _told(self, message: dict[str, Any], last: Any, usage: Any) -> Told:
        self.history.append(message)
        calls = [(call["id"], call["function"]) for call in message.get("tool_calls") or []]
        return Told(
            message.get("content") or "",
            message.get("reasoning_content") or "",
            tuple(ToolCall(key, function["name"], json.loads(function["arguments"])) for key, function in calls),
            usage.prompt_tokens,
            usage.prompt_tokens_details.cached_tokens,
            last.finish_reason,
        )

    def give(self, call: ToolCall, result: str) -> None:
        self.history.append({"role": "tool", "tool_call_id": call.call_id, "content": result})


def _assembled(deltas: list[Any]) -> dict[str, Any]:
    """Return the message of a Chat stream; the SDK's own helper takes a full `max_tokens` for an error."""
    calls: dict[int, dict[str, Any]] = {}
    for part in (part for delta in deltas for part in delta.tool_calls or []):
        if part.index not in calls:
            function = {"name": part.function.name, "arguments": ""}
            calls[part.index] = {"id": part.id, "type": "function", "function": function}
        calls[part.index]["function"]["arguments"] += part.function.arguments or ""
    parts = {
        "content": "".join(delta.content or "" for delta in deltas),
        "reasoning_content": "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas),
        "tool_calls": list(calls.values()),
    }
    return {"role": "assistant", **{name: part for name, part in parts.items() if part}}


CONVERSATIONS: dict[Protocol, type[Conversation]] = {
    Protocol.MESSAGES: MessagesConversation,
    Protocol.RESPONSES: ResponsesConversation,
    Protocol.CHAT: ChatConversation,
}
