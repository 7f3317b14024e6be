"""A provider whose prompt cache does what a test says: it records every request and reports a scripted usage."""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from aiohttp import web
from aiohttp.typedefs import Handler

from clients.provider_replies import (
    JsonObject,
    ReportedUsage,
    ScriptedStream,
    compaction_stream,
    messages_reply,
    messages_stream,
    responses_reply,
    responses_stream,
)

_BODY_BYTES_MAX = 64 * 1024 * 1024
_MODELS = ("gpt-5.5", "claude-opus-5-5")
_RELEASED = "2026-01-01T00:00:00Z"

StreamWriter = Callable[[str, ReportedUsage, str], ScriptedStream]
ReplyWriter = Callable[[str, ReportedUsage, str], JsonObject]


@dataclass(frozen=True, slots=True)
class Received:
    """One request as it came over the wire. Header names are lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def fields(self) -> JsonObject:
        fields: JsonObject = json.loads(self.body)
        return fields

    def __str__(self) -> str:
        return f"{self.method} {self.path} ({len(self.body)} bytes)"


_RECEIVED = web.RequestKey("received", Received)


@dataclass(frozen=True, slots=True)
class Reply:
    """How to answer one inference request. A hanging reply stops in the middle of its text and waits for the end.

    Without a text of its own it says "Answer 1.", "Answer 2." and so on, so a test can tell which one a client shows.
    """

    usage: ReportedUsage
    text: str = ""
    hangs: bool = False


Script = Callable[[Received], Reply]


def always(usage: ReportedUsage) -> Script:
    """Return the script that reports the same usage whatever is asked."""
    return lambda _received: Reply(usage)


class ColdUpstream:
    """The provider on a free loopback port; use it as an async context manager.

    `received` holds everything that arrived, known path or not, in order: a test that expects silence can prove it.
    `hung_up` is set when the caller of a hanging reply has closed its connection.
    """

    def __init__(self, script: Script) -> None:
        self.received: list[Received] = []
        self.hung_up = asyncio.Event()
        self._script = script
        self._answers = 0
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        assert self._runner is not None, "the upstream has not been started"
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}"

    async def __aenter__(self) -> Self:
        app = web.Application(middlewares=[self._record], client_max_size=_BODY_BYTES_MAX)
        app.router.add_post("/v1/messages", self._answer_messages)
        app.router.add_post("/v1/messages/count_tokens", self._count_tokens)
        app.router.add_post("/v1/responses", self._answer_responses)
        app.router.add_get("/v1/models", self._list_models)
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

    @web.middleware
    async def _record(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        received = Received(request.method, request.path, headers, await request.read())
        request[_RECEIVED] = received
        self.received.append(received)
        try:
            return await handler(request)
        except web.HTTPNotFound:
            error = {"type": "not_found_error", "message": f"no such path: {request.path}", "code": None, "param": None}
            return web.json_response({"type": "error", "error": error}, status=404)

    async def _answer_messages(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, messages_stream, messages_reply)

    async def _answer_responses(self, request: web.Request) -> web.StreamResponse:
        asked = request[_RECEIVED].fields["input"]
        compacts = isinstance(asked, list) and asked[-1].get("type") == "compaction_trigger"
        return await self._answer(request, compaction_stream if compacts else responses_stream, responses_reply)

    async def _answer(self, request: web.Request, stream: StreamWriter, whole: ReplyWriter) -> web.StreamResponse:
        received = request[_RECEIVED]
        fields = received.fields
        self._answers += 1
        reply = self._script(received)
        text = reply.text or f"Answer {self._answers}."
        if not fields.get("stream"):
            return web.json_response(whole(text, reply.usage, fields["model"]))
        return await self._send_stream(request, stream(text, reply.usage, fields["model"]), hangs=reply.hangs)

    async def _send_stream(self, request: web.Request, stream: ScriptedStream, *, hangs: bool) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream", "cache-control": "no-cache"})
        await response.prepare(request)
        for event in stream.opening:
            await response.write(_frame(event))
        if hangs:
            try:
                await asyncio.Event().wait()
            finally:
                self.hung_up.set()
        for event in stream.ending:
            await response.write(_frame(event))
        await response.write_eof()
        return response

    async def _count_tokens(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"input_tokens": max(1, len(await request.read()) // 4)})

    async def _list_models(self, request: web.Request) -> web.StreamResponse:
        """Answer in the dialect of the caller, as two providers share this one address."""
        if "anthropic-version" in request.headers:
            shown = [{"type": "model", "id": name, "display_name": name, "created_at": _RELEASED} for name in _MODELS]
            ends = {"first_id": _MODELS[0], "last_id": _MODELS[-1], "has_more": False}
            return web.json_response({"data": shown, **ends})
        listed = [{"id": name, "object": "model", "created": 1_767_225_600, "owned_by": "upstream"} for name in _MODELS]
        return web.json_response({"object": "list", "data": listed})


def _frame(event: JsonObject) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
