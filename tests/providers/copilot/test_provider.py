import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from cachegate.errors import BadInput, Unavailable, UpstreamError, UpstreamTimeout
from cachegate.guard.usage import Usage
from cachegate.providers import session_pool
from cachegate.providers.base import Call, Head, Piece
from cachegate.providers.copilot.provider import CopilotProvider, CopilotSettings
from cachegate.providers.session_answer import Patience
from cachegate.wire.facts import Operation, Protocol, RequestClass
from cachegate.wire.parse import Received, parse
from cachegate.wire.seen import Failed, Finished, Refusal, Reseed, Seen
from copilot_runtime import Asked, ScriptedRuntime, Told, answers, failure, text_delta, usage, whole

FOREVER_S = 1e6
MOMENT_S = 0.001
TOOL: dict[Protocol, dict[str, Any]] = {
    Protocol.MESSAGES: {"name": "Read", "input_schema": {"type": "object"}},
    Protocol.RESPONSES: {"type": "function", "name": "Read", "parameters": {"type": "object"}},
    Protocol.CHAT: {"type": "function", "function": {"name": "Read", "parameters": {"type": "object"}}},
}
SAYS_NOTHING = {
    Protocol.MESSAGES: b'event: ping\ndata: {"type":"ping"}\n\n',
    Protocol.RESPONSES: b'event: keepalive\ndata: {"type":"keepalive"}\n\n',
    Protocol.CHAT: b": keepalive\n\n",
}
FAILS = {Protocol.MESSAGES: b"event: error", Protocol.RESPONSES: b"response.failed", Protocol.CHAT: b'{"error":'}


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_pool, "PATIENCE_S", 0)


class Stage:
    def __init__(
        self,
        *replies: tuple[Told, ...],
        keepalive_s: float = FOREVER_S,
        silence_s: float = FOREVER_S,
        **settings: Any,
    ) -> None:
        self.runtime = ScriptedRuntime(*replies)
        self.now_s = 0.0
        patience = Patience(silence_s, keepalive_s)
        self.provider = CopilotProvider(
            self.runtime, CopilotSettings(patience=patience, **settings), lambda: self.now_s
        )
        self.sent = 0
        self.left = asyncio.Event()

    def _send(self) -> None:
        self.sent += 1
        self.left.set()

    def call(
        self,
        protocol: Protocol,
        *said: str,
        streamed: bool = True,
        thread: str = "t1",
        operation: Operation = Operation.GENERATE,
        model: str = "up",
        window: str = "0",
        **more: Any,
    ) -> Call:
        """A request whose messages are the user's and the assistant's in turn."""
        roles = ("user", "assistant")
        turns = [{"role": roles[number % 2], "content": text} for number, text in enumerate(said)]
        field = "input" if protocol is Protocol.RESPONSES else "messages"
        limit = {"max_tokens": 99} if protocol is Protocol.MESSAGES else {}
        body = {"model": "model-x", "stream": streamed, "tools": [TOOL[protocol]], field: turns, **limit, **more}
        data = json.dumps(body).encode()
        headers = (("x-session-id", thread), ("x-codex-window-id", f"{thread}:{window}")) if thread else ()
        return Call(
            parse(Received(protocol, operation, headers, "", data, data), bytes(32)), "req_1", "p", model, self._send
        )

    async def ask(self, call: Call) -> tuple[Head, list[Piece]]:
        async with aclosing(self.provider.stream(call)) as parts, asyncio.timeout(60):
            head, *pieces = [part async for part in parts]
        assert isinstance(head, Head)
        return head, [piece for piece in pieces if isinstance(piece, Piece)]

    async def answer(self, protocol: Protocol, *said: str, **more: Any) -> tuple[bytes, list[Seen]]:
        head, pieces = await self.ask(self.call(protocol, *said, **more))
        assert head.status == 200
        return joined(pieces), seen_in(pieces)


def joined(pieces: list[Piece]) -> bytes:
    return b"".join(piece.data for piece in pieces)


def seen_in(pieces: list[Piece]) -> list[Seen]:
    return [seen for piece in pieces for seen in piece.seen]


def reseeds(seen: list[Seen]) -> list[str]:
    return [each.reason for each in seen if isinstance(each, Reseed)]


async def begun(parts: AsyncGenerator[Head | Piece, None]) -> Piece:
    """Take the head and the first piece."""
    async with asyncio.timeout(60):
        assert isinstance(await anext(parts), Head)
        piece = await anext(parts)
    assert isinstance(piece, Piece)
    return piece


# --- answers ---


@pytest.mark.parametrize("streamed", [True, False])
async def test_an_answer_comes_in_the_clients_protocol(protocol: Protocol, streamed: bool) -> None:
    stage = Stage(answers("Hello world"))
    head, pieces = await stage.ask(stage.call(protocol, "hi", streamed=streamed))
    headers = dict(head.headers)
    assert head.status == 200
    assert headers["content-type"] == ("text/event-stream" if streamed else "application/json")
    data = joined(pieces)
    if streamed:
        assert headers["cache-control"] == "no-cache"
        assert data.count(b'"Hello"') == data.count(b'" world"') == 1, "in the pieces that the model wrote"
    else:
        assert headers["content-length"] == str(len(data))
        assert b"Hello world" in data
        assert json.loads(data)["model"] == "up"
    assert seen_in(pieces) == [Reseed("no_session"), Usage(531, 501, 20), Finished()]
    assert stage.sent == 1
    assert stage.runtime.last.opening.setup.model == "up"
    await stage.provider.close()


async def test_a_compaction_that_the_client_names_is_told(protocol: Protocol) -> None:
    """R15: a compaction-window change is no client change."""
    stage = Stage()
    await stage.answer(protocol, "one")
    _, seen = await stage.answer(protocol, "a summary", window="1")
    assert reseeds(seen) == ["compaction_window"]
    _, seen = await stage.answer(protocol, "a summary", "Hello world", "two", window="2")
    assert reseeds(seen) == []
    _, seen = await stage.answer(protocol, "an edit", "Hello world", "two", window="2")
    assert reseeds(seen) == ["history_diverged"]
    await stage.provider.close()


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_rebuilt_session_is_told_once_with_its_reason(protocol: Protocol, streamed: bool) -> None:
    stage = Stage()
    _, pieces = await stage.ask(stage.call(protocol, "one", streamed=streamed))
    assert Reseed("no_session") in pieces[0].seen
    assert reseeds(seen_in(pieces)) == ["no_session"]
    _, seen = await stage.answer(protocol, "one", "Hello world", "two", streamed=streamed)
    assert reseeds(seen) == []
    _, seen = await stage.answer(protocol, "edited", "Hello world", "two", streamed=streamed)
    assert reseeds(seen) == ["history_diverged"]
    _, seen = await stage.answer(
        protocol, "edited", "Hello world", "two", "Hello world", "x", tools=[], streamed=streamed
    )
    assert reseeds(seen) == ["fingerprint_changed"]
    await stage.provider.close()


async def test_a_thread_may_change_its_protocol() -> None:
    stage = Stage()
    said = ["one"]
    for protocol in (*Protocol, *Protocol):
        await stage.answer(protocol, *said)
        said += ["Hello world", "more"]
    assert len(stage.runtime.sessions) == 1
    await stage.provider.close()


async def test_calls_have_the_callers_names_and_results_lead_on() -> None:
    stage = Stage(answers("so", Asked("c1", "Read", {"path": "/a"})))
    data, _ = await stage.answer(Protocol.CHAT, "go", streamed=False)
    message = json.loads(data)["choices"][0]["message"]
    assert message["tool_calls"][0]["function"] == {"name": "Read", "arguments": '{"path": "/a"}'}
    turns = [{"role": "user", "content": "go"}, message, {"role": "tool", "tool_call_id": "c1", "content": "found"}]
    _, seen = await stage.answer(Protocol.CHAT, messages=turns)
    assert reseeds(seen) == []
    assert [each.text for each in stage.runtime.last.given] == ["found"]
    await stage.provider.close()


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_compaction_asks_for_a_summary(streamed: bool) -> None:
    stage = Stage(answers("the summary"))
    call = stage.call(Protocol.RESPONSES, "one", streamed=streamed, operation=Operation.COMPACT)
    head, pieces = await stage.ask(call)
    assert head.status == 200
    assert b"compaction" in joined(pieces)
    ((said, _, _),) = stage.runtime.last.said
    assert said[-1].text.startswith("The conversation above is about to be replaced")
    await stage.provider.close()


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ((text_delta("no"), usage("content_filter"), whole("no")), "refusal"),
        ((text_delta("no"), usage("content_filter"), whole("no", [Asked("c1")])), "refusal"),
        ((text_delta("a lon"), usage("length")), "output_limit"),
    ],
    ids=["a refusal", "a refusal that calls", "the output's limit"],
)
async def test_what_did_not_end_as_usual_is_not_gone_on_with(
    reply: tuple[Told, ...], reason: str, streamed: bool
) -> None:
    stage = Stage(reply)
    _, seen = await stage.answer(Protocol.MESSAGES, "one", streamed=streamed)
    assert Finished() in seen
    assert (Refusal() in seen) == (reason == "refusal")
    assert stage.runtime.log[-1] == "abort"
    _, seen = await stage.answer(Protocol.MESSAGES, "one", "no", "two", streamed=streamed)
    assert reseeds(seen) == [reason]
    await stage.provider.close()


# --- failures ---


@pytest.mark.parametrize("streamed", [True, False])
async def test_an_error_before_the_answer_is_the_providers_own(protocol: Protocol, streamed: bool) -> None:
    stage = Stage((failure('{"type":"rate_limit_error","message":"slow down"}', 429),))
    stage.runtime.retry_after = "7"
    head, pieces = await stage.ask(stage.call(protocol, "hi", streamed=streamed))
    headers = dict(head.headers)
    assert (head.status, headers["retry-after"], headers["content-type"]) == (429, "7", "application/json")
    assert headers["content-length"] == str(len(joined(pieces)))
    assert json.loads(joined(pieces))["error"]["message"] == "slow down"
    seen = seen_in(pieces)
    assert seen[0] == Reseed("no_session")
    assert isinstance(seen[1], Failed)
    assert stage.runtime.log[-1] == "abort", "so that it is not repeated"
    await stage.provider.close()


async def test_a_full_context_is_told_in_the_protocols_own_words() -> None:
    stage = Stage((("session.compaction_start", {}),), (("session.compaction_start", {}),))
    head, pieces = await stage.ask(stage.call(Protocol.MESSAGES, "hi"))
    assert head.status == 400
    assert b"prompt is too long" in joined(pieces)
    head, pieces = await stage.ask(stage.call(Protocol.RESPONSES, "hi"))
    assert json.loads(joined(pieces))["error"]["code"] == "context_length_exceeded"
    await stage.provider.close()


async def test_an_error_in_the_midst_of_a_stream_ends_it_as_failed(protocol: Protocol) -> None:
    stage = Stage((text_delta("par"), failure('{"type":"overloaded_error","message":"Overloaded"}')))
    head, pieces = await stage.ask(stage.call(protocol, "hi"))
    assert head.status == 200
    assert FAILS[protocol] in pieces[-1].data
    assert b"Overloaded" in pieces[-1].data
    assert pieces[-1].seen == (Failed("overloaded_error"),)
    assert b"[DONE]" not in joined(pieces)
    assert Finished() not in seen_in(pieces)
    await stage.provider.close()


async def test_an_error_in_the_midst_of_a_whole_answer_is_no_answer(protocol: Protocol) -> None:
    stage = Stage((text_delta("half"), usage(), failure("gone", 502)))
    head, pieces = await stage.ask(stage.call(protocol, "hi", streamed=False))
    assert head.status == 502
    assert b"half" not in joined(pieces)
    assert seen_in(pieces)[:2] == [Reseed("no_session"), Usage(531, 501, 20)]
    assert isinstance(seen_in(pieces)[2], Failed)
    await stage.provider.close()


async def test_a_runtime_that_cannot_begin_is_an_exception_and_gives_its_place_back() -> None:
    stage = Stage(sessions_max=1)
    stage.runtime.refuses = UpstreamError("no")
    with pytest.raises(UpstreamError):
        await stage.ask(stage.call(Protocol.CHAT, "hi"))
    stage.runtime.refuses = None
    await stage.answer(Protocol.CHAT, "hi", thread="t2")
    await stage.provider.close()


@pytest.mark.parametrize(
    ("said", "more", "words"),
    [
        (("one", "begun for you"), {}, "last message is the assistant's"),
        (("one",), {"stop": ["END"]}, "stop sequences"),
        (("one",), {"tool_choice": "required"}, "tool_choice"),
    ],
)
async def test_what_a_session_cannot_do_is_refused_by_name(
    said: tuple[str, ...], more: dict[str, Any], words: str
) -> None:
    stage = Stage()
    with pytest.raises(BadInput, match=words):
        await stage.ask(stage.call(Protocol.CHAT, *said, **more))
    assert (stage.sent, stage.runtime.log) == (0, [])
    await stage.provider.close()


# --- a caller who leaves ---


@pytest.mark.parametrize("pieces", [0, 1], ids=["behind the head", "in the midst"])
async def test_closing_the_stream_interrupts_the_session_at_once(protocol: Protocol, pieces: int) -> None:
    stage = Stage((text_delta("par"),))
    parts = stage.provider.stream(stage.call(protocol, "hi"))
    for _ in range(1 + pieces):
        await anext(parts)
    assert "abort" not in stage.runtime.log
    await parts.aclose()
    assert stage.runtime.log[-1] == "abort"
    _, seen = await stage.answer(protocol, "hi")
    assert reseeds(seen) == ["cancelled"]
    await stage.provider.close()


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_cancelled_request_interrupts_the_session(streamed: bool) -> None:
    stage = Stage(())
    asking = asyncio.ensure_future(stage.ask(stage.call(Protocol.CHAT, "hi", streamed=streamed)))
    async with asyncio.timeout(60):
        await stage.left.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert stage.runtime.log[-1] == "abort"
    await stage.provider.close()


async def test_one_who_leaves_behind_the_end_has_cancelled_nothing() -> None:
    stage = Stage()
    parts = stage.provider.stream(stage.call(Protocol.MESSAGES, "one"))
    async with asyncio.timeout(60):
        while True:
            part = await anext(parts)
            if isinstance(part, Piece) and Finished() in part.seen:
                break
    await parts.aclose()
    assert "abort" not in stage.runtime.log
    _, seen = await stage.answer(Protocol.MESSAGES, "one", "Hello world", "two")
    assert reseeds(seen) == []
    await stage.provider.close()


# --- silence ---


async def test_a_silence_that_is_too_long_ends_the_stream_as_timed_out(protocol: Protocol) -> None:
    stage = Stage((text_delta("par"),), keepalive_s=MOMENT_S, silence_s=2 * MOMENT_S)
    _, pieces = await stage.ask(stage.call(protocol, "hi"))
    assert [piece.data for piece in pieces[1:-1]] == [SAYS_NOTHING[protocol]]
    assert FAILS[protocol] in pieces[-1].data
    assert pieces[-1].seen == (Failed("idle", timed_out=True),)
    assert stage.runtime.log[-1] == "abort"
    await stage.provider.close()


@pytest.mark.parametrize(("reply", "streamed"), [((), True), ((), False), ((text_delta("par"),), False)])
async def test_a_silence_before_anything_was_sent_is_an_exception(reply: tuple[Told, ...], streamed: bool) -> None:
    stage = Stage(reply, silence_s=MOMENT_S)
    with pytest.raises(UpstreamTimeout, match=f"said nothing for {MOMENT_S:g} s"):
        await stage.ask(stage.call(Protocol.MESSAGES, "hi", streamed=streamed))
    assert stage.runtime.log[-1] == "abort"
    await stage.provider.close()


# --- the pool behind it ---


async def test_a_request_beside_a_running_one_has_a_session_of_its_own() -> None:
    stage = Stage((text_delta("par"),))
    running = stage.provider.stream(stage.call(Protocol.CHAT, "one"))
    await begun(running)
    await stage.answer(Protocol.CHAT, "one")
    assert [session.runs for session in stage.runtime.sessions] == [True, False]
    stage.runtime.sessions[0].play(answers("tial"))
    rest = [part async for part in running if isinstance(part, Piece)]
    assert Finished() in seen_in(rest)
    await stage.provider.close()


async def test_a_request_of_nobody_has_a_session_for_itself() -> None:
    stage = Stage()
    await stage.answer(Protocol.CHAT, "one", thread="")
    assert not stage.runtime.last.runs
    assert stage.runtime.log[-1] == "close"
    await stage.provider.close()


async def test_other_threads_models_and_classes_of_requests_have_sessions_of_their_own() -> None:
    stage = Stage()
    await stage.answer(Protocol.CHAT, "one", thread="t1")
    await stage.answer(Protocol.CHAT, "one", thread="t2")
    await stage.answer(Protocol.CHAT, "one", thread="t1", model="other")
    compaction = stage.call(Protocol.RESPONSES, "one", thread="t1", operation=Operation.COMPACT)
    await stage.ask(compaction)
    sessions = stage.runtime.sessions
    assert [session.runs for session in sessions] == [True, True, True, False], "a compaction is not gone on with"
    assert [session.opening.setup.model for session in sessions] == ["up", "up", "other", "up"]
    await stage.provider.close()


@pytest.mark.parametrize("operation", [Operation.GENERATE, Operation.COMPACT])
async def test_a_request_beside_the_chat_has_a_session_that_ends_with_its_answer(operation: Operation) -> None:
    stage = Stage()
    await stage.answer(Protocol.RESPONSES, "one")
    marks: dict[str, Any] = {} if operation is Operation.COMPACT else {"max_tokens": 1}
    call = stage.call(Protocol.RESPONSES, "one", operation=operation, **marks)
    assert call.request.facts.request_class is not RequestClass.CHAT
    await stage.ask(call)
    await stage.ask(call)
    assert [session.runs for session in stage.runtime.sessions] == [True, False, False]
    _, seen = await stage.answer(Protocol.RESPONSES, "one", "Hello world", "two")
    assert reseeds(seen) == [], "the chat's own session is untouched"
    await stage.provider.close()


async def test_a_session_that_had_to_leave_is_told_for_what() -> None:
    stage = Stage(sessions_max=1)
    await stage.answer(Protocol.CHAT, "one", thread="t1")
    await stage.answer(Protocol.CHAT, "one", thread="t2")
    _, seen = await stage.answer(Protocol.CHAT, "one", "Hello world", "two", thread="t1")
    assert reseeds(seen) == ["capacity"]
    _, seen = await stage.answer(Protocol.CHAT, "edited", "Hello world", "two", thread="t1")
    assert reseeds(seen) == ["history_diverged"], "once"
    await stage.provider.close()


async def test_when_all_sessions_answer_a_request_is_turned_away() -> None:
    stage = Stage((text_delta("par"),), sessions_max=1)
    running = stage.provider.stream(stage.call(Protocol.CHAT, "one"))
    await begun(running)
    with pytest.raises(Unavailable, match="maxSessions"):
        await stage.ask(stage.call(Protocol.CHAT, "one", thread="t2"))
    await running.aclose()
    await stage.provider.close()


async def test_a_session_that_nobody_uses_is_swept_away() -> None:
    stage = Stage(idle_s=4 * MOMENT_S)
    await stage.answer(Protocol.CHAT, "one")
    assert stage.runtime.last.runs
    stage.now_s = 1.0
    async with asyncio.timeout(60):
        await stage.runtime.last.ended.wait()
    _, seen = await stage.answer(Protocol.CHAT, "one", "Hello world", "two")
    assert reseeds(seen) == ["idle_expired"]
    await stage.provider.close()


async def test_the_end_ends_everything() -> None:
    stage = Stage()
    await stage.provider.close()
    await stage.answer(Protocol.CHAT, "one")
    tasks = asyncio.all_tasks()
    await stage.provider.close()
    assert stage.runtime.closed
    assert not stage.runtime.last.runs
    assert all(task.done() for task in tasks if task is not asyncio.current_task())


# --- the rest of the seam ---


async def test_a_count_is_an_estimate_and_asks_nobody() -> None:
    stage = Stage()
    call = stage.call(Protocol.MESSAGES, "hello", operation=Operation.COUNT_TOKENS)
    head, pieces = await stage.ask(call)
    assert dict(head.headers)["x-cachegate-estimate"] == "true"
    assert json.loads(joined(pieces))["input_tokens"] == -(-call.request.facts.input_bytes // 4)
    assert (stage.sent, stage.runtime.sessions) == (0, [])
    await stage.provider.close()


async def test_what_it_speaks_and_lists() -> None:
    stage = Stage(models=("claude-sonnet", "gpt"))
    assert all(stage.provider.speaks(protocol, operation) for protocol in Protocol for operation in Operation)
    assert stage.provider.models() == ("claude-sonnet", "gpt")
    await stage.provider.close()
