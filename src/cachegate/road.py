"""The road of one request, in one direction: route, ask the guard, relay, settle, record.

`serve_one` is where everything meets; every step it takes stands in a room of its own.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Protocol as Interface

from cachegate.errors import HTTP_STATUS, ErrorKind, GatewayError, Unavailable, UpstreamError, UpstreamTimeout
from cachegate.guard.budget import Entry
from cachegate.guard.fingerprint import Cause
from cachegate.guard.machine import Ask, Decision, Ending, Outcome, Reason, Result, Settled, admit, settle
from cachegate.guard.notices import stop_words
from cachegate.guard.policy import Policy
from cachegate.guard.scope import Mode, Scope, budget_key
from cachegate.guard.usage import Usage
from cachegate.observe.log import LOGGER
from cachegate.observe.record import GuardRecord, Observer, Record
from cachegate.providers.base import Call, Head, Piece
from cachegate.routing import Binding, Routes
from cachegate.stores.base import Lease, StateDown, Store
from cachegate.wire.facts import InferenceRequest, RequestClass
from cachegate.wire.protocols import DIALECTS
from cachegate.wire.seen import Explained, Failed, Finished, Refusal, Reseed, Seen

MODES = {
    RequestClass.CHAT: Mode.CHAT,
    RequestClass.COMPACTION: Mode.COMPACTION,
    RequestClass.AUXILIARY: Mode.AUXILIARY,
}
_LEASE_BYTES = 12
STOP_STATUS = 400
"""The one status, before any byte of a stream, that every client observed takes as final."""
STOP_HEADER = "x-cachegate-stop"
"""Says to programs what the words of a stop say to a person: `reason=measured, count=2, wait-seconds=300`."""


class CallerLeft(Exception):  # noqa: N818 -- it reads as what it is
    """The caller closed its connection while we were writing to it."""


class CallerStalled(Exception):  # noqa: N818 -- as above
    """The caller reads nothing any more; the gateway gives up, which is no cancellation of the caller's."""


class Caller(Interface):
    """The seam to the one who asked; `server/exchange.py` is the real one."""

    request_id: str
    tenant: str
    path: str

    @property
    def status(self) -> int:
        """HTTP status of the begun answer; 0 before."""

    async def begin(self, status: int, headers: tuple[tuple[str, str], ...]) -> None:
        """Send the head of the answer."""

    async def send(self, data: bytes) -> None:
        """Send a piece of the answer. Raises CallerLeft or CallerStalled."""

    async def end(self) -> None:
        """End the answer as complete."""

    def abort(self) -> None:
        """Cut the connection: the answer must not look complete."""

    def cancelled_by(self) -> Ending:
        """Name the reason of a cancellation: the caller's own, or the gateway's shutdown."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """Everything a request needs on its way."""

    routes: Routes
    store: Store
    policy: Policy
    guard_enabled: bool
    secret: bytes = field(repr=False)
    observers: tuple[Observer, ...]
    now_ms: Callable[[], int]
    """Steady clock that includes system sleep where the OS has one (R13)."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What was observed of one answer so far: known overrides unknown, never the reverse."""

    usage: Usage = field(default_factory=Usage)
    began: bool = False
    finished: bool = False
    refused: bool = False
    client_changed: bool = False
    failed: Failed | None = None
    rebuilt: str = ""
    """Why the provider rebuilt its session."""
    explained: str = ""
    """The provider's own word for a miss; no excuse."""

    def begin(self, head: Head) -> "Tally":
        """Return the tally with the head of the answer: an error status is a failure, whoever leaves after it."""
        return replace(self, began=head.successful, failed=None if head.successful else Failed(f"http_{head.status}"))

    def add(self, seen: Seen) -> "Tally":
        """Return the tally with one more observation."""
        match seen:
            case Usage():
                return replace(self, usage=self.usage.updated(seen))
            case Refusal():
                return replace(self, refused=True)
            case Explained():
                return replace(self, explained=seen.reason)
            case Reseed():
                return replace(self, rebuilt=seen.reason, client_changed=self.client_changed or seen.by_client)
            case Finished():
                return replace(self, finished=True)
            case Failed():
                return replace(self, failed=seen)

    def ending(self, otherwise: Ending) -> Ending:
        """Name the end of the answer.

        What the provider said outlives whatever happened to the connection later:
        a refusal is never excused (R17), and a caller who leaves after the end cancelled nothing (R14).
        """
        if self.refused:
            return Ending.REFUSED
        if self.finished:
            return Ending.COMPLETED
        if self.failed is not None:
            return Ending.TIMEOUT if self.failed.timed_out else Ending.FAILED
        return otherwise


@dataclass(slots=True)
class Journey:
    """One request under way: the only thing on the road that changes."""

    request: InferenceRequest
    caller: Caller
    binding: Binding
    key: str
    decision: Decision | None
    """None for what the guard does not watch."""
    started_ms: int
    lease_id: str = field(default_factory=lambda: secrets.token_hex(_LEASE_BYTES))
    tally: Tally = field(default_factory=Tally)
    terminal_error: Callable[[ErrorKind, str], bytes] | None = None
    """What ends the begun stream as failed; None while there is no stream."""
    sent: bool = False
    ending: Ending = Ending.COMPLETED
    detail: str = ""
    settling: asyncio.Future[Settled] | None = None
    """The settlement, where it begins before the end."""

    def mark_sent(self) -> None:
        """Note that the request left for the provider."""
        self.sent = True

    def result(self, ending: Ending) -> Result:
        """Return what is settled if the request ends like this now."""
        facts, tally = self.request.facts, self.tally
        return Result(
            usage=tally.usage,
            ending=tally.ending(otherwise=ending),
            conversation_bytes=facts.conversation_bytes,
            input_bytes=facts.input_bytes,
            sent=self.sent,
            began=tally.began,
            client_changed=tally.client_changed,
            fingerprint=facts.fingerprint,
            started_ms=self.started_ms,
        )

    def lease(self) -> Lease:
        """Return the lease with what is known so far: a process that dies cancels nothing (R14)."""
        return Lease(self.lease_id, self.result(Ending.SHUTDOWN))


class GoElsewhere(Exception):  # noqa: N818 -- it reads as what it is
    """This provider did not begin, and the configuration names another one to ask."""


async def serve_one(gateway: Gateway, request: InferenceRequest, caller: Caller) -> None:
    """Take one request all the way. Raises GatewayError where it can go nowhere, or not yet.

    There is one binding unless the person listed several for this model. The next one is asked only when nothing was
    processed by the one before; each has its own budget, and a stop is final.
    """
    bindings = gateway.routes.bind(request)
    for binding in bindings:
        if await _serve_from(gateway, request, caller, binding, more=binding is not bindings[-1]):
            return


async def _serve_from(
    gateway: Gateway, request: InferenceRequest, caller: Caller, binding: Binding, *, more: bool
) -> bool:
    """Take a request to one provider and back; False when another one is to be asked."""
    started_ms = gateway.now_ms()
    key = budget_key(_scope(request, caller, binding), gateway.secret)
    journey = Journey(request, caller, binding, key, None, started_ms)
    asking = asyncio.ensure_future(_ask(gateway, journey))
    try:
        decision = journey.decision = await asyncio.shield(asking)
    except asyncio.CancelledError:
        journey.ending = caller.cancelled_by()
        await _exactly_once(_give_back(gateway, journey, asking))
        raise
    if decision is not None and not decision.runs:
        await _stop(gateway, journey, decision)
        return True
    try:
        await _relay(gateway, journey, more=more)
    except GoElsewhere:
        journey.ending = Ending.FAILED
        return False
    except (CallerLeft, asyncio.CancelledError) as left:
        journey.ending = caller.cancelled_by()
        if journey.ending is Ending.SHUTDOWN:
            await _tell(journey, ErrorKind.UNAVAILABLE, "The gateway is shutting down. Please send this again.")
        if isinstance(left, asyncio.CancelledError):
            raise
    except CallerStalled:
        journey.ending, journey.detail = Ending.TIMEOUT, "caller_stalled"
        caller.abort()
    except GatewayError as error:
        journey.ending = Ending.TIMEOUT if isinstance(error, UpstreamTimeout) else Ending.FAILED
        journey.detail = error.kind.value
        await _tell(journey, error.kind, error.message)
    except Exception:  # noqa: BLE001 -- the one border where an unknown failure becomes an answer
        LOGGER.exception("a request failed inside the gateway")
        journey.ending, journey.detail = Ending.FAILED, "internal"
        await _tell(journey, ErrorKind.INTERNAL, "The gateway failed on this request; its log says where.")
    finally:
        await _exactly_once(_finish(gateway, journey))
    return True


async def _ask(gateway: Gateway, journey: Journey) -> Decision | None:
    """Ask the guard; a request that makes no model read anything is not its business."""
    request = journey.request
    if not (gateway.guard_enabled and request.operation.guarded):
        return None
    ask = Ask(request.facts.conversation_bytes, journey.binding.self_hosted)

    def change(entry: Entry) -> tuple[Entry, Decision]:
        return admit(entry, ask, gateway.now_ms(), gateway.policy)

    try:
        return await gateway.store.apply(journey.key, change, journey.lease())
    except StateDown as down:
        raise Unavailable(f"{down} Nothing was sent. Try again in a moment.") from None


async def _give_back(gateway: Gateway, journey: Journey, asking: asyncio.Future[Decision | None]) -> None:
    """End a request whose caller left while the store was answering: what was admitted all the same is released."""
    with contextlib.suppress(Unavailable):
        journey.decision = await asking
    await _finish(gateway, journey)


async def _stop(gateway: Gateway, journey: Journey, decision: Decision) -> None:
    """Answer a stopped request: final, in the protocol's shape, and nothing upstream is touched (R23)."""
    caller = journey.caller
    words = stop_words(decision, gateway.policy, anonymous=journey.request.facts.caller is None)
    try:
        body = DIALECTS[journey.request.protocol].stop_body(words, caller.request_id)
        wait_s = -(-gateway.policy.idle_ms // 1000)
        told = f"reason={decision.reason.value}, count={decision.count}, wait-seconds={wait_s}"
        await reply(caller, STOP_STATUS, body, (("x-should-retry", "false"), (STOP_HEADER, told)))
    except (CallerLeft, CallerStalled):
        caller.abort()
    finally:
        await _finish(gateway, journey)


async def _relay(gateway: Gateway, journey: Journey, *, more: bool) -> None:
    """Pass the answer on as it comes, and note what is observed with it.

    Raises GoElsewhere when there is `more` to ask and this provider did not begin: it could not be reached, or answered
    429 or 5xx before anything else.
    """
    try:
        await _pass_on(gateway, journey, more=more)
    except UpstreamError:
        if more and not journey.sent:
            journey.detail = "unreachable"
            raise GoElsewhere from None
        raise


async def _pass_on(gateway: Gateway, journey: Journey, *, more: bool) -> None:
    caller, binding = journey.caller, journey.binding
    call = Call(journey.request, caller.request_id, binding.name, binding.model, journey.mark_sent, caller.tenant)
    async with aclosing(binding.provider.stream(call)) as parts:
        async for part in parts:
            match part:
                case Head():
                    journey.tally = journey.tally.begin(part)
                    journey.terminal_error = part.terminal_error
                    if more and part.may_go_elsewhere:
                        raise GoElsewhere
                    journey.request.content.release()
                    await _note(gateway, journey)
                    await caller.begin(part.status, part.headers)
                case Piece():
                    for seen in part.seen:
                        journey.tally = journey.tally.add(seen)
                    if part.seen:
                        await _note(gateway, journey)
                    await caller.send(part.data)
    await caller.end()


async def _note(gateway: Gateway, journey: Journey) -> None:
    """Tell the store what was observed, before the caller sees it: this process may not live to settle it.

    What is finished and measured is settled now. Once the caller has its end, the next request may be on its way to
    another process, and must meet what this one has cost.
    """
    if journey.decision is None:
        return
    if journey.settling is None and journey.tally.finished and journey.tally.usage.measured:
        journey.settling = asyncio.ensure_future(_settle(gateway, journey))
    if journey.settling is None:
        await gateway.store.note(journey.key, journey.lease())
    else:
        await asyncio.shield(journey.settling)


async def _tell(journey: Journey, kind: ErrorKind, message: str) -> None:
    """Tell the caller of a failure: as an answer, or on an open stream as the protocol's terminal error."""
    caller, dialect = journey.caller, DIALECTS[journey.request.protocol]
    try:
        if journey.tally.finished and caller.status:
            await caller.end()  # everything was said; an error behind the end would only confuse
        elif caller.status == 0:
            await reply(caller, HTTP_STATUS[kind], dialect.error_body(kind, message, caller.request_id))
        elif journey.terminal_error is not None:
            await caller.send(journey.terminal_error(kind, message))
            await caller.end()
        else:
            caller.abort()
    except (CallerLeft, CallerStalled):
        caller.abort()


async def reply(caller: Caller, status: int, body: bytes, headers: tuple[tuple[str, str], ...] = ()) -> None:
    """Send a small JSON answer of the gateway's own."""
    own = (("content-type", "application/json"), ("content-length", str(len(body))), ("request-id", caller.request_id))
    await caller.begin(status, (*own, *headers))
    await caller.send(body)
    await caller.end()


async def _exactly_once(work: Coroutine[None, None, None]) -> None:
    """Run the end of a request to its end, whatever cancels the request meanwhile."""
    task = asyncio.ensure_future(work)
    _ENDING.add(task)
    task.add_done_callback(_ENDING.discard)
    await asyncio.shield(task)


_ENDING: set[asyncio.Future[None]] = set()
"""The event loop holds tasks only weakly; a settlement must not be collected half-way."""


async def _finish(gateway: Gateway, journey: Journey) -> None:
    """Settle with the guard and hand one record to those who watch."""
    tally, decision = journey.tally, journey.decision
    journey.ending = tally.ending(otherwise=journey.ending)
    if tally.failed is not None and not journey.detail:
        journey.detail = tally.failed.code
    if decision is None:
        _record(gateway, journey, None)
        return
    if not decision.runs:
        journey.detail = "stopped" if journey.caller.status else "stopped_unheard"
        guard = _guard_record(journey, decision.outcome, decision.reason, decision.count, decision.cause)
        _record(gateway, journey, guard)
        return
    settled = await (journey.settling or _settle(gateway, journey))
    outcome = Outcome.EXCUSED if settled.excused else decision.outcome
    told_at_admission = outcome in {Outcome.OBSERVED, Outcome.RECOVERED}
    reason = decision.reason if told_at_admission else settled.reason
    _record(gateway, journey, _guard_record(journey, outcome, reason, settled.count, settled.cause))


async def _settle(gateway: Gateway, journey: Journey) -> Settled:
    """Account for an admitted request with the guard."""
    result = journey.result(journey.ending)

    def change(entry: Entry) -> tuple[Entry, Settled]:
        return settle(entry, result, gateway.now_ms(), gateway.policy)

    return await gateway.store.apply(journey.key, change, Lease(journey.lease_id, result))


def _scope(request: InferenceRequest, caller: Caller, binding: Binding) -> Scope:
    facts = request.facts
    return Scope(MODES[facts.request_class], caller.tenant, binding.name, binding.model, facts.caller)


def _guard_record(journey: Journey, outcome: Outcome, reason: Reason, count: int, cause: Cause) -> GuardRecord:
    return GuardRecord(
        key=journey.key,
        mode=MODES[journey.request.facts.request_class].value,
        outcome=outcome.value,
        reason=reason.value,
        count=count,
        cause=cause.change.value,
        item=cause.item,
        items=cause.items,
        gap_s=cause.gap_s,
        provider_cause=journey.tally.explained,
    )


def _record(gateway: Gateway, journey: Journey, guard: GuardRecord | None) -> None:
    record = Record(
        request_id=journey.caller.request_id,
        at_s=time.time(),
        path=journey.caller.path,
        status=journey.caller.status,
        ending="stopped" if journey.detail.startswith("stopped") else journey.ending.value,
        duration_ms=gateway.now_ms() - journey.started_ms,
        provider=journey.binding.name,
        model=journey.binding.model,
        usage=journey.tally.usage,
        detail=journey.detail,
        rebuilt=journey.tally.rebuilt,
        guard=guard,
    )
    for observer in gateway.observers:
        observer(record)
