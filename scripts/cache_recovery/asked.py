"""The command line: what is to be verified, checked before anything is started."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


class Refused(Exception):  # noqa: N818 -- it reads as what it is
    """What was asked for cannot be done; the message says what is wrong and what helps."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A checked command line; all paths are absolute."""

    code: Path
    root: Path
    package: Path | None
    """None: build and install a wheel of the checkout."""
    sdk: Path | None
    """None: the package's own SDK."""


def asked(arguments: Sequence[str]) -> Asked:
    """Read the command line and make the root. Raises Refused; exits as argparse does for unknown options."""
    parser = argparse.ArgumentParser(prog="e2e_cache_recovery.py", description=__doc__.partition("\n")[0])
    parser.add_argument("--code", required=True, type=Path, help="the checkout")
    parser.add_argument("--root", required=True, type=Path, help="a new or empty folder; nothing is written elsewhere")
    parser.add_argument("--package", type=Path, help="an installed package; otherwise a wheel is built and installed")
    parser.add_argument("--sdk", type=Path, help="absolute path of Codex, Claude Code, or a wheel or folder of ours")
    told = parser.parse_args(arguments)
    code = _checkout(told.code.absolute())
    sdk = None if told.sdk is None else _candidate(told.sdk)
    package = None if told.package is None else installed_python(told.package.absolute())
    return Asked(code, _empty(told.root.absolute()), package, sdk)


def installed_python(path: Path) -> Path:
    """Return the Python of an installed package: named itself, or by its environment or its folder in there.

    Raises Refused when there is none.
    """
    if path.is_file() and os.access(path, os.X_OK):
        return path
    places = (path, *path.parents) if path.is_dir() and (path / "__init__.py").is_file() else (path,)
    found = next((python for place in places if (python := place / "bin" / "python").is_file()), None)
    if found is None:
        raise Refused(
            f"--package {path} is no installed package. Name a virtual environment, its python, or its "
            "site-packages/cachegate; or leave --package out to build and install the checkout."
        )
    return found


def _checkout(path: Path) -> Path:
    wanted = ("pyproject.toml", "requirements/run.txt", "src/cachegate/__init__.py", "tests/gateway_program.py")
    missing = next((name for name in wanted if not (path / name).is_file()), None)
    if missing is not None:
        raise Refused(f"--code {path} is no checkout of Cachegate: it has no {missing}.")
    return path


def _candidate(path: Path) -> Path:
    if not path.is_absolute():
        raise Refused(f"--sdk {path} is relative. Give its absolute path, so that it is clear which one is verified.")
    if not path.exists():
        raise Refused(f"--sdk {path} does not exist.")
    return path


def _empty(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
        held = next(iter(sorted(path.iterdir())), None)
    except OSError as error:
        raise Refused(f"--root {path} cannot be used: {error.strerror}. Name a folder that you may write.") from None
    if held is not None:
        raise Refused(f"--root {path} is not empty: it holds {held.name}. Name a new folder.")
    if not os.access(path, os.W_OK | os.X_OK):
        raise Refused(f"--root {path} cannot be written. Name a folder that you may write.")
    return path
