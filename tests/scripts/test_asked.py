"""The command line of the recovery verification refuses, before anything is started, what cannot be meant."""

import os
import sys
from pathlib import Path

import pytest

from cache_recovery.asked import Refused, asked, installed_python

CODE = Path(__file__).parent.parent.parent


def arguments(root: Path, *more: str) -> list[str]:
    return ["--code", str(CODE), "--root", str(root), *more]


def test_a_new_root_is_made_and_all_paths_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told = asked(["--code", os.path.relpath(CODE), "--root", "run", "--sdk", sys.executable])
    assert told.root == tmp_path / "run"
    assert told.root.is_dir()
    assert told.code.samefile(CODE)
    assert told.code.is_absolute()
    assert (told.package, told.sdk) == (None, Path(sys.executable))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--sdk", "bin/codex"], "--sdk bin/codex is relative. Give its absolute path"),
        (["--sdk", "/nowhere/codex"], "--sdk /nowhere/codex does not exist"),
        (["--package", "/nowhere"], "--package /nowhere is no installed package. Name a virtual environment"),
        (["--package", str(CODE / "src" / "cachegate")], "is no installed package"),
        (["--package", str(CODE / "README.md")], "is no installed package"),
        (["--code", "/"], "--code / is no checkout of Cachegate: it has no pyproject.toml"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_no_root_is_made(tmp_path: Path, more: list[str], words: str) -> None:
    with pytest.raises(Refused) as refused:
        asked(arguments(tmp_path / "run", *more))
    assert words in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_a_root_that_holds_something_is_refused_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("")
    with pytest.raises(Refused, match=r"is not empty: it holds thesis.txt\. Name a new folder"):
        asked(arguments(tmp_path))


def test_a_root_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Refused, match="cannot be used: File exists"):
        asked(arguments(tmp_path / "file"))


def test_a_root_that_may_not_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The superuser may write everywhere, so the system's answer is what this test sets.
    monkeypatch.setattr(os, "access", lambda path, _mode: Path(path) != tmp_path)
    with pytest.raises(Refused, match=r"cannot be written\. Name a folder that you may write"):
        asked(arguments(tmp_path))


def test_an_installed_package_is_found_by_each_of_its_names(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    package = tmp_path / "lib" / "python3.11" / "site-packages" / "cachegate"
    python.parent.mkdir()
    package.mkdir(parents=True)
    python.symlink_to(sys.executable)
    (package / "__init__.py").write_text("")
    assert [installed_python(name) for name in (python, tmp_path, package)] == [python] * 3
