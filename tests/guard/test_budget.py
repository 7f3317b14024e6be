"""The entry of one budget: small and of primitive parts, so that any store can hold it (R1)."""

import json
from dataclasses import FrozenInstanceError, asdict, fields
from typing import Any

import pytest

from cachegate.guard.budget import Entry
from cachegate.guard.fingerprint import ITEM_BYTES, ITEMS_MAX, UNKNOWN, Cause, Change, Fingerprint

DIGEST = bytes(range(8))
LONG = Fingerprint(DIGEST, DIGEST, DIGEST, DIGEST, DIGEST, bytes(ITEM_BYTES) * ITEMS_MAX, 9_999, DIGEST, True, False)  # noqa: FBT003 -- every field
FULL = Entry(
    count=2,
    unreported=True,
    failed_bytes=800_000,
    prefix=200_000,
    prefix_high=300_000,
    rebuilds_used=3,
    cancel_pass=True,
    refusal_pass=True,
    refusal_pass_spent=True,
    in_flight=1,
    active_ms=123_456_789,
    settled_ms=123_456_780,
    fingerprint=LONG,
    input_bytes=900_000,
    cause=Cause(Change.HISTORY, item=3, items=9, gap_s=7),
)


def packed(entry: Entry) -> str:
    """Write an entry as a store would that knows only JSON."""
    values = asdict(entry)
    values["cause"]["change"] = entry.cause.change.value
    if entry.fingerprint is not None:
        digests = asdict(entry.fingerprint)
        values["fingerprint"] = {
            name: part.hex() if isinstance(part, bytes) else part for name, part in digests.items()
        }
    return json.dumps(values)


def unpacked(text: str) -> Entry:
    """Read it again."""
    values: dict[str, Any] = json.loads(text)
    cause, digests = values.pop("cause"), values.pop("fingerprint")
    cause["change"] = Change(cause["change"])
    fingerprint = digests and Fingerprint(**{name: _digest(part) for name, part in digests.items()})
    return Entry(**values, cause=Cause(**cause), fingerprint=fingerprint)


def _digest(part: Any) -> Any:
    return bytes.fromhex(part) if isinstance(part, str) else part


def test_r1_an_entry_is_some_small_numbers_one_fingerprint_and_one_cause() -> None:
    kinds = [type(value) for value in asdict(FULL).values() if not isinstance(value, dict)]
    assert len(kinds) == 13
    assert set(kinds) <= {int, bool}
    assert [field.name for field in fields(Entry) if field.type not in {int, bool}] == ["fingerprint", "cause"]


def test_r1_a_fresh_entry_remembers_nothing() -> None:
    values = asdict(Entry())
    assert Entry().cause == UNKNOWN == Cause(Change.UNKNOWN, 0, 0, 0)
    assert not any(value for name, value in values.items() if name != "cause")


def test_r1_an_entry_survives_a_store_that_knows_only_json() -> None:
    assert all(asdict(FULL).values()), "every field is set above"
    assert unpacked(packed(FULL)) == FULL
    assert unpacked(packed(Entry())) == Entry()


def test_r1_an_entry_stays_small_however_long_the_conversation() -> None:
    assert len(packed(FULL)) < 20_000


def test_r1_an_entry_holds_no_text_that_could_name_anybody() -> None:
    assert {field.type for field in fields(Fingerprint)} == {bytes, int, bool}
    assert [field.name for field in fields(Cause) if field.type is not int] == ["change"]


@pytest.mark.parametrize("kept", [Entry(), LONG, UNKNOWN], ids=["entry", "fingerprint", "cause"])
def test_an_entry_does_not_change_under_way(kept: Any) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(kept, fields(kept)[0].name, 1)
    with pytest.raises((AttributeError, TypeError)):
        kept.note = "a stray field"
