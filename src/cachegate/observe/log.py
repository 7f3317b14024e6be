"""One line per request on standard error: for people by default, JSON with `--log-json`."""

import logging
import re
from datetime import UTC, datetime

import msgspec

from cachegate.observe.record import Record

LOGGER = logging.getLogger("cachegate")
_UNSAFE = re.compile(r"[^\x20-\x7e]|\s")
_TEXT_CHARS_MAX = 120


class RequestLog:
    """An observer that writes a line per finished request."""

    def __init__(self, *, as_json: bool) -> None:
        self._line = _json_line if as_json else _text_line

    def __call__(self, record: Record) -> None:
        """Write the line."""
        if LOGGER.isEnabledFor(logging.INFO):
            LOGGER.info("%s", self._line(record))


def configure(*, as_json: bool, quiet: bool) -> None:
    """Send the gateway's log to standard error; errors keep their level in front, or in a JSON field."""
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonFormatter() if as_json else logging.Formatter("%(message)s"))
    LOGGER.handlers = [handler]
    LOGGER.propagate = False
    LOGGER.setLevel(logging.WARNING if quiet else logging.INFO)


class _JsonFormatter(logging.Formatter):
    """Passes the request lines, which are JSON already, and wraps everything else."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one JSON line."""
        text = record.getMessage()
        if record.levelno == logging.INFO and text.startswith("{"):
            return text
        line = {"event": "log", "level": record.levelname.lower(), "message": text}
        return msgspec.json.encode(line).decode()


def _text_line(record: Record) -> str:
    usage, guard = record.usage, record.guard
    parts = [
        datetime.fromtimestamp(record.at_s, UTC).astimezone().strftime("%H:%M:%S"),
        str(record.status or "---"),
        record.path,
        f"{record.provider}/{_safe(record.model)}" if record.provider else "-",
        record.ending,
        f"{record.duration_ms} ms",
    ]
    if usage.input_total is not None:
        cached = "?" if usage.cached_read is None else f"{usage.cached_read:,}"
        parts.append(f"input {usage.input_total:,} cached {cached}")
    if guard is not None:
        why = "" if guard.cause == "unknown" else f", {guard.cause}"
        parts.append(f"guard {guard.outcome} ({guard.reason}, count {guard.count}{why})")
    if record.rebuilt:
        parts.append(f"session rebuilt ({_safe(record.rebuilt)})")
    if record.detail:
        parts.append(_safe(record.detail))
    return "  ".join(parts)


def _json_line(record: Record) -> str:
    guard = record.guard
    line = {
        "event": "request",
        "at": datetime.fromtimestamp(record.at_s, UTC).isoformat(timespec="milliseconds"),
        "requestId": record.request_id,
        "path": record.path,
        "status": record.status,
        "ending": record.ending,
        "durationMs": record.duration_ms,
        "provider": record.provider,
        "model": _safe(record.model),
        "inputTokens": record.usage.input_total,
        "cachedTokens": record.usage.cached_read,
        "writtenTokens": record.usage.cache_write,
        "detail": _safe(record.detail),
        "rebuilt": _safe(record.rebuilt),
        "guard": None
        if guard is None
        else {
            "key": guard.key,
            "mode": guard.mode,
            "outcome": guard.outcome,
            "reason": guard.reason,
            "count": guard.count,
            "cause": guard.cause,
        },
    }
    return msgspec.json.encode(line).decode()


def _safe(text: str) -> str:
    """Return text that came from outside, without anything that could forge a line or steer a terminal."""
    return _UNSAFE.sub("?", text[:_TEXT_CHARS_MAX])
