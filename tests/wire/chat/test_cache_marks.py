from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cachegate.wire.chat.cache_marks import MARK, MARKS_MAX, MESSAGE_MARK, place_marks, place_message_marks


def text(word: str = "x") -> dict[str, Any]:
    return {"type": "text", "text": word}


PICTURE: dict[str, Any] = {"type": "image_url", "image_url": {"url": "u"}}


def say(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "content": [dict(part) for part in parts] or None}


def marked(*messages: dict[str, Any]) -> list[tuple[int, int]]:
    return [
        (number, at)
        for number, message in enumerate(messages)
        for at, part in enumerate(message["content"] or [])
        if part.get("cache_control") == MARK["cache_control"]
    ]


def test_the_end_the_instructions_and_the_end_of_the_request_before_are_marked() -> None:
    talk = [
        say("system", text(), text()),
        say("user", text()),
        say("assistant"),
        say("tool", text()),
        say("tool", text()),
        say("assistant", text()),
        say("user", text(), text()),
    ]
    place_marks(talk, [])
    assert marked(*talk) == [(0, 1), (4, 0), (6, 1)]


def test_what_the_client_marked_is_marked_as_far_as_there_is_room() -> None:
    talk = [say("system", text()), *(say("user", text()) for _ in range(5))]
    wished = [message["content"][0] for message in talk]
    place_marks(talk, wished)
    assert marked(*talk) == [(0, 0), (3, 0), (4, 0), (5, 0)]


def test_marks_may_stand_on_the_messages_that_hold_those_parts() -> None:
    talk = [
        say("system", text(), text()),
        say("user", text()),
        say("assistant"),
        say("tool", text()),
        say("assistant", text()),
        say("user", text(), PICTURE),
    ]
    place_message_marks(talk, [talk[1]["content"][0]])
    assert [number for number, message in enumerate(talk) if MESSAGE_MARK.items() <= message.items()] == [0, 1, 3, 5]
    assert marked(*talk) == []


def test_pictures_and_empty_texts_are_never_marked() -> None:
    talk = [say("user", text(), PICTURE, text("")), say("user", PICTURE)]
    place_marks(talk, [*talk[0]["content"], *talk[1]["content"]])
    assert marked(*talk) == [(0, 0)]


def test_a_prefilled_answer_is_not_marked() -> None:
    talk = [say("user", text()), say("assistant", text())]
    place_marks(talk, [])
    assert marked(*talk) == [(0, 0)]


def test_nothing_needs_no_marks() -> None:
    place_marks([], [])


@given(st.lists(st.tuples(st.sampled_from(["system", "user", "tool", "assistant"]), st.integers(0, 3)), max_size=9))
def test_there_are_never_more_than_four(drawn: list[tuple[str, int]]) -> None:
    talk = [say(role, *[text()] * count) for role, count in drawn]
    place_marks(talk, [part for message in talk for part in message["content"] or []])
    assert len(marked(*talk)) <= MARKS_MAX
