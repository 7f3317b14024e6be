"""Who drives the gateway: our own SDK, or the candidate that the command line names."""

import json
import os
import zipfile
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from cache_recovery.asked import Asked, Refused, installed_python
from cache_recovery.children import Surroundings
from cache_recovery.environment import version_of


class Kind(StrEnum):
    """The kinds of clients that have a driver here."""

    SDK = "sdk"
    CODEX = "codex"
    CLAUDE = "claude"


_VERSIONS = {Kind.CODEX: "codex-cli", Kind.CLAUDE: "(Claude Code)"}
"""What a program says to `--version`, besides its number."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A client, as far as it is known before it runs."""

    kind: Kind
    version: str
    python: Path
    """What runs the second stage, and so the SDK."""
    program: Path | None = None
    """The coding agent."""
    source: Path | None = None
    """The folder of an SDK that is not the package's."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the second stage needs to know, as it travels there."""

    root: str
    gateway_python: str
    kind: str
    program: str
    source: str
    versions: dict[str, str]

    def written(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> "Plan":
        """Read what `written` wrote."""
        return cls(**json.loads(text))


async def recognised(asked: Asked, gateway_python: Path, around: Surroundings) -> Candidate:
    """Say what is to be driven. Raises Refused for what has no driver."""
    sdk = asked.sdk
    if sdk is None:
        return Candidate(Kind.SDK, await version_of(gateway_python, around), gateway_python)
    if sdk.suffix == ".whl":
        return Candidate(Kind.SDK, sdk.name, gateway_python, source=_unpacked(sdk, around.root / "candidate"))
    if sdk.is_dir():
        return await _folder(sdk, gateway_python, around)
    if not os.access(sdk, os.X_OK):
        raise Refused(f"--sdk {sdk} is neither a program, nor a wheel, nor a folder with cachegate/sdk.")
    _, told = await around.run(sdk, "--version", output=-1)
    version = (told.strip().splitlines() or [""])[0]
    kind = next((kind for kind, mark in _VERSIONS.items() if mark in version), None)
    if kind is None:
        raise Refused(
            f"--sdk {sdk} says {version[:100]!r} to --version. Name Codex, Claude Code, or a wheel or folder of ours."
        )
    return Candidate(kind, version, gateway_python, program=sdk)


def _unpacked(wheel: Path, folder: Path) -> Path:
    """Unpack a wheel of ours: it is pure Python, and what its SDK needs is in the package's environment."""
    try:
        with zipfile.ZipFile(wheel) as files:
            files.extractall(folder)
    except (OSError, zipfile.BadZipFile) as error:
        raise Refused(f"--sdk {wheel} is no wheel: {error}") from None
    return folder


async def _folder(sdk: Path, gateway_python: Path, around: Surroundings) -> Candidate:
    """Take a folder as an SDK that was not packaged yet, or as an installed package."""
    source = next((place for place in (sdk, sdk / "src") if (place / "cachegate/sdk/__init__.py").is_file()), None)
    if source is not None:
        return Candidate(Kind.SDK, f"not packaged: {source}", gateway_python, source=source)
    python = installed_python(sdk)
    return Candidate(Kind.SDK, await version_of(python, around), python)
