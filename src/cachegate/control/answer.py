"""One inference of a hosted thread: taken down the road like any client's, its answer heard instead of sent."""

from collections.abc import Callable
from dataclasses import replace

from cachegate.control.said import Heard, Said, Told
from cachegate.control.thread import CacheStop, Tokens
from cachegate.control.turn_request import PATHS, Asked
from cachegate.errors import HTTP_STATUS, ErrorKind, GatewayError
from cachegate.guard.machine import Ending
from cachegate.guard.usage import Usage
from cachegate.observe.record import Record
from cachegate.providers.headers import Headers
from cachegate.road import STOP_HEADER, Gateway, serve_one
from cachegate.wire.codecs import CODECS
from cachegate.wire.facts import Sender
from cachegate.wire.hub import Broken, Event
from cachegate.wire.sse import SseReader

ERROR_BYTES_MAX = 1_048_576
"""Of an error answer; what comes behind is not read."""
_SUCCESS = range(200, 300)
_STREAM = "text/event-stream"
_PERHAPS_PROCESSED = frozenset({Ending.CANCELLED.value, Ending.SHUTDOWN.value, Ending.TIMEOUT.value})
"""Endings after which nobody knows what the provider had done by then."""


class Answering:
    """Hears the answer to its own request; implements `road.Caller`."""

    def __init__(self, asked: Asked, request_id: str, tenant: str, said: Said, tell: Callable[[Told], None]) -> None:
        self.request_id = request_id
        self.tenant = tenant
        self.path = PATHS[asked.inference.protocol]
        self.stop: CacheStop | None = None
        """The guard's, where it stopped the request."""
        self.cutting: Callable[[], bool] = lambda: False
        """Whether the gateway itself ends what runs."""
        self._asked = asked
        self._said = said
        self._tell = tell
        self._codec = CODECS[asked.inference.protocol]
        self._events = SseReader()
        self._reader = self._codec.stream_reader(asked.request, asked.target)
        self._streamed = False
        self._status = 0
        self._body: list[bytes] = []
        self._measured: Usage | None = None

    @property
    def status(self) -> int:
        """See `Caller.status`."""
        return self._status

    async def begin(self, status: int, headers: Headers) -> None:
        """See `Caller.begin`."""
        sender = Sender.of(headers)
        self._status = status
        self._streamed = status in _SUCCESS and sender.header("content-type").startswith(_STREAM)
        self.stop = read_stop(sender.header(STOP_HEADER))

    async def send(self, data: bytes) -> None:
        """See `Caller.send`."""
        if not self._streamed:
            if self._status in _SUCCESS or sum(map(len, self._body)) < ERROR_BYTES_MAX:
                self._body.append(data)
            return
        _, events = self._events.feed(data)
        for event in events:
            self._hear(self._reader.read(event))

    async def end(self) -> None:
        """See `Caller.end`."""
        body = b"".join(self._body)
        if self._streamed:
            self._hear(self._reader.end())
        elif self._status in _SUCCESS:
            self._hear(self._codec.read_body(self._asked.request, self._asked.target, body))
        else:
            self._hear((self._codec.read_error(self._status, body),))

    def abort(self) -> None:
        """See `Caller.abort`. An answer without its end is taken for one that was cut."""

    def cancelled_by(self) -> Ending:
        """See `Caller.cancelled_by`. An interrupt is the caller's own cancellation (R14)."""
        return Ending.SHUTDOWN if self.cutting() else Ending.CANCELLED

    def observe(self, record: Record) -> None:
        """Note what was measured, in the record that every request leaves once."""
        known, perhaps = record.usage != Usage(), record.ending in _PERHAPS_PROCESSED
        if known or perhaps or (record.ending != "stopped" and record.status in _SUCCESS):
            self._measured = record.usage

    def heard(self) -> Heard:
        """Return how it went, as far as it went."""
        for told in self._said.cut():
            self._tell(told)
        measured = self._measured
        if measured is None and self._status in _SUCCESS:
            measured = Usage()
        tokens: Tokens | None = None if measured is None else self._said.tokens(measured)
        return Heard(self._said.items(), self._said.end, tokens)

    def _hear(self, events: tuple[Event, ...]) -> None:
        for event in events:
            for told in self._said.hear(event):
                self._tell(told)

    def fail(self, error: GatewayError) -> None:
        """Hear that no provider could be found."""
        self._hear((Broken(error.kind, error.status, error.kind.value, error.message),))


async def infer(gateway: Gateway, asked: Asked, answering: Answering) -> None:
    """Take one request down the road. Cancelling it stops the upstream at once; it is settled all the same."""
    observed = replace(gateway, observers=(*gateway.observers, answering.observe))
    try:
        await serve_one(observed, asked.inference, answering)
    except GatewayError as error:
        answering.fail(error)


def read_stop(text: str) -> CacheStop | None:
    """Return what the header of a stop says; None for another answer's."""
    fields = dict(field.strip().partition("=")[::2] for field in text.split(","))
    try:
        return CacheStop(fields["reason"], int(fields["count"]), int(fields["wait-seconds"]))
    except (KeyError, ValueError):
        return None


def cut_short() -> Broken:
    """Return the failure of an answer that has no end."""
    kind = ErrorKind.UPSTREAM
    return Broken(kind, HTTP_STATUS[kind], kind.value, "The answer was cut off before its end. Please send it again.")
