"""An isolated environment under the root: the locked requirements, and a wheel of ours."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

from cache_recovery.asked import Asked, Refused, installed_python
from cache_recovery.children import Surroundings

Tell = Callable[[str], None]


async def gateway_python(asked: Asked, around: Surroundings, tell: Tell) -> Path:
    """Return the Python of the package to verify: the installed one, or a new one of the checkout. Raises Refused."""
    if asked.package is not None:
        return asked.package
    folder, locked = around.root / "environment", asked.code / "requirements" / "run.txt"
    tell(f"installing the locked requirements into {folder}")
    await _must(around, "make an environment", sys.executable, "-m", "venv", folder)
    python = installed_python(folder)
    await _must(around, f"install {locked}", *_pip(python, "install"), "--require-hashes", "-r", locked)
    wheel = await _built_wheel(asked.code, python, around, tell)
    await _must(around, f"install {wheel}", *_pip(python, "install"), "--no-deps", wheel)
    return python


async def version_of(python: Path, around: Surroundings) -> str:
    """Return the version of the Cachegate that a Python has. Raises Refused when it has none."""
    code, told = await around.run(python, "-I", "-c", "import cachegate; print(cachegate.__version__)", output=-1)
    if code:
        raise Refused(f"{python} has no installed Cachegate: {_last_line(told)}")
    return told.strip()


async def _built_wheel(code: Path, python: Path, around: Surroundings, tell: Tell) -> Path:
    """Build with the tools of the lock, so that nothing is fetched that has no hash."""
    tell(f"building a wheel of {code}")
    folder = around.root / "wheel"
    words = (*_pip(python, "wheel"), "--no-deps", "--no-build-isolation", "--wheel-dir", folder, code)
    await _must(around, f"build a wheel of {code}", *words)
    return next(iter(folder.glob("*.whl")))


def _pip(python: Path, command: str) -> tuple[str | Path, ...]:
    return (python, "-m", "pip", command, "--quiet", "--disable-pip-version-check", "--no-cache-dir")


def _pip_environment() -> dict[str, str]:
    """Return how this machine reaches packages: pip's own settings are the person's, and so is the proxy."""
    names = [name for name in os.environ if name.startswith("PIP_") or name.lower().endswith("_proxy")]
    return {name: os.environ[name] for name in (*names, "HOME") if name in os.environ}


async def _must(around: Surroundings, what: str, *words: str | Path) -> None:
    code, told = await around.run(*words, more=_pip_environment(), output=-1)
    if code:
        raise Refused(f"Could not {what}: {_last_line(told)}")


def _last_line(told: str) -> str:
    return (told.strip().splitlines() or ["it said nothing"])[-1]
