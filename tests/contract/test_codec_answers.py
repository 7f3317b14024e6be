"""The contract of a codec's answers: what one reads, every other can tell, and nothing is made up on the way."""

import copy
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachegate.guard.usage import Usage
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import (
    Broken,
    Counted,
    Delta,
    Ended,
    Event,
    PartEnded,
    PartKind,
    PartStarted,
    Request,
    Started,
    Stop,
)
from cachegate.wire.overflows import CODE
from cachegate.wire.sse import SseReader
from contract import drawn_answers
from contract.answers_heard import Answer, Heard, as_told, listen
from contract.chat_transcripts import CHAT_CUT, CHAT_FAILED, CHAT_TRANSCRIPTS
from contract.codec_subjects import ASKED, CODECS, EACH, EACH_PAIR, read, read_pieces, target, write
from contract.conversations import events_of
from contract.test_codecs import thoroughly

_FOLDER = Path(__file__).parent.parent / "transcripts"
_BROKEN_OFF = {"messages-cut", "responses-cut"}
_FAILED = {
    "messages-blocked", "messages-error", "responses-error", "responses-failed", "responses-nested-error",
    "responses-policy",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stream:
    """A recorded stream."""

    protocol: Protocol
    name: str
    data: bytes


def _recorded() -> list[Stream]:
    files = sorted(_FOLDER.glob("*.sse"))
    return [
        *(Stream(Protocol(file.stem.split("-")[0]), file.stem, file.read_bytes()) for file in files),
        *(Stream(Protocol.CHAT, f"chat-{name}", data) for name, data in {**CHAT_TRANSCRIPTS, **CHAT_FAILED}.items()),
        Stream(Protocol.CHAT, "chat-cut", CHAT_CUT),
    ]


RECORDED = _recorded()
FAILED = [stream for stream in RECORDED if stream.name in _FAILED or stream.name[5:] in CHAT_FAILED]
CUT = [stream for stream in RECORDED if stream.name in _BROKEN_OFF or stream.name == "chat-cut"]
COMPLETE = [stream for stream in RECORDED if stream not in (*FAILED, *CUT)]


def ids(streams: list[Stream]) -> list[str]:
    return [stream.name for stream in streams]


def heard(client: Protocol, origin: Protocol, events: tuple[Event, ...], request: Request = ASKED) -> Answer:
    """Return the answer as the client's own reader understands what was written for it."""
    written = write(client, events, request, target(origin))
    return listen(read(client, written, request, target(client)))


def assert_told(client: Protocol, origin: Protocol, answer: Answer, told: Answer) -> None:
    """See that a client was told an answer as well as its protocol can, and nothing that is not so."""
    expected, understood = (as_told(client, given, origin) for given in (answer, told))
    assert understood.parts[: len(expected.parts)] == expected.parts
    more = understood.parts[len(expected.parts) :]
    silent = expected.stop is Stop.REFUSAL and not any(part.kind is PartKind.REFUSAL for part in expected.parts)
    assert not more or (silent and [part.kind for part in more] == [PartKind.REFUSAL]), "OpenAI refuses in words only"
    if client is Protocol.RESPONSES and expected.stop is Stop.CONTEXT_FULL:
        assert understood.broken is not None, "Codex compacts after this error only"
        assert understood.broken.code == CODE
        return
    assert understood.stop == expected.stop
    assert understood.stop_sequence == expected.stop_sequence
    assert understood.usage == expected.usage
    assert understood.model == expected.model
    if expected.usage.input_total is not None and expected.output_tokens is not None:
        assert understood.output_tokens == expected.output_tokens


# --- recorded streams ---

_T, _X, _R, _C = PartKind.TEXT, PartKind.THINKING, PartKind.REFUSAL, PartKind.TOOL_CALL
_CHAT = Usage(77_000, 76_288)
EXPECTED: Mapping[str, tuple[list[tuple[PartKind, str]], Stop, Usage, int | None]] = {
    "messages-text": (
        [(_T, "The build fails in `make`:\u2028\n\nevent: none of ours\ndata: {}\n\nFixed it. \U0001f642")],
        Stop.END, Usage(67_021, 66_000, 1_000), 310,
    ),
    "messages-tool-use": (
        [(_T, "I'll read the file first."), (_C, '{"file_path": "/srv/app/main.py"}')],
        Stop.TOOL_CALLS, Usage(122_054, 120_000, 2_048), 89,
    ),
    "messages-thinking": (
        [(_X, "The refusal words in the log are a red herring."), (_X, ""), (_T, "Done.")],
        Stop.END, Usage(99_516, 99_000, 512), 44,
    ),
    "messages-refusal": ([(_T, "I can")], Stop.REFUSAL, Usage(120_003, 0, 120_000), 9),
    "messages-late-usage": ([(_T, "Hi.")], Stop.END, Usage(70_000), 8),
    "messages-odd": ([(_T, "ok\r\n")], Stop.END, Usage(60, 30, 20), 5),
    "responses-text": (
        [(_T, "The tests pass.\u2028\n\nevent: x\n\n\U0001f642")], Stop.END, Usage(131_072, 65_536, 65_000), None,
    ),
    "responses-tool-use": (
        [
            (_X, ""),
            (_C, '{"command":["bash","-lc","grep -n refusal src"]}'),
            (_C, "*** Begin Patch\n*** End Patch"),
        ],
        Stop.TOOL_CALLS, Usage(77_000, 76_288, 0), 61,
    ),
    "responses-refusal": ([(_R, "I can't help.")], Stop.REFUSAL, Usage(66_000, 0, 65_000), None),
    "responses-incomplete": ([(_T, "Half a")], Stop.MAX_TOKENS, Usage(90_000, 1_024, 0), None),
    "responses-filtered": ([(_T, "Half a")], Stop.CONTENT_FILTER, Usage(90_000, 89_000, 0), None),
    "responses-odd": ([(_T, "ok")], Stop.END, Usage(77_000), 4),
    "chat-text": ([(_T, "The tests pass. \n\nevent: x\n\n\U0001f642")], Stop.END, _CHAT, 61),
    "chat-parallel calls, by turns": (
        [(_C, '{"command": "ls"}'), (_C, '{"file_path":"a"}')], Stop.TOOL_CALLS, _CHAT, 61,
    ),
    "chat-thoughts": ([(_X, "Hm, \u00fcber."), (_T, "Done.")], Stop.END, _CHAT, 61),
    "chat-refusal": ([(_R, "I can't help.")], Stop.REFUSAL, _CHAT, 61),
    "chat-filtered": ([(_T, "Half a")], Stop.CONTENT_FILTER, _CHAT, 61),
    "chat-cut short": ([(_T, "Half a")], Stop.MAX_TOKENS, _CHAT, 61),
    "chat-no usage": ([(_T, "ok")], Stop.END, Usage(), None),
    "chat-usage in its last chunk": ([(_T, "ok")], Stop.END, _CHAT, 61),
    "chat-calls of one index": (
        [(_C, '{"command":"ls"}'), (_C, '{"file_path":"a"}')], Stop.TOOL_CALLS, _CHAT, 61,
    ),
    "chat-calls without index": (
        [(_C, '{"command":"ls"}'), (_C, '{"file_path":"a"}')], Stop.TOOL_CALLS, _CHAT, 61,
    ),
    "chat-thoughts as OpenRouter calls them": (
        [(_X, "Hm, \u00fcber."), (_T, "Done.")], Stop.END, _CHAT, 61,
    ),
    "chat-content in parts": ([(_X, "Hm."), (_T, "Done.")], Stop.END, _CHAT, 61),
    "chat-filter results first": ([(_T, "ok")], Stop.END, _CHAT, 61),
    "chat-without DONE": ([(_T, "ok")], Stop.END, _CHAT, 61),
    "chat-one call at once": ([(_C, "{}")], Stop.TOOL_CALLS, _CHAT, 61),
}  # fmt: skip


@pytest.mark.parametrize("stream", COMPLETE, ids=ids(COMPLETE))
def test_what_was_recorded_is_read_in_full(stream: Stream) -> None:
    parts, stop, usage, output_tokens = EXPECTED[stream.name]
    answer = listen(read(stream.protocol, stream.data))
    assert [(part.kind, part.text) for part in answer.parts] == parts
    assert stop in {answer.stop, as_told(stream.protocol, answer, stream.protocol).stop}
    assert answer.usage == usage
    assert output_tokens is None or answer.output_tokens == output_tokens


@pytest.mark.parametrize("client", CODECS, ids=[protocol.value for protocol in CODECS])
@pytest.mark.parametrize("stream", COMPLETE, ids=ids(COMPLETE))
def test_what_was_recorded_is_told_to_every_client(client: Protocol, stream: Stream) -> None:
    events = read(stream.protocol, stream.data)
    answer = listen(events)
    assert answer.stop is not None
    assert_told(client, stream.protocol, answer, heard(client, stream.protocol, events))


@pytest.mark.parametrize("stream", RECORDED, ids=ids(RECORDED))
def test_a_stream_says_the_same_however_it_is_cut(stream: Stream) -> None:
    whole = read(stream.protocol, stream.data)
    assert read_pieces(stream.protocol, [stream.data[at : at + 1] for at in range(len(stream.data))]) == whole
    for at in range(0, len(stream.data), max(1, len(stream.data) // 97)):
        assert read_pieces(stream.protocol, [stream.data[:at], stream.data[at:]]) == whole


@pytest.mark.parametrize("client", CODECS, ids=[protocol.value for protocol in CODECS])
@pytest.mark.parametrize("stream", COMPLETE, ids=ids(COMPLETE))
def test_an_answer_is_told_the_same_streamed_and_whole(client: Protocol, stream: Stream) -> None:
    events, there = read(stream.protocol, stream.data), target(stream.protocol)
    whole = CODECS[client].write_body(ASKED, there, events)
    unstreamed = listen(CODECS[client].read_body(ASKED, target(client), whole))
    assert comparable(unstreamed) == comparable(heard(client, stream.protocol, events))


def comparable(answer: Answer) -> Answer:
    """Return an answer with the spelling of its arguments, which Messages does not keep, made one."""
    return replace(
        answer,
        parts=tuple(
            replace(part, text=json.dumps(json.loads(part.text or "{}"))) if part.call and _is_json(part.text) else part
            for part in answer.parts
        ),
        output_tokens=answer.output_tokens or None,  # streams of Messages must name a number
    )


def _is_json(text: str) -> bool:
    return text.startswith("{") or not text


# --- streams that break ---


@pytest.mark.parametrize("stream", RECORDED, ids=ids(RECORDED))
def test_a_stream_cut_anywhere_has_not_ended(stream: Stream) -> None:
    """Cut before every byte: what the reader has said until its last whole event, and then at the end."""
    reader, cutter = CODECS[stream.protocol].stream_reader(ASKED, target(stream.protocol)), SseReader()
    said = list[Event]()
    for at in range(len(stream.data)):
        _, completed = cutter.feed(stream.data[at : at + 1])
        for sse in completed:
            said += reader.read(sse)
            told = [*said, *copy.deepcopy(reader).end()]  # as if the stream broke off here
            assert sum(isinstance(event, Ended | Broken) for event in told) <= 1
            if any(isinstance(event, Ended) for event in told):
                assert _is_terminal(stream.protocol, sse.data), f"ended by {sse.data!r}"
                assert_nothing_follows(stream, at + 1, said)
                return
    assert stream not in COMPLETE


def _is_terminal(protocol: Protocol, data: bytes) -> bool:
    match protocol:
        case Protocol.MESSAGES:
            return b'"message_stop"' in data
        case Protocol.RESPONSES:
            return b'"response.completed"' in data or b'"response.incomplete"' in data
        case Protocol.CHAT:
            return b'"finish_reason": "' in data


def assert_nothing_follows(stream: Stream, at: int, said: list[Event]) -> None:
    whole = read(stream.protocol, stream.data)
    assert tuple(said) == whole[: len(said)]
    assert not any(isinstance(event, Delta | PartStarted | Broken) for event in whole[len(said) :]), at


@pytest.mark.parametrize("client", CODECS, ids=[protocol.value for protocol in CODECS])
@pytest.mark.parametrize("stream", CUT, ids=ids(CUT))
def test_a_cut_stream_is_never_written_as_a_clean_end(client: Protocol, stream: Stream) -> None:
    events = read(stream.protocol, stream.data)
    assert not any(isinstance(event, Ended) for event in events)
    told = heard(client, stream.protocol, tuple(event for event in events if not isinstance(event, Broken)))
    assert told.stop is None


@pytest.mark.parametrize("client", CODECS, ids=[protocol.value for protocol in CODECS])
@pytest.mark.parametrize("stream", FAILED, ids=ids(FAILED))
def test_a_mid_stream_error_is_reported_as_an_error_and_not_as_completed(client: Protocol, stream: Stream) -> None:
    events = read(stream.protocol, stream.data)
    answer = listen(events)
    assert answer.broken is not None
    written = write(client, events, ASKED, target(stream.protocol))
    told = listen(read(client, written, ASKED, target(client)))
    assert told.stop is None
    assert told.broken is not None
    assert answer.broken.message in told.broken.message
    assert told.broken.status == answer.broken.status or {told.broken.status, answer.broken.status} <= {
        500, 502, 503, 529,
    }  # fmt: skip
    kinds = [event.get("type") for event in events_of(written)]
    match client:
        case Protocol.MESSAGES:
            assert kinds[-1] == "error"
            assert "message_stop" not in kinds
        case Protocol.RESPONSES:
            assert kinds[-2:] == ["error", "response.failed"]
            assert "response.completed" not in kinds
        case Protocol.CHAT:
            assert b"[DONE]" not in written


# --- drawn answers ---


@EACH_PAIR
@thoroughly
@given(data=st.data())
def test_every_answer_is_told_as_well_as_the_protocol_can(
    client: Protocol, upstream: Protocol, data: st.DataObject
) -> None:
    events = data.draw(drawn_answers.answers(client, upstream))
    assert_told(client, upstream, listen(events), heard(client, upstream, events, drawn_answers.ASKED_WITH_TOOLS))


@EACH
@thoroughly
@given(data=st.data(), cut=drawn_answers.cuts)
def test_writing_does_not_depend_on_how_the_text_came_in_pieces(
    spoken: Protocol, data: st.DataObject, cut: int
) -> None:
    events, asked = data.draw(drawn_answers.answers(spoken, spoken)), drawn_answers.ASKED_WITH_TOOLS
    pieces = tuple(piece for event in events for piece in drawn_answers.in_pieces(event, cut))
    assert heard(spoken, spoken, pieces, asked) == heard(spoken, spoken, events, asked)
    body = CODECS[spoken].write_body(asked, target(spoken), events)
    assert CODECS[spoken].write_body(asked, target(spoken), pieces) == body


@EACH
@thoroughly
@given(data=st.data())
def test_writing_is_deterministic_and_streams_agree_with_bodies(spoken: Protocol, data: st.DataObject) -> None:
    events, asked = data.draw(drawn_answers.answers(spoken, spoken)), drawn_answers.ASKED_WITH_TOOLS
    assert write(spoken, events, asked) == write(spoken, events, asked)
    body = CODECS[spoken].write_body(asked, target(spoken), events)
    unstreamed = listen(CODECS[spoken].read_body(asked, target(spoken), body))
    streamed = heard(spoken, spoken, events, asked)
    if spoken is Protocol.RESPONSES and listen(events).stop is Stop.CONTEXT_FULL:
        assert (streamed.stop, unstreamed.stop) == (None, Stop.MAX_TOKENS), "a body cannot fail where it is complete"
        streamed = replace(streamed, stop=unstreamed.stop, broken=None, usage=unstreamed.usage)
        streamed = replace(streamed, output_tokens=unstreamed.output_tokens)
    assert as_told(spoken, comparable(unstreamed), spoken) == as_told(spoken, comparable(streamed), spoken)


# --- failures that other gateways have ---

_STATES = (Usage(), Usage(9), Usage(9, 0), Usage(9, 4), Usage(9, None, 4), Usage(9, 4, 5), Usage(9, 0, 0))


def _answered(usage: Usage, output_tokens: int | None = 7) -> tuple[Event, ...]:
    said = (PartStarted(0, PartKind.TEXT), Delta(0, "Hi."), PartEnded(0))
    return (Started("a1", "m"), *said, Counted(usage, output_tokens), Ended(Stop.END))


@EACH
@pytest.mark.parametrize("usage", _STATES, ids=str)
def test_unknown_usage_is_never_written_as_zero(spoken: Protocol, usage: Usage) -> None:
    told = heard(spoken, spoken, _answered(usage))
    assert told.usage == usage
    whole = CODECS[spoken].write_body(ASKED, target(spoken), _answered(usage))
    assert listen(CODECS[spoken].read_body(ASKED, target(spoken), whole)).usage == usage


@EACH_PAIR
def test_cached_tokens_are_counted_once(client: Protocol, upstream: Protocol) -> None:
    """Anthropic counts them beside the input, OpenAI inside."""
    streams = {
        Protocol.MESSAGES: (_FOLDER / "messages-text.sse").read_bytes(),
        Protocol.RESPONSES: (_FOLDER / "responses-text.sse").read_bytes(),
        Protocol.CHAT: CHAT_TRANSCRIPTS["text"],
    }
    expected = {
        Protocol.MESSAGES: Usage(67_021, 66_000, 1_000),
        Protocol.RESPONSES: Usage(131_072, 65_536, 65_000),
        Protocol.CHAT: Usage(77_000, 76_288),
    }
    assert heard(client, upstream, read(upstream, streams[upstream])).usage == expected[upstream]


_ERROR = {"error": {"message": "No", "type": "server_error", "code": "server_error", "param": None}}
FAILED_BODIES = (
    (Protocol.MESSAGES, {"type": "error", "error": {"type": "overloaded_error", "message": "No"}}),
    (Protocol.RESPONSES, {"id": "r", "object": "response", "status": "failed", "output": [], **_ERROR}),
    (Protocol.RESPONSES, _ERROR),
    (Protocol.CHAT, _ERROR),
)


@pytest.mark.parametrize(("spoken", "body"), FAILED_BODIES)
def test_an_unstreamed_answer_that_failed_is_no_answer(spoken: Protocol, body: Mapping[str, object]) -> None:
    told = listen(CODECS[spoken].read_body(ASKED, target(spoken), json.dumps(body).encode()))
    assert told.stop is None
    assert told.broken is not None
    assert told.broken.message == "No"


@EACH
def test_a_chat_client_that_did_not_ask_for_usage_gets_none(spoken: Protocol) -> None:
    asked = replace(ASKED, wants_usage=False)
    written = write(spoken, _answered(Usage(9, 4)), asked, target(spoken))
    assert (b'"usage":{' in written) == (spoken is not Protocol.CHAT)


@EACH
def test_a_zero_that_nobody_counted_is_nowhere_in_the_bytes(spoken: Protocol) -> None:
    """But in `message_start`: its type requires a number, and a 0 is what Anthropic's clients know as "later"."""
    unknown = (*_answered(Usage(), None)[:-2], Ended(Stop.END))
    whole = CODECS[spoken].write_body(ASKED, target(spoken), unknown)
    streamed = re.sub(rb"event: message_start\n.*\n", b"", write(spoken, unknown))
    for written in (streamed, whole):
        names = b"input_tokens|prompt_tokens|cached_tokens|cache_\\w+_tokens|reasoning_tokens|total_tokens"
        assert re.findall(rb'"(?:' + names + rb')":0', written) == []


@EACH
def test_text_is_passed_on_as_it_comes(spoken: Protocol) -> None:
    writer = CODECS[spoken].stream_writer(ASKED, target(spoken))
    said = [writer.write(event) for event in (Started("a1", "m"), PartStarted(0, PartKind.TEXT))]
    assert b"word" not in b"".join(said)
    for number in range(3):
        assert b"word%d" % number in writer.write(Delta(0, f"word{number}"))


def test_a_chat_call_without_an_id_gets_one_that_is_its_own_and_always_the_same() -> None:
    stream = CHAT_TRANSCRIPTS["parallel calls, by turns"].replace(b'"call_a"', b'""').replace(b'"call_b"', b"null")
    again = stream.replace(b"chatcmpl-5f0068f1c2d4", b"chatcmpl-another")
    ids = [
        [part.call.call_id for part in listen(read(Protocol.CHAT, data)).parts if part.call]
        for data in (stream, stream, again)
    ]
    assert ids[0] == ids[1]
    assert len(set(ids[0] + ids[2])) == 4
    assert all(ids[0])


@EACH
def test_parallel_calls_whose_arguments_come_by_turns_are_kept_apart(spoken: Protocol) -> None:
    events = read(Protocol.CHAT, CHAT_TRANSCRIPTS["parallel calls, by turns"])
    told = heard(spoken, Protocol.CHAT, events)
    assert [(part.call and part.call.call_id, part.text) for part in told.parts] == [
        ("call_a", '{"command": "ls"}'), ("call_b", '{"file_path":"a"}'),
    ]  # fmt: skip
    assert told.stop is Stop.TOOL_CALLS


def test_messages_blocks_never_overlap() -> None:
    """The protocol numbers them, but clients show one block at a time."""
    events = read(Protocol.CHAT, CHAT_TRANSCRIPTS["parallel calls, by turns"])
    opened: int | None = None
    for event in events_of(write(Protocol.MESSAGES, events, ASKED, target(Protocol.CHAT))):
        if event["type"] == "content_block_start":
            assert opened is None
            opened = event["index"]
        elif event["type"].startswith("content_block"):
            assert event["index"] == opened
            opened = None if event["type"] == "content_block_stop" else opened
    assert opened is None


def test_a_custom_calls_last_piece_that_comes_only_with_its_item_is_not_lost() -> None:
    told = listen(read(Protocol.RESPONSES, (_FOLDER / "responses-tool-use.sse").read_bytes()))
    assert told.parts[-1].text == "*** Begin Patch\n*** End Patch"
    assert told.parts[0] == Heard(PartKind.THINKING, opaque="gAAAAABo8cLW3m")
