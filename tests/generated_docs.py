"""The parts of the documents that are written from the code, between `<!-- name -->` and `<!-- end -->`.

`scripts/docs` writes them; tests/test_docs.py fails when they lie.
"""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from pydantic import BaseModel
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo

import generated_translation
from cachegate.config import AuxiliaryConfig, CacheGuardConfig, ClientConfig, Config, ControlConfig, LimitsConfig
from cachegate.control import event_log, history, params, rpc, thread, turn
from cachegate.control.session import METHODS
from cachegate.provider_configs import (
    ClaudeCliProviderConfig,
    ClaudeSessionsConfig,
    CopilotProviderConfig,
    HttpProviderConfig,
    OwnProviderConfig,
    SyntheticProviderConfig,
)
from cachegate.server import control
from cachegate.wire import overflows, refusals
from cachegate.wire.usage_readings import READINGS, Format, Reading
from guard import documented

DOCS = Path(__file__).parent.parent / "docs"
_PART = re.compile(r"(<!-- (?P<name>[a-z ]+) -->\n).*?(<!-- end -->)", re.DOTALL)

SECTIONS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("Top level", Config),
    ("Providers over HTTP: every kind but `claude-cli`, `copilot` and `synthetic`", HttpProviderConfig),
    ("Providers of kind `claude-cli`", ClaudeCliProviderConfig),
    ("Providers of kind `copilot`", CopilotProviderConfig),
    ("`ownProvider` of kind `copilot`", OwnProviderConfig),
    ("Providers of kind `synthetic`", SyntheticProviderConfig),
    ("`cacheGuard`", CacheGuardConfig),
    ("`limits`", LimitsConfig),
    ("`claudeSessions`, also of each provider of kind `claude-cli`", ClaudeSessionsConfig),
    ("`auxiliary`", AuxiliaryConfig),
    ("`control`", ControlConfig),
    ("Each of `clients`", ClientConfig),
)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel) or (isinstance(value, dict) and value):
        return "below"
    return "" if value is None else f"`{value}`" if isinstance(value, str) else f"`{json.dumps(value)}`"


def configuration() -> str:
    """Every key of the configuration, with its default and meaning."""
    lines: list[str] = []
    for title, section in SECTIONS:
        lines += [f"## {title}", "", "| key | default | meaning |", "|---|---|---|"]
        for name, field in section.model_fields.items():
            meaning = " ".join((field.description or "").split())
            lines.append(f"| `{to_camel(name)}` | {_default(field)} | {meaning} |")
        lines.append("")
    return "\n".join(lines)


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines).replace("| --- ", "|---").replace("--- |", "---|")


def _spelled(spellings: tuple[str, ...]) -> str:
    return ", else ".join(f"`{spelling}`" for spelling in spellings) or "not reported"


def _particular(reading: Reading) -> str:
    said = {
        "0 is unknown": reading.zero_is_unknown,
        "0 is unknown beside images, audio or video": bool(reading.zero_is_unknown_beside),
        "cache counts that come late, alone, are part of the input": reading.late_cache_fields_inclusive,
        "more cached than input: add both": reading.read_beyond_total == "add",
    }
    return "; ".join(words for words, true in said.items() if true)


def usage_readings() -> str:
    """Where each provider puts its counts; those that do it alike share a row."""
    alike: dict[tuple[Format, Reading], list[str]] = {}
    for provider, shapes in READINGS.items():
        for shape, reading in shapes.items():
            alike.setdefault((shape, reading), []).append(f"`{provider}`")
    rows: list[tuple[str, ...]] = []
    for (shape, reading), providers in sorted(alike.items(), key=lambda row: list(Format).index(row[0][0])):
        total = _spelled(reading.total) + (" + read + written" if reading.exclusive else "")
        counts = (total, _spelled(reading.read), _spelled(reading.write))
        rows.append((f"`{shape.value}`", ", ".join(providers), *counts, _particular(reading)))
    return _table(("format", "providers", "input", "read from the cache", "written to it", ""), rows)


def refusal_signals() -> str:
    """How providers refuse."""
    rows = [(signal.place.value, f"`{signal.word}`", signal.sender) for signal in refusals.SIGNALS]
    return _table(("where", "what", "who"), rows)


def overflow_signals() -> str:
    """How providers say that a context is full."""
    rows = [("code or type", f"`{code}`") for code in sorted(overflows.CODES)]
    rows += [("reason of the end", f"`{reason}`") for reason in sorted(overflows.REASONS)]
    rows += [("message", f"`{pattern}`") for pattern in overflows.PATTERNS]
    return _table(("where", "what"), rows)


def control_methods() -> str:
    """What a client of the control socket may ask for; a question mark stands behind what may be missing."""
    rows: list[tuple[str, ...]] = []
    for method, (kind, handle) in METHODS.items():
        fields = msgspec.structs.fields(kind)
        named = ", ".join(f"`{field.encode_name}{'' if field.required else '?'}`" for field in fields)
        rows.append((f"`{method}`", named, " ".join((handle.__doc__ or "").split())))
    return _table(("method", "parameters", ""), rows)


def control_errors() -> str:
    """The error codes of the control socket."""
    rows = [(f"{code.value}", code.meaning) for code in rpc.Code]
    return _table(("code", "when"), rows)


def control_limits() -> str:
    """What a client of the control socket may send at most."""
    rows = [
        ("`instructions`", f"{params.INSTRUCTIONS_CHARS_MAX:,} characters"),
        (
            "`dynamicTools`",
            f"{params.TOOLS_MAX}, each with a name of at most {params.TOOL_NAME_CHARS_MAX} letters, digits, `_`, `-`",
        ),
        ("a tool's `description`", f"{params.DESCRIPTION_CHARS_MAX:,} characters"),
        ("names of threads and clients", f"{params.NAME_CHARS_MAX} characters"),
        ("parts of an `input` or of a tool's answer", f"{params.PARTS_MAX}"),
        ("input that waits in a turn", f"{turn.STEERS_MAX} messages"),
        ("`limit` of `thread/list`", f"{params.LIST_MAX}, usually {params.LIST_USUAL}"),
        (
            "events kept for those who come back",
            f"{event_log.ENTRIES_MAX:,} of each thread, {event_log.BYTES_MAX:,} bytes",
        ),
        ("turns shown of a thread", f"the last {thread.SHOWN_TURNS_MAX:,}, {thread.SHOWN_BYTES_MAX:,} bytes"),
        (
            "frames that wait for a slow client",
            f"{control.QUEUE_BYTES_MAX:,} bytes, then it is closed with {control.TOO_SLOW}",
        ),
        ("threads kept on disk", f"{history.KEPT_MAX:,}"),
    ]
    return _table(("what", "at most"), rows)


PARTS: dict[str, Callable[[], str]] = {
    "configuration keys": configuration,
    "usage readings": usage_readings,
    "refusal signals": refusal_signals,
    "overflow signals": overflow_signals,
    "dropped fields": generated_translation.dropped,
    "refused fields": generated_translation.refused,
    "provider presets": generated_translation.presets,
    "control methods": control_methods,
    "control errors": control_errors,
    "control limits": control_limits,
    "worked timelines": documented.worked_timelines,
    "wanted otherwise": documented.wanted_otherwise,
}


def rendered(text: str) -> str:
    """Return a document with its generated parts written anew."""

    def put(match: re.Match[str]) -> str:
        return match.group(1) + PARTS[match.group("name")]() + match.group(3)

    return _PART.sub(put, text)


def main() -> None:
    """Write the generated parts of every document."""
    for path in sorted(DOCS.glob("*.md")):
        text = path.read_text("utf-8")
        if rendered(text) != text:
            path.write_text(rendered(text), "utf-8")
            print(f"wrote {path.name}")  # noqa: T201 -- a script says what it did


if __name__ == "__main__":
    main()
