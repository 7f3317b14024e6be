"""The recovery verification as a person runs it, on our SDK and on the real Codex and Claude Code."""

import asyncio
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cache_recovery.steps import RECOVERY, steps
from clients.real_clients import claude_binary, codex_binary

CODE = Path(__file__).parent.parent.parent
PROGRAM = CODE / "scripts" / "e2e_cache_recovery.py"
NAMES = [step.name for step in steps(reloaded=False)]
_DEADLINE_S = 240.0
"""A build installs some packages; every other run needs a few seconds."""


@dataclass(frozen=True, slots=True)
class Run:
    """A verification that came to its end."""

    root: Path
    exit_code: int
    told: str

    @property
    def report(self) -> Any:
        return json.loads((self.root / "report.json").read_text())

    @property
    def statuses(self) -> dict[str, str]:
        return {scenario["name"]: scenario["status"] for scenario in self.report["scenarios"]}


def command(root: Path, *more: str | Path) -> list[str]:
    return [sys.executable, str(PROGRAM), "--code", str(CODE), "--root", str(root), *map(str, more)]


def run(root: Path, *more: str | Path) -> Run:
    done = subprocess.run(
        command(root, *more), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=_DEADLINE_S, check=False
    )
    return Run(root, done.returncode, done.stdout.decode())


def left_running(root: Path) -> list[str]:
    """Return the command lines of living programs that were started under a root: its name is in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            mentions = str(root).encode() in (process / "environ").read_bytes()
            command_line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if mentions and command_line:
            found.append(command_line)
    return found


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Build and install the checkout once for all workers, and verify our SDK with it."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    root, told = shared / "recovery", shared / "recovery.json"
    with (shared / "recovery.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not told.exists():
            done = run(root)
            told.write_text(json.dumps([done.exit_code, done.told]))
        exit_code, words = json.loads(told.read_text())
    if "Could not install" in words and os.environ.get("CI") != "true":
        pytest.skip(f"the locked requirements cannot be fetched here: {words}")
    return Run(root, exit_code, words)


@pytest.fixture
def package(built: Run) -> Path:
    return built.root / "environment"


def test_the_built_package_recovers_through_our_sdk(built: Run) -> None:
    assert built.exit_code == 0, built.told
    assert built.statuses | {"over the control socket": "", "after a reload in place": ""} == {
        "unstreamed": "seen",
        "streamed": "seen",
        "over the control socket": "",
        "after a reload in place": "",
        "usage not reported": "seen",
    }
    for scenario in built.report["scenarios"]:
        assert scenario["status"] in {"seen", "not in this build"}
        if scenario["status"] == "seen" and "reload" not in scenario["name"]:
            assert [step["name"] for step in scenario["steps"]] == NAMES
            assert built.told.count(f"\n{scenario['name']}: seen: ") == len(NAMES), "one line for each step"
        else:
            assert f"{scenario['name']}: " in built.told
    assert built.report["exit_code"] == 0
    assert built.report["exit_reason"] == "every step was seen"
    assert set(built.report["versions"]) == {"gateway", "sdk", "python"}
    assert "not in this build" in built.told or set(built.statuses.values()) == {"seen"}
    assert left_running(built.root) == []


@pytest.mark.clients
@pytest.mark.parametrize(("kind", "find"), [("codex", codex_binary), ("claude", claude_binary)])
def test_a_real_agent_recovers(kind: str, find: Any, package: Path, tmp_path: Path) -> None:
    program = find()
    if program is None:
        assert os.environ.get("CI") != "true", "npm ci --prefix tests/clients/npm"
        pytest.skip(f"{kind} is not installed: run `npm ci --prefix tests/clients/npm`")
    done = run(tmp_path / "run", "--package", package, "--sdk", program)
    assert done.exit_code == 0, done.told
    assert done.statuses["streamed"] == done.statuses["usage not reported"] == "seen"
    assert set(done.statuses) == {"streamed", "after a reload in place", "usage not reported"}
    assert kind in done.report["versions"]
    assert [step["name"] for step in done.report["scenarios"][0]["steps"]] == NAMES
    assert left_running(done.root) == []


def test_a_wheel_and_an_unpackaged_folder_of_ours_are_candidates(built: Run, package: Path, tmp_path: Path) -> None:
    wheel = next((built.root / "wheel").glob("*.whl"))
    for name, candidate in (("folder", CODE), ("wheel", wheel), ("installed", package)):
        done = run(tmp_path / name, "--package", package, "--sdk", candidate)
        assert done.exit_code == 0, done.told
        assert done.statuses["streamed"] == "seen"
    (tmp_path / "not.whl").write_text("")
    refused = run(tmp_path / "refused", "--package", package, "--sdk", tmp_path / "not.whl")
    assert (refused.exit_code, "is no wheel" in refused.told) == (2, True)
    assert "not packaged" in json.loads((tmp_path / "folder" / "report.json").read_text())["versions"]["sdk"]


def test_a_step_that_is_not_seen_ends_the_run_with_its_reason(package: Path, tmp_path: Path) -> None:
    """An SDK that compacts by itself when it is stopped is what this verification is there for."""
    shutil.copytree(CODE / "src" / "cachegate", tmp_path / "sdk" / "cachegate")
    with (tmp_path / "sdk" / "cachegate" / "sdk" / "chat.py").open("a") as chat:
        chat.write(_COMPACTS_BY_ITSELF)
    done = run(tmp_path / "run", "--package", package, "--sdk", tmp_path / "sdk")
    assert done.exit_code == 1, done.told
    assert done.statuses == {"unstreamed": "not seen"}, "nothing is played after it"
    last = done.report["scenarios"][0]["steps"][-1]
    assert last["name"] == RECOVERY[0].name
    assert not last["seen"]
    assert "unstreamed: NOT SEEN: the third is stopped" in done.told
    assert done.report["exit_reason"] == f"unstreamed: {last['problem']}"
    assert left_running(done.root) == []


_COMPACTS_BY_ITSELF = """

_honest_send = AsyncChat.send


async def _send(self, said):
    try:
        return await _honest_send(self, said)
    except CacheStop:
        await self.compact()
        return await _honest_send(self, said)


AsyncChat.send = _send
"""


def test_what_is_no_candidate_is_refused_with_a_report(package: Path, tmp_path: Path) -> None:
    done = run(tmp_path / "run", "--package", package, "--sdk", Path("/bin/cat"))
    assert done.exit_code == 2
    assert "Name Codex, Claude Code, or a wheel or folder of ours" in done.told
    assert done.report["exit_code"] == 2
    assert done.report["scenarios"] == []
    bare = run(tmp_path / "bare", "--package", sys.base_prefix + "/bin/python3")
    assert bare.exit_code == 2
    assert "has no installed Cachegate" in bare.told


@asynccontextmanager
async def begun(line: bytes, root: Path, *more: str | Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a verification and wait until it prints a line."""
    process = await asyncio.create_subprocess_exec(
        *command(root, *more), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(_DEADLINE_S):
            heard = [await process.stdout.readline()]
            while line not in heard[-1]:
                assert heard[-1], f"it ended before it came so far: {b''.join(heard).decode()}"
                heard.append(await process.stdout.readline())
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_in_the_middle_leaves_nothing_running_but_a_report(
    package: Path, tmp_path: Path, number: signal.Signals
) -> None:
    root = tmp_path / "run"
    async with begun(b": seen: a first cold call", root, "--package", package) as process:
        assert left_running(root) != [], "the gateway runs while the signal comes"
        process.send_signal(number)
        async with asyncio.timeout(_DEADLINE_S):
            await process.wait()
    assert process.returncode == 128 + number
    report = Run(root, process.returncode, "").report
    assert (report["exit_code"], report["exit_reason"]) == (128 + number, f"stopped by {number.name}")
    assert report["scenarios"][-1]["status"] != "running"
    assert left_running(root) == []
    assert [path for path in (root / "tmp").rglob("*") if not path.is_dir()] == []


async def test_a_signal_while_it_installs_ends_the_installation(tmp_path: Path) -> None:
    root = tmp_path / "run"
    async with begun(b"installing the locked requirements", root) as process:
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(_DEADLINE_S):
            await process.wait()
    assert process.returncode == 128 + signal.SIGTERM
    assert Run(root, process.returncode, "").report["exit_reason"] == "stopped by SIGTERM"
    assert left_running(root) == []
