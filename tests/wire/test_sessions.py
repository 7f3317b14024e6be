import pytest

from cachegate.wire.seen import Reseed
from cachegate.wire.sessions import Known, Reason


@pytest.mark.parametrize(
    ("had", "asked", "common"),
    [
        ("", "", 0),
        ("", "ab", 0),
        ("ab", "", 0),
        ("ab", "abc", 2),
        ("abc", "ab", 2),
        ("abc", "axc", 1),
        ("abc", "xbc", 0),
    ],
)
def test_what_two_conversations_have_in_common_stands_at_their_front(had: str, asked: str, common: int) -> None:
    def marks(letters: str) -> tuple[bytes, ...]:
        return tuple(letter.encode() for letter in letters)

    assert Known(marks(had)).common(marks(asked)) == common


@pytest.mark.parametrize(
    ("pending", "call_ids", "awaited"),
    [
        ("", "", True),
        ("", "a", False),
        ("ab", "ab", True),
        ("ab", "ba", True),
        ("ab", "a", False),
        ("ab", "aa", False),
        ("ab", "abb", False),
        ("ab", "abc", False),
    ],
)
def test_results_are_awaited_when_they_are_those_of_all_calls_once(pending: str, call_ids: str, awaited: bool) -> None:
    assert Known(pending=frozenset(pending)).awaits(tuple(call_ids)) is awaited


@pytest.mark.parametrize("reason", Reason)
def test_only_a_change_of_instructions_or_tools_is_the_clients_own_doing(reason: Reason) -> None:
    assert Reseed(reason).by_client is (reason is Reason.FINGERPRINT_CHANGED)
