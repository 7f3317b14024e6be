"""Entries as bytes: what is written is read, also by older and newer builds than the one that wrote it (R20, R21)."""

from dataclasses import fields, replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachegate.guard.budget import Entry
from cachegate.guard.fingerprint import UNKNOWN, Cause, Change, Fingerprint
from cachegate.guard.machine import Ending, Result
from cachegate.guard.usage import Usage
from cachegate.stores.rows import LEGACY, NUMBER_MAX, VERSION, Row, decode, decode_fate, encode, encode_fate

numbers = st.integers(0, NUMBER_MAX)
fingerprints = st.builds(
    Fingerprint,
    tools=st.binary(max_size=16),
    instructions=st.binary(max_size=16),
    opening=st.binary(max_size=16),
    thinking=st.binary(max_size=16),
    speed=st.binary(max_size=16),
    items=st.binary(max_size=64),
    items_count=numbers,
    window=st.binary(max_size=16),
    compacted=st.booleans(),
    marked=st.booleans(),
)
entries = st.builds(
    Entry,
    **dict.fromkeys(("count", "failed_bytes", "prefix", "prefix_high", "rebuilds_used"), numbers),
    **dict.fromkeys(("active_ms", "settled_ms", "input_bytes"), numbers),
    **{name: st.booleans() for name in ("unreported", "cancel_pass", "refusal_pass", "refusal_pass_spent")},
    fingerprint=st.none() | fingerprints,
    cause=st.builds(Cause, st.sampled_from(Change), numbers, numbers, numbers),
)
usages = st.builds(Usage, *[st.none() | numbers] * 3)
results = st.builds(
    Result,
    usage=usages,
    ending=st.sampled_from(Ending),
    conversation_bytes=numbers,
    input_bytes=numbers,
    sent=st.booleans(),
    began=st.booleans(),
    client_changed=st.booleans(),
    fingerprint=st.none() | fingerprints,
    started_ms=numbers,
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
NAMES = [field.name for field in fields(Entry) if field.name != "in_flight"]
NEWER = VERSION + 1


def json(data: bytes) -> dict[str, Any]:
    decoded = msgspec.json.decode(data)
    assert isinstance(decoded, dict)
    return decoded


@given(entry=entries)
def test_an_entry_comes_back_as_it_was_written(entry: Entry) -> None:
    row = decode(encode(entry, Row()))
    assert (row.entry, row.version, row.legacy) == (entry, VERSION, False)
    assert set(json(encode(entry, Row()))) == {"v", *NAMES}, "every field but the number of leases"


@given(result=results)
def test_a_fate_comes_back_as_it_was_written(result: Result) -> None:
    assert decode_fate(encode_fate(result)) == result


def test_what_is_unknown_stays_unknown_and_is_never_0() -> None:
    result = Result(Usage(input_total=5), Ending.SHUTDOWN, 1, 1)
    read = decode_fate(encode_fate(result))
    assert read is not None
    assert read.usage == Usage(input_total=5, cached_read=None, cache_write=None)


@pytest.mark.parametrize("data", [None, b"", b"{", b"\xff", b"[]", b"{}", b"[" * 100_000])
def test_a_fate_that_nobody_can_read_is_none(data: bytes | None) -> None:
    assert decode_fate(data) is None


def test_a_fate_of_another_build_says_at_least_that_nobody_cancelled_r14() -> None:
    fate = decode_fate(b'{"v": 9, "usage": {"input_total": 7, "cached_read": -1}, "ending": "abducted", "sent": "?"}')
    assert fate == Result(Usage(input_total=7), Ending.SHUTDOWN, 0, 0)


@given(entry=entries, changed=entries, more=st.dictionaries(st.sampled_from(["w", "x", "y"]), anything))
def test_a_newer_row_is_never_rewritten_downwards(entry: Entry, changed: Entry, more: dict[str, Any]) -> None:
    written = json(encode(entry, Row())) | {"v": NEWER} | more
    newer = decode(msgspec.json.encode(written)) if _encodes(written) else Row(fields={"v": NEWER}, version=NEWER)
    rewritten = decode(encode(changed, newer))
    assert (rewritten.version, rewritten.entry) == (NEWER, changed)
    assert {name: rewritten.fields[name] for name in newer.fields if name not in {*NAMES, "v"}} == {
        name: value for name, value in newer.fields.items() if name not in {*NAMES, "v"}
    }


def _encodes(value: dict[str, Any]) -> bool:
    try:
        msgspec.json.encode(value)
    except OverflowError:
        return False
    return True


def test_what_a_newer_build_said_in_a_field_outlives_a_request_that_did_not_touch_it() -> None:
    said = {
        "v": NEWER,
        "count": 2,
        "cause": {"change": "moon_phase", "phase": 3},
        "fingerprint": {"tools": "AA==", "instructions": "", "opening": "", "thinking": "", "speed": "", "items": "",
                        "items_count": 1, "voice": "AQ=="},
        "rebuilds_used": {"client": 1, "cancelled": 2},
    }  # fmt: skip
    row = decode(msgspec.json.encode(said))
    assert (row.entry.count, row.entry.cause, row.entry.rebuilds_used) == (2, UNKNOWN, 0)
    touched = json(encode(replace(row.entry, active_ms=5), row))
    assert touched == touched | said
    assert touched["active_ms"] == 5
    changed = json(encode(replace(row.entry, cause=Cause(Change.TOOLS)), row))
    assert changed["cause"] == {"change": "tools_changed", "item": 0, "items": 0, "gap_s": 0}


@given(odd=st.dictionaries(st.sampled_from([*NAMES, "v"]), anything))
def test_a_field_that_makes_no_sense_has_its_default(odd: dict[str, Any]) -> None:
    row = decode(msgspec.json.encode(odd)) if _encodes(odd) else Row()
    assert isinstance(row.entry, Entry)
    assert row.entry.count >= 0
    assert decode(encode(row.entry, row)).entry == row.entry


@pytest.mark.parametrize("number", [-1, 2**63, 2**64, 10**400, 1.5, True, "2", None, [2], {"n": 2}])
def test_no_number_but_a_count_is_a_count(number: object) -> None:
    text = f'{{"v": 2, "count": {str(number).lower() if isinstance(number, bool) else _json_text(number)}}}'
    assert decode(text.encode()).entry == Entry()


def _json_text(value: object) -> str:
    return str(value) if isinstance(value, int) else msgspec.json.encode(value).decode()


@pytest.mark.parametrize("data", [b"", b"nonsense", b"\xff\xfe", b"[]", b"7", b'{"v": 2, "count": ', b"[" * 100_000])
def test_bytes_that_are_no_row_are_a_fresh_entry(data: bytes) -> None:
    row = decode(data)
    assert row.entry == Entry()
    assert decode(encode(Entry(count=1), row)).entry == Entry(count=1)


@pytest.mark.parametrize("version", [{}, {"v": 1}, {"v": 0}, {"v": "old"}])
def test_of_a_legacy_row_only_the_counts_hold_r21(version: dict[str, Any]) -> None:
    said = {
        "count": 2,
        "unreported": True,
        "failed_bytes": 800,
        "active_ms": 10**15,
        "cancel_pass": True,
        "note": "kept",
    }
    row = decode(msgspec.json.encode(version | said))
    assert row.legacy
    assert row.entry == Entry(count=2, unreported=True, failed_bytes=800)
    assert set(LEGACY) <= set(NAMES)
    rewritten = decode(encode(replace(row.entry, active_ms=7), row))
    assert (rewritten.legacy, rewritten.entry.active_ms, rewritten.entry.cancel_pass) == (False, 7, False)
    assert rewritten.fields["note"] == "kept"
