"""The parts of the documents that are written from the code, between `<!-- name -->` and `<!-- end -->`.

`scripts/docs` writes them; tests/test_docs.py fails when they lie.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo

from cachegate.config import (
    CacheGuardConfig,
    ClientConfig,
    Config,
    HttpProviderConfig,
    LimitsConfig,
    SyntheticProviderConfig,
)

DOCS = Path(__file__).parent.parent / "docs"
_PART = re.compile(r"(<!-- (?P<name>[a-z ]+) -->\n).*?(<!-- end -->)", re.DOTALL)

SECTIONS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("Top level", Config),
    ("Providers of kind `anthropic`, `openai` or `codex`", HttpProviderConfig),
    ("Providers of kind `synthetic`", SyntheticProviderConfig),
    ("`cacheGuard`", CacheGuardConfig),
    ("`limits`", LimitsConfig),
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


PARTS: dict[str, Callable[[], str]] = {"configuration keys": configuration}


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
