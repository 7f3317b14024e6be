"""The supervisor with real workers: life, death, signals. Upgrades stand in tests/upgrade/."""

import asyncio
import os
import pty
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.raw_clients import ask, connected, head_of, request

from cachegate.server.claim import Claim
from cachegate.server.supervisor import Settings, Supervisor
from supervised_program import CONFIG, short_runtime_directory, supervised_program, until

pytestmark = pytest.mark.skipif(os.name != "posix", reason="sockets are inherited on POSIX only")


def gone(pid: int) -> bool:
    """Tell whether a process has ended; one that nobody has reaped yet has."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def refused(port: int) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) != 0


async def all_gone(pids: list[int]) -> bool:
    return all(map(gone, pids))


async def test_workers_share_the_socket_and_the_status_shows_them(tmp_path: Path) -> None:
    async with supervised_program(tmp_path, CONFIG, "--workers", "2") as gateway:
        told = await gateway.status()
        assert (told["generation"], told["address"], told["pid"]) == (1, gateway.listen, gateway.process.pid)
        assert [worker["phase"] for worker in told["workers"]] == ["serving", "serving"]
        async with connected(gateway.port) as (reader, writer):
            writer.write(request("hang", stream=True))
            await head_of(reader)
            code, shown, _ = await gateway.command("status")
            assert code == 0
            assert "1 in flight" in shown
            assert shown.startswith(f"{gateway.listen}  serving  generation 1, up ")
        assert await gateway.stop() == 0
    assert gateway.log == [] or "cancelled" in gateway.log[0], "nothing to report of an ordinary life"
    assert not gateway.directory.exists(), "nothing is left behind"


async def test_a_killed_worker_is_replaced_and_the_port_answers_all_the_while(tmp_path: Path) -> None:
    async with supervised_program(tmp_path) as gateway:
        (worker,) = await gateway.workers()
        os.kill(worker, signal.SIGKILL)
        assert (await ask(gateway.port, "cache"))[0] == 200, "it waits in the backlog and is answered"
        (another,) = await gateway.workers()
        assert another != worker
        await gateway.logged("A worker was ended by SIGKILL; another one is started in its place.")


def test_the_end_of_a_line_that_is_heard_after_the_end_of_its_worker_is_no_news(tmp_path: Path) -> None:
    """Both can come with one look at what happened, in any order; workers that die together show it."""
    settings = Settings(1, "", str(tmp_path), (), (), (), (), log_json=False, quiet=False)
    Supervisor(settings, Claim(tmp_path, -1), None)._hear(1)


async def test_a_worker_that_ends_well_by_itself_is_replaced_too(tmp_path: Path) -> None:
    async with supervised_program(tmp_path) as gateway:
        (worker,) = await gateway.workers()
        os.kill(worker, signal.SIGTERM)
        await gateway.logged("A worker ended with exit code 0")
        assert (await ask(gateway.port, "cache"))[0] == 200


async def test_without_their_supervisor_workers_end_their_streams_and_free_the_port(tmp_path: Path) -> None:
    async with (
        supervised_program(tmp_path, CONFIG, "--workers", "2") as gateway,
        connected(gateway.port) as (reader, writer),
    ):
        pids = await gateway.workers()
        writer.write(request("slow", stream=True))
        await head_of(reader)
        gateway.process.kill()

        async def port_is_free() -> bool:
            return refused(gateway.port)

        await until(port_is_free, "the port to be free while a stream still runs")
        assert b"response.completed" in await asyncio.wait_for(reader.read(), 30)
        await until(lambda: all_gone(pids), "the workers to go")


async def test_a_terminals_ctrl_c_is_for_the_supervisor_alone(tmp_path: Path) -> None:
    """The terminal sends it to the whole group; workers that heard it too would cut at the first one."""
    async with supervised_program(tmp_path) as gateway, connected(gateway.port) as (reader, writer):
        writer.write(request("slow", stream=True))
        await head_of(reader)
        os.killpg(gateway.process.pid, signal.SIGINT)
        assert b"response.completed" in await asyncio.wait_for(reader.read(), 30)
        assert await asyncio.wait_for(gateway.process.wait(), 30) == 0
    assert gateway.printed[-1].startswith("Waiting for 1 running request;")


async def test_a_new_gateway_may_start_while_the_old_one_ends_its_streams(tmp_path: Path) -> None:
    (tmp_path / "next").mkdir()
    async with supervised_program(tmp_path) as gateway, connected(gateway.port) as (reader, writer):
        writer.write(request("hang", stream=True))
        await head_of(reader)
        gateway.process.send_signal(signal.SIGTERM)

        async def announced() -> bool:
            return gateway.printed[-1].startswith("Waiting for 1")

        await until(announced, "the old one to drain")
        config = CONFIG.replace(":0", f":{gateway.port}")
        runtime = gateway.environ["XDG_RUNTIME_DIR"]
        async with supervised_program(tmp_path / "next", config, XDG_RUNTIME_DIR=runtime) as successor:
            assert (await ask(successor.port, "cache"))[0] == 200
            assert await gateway.stop() == 0
            assert len(await successor.workers()) == 1, "the end of the old one takes nothing from the new one"


async def test_a_start_that_fails_in_the_worker_says_why_and_ends(tmp_path: Path) -> None:
    config = "listen: 127.0.0.1:0\nproviders: {c: {kind: copilot}}\n"
    hidden = tmp_path / "copilot"
    hidden.mkdir()
    (hidden / "__init__.py").write_text("raise ImportError('hidden for this test')")
    with short_runtime_directory() as runtime:
        (tmp_path / "c.yaml").write_text(config)
        paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "cachegate", "serve", "--config", str(tmp_path / "c.yaml")],
            env={**os.environ, "XDG_RUNTIME_DIR": runtime, "PYTHONPATH": paths},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stdout == ""
    assert "The gateway did not start: a worker says: the configuration:" in done.stderr
    assert "pip install 'cachegate[copilot]'" in done.stderr


async def test_a_closed_terminal_is_no_wish_for_an_upgrade(tmp_path: Path) -> None:
    """The kernel sends SIGHUP for both; who has lost the terminal is to end."""
    path = tmp_path / "c.yaml"
    path.write_text(CONFIG)
    with short_runtime_directory() as runtime:
        child, terminal = pty.fork()
        if child == 0:
            os.environ["XDG_RUNTIME_DIR"] = runtime
            os.execv(sys.executable, [sys.executable, "-m", "cachegate", "serve", "--config", str(path)])  # noqa: S606
        shown = b""
        while b"SDKs" not in shown:
            shown += await asyncio.to_thread(os.read, terminal, 65_536)
        os.close(terminal)

        async def ended() -> bool:
            return os.waitpid(child, os.WNOHANG)[0] == child  # noqa: ASYNC222 -- it does not wait

        await until(ended, "the gateway to end with its terminal")


async def test_workers_know_how_many_they_are_and_nothing_of_the_service_manager(tmp_path: Path) -> None:
    async with supervised_program(tmp_path, CONFIG, "--workers", "2", NOTIFY_SOCKET="/nowhere") as gateway:
        for worker in await gateway.workers():
            environ = (Path("/proc") / str(worker) / "environ").read_bytes().split(b"\0")
            assert b"CACHEGATE_WORKERS=2" in environ
            assert not [name for name in environ if name.startswith(b"NOTIFY_SOCKET")]
