"""A stand-in for Anthropic's API in this process, for the self-test: it answers by a script and notes what is sent.

It is also the proxy that the program is told to use, so it learns of every other address that the program asks for.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from aiohttp import web

from cachegate.errors import HTTP_STATUS, BadInput, ErrorKind
from cachegate.wire.codecs import CODECS
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import Event, Target
from cachegate.wire.protocols import DIALECTS

_PATH = "/v1/messages"


class FakeUpstream:
    """See the module's first lines; use it as an async context manager."""

    def __init__(self, answers: Sequence[tuple[Event, ...]]) -> None:
        self.asked: list[bytes] = []
        """The body of each call of a model, in order. Those beyond the answers get an error."""
        self.others: list[str] = []
        """Everything else that was asked for."""
        self._answers = answers
        self._runner: web.ServerRunner | None = None

    async def __aenter__(self) -> Self:
        server = web.Server(self._take, access_log=None)
        self._runner = web.ServerRunner(server, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def url(self) -> str:
        """Its address."""
        assert self._runner is not None  # noqa: S101 -- it runs
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}"

    async def _take(self, request: web.BaseRequest) -> web.StreamResponse:
        # A proxy is asked for a whole address, and for a host with CONNECT: neither begins like this.
        if request.method != "POST" or request.raw_path.partition("?")[0] != _PATH:
            self.others.append(f"{request.method} {request.raw_path}")
            return _failed(ErrorKind.NOT_FOUND, "There is nothing here.")
        body = await request.content.read()
        number = len(self.asked)
        self.asked.append(body)
        if number >= len(self._answers):
            return _failed(ErrorKind.INTERNAL, "One call more than there are answers.")
        codec = CODECS[Protocol.MESSAGES]
        try:
            parsed = codec.parse_request(body)
        except BadInput as error:
            return _failed(error.kind, error.message)
        writer = codec.stream_writer(parsed, Target(parsed.model, "doctor", origin=Protocol.MESSAGES))
        told = b"".join(map(writer.write, self._answers[number]))
        return web.Response(body=told, content_type="text/event-stream")


def _failed(kind: ErrorKind, words: str) -> web.Response:
    body = DIALECTS[Protocol.MESSAGES].error_body(kind, words, "req_doctor")
    return web.Response(body=body, status=HTTP_STATUS[kind], content_type="application/json")
