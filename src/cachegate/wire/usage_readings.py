"""Every spelling of cached tokens, in one table.

A count is measured only when it is an integer of at least 0; anything else is unknown. Two families exist:
*exclusive* (Anthropic: the input count leaves out what was read or written) and *subset* (OpenAI: the input count
is the whole prompt). Counts come several times in a stream; the last known value of each field wins, none are added.
"""

from collections.abc import Callable, Mapping

from cachegate.guard.usage import Usage
from cachegate.wire.facts import Protocol

Fields = Mapping[str, object]

UNKNOWN = Usage()


def count(value: object) -> int | None:
    """Return a measured count, or None: a bool, a float, a string or a negative number measures nothing."""
    return value if type(value) is int and value >= 0 else None


def fields(value: object) -> Fields:
    """Return a JSON object's fields, none for anything else."""
    return value if isinstance(value, dict) else {}


def known(newer: Fields, older: Fields) -> Fields:
    """Overlay the fields of two reports of one call: a null or absent field never erases a known one."""
    return {**older, **{name: value for name, value in newer.items() if value is not None}}


def anthropic(usage: Fields) -> Usage:
    """Read an Anthropic `usage`: `input_tokens` leaves out the tokens read from and written to the cache."""
    fresh = count(usage.get("input_tokens"))
    read = count(usage.get("cache_read_input_tokens"))
    write = count(usage.get("cache_creation_input_tokens"))
    if write is None:
        split = fields(usage.get("cache_creation"))
        parts = [count(split.get(name)) for name in ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")]
        write = sum(part for part in parts if part is not None) if any(part is not None for part in parts) else None
    if fresh is None:
        return _measured(None, read, write)
    return _measured(fresh + (read or 0) + (write or 0), read, write)


def openai(usage: Fields) -> Usage:
    """Read a Responses `usage`: the cached and written tokens are part of `input_tokens`."""
    details = fields(usage.get("input_tokens_details"))
    total = count(usage.get("input_tokens"))
    read = count(details.get("cached_tokens"))
    write = count(details.get("cache_write_tokens"))
    if total is not None and read is not None and read > total:
        return _measured(total, None, None)
    return _measured(total, read, write)


READINGS: dict[Protocol, Callable[[Fields], Usage]] = {
    Protocol.MESSAGES: anthropic,
    Protocol.RESPONSES: openai,
}


def _measured(total: int | None, read: int | None, write: int | None) -> Usage:
    """Return the counts; a prompt of no tokens is a placeholder, and everything in it is unknown."""
    return UNKNOWN if total == 0 else Usage(total, read, write)
