"""Words for what upstreams do differently."""

from pathlib import Path

from cachegate.wire import quirks
from cachegate.wire.quirks import Quirk


def test_every_word_is_used_by_a_renderer() -> None:
    wire = Path(quirks.__file__).parent
    sources = "".join(path.read_text("utf-8") for path in wire.rglob("*.py") if path.name != "quirks.py")
    assert [quirk.name for quirk in Quirk if f"Quirk.{quirk.name}" not in sources] == []
