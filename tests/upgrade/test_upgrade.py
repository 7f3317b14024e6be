"""Upgrades in place, with real processes: what is taken over, what is left alone, and what is said."""

import asyncio
import json
import os
import shutil
import signal
from pathlib import Path

import pytest
from benchmarks.raw_clients import LARGE, answer_of, ask, connected, head_of, request

import cachegate
from supervised_program import CONFIG, supervised_program, until

pytestmark = pytest.mark.skipif(os.name != "posix", reason="sockets are inherited on POSIX only")

SHORT = "listen: 127.0.0.1:0\nproviders: {synthetic: {kind: synthetic}}\nlimits: {drainSeconds: 0}\n"
MODELS = CONFIG + "models: {fast: synthetic/cache}\n"


async def test_an_upgrade_takes_over_the_configuration_as_it_is_now(tmp_path: Path) -> None:
    async with supervised_program(tmp_path, MODELS) as gateway:
        (before,) = await gateway.workers()
        gateway.config.write_text(CONFIG + "models: {quick: synthetic/cache}\n")
        code, words, _ = await gateway.command("upgrade")
        assert code == 0
        assert words.startswith(
            f"Upgraded: 1 new worker of version {cachegate.__version__} (generation 2). Old streams"
        )
        (after,) = await gateway.workers()
        assert after != before
        async with connected(gateway.port) as (reader, writer):
            writer.write(b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n")
            _, _, body = await answer_of(reader)
        assert json.loads(body)["data"][0]["id"] == "quick"
        await gateway.logged("Upgraded: 1 new worker")


async def test_a_signal_upgrades_too(tmp_path: Path) -> None:
    async with supervised_program(tmp_path) as gateway:
        (before,) = await gateway.workers()
        gateway.process.send_signal(signal.SIGHUP)
        await gateway.logged("Upgraded:")
        assert before not in await gateway.workers()


async def test_old_streams_run_to_their_end_and_old_connections_are_told_to_close(tmp_path: Path) -> None:
    async with (
        supervised_program(tmp_path) as gateway,
        connected(gateway.port) as (kept, keep),
        connected(gateway.port) as (streamed, stream),
        connected(gateway.port) as (_, _),
    ):
        keep.write(request("cache", stream=False))
        assert (await answer_of(kept))[1].get("connection") != "close"
        stream.write(request("slow", stream=True))
        await head_of(streamed)
        assert (await gateway.upgrade())[0]
        (leaving,) = await gateway.workers("leaving")
        keep.write(request("cache", stream=False))
        status, headers, _ = await answer_of(kept)
        assert (status, headers["connection"]) == (200, "close")
        assert await kept.read() == b""
        rest = await asyncio.wait_for(streamed.readuntil(b"response.completed"), 30)
        assert rest

        async def left() -> bool:
            return leaving not in await gateway.workers("leaving")

        await until(left, "the old worker to close what rests, and to go")


async def test_a_connection_whose_stream_outlived_the_upgrade_serves_once_more(tmp_path: Path) -> None:
    """Its head could not say `close`; cut right behind its end, the client's next request would be lost."""
    outlasting = CONFIG.replace("0.2", "0.45")
    async with supervised_program(tmp_path, outlasting) as gateway, connected(gateway.port) as (reader, writer):
        writer.write(request("slow", stream=True))
        answering = asyncio.create_task(answer_of(reader))

        async def runs() -> bool:
            told = await gateway.status()
            return bool(told["workers"][0]["inFlight"] == 1)

        await until(runs, "the stream to begin")
        assert (await gateway.upgrade())[0]
        assert (await answering)[1].get("connection") != "close"
        await gateway.command(
            "status"
        )  # as long as a client may take to send on: its grace begins with its answer's end
        writer.write(request("cache", stream=False))
        status, headers, _ = await answer_of(reader)
        assert (status, headers["connection"]) == (200, "close")


async def test_at_the_end_of_the_drain_a_stream_gets_its_protocols_error(tmp_path: Path) -> None:
    async with (
        supervised_program(tmp_path, SHORT, "--log-json") as gateway,
        connected(gateway.port) as (reader, writer),
    ):
        writer.write(request("hang", stream=True))
        await head_of(reader)
        assert (await gateway.upgrade())[0]
        told = await asyncio.wait_for(reader.read(), 30)
        assert b'"type":"response.failed"' in told
        assert b"shutting down" in told
        record = json.loads(await gateway.logged('"event":"request"'))
        assert (record["ending"], record["guard"]["outcome"]) == ("shutdown", "allowed")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("listn: 1\n", "listn: there is no such key. Did you mean listen?"),
        ("listen: 127.0.0.1:1\n", "listen: the address cannot change in an upgrade, from 127.0.0.1:0 to 127.0.0.1:1."),
        ("providers: {c: {kind: copilot}}\nlisten: 127.0.0.1:0\n", "A new worker says: the configuration:"),
    ],
    ids=["a key nobody knows", "another address", "a part that cannot be built"],
)
async def test_a_bad_configuration_changes_nothing_and_is_told(tmp_path: Path, config: str, words: str) -> None:
    hidden = tmp_path / "copilot"
    hidden.mkdir()
    (hidden / "__init__.py").write_text("raise ImportError('hidden for this test')")
    async with supervised_program(tmp_path, PYTHONPATH=f"{tmp_path}{os.pathsep}{_source().parent}") as gateway:
        before = await gateway.workers()
        gateway.config.write_text(config)
        code, _, said = await gateway.command("upgrade")
        assert code == 1
        assert said.startswith("Nothing was upgraded, and the old workers serve on. ")
        assert words in said
        assert await gateway.workers() == before
        assert (await ask(gateway.port, "cache"))[0] == 200
        await gateway.logged("Nothing was upgraded")
        gateway.config.write_text(CONFIG)
        assert (await gateway.upgrade())[0], "mended, it goes through"


def _source() -> Path:
    return Path(cachegate.__file__).parent


def _installed(folder: Path) -> Path:
    """Copy the package to where a test may change it."""
    copy = folder / "installed" / "cachegate"
    shutil.copytree(_source(), copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


BROKEN = {
    "an import fails": (
        "config.py",
        "import",
        "raise ImportError('half installed')",
        "The installed code does not start:",
    ),
    "a worker ends": ("serving.py", "    asked =", "    sys.exit(3)", "A new worker ended with exit code 3"),
    "a worker is killed": ("serving.py", "    asked =", "    os.abort()", "A new worker was ended by SIGABRT."),
}


@pytest.mark.parametrize(("name", "before", "code", "words"), BROKEN.values(), ids=BROKEN)
async def test_bad_code_changes_nothing_and_is_told(
    tmp_path: Path, name: str, before: str, code: str, words: str
) -> None:
    package = _installed(tmp_path)
    async with supervised_program(tmp_path, PYTHONPATH=str(package.parent)) as gateway:
        workers = await gateway.workers()
        file = package / name
        text = file.read_text()
        file.write_text(text.replace(before, f"{code}\n{before}", 1))
        done, said = await gateway.upgrade()
        assert not done
        assert said.startswith("Nothing was upgraded, and the old workers serve on. ")
        assert words in said
        assert (await ask(gateway.port, "cache"))[0] == 200
        file.write_text(text)
        assert await gateway.workers() == workers


async def test_other_code_really_runs_after_an_upgrade(tmp_path: Path) -> None:
    package = _installed(tmp_path)
    async with supervised_program(tmp_path, PYTHONPATH=str(package.parent)) as gateway:
        (package / "__init__.py").write_text('"""Later."""\n\n__version__ = "9.9.9"\n')
        done, said = await gateway.upgrade()
        assert done
        assert "1 new worker of version 9.9.9 (generation 2)" in said
        async with connected(gateway.port) as (reader, writer):
            writer.write(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert json.loads((await answer_of(reader))[2])["version"] == "9.9.9"
        told = await gateway.status()
        assert told["workers"][-1]["version"] == "9.9.9"
        assert told["version"] == cachegate.__version__, "the supervisor stays what it was"


async def test_upgrades_at_the_same_time_follow_each_other(tmp_path: Path) -> None:
    async with supervised_program(tmp_path) as gateway:
        answers = await asyncio.gather(*(gateway.upgrade() for _ in range(3)))
        assert [done for done, _ in answers] == [True] * 3
        assert len({words for _, words in answers}) >= 2, "one waited for the other"
        assert len(await gateway.workers()) == 1


async def test_a_stop_survives_an_upgrade_and_misses_on_both_sides_add_up_r12_r20(tmp_path: Path) -> None:
    """R12: two in a row, whichever worker saw them; R20: an upgrade is no restart."""
    async with supervised_program(tmp_path, CONFIG, "--workers", "2") as gateway:
        asked: list[int] = []

        async def cold(thread: str) -> int:
            """Ask once, and wait until the guard knows how it went: the next request may reach another worker."""
            status, _ = await ask(gateway.port, "cold", said=LARGE, thread=thread)
            asked.append(status)

            async def settled() -> bool:
                return len([line for line in gateway.log if "guard" in line]) == len(asked)

            await until(settled, "the record of a request")
            return status

        assert [await cold("stopped") for _ in range(3)] == [200, 200, 400]
        assert await cold("once") == 200
        assert (await gateway.upgrade())[0]
        assert await cold("stopped") == 400
        assert [await cold("once") for _ in range(2)] == [200, 400]


async def test_without_a_gateway_the_words_say_how_to_start_one(tmp_path: Path) -> None:
    async with supervised_program(tmp_path) as gateway:
        assert await gateway.stop() == 0
        for command in ("upgrade", "status"):
            code, _, err = await gateway.command(command)
            assert code == 1
            assert err.startswith(f"No supervised gateway answers for {gateway.url} (")
            assert "cachegate serve" in err
