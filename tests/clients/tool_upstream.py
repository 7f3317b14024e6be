"""Providers that ask for tools: they answer by a script, in the protocol they are asked in, and log every request."""

import asyncio
import json
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from types import TracebackType
from typing import Self

import msgspec
from aiohttp import web

from clients.cold_upstream import Received
from clients.provider_replies import JsonObject, ReportedUsage

KEY = "upstream-key"
_BODY_BYTES_MAX = 256 * 1024 * 1024
_MARK = re.compile(rb',?"cache_control":\{[^{}]*\}')
"""A mark as a field of JSON. The same words in a text have their quotes escaped."""


@dataclass(frozen=True, slots=True)
class Thought:
    """What the model thought. `seal` is opaque: signature or encrypted content. Without text it is redacted."""

    text: str
    seal: str


@dataclass(frozen=True, slots=True)
class Words:
    """What the model says."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A tool that the model calls, with its arguments as the model spells them."""

    call_id: str
    tool: str
    arguments: str


Parts = tuple[Thought | Words | Call, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. One that hangs stops where its last part has just begun, and waits for its caller to leave."""

    parts: Parts
    usage: ReportedUsage
    hangs: bool = False
    stop: str = ""
    """Another reason to end than the usual ones, in the words of Messages."""

    @property
    def calls(self) -> tuple[Call, ...]:
        return tuple(part for part in self.parts if isinstance(part, Call))

    @property
    def thoughts(self) -> tuple[Thought, ...]:
        return tuple(part for part in self.parts if isinstance(part, Thought))


def script_of(turns: Iterable[Iterable[Parts]]) -> tuple[Answer, ...]:
    """Return the answers of turns one after the other, each told from the others by the usage that it reports."""
    said = enumerate(parts for turn in turns for parts in turn)
    return tuple(
        Answer(parts, ReportedUsage(total=20_000 + 100 * number, cached=19_000 + 100 * number, output=30 + number))
        for number, parts in said
    )


@dataclass(frozen=True, slots=True)
class Failure:
    """No answer but an error, in the words of the provider's protocol."""

    status: int
    error: JsonObject
    retry_after: str = ""


class Loopback:
    """A provider on a free loopback port; use it as an async context manager.

    `received` holds everything that arrived, known path or not, in order.
    """

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.hanging = asyncio.Event()
        """Set when an answer has come to where it hangs."""
        self.hung_up = asyncio.Event()
        """Set when the caller of a hanging answer has closed its connection."""
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        assert self._runner is not None, "the upstream has not been started"
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}"

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=_BODY_BYTES_MAX)
        app.router.add_route("*", "/{path:.*}", self._take)
        # Without handler_cancellation a handler that waits would never learn that its caller has left.
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def answer(self, request: web.Request, received: Received) -> web.StreamResponse:
        raise NotImplementedError

    async def hang(self) -> None:
        """Wait for the caller to leave."""
        self.hanging.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.hung_up.set()

    async def _take(self, request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        received = Received(request.method, request.path, headers, await request.read())
        self.received.append(received)
        return await self.answer(request, received)


def failed(failure: Failure) -> web.Response:
    wait = {"retry-after": failure.retry_after} if failure.retry_after else None
    return web.json_response({"type": "error", "error": failure.error}, status=failure.status, headers=wait)


async def begun_stream(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream", "cache-control": "no-cache"})
    await response.prepare(request)
    return response


class ToolUpstream(Loopback):
    """All three protocols, by a script. A request beyond it gets an error."""

    def __init__(self, script: tuple[Answer | Failure, ...]) -> None:
        super().__init__()
        self.script = script

    async def answer(self, request: web.Request, received: Received) -> web.StreamResponse:
        number = len(self.received)
        protocol = _PROTOCOLS.get(request.path)
        answer = self.script[number - 1] if number <= len(self.script) else _UNEXPECTED
        if protocol is None or request.method != "POST" or isinstance(answer, Failure):
            return failed(answer if isinstance(answer, Failure) else _UNEXPECTED)
        response = await begun_stream(request)
        for event in protocol(answer, number, received.fields["model"]):
            if event is None:
                await self.hang()
            await response.write(frame(event))
        await response.write_eof()
        return response


_UNEXPECTED = Failure(400, {"type": "invalid_request_error", "message": "not in the script", "code": None})

Events = Iterable[JsonObject | None]
"""None is where an answer hangs."""


def frame(event: JsonObject | None) -> bytes:
    if event == {}:
        return b"data: [DONE]\n\n"
    assert event is not None
    name = f"event: {event['type']}\n" if "type" in event else ""
    return f"{name}data: {json.dumps(event)}\n\n".encode()


# --- Messages ---


def messages_events(answer: Answer, number: int, model: str) -> Events:
    usage = answer.usage.for_messages()
    begun: JsonObject = {
        "id": f"msg_{number:024}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**usage, "output_tokens": 1},
    }
    yield {"type": "message_start", "message": begun}
    yield {"type": "ping"}
    for index, part in enumerate(answer.parts):
        block, deltas = _messages_block(part)
        yield {"type": "content_block_start", "index": index, "content_block": block}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
            if answer.hangs and part is answer.parts[-1]:
                yield None
        yield {"type": "content_block_stop", "index": index}
    reason = answer.stop or ("tool_use" if answer.calls else "end_turn")
    yield {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}
    yield {"type": "message_stop"}


def _messages_block(part: Thought | Words | Call) -> tuple[JsonObject, list[JsonObject]]:
    match part:
        case Thought("", seal):
            return {"type": "redacted_thinking", "data": seal}, []
        case Thought():
            said = [{"type": "thinking_delta", "thinking": piece} for piece in _halves(part.text)]
            sealed = {"type": "signature_delta", "signature": part.seal}
            return {"type": "thinking", "thinking": "", "signature": ""}, [*said, sealed]
        case Words():
            return {"type": "text", "text": ""}, [{"type": "text_delta", "text": half} for half in _halves(part.text)]
        case Call():
            pieces = ("", *_halves(part.arguments))
            block = {"type": "tool_use", "id": part.call_id, "name": part.tool, "input": {}}
            return block, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]


# --- Responses ---


def _responses(answer: Answer, number: int, model: str) -> Events:
    begun: JsonObject = {
        "id": f"resp_{number:024}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "model": model,
        "output": [],
        "parallel_tool_calls": True,
        "store": False,
        "tool_choice": "auto",
        "tools": [],
        "usage": None,
    }
    items = [_responses_item(part, f"{number:020}{at:04}") for at, part in enumerate(answer.parts)]
    whole = {**begun, "status": "completed", "output": items, "usage": answer.usage.for_responses()}
    for sequence, event in enumerate(_responses_events(answer, items, begun, whole)):
        yield None if event is None else {**event, "sequence_number": sequence}


def _responses_events(answer: Answer, items: list[JsonObject], begun: JsonObject, whole: JsonObject) -> Events:
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, (part, item) in enumerate(zip(answer.parts, items, strict=True)):
        empty = {**item, **_EMPTY[item["type"]]}
        yield {"type": "response.output_item.added", "output_index": index, "item": empty}
        for event in _responses_growth(part, {"output_index": index, "item_id": item["id"]}):
            yield event
            if answer.hangs and event["type"].endswith(".delta"):
                yield None
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": "response.completed", "response": whole}


_EMPTY: dict[str, JsonObject] = {
    "reasoning": {"summary": [], "encrypted_content": None},
    "message": {"status": "in_progress", "content": []},
    "function_call": {"status": "in_progress", "arguments": ""},
}


def _responses_item(part: Thought | Words | Call, number: str) -> JsonObject:
    match part:
        case Thought():
            summary = [{"type": "summary_text", "text": part.text}] if part.text else []
            return {"id": f"rs_{number}", "type": "reasoning", "summary": summary, "encrypted_content": part.seal}
        case Words():
            content = [{"type": "output_text", "text": part.text, "annotations": [], "logprobs": []}]
            head = {"id": f"msg_{number}", "type": "message", "role": "assistant", "status": "completed"}
            return {**head, "content": content}
        case Call():
            head = {"id": f"fc_{number}", "type": "function_call", "status": "completed"}
            return {**head, "call_id": part.call_id, "name": part.tool, "arguments": part.arguments}


def _responses_growth(part: Thought | Words | Call, where: JsonObject) -> Iterable[JsonObject]:
    match part:
        case Thought(""):
            return
        case Thought():
            where = {**where, "summary_index": 0}
            yield {"type": "response.reasoning_summary_part.added", **where, "part": _summary("")}
            for piece in _halves(part.text):
                yield {"type": "response.reasoning_summary_text.delta", **where, "delta": piece}
            yield {"type": "response.reasoning_summary_text.done", **where, "text": part.text}
            yield {"type": "response.reasoning_summary_part.done", **where, "part": _summary(part.text)}
        case Words():
            where = {**where, "content_index": 0}
            text = {"type": "output_text", "annotations": [], "logprobs": []}
            yield {"type": "response.content_part.added", **where, "part": {**text, "text": ""}}
            for piece in _halves(part.text):
                yield {"type": "response.output_text.delta", **where, "delta": piece, "logprobs": []}
            yield {"type": "response.output_text.done", **where, "text": part.text, "logprobs": []}
            yield {"type": "response.content_part.done", **where, "part": {**text, "text": part.text}}
        case Call():
            for piece in _halves(part.arguments):
                yield {"type": "response.function_call_arguments.delta", **where, "delta": piece}
            yield {"type": "response.function_call_arguments.done", **where, "arguments": part.arguments}


def _summary(text: str) -> JsonObject:
    return {"type": "summary_text", "text": text}


# --- Chat Completions ---


def _chat(answer: Answer, number: int, model: str) -> Events:
    head = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": int(time.time()), "model": model}

    def chunk(delta: JsonObject, reason: str | None = None) -> JsonObject:
        return {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]}

    yield chunk({"role": "assistant", "content": ""})
    called = 0
    for part in answer.parts:
        match part:
            case Thought():
                yield chunk({"reasoning_content": part.text})
            case Words():
                for piece in _halves(part.text):
                    yield chunk({"content": piece})
                    if answer.hangs:
                        yield None
            case Call():
                function = {"name": part.tool, "arguments": ""}
                begun = {"index": called, "id": part.call_id, "type": "function", "function": function}
                yield chunk({"tool_calls": [begun]})
                for piece in _halves(part.arguments):
                    yield chunk({"tool_calls": [{"index": called, "function": {"arguments": piece}}]})
                called += 1
    yield chunk({}, "tool_calls" if called else "stop")
    usage = answer.usage
    counts = {"prompt_tokens": usage.total, "completion_tokens": usage.output}
    details = {"prompt_tokens_details": {"cached_tokens": usage.cached}}
    yield {**head, "choices": [], "usage": {**counts, "total_tokens": usage.total + usage.output, **details}}
    yield {}


_PROTOCOLS = {"/v1/messages": messages_events, "/v1/responses": _responses, "/v1/chat/completions": _chat}


def _halves(text: str) -> tuple[str, str]:
    middle = len(text) // 2
    return text[:middle], text[middle:]


# --- what stands in the log ---


class _Turn(msgspec.Struct):
    role: str
    content: msgspec.Raw


class _Body(msgspec.Struct):
    """The part of a request that a provider caches, of any protocol."""

    tools: list[msgspec.Raw] = []
    system: list[msgspec.Raw] = []
    instructions: str = ""
    input: list[msgspec.Raw] = []
    messages: list[msgspec.Raw] = []


_BODIES = msgspec.json.Decoder(_Body)
_TURNS = msgspec.json.Decoder(_Turn)
_BLOCKS = msgspec.json.Decoder(list[msgspec.Raw])


def blocks(received: Received) -> list[bytes]:
    """Return what the provider's cache compares, block by block in its order, as bytes; cache marks are no content."""
    body = _BODIES.decode(_MARK.sub(b"", received.body))
    head = [*body.tools, *body.system, body.instructions.encode(), *body.input]
    said = [block for message in body.messages for block in _said(received, message)]
    return [bytes(block) for block in (*head, *said)]


def _said(received: Received, message: msgspec.Raw) -> list[bytes]:
    """Return the blocks of a message with its role before each: turns of the same role are one for the provider."""
    if received.path != "/v1/messages":
        return [bytes(message)]
    turn = _TURNS.decode(message)
    return [f"{turn.role}: ".encode() + bytes(block) for block in _BLOCKS.decode(turn.content)]


def settings(received: Received) -> JsonObject:
    """Return everything of a request that is no block: a change of it costs the cache as well."""
    return {name: value for name, value in received.fields.items() if name not in _Body.__struct_fields__}


def assert_each_extends_the_one_before(requests: list[Received]) -> None:
    """Prove that the provider can reuse its cache: nothing that it has seen is ever sent in another way."""
    for number, (before, after) in enumerate(pairwise(requests), start=2):
        old, new = blocks(before), blocks(after)
        differs = next((at for at, block in enumerate(old) if new[at : at + 1] != [block]), None)
        assert differs is None, f"{number}: block {differs}\nwas {old[differs]!r}\nis  {new[differs : differs + 1]!r}"
        assert len(new) > len(old), f"request {number} says nothing new"
        assert settings(after) == settings(before)
