"""The parts of docs/translation.md and docs/providers.md that are written from the tables of the code."""

from collections.abc import Mapping

from cachegate.providers.presets import PRESETS
from cachegate.wire.chat import request_parser as chat_parser
from cachegate.wire.chat import request_renderer as chat_renderer
from cachegate.wire.copilot import setup as copilot_setup
from cachegate.wire.messages import content_parser
from cachegate.wire.messages import request_parser as messages_parser
from cachegate.wire.messages import request_renderer as messages_renderer
from cachegate.wire.responses import item_parser
from cachegate.wire.responses import request_parser as responses_parser
from cachegate.wire.responses import request_renderer as responses_renderer

Table = tuple[str, Mapping[str, str]]

DROPPED: tuple[Table, ...] = (
    ("From a Messages request", {**messages_parser.DROPPED, **content_parser.DROPPED_BLOCKS}),
    ("From a Responses request", {**responses_parser.DROPPED, **item_parser.DROPPED_ITEMS}),
    ("From a Chat request", chat_parser.DROPPED),
    ("Towards a Messages upstream", messages_renderer.DROPPED),
    ("Towards a Responses upstream", responses_renderer.DROPPED),
    ("Towards a Chat upstream", chat_renderer.DROPPED),
    ("Towards a session of GitHub Copilot", copilot_setup.DROPPED),
)
REFUSED: tuple[Table, ...] = (
    ("In a Messages request", {**messages_parser.REFUSED, **content_parser.REFUSED}),
    ("In a Responses request", responses_parser.REFUSED),
    ("In a Chat request", chat_parser.REFUSED),
)


def _tables(tables: tuple[Table, ...]) -> str:
    lines: list[str] = []
    for title, rows in tables:
        lines += [f"### {title}", "", "| what | why |", "|---|---|"]
        lines += [f"| {name.replace('|', ' ')} | {reason} |" for name, reason in rows.items()]
        lines.append("")
    return "\n".join(lines)


def dropped() -> str:
    """What a translation leaves out, and why that does no harm."""
    return _tables(DROPPED)


def refused() -> str:
    """What a translation refuses, and what to do instead."""
    return _tables(REFUSED)


def presets() -> str:
    """Every kind of provider."""
    lines = ["| kind | speaks | key from the environment | usual address |", "|---|---|---|---|"]
    for kind, preset in PRESETS.items():
        speaks = ", ".join(dict.fromkeys(protocol.value for protocol, _ in preset.paths))
        key = f"`{preset.key_variable}`" if preset.key_variable else ""
        lines.append(f"| `{kind}` | {speaks} | {key} | {preset.base_url or '(give `baseUrl`)'} |")
    return "\n".join([*lines, ""])
