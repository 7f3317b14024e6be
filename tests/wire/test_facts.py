import pytest

from cachegate.wire.facts import Operation, Protocol, Sender
from wire.received import parsed, received


def test_counting_tokens_is_the_one_thing_that_makes_no_model_read() -> None:
    assert [operation for operation in Operation if not operation.guarded] == [Operation.COUNT_TOKENS]


def test_header_names_have_no_case_and_the_last_of_several_wins() -> None:
    sender = Sender.of((("X-Session-ID", "a"), ("x-session-id", "b"), ("Other", "")))
    assert [sender.header(name) for name in ("x-session-id", "other", "absent")] == ["b", "", ""]


@pytest.mark.parametrize("protocol", list(Protocol))
def test_neither_bodies_nor_secrets_are_shown(protocol: Protocol) -> None:
    body, headers = {"input": "private words", "messages": "private words"}, {"authorization": "Bearer secret"}
    shown = (received(protocol, body, headers), parsed(protocol, body, headers), Sender.of(tuple(headers.items())))
    assert [word for value in shown for word in ("private", "secret") if word in repr(value)] == []
