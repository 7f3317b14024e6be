"""What the events of APIs of their own say: Claude CLI, Copilot SDK, Gemini, Bedrock and Ollama, from decoded JSON.

One turn there can hold several model calls. Each is measured by itself: a sum over a turn is no observation, and the
calls of a sub-agent belong to the sub-agent.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol as Interface

from cachegate.guard.usage import Usage
from cachegate.wire import refusals
from cachegate.wire.failures import ended, failure, judged
from cachegate.wire.seen import Failed, Finished, Refusal, Seen, word
from cachegate.wire.usage_readings import Fields, Format, Measurement, Reading, fields, items


class Calls:
    """The model calls of a turn, in order of their beginning."""

    __slots__ = ("_measured", "_running")

    def __init__(self) -> None:
        self._measured: list[tuple[str | None, Measurement]] = []
        self._running: dict[str | None, Measurement] = {}

    def begin(self, reading: Reading, agent: str | None = None) -> None:
        """Begin a call of the main conversation, or of a sub-agent."""
        self._running[agent] = Measurement(reading)
        self._measured.append((agent, self._running[agent]))

    def add(self, reading: Reading, report: object, agent: str | None = None) -> tuple[Seen, ...]:
        """Take in a report of the running call; only the main conversation's are observed."""
        if not isinstance(report, dict):
            return ()
        if agent not in self._running:
            self.begin(reading, agent)
        usage = self._running[agent].add(report)
        return (usage,) if agent is None else ()

    @property
    def main(self) -> tuple[Usage, ...]:
        """What each call of the main conversation measured."""
        return tuple(measurement.usage for agent, measurement in self._measured if agent is None)

    @property
    def of_agents(self) -> tuple[Usage, ...]:
        """What each call of a sub-agent measured."""
        return tuple(measurement.usage for agent, measurement in self._measured if agent is not None)

    @property
    def inconsistent(self) -> bool:
        """Whether the last call of the main conversation reported a part larger than its whole."""
        main = [measurement for agent, measurement in self._measured if agent is None]
        return bool(main) and main[-1].inconsistent


class EventReader(Interface):
    """Reads one turn, event by event; what its model calls measured is in the `Calls` it was made with."""

    def read(self, event: Fields) -> tuple[Seen, ...]:
        """Return what one event says."""


@dataclass(slots=True, frozen=True)
class ClaudeCliReader:
    """The Claude CLI's stream-json: raw Messages events, one set per model call, then a `result` for the turn."""

    reading: Reading
    calls: Calls

    def read(self, event: Fields) -> tuple[Seen, ...]:
        """See `EventReader.read`."""
        agent = event.get("parent_tool_use_id")
        match event.get("type"):
            case "stream_event":
                return self._raw(fields(event.get("event")), agent if isinstance(agent, str) else None)
            case "assistant" if agent is None:
                return _synthetic(event)
            case "result":
                return _result(event)
        return ()

    def _raw(self, raw: Fields, agent: str | None) -> tuple[Seen, ...]:
        match raw.get("type"):
            case "message_start":
                self.calls.begin(self.reading, agent)
                return self.calls.add(self.reading, fields(raw.get("message")).get("usage"), agent)
            case "message_delta":
                reason = () if agent else ended(fields(raw.get("delta")).get("stop_reason"))
                return (*self.calls.add(self.reading, raw.get("usage"), agent), *reason)
            case "error" if agent is None:
                return failure(raw)
        return ()


def _synthetic(event: Fields) -> tuple[Seen, ...]:
    """Read what the CLI says itself in the model's place; what the model says is not searched."""
    message = fields(event.get("message"))
    if not (event.get("is_api_error_message") is True or message.get("model") == "<synthetic>"):
        return ()
    texts = [str(fields(part).get("text")) for part in items(message.get("content"))]
    refused = refusals.ended_by_refusal(message.get("stop_reason")) or any(map(refusals.is_refusing_text, texts))
    return (Refusal(),) if refused else ()


def _result(event: Fields) -> tuple[Seen, ...]:
    """Read the end of a turn. Its `usage` is a sum, filled up with zeros, and measures nothing."""
    if event.get("is_error") is not True:
        return (*ended(event.get("stop_reason")), Finished())
    named = [event.get(name) for name in ("terminal_reason", "api_error", "error", "subtype")]
    words = tuple(name for name in named if isinstance(name, str) and name)
    text = str(event.get("result") or "")
    refused = refusals.is_refusing_text(text) or refusals.ended_by_refusal(event.get("stop_reason"))
    status = event.get("api_error_status")
    seen = judged(words, text, words[0] if words else "", status if isinstance(status, int) else 0)
    return (Refusal(), *seen) if refused and Refusal() not in seen else seen


@dataclass(slots=True, frozen=True)
class CopilotSdkReader:
    """The Copilot SDK's session events: one `assistant.usage` per model call; `session.usage_info` is a sum."""

    reading: Reading
    calls: Calls

    def read(self, event: Fields) -> tuple[Seen, ...]:
        """See `EventReader.read`."""
        data, agent = fields(event.get("data")), event.get("agentId")
        match event.get("type"):
            case "assistant.usage":
                unreported = data.get("cacheDetailsReported") is False
                reading = replace(self.reading, zero_is_unknown=True) if unreported else self.reading
                owner = agent if isinstance(agent, str) and agent else None
                self.calls.begin(reading, owner)
                seen = self.calls.add(reading, data, owner)
                return () if owner else (*seen, *_copilot_end(data), Finished())
            case "session.error" if not agent:
                return failure(data)
            case "abort" if not agent:
                return (Failed(word(data.get("reason"))),)
        return ()


def _copilot_end(data: Fields) -> tuple[Seen, ...]:
    return (Refusal(),) if refusals.carries_refusal(data) else ended(data.get("finishReason"))


@dataclass(slots=True, frozen=True)
class GeminiReader:
    """Gemini's own API: every chunk repeats the usage so far."""

    reading: Reading
    calls: Calls

    def read(self, event: Fields) -> tuple[Seen, ...]:
        """See `EventReader.read`."""
        seen = self.calls.add(self.reading, event.get("usageMetadata"))
        if event.get("error"):
            return (*seen, *failure(event))
        if refusals.carries_refusal(fields(event.get("promptFeedback"))):
            return (*seen, Refusal(), Finished())
        for candidate in items(event.get("candidates")):
            reason = fields(candidate).get("finishReason")
            if isinstance(reason, str) and reason:
                seen = (*seen, *ended(reason), Finished())
        return seen


@dataclass(slots=True, frozen=True)
class BedrockReader:
    """Bedrock's Converse: `usage` of a whole answer, or the `metadata` event at the end of a stream."""

    reading: Reading
    calls: Calls

    def read(self, event: Fields) -> tuple[Seen, ...]:
        """See `EventReader.read`."""
        seen = self.calls.add(self.reading, event.get("usage"))
        seen += self.calls.add(self.reading, fields(event.get("metadata")).get("usage"))
        exception = next((name for name in event if name.endswith("Exception")), "")
        if exception or "__type" in event:
            said = fields(event.get(exception)) or event
            name = exception or str(event.get("__type")).rpartition("#")[2]
            return (*seen, *judged((name,), str(said.get("message", "")), name))
        reason = fields(event.get("messageStop")).get("stopReason") or event.get("stopReason")
        return (*seen, *ended(reason), Finished()) if reason else seen


@dataclass(slots=True, frozen=True)
class OllamaReader:
    """Ollama's own API: the line that is `done` has the counts."""

    reading: Reading
    calls: Calls

    def read(self, event: Fields) -> tuple[Seen, ...]:
        """See `EventReader.read`."""
        if event.get("error"):
            return failure(event)
        done = event.get("done") is True
        # Old versions left the cached tokens out of the count. A cached count comes from new ones only.
        counted = done or any(path in event for path in self.reading.read)
        seen = self.calls.add(self.reading, event) if counted else ()
        return (*seen, Finished()) if done else seen


EVENT_READERS: Mapping[Format, Callable[[Reading, Calls], EventReader]] = {
    Format.CLAUDE_CLI: ClaudeCliReader,
    Format.COPILOT_SDK: CopilotSdkReader,
    Format.GEMINI: GeminiReader,
    Format.BEDROCK: BedrockReader,
    Format.OLLAMA: OllamaReader,
}
"""Readers of one turn, by format."""
