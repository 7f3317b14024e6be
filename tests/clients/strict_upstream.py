"""A provider of Messages with the prompt cache of Anthropic's documents: it answers by a script and logs all it gets.

Its cache is strict: it keeps a prompt only up to a mark, and looks for what it kept only 20 blocks back from a mark.
Its usage is honest: it is computed from the blocks of the prompt, a token for every four bytes.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise

from aiohttp import web

from cachegate.wire.facts import Protocol
from clients.cold_upstream import Received
from clients.provider_replies import JsonObject, ReportedUsage
from clients.tool_upstream import Answer, Failure, Loopback, Parts, begun_stream, failed, frame, messages_events
from contract.prompt_blocks import Blocks, assert_extends, blocks_of, bytes_of, marked_blocks
from contract.prompt_caches import PromptCache

_TOKEN_BYTES = 4
TOKENS_MIN = 1024
"""What a real provider does not cache; tests with short prompts set 0."""
OVERLOADED: JsonObject = {"type": "overloaded_error", "message": "Overloaded"}


class Midst(Enum):
    """What happens in the midst of an answer, after the first words of its last part."""

    NOTHING = "nothing"
    HANGS = "hangs"
    """It waits for its caller to leave."""
    ERROR = "error"
    """An error event ends it."""
    CUT = "cut"
    """The connection breaks."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer of the script. Without parts it is empty, and its midst is where it begins."""

    parts: Parts = ()
    stop: str = ""
    """Another reason to end than the usual ones: refusal, max_tokens, pause_turn …"""
    stop_details: JsonObject | None = None
    midst: Midst = Midst.NOTHING
    error: JsonObject = field(default_factory=lambda: OVERLOADED)
    """What `Midst.ERROR` says."""
    usage: ReportedUsage | None = None
    """A usage that is made up; None tells the honest one."""
    output_tokens: int = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptUsage(ReportedUsage):
    """What the strict cache did: `cached` was read, `created` kept anew, and the rest stands beyond the last mark."""

    created: int

    def for_messages(self) -> JsonObject:
        return {
            **ReportedUsage.for_messages(self),
            "input_tokens": self.total - self.cached - self.created,
            "cache_creation_input_tokens": self.created,
            "cache_creation": {"ephemeral_5m_input_tokens": self.created, "ephemeral_1h_input_tokens": 0},
        }


@dataclass(frozen=True, slots=True)
class Inference:
    """A request to the model. What was refused with an HTTP status has neither read the cache nor filled it."""

    received: Received
    usage: PromptUsage | None

    @property
    def fields(self) -> JsonObject:
        return self.received.fields

    @property
    def blocks(self) -> Blocks:
        return blocks_of(Protocol.MESSAGES, self.received.body)


class StrictUpstream(Loopback):
    """Messages only. `script` may grow while it runs; a request beyond it gets an error."""

    def __init__(self, script: Iterable[Turn | Failure], tokens_min: int = TOKENS_MIN) -> None:
        super().__init__()
        self.script = list(script)
        self.inferences: list[Inference] = []
        self._tokens_min = tokens_min
        self._caches = defaultdict[str, PromptCache](lambda: PromptCache(bytes_min=tokens_min * _TOKEN_BYTES))

    @property
    def others(self) -> list[Received]:
        """Everything that asked for no answer of a model."""
        return [received for received in self.received if not _asks(received)]

    def assert_inferences(self, count: int) -> None:
        """See that the model was asked so many times, and that nothing else was asked."""
        assert self.others == [], [str(other) for other in self.others]
        assert len(self.inferences) == count, [inference.blocks[-1] for inference in self.inferences]

    def assert_each_extends_the_one_before(self, inferences: Iterable[Inference] | None = None) -> None:
        """See that each prompt begins with the whole one before it, and says something new."""
        for earlier, later in pairwise(self.inferences if inferences is None else inferences):
            assert_extends(later.blocks, earlier.blocks)
            assert len(later.blocks) > len(earlier.blocks), f"the same again: {later.blocks[-1]}"

    async def answer(self, request: web.Request, received: Received) -> web.StreamResponse:
        if not _asks(received):
            return failed(_UNKNOWN)
        number = len(self.inferences)
        turn = self.script[number] if number < len(self.script) else _UNEXPECTED
        if not received.fields.get("stream"):
            turn = _UNSTREAMED
        if isinstance(turn, Failure):
            self.inferences.append(Inference(received, None))
            return failed(turn)
        usage = self._cached(received, turn)
        self.inferences.append(Inference(received, usage))
        events = _events(turn, usage, number + 1, received.fields["model"])
        response = await begun_stream(request)
        for event in events if turn.midst is Midst.NOTHING else events[: _middle(events, len(turn.parts))]:
            await response.write(frame(event))
        match turn.midst:
            case Midst.NOTHING:
                pass
            case Midst.HANGS:
                await self.hang()
            case Midst.ERROR:
                await response.write(frame({"type": "error", "error": turn.error}))
            case Midst.CUT:
                assert request.transport is not None
                request.transport.close()
                return response
        await response.write_eof()
        return response

    def _cached(self, received: Received, turn: Turn) -> PromptUsage:
        """Let the prompt pass through its model's cache."""
        blocks, marks = blocks_of(Protocol.MESSAGES, received.body), marked_blocks(Protocol.MESSAGES, received.body)
        read = _tokens(blocks[: self._caches[received.fields["model"]].serve(received.body)])
        marked = _tokens(blocks[: marks[-1] + 1]) if marks else 0
        created = marked - read if marked >= self._tokens_min else 0
        return PromptUsage(total=_tokens(blocks), cached=read, output=turn.output_tokens, created=created)


def _asks(received: Received) -> bool:
    return (received.method, received.path) == ("POST", "/v1/messages")


def _events(turn: Turn, usage: PromptUsage, number: int, model: str) -> list[JsonObject]:
    answer = Answer(turn.parts, turn.usage or usage, stop=turn.stop)
    events = [event for event in messages_events(answer, number, model) if event is not None]
    for event in events:
        if event["type"] == "message_delta" and turn.stop_details is not None:
            event["delta"]["stop_details"] = turn.stop_details
    return events


def _middle(events: list[JsonObject], parts: int) -> int:
    """Return how many events come before the midst: up to the first delta of the last part that says something."""
    for number, event in enumerate(events, start=1):
        if not parts and event["type"] == "message_start":
            return number
        if (
            event["type"] == "content_block_delta"
            and event["index"] == parts - 1
            and any(value for name, value in event["delta"].items() if name != "type")
        ):
            return number
    raise AssertionError("the last part of the answer has no words to break off after")


def _tokens(blocks: Blocks) -> int:
    return bytes_of(blocks) // _TOKEN_BYTES


_UNKNOWN = Failure(404, {"type": "not_found_error", "message": "no such path"})
_UNEXPECTED = Failure(500, {"type": "api_error", "message": "not in the script"})
"""Not 400: a client may try such a request once more without a beta."""
_UNSTREAMED = Failure(500, {"type": "api_error", "message": "this provider only streams"})
