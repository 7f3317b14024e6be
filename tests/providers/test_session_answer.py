import asyncio
import json
from collections.abc import Iterable
from typing import Any

import pytest

from cachegate.errors import ErrorKind, UpstreamTimeout
from cachegate.guard.usage import Usage
from cachegate.providers.base import Call, Head, Piece
from cachegate.providers.session_answer import Patience, SessionAnswer
from cachegate.wire.claude_cli.turn_reader import Heard
from cachegate.wire.codecs import CODECS
from cachegate.wire.facts import Operation, Protocol
from cachegate.wire.hub import Broken, Delta, Ended, PartEnded, PartKind, PartStarted, Started, Stop, Target
from cachegate.wire.overflows import CODE
from cachegate.wire.parse import Received, parse
from cachegate.wire.seen import Failed, Finished, Reseed, Seen

FOREVER_S = 1e6
MOMENT_S = 0.001
USAGE = Usage(531, 501, 20)
TARGET = Target("up", "p", origin=Protocol.MESSAGES)
BEGINNING = (Heard((Started("a1", "model-x", usage=USAGE),), (USAGE,)), Heard((PartStarted(0, PartKind.TEXT),)))
HELLO = (*BEGINNING, Heard((Delta(0, "Hello"),)), Heard((Delta(0, " world"),)), Heard((PartEnded(0),)))
END = Heard((Ended(Stop.END),), (Finished(),))
WHOLE = (*HELLO, END)
OVERLOADED = Heard(
    (Broken(ErrorKind.UNAVAILABLE, 529, "overloaded_error", "Overloaded"),), (Failed("overloaded_error"),)
)
SAYS_NOTHING = {
    Protocol.MESSAGES: b'event: ping\ndata: {"type":"ping"}\n\n',
    Protocol.RESPONSES: b'event: keepalive\ndata: {"type":"keepalive"}\n\n',
    Protocol.CHAT: b": keepalive\n\n",
}
FAILS = {Protocol.MESSAGES: b"event: error", Protocol.RESPONSES: b"response.failed", Protocol.CHAT: b'{"error":'}
both_ways = pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])


class Stage:
    """A session that says what it is given, then nothing."""

    def __init__(self, *said: Heard, retry_after: str = "", **patience: float) -> None:
        self.said: asyncio.Queue[Heard] = asyncio.Queue()
        for heard in said:
            self.said.put_nowait(heard)
        self.retry_after = retry_after
        self.patience = Patience(**{"keepalive_s": FOREVER_S, "silence_s": FOREVER_S, **patience})
        self.log: list[str] = []

    def answer(self, protocol: Protocol, *, streamed: bool = True, first_seen: tuple[Seen, ...] = ()) -> SessionAnswer:
        field = "input" if protocol is Protocol.RESPONSES else "messages"
        limit = {"max_tokens": 9} if protocol is Protocol.MESSAGES else {}
        turns = [{"role": "user", "content": "hi"}]
        data = json.dumps({"model": "m", "stream": streamed, field: turns, **limit}).encode()
        received = parse(Received(protocol, Operation.GENERATE, (), "", data, data), bytes(32))
        call = Call(received, "req_1", "p", "up", lambda: None)
        codec = CODECS[protocol]
        return SessionAnswer(
            call, codec, codec.parse_request(data), TARGET, self.said.get, lambda: self.log.append("ended"),
            lambda: self.retry_after, self.patience, first_seen,
        )  # fmt: skip

    async def ask(self, protocol: Protocol, **more: Any) -> tuple[Head, list[Piece]]:
        async with asyncio.timeout(60):
            head, *pieces = [part async for part in self.answer(protocol, **more).stream()]
        assert isinstance(head, Head)
        return head, [piece for piece in pieces if isinstance(piece, Piece)]


def joined(pieces: Iterable[Piece]) -> bytes:
    return b"".join(piece.data for piece in pieces)


def seen_in(pieces: Iterable[Piece]) -> list[Seen]:
    return [seen for piece in pieces for seen in piece.seen]


# --- answers ---


@both_ways
async def test_an_answer_comes_in_the_clients_protocol(protocol: Protocol, streamed: bool) -> None:
    stage = Stage(*WHOLE)
    head, pieces = await stage.ask(protocol, streamed=streamed, first_seen=(Reseed("no_session"),))
    headers, data = dict(head.headers), joined(pieces)
    assert head.status == 200
    if streamed:
        assert (headers["content-type"], headers["cache-control"]) == ("text/event-stream", "no-cache")
        assert data.count(b'"Hello"') == data.count(b'" world"') == 1, "in the pieces that the model wrote"
    else:
        assert headers == {"content-type": "application/json", "content-length": str(len(data))}
        assert b"Hello world" in data
    assert seen_in(pieces) == [Reseed("no_session"), USAGE, Finished()]
    assert stage.log == ["ended"]


async def test_each_word_goes_on_as_soon_as_it_is_said(protocol: Protocol) -> None:
    stage = Stage(*HELLO[:3])
    parts = stage.answer(protocol).stream()
    async with asyncio.timeout(60):
        told = [await anext(parts) for _ in range(4)]
    assert isinstance(told[0], Head)
    assert b"Hello" in told[3].data  # type: ignore[union-attr]
    await parts.aclose()


async def test_a_whole_answer_is_held_back_until_it_has_ended() -> None:
    stage = Stage(*HELLO)
    asking = asyncio.ensure_future(stage.ask(Protocol.CHAT, streamed=False))
    await asyncio.sleep(0)
    assert not asking.done()
    stage.said.put_nowait(END)
    head, _ = await asking
    assert head.status == 200


@both_ways
async def test_the_end_is_noted_before_the_caller_is_told(streamed: bool) -> None:
    """The caller's next request may come at once."""
    stage = Stage(*WHOLE)
    async with asyncio.timeout(60):
        async for part in stage.answer(Protocol.MESSAGES, streamed=streamed).stream():
            if isinstance(part, Piece) and Finished() in part.seen:
                assert stage.log == ["ended"]
                return
    pytest.fail("no end")


@both_ways
async def test_nothing_is_heard_behind_the_end(streamed: bool) -> None:
    stage = Stage(*WHOLE, OVERLOADED)
    await stage.ask(Protocol.CHAT, streamed=streamed)
    assert stage.said.qsize() == 1


# --- failures ---


@both_ways
async def test_an_error_before_the_answer_is_the_providers_own(protocol: Protocol, streamed: bool) -> None:
    stage = Stage(OVERLOADED, retry_after="7")
    head, pieces = await stage.ask(protocol, streamed=streamed, first_seen=(Reseed("no_session"),))
    data = joined(pieces)
    assert head.status == (529 if protocol is Protocol.MESSAGES else head.status) >= 500
    assert dict(head.headers) == {
        "content-type": "application/json", "content-length": str(len(data)), "retry-after": "7",
    }  # fmt: skip
    assert json.loads(data)["error"]["message"] == "Overloaded"
    assert seen_in(pieces) == [Reseed("no_session"), Failed("overloaded_error")]
    assert stage.log == []


@both_ways
async def test_an_error_that_named_no_time_to_wait_names_none(streamed: bool) -> None:
    head, _ = await Stage(OVERLOADED).ask(Protocol.MESSAGES, streamed=streamed)
    assert "retry-after" not in dict(head.headers)


@pytest.mark.parametrize(
    ("protocol", "words"),
    [
        (Protocol.MESSAGES, b"prompt is too long"),
        (Protocol.RESPONSES, b"context_length_exceeded"),
        (Protocol.CHAT, b"context_length_exceeded"),
    ],
)
async def test_a_full_context_is_told_in_the_protocols_own_words(protocol: Protocol, words: bytes) -> None:
    full = Heard((Broken(ErrorKind.INVALID, 400, CODE, "Prompt is too long"),), (Failed(CODE),))
    head, pieces = await Stage(full).ask(protocol, streamed=False)
    assert head.status == 400
    assert words in joined(pieces)


async def test_an_error_in_the_midst_of_a_stream_ends_it_as_failed(protocol: Protocol) -> None:
    stage = Stage(*HELLO[:3], OVERLOADED, *WHOLE)
    head, pieces = await stage.ask(protocol)
    assert head.status == 200
    assert FAILS[protocol] in pieces[-1].data
    assert b"Overloaded" in pieces[-1].data
    assert pieces[-1].seen == (Failed("overloaded_error"),)
    assert b"[DONE]" not in joined(pieces)
    assert (Finished() in seen_in(pieces), stage.log) == (False, [])


async def test_an_error_in_the_midst_of_a_whole_answer_is_no_answer(protocol: Protocol) -> None:
    stage = Stage(*HELLO[:3], OVERLOADED)
    head, pieces = await stage.ask(protocol, streamed=False, first_seen=(Reseed("no_session"),))
    assert head.status >= 500
    assert b"Hello" not in joined(pieces)
    assert seen_in(pieces) == [Reseed("no_session"), USAGE, Failed("overloaded_error")], "once, and in their order"
    assert stage.log == []


async def test_the_head_knows_how_its_stream_is_ended_from_outside(protocol: Protocol) -> None:
    parts = Stage(*HELLO[:3]).answer(protocol).stream()
    head = await anext(parts)
    assert isinstance(head, Head)
    await anext(parts)
    assert head.terminal_error is not None
    ending = head.terminal_error(ErrorKind.UNAVAILABLE, "closing down")
    assert FAILS[protocol] in ending
    assert b"closing down" in ending
    await parts.aclose()


# --- silence ---


async def test_in_silence_the_client_gets_frames_that_say_nothing(protocol: Protocol) -> None:
    stage = Stage(*BEGINNING, keepalive_s=MOMENT_S)
    parts = stage.answer(protocol).stream()
    async with asyncio.timeout(60):
        assert isinstance(await anext(parts), Head)
        for _ in BEGINNING:
            await anext(parts)
        for _ in range(2):
            assert await anext(parts) == Piece(SAYS_NOTHING[protocol])
        for heard in WHOLE[len(BEGINNING) :]:
            stage.said.put_nowait(heard)
        rest = [part async for part in parts if isinstance(part, Piece)]
    assert b"Hello" in joined(rest)
    assert Finished() in seen_in(rest)


async def test_before_the_answer_begins_a_frame_that_says_nothing_is_a_comment() -> None:
    """Codex wants `response.created` in front of all other events."""
    stage = Stage(Heard((), (USAGE,)), keepalive_s=MOMENT_S)
    parts = stage.answer(Protocol.RESPONSES).stream()
    async with asyncio.timeout(60):
        await anext(parts)
        await anext(parts)
        silent = await anext(parts)
        assert isinstance(silent, Piece)
        assert silent.data.startswith(b":")
        stage.said.put_nowait(BEGINNING[0])
        while (told := await anext(parts)) == silent:
            pass
        assert isinstance(told, Piece)
        assert b"response.created" in told.data
        assert await anext(parts) == Piece(SAYS_NOTHING[Protocol.RESPONSES]), "Codex counts no comments"
    await parts.aclose()


async def test_a_silence_that_is_too_long_ends_the_stream_as_timed_out(protocol: Protocol) -> None:
    stage = Stage(*BEGINNING, keepalive_s=MOMENT_S, silence_s=2.5 * MOMENT_S)
    _, pieces = await stage.ask(protocol)
    told = pieces[len(BEGINNING) :]
    assert [piece.data for piece in told[:-1]] == [SAYS_NOTHING[protocol]] * 2
    assert FAILS[protocol] in told[-1].data
    assert told[-1].seen == (Failed("idle", timed_out=True),)
    assert stage.log == []


async def test_silence_counts_from_the_last_word() -> None:
    stage = Stage(*BEGINNING, keepalive_s=MOMENT_S, silence_s=2.5 * MOMENT_S)
    parts = stage.answer(Protocol.CHAT).stream()
    ping = Piece(SAYS_NOTHING[Protocol.CHAT])
    async with asyncio.timeout(60):
        for _ in range(1 + len(BEGINNING)):
            await anext(parts)
        assert [await anext(parts), await anext(parts)] == [ping, ping]
        stage.said.put_nowait(HELLO[2])
        assert await anext(parts) != ping
        assert [await anext(parts), await anext(parts)] == [ping, ping]
    await parts.aclose()


@pytest.mark.parametrize(("said", "streamed"), [((), True), ((), False), (BEGINNING, False)])
async def test_a_silence_before_anything_was_sent_is_an_exception(said: tuple[Heard, ...], streamed: bool) -> None:
    stage = Stage(*said, silence_s=MOMENT_S)
    with pytest.raises(UpstreamTimeout, match=f"said nothing for {MOMENT_S:g} s"):
        await stage.ask(Protocol.MESSAGES, streamed=streamed)
    assert stage.log == []
