"""What differs between two requests, and whose doing it is (R15)."""

from dataclasses import replace

import pytest

from cachegate.guard.fingerprint import ITEM_BYTES, Cause, Change, Fingerprint, Sizes, cause, client_changed


def items(*names: str) -> bytes:
    return b"".join(name.encode().ljust(ITEM_BYTES, b".") for name in names)


BEFORE = Fingerprint(b"t", b"i", b"o", b"e", b"s", items("one", "two", "tri"), 3)
LONGER = replace(BEFORE, items=items("one", "two", "tri", "for"), items_count=4)
SAME_SIZE = Sizes(100, 100)
LIFETIME_MS = 300_000

CHANGES = {
    "tools": (Change.TOOLS, replace(LONGER, tools=b"x")),
    "instructions": (Change.INSTRUCTIONS, replace(LONGER, instructions=b"x")),
    "thinking": (Change.THINKING, replace(LONGER, thinking=b"x")),
    "speed": (Change.SPEED, replace(LONGER, speed=b"x")),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_the_client_sets_is_its_change_and_the_cause(name: str) -> None:
    change, now = CHANGES[name]
    assert client_changed(BEFORE, now, SAME_SIZE)
    assert cause(BEFORE, now, 0, LIFETIME_MS) == Cause(change)


def test_a_longer_conversation_is_no_change() -> None:
    assert not client_changed(BEFORE, LONGER, SAME_SIZE)
    assert not client_changed(LONGER, BEFORE, SAME_SIZE)
    assert cause(BEFORE, LONGER, 0, LIFETIME_MS) == Cause(Change.UNCHANGED)
    assert cause(LONGER, BEFORE, 0, LIFETIME_MS) == Cause(Change.UNCHANGED)


@pytest.mark.parametrize(("at", "edited"), [(1, "xne"), (2, "xwo"), (3, "xri")])
def test_an_edited_history_is_located_and_excuses_nothing(at: int, edited: str) -> None:
    names = ["one", "two", "tri", "for"]
    names[at - 1] = edited
    now = replace(LONGER, items=items(*names))
    assert not client_changed(BEFORE, now, SAME_SIZE)
    assert cause(BEFORE, now, 0, LIFETIME_MS) == Cause(Change.HISTORY, item=at, items=3)


OPENED = replace(LONGER, opening=b"x", items=items("new", "two", "tri"))


def test_a_rewritten_opening_is_a_change_of_the_client() -> None:
    assert client_changed(BEFORE, OPENED, SAME_SIZE)
    assert client_changed(BEFORE, OPENED, Sizes(100, 80))


@pytest.mark.parametrize(
    ("now", "sizes"),
    [
        (OPENED, Sizes(100, 79)),
        (replace(OPENED, compacted=True), SAME_SIZE),
        (replace(OPENED, window=b"thread:2"), SAME_SIZE),
    ],
)
def test_a_compaction_is_no_change_of_the_client(now: Fingerprint, sizes: Sizes) -> None:
    assert not client_changed(BEFORE, now, sizes)
    assert cause(BEFORE, now, 0, LIFETIME_MS).change is Change.HISTORY


def test_tools_changed_with_a_compaction_are_still_a_change() -> None:
    assert client_changed(BEFORE, replace(OPENED, tools=b"x"), Sizes(100, 10))


def test_without_a_request_before_there_is_no_change() -> None:
    assert not client_changed(None, BEFORE, SAME_SIZE)
    assert not client_changed(BEFORE, None, SAME_SIZE)
    assert cause(None, BEFORE, 0, LIFETIME_MS) == Cause(Change.UNKNOWN)
    assert cause(BEFORE, None, 0, LIFETIME_MS) == Cause(Change.UNKNOWN)


def test_silence_longer_than_the_cache_lives_explains_what_nothing_else_does() -> None:
    assert cause(BEFORE, LONGER, LIFETIME_MS, LIFETIME_MS) == Cause(Change.IDLE, gap_s=300)
    assert cause(None, LONGER, 400_500, LIFETIME_MS) == Cause(Change.IDLE, gap_s=400)
    assert cause(BEFORE, replace(LONGER, tools=b"x"), LIFETIME_MS, LIFETIME_MS) == Cause(Change.TOOLS)


def test_who_never_asked_for_caching_is_told() -> None:
    unmarked = replace(LONGER, marked=False)
    assert cause(BEFORE, unmarked, LIFETIME_MS, LIFETIME_MS) == Cause(Change.UNMARKED)
    assert cause(None, unmarked, 0, LIFETIME_MS) == Cause(Change.UNMARKED)
