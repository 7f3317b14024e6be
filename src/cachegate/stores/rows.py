"""An entry as bytes: versioned JSON, so that old and new code can share a store while one takes over from the other.

Two rules make that safe. What a newer build wrote beside the fields known here is kept when a row is written back,
and so is its version: a row is never rewritten downwards. A field that is missing or makes no sense has its default:
a row never fails a request.
"""

import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec

from cachegate.guard.budget import Entry
from cachegate.guard.fingerprint import UNKNOWN, Cause, Change, Fingerprint
from cachegate.guard.machine import Ending, Result
from cachegate.guard.usage import Usage

VERSION = 2
"""What this build writes. Version 1 is that of builds older than the idle-aware policy: they wrote only `LEGACY`, with
`v` 1 or without any, and no time that could be trusted (R21)."""
LEGACY = ("count", "unreported", "failed_bytes")
NUMBER_MAX = 2**63 - 1
"""The largest number that every store can hold; a larger one is no count of anything."""

Fields = Mapping[str, Any]
"""A JSON object as decoded."""


@dataclass(frozen=True, slots=True)
class Row:
    """An entry as it was read, and what it was read from."""

    entry: Entry = field(default_factory=Entry)
    """`in_flight` is 0 here: a store counts its leases."""
    version: int = VERSION
    fields: Fields = field(default_factory=dict)

    @property
    def legacy(self) -> bool:
        """Whether a build without the idle-aware policy wrote it: its counts hold, its times do not (R21)."""
        return self.version < VERSION


def decode(data: bytes) -> Row:
    """Read a row. Bytes that are no JSON object are read as a fresh entry."""
    return row_of(_object(data))


def encode(entry: Entry, over: Row) -> bytes:
    """Write an entry over the row that it was made from."""
    return msgspec.json.encode(fields_of(entry, over))


def row_of(fields: Fields) -> Row:
    """Read a row from its JSON object; a store may keep fields of its own beside ours."""
    version = _number(fields.get("v"), 1)
    known = _ENTRY if version >= VERSION else {name: _ENTRY[name] for name in LEGACY}
    read = {name: kind.read(fields[name]) for name, kind in known.items() if name in fields}
    return Row(Entry(**{name: value for name, value in read.items() if value is not None}), version, fields)


def fields_of(entry: Entry, over: Row) -> dict[str, Any]:
    """Return the JSON object of an entry that was made from `over`.

    A field whose value did not change is left as it was written: a newer build may have said more in it than we read.
    """
    fields = {**over.fields, "v": max(over.version, VERSION)}
    for name, kind in _ENTRY.items():
        value = getattr(entry, name)
        if name not in fields or over.legacy or value != getattr(over.entry, name):
            fields[name] = kind.write(value)
    return fields


def decode_fate(data: bytes | None) -> Result | None:
    """Read what a lease is settled with; None for what nobody can read: such a lease is only released."""
    fields = _object(data or b"")
    if not fields:
        return None
    read = {name: kind.read(fields.get(name)) for name, kind in _RESULT.items()}
    return Result(**{"usage": Usage(), **_RESULT_LEAST, **{name: it for name, it in read.items() if it is not None}})


def encode_fate(result: Result) -> bytes:
    """Write what a lease is settled with if its process is gone."""
    return msgspec.json.encode(
        {"v": VERSION, **{name: it.write(getattr(result, name)) for name, it in _RESULT.items()}}
    )


def _object(data: bytes) -> dict[str, Any]:
    try:
        decoded = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return decoded if isinstance(decoded, dict) else {}


@dataclass(frozen=True, slots=True)
class _Kind:
    """How one field goes into JSON and comes back; `read` gives None for what makes no sense."""

    read: Callable[[Any], Any]
    write: Callable[[Any], Any]


def _same(value: Any) -> Any:  # noqa: ANN401 -- JSON
    return value


def _number(value: object, default: int | None = None) -> Any:  # noqa: ANN401 -- as above
    sound = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= NUMBER_MAX
    return value if sound else default


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _bytes(value: object) -> bytes | None:
    if not isinstance(value, str):
        return None
    try:
        return binascii.a2b_base64(value, strict_mode=True)
    except (binascii.Error, ValueError):
        return None


def _text(value: bytes) -> str:
    return binascii.b2a_base64(value, newline=False).decode("ascii")


_NUMBER = _Kind(_number, _same)
_FLAG = _Kind(_flag, _same)
_BYTES = _Kind(_bytes, _text)


def _known(kinds: Mapping[str, _Kind], value: object) -> dict[str, Any]:
    """Read the fields of an inner object that are there and make sense."""
    if not isinstance(value, dict):
        return {}
    read = {name: kind.read(value[name]) for name, kind in kinds.items() if name in value}
    return {name: part for name, part in read.items() if part is not None}


def _written(kinds: Mapping[str, _Kind]) -> Callable[[Any], dict[str, Any] | None]:
    def write(value: object) -> dict[str, Any] | None:
        return None if value is None else {name: kind.write(getattr(value, name)) for name, kind in kinds.items()}

    return write


_DIGESTS = ("tools", "instructions", "opening", "thinking", "speed", "items")
_FINGERPRINT = {
    **dict.fromkeys((*_DIGESTS, "window"), _BYTES),
    "items_count": _NUMBER,
    "compacted": _FLAG,
    "marked": _FLAG,
}


def _fingerprint(value: object) -> Fingerprint | None:
    """Read a fingerprint; one without all of its digests compares with nothing, so it is none."""
    read = _known(_FINGERPRINT, value)
    return Fingerprint(**read) if {*_DIGESTS, "items_count"} <= read.keys() else None


def _change(value: object) -> Change | None:
    return Change(value) if isinstance(value, str) and value in set(Change) else None


_CAUSE = {"change": _Kind(_change, str), **dict.fromkeys(("item", "items", "gap_s"), _NUMBER)}
_USAGE = dict.fromkeys(("input_total", "cached_read", "cache_write"), _NUMBER)


def _cause(value: object) -> Cause:
    read = _known(_CAUSE, value)
    return Cause(**read) if "change" in read else UNKNOWN


def _usage(value: object) -> Usage:
    return Usage(**_known(_USAGE, value))


def _ending(value: object) -> Ending | None:
    return Ending(value) if isinstance(value, str) and value in set(Ending) else None


FINGERPRINTS_KEPT = 64
"""Fingerprints whose JSON is kept for a while: that of a request is written some four times, up to 11 KB each."""


@lru_cache(maxsize=FINGERPRINTS_KEPT)
def _fingerprint_fields(value: Fingerprint | None) -> dict[str, Any] | None:
    return _written(_FINGERPRINT)(value)


_PRINT = _Kind(_fingerprint, _fingerprint_fields)
_ENTRY: dict[str, _Kind] = {
    **dict.fromkeys(("count", "failed_bytes", "prefix", "prefix_high", "rebuilds_used"), _NUMBER),
    **dict.fromkeys(("active_ms", "settled_ms", "input_bytes"), _NUMBER),
    **dict.fromkeys(("unreported", "cancel_pass", "refusal_pass", "refusal_pass_spent"), _FLAG),
    "fingerprint": _PRINT,
    "cause": _Kind(_cause, _written(_CAUSE)),
}
"""Every field of an entry but `in_flight`, which is no part of a row."""
_RESULT: dict[str, _Kind] = {
    "usage": _Kind(_usage, _written(_USAGE)),
    "ending": _Kind(_ending, str),
    **dict.fromkeys(("conversation_bytes", "input_bytes", "started_ms"), _NUMBER),
    **dict.fromkeys(("sent", "began", "client_changed"), _FLAG),
    "fingerprint": _PRINT,
}
_RESULT_LEAST: dict[str, Any] = {"ending": Ending.SHUTDOWN, "conversation_bytes": 0, "input_bytes": 0}
"""What a fate says at least: its process ended, and nobody cancelled (R14)."""
