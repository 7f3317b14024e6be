"""The auxiliary classifier: one question about a tool call or a turn, asked over the gateway's own road.

Nothing goes around the guard: the question becomes a Messages request like any other and passes `serve_one`, with a
caller inside the process that collects the answer. Its budget is that of Claude Code's own permission classifier, one
for each provider and model (R4): neither a chat's nor a compaction's, whatever the headers say. The answer is streamed,
so that the guard knows what the provider counted also where the stream fails later (R5).
"""

import asyncio
import contextlib
from dataclasses import replace

from cachegate.guard.machine import Ending
from cachegate.observe.record import Record
from cachegate.providers.headers import CREDENTIALS, Headers
from cachegate.road import STOP_STATUS, Caller, CallerLeft, CallerStalled, Gateway, reply, serve_one
from cachegate.wire.classification import (
    Classified,
    read_classification,
    read_question,
    render_question,
    write_classification,
)
from cachegate.wire.clients import as_classifier
from cachegate.wire.codec import ErrorAnswer
from cachegate.wire.codecs import CODECS
from cachegate.wire.facts import InferenceRequest, Operation, Protocol, Sender
from cachegate.wire.hub import Broken
from cachegate.wire.parse import Received, parse
from cachegate.wire.protocols import DIALECTS

ANSWER_BYTES_MAX = 1_048_576
"""Far more than the stream of an answer of two lines takes; what comes behind is not kept."""
_PASSED_UP = CREDENTIALS | {"anthropic-version", "anthropic-beta", "user-agent"}
"""Of the caller's headers. Others belong to a conversation, and this is none."""
_OWN: Headers = (("content-type", "application/json"), ("accept", "text/event-stream"))
_VERSION = ("anthropic-version", "2023-06-01")
_PASSED_DOWN = frozenset({"retry-after", "x-should-retry"})
_SUCCESS = range(200, 300)
_GATEWAY_FAULT, _BAD_GATEWAY = 500, 502


class Collected:
    """The answer to one question, kept instead of sent; implements `road.Caller` for the one who asked."""

    def __init__(self, caller: Caller) -> None:
        self.request_id = caller.request_id
        self.tenant = caller.tenant
        self.path = caller.path
        self.headers: Headers = ()
        self.body = b""
        self._caller = caller
        self._status = 0

    @property
    def status(self) -> int:
        """See `Caller.status`."""
        return self._status

    async def begin(self, status: int, headers: Headers) -> None:
        """See `Caller.begin`."""
        self._status, self.headers = status, headers

    async def send(self, data: bytes) -> None:
        """See `Caller.send`."""
        self.body += data[: ANSWER_BYTES_MAX - len(self.body)]

    async def end(self) -> None:
        """See `Caller.end`. Whether the answer is complete is read from the answer itself."""

    def abort(self) -> None:
        """See `Caller.abort`. An answer without its end is taken for none."""

    def cancelled_by(self) -> Ending:
        """See `Caller.cancelled_by`."""
        return self._caller.cancelled_by()


async def classify(gateway: Gateway, received: Received, caller: Caller, usual_model: str | None) -> None:
    """Answer a question; `received.protocol` says in whose shape errors are told.

    Raises GatewayError where the question is wrong in itself or no provider can be found for it.
    """
    request = _request(gateway, received, usual_model)
    collected, answers = Collected(caller), list[ErrorAnswer]()

    def observe(record: Record) -> None:
        answers.append(_answer(collected, record, received.protocol))
        for observer in gateway.observers:
            observer(replace(record, status=answers[-1].status))

    try:
        await serve_one(replace(gateway, observers=(observe,)), request, collected)
    except asyncio.CancelledError:
        if answers and caller.cancelled_by() is Ending.SHUTDOWN:
            with contextlib.suppress(CallerLeft, CallerStalled):
                await _tell(caller, collected, answers[-1])
        raise
    await _tell(caller, collected, answers[-1])


def _request(gateway: Gateway, received: Received, usual_model: str | None) -> InferenceRequest:
    """Return the question as a request in the classifier's budget (R4)."""
    body = render_question(read_question(received.body, usual_model))
    passed = tuple((name, value) for name, value in received.headers if name.lower() in _PASSED_UP)
    version = () if Sender.of(passed).header(_VERSION[0]) else (_VERSION,)
    headers = (*passed, *version, *_OWN)
    asking = Received(Protocol.MESSAGES, Operation.GENERATE, headers, "", body, body)
    asked = parse(asking, gateway.secret)
    return replace(asked, facts=as_classifier(asked.facts))


def _answer(collected: Collected, record: Record, protocol: Protocol) -> ErrorAnswer:
    """Return what is told: the decision, or why there is none. A stop, a failure and a refusal are no decision."""
    request_id, ours = collected.request_id, CODECS[Protocol.MESSAGES]
    if not collected.status or record.ending == Ending.CANCELLED.value:
        return ErrorAnswer(0, b"")
    if collected.status not in _SUCCESS:
        broken = ours.read_error(collected.status, collected.body)
        if record.ending == "stopped":
            return ErrorAnswer(STOP_STATUS, DIALECTS[protocol].stop_body(broken.message, request_id))
        return CODECS[protocol].write_error(broken, request_id)
    content_type = Sender.of(collected.headers).header("content-type")
    refused = record.ending == Ending.REFUSED.value
    outcome = read_classification(content_type, collected.body, refused=refused)
    match outcome:
        case Classified():
            return ErrorAnswer(200, write_classification(outcome, record.usage))
        case Broken():
            return CODECS[protocol].write_error(_beyond_us(outcome), request_id)


def _beyond_us(broken: Broken) -> Broken:
    """Return a failure amid an answer; where nothing better is known, it is the provider's and not the gateway's."""
    return replace(broken, status=_BAD_GATEWAY) if broken.status == _GATEWAY_FAULT else broken


async def _tell(caller: Caller, collected: Collected, answer: ErrorAnswer) -> None:
    passed = tuple((name, value) for name, value in collected.headers if name.lower() in _PASSED_DOWN)
    await reply(caller, answer.status, answer.body, passed)
