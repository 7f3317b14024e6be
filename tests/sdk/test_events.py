"""Sums of what was reported, and of what was not."""

from cachegate.sdk import Tokens, Usage


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    assert Tokens(1, 2, 3, 4, 5) + Tokens(10, None, 0, None, 5) == Tokens(11, None, 3, None, 10)


def test_nothing_is_known_to_have_taken_nothing() -> None:
    assert Usage() == Usage(Tokens(), Tokens(0, 0, 0, 0, 0))


def test_what_became_unknown_stays_so() -> None:
    usage = Usage().plus(Tokens(input=5)).plus(Tokens(1, 1, 1, 1, 1))
    assert usage.last == Tokens(1, 1, 1, 1, 1)
    assert usage.total == Tokens(input=6)
