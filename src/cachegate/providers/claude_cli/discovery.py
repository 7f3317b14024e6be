"""Finds Claude Code's program on this machine, and says whether this gateway can work with its version."""

import asyncio
import importlib.util
import os
import re
import shutil
import signal
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cachegate.errors import UpstreamError

Version = tuple[int, int, int]

VERSION_MIN: Version = (2, 1, 248)
"""The first that takes a message as it is, without expanding commands and paths in it."""
TESTED: frozenset[Version] = frozenset({(2, 1, 332)})
"""What a live session rests on is documented in part only, so each version is tried before it stands here."""
VERSION_S = 15.0
"""For the program to say its version; it takes a fraction of a second."""

_NAME = "claude"
_USUAL_PLACES = (
    "~/.npm-global/bin", "/usr/local/bin", "~/.local/bin", "~/node_modules/.bin", "~/.yarn/bin", "~/.claude/local",
)  # fmt: skip
_SDK = "claude_agent_sdk"
_PRINTED = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_KEPT_VARIABLES = ("PATH", "HOME", "LANG", "SYSTEMROOT")
"""What the program gets of our environment to say its version: a wrapper may have to find its interpreter."""


@dataclass(frozen=True, slots=True)
class Found:
    """A program that this gateway can work with."""

    path: str
    version: Version
    warning: str = ""
    """What the person should know about it."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A program, and what it printed when it was asked for its version; None when it said nothing in time."""

    path: str
    printed: str | None


async def find_program(configured: str | None) -> Found:
    """Return the configured program, or the first usable one where installers put it. Raises UpstreamError.

    What is configured is taken or refused, never replaced by another.
    """
    places = (configured,) if configured is not None else usual_places()
    asked: list[Candidate] = []
    for place in places:
        path = _program_at(place)
        if path is None or any(path == candidate.path for candidate in asked):
            continue
        candidate = Candidate(path, await _printed(path))
        if _refusal(candidate) is None:
            return chosen(configured, (candidate,))
        asked.append(candidate)
    return chosen(configured, asked)


def usual_places() -> tuple[str, ...]:
    """Return where the program may be, the likeliest first: the PATH, installers' folders, Anthropic's SDK."""
    spec = importlib.util.find_spec(_SDK)  # finds the package and does not import it
    bundles = spec.submodule_search_locations if spec is not None else None
    return (
        _NAME,
        *(f"{folder}/{_NAME}" for folder in _USUAL_PLACES),
        *(str(Path(bundle) / "_bundled" / _NAME) for bundle in bundles or ()),
    )


def _program_at(place: str) -> str | None:
    """Return the whole path of a program, for a session works in another folder. Links stay as they are."""
    program = shutil.which(Path(place).expanduser())
    return None if program is None else str(Path(program).absolute())


def chosen(configured: str | None, candidates: Iterable[Candidate]) -> Found:
    """Return the first usable candidate. Raises UpstreamError, saying why each is not."""
    refusals: list[str] = []
    for candidate in candidates:
        refusal, version = _refusal(candidate), parsed(candidate.printed)
        if refusal is None and version is not None:
            return Found(candidate.path, version, _warning(version))
        refusals.append(refusal or "")
    wanted = f"of version {spelled(VERSION_MIN)} or later"
    if refusals:
        raise UpstreamError(f"{' '.join(refusals)} Claude Code {wanted} is needed: update it.")
    where = "anywhere that installers put it" if configured is None else f"at {configured!r}"
    raise UpstreamError(
        f"Claude Code's program was not found {where}. Install Claude Code {wanted}, or configure where its program is."
    )


def parsed(printed: str | None) -> Version | None:
    """Return the version that the program printed, as in `2.1.332 (Claude Code)`."""
    match = _PRINTED.match((printed or "").strip())
    if match is None:
        return None
    major, minor, patch = (int(number) for number in match.groups())
    return major, minor, patch


def spelled(version: Version) -> str:
    """Return a version as people write it."""
    return ".".join(map(str, version))


def _refusal(candidate: Candidate) -> str | None:
    """Return why a program cannot be used; None for one that can."""
    version = parsed(candidate.printed)
    if candidate.printed is None:
        return f"{candidate.path} did not say its version within {VERSION_S:g} s."
    if version is None:
        return f"{candidate.path} says no version that Claude Code has: {candidate.printed.strip()[:80]!r}."
    if version < VERSION_MIN:
        return f"{candidate.path} is of version {spelled(version)}, which is too old."
    return None


def _warning(version: Version) -> str:
    if version in TESTED:
        return ""
    tested = ", ".join(map(spelled, sorted(TESTED)))
    return (
        f"Claude Code {spelled(version)} has not been tried with this gateway (tried: {tested}). "
        "`cachegate doctor` sees whether live sessions work with it."
    )


async def _printed(path: str) -> str | None:
    environ = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    try:
        process = await asyncio.create_subprocess_exec(
            path,
            "--version",
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=DEVNULL,
            env={**environ, "DISABLE_AUTOUPDATER": "1"},
            start_new_session=True,  # a wrapper and what it starts are ended together
        )
    except OSError:
        return ""
    told: bytes | None = None
    try:
        async with asyncio.timeout(VERSION_S):
            told, _ = await process.communicate()
    except TimeoutError:
        return None
    finally:
        if told is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return told.decode("utf-8", "replace")
