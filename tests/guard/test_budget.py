"""The entry of one budget: a dozen small numbers, so that any store can hold it (R1)."""

import json
from dataclasses import FrozenInstanceError, asdict, fields

import pytest

from cachegate.guard.budget import Entry


def test_r1_an_entry_is_a_dozen_small_numbers() -> None:
    values = asdict(Entry())
    assert len(values) <= 12
    assert {type(value) for value in values.values()} <= {int, bool}


def test_r1_a_fresh_entry_remembers_nothing() -> None:
    assert not any(asdict(Entry()).values())


def test_r1_an_entry_survives_a_store_that_knows_only_numbers() -> None:
    entry = Entry(2, True, 800_000, 200_000, 3, True, True, True, 1, 123_456_789)  # noqa: FBT003 -- every field
    assert len(asdict(entry)) == len(fields(Entry)), "every field is set above"
    assert all(asdict(entry).values())
    assert Entry(**json.loads(json.dumps(asdict(entry)))) == entry


def test_r1_an_entry_holds_no_text_that_could_name_anybody() -> None:
    assert all(field.type in {int, bool} for field in fields(Entry))


def test_an_entry_does_not_change_under_way() -> None:
    with pytest.raises(FrozenInstanceError):
        Entry().count = 1  # type: ignore[misc]
    with pytest.raises((AttributeError, TypeError)):
        Entry().note = "a stray field"  # type: ignore[attr-defined]
