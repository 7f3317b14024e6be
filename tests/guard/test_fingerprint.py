"""What differs between two requests, and whose doing it is (R15)."""

from dataclasses import replace
from pathlib import Path

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


@pytest.mark.parametrize("gone", [1, 2, 3])
def test_a_dropped_front_is_no_rewritten_opening(gone: int) -> None:
    """Whether or not more was said behind it."""
    names = ["one", "two", "tri", "for"]
    before = replace(LONGER, opening=items("one"))
    now = replace(before, opening=items(names[gone]), items=items(*names[gone:], "new"), items_count=5 - gone)
    assert not client_changed(before, now, SAME_SIZE)
    assert cause(before, now, 0, LIFETIME_MS) == Cause(Change.HISTORY, item=1, items=4)
    assert client_changed(before, replace(now, tools=b"x"), SAME_SIZE)


def test_an_opening_put_in_front_is_a_rewritten_one() -> None:
    before = replace(BEFORE, opening=items("one"))
    assert client_changed(before, replace(before, opening=items("new"), items=items("new", "one", "two")), SAME_SIZE)


def test_an_opening_is_looked_for_among_whole_digests() -> None:
    """Bytes of two neighbours are no item; neither is nothing, where there is no opening any more."""
    before = replace(BEFORE, opening=items("one"))
    assert client_changed(before, replace(before, opening=before.items[5:9], items=before.items[5:]), SAME_SIZE)
    assert client_changed(before, replace(before, opening=b"", items=b"", items_count=0), SAME_SIZE)


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


def test_a_change_behind_the_items_that_are_kept_is_not_located() -> None:
    """As many digests are kept as there is room for; what differs behind them looks unchanged."""
    longer = replace(BEFORE, items_count=5_000)
    assert cause(longer, replace(longer, items_count=5_001), 0, LIFETIME_MS) == Cause(Change.UNCHANGED)
    edited = replace(longer, items=items("one", "xwo", "tri"))
    assert cause(longer, edited, 0, LIFETIME_MS) == Cause(Change.HISTORY, item=2, items=5_000)


@pytest.mark.parametrize("at", range(ITEM_BYTES))
def test_an_item_differs_when_any_byte_of_its_digest_does(at: int) -> None:
    digest = bytearray(LONGER.items)
    digest[ITEM_BYTES + at] ^= 1
    now = replace(LONGER, items=bytes(digest))
    assert cause(BEFORE, now, 0, LIFETIME_MS) == Cause(Change.HISTORY, item=2, items=3)


def test_an_empty_conversation_differs_from_none() -> None:
    empty = replace(BEFORE, items=b"", items_count=0)
    assert cause(BEFORE, empty, 0, LIFETIME_MS) == cause(empty, BEFORE, 0, LIFETIME_MS) == Cause(Change.UNCHANGED)


def test_r24_every_cause_is_a_fixed_word_that_the_documents_explain() -> None:
    text = (Path(__file__).parents[2] / "docs" / "guard.md").read_text("utf-8")
    for change in Change:
        assert change.value.replace("_", "").isalpha()
        assert f"| `{change.value}` |" in text


def test_who_never_asked_for_caching_is_told() -> None:
    unmarked = replace(LONGER, marked=False)
    assert cause(BEFORE, unmarked, LIFETIME_MS, LIFETIME_MS) == Cause(Change.UNMARKED)
    assert cause(None, unmarked, 0, LIFETIME_MS) == Cause(Change.UNMARKED)
