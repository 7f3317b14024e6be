"""Where the program is looked for, which one is taken, and what is said about the others."""

import asyncio
import os
from pathlib import Path

import pytest

from cachegate.errors import UpstreamError
from cachegate.providers.claude_cli import discovery
from cachegate.providers.claude_cli.discovery import Candidate, Found, chosen, find_program, parsed, spelled

GOOD, OLD, OTHER = "2.1.332 (Claude Code)", "2.1.247 (Claude Code)", "2.1.248 (Claude Code)"


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with nothing on its PATH, and one place of installers."""
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(discovery, "_USUAL_PLACES", ("~/.local/bin",))
    return tmp_path


def program(path: Path, *lines: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(("#!/bin/sh", *lines)) + "\n")
    path.chmod(0o755)
    return str(path)


def saying(path: Path, version: str) -> str:
    return program(path, f'[ "$1" = --version ] && echo "{version}"')


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        (GOOD, (2, 1, 332)),
        ("10.20.30\n", (10, 20, 30)),
        ("  3.0.0-beta.1", (3, 0, 0)),
        ("claude 2.1.332", None),
        ("2.1", None),
        ("", None),
        (None, None),
    ],
)
def test_a_version_is_read_as_the_program_prints_it(printed: str | None, version: tuple[int, int, int] | None) -> None:
    assert parsed(printed) == version


def test_the_first_usable_program_is_taken() -> None:
    candidates = [Candidate("/a", None), Candidate("/b", "Node 20"), Candidate("/c", OLD), Candidate("/d", GOOD)]
    assert chosen(None, [*candidates, Candidate("/e", OTHER)]) == Found("/d", (2, 1, 332))


def test_a_version_that_was_never_tried_comes_with_a_warning() -> None:
    found = chosen(None, [Candidate("/a", OTHER)])
    assert found.version == discovery.VERSION_MIN
    assert "2.1.248 has not been tried with this gateway (tried: 2.1.332)" in found.warning
    assert "cachegate doctor" in found.warning


def test_it_says_why_each_program_is_of_no_use() -> None:
    with pytest.raises(UpstreamError) as failed:
        chosen(None, [Candidate("/a", None), Candidate("/b", "Node 20" * 50), Candidate("/c", OLD)])
    assert "/a did not say its version within 15 s." in failed.value.message
    assert "/b says no version that Claude Code has: 'Node 20Node" in failed.value.message
    assert "/c is of version 2.1.247, which is too old." in failed.value.message
    assert failed.value.message.endswith("Claude Code of version 2.1.248 or later is needed: update it.")
    assert len(failed.value.message) < 400


@pytest.mark.parametrize(("configured", "where"), [(None, "anywhere that installers"), ("/no/claude", "'/no/claude'")])
async def test_it_says_that_there_is_none(configured: str | None, where: str) -> None:
    with pytest.raises(UpstreamError, match=f"not found .*{where}.* Install Claude Code of version 2.1.248 or later"):
        await find_program(configured)


async def test_the_path_comes_first_then_what_installers_use(places: Path) -> None:
    usual = saying(places / "home/.local/bin/claude", GOOD)
    assert (await find_program(None)).path == usual
    first = saying(places / "path/claude", OTHER)
    found = await find_program(None)
    assert (found.path, spelled(found.version)) == (first, "2.1.248")
    saying(places / "path/claude", OLD)
    assert (await find_program(None)).path == usual, "an old one does not hide a good one"


async def test_the_sdks_own_program_is_found_and_its_package_not_imported(
    places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = places / "packages/claude_agent_sdk"
    bundled = saying(package / "_bundled/claude", GOOD)
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    monkeypatch.syspath_prepend(str(places / "packages"))
    assert (await find_program(None)).path == bundled


async def test_what_is_configured_is_taken_or_refused(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saying(places / "path/claude", GOOD)
    own = saying(places / "home/own/claude-2", OTHER)
    assert (await find_program("~/own/claude-2")).path == own
    monkeypatch.chdir(places / "home")
    assert (await find_program("own/claude-2")).path == own, "a session works in another folder"
    saying(places / "path/claude-3", GOOD)
    assert (await find_program("claude-3")).path == str(places / "path/claude-3")
    saying(places / "home/own/claude-2", OLD)
    with pytest.raises(UpstreamError, match=r"claude-2 is of version 2\.1\.247, which is too old"):
        await find_program(own)


async def test_a_program_that_says_nothing_is_ended_with_all_that_it_started(
    places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "VERSION_S", 0.5)
    pipe = places / "pipe"
    os.mkfifo(pipe)
    held = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    silent = program(places / "claude", f"exec 3>{pipe}; /bin/sleep 1000 & wait")

    with pytest.raises(UpstreamError, match=r"did not say its version within 0\.5 s"):
        await find_program(silent)

    ended = asyncio.StreamReader()
    with os.fdopen(held, "rb") as reading:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(ended), reading)
        assert await asyncio.wait_for(ended.read(), 5) == b"", "the pipe ends with the last that holds it"
        transport.close()


@pytest.mark.parametrize("content", ["", "#!/no/such/interpreter\n"])
async def test_a_file_that_is_no_program_is_refused(places: Path, content: str) -> None:
    broken = places / "claude"
    broken.write_text(content)
    broken.chmod(0o755)
    with pytest.raises(UpstreamError, match="says no version that Claude Code has: ''"):
        await find_program(str(broken))


async def test_it_is_asked_without_our_keys(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    asked = program(places / "claude", f'/usr/bin/env > {places}/environ; echo "{GOOD}"; exit 0')
    await find_program(asked)
    environ = (places / "environ").read_text()
    assert f"HOME={os.environ['HOME']}" in environ
    assert "secret" not in environ
