import json

import pytest

from cachegate.errors import ErrorKind
from cachegate.guard.usage import Usage
from cachegate.wire.answer import Answer
from cachegate.wire.facts import Operation, Protocol
from cachegate.wire.protocols import DIALECTS, PATHS
from cachegate.wire.seen import Finished
from cachegate.wire.sse import SseReader
from wire.transcripts import TRANSCRIPTS, Transcript, feed, observe


def test_there_is_a_row_for_every_protocol() -> None:
    assert set(DIALECTS) == set(Protocol)
    assert all(dialect.protocol is protocol for protocol, dialect in DIALECTS.items())


def test_every_path_reaches_a_provider_for_one_purpose() -> None:
    assert PATHS == {
        "/v1/messages": (Protocol.MESSAGES, Operation.GENERATE),
        "/v1/messages/count_tokens": (Protocol.MESSAGES, Operation.COUNT_TOKENS),
        "/v1/chat/completions": (Protocol.CHAT, Operation.GENERATE),
        "/v1/responses": (Protocol.RESPONSES, Operation.GENERATE),
        "/v1/responses/compact": (Protocol.RESPONSES, Operation.COMPACT),
    }


@pytest.mark.parametrize("kind", list(ErrorKind))
def test_every_kind_of_error_has_words_in_every_protocol(protocol: Protocol, kind: ErrorKind) -> None:
    dialect = DIALECTS[protocol]
    error = json.loads(dialect.error_body(kind, "What happened.", "req_1"))["error"]
    assert error["message"] == "What happened."
    assert dialect.reader().terminal_error(kind, "What happened.").endswith(b"\n\n")


def test_the_writer_of_a_protocol_is_read_by_its_reader(protocol: Protocol) -> None:
    answer = Answer("a1", "m", 1, ("Hel", "lo"), Usage(9, 3, 2), 2)
    events = feed(DIALECTS[protocol].writer.stream(answer)).events
    observed = observe(protocol, events)
    assert (observed.finished, observed.terminal) == (True, True)
    assert {Usage(9, 3, 2), Finished()} <= set(observed.seen)


def test_a_keepalive_is_one_whole_event_that_says_nothing(protocol: Protocol) -> None:
    reader = DIALECTS[protocol].reader()
    whole, events = SseReader().feed(reader.keepalive)
    assert whole == reader.keepalive
    assert [seen for event in events for seen in reader.read(event)] == []
    assert not reader.terminal


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda transcript: transcript.name)
def test_answers_share_no_state(transcript: Transcript) -> None:
    untouched = DIALECTS[transcript.protocol].reader().terminal_error(ErrorKind.UPSTREAM, "Broken.")
    observe(transcript.protocol, feed([transcript.data]).events)
    assert DIALECTS[transcript.protocol].reader().terminal_error(ErrorKind.UPSTREAM, "Broken.") == untouched
