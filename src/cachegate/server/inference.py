"""The paths that reach a provider: read the request, then hand it to the road."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web

from cachegate.auxiliary import classify
from cachegate.config import LimitsConfig
from cachegate.errors import HTTP_STATUS, BadInput, ErrorKind, GatewayError, Unavailable
from cachegate.guard.usage import Usage
from cachegate.observe.record import Record
from cachegate.providers.headers import Headers
from cachegate.road import CallerLeft, CallerStalled, Gateway, reply, serve_one
from cachegate.server.auth import Access
from cachegate.server.exchange import Exchange, Lifecycle
from cachegate.server.limits import decode_body, read_body
from cachegate.wire.facts import Operation, Protocol, Sender
from cachegate.wire.model_list import asker
from cachegate.wire.parse import Received, parse
from cachegate.wire.protocols import DIALECTS, PATHS

_ERROR_HEADERS: dict[ErrorKind, Headers] = {
    ErrorKind.METHOD: (("allow", "POST"),),
    ErrorKind.UPGRADE: (("upgrade", "HTTP/1.1"), ("connection", "close")),
    ErrorKind.UNAVAILABLE: (("retry-after", "1"),),
}


@dataclass(frozen=True, slots=True)
class Inference:
    """Serves the inference paths."""

    gateway: Gateway
    access: Access
    lifecycle: Lifecycle
    limits: LimitsConfig
    classifier_model: str | None
    """Asked to classify where a question names no model."""

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request on a path of `PATHS`; whatever happens, the answer has the protocol's shape."""
        protocol, operation = PATHS[request.path]

        async def relay(exchange: Exchange) -> None:
            # Nothing here may hold on to the body: a stream may stay open for an hour.
            asked = parse(await self._receive(request, exchange, protocol, operation), self.gateway.secret)
            await serve_one(self.gateway, asked, exchange)

        return await self._answer(request, protocol, relay)

    async def classify(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a question to the auxiliary classifier; errors have the asker's shape."""
        protocol = asker(Sender.of(tuple(request.headers.items())))

        async def ask(exchange: Exchange) -> None:
            received = await self._receive(request, exchange, protocol, Operation.GENERATE)
            await classify(self.gateway, received, exchange, self.classifier_model)

        return await self._answer(request, protocol, ask)

    async def _answer(
        self, request: web.BaseRequest, protocol: Protocol, work: Callable[[Exchange], Awaitable[None]]
    ) -> web.StreamResponse:
        """Do the work for one request, whose errors have the shape of `protocol`."""
        exchange = Exchange(request, self.lifecycle, self.limits.send_stall_seconds)
        task = asyncio.current_task()
        started_s = time.monotonic()
        if task is not None:
            self.lifecycle.running.add(task)
        try:
            await work(exchange)
        except GatewayError as error:
            await refuse(exchange, protocol, error)
            self._note(exchange, error, started_s)
        except (CallerLeft, CallerStalled):
            exchange.abort()
        finally:
            if task is not None:
                self.lifecycle.running.discard(task)
        return exchange.response

    async def _receive(
        self, request: web.BaseRequest, exchange: Exchange, protocol: Protocol, operation: Operation
    ) -> Received:
        """Read a request up to where its body means something."""
        if len(self.lifecycle.running) > self.limits.in_flight_max:
            raise Unavailable(f"The gateway runs {self.limits.in_flight_max} requests already. Try again in a moment.")
        exchange.tenant, headers = self.access.admit(headers_of(request))
        _check_method(request)
        try:
            wire_body = await read_body(request.content, self.limits.body_bytes_max, self.limits.body_seconds)
        except (ConnectionError, web.RequestPayloadError):
            raise CallerLeft from None
        encoding = request.headers.get("content-encoding", "")
        body = await decode_body(wire_body, encoding, self.limits.body_bytes_max)
        return Received(protocol, operation, headers, request.rel_url.raw_query_string, body, wire_body)

    def _note(self, exchange: Exchange, error: GatewayError, started_s: float) -> None:
        """Record a request that never reached the road."""
        record = Record(
            request_id=exchange.request_id,
            at_s=time.time(),
            path=exchange.path,
            status=exchange.status,
            ending="rejected",
            duration_ms=round((time.monotonic() - started_s) * 1000),
            provider="",
            model="",
            usage=Usage(),
            detail=error.kind.value,
        )
        for observer in self.gateway.observers:
            observer(record)


def headers_of(request: web.BaseRequest) -> Headers:
    """Return the headers as sent, in order. Raises BadInput for a value that is no text."""
    try:
        return tuple((name.decode("ascii"), value.decode("utf-8")) for name, value in request.raw_headers)
    except UnicodeDecodeError:
        raise BadInput("A header holds bytes that are no UTF-8. Send header values as text.") from None


async def refuse(exchange: Exchange, protocol: Protocol, error: GatewayError) -> None:
    """Answer with an error in the protocol's shape."""
    body = DIALECTS[protocol].error_body(error.kind, error.message, exchange.request_id)
    extra = _ERROR_HEADERS.get(error.kind, ())
    await reply(exchange, HTTP_STATUS[error.kind], body, extra)


def _check_method(request: web.BaseRequest) -> None:
    """Refuse everything but POST. An upgrade gets 426: the one status after which Codex falls back in silence."""
    if "upgrade" in request.headers:
        raise GatewayError(
            "WebSocket inference is not supported here. Send the request as an HTTP POST.", ErrorKind.UPGRADE
        )
    if request.method != "POST":
        raise GatewayError(f"{request.path} takes POST only, not {request.method}.", ErrorKind.METHOD)
