"""The caller inside the process: what it hears of an answer, and what it says of its end."""

import pytest

from cachegate.control.answer import Answering, cut_short, read_stop
from cachegate.control.said import Said, Told
from cachegate.control.thread import CacheStop, Settings, Tokens
from cachegate.control.turn_request import Asking, inference_of
from cachegate.errors import Unroutable
from cachegate.guard.machine import Ending
from cachegate.guard.usage import Usage
from cachegate.observe.record import Record
from cachegate.road import STOP_HEADER
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import Broken, Ended, Message, Role, Text
from cachegate.wire.overflows import CODE
from cachegate.wire.protocols import DIALECTS
from control.answers import answer, text, written
from provider_streams import COLD, WARM, body

SSE = (("content-type", "text/event-stream; charset=utf-8"),)
JSON = (("content-type", "application/json"),)


def answering(protocol: Protocol = Protocol.RESPONSES) -> tuple[Answering, list[Told]]:
    history = (Message(Role.USER, (Text("hi"),)),)
    asked = inference_of(Asking("thread_1", Settings("model-x", protocol), history, ()), 1_000_000, b"s" * 32)
    told: list[Told] = []
    return Answering(asked, "req_1", "t", Said(protocol, lambda: "i1"), told.append), told


UNKNOWN = Usage()


def record(ending: str, status: int, usage: Usage = UNKNOWN) -> Record:
    return Record("req_1", 0.0, "/v1/responses", status, ending, 1, "p", "m", usage)


@pytest.mark.parametrize("protocol", [Protocol.RESPONSES, Protocol.MESSAGES])
async def test_a_stream_is_heard_event_by_event(protocol: Protocol) -> None:
    caller, told = answering(protocol)
    await caller.begin(200, SSE)
    for piece in written(protocol, answer(text("a", "b"))):
        await caller.send(piece)
    await caller.end()
    caller.observe(record("completed", 200, COLD))
    heard = caller.heard()
    assert isinstance(heard.end, Ended)
    assert heard.items == (Message(Role.ASSISTANT, (Text("ab"),)),)
    assert heard.tokens == Tokens(200_000, 0, 200_000, 7)
    assert len(told) == 4
    assert caller.path == f"/v1/{protocol.value}"


@pytest.mark.parametrize("protocol", [Protocol.RESPONSES, Protocol.MESSAGES])
async def test_an_answer_that_came_whole_is_heard_too(protocol: Protocol) -> None:
    caller, _ = answering(protocol)
    await caller.begin(200, JSON)
    whole = body(protocol, WARM)
    for piece in (whole[:9], whole[9:]):
        await caller.send(piece)
    await caller.end()
    assert caller.heard().items == (Message(Role.ASSISTANT, (Text("Hello world"),)),)


async def test_a_stop_is_known_by_its_header_and_an_overflow_by_its_code_r23() -> None:
    caller, _ = answering()
    await caller.begin(400, (*JSON, (STOP_HEADER, "reason=unreported, count=2, wait-seconds=300")))
    await caller.send(DIALECTS[Protocol.RESPONSES].stop_body("Stopped.", "req_1"))
    await caller.end()
    caller.observe(record("stopped", 400))
    heard = caller.heard()
    assert caller.stop == CacheStop("unreported", 2, 300)
    assert isinstance(heard.end, Broken)
    assert heard.end.code != CODE
    assert (heard.end.message, heard.end.status, heard.tokens) == ("Stopped.", 400, None)
    caller, _ = answering()
    await caller.begin(400, JSON)
    await caller.send(b'{"error":{"message":"Your input exceeds the context window of this model."}}')
    await caller.end()
    end = caller.heard().end
    assert isinstance(end, Broken)
    assert (end.code, caller.stop) == (CODE, None)


async def test_what_was_cut_has_no_end_and_an_unknown_usage() -> None:
    caller, _ = answering()
    await caller.begin(200, SSE)
    await caller.send(b"".join(written(Protocol.RESPONSES, answer(text("half")))[:3]))
    caller.abort()
    heard = caller.heard()
    assert heard.end is None
    assert heard.tokens == Tokens()
    assert cut_short().status == 502


@pytest.mark.parametrize(
    ("ending", "status", "usage", "counts"),
    [
        ("completed", 200, COLD, True), ("failed", 200, Usage(), True), ("failed", 500, Usage(), False),
        ("failed", 500, COLD, True), ("cancelled", 0, Usage(), True), ("timeout", 504, Usage(), True),
        ("shutdown", 503, Usage(), True), ("stopped", 400, Usage(), False), ("failed", 502, Usage(), False),
    ],
)  # fmt: skip
async def test_only_what_may_have_been_processed_is_counted(
    ending: str, status: int, usage: Usage, *, counts: bool
) -> None:
    caller, _ = answering()
    caller.observe(record(ending, status, usage))
    assert (caller.heard().tokens is not None) == counts


async def test_whose_doing_an_end_is_r14() -> None:
    caller, _ = answering()
    assert caller.cancelled_by() is Ending.CANCELLED
    caller.cutting = lambda: True
    assert caller.cancelled_by() is Ending.SHUTDOWN


async def test_a_model_that_nobody_has_is_a_failure_like_any_other() -> None:
    caller, _ = answering()
    caller.fail(Unroutable("model: nothing is configured."))
    end = caller.heard().end
    assert isinstance(end, Broken)
    assert (end.status, end.message) == (400, "model: nothing is configured.")


async def test_an_endless_error_is_not_kept() -> None:
    caller, _ = answering()
    await caller.begin(500, JSON)
    for _ in range(5):
        await caller.send(b"x" * 1_000_000)
    assert sum(map(len, caller._body)) <= 2_000_000


@pytest.mark.parametrize("header", ["", "reason=measured", "reason=measured, count=x, wait-seconds=3", "nonsense"])
def test_a_header_that_says_no_stop_is_none(header: str) -> None:
    assert read_stop(header) is None
