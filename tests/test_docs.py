"""Documents that fail the build when they lie."""

import re
from pathlib import Path
from typing import get_args

import pytest
from typer.main import get_command

from cachegate import __version__
from cachegate.assembly import LOCAL_PAUSES
from cachegate.cli import cli
from cachegate.config import Config
from cachegate.guard.machine import Outcome, Reason
from cachegate.guard.policy import Policy
from cachegate.observe.diagnostics import RECORDS_MAX
from cachegate.providers.synthetic import WORDS
from cachegate.runtime_directory import DIGEST_KEY
from cachegate.server.app import App, Routes
from cachegate.stores.file_lock import WAIT_S
from cachegate.stores.local import TEND_S
from cachegate.stores.owners import PREFIX
from cachegate.stores.runtime_database import ASIDE, DATABASE, LOCK
from cachegate.wire import sessions
from cachegate.wire.protocols import PATHS
from generated_docs import DOCS, rendered

ROOT = DOCS.parent
DOCUMENTS = sorted([*DOCS.glob("*.md"), *ROOT.glob("*.md")])


@pytest.mark.parametrize("path", sorted(DOCS.glob("*.md")), ids=lambda path: str(path.name))
def test_generated_parts_are_as_the_code_says(path: Path) -> None:
    text = path.read_text("utf-8")
    assert rendered(text) == text, "run scripts/docs"


@pytest.mark.parametrize("name", ["README.md", "ARCHITECTURE.md"])
def test_the_first_documents_stay_short(name: str) -> None:
    assert len((ROOT / name).read_text("utf-8").splitlines()) <= 150


def test_every_command_stands_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    commands = get_command(cli).commands  # type: ignore[attr-defined]
    assert [name for name in commands if f"`cachegate {name}" not in readme] == []


def test_every_route_is_documented() -> None:
    text = (DOCS / "http.md").read_text("utf-8")
    source = (ROOT / "src/cachegate/server/app.py").read_text("utf-8")
    routes = {*PATHS, *re.findall(r'"(/[a-z/0-9]*)": self\._', source)}
    assert len(routes) > len(PATHS)
    assert [route for route in routes if f"`{route}`" not in text] == []
    assert {App, Routes}, "the routes are read from the source of these"


def test_every_word_of_the_embedded_provider_is_documented() -> None:
    text = (DOCS / "synthetic.md").read_text("utf-8")
    assert [word for word in WORDS if f"`{word}`" not in text] == []


def test_every_outcome_and_reason_is_documented() -> None:
    text = (DOCS / "guard.md").read_text("utf-8")
    assert [word for word in (*Outcome, *Reason) if f"`{word}`" not in text] == [Reason.CLEAR], "never recorded"


@pytest.mark.parametrize("reason", sessions.Reason)
def test_every_reason_for_which_a_session_is_rebuilt_is_documented(reason: sessions.Reason) -> None:
    tables = [(DOCS / name).read_text("utf-8") for name in ("copilot.md", "claude.md")]
    rows = [line for text in tables for line in text.splitlines() if line.startswith("| `")]
    assert any(f"`{reason}`" in row.split("|")[1] for row in rows)


def test_the_state_is_documented_with_its_places_files_and_limits() -> None:
    text = (DOCS / "state.md").read_text("utf-8")
    rows = {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("| `")}
    places = get_args(Config.model_fields["state"].annotation)
    files = (DATABASE, LOCK, f"{PREFIX}…", DIGEST_KEY, ASIDE)
    assert [name for name in (*places, *files) if f"`{name}`" not in " ".join(rows)] == []
    default = Config.model_fields["state"].default
    assert f"`{default}` (the default)" in rows
    policy = Policy()
    for figure in (
        f"{policy.entries_max:,} (`cacheGuard.entriesMax`)",
        f"| {RECORDS_MAX} |",
        f"every {round(TEND_S * 1000)} ms",
        f"{round(WAIT_S * 1000)} ms at most",
        f"after {LOCAL_PAUSES.pause_ms // 1000}, then 2, then every {LOCAL_PAUSES.pause_ms_max // 1000} seconds",
    ):
        assert figure in text


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.name))
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text("utf-8")):
        assert (path.parent / target).exists(), target


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.name))
def test_files_that_are_named_exist(path: Path) -> None:
    pattern = r"`((?:src|tests|docs|scripts|benchmarks|requirements)/[\w./-]+)`"
    for named in re.findall(pattern, path.read_text("utf-8")):
        assert (ROOT / named).exists(), named


def test_the_changelog_knows_the_version() -> None:
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert headings[0] == __version__


def test_the_architecture_names_every_module() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    source = ROOT / "src" / "cachegate"
    named = [path for path in source.rglob("*.py") if path.parent in {source, source / "guard", source / "server"}]
    assert [path.name for path in named if not path.name.startswith("__") and f"`{path.name}`" not in text] == []
