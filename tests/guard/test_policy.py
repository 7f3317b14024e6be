"""The numbers of the policy: as documented, each within its range, and a mistake is named."""

from dataclasses import FrozenInstanceError, fields

import pytest

from cachegate.guard import policy as module
from cachegate.guard.policy import Policy

NUMBERS = [number.name for number in fields(Policy)]


def test_the_defaults_are_the_documented_policy() -> None:
    assert Policy() == Policy(
        large_tokens=65_536,
        large_bytes=262_144,
        limit=2,
        rebuilds=4,
        idle_ms=300_000,
        entries_max=4_096,
        reuse_percent=75,
    )


def test_every_number_has_a_range() -> None:
    assert [name for name, _, _ in module._RANGES] == NUMBERS


@pytest.mark.parametrize(("name", "low", "high"), module._RANGES, ids=str)
def test_the_ends_of_a_range_are_allowed_and_nothing_beyond(name: str, low: int, high: int) -> None:
    assert getattr(Policy(**{name: low}), name) == low
    assert getattr(Policy(**{name: high}), name) == high
    for wrong in (low - 1, high + 1):
        with pytest.raises(ValueError, match=f"{name} is {wrong}; it must be between {low} and {high}"):
            Policy(**{name: wrong})


@pytest.mark.parametrize("name", NUMBERS)
def test_the_default_lies_within_its_range(name: str) -> None:
    low, high = next((low, high) for field, low, high in module._RANGES if field == name)
    assert low <= getattr(Policy(), name) <= high


def test_a_policy_does_not_change_under_way() -> None:
    with pytest.raises(FrozenInstanceError):
        Policy().limit = 3  # type: ignore[misc]


def test_no_rebuild_at_all_may_be_excused_but_the_limit_is_at_least_one() -> None:
    assert Policy(rebuilds=0).rebuilds == 0
    with pytest.raises(ValueError, match="limit"):
        Policy(limit=0)
